"""Sample recordings of the chapter regimes: round numbers, so that each figure can be computed by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from snippets.lab.experiment import Parameters
from snippets.lab.recording.schema import Timing
from snippets.regimes.experiments.growth import TOKENS
from tests.chapters.regimes.compiling_samples import compiling_recordings
from tests.lab.sample_recordings import SPREAD, Sample, sample_of
from tests.lab.samples import Operator

CPU_US = {"stack": 45.0, "stack_compiled": 70.0, "gelu": 8.0, "geglu": 80.0}
"""What enqueueing a step of each sweep takes at any size."""
LAUNCH_US: dict[str, tuple[float, Callable[[int], float]]] = {
    "eager": (360.0, lambda tokens: 100 + tokens / 5),
    "compiled": (400.0, lambda tokens: 100 + tokens / 5),
    "fused": (300.0, lambda tokens: 90 + tokens / 4),
    "graphed": (12.0, lambda tokens: 100 + tokens / 5),
    "fused_graphed": (12.0, lambda tokens: 90 + tokens / 4),
    "reduce_overhead": (60.0, lambda tokens: 105 + tokens / 5),
}
"""Variant of eight blocks -> the CPU's time, and the GPU's by tokens."""
BLOCK: tuple[Operator, ...] = (
    ("aten::addmm", [[4096], [64, 1024], [1024, 4096]], [("up", 4.0)]),
    ("aten::gelu", [[64, 4096]], [("gelu", 2.0)]),
    ("aten::addmm", [[1024], [64, 4096], [4096, 1024]], [("down", 5.0)]),
)
FUSED_BLOCK: tuple[Operator, ...] = (("triton", [[64, 1024]], [("linear_gelu_kernel", 5.0)]), BLOCK[2])
GRAPH: tuple[Operator, ...] = (
    ("aten::copy_", [[64, 1024]], [("Memcpy DtoD", 2.0)]),
    ("graph", [], [("whole graph", 98.0)]),
)
TRACED = {
    "eager": BLOCK * 8,
    "compiled": BLOCK * 8,
    "fused": FUSED_BLOCK * 8,
    "graphed": GRAPH,
    "fused_graphed": GRAPH,
    "reduce_overhead": GRAPH,
}


def timing(us: float) -> Timing:
    """Five samples around a median."""
    return Timing(us, SPREAD[1] * us, SPREAD[3] * us, tuple(share * us for share in SPREAD))


def with_cpu(sample: Sample, cpu_us: float) -> Sample:
    """The sample with this time to enqueue a step, and a loop from Python that waits for the slower side."""
    recording, trace = sample
    points = []
    for point in recording.points:
        assert point.timings is not None
        gpu_us = point.timings.interleaved.median_us
        wall_us = max(cpu_us, gpu_us) + 2
        timings = msgspec.structs.replace(point.timings, enqueue=timing(cpu_us), from_python=timing(wall_us))
        points.append(msgspec.structs.replace(point, timings=timings))
    return msgspec.structs.replace(recording, points=tuple(points)), trace


def stack_us(parameters: Parameters) -> float:
    """10 us up to 256 tokens, then in proportion."""
    return 10.0 * max(1.0, int(parameters["tokens"]) / 256)


def gelu_us(parameters: Parameters) -> float:
    """Its bytes at 3.6 TB/s, and 2 us at least: 149 us at 32,768 tokens."""
    return max(2.0, 4 * int(parameters["tokens"]) * 4096 / 3.6e6)


def launched(large: int = 5) -> dict[str, object]:
    """Four activities a step up to 64 tokens, `large` at more, and at 128 tokens steps that differ."""
    found: dict[str, object] = {}
    names = [["kernel"] * (0 if tokens == 128 else 4 if tokens <= 64 else large) for tokens in TOKENS]
    for name in ("stack", "geglu"):
        found[name] = {"tokens": list(TOKENS), "names": names}
    return found


def growth() -> Iterable[Sample]:
    """The sweeps, and a trace of each regime."""
    times = {"stack": stack_us, "stack_compiled": stack_us, "gelu": gelu_us, "geglu": stack_us}
    for name, us in times.items():
        yield with_cpu(sample_of(f"regimes/growth_{name}", us), CPU_US[name])
    yield sample_of("regimes/growth_launches", 0.0, data=launched())
    for regime in ("overhead_bound", "compute_bound"):
        yield sample_of(f"regimes/{regime}", 11.0, BLOCK)
    yield sample_of("regimes/memory_bound", 149.0, BLOCK[1:2])


def by_tokens(us: Callable[[int], float], parameters: Parameters) -> float:
    """A time that depends on a point's tokens alone."""
    return us(int(parameters["tokens"]))


def launches() -> Iterable[Sample]:
    """Eight blocks: the times of each variant, and traces at two sizes."""
    for variant, (cpu_us, gpu_us) in LAUNCH_US.items():
        yield with_cpu(sample_of(f"regimes/launch_{variant}", partial(by_tokens, gpu_us)), cpu_us)
        for size in ("small", "large"):
            yield sample_of(f"regimes/{size}_{variant}", 100.0, TRACED[variant])


def recordings() -> Iterable[Sample]:
    """Samples of every experiment of the chapter."""
    yield from growth()
    yield from launches()
    yield from compiling_recordings()
