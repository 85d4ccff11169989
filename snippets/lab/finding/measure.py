"""Functions that chapters' measures share: figures from figures and runs.

A measure is a function from a `Device` to a `Figure`; its body calls these.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace

from snippets.lab.finding.device import Device, Run
from snippets.lab.finding.figure import Figure
from snippets.lab.recording.schema import NotTimed, Timing

Measure = Callable[[Device], Figure]


def ratio_of_pairs(upper: Timing, lower: Timing, origin: str = "") -> Figure:
    """`upper` / `lower`: the median and the quartiles of the ratios of paired samples.

    Raises `ValueError` if the numbers of samples differ.
    """
    pairs = [a / b for a, b in zip(upper.samples_us, lower.samples_us, strict=True)]
    q1, median, q3 = statistics.quantiles(pairs, n=4, method="inclusive")
    return Figure(median, "x", (q1, q3), origin)


def paired_ratio(upper: Run, lower: Run, kind: str = "interleaved") -> Figure:
    """Time of `upper` / time of `lower`, from paired samples.

    Args:
        upper: a run.
        lower: a run of the same session.
        kind: which timing, a field of `Timings`.

    Raises `NotTimed` if the sessions differ or a run has no such timing.
    """
    _require_one_session(upper, lower)
    origin = f"{upper.id} over {lower.id}, {kind}, in pairs"
    return ratio_of_pairs(upper.timing(kind), lower.timing(kind), origin)


def paired_difference(upper: Run, lower: Run, kind: str = "interleaved") -> Figure:
    """Time of `upper` - time of `lower`, from paired samples. Raises `NotTimed` as `paired_ratio` does."""
    _require_one_session(upper, lower)
    pairs = zip(upper.timing(kind).samples_us, lower.timing(kind).samples_us, strict=True)
    q1, median, q3 = statistics.quantiles([a - b for a, b in pairs], n=4, method="inclusive")
    return Figure(median, "us", (q1, q3), f"{upper.id} less {lower.id}, {kind}, in pairs")


def _require_one_session(upper: Run, lower: Run) -> None:
    if upper.recording.session != lower.recording.session:
        chapter = upper.recording.chapter
        raise NotTimed(f"{upper.id} and {lower.id} were recorded apart; make record CHAPTER={chapter} FRESH=1")


def unpaired_ratio(upper: Figure, lower: Figure) -> Figure:
    """`upper` / `lower`, with a spread from the extremes of both: weaker than a paired ratio."""
    (a_low, a_high), (b_low, b_high) = upper.bounds, lower.bounds
    conclusive = upper.conclusive and lower.conclusive
    spread = (a_low / b_high, a_high / b_low)
    return Figure(upper.number / lower.number, "x", spread, f"{upper.origin}; over {lower.origin}", conclusive)


def ratio_of_kinds(run: Run, upper: str, lower: str = "interleaved") -> Figure:
    """Ratio of the medians of two timings of one run. Raises `NotTimed`."""
    ratio = run.timing(upper).median_us / run.timing(lower).median_us
    return Figure(ratio, "x", origin=f"{run.origin}, {upper} over {lower}")


def percent(ratio: Figure) -> Figure:
    """A ratio in percent."""
    low, high = ratio.bounds
    return replace(ratio, value=100 * ratio.number, unit="%", spread=(100 * low, 100 * high))


def point_ratio(upper: Run, lower: Run, field: str) -> Figure:
    """Ratio of a field of two points, `relative_error` or `peak_memory_bytes`. Exact, so without a spread."""
    value = getattr(upper.point, field) / getattr(lower.point, field)
    return Figure(value, "x", origin=f"{field}, {upper.id} over {lower.id}")


def point_difference(upper: Run, lower: Run, field: str) -> Figure:
    """Difference of a field of two points; fields as in `point_ratio`."""
    value = getattr(upper.point, field) - getattr(lower.point, field)
    return Figure(value, "bytes" if field.endswith("bytes") else "", origin=f"{field}, {upper.id} less {lower.id}")


def share_of_ceiling(run: Run, name: str, kind: str = "interleaved") -> Figure:
    """Percent of a ceiling of its session that a run reached: bytes/s for `copy`, else FLOP/s. Raises `NotTimed`."""
    ceiling, point, timing = run.ceiling(name), run.point, run.timing(kind)
    work, limit = (point.flops, ceiling.flops) if ceiling.flops else (point.bytes, ceiling.bytes)
    per_us = limit / ceiling.timing.median_us
    median, low, high = (100 * work / us / per_us for us in (timing.median_us, timing.q3_us, timing.q1_us))
    return Figure(median, "%", (low, high), f"{run.origin}, of {name}")


def smallest(*figures: Figure) -> Figure:
    """The figure with the smallest number."""
    return min(figures, key=lambda figure: figure.number)


def largest(*figures: Figure) -> Figure:
    """The figure with the largest number."""
    return max(figures, key=lambda figure: figure.number)


def derived(value: int | float | str | bool, *figures: Figure, unit: str = "", display: str = "") -> Figure:
    """A figure computed from figures; conclusive if all of them are."""
    origin = "; ".join(dict.fromkeys(figure.origin for figure in figures))
    return Figure(value, unit, origin=origin, conclusive=all(figure.conclusive for figure in figures), display=display)


def same(*figures: Figure) -> Figure:
    """Whether all figures have the same value."""
    return derived(len({figure.value for figure in figures}) == 1, *figures)


def listed(figures: Mapping[str, Figure], separator: str = ", ") -> Figure:
    """Several figures as one, each after its name: `eager 8, compiled 6`. Conclusive if all are."""
    return derived(separator.join(f"{name} {figure.text}" for name, figure in figures.items()), *figures.values())
