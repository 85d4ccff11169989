"""GPU time by module and by source line, if the trace has Python functions (`with_stack=True`)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cache

from kinetoscope.diagnosis.sites import find_lines
from kinetoscope.html import Cell, Html, code, details, note, table
from kinetoscope.report.work_tables import MOST_FIRST, MOST_MORE, per_step, share_cell
from kinetoscope.trace.events import Trace
from kinetoscope.trace.units import format_value

_MODULE = "nn.Module: "
_NONE: Mapping[str, Set[str]] = {}
_LINE = re.compile(r"(?P<path>.{1,400}\.py)\((?P<line>\d+)\): (?P<function>.{1,200})", re.DOTALL)


@dataclass(frozen=True)
class Places:
    """GPU time in microseconds and launches, by the class of the innermost module and by the user's innermost line."""

    module_us: Counter[str]
    line_us: Counter[str]
    instances: dict[str, set[str]]
    """Kind of module -> its modules: `Linear` -> `Linear_0`, `Linear_1`."""
    module_launches: Counter[str]
    line_launches: Counter[str]


def find_places(trace: Trace) -> Places:
    """Attribute each activity of the steps to the functions around its launch."""
    launched = [
        (activity.launch.thread, activity.launch.start_us, activity.duration_us)
        for step in trace.steps
        for activity in step.activities
        if activity.launch is not None
    ]
    places = Places(Counter(), Counter(), defaultdict(set), Counter(), Counter())
    lines = find_lines(trace, [(thread, at) for thread, at, _ in launched])
    for (around, innermost), (_, _, us) in zip(lines, launched, strict=True):
        name, line = around.removeprefix(_MODULE), short_line(innermost)
        module = _kind(name)
        places.instances[module].add(name)
        places.module_us[module] += us  # type: ignore[assignment]
        places.line_us[line] += us  # type: ignore[assignment]
        places.module_launches[module] += 1
        places.line_launches[line] += 1
    return places


@cache
def _kind(module: str) -> str:
    """`Linear_0` -> `Linear`."""
    return re.sub(r"_\d+$", "", module)


@cache
def short_line(name: str) -> str:
    """`/somewhere/project/train.py(12): step` -> `project/train.py:12 step`."""
    match = _LINE.fullmatch(name)
    if match is None:
        return name
    path = "/".join(re.split(r"[/\\]", match["path"])[-2:])
    return f"{path}:{match['line']} {match['function']}"


def places_html(trace: Trace) -> Html:
    """Tables of modules and lines; empty if no function was recorded."""
    if not trace.functions:
        return Html("")
    places = find_places(trace)
    steps = len(trace.steps)
    parts = [
        _table(
            "GPU time by kind of module", "module", places.module_us, places.module_launches, steps, places.instances
        ),
        _table("GPU time by source line", "line", places.line_us, places.line_launches, steps),
    ]
    text = "Each kernel counts for the innermost module, and for the innermost line outside of libraries, around its "
    text += "launch. The backward pass runs on a thread of its own, without the stack of the forward."
    return Html("".join(parts) + note(text) if any(parts) else "")


def _place(place: str, modules: int) -> Cell:
    if not place:
        return "outside of any"
    return Html(code(place, 70) + (f"<small>{modules:,} modules</small>" if modules > 1 else ""))


def _table(
    caption: str,
    name: str,
    times: Counter[str],
    launches: Counter[str],
    steps: int,
    instances: Mapping[str, Set[str]] = _NONE,
) -> str:
    if not any(times):  # no name but the empty one
        return ""
    total = sum(times.values()) or 1.0
    rows = [
        [
            _place(place, len(instances.get(place, ()))),
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
