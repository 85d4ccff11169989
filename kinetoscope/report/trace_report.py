"""The JSON document of a report on one trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from kinetoscope.diagnosis.cpu_states import Cause
from kinetoscope.diagnosis.cpu_times import STATES, cpu_causes
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.memory import MemoryPeak
from kinetoscope.report.diagnosed import DiagnosedTrace
from kinetoscope.report.finding_rows import FindingRow, finding_rows, unanswered_row
from kinetoscope.report.headline import headline
from kinetoscope.report.places import find_places
from kinetoscope.trace.documents import SCHEMA_VERSION, Cut, Unanswered, document_data
from kinetoscope.trace.soundness import is_whole
from kinetoscope.trace.summaries import Summary
from kinetoscope.trace.tokens import sequences


class GpuRow(Struct, frozen=True):
    """The use of one GPU; times are means per step."""

    device: int
    busy_us_per_step: float
    share: float
    """GPU's busy time as a share of a step's time, until all GPUs are done."""
    bubble_us_per_step: float
    """Time in which this GPU is idle while another GPU of the process works."""


class TokenLoop(Struct, frozen=True):
    """A loop that produces one token per step."""

    tokens: int
    sequences: int | None
    """Number of sequences that get a token in a step; null if the trace does not contain the number."""
    us_per_token: float
    before_first_us: float
    """The GPU's time before the first token, which is the prefill if the trace contains the prefill."""


class Waiting(Struct, frozen=True):
    """Who waits for whom: four parts of a mean step, which add up to it until the GPU is done."""

    both_busy_us: float
    only_cpu_us: float
    """Time in which only the CPU works, and the GPU waits for launches, data or Python."""
    only_gpu_us: float
    """Time in which only the GPU works: the CPU waits, or no event of the CPU is recorded."""
    neither_us: float


class GapRow(Struct, frozen=True):
    """The gaps of the GPU in the median step with one cause."""

    cause: Cause
    us: float
    gaps: int


class PlaceRow(Struct, frozen=True):
    """GPU work by the innermost line of the program, or kind of module, around its launch."""

    place: str
    """Line or module, such as `train.py(12): step` or `Linear`; empty for work outside all lines and modules."""
    gpu_us_per_step: float
    launches_per_step: float


class AliveRow(Struct, frozen=True):
    """Blocks in memory at the peak with one origin and one fate."""

    op: str
    where: str
    category: str
    """`activation`, `gradient`, `optimizer state`, `input`, `temporary` or `other`, inferred from the times of
    allocation and release."""
    bytes: int
    count: int


class DevicePeak(Struct, frozen=True, kw_only=True):
    """The peak of a device's allocated memory."""

    device: str
    """Name of the device, such as `GPU 0` or `CPU`."""
    peak_bytes: int
    at_us: float
    reserved_bytes: int | None
    """The most memory that PyTorch's allocator reserved."""
    total_bytes: int | None
    """Size of the device's memory."""
    before_trace_bytes: int | None
    """Memory that was allocated before the trace began; null if the trace has no totals."""


class Memory(DevicePeak, frozen=True, kw_only=True):
    """The largest peak of a GPU, else of the CPU."""

    bytes_by_category: dict[str, int]
    alive: tuple[AliveRow, ...]
    """Memory that is allocated at the peak, the largest amount first."""
    other_devices: tuple[DevicePeak, ...]


class TraceReport(Summary, frozen=True, kw_only=True, tag_field="kind", tag="trace"):
    """The JSON of `report` on one trace: the keys of `summary`, the diagnosis, and where the time goes."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of the schema. It rises when a key is renamed, removed or changes its meaning, not when one is added."""
    file: str
    """Name of the trace's file, without its folder."""
    site: str
    """Address of the book, from `--site`, KINETOSCOPE_SITE or the package; if empty, each `page` is a path."""
    headline: str
    """The time of a step, the GPU's share of this time, and the largest cost, in a sentence or two."""
    findings: tuple[FindingRow, ...]
    """The faults, the largest ceiling first. Empty if no rule found a fault; `cannot_tell` may say why."""
    cannot_tell: tuple[Unanswered, ...]
    """Rules for which the trace lacks data."""
    is_whole: bool
    """Whether times per step can be judged: false if the file is cut off, or kernels, calls or operators in the file
    are damaged or missing."""
    mean_step_us: float
    """The time by which `ceiling_share` is divided: the mean step, or the median step if the median is longer. The
    mean leaves out what the slowest step takes longer than the other steps, unless a fault is about this time."""
    gpus: tuple[GpuRow, ...]
    """The GPUs on which the process computes, by their index."""
    kernels_us_per_step: float
    """Time in which a kernel runs on a GPU."""
    copies_alone_us_per_step: float
    """Time in which copies between host and GPU run, and no kernel runs."""
    idle_us: float | None
    """The GPU's idle time within all steps and between steps; null without GPU work."""
    idle_in_steps_us: float | None
    """The part of `idle_us` within steps."""
    idle_between_steps_us: float | None
    """The part of `idle_us` between steps."""
    waiting: Waiting | None
    """Who waits for whom in a mean step; null without GPU work."""
    gaps: tuple[GapRow, ...]
    """Why the GPU is idle in the median step, the longest time first."""
    cpu_us_per_step: dict[str, float]
    """CPU time of a mean step by what the threads do, the longest time first."""
    source_lines: tuple[PlaceRow, ...]
    """GPU time by line of the program, if the trace has stacks (`with_stack=True`)."""
    modules: tuple[PlaceRow, ...]
    """GPU time by kind of module, if the trace has stacks."""
    token_loop: TokenLoop | None
    """A loop that produces one token per step; null if a step does not produce one token."""
    operators_from_capture: int
    """Number of GPU activities of graph replays that got their operators from `--capture`."""
    memory: Memory | None
    """What memory holds at its peak; null if the trace has no memory events, which need `profile_memory=True`."""
    truncated: tuple[Cut, ...] = ()
    """The lists that this document shortens."""


def trace_report(diagnosed: DiagnosedTrace) -> TraceReport:
    """The document of a report on one trace."""
    facts, use, idle = diagnosed.facts, diagnosed.facts.gpu_use, diagnosed.idle
    step_us = diagnosed.mean_step_us
    modules, lines = _places(diagnosed)
    return TraceReport(
        **structs.asdict(diagnosed.summary),
        file=diagnosed.name,
        site=diagnosed.book,
        headline=headline(diagnosed),
        findings=finding_rows(diagnosed.diagnosis.findings, step_us, diagnosed.book),
        cannot_tell=tuple(map(unanswered_row, diagnosed.diagnosis.cannot_tell)),
        is_whole=is_whole(diagnosed.trace),
        mean_step_us=round(step_us, 3),
        gpus=tuple(GpuRow(gpu.device, gpu.busy_us, gpu.share, gpu.bubble_us) for gpu in use.gpus),
        kernels_us_per_step=use.kernels_us,
        copies_alone_us_per_step=use.host_copies_alone_us,
        idle_us=None if idle is None else idle.total_us,
        idle_in_steps_us=None if idle is None else idle.in_steps_us,
        idle_between_steps_us=None if idle is None else idle.between_steps_us,
        waiting=_waiting(diagnosed),
        gaps=_gaps(facts),
        cpu_us_per_step={STATES[cause][0]: round(us, 3) for cause, us in cpu_causes(facts).items()},
        source_lines=lines,
        modules=modules,
        token_loop=_token_loop(diagnosed),
        operators_from_capture=diagnosed.captured,
        memory=memory_data(diagnosed.memory),
    )


def report_data(diagnosed: DiagnosedTrace, rows: int | None = None) -> dict[str, Any]:
    """The document as JSON data, with `rows` of each list, or all."""
    return document_data(trace_report(diagnosed), rows)


def _waiting(diagnosed: DiagnosedTrace) -> Waiting | None:
    if not diagnosed.has_gpu:
        return None
    waits = diagnosed.waits
    return Waiting(waits.both_busy_us, waits.only_cpu_us, waits.only_gpu_us, waits.neither_us)


def _gaps(facts: Facts) -> tuple[GapRow, ...]:
    counts = Counter(gap.cause for gap in facts.gaps)
    times = sorted(facts.gaps_us.items(), key=lambda item: -item[1])
    return tuple(GapRow(cause, us, counts[cause]) for cause, us in times if us)


def _places(diagnosed: DiagnosedTrace) -> tuple[tuple[PlaceRow, ...], tuple[PlaceRow, ...]]:
    """GPU time by module and by line; empty without stacks."""
    trace = diagnosed.trace
    if not trace.functions:
        return (), ()
    places = find_places(trace)
    return (
        _place_rows(places.module_us, places.module_launches, len(trace.steps)),
        _place_rows(places.line_us, places.line_launches, len(trace.steps)),
    )


def _place_rows(times: Counter[str], launches: Counter[str], steps: int) -> tuple[PlaceRow, ...]:
    if not any(times):  # no name but the empty one
        return ()
    ordered = sorted(times.items(), key=lambda item: (-item[1], item[0]))
    return tuple(PlaceRow(name, round(us / steps, 3), round(launches[name] / steps, 3)) for name, us in ordered)


def _token_loop(diagnosed: DiagnosedTrace) -> TokenLoop | None:
    facts = diagnosed.facts
    if not facts.is_token_loop:
        return None
    tokens, of_step = len(facts.token_steps), sequences(facts.step.ops)
    return TokenLoop(tokens, of_step, diagnosed.step_us, diagnosed.before_first_us)


def memory_data(peaks: Sequence[MemoryPeak]) -> Memory | None:
    """The first peak with its blocks, and the peaks of other devices; None if nothing was recorded."""
    if not peaks:
        return None
    return Memory(
        **structs.asdict(_peak(peaks[0])),
        bytes_by_category=dict[str, int](peaks[0].by_category.items()),
        alive=tuple(AliveRow(*each) for each in peaks[0].alive),
        other_devices=tuple(map(_peak, peaks[1:])),
    )


def _peak(peak: MemoryPeak) -> DevicePeak:
    return DevicePeak(
        device=peak.name,
        peak_bytes=peak.peak_bytes,
        at_us=peak.at_us,
        reserved_bytes=peak.reserved_bytes,
        total_bytes=peak.total_bytes,
        before_trace_bytes=peak.before_bytes,
    )
