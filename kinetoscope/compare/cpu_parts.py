"""A comparison of traces without GPU work as text and as sections of a report."""

from __future__ import annotations

from collections.abc import Iterator

from kinetoscope.compare.comparison import (
    DEPENDENT,
    MAX_ROWS,
    METHOD,
    SHOWN,
    percent_texts,
)
from kinetoscope.compare.cpu import CpuComparison, OperatorDifference
from kinetoscope.html import Cell, Html, Part, code, details, note, table
from kinetoscope.trace.text import printable, shortened, wrapped
from kinetoscope.trace.units import format_value

COLUMNS, SHOWN_LINES = 100, 20
_NAME_COLUMNS = 44


def cpu_change_text(result: CpuComparison) -> str:
    """The change of a step's time, with its noise; if the steps of the two sides do not compare, why not; and first,
    that the files are ranks of one job."""
    return f"{result.ranks} {_change_text(result)}".lstrip()


def _change_text(result: CpuComparison) -> str:
    if not result.do_steps_compare:
        return f"Times per step do not compare. {' '.join(result.notes)}"
    percent, noise = result.step.percent, result.step.noise_percent
    counts = f"from {result.samples[0]} and {result.samples[1]} {result.unit}s"
    before, after = (format_value(us, "us") for us in result.totals["step"])
    change = f"A step takes {abs(percent):.1f} % {'longer' if percent > 0 else 'less'}: {before} before, {after} after"
    if noise is None:
        return f"{change}; the noise is unknown, {counts}."
    if abs(percent) <= noise:
        return f"No change of a step's time beyond the noise: {percent:+.1f} %, noise ±{noise:.1f} %, {counts}."
    return f"{change}; noise ±{noise:.1f} %, {counts}."


def cpu_notes(result: CpuComparison) -> list[str]:
    """Limits of the comparison, a sentence or two each."""
    notes = [
        *result.damage,
        *result.notes,
        "No side has GPU work: times are those of the CPU, and the profiler lengthens short operators most.",
    ]
    if result.options:
        options = " and ".join(result.options)
        notes.append(f"The traces differ in {options}, which slows the CPU: record both sides with the same options.")
    if result.unit == "step":
        notes.append(DEPENDENT)
    return notes


def cpu_lines(result: CpuComparison) -> Iterator[str]:
    """The comparison as lines of a terminal; names have printable characters only."""
    yield f"{'us per step':38}{'before':>14}{'after':>14}{'difference':>14}"
    for name, (before, after) in result.totals.items():
        yield f"{name:38}{before:14,.3f}{after:14,.3f}{after - before:+14,.3f}"
    yield ""
    yield f"{'change':9}{'calls':>9}{'after':>9}{'before us':>13}{'after us':>13}{'percent':>10}{'noise':>9}  operator"
    for each in result.differences[:SHOWN_LINES]:
        percent, noise = (text or "-" for text in percent_texts(each.shift))
        calls = "".join(f"{_count(count):>9}" for count in each.calls)
        times = f"{each.before_us:13,.3f}{each.after_us:13,.3f}{percent:>10}{noise:>9}"
        yield f"{each.kind:9}{calls}{times}  {shortened(printable(each.name), _NAME_COLUMNS)}"
    if len(result.differences) > SHOWN_LINES:
        yield f"... and {len(result.differences) - SHOWN_LINES} smaller changes (--json has all)"
    yield ""
    change = cpu_change_text(result)
    for text in (change, *(limit for limit in cpu_notes(result) if limit not in change), METHOD):
        yield from wrapped(text, COLUMNS)


def cpu_parts(result: CpuComparison, names: tuple[str, str]) -> tuple[Part, ...]:
    """The sections of `report A B`; `names` head the columns."""
    rows = [[name, *map(_us, pair), f"{pair[1] - pair[0]:+,.1f}"] for name, pair in result.totals.items()]
    totals = table(
        "Mean times per step, in us: the step, and what the CPU does in it", ["", *names, "difference"], rows
    )
    notes = "".join(map(note, (*cpu_notes(result), METHOD)))
    head = ["change", "operator", *(f"calls, {name}" for name in names), *names, "difference", "percent", "noise"]
    shown, rest = result.differences[:SHOWN], result.differences[SHOWN:MAX_ROWS]
    caption = "Operators' own time per step, in us, the largest change first"
    listed = table(caption, head, map(_cells, shown), text_columns=2)
    if rest:
        more = table(f"{caption}: smaller changes", head, map(_cells, rest), text_columns=2)
        listed = Html(listed + details(f"{len(rest)} smaller changes", more))
    return Part("What changed, by what the CPU does", Html(totals + notes)), Part("What changed, by operator", listed)


def _cells(each: OperatorDifference) -> list[Cell]:
    times = [_us(us) if calls else None for us, calls in zip((each.before_us, each.after_us), each.calls, strict=True)]
    counts = [_count(calls) if calls else None for calls in each.calls]
    return [each.kind, code(each.name), *counts, *times, f"{each.change_us:+,.1f}", *percent_texts(each.shift)]


def _count(calls: float) -> str:
    return f"{calls:,.0f}" if calls == round(calls) else f"{calls:,.1f}"


def _us(us: float) -> str:
    return f"{us:,.1f}"
