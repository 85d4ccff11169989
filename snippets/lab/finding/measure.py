"""Functions that chapters' measures share: figures from figures and runs.

A measure is a function from a `Device` to a `Figure`; its body calls these.
"""

from __future__ import annotations

import itertools
import operator
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec

from kinetoscope.trace.units import format_value
from snippets.lab.finding.device import Device, Run
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.quantities import quantity
from snippets.lab.recording.schema import NotTimed, Timing

Measure = Callable[[Device], Figure]


LEAST_US = 10.0
"""Below this time a step is mostly start-up, and a share of a ceiling means little."""


def ratio_of_pairs(upper: Timing, lower: Timing, origin: str = "") -> Figure:
    """The median of `upper` / `lower` over paired samples. The spread covers the medians of all parts.

    Raises `ValueError` if the numbers of samples differ.
    """
    return _of_pairs(operator.truediv, upper, lower, "x", origin)


def difference_of_pairs(upper: Timing, lower: Timing, origin: str = "") -> Figure:
    """The median of `upper` - `lower` over paired samples, with the same kind of spread as `ratio_of_pairs`."""
    return _of_pairs(operator.sub, upper, lower, "us", origin)


def _of_pairs(of: Callable[[float, float], float], upper: Timing, lower: Timing, unit: str, origin: str) -> Figure:
    values = tuple(itertools.starmap(of, zip(upper.samples_us, lower.samples_us, strict=True)))
    parts = msgspec.structs.replace(upper, samples_us=values).parts
    medians = [statistics.median(part) for part in parts]
    return Figure(statistics.median(values), unit, (min(medians), max(medians)), origin)


def paired_ratio(upper: Run, lower: Run, kind: str = "interleaved") -> Figure:
    """The time of `upper` divided by the time of `lower`, from paired samples.

    Args:
        upper: a run.
        lower: a run of the same session.
        kind: which timing, a field of `Timings`.

    Raises `NotTimed` if the sessions differ or a run has no such timing.
    """
    _require_one_session(upper, lower)
    return _compared(operator.truediv, upper, lower, "x", kind, f"{upper.id} over {lower.id}, {kind}")


def paired_difference(upper: Run, lower: Run, kind: str = "interleaved") -> Figure:
    """The time of `upper` minus the time of `lower`, from paired samples. Raises `NotTimed`."""
    _require_one_session(upper, lower)
    return _compared(operator.sub, upper, lower, "us", kind, f"{upper.id} less {lower.id}, {kind}")


def _compared(of: Callable[[float, float], float], upper: Run, lower: Run, unit: str, kind: str, origin: str) -> Figure:
    """Compare sample by sample. Steady samples of two variants are not pairs, so compare them process by process."""
    timings = upper.timing(kind), lower.timing(kind)
    if kind != "steady":
        return _of_pairs(of, *timings, unit, f"{origin}, in pairs")
    return _by_process(of, *timings, unit, origin)


def _by_process(of: Callable[[float, float], float], upper: Timing, lower: Timing, unit: str, origin: str) -> Figure:
    """A figure of the medians of all samples; its spread includes the medians of each process."""
    medians = (map(statistics.median, timing.parts) for timing in (upper, lower))
    value = of(upper.median_us, lower.median_us)
    values = [value, *itertools.starmap(of, zip(*medians, strict=False))]
    return Figure(value, unit, (min(values), max(values)), origin)


def _require_one_session(upper: Run, lower: Run) -> None:
    if upper.recording.session != lower.recording.session:
        chapter = upper.recording.chapter
        raise NotTimed(f"{upper.id} and {lower.id} were recorded apart; make record CHAPTER={chapter} FRESH=1")


def unpaired_ratio(upper: Figure, lower: Figure) -> Figure:
    """`upper` / `lower`, with a spread from the extremes of both figures. A paired ratio is more reliable."""
    (a_low, a_high), (b_low, b_high) = upper.bounds, lower.bounds
    conclusive = upper.conclusive and lower.conclusive
    spread = (a_low / b_high, a_high / b_low) if upper.spread or lower.spread else None
    return Figure(upper.number / lower.number, "x", spread, f"{upper.origin}; over {lower.origin}", conclusive)


def quantity_ratio(upper: Run, lower: Run, name: str) -> Figure:
    """Unpaired ratio of a quantity of two runs, such as `joules`. Raises what `quantity` raises."""
    return unpaired_ratio(quantity(upper, name), quantity(lower, name))


def ratio_of_kinds(run: Run, upper: str, lower: str = "interleaved") -> Figure:
    """The ratio of two kinds of time of one run, by paired samples or by process. Raises `NotTimed`."""
    return _ratio(run.timing(upper), run.timing(lower), f"{run.origin}, {upper} over {lower}")


def _ratio(upper: Timing, lower: Timing, origin: str) -> Figure:
    """Ratio of paired samples. If the numbers of samples differ, process by process, or of one process's medians."""
    if len(upper.samples_us) == len(lower.samples_us):
        return ratio_of_pairs(upper, lower, origin)
    if len(upper.rounds) == len(lower.rounds) > 1:
        return _by_process(operator.truediv, upper, lower, "x", origin)
    return replace(unpaired_ratio(Figure.from_timing(upper), Figure.from_timing(lower)), origin=origin)


def percent(ratio: Figure) -> Figure:
    """A ratio in percent."""
    low, high = ratio.bounds
    return replace(ratio, value=100 * ratio.number, unit="%", spread=(100 * low, 100 * high))


def percent_saved(ratio: Figure) -> Figure:
    """The percentage saved, from a ratio of new to old. It is negative if the new value is larger."""
    left = percent(ratio)
    low, high = left.bounds
    return replace(left, value=100 - left.number, spread=(100 - high, 100 - low))


def point_ratio(upper: Run, lower: Run, field: str) -> Figure:
    """The ratio of a field of two points, `relative_error` or `peak_memory_bytes`. It is exact, so it has no spread."""
    value = getattr(upper.point, field) / getattr(lower.point, field)
    return Figure(value, "x", origin=f"{field}, {upper.id} over {lower.id}")


def point_difference(upper: Run, lower: Run, field: str) -> Figure:
    """The difference of a field between two points, with the fields of `point_ratio`."""
    value = getattr(upper.point, field) - getattr(lower.point, field)
    return Figure(value, "bytes" if field.endswith("bytes") else "", origin=f"{field}, {upper.id} less {lower.id}")


def share_of_ceiling(run: Run, name: str, kind: str = "interleaved") -> Figure:
    """The percentage of a ceiling that a run reached: bytes/s for `copy`, else FLOP/s. Both were timed in turns.

    Sample by sample where both have equally many. Raises `NotTimed`, also below `LEAST_US`.
    """
    ceiling, point, timing = run.ceiling(name), run.point, run.timing(kind)
    if timing.median_us < LEAST_US:
        time, least = format_value(timing.median_us, "us"), format_value(LEAST_US, "us")
        raise NotTimed(f"{run.id} takes {time}; a share of {name} means little below {least}")
    work, limit = (point.flops, ceiling.flops) if ceiling.flops else (point.bytes, ceiling.bytes)
    times = _ratio(ceiling.timing, timing, f"{run.origin}, of {name}")
    low, high = times.bounds
    percent = 100 * work / limit
    return replace(times, value=percent * times.number, unit="%", spread=(percent * low, percent * high))


def smallest(*figures: Figure) -> Figure:
    """The figure with the smallest number."""
    return min(figures, key=lambda figure: figure.number)


def largest(*figures: Figure) -> Figure:
    """The figure with the largest number."""
    return max(figures, key=lambda figure: figure.number)


def derived(value: int | float | str | bool, *figures: Figure, unit: str = "", display: str = "") -> Figure:
    """A figure computed from other figures. It is conclusive if all of these figures are conclusive."""
    origin = "; ".join(dict.fromkeys(figure.origin for figure in figures))
    return Figure(value, unit, origin=origin, conclusive=all(figure.conclusive for figure in figures), display=display)


def same(*figures: Figure) -> Figure:
    """Whether all figures have the same value."""
    return derived(len({figure.value for figure in figures}) == 1, *figures)


def listed(figures: Mapping[str, Figure], separator: str = ", ") -> Figure:
    """Several figures as one text: `eager 8, compiled 6`. It is conclusive if all figures are conclusive."""
    return derived(separator.join(f"{name} {figure.text}" for name, figure in figures.items()), *figures.values())
