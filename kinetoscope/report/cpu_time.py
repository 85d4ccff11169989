"""The CPU's time in the steps of a trace without GPU work; all times are means per step."""

from __future__ import annotations

from html import escape

from kinetoscope.diagnosis.cpu_states import Cause
from kinetoscope.diagnosis.cpu_times import STATES, call_times, cpu_causes, function_times, operator_times
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.sources import STACKS
from kinetoscope.html import Cell, Html, code, note, table
from kinetoscope.report.work_tables import per_step, share_cell
from kinetoscope.trace.intervals import lengths_in
from kinetoscope.trace.text import slow_steps
from kinetoscope.trace.units import format_value

MOST_NAMES = 10


def dominant(facts: Facts) -> str:
    """`most of a step goes to operators (85 %), the longest aten::addmm (60 %)`; empty for an empty step."""
    causes = cpu_causes(facts)
    whole = sum(causes.values())
    if not whole:
        return ""
    cause, us = next(iter(causes.items()))
    most = "most" if 2 * us > whole else "the largest part"
    names = list(function_times(facts).items())[:1] if cause == "Python" else []
    state = STATES[cause][0]
    if cause == "launching":
        operators, calls = (list(of(facts).items())[:1] for of in (operator_times, call_times))
        names = sorted([*operators, *calls], key=lambda each: -each[1].us)
        state = "operators and calls" if names and names[:1] == calls else state
    text = f"{most} of a step goes to {state} ({100 * us / whole:.0f} %)"
    if names:
        name, own = names[0]
        text += f", the longest {name} ({100 * own.us / whole:.0f} %)"
    of_steps = lengths_in(facts.step_windows, facts.cpu_parts[cause])
    return text + slow_steps([length / 1000 for length in of_steps])


def cpu_time_html(facts: Facts) -> Html:
    """Tables of the CPU's states in a step, of its operators and of its Python functions; empty for an empty step."""
    causes = cpu_causes(facts)
    whole = sum(causes.values())
    if not whole:
        return Html("")
    count = len(facts.steps)
    rows: list[list[Cell]] = [
        [_what(cause), format_value(us, "us"), share_cell(us / whole)] for cause, us in causes.items()
    ]
    tables = [table("What the CPU does in a step", ["the CPU does", "time per step", "share of the step"], rows)]
    for heading, times in (
        ("operator", operator_times(facts)),
        ("call", call_times(facts)),
        ("function", function_times(facts)),
    ):
        rows = [
            [code(name, 70), per_step(own.calls, count), format_value(own.us, "us"), share_cell(own.us / whole)]
            for name, own in list(times.items())[:MOST_NAMES]
            if own.us > 0
        ]
        if rows:
            head = [heading, "calls per step", "own time per step", "share of the step"]
            tables.append(table(f"The longest {heading}s of a step, without what they call", head, rows))
    text = "On the threads of the steps" + (f", means over {count:,} steps." if count > 1 else ".")
    if not facts.has_stacks:
        text += f" Record with {STACKS} to see which functions of Python take the rest."
    return Html("".join(tables) + note(text))


def _what(cause: Cause) -> Html:
    name, meaning = STATES[cause]
    return Html(f"{escape(name)}<small>{escape(meaning)}</small>")
