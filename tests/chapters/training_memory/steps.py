"""Sample traces of a training step: its phases, and in each its operators with their kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.tool import events

Op = tuple[str, Sequence[Sequence[int]], Sequence[str], float]
"""Its kernel, the shapes and the types of its tensors, and the kernel's microseconds."""
Phases = dict[str, list[Op]]
WIDE, NARROW, WEIGHT = [64, 128, 3072], [64, 128, 768], [3072, 768]
BF16, F32 = "c10::BFloat16", "float"
NAMES = {BF16: "bfloat16_copy_kernel_cuda", F32: "direct_copy_kernel_cuda"}
MATMULS = {
    "f32": "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute",
    "tf32": "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize256x128x32_warpgroupsize2x1x1_execute_segment_k_off_kernel",
    "bf16": "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT",
}
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
SUM = "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, 4>"
SQUARES = "void at::native::elementwise_kernel<128, 2, at::native::addcmul_cuda_scalar>"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>"


def matmul(kind: str, us: float) -> Op:
    return MATMULS[kind], [WEIGHT, NARROW], [F32 if "32" in kind else BF16] * 2, us


def cast(shape: Sequence[int], to: str, us: float, compiled: bool = False) -> Op:
    """A kernel that only converts; a compiled one has its input first."""
    types = [BF16 if to == F32 else F32, to]
    if compiled:
        return "triton_poi_fused__to_copy_t_1", [shape, shape, []], [*types, "Scalar"], us
    return (
        f"void at::native::unrolled_elementwise_kernel<at::native::{NAMES[to]}(at::TensorIteratorBase&)>",
        [shape, shape, []],
        [*types[::-1], "Scalar"],
        us,
    )


def pointwise(us: float = 20.0) -> Op:
    return POINTWISE, [WIDE, WIDE], [F32, F32], us


def merged(us: float = 20.0) -> Op:
    return "triton_per_fused__to_copy_add_native_layer_norm_2", [NARROW, NARROW], [F32, BF16], us


def phases(
    kind: str = "bf16",
    matmul_us: float = 100.0,
    layers: int = 2,
    casts: str = "",
    optimizer: Sequence[float] = (90.0,),
    input_casts: int = 2,
    weight_casts: int = 3,
) -> Phases:
    """A step: its products are of a kind, its casts `eager`, `compiled` or none."""
    compiled = casts == "compiled"
    forward, backward = list[Op](), list[Op]()
    for _ in range(layers):
        forward.append(merged() if compiled else (NORM, [NARROW], [F32], 10.0))
        forward += [cast(WEIGHT, BF16, 5.0, compiled)] * (weight_casts if casts else 0)
        forward += [cast(NARROW, BF16, 15.0)] * (input_casts if casts == "eager" else 0)
        forward += [*[matmul(kind, matmul_us)] * 3, pointwise(), pointwise()]
        backward += [*[matmul(kind, matmul_us)] * 6, pointwise(), pointwise()]
        backward += [cast(NARROW, F32, 15.0)] * (2 if casts == "eager" else 0)
        backward += [cast(WEIGHT, F32, 5.0, compiled)] * (3 if casts else 0)
    updates: list[Op] = [(POINTWISE, [WEIGHT], [F32], us) for us in optimizer]
    return {"forward": forward, "loss": [pointwise(), pointwise()], "backward": backward, "optimizer": updates}


def trace(work: Phases, label: str = "train_step", steps: int = 3) -> bytes:
    """Equal steps of these phases; each operator takes 5 us on the CPU, and the GPU follows 20 us behind."""
    found = [event for place in range(steps) for event in _step(place, work, label)]
    return events.trace_bytes(*found, deviceProperties=[{"id": 0, "name": "NVIDIA Sample"}])


def operator_of(kernel: str) -> str:
    """The operator that launches a kernel."""
    if kernel == SUM:
        return "aten::add"
    if kernel == SQUARES:
        return "aten::addcmul_"
    return "aten::copy_" if "_copy_kernel" in kernel else kernel if "triton" in kernel else "aten::op"


def _step(place: int, work: Phases, label: str) -> Iterator[events.Event]:
    gpu_us = sum(us for ops in work.values() for *_, us in ops)
    cpu_us = 5.0 * sum(map(len, work.values())) + 10
    start = place * (cpu_us + gpu_us + 1000.0)
    yield events.step(place + 2, start, cpu_us + 20)
    yield events.annotation(label, start + 2, cpu_us + 10)
    begin, free, number = start + 5.0, 0.0, 10_000 * (place + 1)
    for phase, ops in work.items():
        yield events.annotation(phase, begin, 5.0 * len(ops))
        for kernel, shapes, types, us in ops:
            number += 1
            op = operator_of(kernel)
            dims = [list(shape) for shape in shapes]
            yield events.op(op, begin, 4.5, external=number, dims=dims, types=list(types))
            yield events.launch(number, begin + 1, external=number)
            free = max(begin + 20, free)
            yield events.kernel(kernel, number, free, us, **{"External id": number})
            free += us
            begin += 5.0
