"""Who waits for whom: when CPU and GPU work during the steps, and why the GPU waits in the median step."""

from __future__ import annotations

from collections import Counter
from html import escape

from kinetoscope.diagnosis.cpu_states import Cause
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.gaps import Waits, waits_in
from kinetoscope.diagnosis.per_step import window
from kinetoscope.html import Cell, Html, code, details, note, table
from kinetoscope.report.work_tables import share_cell
from kinetoscope.trace.intervals import intersect, length_us, ns
from kinetoscope.trace.units import format_value

_MOST_GAPS = 10
_CAUSES: dict[Cause, str] = {
    "garbage collection": "Python frees objects",
    "compiling": "Dynamo, Inductor or Triton compile",
    "data loading": "the next batch is not there yet",
    "memory allocation": "the driver allocates or frees memory",
    "pageable copy": "a copy from memory that is not pinned blocks the CPU",
    "launching": "operators and launches take the CPU longer than their work takes the GPU",
    "synchronization": "the CPU waited for the GPU, so that no work was queued",
    "Python": "code between the operators",
    "nothing recorded": "the trace shows nothing on the CPU",
}
"""Cause of a gap -> its meaning."""


def waits_per_step(facts: Facts) -> Waits:
    """Mean times per step, from the first step's start until CPU and GPU are done with the last step."""
    begin, done = min(step.start_us for step in facts.steps), max(step.end_us for step in facts.steps)
    work = [activity.end_us for step in facts.steps for activity in step.activities]
    whole = ns(begin), ns(done)
    sums = facts.waits if whole == window(facts.step) else waits_in(whole, facts.busy, facts.cpu)
    rest = [(ns(done), ns(max([done, *work])))]
    rest_gpu_us = length_us(intersect(rest, facts.busy))
    parts = (
        sums.both_busy_us,
        sums.only_cpu_us,
        sums.only_gpu_us + rest_gpu_us,
        sums.neither_us + length_us(rest) - rest_gpu_us,
    )
    return Waits(*(round(part / len(facts.steps), 3) for part in parts))


def gpu_busy_us(waits: Waits) -> float:
    """Time in which the GPU works."""
    return waits.both_busy_us + waits.only_gpu_us


def share(us: float, waits: Waits) -> float:
    """A time as part of the step."""
    return us / waits.step_us if waits.step_us else 0.0


_PARTS = (
    ("both", "both_busy_us", "CPU and GPU work", "the CPU prepares while the GPU computes: nobody waits"),
    ("gpu", "only_gpu_us", "only the GPU works", "the CPU waits for it, or nothing of the CPU is recorded"),
    ("cpu", "only_cpu_us", "only the CPU works", "the GPU waits for work: for launches, for data, for Python"),
    ("neither", "neither_us", "neither works", "both wait, or nothing of the CPU is recorded"),
)
"""Class, field, name and meaning of each part."""


def waiting_html(parts: Waits, steps: int) -> Html:
    """A bar of the four parts, and a list that explains each."""
    bar, items, at = [], [], 0.0
    for css, attribute, name, meaning in _PARTS:
        us = getattr(parts, attribute)
        percent = 100 * share(us, parts)
        if us:
            label = f'<text x="{at + percent / 2:.3f}%" y="25">{percent:.0f} %</text>' if percent >= 6 else ""
            bar.append(f'<g class="{css}"><rect x="{at:.3f}%" width="{percent:.3f}%" height="40"/>{label}</g>')
        items.append(
            f'<li><span class="key {css}" aria-hidden="true"></span><strong>{escape(name)}</strong>'
            f'<span class="amount">{format_value(us, "us")}, {percent:.1f} %</span>'
            f"<small>{escape(meaning)}</small></li>"
        )
        at += percent
    mean = f"mean of {steps:,}, " if steps > 1 else ""
    lead = f"One step, {format_value(parts.step_us, 'us')} ({mean}until the GPU is done):"
    described = ", ".join(f"{name} {100 * share(getattr(parts, field), parts):.0f} %" for _, field, name, _ in _PARTS)
    image = f'<svg class="waiting" width="100%" height="40" role="img" aria-label="{escape(described)}">'
    return Html(f'<p>{escape(lead)}</p>{image}{"".join(bar)}</svg><ul class="parts">{"".join(items)}</ul>')


def _cause_cell(cause: Cause) -> Html:
    return Html(f"{escape(cause)}<small>{escape(_CAUSES[cause])}</small>")


def gaps_html(facts: Facts) -> Html:
    """The median step's gaps by cause, and the longest gaps; empty if the GPU has no gaps."""
    if not facts.gaps:
        return Html("")
    counts = Counter(gap.cause for gap in facts.gaps)
    rows: list[list[Cell]] = [
        [_cause_cell(cause), format_value(us, "us"), share_cell(us / facts.median_us), f"{counts[cause]:,}"]
        for cause, us in sorted(facts.gaps_us.items(), key=lambda item: -item[1])
        if us
    ]
    head = ["cause", "time", "share of the step", "gaps"]
    by_cause = table("What the idle GPU waits for, in the median step", head, rows)
    longest = sorted(facts.gaps, key=lambda gap: -gap.duration_us)[:_MOST_GAPS]
    gaps: list[list[Cell]] = [
        [
            gap.cause,
            None if gap.blame is None else code(gap.blame.name),
            format_value(gap.duration_us, "us"),
            f"{(gap.start_us - facts.step.start_us) / 1000:,.3f} ms",
        ]
        for gap in longest
    ]
    head = ["cause", "waits for", "lasts", "begins in the step at"]
    text = "Each gap has one cause: what takes most of it, as far as the trace shows."
    return Html(
        by_cause + details("The longest gaps", table("The longest gaps", head, gaps, text_columns=2)) + note(text)
    )
