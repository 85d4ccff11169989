"""A race: variants of one step, each kind of time side by side with its spread; clock, power and energy when steady."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from kinetoscope.html import Cell, Html, note, table
from kinetoscope.trace.units import format_value
from snippets.lab.charts.bar_charts import timing_bars
from snippets.lab.charts.numbers import figure_cell, spread_sentence
from snippets.lab.experiment import UnknownName, nearest
from snippets.lab.finding.device import Device, Run
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import paired_ratio
from snippets.lab.finding.quantities import quantity
from snippets.lab.page.tables import Columns
from snippets.lab.recording.schema import Timing

KINDS: Mapping[str, tuple[str, str]] = {
    "interleaved": ("GPU, interleaved", "the variants take turns, so their common power limits the clock"),
    "steady": ("GPU, steady", "each variant runs alone for seconds, so its own power limits the clock"),
    "cold": ("GPU, cold cache", "the L2 cache is overwritten before each replay"),
    "from_python": ("from Python", "the time per step of a Python loop, until the GPU is done"),
    "enqueue": ("from Python, CPU part", "the time per step of the same loop, until the last launch returns"),
}
"""Field of `Timings` -> its heading, and what it means."""
SENSORS: Mapping[str, Callable[[Timing], str | None]] = {
    "steady clock": lambda timing: f"{timing.clock_mhz:,.0f} MHz" if timing.clock_mhz else None,
    "steady power": lambda timing: f"{timing.watts:,.0f} W" if timing.watts else None,
    "steady energy per step": lambda timing: format_value(timing.joules, "J") if timing.joules else None,
}
RACE = ("interleaved", "steady", "from_python")


def race_table(
    device: Device,
    variants: Mapping[str, str],
    caption: str,
    *,
    kinds: Sequence[str] = RACE,
    over: str = "",
    more: Columns | None = None,
) -> Html:
    """A row for each variant: its kinds of time, their ratios to one variant, and clock, power and energy.

    Args:
        device: whose recordings.
        variants: heading of a row -> `chapter/experiment`, or a point: `mlp/sweep_eager[batch=1,seq=1]`.
        caption: what the table shows.
        kinds: which times, fields of `Timings`. Without steady times there is no such column.
        over: heading of the variant that the ratios divide by; empty for no ratios.
        more: further columns: heading -> name of a quantity, or a function of a run.
    """
    runs = {heading: device[experiment] for heading, experiment in variants.items()}
    if over and over not in runs:
        raise UnknownName(f"no variant {over!r}{nearest(over, runs)}")
    timed = _timed(runs, kinds)
    columns: dict[Cell, list[Cell]] = {"": list(runs)}
    for kind, timings in timed.items():
        base = runs[over] if over and timings[over] else None
        columns[KINDS[kind][0]] = [_cell(run, timings[name], base, kind, over) for name, run in runs.items()]
    for heading, sensor in SENSORS.items():
        values = [None if timing is None else sensor(timing) for timing in timed.get("steady", {}).values()]
        columns |= {heading: list(values)} if any(values) else {}
    for heading, of in (more or {}).items():
        columns[heading] = [figure_cell(quantity(run, of)) if isinstance(of, str) else of(run) for run in runs.values()]
    listed = table(caption, list(columns), zip(*columns.values(), strict=True))
    return Html(f'<div class="lab-race">{listed}</div>{_note(timed, over)}')


def race_bars(device: Device, variants: Mapping[str, str], caption: str, *, kinds: Sequence[str] = RACE) -> Html:
    """A bar for each kind of time below each variant, with its spread. The arguments are those of `race_table`."""
    timed = _timed({heading: device[experiment] for heading, experiment in variants.items()}, kinds)
    groups = {
        heading: {_short(kind): timing for kind, timings in timed.items() if (timing := timings[heading]) is not None}
        for heading in variants
    }
    return Html(timing_bars(device, groups, caption) + _note(timed))


def _timed(runs: Mapping[str, Run], kinds: Sequence[str]) -> dict[str, dict[str, Timing | None]]:
    """Kind -> variant -> its timing, without kinds that no variant has."""
    timed: dict[str, dict[str, Timing | None]] = {}
    for kind in kinds:
        if kind not in KINDS:
            raise UnknownName(f"no kind of time {kind!r}{nearest(kind, KINDS)}")
        timings = {heading: getattr(run.timings, kind) for heading, run in runs.items()}
        timed |= {kind: timings} if any(timings.values()) else {}
    return timed


def _short(kind: str) -> str:
    return KINDS[kind][0].removeprefix("GPU, ").removeprefix("from Python, ")


def _cell(run: Run, timing: Timing | None, base: Run | None, kind: str, over: str) -> Cell:
    """A time with its spread, and below it the paired ratio to the variant that the ratios divide by."""
    if timing is None:
        return None
    time = figure_cell(Figure.from_timing(timing))
    if base is None or run == base:
        return time
    ratio = paired_ratio(run, base, kind)
    spread = f"<small>{ratio.spread_text}</small>" if len({*map(_ratio_text, ratio.bounds)}) > 1 else ""
    return Html(f"{time}<small>{_ratio_text(ratio.number)} of {escape(over)}</small>{spread}")


def _ratio_text(ratio: float) -> str:
    return format_value(ratio, "x")


def _note(timed: Mapping[str, Mapping[str, Timing | None]], over: str = "") -> Html:
    """The line below a race: the meaning of each time and of the small numbers."""
    meanings = (f"{heading[0].upper()}{heading[1:]}: {meaning}." for heading, meaning in map(KINDS.__getitem__, timed))
    timings = [timing for row in timed.values() for timing in row.values() if timing is not None]
    ratios = f" Ratios: the time of a variant divided by the time of {over}." if over else ""
    thirds = " Spread of a ratio: lowest and highest third of its pairs."
    is_by_thirds = bool(over) and any(len(each.rounds) < 2 for each in timings)
    return note(f"{' '.join(meanings)}{ratios} {spread_sentence(timings)}{thirds if is_by_thirds else ''}")
