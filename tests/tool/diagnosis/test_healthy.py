"""Traces of programs that have no fault: no rule may find one, or only what it costs."""

from __future__ import annotations

import pytest

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from tests.tool.diagnosis.gpu_work import BF16, GEMM, H200
from tests.tool.diagnosis.traces import DOWNLOAD, PINNED_UPLOAD, copied, without_cpu
from tests.tool.events import HOST, Event, annotation, kernel, launch, op, step, trace_bytes

TRITON = "triton_poi_fused_add_gelu_mul_{}"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SIDE = 4096


def found(trace: Trace) -> dict[str, str]:
    """Rule -> severity of what is found."""
    diagnosis = diagnose(trace)
    step_us = diagnosis.facts.long_run_us
    return {each.rule.name: each.severity(step_us) for each in diagnosis.findings}


def read(*events: Event) -> Trace:
    return read_trace(trace_bytes(*events, deviceProperties=[H200]))


def product(number: int, at: float, gpu: float, duration: float, *, stream: int = 7) -> list[Event]:
    """`aten::mm` of 10 us on the CPU: 4096 x 4096 x 4096 in bfloat16 takes 139 us at the H200's peak."""
    sides, strides = [[SIDE, SIDE]] * 2, [[SIDE, 1]] * 2
    return [
        op("aten::mm", at, 10.0, dims=sides, strides=strides, types=[BF16, BF16]),
        launch(number, at + 4.0, 4.0),
        kernel(GEMM, number, gpu, duration, stream=stream),
    ]


def compiled_training(steps: int = 4, *, reduced: bool = False) -> list[Event]:
    """Steps of 2,100 us: the CPU launches ten products and fused kernels in 250 us, then waits for nothing.

    `reduced`: gradients are reduced on a stream of their own; 60 us of the last outlast the last kernel.
    """
    events: list[Event] = []
    gpu = 30.0
    for index in range(steps):
        start, number = 2100.0 * index, 100 * index + 1
        events += [step(index, start, 2100.0), op("Torch-Compiled Region: 0/0", start + 5.0, 290.0)]
        events.append(copied(PINNED_UPLOAD, number, gpu, 10.0, 1_000_000))
        events.append(launch(number, start + 2.0, 3.0, name="cudaMemcpyAsync"))
        gpu += 10.0
        for each in range(10):
            number += 2
            events += product(number, start + 10.0 + 25.0 * each, gpu, 180.0)
            events += [launch(number + 1, start + 24.0 + 25.0 * each, 4.0, name="cuLaunchKernel")]
            events += [kernel(TRITON.format(each), number + 1, gpu + 181.0, 25.0)]
            if reduced and each % 3 == 0:
                events += [op("c10d::allreduce_", start + 29.0 + 25.0 * each, 4.0)]
                events += [launch(number + 50, start + 30.0 + 25.0 * each, 2.0, name="cudaLaunchKernelExC")]
                events += [kernel(NCCL, number + 50, gpu + 20.0, 246.0, stream=20)]
            gpu += 207.0
        gpu += 2100.0 * (index + 1) + 30.0 - gpu if not reduced else 60.0
    return events


def test_a_compiled_training_step() -> None:
    assert found(read(*compiled_training())) == {}


def test_data_parallel_training_that_hides_its_collectives() -> None:
    trace = read(*compiled_training(reduced=True))
    assert len(trace.steps) == 4
    assert found(trace) == {}


def test_the_gpu_alone() -> None:
    """Without the CPU, rules about launches, waits and operators cannot tell, and none invents a fault."""
    bare = without_cpu(read(*compiled_training()))
    assert found(bare) == {}
    assert {"launch-bound", "sync-in-step"} <= {each.rule.name for each in diagnose(bare).cannot_tell}


def test_the_cpu_alone() -> None:
    events = [step(index, 1000.0 * index, 1000.0) for index in range(4)]
    events += [op("aten::mm", 1000.0 * index + 20.0, 950.0) for index in range(4)]
    assert found(read(*events)) == {}


def decoding(steps: int = 4, *, reads: bool = True) -> list[Event]:
    """A CUDA graph of 300 kernels of 4 us and 1 us apart; then the CPU reads the token and prepares the next step."""
    events: list[Event] = []
    for index in range(steps):
        start, number = 1600.0 * index, 10 * index + 1
        events += [
            annotation("execute_model", start, 1590.0),
            launch(number, start + 5.0, 20.0, name="cudaGraphLaunch"),
        ]
        events += [kernel(f"layer_{each % 10}", number, start + 20.0 + 5.0 * each, 4.0) for each in range(300)]
        if reads:
            events += [op("aten::to", start + 30.0, 1500.0), op("aten::copy_", start + 31.0, 1498.0)]
            events += [launch(number + 1, start + 35.0, 5.0, name="cudaMemcpyAsync")]
            events += [launch(None, start + 42.0, 1485.0, name="cudaStreamSynchronize")]
            events += [copied(DOWNLOAD, number + 1, start + 1521.0, 2.0, 256)]
    return events


def test_decoding_in_cuda_graphs() -> None:
    """Reading the token waits, and costs what the GPU idles until the next replay: 97 of 1,600 us."""
    assert found(read(*decoding())) == {"sync-in-step": "medium"}
    assert found(read(*decoding(reads=False))) == {}


def test_inference_with_batch_1() -> None:
    """The CPU needs 15 us for an operator, the GPU 200 us for its kernel."""
    events: list[Event] = []
    for index in range(4):
        start = 4020.0 * index
        events.append(step(index, start, 4020.0))
        for each in range(20):
            at = 4020.0 * index + 15.0 * each
            events += product(100 * index + each + 1, at, start + 12.0 + 200.2 * each, 200.0)
    assert found(read(*events)) == {}


@pytest.mark.parametrize("marked", [True, False])
def test_one_kernel(marked: bool) -> None:
    events = [op("aten::mm", 40.0, 20.0), launch(1, 50.0, 5.0), kernel(GEMM, 1, 70.0, 5.0)]
    events += [launch(None, 61.0, 30.0, name="cudaDeviceSynchronize")]
    assert found(read(*([step(1, 0.0, 100.0)] if marked else []), *events)) == {}


def evaluating(gpu_us: float) -> Trace:
    """Three batches: a product, `.item()` of the loss, and 60 us until the GPU has work again."""
    events: list[Event] = []
    length = gpu_us + 80.0
    for index in range(3):
        start, number = length * index, 10 * index + 1
        events += [step(index, start, length), *product(number, start + 2.0, start + 12.0, gpu_us)]
        events += [op("aten::item", start + 20.0, gpu_us + 10.0), op("aten::_local_scalar_dense", start + 21.0, gpu_us)]
        events += [launch(number + 1, start + 22.0, 3.0, name="cudaMemcpyAsync")]
        events += [launch(None, start + 26.0, gpu_us - 8.0, name="cudaStreamSynchronize")]
        events += [copied(DOWNLOAD, number + 1, start + gpu_us + 13.0, 2.0, 4)]
    return read(*events)


@pytest.mark.parametrize(
    ("gpu_us", "expected"), [(20_000.0, {}), (2_000.0, "low"), (1_000.0, "medium"), (200.0, "high")]
)
def test_one_item_per_step_weighs_what_it_costs(gpu_us: float, expected: object) -> None:
    result = found(evaluating(gpu_us))
    result.pop("slow-products", None)  # a product of 139 us, made longer here
    assert result == (expected if expected == {} else {"sync-in-step": expected})


def test_threads_of_another_program_do_not_matter() -> None:
    other = [op("aten::mm", 10.0 * each, 9.0, tid=HOST + 1) for each in range(200)]
    assert found(read(*compiled_training(), *other)) == {}
