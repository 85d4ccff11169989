"""Facts about a trace that several rules need, computed once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nlargest, nsmallest
from statistics import fmean, median
from typing import TypeVar

from kinetoscope.diagnosis.cpu_states import CAUSES, Cause, CpuStates
from kinetoscope.diagnosis.gaps import LONG_US, Gap, Waits, gaps_in, waits_in
from kinetoscope.diagnosis.gpu_use import GpuUse
from kinetoscope.diagnosis.per_step import window
from kinetoscope.diagnosis.sites import Site, find_sites
from kinetoscope.diagnosis.start_up import start_up_calls
from kinetoscope.diagnosis.step_facts import StepFacts, pid, process_of
from kinetoscope.trace.events import (
    CpuOp,
    CudaCall,
    GpuActivity,
    PythonFunction,
    Span,
    by_start,
    last_end_us,
    starting_in,
)
from kinetoscope.trace.intervals import (
    Interval,
    contains,
    covered_us,
    intersect,
    length_us,
    lengths_in,
    ns,
    subtract,
    union_of,
)

S = TypeVar("S", bound=Span)
MAX_EVIDENCE = 100
MIN_SHARE = 0.01
"""Least saving of a finding, as a share of a step: less is noise."""
SLOWDOWN = 2.0
"""How much longer the CPU needs for a step under the profiler, in about four of five of this book's recordings.

Of 166 on an H100 and an H200, 90 % took 1.6 to 6.7 times as long, the median 2.9 times.
"""


@dataclass(frozen=True)
class Facts(StepFacts):
    """A trace and facts derived from it; `has_...` is about the whole trace, also of several processes."""

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
    def start_up(self) -> list[CudaCall]:
        """The calls of the median step's process that start the GPU's runtime; empty if the trace begins later."""
        process = process_of(self.step)
        threads = _threads_of(self.trace.calls, process)
        calls = [call for call in self.trace.calls if call.thread in threads]
        return start_up_calls(calls, self.activities)

    @cached_property
    def cold_until_us(self) -> float:
        """The end of the last step with a call of `start_up`; 0 without one."""
        starts = [call.start_us for call in self.start_up]
        cold = (step.end_us for step in self.all_steps if any(step.start_us <= at < step.end_us for at in starts))
        return max(cold, default=0.0)

    @cached_property
    def activities(self) -> tuple[GpuActivity, ...]:
        """GPU work in or outside steps, in start order, on the GPUs of the steps and of their process."""
        process = process_of(self.step)
        devices = {activity.device for step in self.steps for activity in step.activities}
        threads = _threads_of(self.trace.calls, process)
        return tuple(
            activity
            for activity in self.trace.activities
            if (activity.device in devices or not devices)
            and (activity.launch is None or activity.launch.thread in threads)
        )

    @cached_property
    def busy(self) -> list[Interval]:
        """Times in which a GPU works."""
        return union_of(self.activities)

    @cached_property
    def gpu_use(self) -> GpuUse:
        """The use of each GPU of the steps, and of copies that no kernel hides."""
        return GpuUse(self.steps, self.activities, self.busy)

    @cached_property
    def idle(self) -> list[Interval]:
        """Times within steps in which no GPU works."""
        return subtract(self.windows, self.busy)

    @cached_property
    def idle_us(self) -> float:
        """Time within steps in which no GPU works."""
        return length_us(self.idle)

    @cached_property
    def cpu(self) -> CpuStates:
        """The states of the CPU threads that launch GPU work or run the steps."""
        marker = next((op for op in self._at_step if op.is_annotation and op.name == self.step.name), None)
        threads = {activity.launch.thread for activity in self.activities if activity.launch is not None}
        threads |= {marker.thread} if marker else set()
        if not threads:
            threads = {op.thread for op in self.step.ops} | {call.thread for call in self.step.calls}
        return CpuStates(self.trace, frozenset(threads), self.activities, self._all_windows if marker else ())

    @property
    def _at_step(self) -> Sequence[CpuOp]:
        return starting_in(self.trace.cpu_ops, self.step.start_us, self.step.start_us + 0.002)

    @cached_property
    def waits(self) -> Waits:
        """Who waits for whom in the median step."""
        return waits_in(window(self.step), self.busy, self.cpu)

    @cached_property
    def gaps(self) -> tuple[Gap, ...]:
        """The gaps of the GPU in the median step; empty if the trace has no GPU work."""
        return self._gaps([window(self.step)])

    @cached_property
    def long_gaps(self) -> tuple[Gap, ...]:
        """The gaps of the GPU in all steps that last at least `LONG_US`."""
        return self._gaps(self.step_windows, LONG_US)

    @cached_property
    def all_gaps(self) -> tuple[Gap, ...]:
        """The gaps of the GPU in all steps: in a trace of millions of kernels, finding them takes seconds."""
        return self.gaps if self.step_windows == [window(self.step)] else self._gaps(self.step_windows)

    def _gaps(self, windows: Sequence[Interval], least_us: float = 0.0) -> tuple[Gap, ...]:
        return gaps_in(windows, self.busy, self.cpu, self.activities, least_us) if self.has_gpu else ()

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

    def saving_us(self, cpu: Iterable[Span], gpu: Iterable[Span] = (), unclaimed: Sequence[Interval] = ()) -> float:
        """The most that a step gets shorter without these CPU events and the GPU work that they caused.

        Without the CPU events, a step saves at most their time, and only while the GPU waits or does that work. A mean,
        but if most steps have the events, one slow step does not raise the saving. If few have them, idle time of the
        other steps is not their fault. `unclaimed`: times in which the GPU is idle for another reason.
        """
        cpu_times, gpu_times = subtract(union_of(cpu), unclaimed), union_of(gpu)
        count = len(self.steps)
        cpu_us = length_us(intersect(cpu_times, self.windows)) / count
        gpu_us = length_us(intersect(gpu_times, self.windows)) / count
        idle = subtract(self.idle, unclaimed) if unclaimed else self.idle
        idle_us = length_us(idle) if unclaimed else self.idle_us
        other_us = (self.idle_us - idle_us) / count
        mean_us = min(cpu_us, idle_us / count + gpu_us, max(0.0, self.reclaimable_us - other_us) + gpu_us)
        if self.step_windows is self.windows:
            return round(mean_us, 3)
        lengths = (lengths_in(self.step_windows, times) for times in (cpu_times, idle, gpu_times))
        savings = [min(on_cpu, unused + on_gpu) / 1000 for on_cpu, unused, on_gpu in zip(*lengths, strict=True)]
        usual_us = median(savings)
        return round(min(mean_us, max(usual_us, self.periodic_us(savings)) if usual_us else fmean(savings)), 3)

    def lengths_us(self, spans: Iterable[Span]) -> list[float]:
        """The time in each step that at least one of the spans covers."""
        return [length / 1000 for length in lengths_in(self.step_windows, union_of(spans))]

    def length_us(self, spans: Iterable[Span]) -> float:
        """The time in steps that at least one of the spans covers, a mean over the steps."""
        spans = list(spans)
        if len(self.windows) == 1 and spans:
            ((start, end),) = self.windows
            if start <= ns(min(map(by_start, spans))) and ns(last_end_us(spans)) <= end:
                return round(covered_us(spans) / len(self.steps), 3)
        return round(length_us(intersect(union_of(spans), self.windows)) / len(self.steps), 3)

    def in_steps(self, spans: Iterable[S]) -> list[S]:
        """The spans that start in a step."""
        if len(self.windows) == 1:
            ((start, end),) = self.windows
            start_us, end_us = (start - 0.5) / 1000, (end - 0.5) / 1000
            return [span for span in spans if start_us <= span.start_us < end_us]
        return [span for span in spans if contains(self.windows, ns(span.start_us))]

    @cached_property
    def step_operators(self) -> list[CpuOp]:
        """The operators that start in steps, on the steps' threads, without those that fetch batches."""
        ops = [op for op in self.in_steps(self.cpu.ops) if not op.is_annotation]
        fetching = union_of(self.cpu.spans["data loading"])
        return [op for op in ops if not contains(fetching, ns(op.start_us))] if fetching else ops

    @cached_property
    def cpu_parts(self) -> dict[Cause, list[Interval]]:
        """The steps' time by the state of the CPU."""
        return self.cpu.partition(self.windows)

    def evidence(self, spans: Sequence[Span]) -> tuple[Span, ...]:
        """The longest spans, at most 100, from the median step unless other steps have most of their time."""
        start, end = ((bound - 0.5) / 1000 for bound in window(self.step))
        shown = [span for span in spans if start <= span.start_us < end]
        if len(shown) < len(spans) and 2 * len(self.steps) * length_us(union_of(shown)) < length_us(union_of(spans)):
            shown = []
        chosen = shown or spans
        if len(chosen) > MAX_EVIDENCE:
            least_us = nlargest(MAX_EVIDENCE, (span.duration_us for span in chosen))[-1]
            chosen = [span for span in chosen if span.duration_us >= least_us]
        return tuple(nsmallest(MAX_EVIDENCE, chosen, key=lambda span: (-span.duration_us, span.start_us)))

    def sites(self, events: Sequence[CpuOp | CudaCall | PythonFunction]) -> list[Site]:
        """The operator, module and line around the start of each event."""
        return find_sites(self.trace, [(event.thread, event.start_us) for event in events])

    def place(self, activity: GpuActivity) -> str:
        """The place of an activity's launch, as text; empty if the trace does not tell."""
        event = activity.launch or activity.op
        return self.sites([event])[0].text if event else ""


def _threads_of(calls: Iterable[CudaCall], process: str) -> set[str]:
    """The threads of a process that make calls; of all processes if its name is empty."""
    return {thread for thread in {call.thread for call in calls} if process in ("", pid(thread))}
