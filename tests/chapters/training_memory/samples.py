"""Made-up recordings: for the tests here, and for `make serve SAMPLE=training_memory`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snippets.lab.recording.schema import Timing
from snippets.training_memory.experiments import precision
from tests.chapters.training_memory.memory_samples import memory_recordings
from tests.chapters.training_memory.steps import Phases, phases, trace
from tests.lab import samples
from tests.lab.sample_recordings import SPREAD, Sample, sample_of

ITERATION_US = {
    "fp32": 20_000.0,
    "tf32": 6_000.0,
    "autocast": 4_000.0,
    "bfloat16": 3_000.0,
    "autocast_compiled": 3_000.0,
    "bfloat16_compiled": 2_800.0,
    "optimizer_foreach": 4_200.0,
    "optimizer_loop": 4_300.0,
}
CLOCKS_MHZ = {"bfloat16_compiled": 1600.0}
LAYERS = 2


def step_phases() -> dict[str, Phases]:
    """A step of each variant."""
    return {
        "fp32": phases("f32", 1000.0, LAYERS),
        "tf32": phases("tf32", 250.0, LAYERS),
        "autocast": phases(layers=LAYERS, casts="eager"),
        "bfloat16": phases(layers=LAYERS),
        "autocast_compiled": phases(layers=LAYERS, casts="compiled"),
        "bfloat16_compiled": phases(layers=LAYERS),
        "optimizer_foreach": phases(layers=LAYERS, casts="eager", optimizer=[25.0] * 12),
        "optimizer_loop": phases(layers=LAYERS, casts="eager", optimizer=[5.0] * 60),
    }


def recordings() -> list[Sample]:
    """One for each experiment of both pages."""
    return [*precision_recordings(), *memory_recordings()]


def precision_recordings(
    changed: Mapping[str, Phases] | None = None,
    iterations: Mapping[str, float] | None = None,
    data: dict[str, Any] | None = None,
    clocks: Mapping[str, float] | None = None,
) -> list[Sample]:
    """The recordings of the first page, with changed steps, iterations, probe data or clocks."""
    steps = step_phases() | dict(changed or {})
    times = ITERATION_US | dict(iterations or {})
    clocks_mhz = CLOCKS_MHZ | dict(clocks or {})
    loops = [_loop(name, steps[name], times[name], clocks_mhz.get(name, 1900.0)) for name in precision.VARIANTS]
    return [*loops, sample_of("training_memory/accuracy", 0.0, data=data or accuracy())]


def _loop(name: str, step: Phases, iteration_us: float, clock_mhz: float) -> Sample:
    parameters = {**precision.SHAPE, "layers": LAYERS}
    work = precision.step_work(**parameters)
    point = samples.point(
        parameters,
        flops=work.flops,
        bytes=work.bytes,
        iteration=Timing.from_samples([share * iteration_us for share in SPREAD], clock_mhz=clock_mhz),
        reference_dtype="float32",
    )
    recording = samples.sample(f"training_memory/{name}", label=precision.LABEL, points=(point,))
    return recording, trace(step)


def accuracy(rate: str = "", **bfloat16: Any) -> dict[str, Any]:
    """What the probe returns: bf16 weights learn less, at 1e-3 a little; the data of a rate can be changed."""
    exact = {
        "at": [0, 25, 50],
        "losses": [round(0.12 / (1 + step), 5) for step in range(51)],
        "matrices": [0.0, 0.001, 0.001],
        "norms": [0.0, 0.0, 0.0],
        "norms_moved": 1.0,
        "evaluated": [0.003 + 0.0001 * index for index in range(8)],
    }
    poor = {
        **exact,
        "matrices": [0.2, 0.5, 0.7],
        "norms": [1.0, 1.0, 1.0],
        "norms_moved": 0.0,
        "evaluated": [0.006 + 0.0001 * index for index in range(8)],
    }
    fair = {**poor, "matrices": [0.1, 0.2, 0.3], "evaluated": [1.2 * loss for loss in exact["evaluated"]]}
    same = {"fp32": exact, "tf32": exact, "autocast": exact}
    found = {"1e-3": {**same, "bfloat16": fair}, "1e-4": {**same, "bfloat16": poor}}
    if rate:
        found[rate]["bfloat16"] = {**found[rate]["bfloat16"], **bfloat16}
    return found
