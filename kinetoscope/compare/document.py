"""The JSON document of a comparison: of `diff`, and of `report` on two traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from kinetoscope.compare.compare import Comparison, Difference
from kinetoscope.compare.comparison import METHOD, change_text, comparison_notes
from kinetoscope.compare.cpu import CpuComparison, OperatorDifference
from kinetoscope.compare.cpu_parts import cpu_change_text, cpu_notes
from kinetoscope.compare.noise import Shift
from kinetoscope.compare.same_steps import ADVICE
from kinetoscope.trace.alignment import ChangeKind
from kinetoscope.trace.documents import SCHEMA_VERSION, Cut, Unanswered

MORE_SAMPLES = "three or more active steps, or several runs: diff --before A1 A2 A3 --after B1 B2 B3"
"""What to record where the noise is unknown."""


class Files(Struct, frozen=True):
    """Names of the files, without their folders."""

    before: tuple[str, ...]
    after: tuple[str, ...]


class Samples(Struct, frozen=True):
    """The values from which the noise comes."""

    unit: Literal["run", "step"]
    before: int
    after: int


class ShiftRow(Struct, frozen=True):
    """A change with its noise."""

    percent: float
    """Change in percent; positive if the work takes longer."""
    noise_percent: float | None
    """The largest change that chance alone causes more often than once in 200 comparisons; null if unknown."""
    p: float
    """Chance of a slowdown at least this large if nothing changed; 1.0 if the noise is unknown."""


class DifferenceRow(Struct, frozen=True):
    """Matched work before and after: of the GPU, or without GPU work an operator's own time."""

    name: str
    """Decoded names, such as `cuBLAS GEMM bf16 → CUTLASS GEMM bf16`."""
    change: ChangeKind
    before: tuple[str, ...]
    """Names of the work before, as the profiler wrote the names, each name once."""
    after: tuple[str, ...]
    calls: tuple[float, float]
    """Number of calls per step, before and after."""
    before_us: float
    """Mean time per step before."""
    after_us: float
    change_us: float
    """Change of the time per step; positive if the work takes longer."""
    shift: ShiftRow | None
    """Change with its noise; null if one side has no such work or no time of such work."""


class RegressionRow(Struct, frozen=True):
    """A slowdown beyond the noise and the limit."""

    name: str
    percent: float
    p: float


class GateRow(Struct, frozen=True):
    """The judgment of `--gate`."""

    percent: float
    """The limit that `--gate` gives."""
    judged: int
    """Number of tested quantities."""
    is_whole: bool
    """Whether the files lost nothing that is judged; if not, the exit code is 3."""
    regressions: tuple[RegressionRow, ...]
    """The slowdowns; the gate passes if this list is empty and `is_whole` is true."""


class ComparisonDocument(Struct, frozen=True, kw_only=True, tag_field="kind", tag="comparison"):
    """The JSON of `diff`, and of `report` on two traces."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of the schema. It rises when a key is renamed, removed or changes its meaning, not when one is added."""
    files: Files
    """Names of the files of each side."""
    headline: str
    """What changed, and whether the change is more than the noise, in a sentence or two."""
    cannot_tell: tuple[Unanswered, ...]
    """What the files cannot show. `times-per-step`: steps before and after run different work. `noise`: one side has a
    single value."""
    gate: GateRow | None = None
    """The judgment of `--gate`; null without `--gate`."""
    gpus: tuple[str, ...]
    """Names of the GPUs before and after; empty without GPU work."""
    samples: Samples
    """Number of values from which the noise is computed."""
    steps_from: tuple[str, str]
    """What marks the steps of each side."""
    do_steps_compare: bool
    """Whether steps before and after run the same work; if false, times per step cannot be compared."""
    gpu_busy: ShiftRow | None
    """Change of the GPU's busy time per step; null without GPU work."""
    step: ShiftRow | None = None
    """Change of a step's time, without GPU work; null with GPU work, where the profiler lengthens steps."""
    totals_us_per_step: dict[str, tuple[float, float]]
    """Times before and after."""
    causes_us_per_step: dict[str, float]
    """Causes that make a step longer (positive) or shorter; all causes add up to the change of the step's time."""
    differences: tuple[DifferenceRow, ...]
    """Differences of the work, the largest change first."""
    damage: tuple[str, ...]
    """What is damaged or missing in the files, in one sentence each."""
    notes: tuple[str, ...]
    """Limits of the comparison, in one sentence each."""
    method: str
    """How the noise is computed."""
    truncated: tuple[Cut, ...] = ()
    """The lists that this document shortens."""


def comparison_document(result: Comparison, files: Files, gate: GateRow | None = None) -> ComparisonDocument:
    """The document of a comparison of GPU work."""
    return ComparisonDocument(
        files=files,
        headline=change_text(result),
        cannot_tell=tuple(_unanswered(result, result.busy)),
        gate=gate,
        gpus=result.devices,
        samples=Samples(result.unit, *result.samples),
        steps_from=result.steps_from,
        do_steps_compare=result.do_steps_compare,
        gpu_busy=_shift(result.busy),
        totals_us_per_step=dict(result.totals),
        causes_us_per_step=dict(result.causes),
        differences=tuple(map(_difference, result.differences)),
        damage=result.damage,
        notes=tuple(comparison_notes(result)),
        method=METHOD,
    )


def cpu_document(result: CpuComparison, files: Files, gate: GateRow | None = None) -> ComparisonDocument:
    """The document of a comparison of traces without GPU work."""
    return ComparisonDocument(
        files=files,
        headline=cpu_change_text(result),
        cannot_tell=tuple(_unanswered(result, result.step)),
        gate=gate,
        gpus=(),
        samples=Samples(result.unit, *result.samples),
        steps_from=result.steps_from,
        do_steps_compare=result.do_steps_compare,
        gpu_busy=None,
        step=_shift(result.step),
        totals_us_per_step=dict(result.totals),
        causes_us_per_step={
            name: round(after - before, 3) for name, (before, after) in result.totals.items() if name != "step"
        },
        differences=tuple(map(_operator, result.differences)),
        damage=result.damage,
        notes=tuple(cpu_notes(result)),
        method=METHOD,
    )


def named(before: Sequence[str], after: Sequence[str]) -> Files:
    """The names of the files."""
    return Files(tuple(before), tuple(after))


def _unanswered(result: Comparison | CpuComparison, judged: Shift) -> Iterator[Unanswered]:
    if not result.do_steps_compare:
        yield Unanswered("times-per-step", " ".join(result.notes), ADVICE)
    if not judged.freedom:
        yield Unanswered("noise", f"each side has one {result.unit}", MORE_SAMPLES)


def _difference(each: Difference) -> DifferenceRow:
    return DifferenceRow(
        each.name,
        each.kind,
        each.before,
        each.after,
        each.calls,
        each.before_us,
        each.after_us,
        each.change_us,
        _shift(each.shift),
    )


def _operator(each: OperatorDifference) -> DifferenceRow:
    before, after = ((each.name,) if calls else () for calls in each.calls)
    calls = round(each.calls[0], 3), round(each.calls[1], 3)
    times = each.before_us, each.after_us, each.change_us
    return DifferenceRow(each.name, each.kind, before, after, calls, *times, _shift(each.shift))


def _shift(changed: Shift | None) -> ShiftRow | None:
    if changed is None:
        return None
    noise = changed.noise_percent
    rounded = None if noise is None else round(noise, 3)
    return ShiftRow(round(changed.percent, 3), rounded, round(changed.p, 6))
