"""Facts about a trace that several rules need, computed once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import TypeVar

from kinetoscope.diagnosis.cpu_states import CAUSES, Cause, CpuStates
from kinetoscope.diagnosis.gaps import Gap, Waits, gaps_in, waits_in
from kinetoscope.diagnosis.sites import Site, find_sites
from kinetoscope.trace.events import (
    CpuOp,
    CudaCall,
    GpuActivity,
    PythonFunction,
    Span,
    Step,
    Trace,
    last_end_us,
    starting_in,
)
from kinetoscope.trace.intervals import (
    Interval,
    contains,
    intersect,
    length_us,
    lengths_in,
    ns,
    subtract,
    union,
    union_of,
)
from kinetoscope.trace.queries import busy_us, is_sync, require_steps

S = TypeVar("S", bound=Span)
MAX_EVIDENCE = 100
MIN_SHARE = 0.01
"""Least saving of a finding, as a share of a step: less is noise."""
START_UP_US = 100_000.0
"""No call of a warm CUDA takes so long, unless it waits for GPU work."""
_MAY_WAIT = re.compile(r"Malloc|Free|Memcpy|Memset|Launch")
WARM_UP_RATIO, MIN_WARM_UP_US, MIN_STEPS = 3.0, 1000.0, 3
"""The first of at least so many steps is warm-up if it takes over 3 times the median of the others, and 1 ms more."""
WARM_UP_RATIO_OF_TWO = 20.0
"""The first of two steps is warm-up from here on: below it, either of the two may be the exception."""
SLOWDOWN = 2.0
"""How much longer the CPU needs for a step under the profiler, in about four of five of this book's recordings.

Of 166 on an H100 and an H200, 90 % took 1.6 to 6.7 times as long, the median 2.9 times.
"""


@dataclass(frozen=True)
class Facts:
    """A trace and facts derived from it. Per-step times are means over `steps`; `step` is the median step.

    If one file has several processes (merged ranks), everything but `trace` and `has_...` belongs to the median step's
    process.
    """

    trace: Trace

    @cached_property
    def step(self) -> Step:
        """The step of median duration (the low one of two); raises `TraceError` without a step."""
        require_steps(self.trace)
        ordered = sorted(self.trace.steps, key=lambda step: step.end_us - step.start_us)
        return ordered[(len(ordered) - 1) // 2]

    @cached_property
    def step_us(self) -> float:
        """Wall time of the median step."""
        return round(self.step.end_us - self.step.start_us, 3)

    @cached_property
    def has_stacks(self) -> bool:
        """Whether Python functions were recorded (`with_stack=True`)."""
        return bool(self.trace.functions)

    @cached_property
    def has_operators(self) -> bool:
        """Whether the trace has operators (`ProfilerActivity.CPU`)."""
        return any(not op.is_annotation for op in self.trace.cpu_ops)

    @cached_property
    def has_gpu(self) -> bool:
        """Whether the trace has GPU work at all."""
        return bool(self.trace.activities)

    @cached_property
    def all_steps(self) -> tuple[Step, ...]:
        """The steps of the median step's process, in start order."""
        process = process_of(self.step)
        return tuple(step for step in self.trace.steps if process_of(step) == process)

    @cached_property
    def warm_up(self) -> Step | None:
        """The first step, if it is warm-up: the rule `first-step` reports it, and the means omit it."""
        if len(self.all_steps) < 2:
            return None
        first, *others = (step.end_us - step.start_us for step in self.all_steps)
        usual = median(others)
        ratio = WARM_UP_RATIO if len(self.all_steps) >= MIN_STEPS else WARM_UP_RATIO_OF_TWO
        is_long = first > ratio * usual and first - usual >= MIN_WARM_UP_US
        return self.all_steps[0] if is_long else None

    @cached_property
    def start_up(self) -> list[CudaCall]:
        """The long calls of a trace that starts CUDA and has no warm step; else empty.

        Contexts, streams and modules are created once. Allocations and launches may also be long because they wait, but
        near such a creation they belong to the start-up.
        """
        if len(self.all_steps) >= MIN_STEPS or self.warm_up:
            return []
        long = [call for call in self.in_steps(self.trace.calls) if call.duration_us >= START_UP_US]
        long = [call for call in long if not is_sync(call.name)]
        return long if any(not _MAY_WAIT.search(call.name) for call in long) else []

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the median step's process without warm-up, in start order."""
        return self.all_steps[1:] if self.warm_up else self.all_steps

    @cached_property
    def activities(self) -> tuple[GpuActivity, ...]:
        """GPU work in or outside steps, in start order, on the GPUs of the steps and of their process."""
        process = process_of(self.step)
        devices = {activity.device for step in self.steps for activity in step.activities}
        return tuple(
            activity
            for activity in self.trace.activities
            if (activity.device in devices or not devices)
            and (activity.launch is None or process in ("", pid(activity.launch.thread)))
        )

    @cached_property
    def windows(self) -> list[Interval]:
        """The times of all steps."""
        return union(map(_window, self.steps))

    @cached_property
    def busy(self) -> list[Interval]:
        """Times in which a GPU works."""
        return union_of(self.activities)

    @cached_property
    def idle(self) -> list[Interval]:
        """Times within steps in which no GPU works."""
        return subtract(self.windows, self.busy)

    @cached_property
    def cpu(self) -> CpuStates:
        """The states of the CPU threads that launch GPU work or run the steps."""
        marker = next((op for op in self._at_step if op.is_annotation and op.name == self.step.name), None)
        threads = {activity.launch.thread for activity in self.activities if activity.launch is not None}
        threads |= {marker.thread} if marker else set()
        if not threads:
            threads = {op.thread for op in self.step.ops} | {call.thread for call in self.step.calls}
        return CpuStates(self.trace, frozenset(threads), self.activities, marker is not None)

    @property
    def _at_step(self) -> Sequence[CpuOp]:
        return starting_in(self.trace.cpu_ops, self.step.start_us, self.step.start_us + 0.002)

    @cached_property
    def waits(self) -> Waits:
        """Who waits for whom in the median step."""
        return waits_in(_window(self.step), self.busy, self.cpu)

    @cached_property
    def gaps(self) -> tuple[Gap, ...]:
        """The gaps of the GPU in the median step; empty if the trace has no GPU work."""
        return gaps_in(_window(self.step), self.busy, self.cpu, self.activities) if self.has_gpu else ()

    @cached_property
    def inner_gaps(self) -> list[Gap]:
        """The gaps between the first and the last GPU work. Gaps outside may only mean that the trace begins or
        ends."""
        first = min((activity.start_us for activity in self.activities), default=0.0)
        last = last_end_us(self.activities)
        return [gap for gap in self.gaps if gap.end_us > first and gap.start_us < last]

    @cached_property
    def gaps_us(self) -> dict[Cause, float]:
        """Time of the median step's gaps by cause; they add up to `waits.gpu_idle_us` if there is GPU work."""
        sums = dict.fromkeys(CAUSES, 0)
        for gap in self.gaps:
            sums[gap.cause] += ns(gap.duration_us)
        return {cause: total / 1000 for cause, total in sums.items()}

    @cached_property
    def reclaimable_us(self) -> float:
        """The most by which a step can get shorter, a mean: no step is shorter than its own GPU work."""
        return round(sum(map(spare_us, self.steps)) / len(self.steps), 3)

    @cached_property
    def long_run_us(self) -> float:
        """The time of a step in the long run: its wall time, or its GPU work if the CPU runs ahead. A mean."""
        times = (max(step.end_us - step.start_us, busy_us(step.activities)) for step in self.steps)
        return round(math.fsum(times) / len(self.steps), 3)

    def saving_us(self, cpu: Iterable[Span], gpu: Iterable[Span] = (), unclaimed: Sequence[Interval] = ()) -> float:
        """The most that a step gets shorter without these CPU events and the GPU work that they caused.

        Without the CPU events, a step saves at most their time, and only while the GPU waits or does that work. A mean,
        but at most the median if most steps have the events, so that one slow step does not raise the saving.
        `unclaimed`: times in which the GPU is idle for another reason.
        """
        cpu_times, gpu_times = subtract(union_of(cpu), unclaimed), union_of(gpu)
        count = len(self.steps)
        cpu_us = length_us(intersect(cpu_times, self.windows)) / count
        gpu_us = length_us(intersect(gpu_times, self.windows)) / count
        idle = subtract(self.idle, unclaimed)
        other_us = (length_us(self.idle) - length_us(idle)) / count
        mean_us = min(cpu_us, length_us(idle) / count + gpu_us, max(0.0, self.reclaimable_us - other_us) + gpu_us)
        windows = [_window(step) for step in self.steps]
        if any(before[1] > after[0] for before, after in pairwise(windows)):
            return round(mean_us, 3)
        lengths = (lengths_in(windows, times) for times in (cpu_times, idle, gpu_times))
        usual_us = median(min(on_cpu, unused + on_gpu) for on_cpu, unused, on_gpu in zip(*lengths, strict=True)) / 1000
        return round(min(mean_us, usual_us) if usual_us else mean_us, 3)

    def length_us(self, spans: Iterable[Span]) -> float:
        """The time in steps that at least one of the spans covers, a mean over the steps."""
        return round(length_us(intersect(union_of(spans), self.windows)) / len(self.steps), 3)

    def in_steps(self, spans: Iterable[S]) -> list[S]:
        """The spans that start in a step."""
        return [span for span in spans if contains(self.windows, ns(span.start_us))]

    def evidence(self, spans: Sequence[Span]) -> tuple[Span, ...]:
        """The longest spans, at most 100, from the median step if it has any."""
        start, end = _window(self.step)
        shown = [span for span in spans if start <= ns(span.start_us) < end]
        return tuple(sorted(shown or spans, key=lambda span: (-span.duration_us, span.start_us))[:MAX_EVIDENCE])

    def sites(self, events: Sequence[CpuOp | CudaCall | PythonFunction]) -> list[Site]:
        """The operator, module and line around the start of each event."""
        return find_sites(self.trace, [(event.thread, event.start_us) for event in events])

    def place(self, activity: GpuActivity) -> str:
        """The place of an activity's launch, as text; empty if the trace does not tell."""
        event = activity.launch or activity.op
        return self.sites([event])[0].text if event else ""


def spare_us(step: Step) -> float:
    """The time by which a step is longer than its own GPU work."""
    return max(0.0, round(step.end_us - step.start_us - busy_us(step.activities), 3))


def pid(thread: str) -> str:
    """`412/7` -> `412`."""
    return thread.partition("/")[0]


def process_of(step: Step) -> str:
    """The process whose operators and calls a step has; empty if it has none."""
    first = step.ops[:1] or step.calls[:1]
    return pid(first[0].thread) if first else ""


def _window(step: Step) -> Interval:
    return ns(step.start_us), ns(step.end_us)
