"""The CPU's time in the steps of a trace without GPU work; all times are means per step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from html import escape

from msgspec import structs

from kinetoscope.diagnosis.cpu_states import CAUSES, Cause
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.sources import STACKS
from kinetoscope.html import Cell, Html, code, note, table
from kinetoscope.report.work_tables import share_cell
from kinetoscope.trace.events import CpuOp, PythonFunction
from kinetoscope.trace.intervals import contains, length_us, ns, union_of
from kinetoscope.trace.text import without_address
from kinetoscope.trace.units import format_value

MOST_NAMES = 10
_DOES: dict[Cause, tuple[str, str]] = {
    "garbage collection": ("garbage collection", "Python frees objects"),
    "compiling": ("compiling", "Dynamo, Inductor or Triton compile"),
    "data loading": ("fetching batches", "the iterator of a DataLoader"),
    "memory allocation": ("CUDA's memory calls", "cudaMalloc, cudaFree"),
    "pageable copy": ("copies", "from memory that is not pinned"),
    "launching": ("operators", "PyTorch computes, or calls CUDA"),
    "synchronization": ("synchronize calls", "the CPU waits for a GPU"),
    "Python": ("code outside operators", "Python, files, the network, sleeping"),
    "nothing recorded": ("time in which nothing is recorded", "the threads of the steps show no event"),
}
"""Cause -> the CPU's activity, and its meaning."""


def cpu_causes(facts: Facts) -> dict[Cause, float]:
    """Time by state of the steps' threads, the longest first; the times add up to a step."""
    parts = facts.cpu.partition(facts.windows)
    times = {cause: length_us(parts[cause]) / len(facts.steps) for cause in CAUSES}
    return dict(sorted(((cause, us) for cause, us in times.items() if us), key=lambda item: -item[1]))


def operator_times(facts: Facts) -> dict[str, float]:
    """Operators by their own time, the longest first, without operators that fetch batches."""
    fetching = union_of(facts.cpu.spans["data loading"])
    ops = (op for op in facts.in_steps(facts.cpu.ops) if not op.is_annotation)
    return _own_times((op for op in ops if not contains(fetching, ns(op.start_us))), len(facts.steps))


def function_times(facts: Facts) -> dict[str, float]:
    """Python functions by their own time, the longest first; an operator counts for its calling function."""
    functions = facts.in_steps(facts.cpu.functions)
    return _own_times((structs.replace(each, name=without_address(each.name)) for each in functions), len(facts.steps))


def _own_times(spans: Iterable[CpuOp | PythonFunction], steps: int) -> dict[str, float]:
    own: dict[str, int] = defaultdict(int)
    stacks: dict[str, list[CpuOp | PythonFunction]] = defaultdict(list)
    for span in spans:
        stack = stacks[span.thread]
        while stack and stack[-1].end_us <= span.start_us:
            stack.pop()
        if stack:
            own[stack[-1].name] -= ns(span.duration_us)
        own[span.name] += ns(span.duration_us)
        stack.append(span)
    ordered = sorted(own.items(), key=lambda item: (-item[1], item[0]))
    return {name: total / 1000 / steps for name, total in ordered}


def dominant(facts: Facts) -> str:
    """`most of a step goes to operators (85 %), the longest aten::addmm (60 %)`; empty for an empty step."""
    causes = cpu_causes(facts)
    whole = sum(causes.values())
    if not whole:
        return ""
    cause, us = next(iter(causes.items()))
    most = "most" if 2 * us > whole else "the largest part"
    text = f"{most} of a step goes to {_DOES[cause][0]} ({100 * us / whole:.0f} %)"
    names = operator_times(facts) if cause == "launching" else function_times(facts) if cause == "Python" else {}
    if names:
        name, own_us = next(iter(names.items()))
        text += f", the longest {name} ({100 * own_us / whole:.0f} %)"
    return text


def cpu_time_html(facts: Facts) -> Html:
    """Tables of the CPU's states in a step, of its operators and of its Python functions; empty for an empty step."""
    causes = cpu_causes(facts)
    whole = sum(causes.values())
    if not whole:
        return Html("")
    rows: list[list[Cell]] = [
        [_what(cause), format_value(us, "us"), share_cell(us / whole)] for cause, us in causes.items()
    ]
    tables = [table("What the CPU does in a step", ["the CPU does", "time per step", "share of the step"], rows)]
    for heading, times in (("operator", operator_times(facts)), ("function", function_times(facts))):
        rows = [
            [code(name, 70), format_value(us, "us"), share_cell(us / whole)]
            for name, us in list(times.items())[:MOST_NAMES]
            if us > 0
        ]
        if rows:
            head = [heading, "own time per step", "share of the step"]
            tables.append(table(f"The longest {heading}s of a step, without what they call", head, rows))
    count = len(facts.steps)
    text = "On the threads of the steps" + (f", means over {count:,} steps." if count > 1 else ".")
    if not facts.has_stacks:
        text += f" Record with {STACKS} to see which functions of Python take the rest."
    return Html("".join(tables) + note(text))


def _what(cause: Cause) -> Html:
    name, meaning = _DOES[cause]
    return Html(f"{escape(name)}<small>{escape(meaning)}</small>")
