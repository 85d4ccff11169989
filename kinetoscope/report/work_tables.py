"""Tables of a report: kernels by time with their rates, operators, collectives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from kinetoscope.html import Cell, Html, code, details, note, table
from kinetoscope.trace.averages import Average
from kinetoscope.trace.events import Collective, GpuActivity, Trace
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.summaries import Summary
from kinetoscope.trace.text import shortened
from kinetoscope.trace.units import format_value
from kinetoscope.trace.work import step_work

MOST_FIRST, MOST_MORE = 15, 150
"""Rows of a table: at once, and on demand."""
_RAW_WIDTH = 2000
"""Letters of a raw name: some C++ names are longer, and say no more."""


@dataclass
class KernelTime:
    """All launches of one kernel in the steps."""

    name: str
    calls: int = 0
    total_us: float = 0.0
    ops: Counter[str] = field(default_factory=Counter)
    known_us: float = 0.0
    """Time of the launches with known work."""
    flops: int = 0
    moved_bytes: int = 0

    @property
    def rate(self) -> str:
        """FLOP/s or bytes/s, if the trace tells the shapes; else empty."""
        if not self.known_us:
            return ""
        if self.flops:
            return format_value(self.flops / self.known_us * 1e6, "flop/s")
        return format_value(self.moved_bytes / self.known_us * 1e6, "bytes/s") if self.moved_bytes else ""


def kernel_times(trace: Trace) -> list[KernelTime]:
    """Kernels, copies and fills of all steps by name, the longest total first."""
    times: dict[str, KernelTime] = {}
    for step in trace.steps:
        for activity, work in zip(step.activities, step_work(step), strict=True):
            each = times.setdefault(activity.name, KernelTime(activity.name))
            each.calls += 1
            each.total_us += activity.duration_us
            if activity.op is not None:
                each.ops[activity.op.name] += 1
            if work is not None and activity.duration_us:
                each.known_us += activity.duration_us
                each.flops += work.flops
                each.moved_bytes += work.bytes
    return sorted(times.values(), key=lambda each: (-each.total_us, each.name))


def per_step(count: int, steps: int) -> str:
    """A count per step: `12`, or `12.5` if steps differ."""
    return f"{count // steps:,}" if count % steps == 0 else f"{count / steps:,.1f}"


def share_cell(share: float) -> Html:
    """A percentage with a bar below it."""
    percent = 100 * share
    bar = f'<svg class="share" width="56" height="5" aria-hidden="true"><rect width="{min(percent, 100):.1f}%"/></svg>'
    return Html(f"{percent:.1f} %{bar}")


def name_cell(name: str, op: str = "") -> Html:
    """A decoded kernel name that unfolds to the raw name; below it, in small type, its operator."""
    short = decode_kernel_name(name).short
    raw = f'<code class="raw">{escape(shortened(name, _RAW_WIDTH))}</code>'
    unfolded = f'<details class="name"><summary>{escape(short)}</summary>{raw}</details>'
    below = f'<small class="op">{escape(shortened(op, 60))}</small>' if op else ""
    return Html((unfolded if short != name else f'<span class="name">{escape(name)}</span>') + below)


def kernels_html(times: Sequence[KernelTime], steps: int) -> Html:
    """The kernels of so many steps by time; the later ones on demand."""
    total = sum(each.total_us for each in times) or 1.0
    head = ["kernel and operator", "time per step", "share", "calls per step", "mean", "rate"]
    rows = [_kernel_row(each, steps, total) for each in times[:MOST_FIRST]]
    more = [_kernel_row(each, steps, total) for each in times[MOST_FIRST : MOST_FIRST + MOST_MORE]]
    html = table("GPU work by time", head, rows)
    if more:
        html = Html(html + details(f"{len(more)} more", table("More GPU work", head, more)))
    rest = times[MOST_FIRST + MOST_MORE :]
    left = sum(each.total_us for each in rest) / steps
    sentence = "Shares are of the sum of all GPU work. Select a name to see it as the profiler wrote it. "
    sentence += "A rate counts the least work that the shapes of the operator's inputs need; "
    sentence += "none where the trace lacks shapes or several kernels share an operator."
    if rest:
        sentence += f" Not listed: {len(rest):,} kernels with {format_value(left, 'us')} per step."
    return Html(html + note(sentence))


def _kernel_row(each: KernelTime, steps: int, total: float) -> list[Cell]:
    op = min(each.ops, key=lambda name: (-each.ops[name], name)) if each.ops else ""
    return [
        name_cell(each.name, op),
        format_value(each.total_us / steps, "us"),
        share_cell(each.total_us / total),
        per_step(each.calls, steps),
        format_value(each.total_us / each.calls, "us"),
        each.rate or None,
    ]


def operators_html(rows: Sequence[Average]) -> Html:
    """The rows of `key_averages()` in two short tables: operators by their GPU time and by their CPU time."""
    averages = [each for each in rows if each.kind != "annotation"]
    by_gpu = sorted((each for each in averages if each.self_gpu_us), key=lambda each: -each.self_gpu_us)
    by_cpu = sorted((each for each in averages if each.self_cpu_us > 0), key=lambda each: -each.self_cpu_us)
    parts = []
    if by_gpu:
        parts.append(_averages("Operators by the GPU time of the kernels they launched", by_gpu, is_gpu=True))
    if by_cpu:
        parts.append(_averages("Operators and CUDA calls by their own CPU time", by_cpu, is_gpu=False))
    sentence = "Sums over the whole trace, as key_averages() computes them. Self time excludes the operators inside."
    return Html("".join([*parts, note(sentence)]) if parts else "")


def _averages(caption: str, averages: Sequence[Average], *, is_gpu: bool) -> Html:
    head = ["operator", "self GPU", "total GPU", "calls"] if is_gpu else ["operator", "self CPU", "total CPU", "calls"]
    rows = [_average_row(each, is_gpu) for each in averages]
    html = table(caption, head, rows[:10])
    more = rows[10 : 10 + MOST_MORE // 2]
    return Html(html + (details(f"{len(more)} more", table(f"{caption}: more", head, more)) if more else ""))


def _average_row(each: Average, is_gpu: bool) -> list[Cell]:
    own, total = (each.self_gpu_us, each.gpu_us) if is_gpu else (each.self_cpu_us, each.cpu_us)
    return [code(each.name, 50), format_value(own, "us"), format_value(total, "us"), f"{each.calls:,}"]


def collectives_html(trace: Trace, summary: Summary) -> Html:
    """Collectives by name, type and group; empty if the steps have none."""
    groups: dict[tuple[str, str, str, int | None], list[tuple[GpuActivity, Collective]]] = defaultdict(list)
    for step in trace.steps:
        for activity in step.activities:
            if (one := activity.collective) is not None:
                groups[one.name, one.type, one.group, one.group_size].append((activity, one))
    steps = len(trace.steps)
    totals = {key: sum(activity.duration_us for activity, _ in group) for key, group in groups.items()}
    rows: list[list[Cell]] = []
    for key in sorted(groups, key=lambda key: -totals[key])[:MOST_MORE]:
        name, kind, group, size = key
        elements = [one.elements_in for _, one in groups[key] if one.elements_in is not None]
        mean = f"{sum(elements) // len(elements):,} {kind}".strip() if elements else None
        ranks = None if size is None else f"{size:,}"
        where = shortened(group, 30) or None
        calls = per_step(len(groups[key]), steps)
        rows.append([code(name), where, mean, ranks, calls, format_value(totals[key] / steps, "us")])
    head = ["collective", "group", "elements, mean", "ranks", "calls per step", "time per step"]
    if not rows and not summary.collectives_us_per_step:
        return Html("")
    whole = format_value(summary.collectives_us_per_step, "us")
    exposed = format_value(summary.exposed_collectives_us_per_step, "us")
    lead = f"Collectives take {whole} per step; in {exposed} of it no other kernel hides them."
    listed = table("Collectives by time", head, rows, text_columns=3) if rows else ""
    return Html(f"<p>{escape(lead)}</p>{listed}")
