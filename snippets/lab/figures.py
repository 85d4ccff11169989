"""One number of a recording, by name: `mlp.eager.kernels_per_step`, and in prose `#!fig mlp.eager.kernels_per_step`.

A name is `<chapter>.<experiment>.<quantity>` for what every recording has (`QUANTITIES`), with the point of a sweep in
brackets: `matmul_add.sweep_eager.warm_us[size=4096]`; or `<chapter>.<figure>` for what a chapter's `FIGURES` computes.
An unknown name fails the build.
"""

from __future__ import annotations

import importlib
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from pymdownx.inlinehilite import InlineHiliteException

from snippets.lab import kernel_names, recording, trace
from snippets.lab.experiment import UnknownExperiment, find
from snippets.lab.recording import Point, Recording, Timing
from snippets.lab.trace import Step, Trace


class UnknownFigure(LookupError):
    """A figure that nothing computes."""


MISFITS = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)
"""What a computation raises when a trace is not shaped as it expects: a kernel more, or none of a kind."""


def is_misfit(error: Exception, device: str) -> bool:
    """Whether `error` only says that this device's trace is not shaped as the builder's.

    Another GPU may split a product into two kernels; its owner gets the book all the same, with that number left out.
    On the builder the same error is a mistake of ours and ends the build.
    """
    return device != recording.BUILDER and isinstance(error, MISFITS) and not isinstance(error, UnknownFigure)


@dataclass(frozen=True)
class Figure:
    """A measured value and how to say it."""

    value: float | int | str | bool
    unit: str = ""
    """One of UNITS; empty for counts, names and truths."""
    spread: tuple[float, float] | None = None
    """Lower and upper quartile in the same unit, or the smallest and largest step."""
    origin: str = ""
    conclusive: bool = True
    """False when the active steps of a trace disagree."""
    said: str = ""
    """The value in words, where a number alone does not say it."""

    @property
    def text(self) -> str:
        """The value as a reader sees it: `21.5 µs`, `5`, `nvjet_...`."""
        if self.said:
            return self.said
        if isinstance(self.value, bool):
            return "yes" if self.value else "no"
        return in_words(self.value, self.unit)

    @property
    def spread_text(self) -> str:
        """The spread as a reader sees it, empty where there is none: `21.3 to 21.9 µs`."""
        if self.spread is None:
            return ""
        low, high = (in_words(bound, self.unit) for bound in self.spread)
        same_unit = low.rsplit(" ", 1)[-1] == high.rsplit(" ", 1)[-1] and " " in low
        return f"{low.rsplit(' ', 1)[0] if same_unit else low} to {high}"


UNITS: Mapping[str, tuple[tuple[float, str], ...]] = {
    "us": ((1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns")),
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes")),
    "flop": ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1.0, "FLOP")),
    "flop/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1.0, "FLOP/s")),
    "bytes/s": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")),
    "%": ((1.0, "%"),),
    "x": ((1.0, "x"),),
}
"""Units and the steps in which they are written, largest first."""


def in_words(value: float | int | str, unit: str = "") -> str:
    """A value with three significant digits and the unit that suits it: (1455.2, "us") -> `1.46 ms`."""
    if isinstance(value, str):
        return value
    if not unit:
        return f"{value:,}" if isinstance(value, int) else _three_digits(value)
    steps = UNITS[unit]
    rounded = float(f"{value:.2e}")  # first: 999.7 us is 1.00 ms
    scale, name = next(((s, n) for s, n in steps if abs(rounded) >= s), steps[-1])
    if value == 0:
        name = next(n for s, n in steps if s == 1.0)
    is_count = isinstance(value, int) and scale == 1.0 and name in ("bytes", "FLOP")
    digits = f"{value:,}" if is_count else _three_digits(rounded / scale)
    return f"{digits}{name}" if unit == "x" else f"{digits} {name}"


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    value = float(f"{value:.2e}")
    if abs(value) < 1e-2 or abs(value) >= 1e6:
        return f"{value:.1e}"
    decimals = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{decimals}f}"


def of_timing(timing: Timing, origin: str = "") -> Figure:
    """A timing: median, quartiles."""
    return Figure(timing.median_us, "us", (timing.q1_us, timing.q3_us), origin)


def ratio(upper: Timing, lower: Timing, origin: str = "") -> Figure:
    """How many times `lower` fits into `upper`: the median of the ratios of paired samples, with its quartiles.

    Raises `ValueError` when the samples are no pairs.
    """
    pairs = [a / b for a, b in zip(upper.samples_us, lower.samples_us, strict=True)]
    q1, median, q3 = statistics.quantiles(pairs, n=4, method="inclusive")
    return Figure(median, "x", (q1, q3), origin)


def share_of_ceiling(found: Recording, at: Point, what: str) -> Figure:
    """Percent of a ceiling of its session that a point reached when warm: in bytes for `copy`, else in FLOPs.

    Raises `RecordingMissing` when it was not timed or that ceiling was not measured.
    """
    limit = next((ceiling for ceiling in found.ceilings if ceiling.what == what), None)
    if limit is None or at.timings is None:
        raise recording.RecordingMissing(f"{found.id} lacks a timing or the ceiling {what!r}; record it again")
    done, most = (at.bytes, limit.bytes) if what == "copy" else (at.flops, limit.flops)
    warm = at.timings.warm
    median, low, high = (
        100 * done / us / (most / limit.timing.median_us) for us in (warm.median_us, warm.q3_us, warm.q1_us)
    )
    return Figure(median, "%", (low, high), f"{found.circumstances.device}, {found.id}, of {what}")


def per_step(traced: Trace, of: Callable[[Step], float | int], unit: str = "", origin: str = "") -> Figure:
    """A quantity of every active step: the median, and from the smallest to the largest where they differ.

    A count on which the steps disagree is inconclusive.
    """
    trace.require_steps(traced)
    values = [of(step) for step in traced.steps]
    middle = statistics.median(values) if unit else statistics.median_low(values)
    differ = min(values) != max(values)
    return Figure(middle, unit, (min(values), max(values)) if differ else None, origin, bool(unit) or not differ)


def of_steps(traced: Trace, of: Callable[[Step], int | str | bool], origin: str = "") -> Figure:
    """What the middle step shows, such as its names in order; inconclusive when another step shows something else."""
    trace.require_steps(traced)
    seen = [of(step) for step in traced.steps]
    middle = seen[len(seen) // 2]
    return Figure(middle, origin=origin, conclusive=all(one == middle for one in seen))


def gpu_calls(traced: Trace, step: Step) -> int:
    """Runtime and driver calls of a step that put work on the GPU."""
    owners = {launch.start_us for activity in step.activities if (launch := traced.launch_of(activity)) is not None}
    return len(owners)


def label_us(traced: Trace, step: Step, label: str) -> float:
    """CPU time from entering the step's label to leaving it. Raises `UnknownFigure` without one."""
    span = traced.label_span(step, label)
    if span is None:
        raise UnknownFigure(f"{step.name} has no annotation {label!r}")
    return span.duration_us


TraceQuantity = Callable[[Recording, Trace, str], Figure]
PointQuantity = Callable[[Recording, Point, str], Figure]

OF_TRACE: Mapping[str, TraceQuantity] = {
    "kernels_per_step": lambda _, t, o: per_step(t, lambda s: len(s.kernels), origin=o),
    "memcpys_per_step": lambda _, t, o: per_step(t, lambda s: len(s.memcpys), origin=o),
    "memsets_per_step": lambda _, t, o: per_step(t, lambda s: len(s.memsets), origin=o),
    "activities_per_step": lambda _, t, o: per_step(t, lambda s: len(s.activities), origin=o),
    "gpu_calls_per_step": lambda _, t, o: per_step(t, lambda s: gpu_calls(t, s), origin=o),
    "cuda_calls_per_step": lambda _, t, o: per_step(t, lambda s: len(s.launches), origin=o),
    "ops_per_step": lambda _, t, o: per_step(t, lambda s: sum(not op.is_annotation for op in s.ops), origin=o),
    "kernel_time_us": lambda _, t, o: per_step(t, lambda s: trace.kernel_time_us(s.activities), "us", o),
    "busy_us": lambda _, t, o: per_step(t, lambda s: trace.busy_us(s.activities), "us", o),
    "cpu_us": lambda r, t, o: per_step(t, lambda s: label_us(t, s, r.label), "us", o),
}
"""What a trace says of each step. `kernels`, `memcpys` and `memsets` are counted apart; `activities` are all three."""


def _timed(name: str) -> PointQuantity:
    def quantity(found: Recording, point: Point, origin: str) -> Figure:
        if point.timings is None:
            raise UnknownFigure(f"{found.id} was not timed")
        timing: Timing = getattr(point.timings, name)
        return of_timing(timing, origin)

    return quantity


def _rate(amount: Callable[[Point], int], unit: str) -> PointQuantity:
    def quantity(found: Recording, point: Point, origin: str) -> Figure:
        time = _timed("warm")(found, point, origin)
        assert isinstance(time.value, float)
        assert time.spread is not None
        rates = [amount(point) / us * 1e6 for us in (time.value, time.spread[1], time.spread[0])]
        return Figure(rates[0], unit, (rates[1], rates[2]), origin)

    return quantity


OF_POINT: Mapping[str, PointQuantity] = {
    **{f"{name}_us": _timed(name) for name in ("warm", "cold", "launched", "enqueue")},
    "flops": lambda _, p, o: Figure(p.flops, "flop", origin=o),
    "bytes": lambda _, p, o: Figure(p.bytes, "bytes", origin=o),
    "flops_per_s": _rate(lambda p: p.flops, "flop/s"),
    "bytes_per_s": _rate(lambda p: p.bytes, "bytes/s"),
    "peak_memory_bytes": lambda _, p, o: Figure(p.peak_memory_bytes, "bytes", origin=o),
    "relative_error": lambda _, p, o: Figure(p.relative_error, origin=o),
}
"""What timing says of each point; the rates are the work's over the warm time."""

QUANTITIES = (*OF_TRACE, *OF_POINT)

_NAME = re.compile(r"([a-z0-9_]+)\.([a-z0-9_]+)\.([a-z0-9_]+)(?:\[([a-z_]+=[^\],]+(?:,[a-z_]+=[^\],]+)*)\])?")


def figure(name: str, device: str | None = None, root: Path = recording.RECORDINGS) -> Figure:
    """Compute one figure. Raises `UnknownFigure`, or `RecordingError` when its recording is missing or damaged."""
    device = device or recording.shown_device(root)
    match = _NAME.fullmatch(name)
    if match is None:
        return _of_chapter(name, device)
    chapter, experiment, quantity, place = match.groups()
    if quantity not in QUANTITIES:
        raise UnknownFigure(f"no quantity {quantity!r} in {name!r}; there are {', '.join(QUANTITIES)}")
    found = _load(f"{chapter}/{experiment}", device, root)
    origin = f"{found.circumstances.device}, {found.id}"
    if quantity in OF_TRACE:
        if place or not found.has_trace:
            raise UnknownFigure(f"{name!r}: {quantity} comes out of a trace, and a point of a sweep has none")
        return OF_TRACE[quantity](found, recording.trace(found.id, device, root), f"{origin}, per step of its trace")
    return OF_POINT[quantity](found, point(found, place), origin)


def _load(experiment_id: str, device: str, root: Path) -> Recording:
    """A recording; what is missing because no such experiment exists is an `UnknownFigure`."""
    try:
        return recording.load(experiment_id, device, root)
    except recording.RecordingMissing:
        try:
            find(experiment_id)
        except UnknownExperiment as error:
            raise UnknownFigure(str(error)) from error
        raise


def point(found: Recording, place: str | None = None) -> Point:
    """The point of a recording at `size=64,stack=8`; its only one when `place` is empty. Raises `UnknownFigure`."""
    wanted = dict(pair.split("=", 1) for pair in place.split(",")) if place else {}
    matches = [p for p in found.points if all(str(p.parameters.get(key)) == text for key, text in wanted.items())]
    if len(matches) != 1:
        raise UnknownFigure(f"{found.id}[{place or ''}] is {len(matches)} of its {len(found.points)} points, not one")
    return matches[0]


def _of_chapter(name: str, device: str) -> Figure:
    chapter, _, own = name.partition(".")
    try:
        known: Mapping[str, Callable[[str], Figure]] = importlib.import_module(f"snippets.{chapter}.findings").FIGURES
        compute = known[own]
    except (ModuleNotFoundError, KeyError) as error:
        raise UnknownFigure(f"no figure {name!r}") from error
    return compute(device)


def as_html(shown: Figure, name: str, attributes: str = "") -> str:
    """A figure inside a sentence; its origin and spread on hover and for a screen reader's description."""
    title = "; ".join(part for part in (shown.origin, shown.spread_text) if part)
    mark = "" if shown.conclusive else " inconclusive"
    return (
        f'<data class="fig{mark}" value="{escape(str(shown.value))}" data-figure="{escape(name)}" '
        f'title="{escape(title)}"{attributes}>{kernel_names.decorated(shown.text)}</data>'
    )


def fig_formatter(source: str, language: str, class_name: str, md: object) -> str:
    """`#!fig NAME` for pymdownx.inlinehilite: a missing recording shows as such, an unknown name ends the build.

    Where several devices are recorded, the sentence holds a value for each; all are hidden but that of the chosen tab.
    """
    name = source.strip()
    devices = recording.devices() or (recording.BUILDER,)
    if len(devices) == 1:
        return _inline(name, devices[0])
    opened = recording.shown_device()
    hidden = {device: "" if device == opened else " hidden" for device in devices}
    return "".join(_inline(name, device, f' data-device="{escape(device)}"{hidden[device]}') for device in devices)


def _inline(name: str, device: str, attributes: str = "") -> str:
    with recording.showing(device):
        try:
            return as_html(figure(name, device), name, attributes)
        except recording.RecordingMissing as error:
            return _left_out(name, "not recorded", error, attributes)
        except Exception as error:  # inlinehilite would swallow any other and show the source
            if is_misfit(error, device):
                return _left_out(name, "not measured here", error, attributes)
            raise InlineHiliteException(f"#!fig {name}: {type(error).__name__}: {error}") from error


def _left_out(name: str, word: str, error: Exception, attributes: str) -> str:
    why = f'data-figure="{escape(name)}" title="{escape(str(error))}"{attributes}'
    return f'<data class="fig missing" value="" {why}>{word}</data>'
