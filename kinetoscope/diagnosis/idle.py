"""Where the GPU is idle over all steps, and what the CPU does between the steps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from kinetoscope.diagnosis.cpu_states import CAUSES, Cause, CpuSpan
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.per_step import window
from kinetoscope.trace.events import last_end_us
from kinetoscope.trace.intervals import Interval, intersect, length_us, lengths_in, ns, subtract, union_of
from kinetoscope.trace.text import without_numbers


@dataclass(frozen=True)
class Idle:
    """The idle time of the GPU from the first step's start until CPU and GPU are done with the last step.

    Sums over the steps of the facts, without warm-up.
    """

    facts: Facts

    @cached_property
    def in_steps_us(self) -> float:
        """Within the steps. The last step lasts until the GPU is done."""
        end = self._span[1]
        done = max([ns(last_end_us(step.activities)) for step in self.facts.steps if step.activities], default=end)
        rest = [(end, done)] if done > end else []
        return round(self.facts.idle_us + length_us(subtract(rest, self.facts.busy)), 3)

    @property
    def between_steps_us(self) -> float:
        """Between two steps."""
        return length_us(self._pauses)

    @property
    def total_us(self) -> float:
        """In the steps and between them."""
        return round(self.in_steps_us + self.between_steps_us, 3)

    @cached_property
    def main_cause(self) -> tuple[Cause, float]:
        """The cause of most idle time in the steps, and this time."""
        sums = dict.fromkeys(CAUSES, 0)
        for gap in self.facts.all_gaps:
            sums[gap.cause] += ns(gap.duration_us)
        cause = max(CAUSES, key=lambda each: sums[each])
        return cause, sums[cause] / 1000

    @cached_property
    def longest_step(self) -> tuple[str, float]:
        """The name of the step with the most idle time, and this time."""
        times = self._of_steps_ns
        index = max(range(len(times)), key=times.__getitem__)
        return self.facts.steps[index].name, times[index] / 1000

    @property
    def second_longest_us(self) -> float:
        """The idle time of the step with the second most; 0 if there is one step."""
        return (sorted(self._of_steps_ns)[-2:-1] or [0])[0] / 1000

    @cached_property
    def _of_steps_ns(self) -> list[int]:
        return lengths_in(list(map(window, self.facts.steps)), self.facts.idle)

    @cached_property
    def recorded_us(self) -> float:
        """The part of `between_steps_us` in which the trace shows something of the CPU."""
        return length_us(intersect(self._pauses, self.facts.cpu.recorded))

    @cached_property
    def longest_between_steps(self) -> tuple[str, float]:
        """The name of the CPU events that take most idle time between the steps, and this time; empty without events.

        An operator or function within another is part of it. Names that differ only in numbers are one: `eval_#`.
        """
        groups: dict[str, list[CpuSpan]] = defaultdict(list)
        for span in self.facts.cpu.between_steps:
            groups[without_numbers(span.name)].append(span)
        sums = {name: length_us(intersect(self._pauses, union_of(spans))) for name, spans in groups.items()}
        name, us = max(sums.items(), key=lambda item: item[1], default=("", 0.0))
        names = {span.name for span in groups[name]}
        return (names.pop() if len(names) == 1 else name), us

    @cached_property
    def _pauses(self) -> list[Interval]:
        return subtract(subtract([self._span], self.facts.windows), self.facts.busy)

    @property
    def _span(self) -> Interval:
        windows = self.facts.windows
        return (windows[0][0], windows[-1][1]) if windows else (0, 0)
