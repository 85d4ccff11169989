"""GPU time by module and by source line, where the trace has the Python functions (`with_stack=True`)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from snippets.lab.html import Html, code, details, note, table
from snippets.lab.report.work_tables import MOST_FIRST, MOST_MORE, per_step, share_cell
from snippets.lab.trace.events import PythonFunction, Trace
from snippets.lab.trace.units import format_value

_MODULE = "nn.Module: "
_LINE = re.compile(r"(?P<path>.{1,400}\.py)\((?P<line>\d+)\): (?P<function>.{1,200})", re.DOTALL)
_LIBRARY = re.compile(r"(site-packages|dist-packages|lib/python[\d.]*|<frozen)[/ ]|^torch/|^<")
"""Where a line is not the user's own: torch strips its own folder from the paths that it records."""


@dataclass(frozen=True)
class Places:
    """GPU time in microseconds and launches, by the innermost module and by the user's innermost line."""

    module_us: Counter[str]
    line_us: Counter[str]
    module_launches: Counter[str]
    line_launches: Counter[str]


def find_places(trace: Trace) -> Places:
    """Attribute each activity of the steps to the functions around its launch."""
    launches: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for step in trace.steps:
        for activity in step.activities:
            if activity.launch is not None:
                launches[activity.launch.thread].append((activity.launch.start_us, activity.duration_us))
    functions: dict[str, list[PythonFunction]] = defaultdict(list)
    for function in trace.functions:
        functions[function.thread].append(function)
    places = Places(Counter(), Counter(), Counter(), Counter())
    for thread, of_thread in launches.items():
        _add(places, sorted(of_thread), sorted(functions[thread], key=lambda each: (each.start_us, -each.duration_us)))
    return places


def _add(places: Places, launches: Sequence[tuple[float, float]], functions: Sequence[PythonFunction]) -> None:
    """Sweep over a thread with the stack of functions; each carries the module and the line that it is in."""
    stack: list[tuple[float, str, str]] = []
    entered = 0
    for at, us in launches:
        while entered < len(functions) and functions[entered].start_us <= at:
            function = functions[entered]
            entered += 1
            while stack and stack[-1][0] <= function.start_us:
                stack.pop()
            module, line = stack[-1][1:] if stack else ("", "")
            stack.append((function.end_us, _module(function.name) or module, own_line(function.name) or line))
        while stack and stack[-1][0] < at:
            stack.pop()
        module, line = stack[-1][1:] if stack else ("", "")
        places.module_us[module] += us  # type: ignore[assignment]
        places.line_us[line] += us  # type: ignore[assignment]
        places.module_launches[module] += 1
        places.line_launches[line] += 1


def _module(name: str) -> str:
    return name.removeprefix(_MODULE) if name.startswith(_MODULE) else ""


def own_line(name: str) -> str:
    """`/home/me/project/train.py(12): step` -> `project/train.py:12 step`; empty for a library's or no line."""
    match = _LINE.fullmatch(name)
    if match is None or _LIBRARY.search(name):
        return ""
    path = "/".join(re.split(r"[/\\]", match["path"])[-2:])
    return f"{path}:{match['line']} {match['function']}"


def places_html(trace: Trace) -> Html:
    """Tables of modules and lines; empty if no function was recorded."""
    if not trace.functions:
        return Html("")
    places = find_places(trace)
    steps = len(trace.steps)
    parts = [
        _table("GPU time by module", "module", places.module_us, places.module_launches, steps),
        _table("GPU time by source line", "line", places.line_us, places.line_launches, steps),
    ]
    text = "Each kernel counts for the innermost module, and for the innermost line outside of libraries, around its "
    text += "launch. The backward pass runs on a thread of its own, without the stack of the forward."
    return Html("".join(parts) + note(text) if any(parts) else "")


def _table(caption: str, name: str, times: Counter[str], launches: Counter[str], steps: int) -> str:
    if not any(times):  # only the empty name, or none
        return ""
    total = sum(times.values()) or 1.0
    rows = [
        [
            code(place, 70) if place else "outside of any",
            format_value(us / steps, "us"),
            share_cell(us / total),
            per_step(launches[place], steps),
        ]
        for place, us in times.most_common(MOST_FIRST + MOST_MORE)
    ]
    head = [name, "GPU time per step", "share", "activities per step"]
    html = table(caption, head, rows[:MOST_FIRST])
    more = rows[MOST_FIRST:]
    return html + (details(f"{len(more)} more", table(f"{caption}: more", head, more)) if more else "")
