"""Who waits for whom: when CPU and GPU work during the steps, and when neither does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from snippets.lab.html import Html, note
from snippets.lab.trace.events import CpuOp, CudaCall, Span, Trace
from snippets.lab.trace.units import format_value

Interval = tuple[float, float]
"""Start and end in microseconds."""


@dataclass(frozen=True)
class Waiting:
    """Mean times per step, from the first step's start until both CPU and GPU are done with the last; they add up."""

    both_busy_us: float
    only_gpu_us: float
    only_cpu_us: float
    neither_us: float

    @property
    def step_us(self) -> float:
        """The whole: mean time of a step until its work on the GPU is done."""
        return self.both_busy_us + self.only_gpu_us + self.only_cpu_us + self.neither_us

    @property
    def gpu_busy_us(self) -> float:
        """Time in which something ran on a GPU."""
        return self.both_busy_us + self.only_gpu_us

    def share(self, us: float) -> float:
        """A time as part of the whole."""
        return us / self.step_us if self.step_us else 0.0


def waiting(trace: Trace) -> Waiting:
    """Divide the time of the steps. The CPU works in an operator or a call, unless the call waits for the GPU."""
    begin = min(step.start_us for step in trace.steps)
    ends = [step.end_us for step in trace.steps]
    end = max([*ends, *(activity.end_us for step in trace.steps for activity in step.activities)])
    cpu = _within(cpu_busy(trace), begin, end)
    gpu = _within(_union(trace.activities), begin, end)
    both = _length(_common(cpu, gpu))
    cpu_us, gpu_us, steps = _length(cpu), _length(gpu), len(trace.steps)
    neither = max(0.0, end - begin - cpu_us - gpu_us + both)
    parts = (both, max(0.0, gpu_us - both), max(0.0, cpu_us - both), neither)
    return Waiting(*(round(part / steps, 3) for part in parts))


def cpu_busy(trace: Trace) -> list[Interval]:
    """When any CPU thread is in an operator or a call that does not wait for the GPU."""
    works: dict[str, list[CpuOp | CudaCall]] = defaultdict(list)
    waits: dict[str, list[Span]] = defaultdict(list)
    for op in trace.cpu_ops:
        if not op.is_annotation:
            works[op.thread].append(op)
    for call in trace.calls:
        works[call.thread].append(call)
        if is_wait(call.name):
            waits[call.thread].append(call)
    busy = [interval for thread, spans in works.items() for interval in _without(_union(spans), _union(waits[thread]))]
    return _joined(sorted(busy))


def is_wait(name: str) -> bool:
    """Whether a call of the CUDA or HIP runtime returns only when work on the GPU is done."""
    return "Synchronize" in name


def _union(spans: Iterable[Span]) -> list[Interval]:
    return _joined(sorted((span.start_us, span.start_us + span.duration_us) for span in spans))


def _joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Intervals in start order, those that touch joined."""
    joined: list[Interval] = []
    for start, end in intervals:
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


def _common(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """The time in both; each is in order and does not overlap itself."""
    common, left, right = [], 0, 0
    while left < len(first) and right < len(second):
        start, end = max(first[left][0], second[right][0]), min(first[left][1], second[right][1])
        if start < end:
            common.append((start, end))
        if first[left][1] < second[right][1]:
            left += 1
        else:
            right += 1
    return common


def _without(intervals: Sequence[Interval], removed: Sequence[Interval]) -> list[Interval]:
    """The time in the first and not in the second."""
    edges = [float("-inf"), *(edge for interval in removed for edge in interval), float("inf")]
    return _common(intervals, list(zip(edges[::2], edges[1::2], strict=True)))


def _within(intervals: Sequence[Interval], begin: float, end: float) -> list[Interval]:
    return _common(intervals, [(begin, end)])


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)


_PARTS = (
    ("both", "both_busy_us", "CPU and GPU work", "the CPU prepares while the GPU computes: nobody waits"),
    ("gpu", "only_gpu_us", "only the GPU works", "the CPU waits for it, or runs what the profiler does not record"),
    ("cpu", "only_cpu_us", "only the CPU works", "the GPU waits for work: launches, data, or Python between them"),
    ("neither", "neither_us", "neither works", "Python outside of operators, data loading, other processes"),
)
"""Class, field, name and meaning of each part."""


def waiting_html(parts: Waiting, steps: int) -> Html:
    """A bar of the four parts, and a list that says what each means."""
    bar, items, at = [], [], 0.0
    for css, attribute, name, meaning in _PARTS:
        us = getattr(parts, attribute)
        percent = 100 * parts.share(us)
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
    described = ", ".join(f"{name} {100 * parts.share(getattr(parts, field)):.0f} %" for _, field, name, _ in _PARTS)
    image = f'<svg class="waiting" width="100%" height="40" role="img" aria-label="{escape(described)}">'
    sentence = "The CPU works while it is in an operator or a CUDA call that does not wait for the GPU."
    return Html(
        f'<p>{escape(lead)}</p>{image}{"".join(bar)}</svg><ul class="parts">{"".join(items)}</ul>{note(sentence)}'
    )
