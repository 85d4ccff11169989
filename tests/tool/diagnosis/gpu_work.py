"""Steps written by hand: each launch with its operator, kernel, time and inputs; the trace is read like any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import Event, annotation, kernel, launch, memcpy, memset, op, step, trace_bytes

H200 = {"name": "NVIDIA H200", "computeMajor": 9}
V100 = {"name": "Tesla V100-SXM2-32GB", "computeMajor": 7}
MI300X = {"name": "AMD Instinct MI300X"}

_VECTORIZED = "void at::native::vectorized_elementwise_kernel<8, {}, std::array<char*, 3ul> >(int, {})"
_MUL = "at::native::BinaryFunctor<{0}, {0}, {0}, at::native::binary_internal::MulFunctor<float> >"
MUL = _VECTORIZED.format(_MUL.format("c10::BFloat16"), "")
MUL_F64 = _VECTORIZED.format(_MUL.format("double"), "")
ADD = _VECTORIZED.format("at::native::CUDAFunctor_add<c10::BFloat16>", "")
FILL = _VECTORIZED.format("at::native::FillFunctor<float>", "")
CONVERT = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda()#3}::operator()() const::{lambda()#10}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4>"
)
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(c10::BFloat16)#1}> >"
)
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>(...)"
FOREACH = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
SGEMM = "ampere_sgemm_128x64_tn"
TF32 = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(Params)"
LAYOUT = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(Params)"
CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_kernel_cudnn"

BF16, F32, F64 = "c10::BFloat16", "float", "double"
Shape = Sequence[int]


@dataclass(frozen=True)
class Work:
    """One launch of a step; `inside`: names around its operator, outermost first, `@` before an annotation."""

    name: str
    us: float
    op: str | None = None
    dims: Sequence[Shape] | None = None
    types: Sequence[str] | None = None
    inside: Sequence[str] = ()
    stream: int = 7
    gap_us: float = 1.0
    """Idle time of the GPU before it."""
    moved_bytes: int | None = None
    """Of a memcpy, or of a memset by its name."""
    call: str = "cudaLaunchKernel"


def facts(
    *work: Work,
    device: dict[str, Any] | None = H200,
    step_us: float = 100.0,
    steps: int = 1,
    before: Sequence[Work] = (),
) -> Facts:
    """The facts of a trace whose steps each do this work; `before`: work before the first step."""
    events: list[Event] = []
    start, free = 0.0, 0.0
    for index, each in enumerate(before):
        events += _events(each, 10_000 + index, start, 50.0, free + each.gap_us)
        start, free = start + 50.0, free + each.gap_us + each.us
    start = max(start, free)
    for number in range(steps):
        length = max(step_us, 1.0 * len(work))
        events.append(step(number, start, length))
        free = max(free, start)
        for index, each in enumerate(work):
            free += each.gap_us
            correlation = number * len(work) + index + 1
            events += _events(each, correlation, start + index * length / len(work), length / len(work), free)
            free += each.us
        start = max(start + length, free) + 10.0
    return Facts(read_trace(trace_bytes(*events, deviceProperties=[device] if device else [])))


def _events(work: Work, correlation: int, start: float, length: float, gpu_start: float) -> list[Event]:
    events = [launch(correlation, start + 0.6 * length, 0.1 * length, name=work.call)]
    for depth, name in enumerate(work.inside):
        make = annotation if name.startswith("@") else op
        events.append(make(name.removeprefix("@"), start + 0.01 * depth * length, (0.99 - 0.02 * depth) * length))
    if work.op is not None:
        strides = [_strides(dims) for dims in work.dims] if work.dims else None
        inputs = {"dims": work.dims, "strides": strides, "types": work.types}
        events.append(op(work.op, start + 0.5 * length, 0.3 * length, **inputs))
    if work.moved_bytes is None:
        events.append(kernel(work.name, correlation, gpu_start, work.us, stream=work.stream))
    elif work.name.startswith("Memset"):
        events.append(memset(correlation, gpu_start, work.us, work.moved_bytes, stream=work.stream))
    else:
        copy = memcpy(correlation, gpu_start, work.us, work.moved_bytes, stream=work.stream)
        events.append(copy | {"name": work.name})
    return events


def _strides(dims: Shape) -> list[int]:
    strides = [1]
    for size in reversed(dims[1:]):
        strides.insert(0, strides[0] * size)
    return strides[: len(dims)]


def result(rule: Rule, of: Facts) -> list[Finding] | CannotTell:
    """A rule's findings in a trace, through `diagnose`."""
    diagnosis = diagnose(of.trace, [rule])
    return diagnosis.cannot_tell[0] if diagnosis.cannot_tell else list(diagnosis.findings)


def finding(rule: Rule, of: Facts) -> Finding:
    """The one finding of a rule."""
    found = result(rule, of)
    assert isinstance(found, list)
    [only] = found
    return only


def option(rule: Rule, of: Facts) -> str:
    """The option that records what a rule cannot tell."""
    found = result(rule, of)
    assert isinstance(found, CannotTell)
    return found.option
