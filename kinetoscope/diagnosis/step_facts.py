"""Facts about the steps of a trace: which to show, which are warm-up, how long they take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from statistics import fmean, median

from kinetoscope.diagnosis.per_step import disjoint_windows, usual, window, winsorized_mean
from kinetoscope.trace.events import Step, Trace
from kinetoscope.trace.intervals import (
    Interval,
    union,
)
from kinetoscope.trace.marks import TOKENS
from kinetoscope.trace.queries import busy_us, require_steps, step_us
from kinetoscope.trace.step_kinds import KindOfStep, has_larger_work, kinds_of_step, long_run_us, usual_us
from kinetoscope.trace.tokens import is_token

WARM_UP_RATIO, MIN_WARM_UP_US, MIN_STEPS = 3.0, 1000.0, 3
"""The first of at least so many steps is warm-up if it takes over 3 times the median of the others, and 1 ms more."""
WARM_UP_RATIO_OF_TWO = 20.0
"""The first of two steps is warm-up from here on: below it, either of the two may be the exception."""


@dataclass(frozen=True)
class StepFacts:
    """The steps of a trace. Per-step times are means over `steps`; `step` is the median step, of the kind that takes
    most of the time.

    If one file has several processes (merged ranks), everything but `trace` belongs to the median step's process.
    """

    trace: Trace

    @cached_property
    def step(self) -> Step:
        """The step of median duration (the low one of two); raises `TraceError` without a step."""
        usual = [step for step in self.kinds[0].steps if step is not self.warm_up] if self.kinds else self.trace.steps
        return _median_step(usual)

    @cached_property
    def kinds(self) -> tuple[KindOfStep, ...]:
        """The kinds of step, that with most time first; empty if there is one."""
        return kinds_of_step(self.trace)

    @cached_property
    def median_us(self) -> float:
        """Wall time of the median step."""
        return step_us(self.step)

    @cached_property
    def step_us(self) -> float:
        """Wall time with which times per step compare: of the median step; if there are kinds of step, the mean."""
        return round(fmean(map(step_us, self.steps)), 3) if self.kinds else self.median_us

    @cached_property
    def all_steps(self) -> tuple[Step, ...]:
        """The steps of the median step's process, in start order; raises `TraceError` without a step."""
        require_steps(self.trace)
        process = process_of(_median_step(self.trace.steps))
        return tuple(step for step in self.trace.steps if process_of(step) == process)

    @cached_property
    def warm_up(self) -> Step | None:
        """The first step, if it is warm-up: the rule `first-step` reports it, and the means omit it."""
        first = self._long_first
        return None if first is None or has_larger_work(first, self.all_steps[1:]) else first

    @cached_property
    def prompt(self) -> Step | None:
        """The first step, if it is the prompt of the tokens after it: no fault, and the means omit it."""
        first, others = self._long_first, self.all_steps[1:]
        if first is None or first is self.warm_up:
            return None
        return first if _are_tokens([step for step in others if is_token(step.ops, step.activities)], others) else None

    @cached_property
    def _long_first(self) -> Step | None:
        """The first step, if it takes much longer than later ones like it."""
        if len(self.all_steps) < 2:
            return None
        first, usual = long_run_us(self.all_steps[0]), usual_us(self.all_steps)
        ratio = WARM_UP_RATIO if len(self.all_steps) >= MIN_STEPS else WARM_UP_RATIO_OF_TWO
        is_long = first > ratio * usual and first - usual >= MIN_WARM_UP_US
        return self.all_steps[0] if is_long else None

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the median step's process without warm-up or a prompt, in start order."""
        return self.all_steps[1:] if self.warm_up or self.prompt else self.all_steps

    @cached_property
    def token_steps(self) -> tuple[Step, ...]:
        """The steps that produce one token of each sequence, by the rules of `trace/tokens.py`."""
        if self.trace.steps_from == TOKENS:
            return self.steps
        return tuple(step for step in self.steps if is_token(step.ops, step.activities))

    @property
    def is_token_loop(self) -> bool:
        """Whether at least nine of ten steps produce one token."""
        return _are_tokens(self.token_steps, self.steps)

    @cached_property
    def windows(self) -> list[Interval]:
        """The times of all steps."""
        return union(map(window, self.steps))

    @cached_property
    def step_windows(self) -> list[Interval]:
        """The time of each step; `windows` if some overlap."""
        return disjoint_windows(self.steps) or self.windows

    @property
    def _all_windows(self) -> list[Interval]:
        """The same with warm-up."""
        return disjoint_windows(self.all_steps) or union(map(window, self.all_steps))

    @cached_property
    def _busy_us(self) -> dict[int, float]:
        return {id(step): busy_us(step.activities) for step in self.trace.steps}

    def busy_us(self, step: Step) -> float:
        """Time in which a GPU works for a step of the trace."""
        return self._busy_us[id(step)]

    def spare_us(self, step: Step) -> float:
        """The time by which a step of the trace is longer than its own GPU work."""
        return max(0.0, round(step.end_us - step.start_us - self.busy_us(step), 3))

    @cached_property
    def reclaimable_us(self) -> float:
        """The most by which a step can get shorter, a mean: no step is shorter than its own GPU work."""
        return round(sum(map(self.spare_us, self.steps)) / len(self.steps), 3)

    def periodic_us(self, savings_us: Sequence[float]) -> float:
        """The mean of what each step saves, if one slow step does not count.

        At most the time by which the steps together are longer than their GPU work: the CPU runs ahead in a short step.
        """
        longer_us = math.fsum(step.end_us - step.start_us - self.busy_us(step) for step in self.steps)
        return round(min(winsorized_mean(savings_us), max(0.0, longer_us) / len(self.steps)), 3)

    def mean_us(self, times_us: Sequence[float]) -> float:
        """The mean of the steps' times; without the excess of one slow step if it is longer than the mean step."""
        mean_us = fmean(times_us)
        return round(mean_us if mean_us <= self.mean_step_us or not median(times_us) else usual(times_us), 3)

    @cached_property
    def long_run_us(self) -> float:
        """The time of a step in the long run: its wall time, or its GPU work if the CPU runs ahead. A mean."""
        return round(math.fsum(self._long_run_times) / len(self.steps), 3)

    @cached_property
    def _long_run_times(self) -> list[float]:
        return [self.long_run_of(step) for step in self.steps]

    def long_run_of(self, step: Step) -> float:
        """The time of a step of the trace in the long run."""
        return max(step.end_us - step.start_us, self.busy_us(step))

    @cached_property
    def mean_step_us(self) -> float:
        """The time of a step in the long run, a mean that one slow step does not raise; at least that of the median
        step."""
        return max(self.step_us, round(usual(self._long_run_times), 3))

    def mean_step_for(self, us: float) -> float:
        """The time of a step of which a mean time per step is a part: `mean_step_us`, or the mean with the slow step
        if the time is longer than that, because it is the slow step's."""
        return self.mean_step_us if us <= self.mean_step_us else max(self.mean_step_us, self.long_run_us)

    def per_step_us(self, us: float) -> float:
        """A time of the median step as a mean per step: if there are kinds of step, it stands for its own kind, whose
        steps may take less than the median in the mean."""
        if not self.kinds:
            return round(us, 3)
        of_kind = self.kinds[0].steps
        times = sum(map(step_us, of_kind)) / self.median_us if self.median_us else math.inf
        return round(us * min(len(of_kind), times) / len(self.trace.steps), 3)


def _are_tokens(tokens: Sequence[Step], steps: Sequence[Step]) -> bool:
    return 10 * len(tokens) >= 9 * len(steps)


def _median_step(steps: Sequence[Step]) -> Step:
    return sorted(steps, key=step_us)[(len(steps) - 1) // 2]


def pid(thread: str) -> str:
    """`412/7` -> `412`."""
    return thread.partition("/")[0]


def process_of(step: Step) -> str:
    """The process that launches a step's GPU work, else whose calls or operators the step has; empty if it has none.

    A step may also have operators of a helper process, such as a loader's worker, which launches nothing.
    """
    launches = (activity.launch for activity in step.activities if activity.launch is not None)
    calls, ops = (call.thread for call in step.calls[:1]), (op.thread for op in step.ops[:1])
    return pid(next(chain((launch.thread for launch in launches), calls, ops), ""))
