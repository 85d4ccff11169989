"""A trace read, summarized and diagnosed: the data of every section of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

from kinetoscope.diagnosis.diagnose import Diagnosis, diagnose
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.gaps import Waits
from kinetoscope.diagnosis.idle import Idle
from kinetoscope.diagnosis.memory import MemoryPeak, memory_peaks
from kinetoscope.diagnosis.rule import Rule
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.report.waiting import waits_per_step
from kinetoscope.report.work_tables import KernelTime, kernel_times
from kinetoscope.trace.averages import Average, key_averages
from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.kineto import no_collection, read_trace
from kinetoscope.trace.progress import Progress
from kinetoscope.trace.queries import busy_us, step_us
from kinetoscope.trace.replays import with_captured_operators
from kinetoscope.trace.summaries import Summary
from kinetoscope.trace.totals import low_median, summarize

NEAR = 0.2
"""A step takes about a time if it differs by no more than this part."""


@dataclass(frozen=True)
class DiagnosedTrace:
    """A trace, its summary and its diagnosis."""

    name: str
    """The file's name, without its folder."""
    diagnosis: Diagnosis
    summary: Summary
    captured: int = 0
    """Activities of graph replays that have the operators of a capture, by their order."""
    averages: tuple[Average, ...] = ()
    """The rows of `key_averages()`, where the summary needed them."""
    book: str = ""
    """The book's address, seen from the report: `../../`; if empty, its pages are named and not linked."""

    @property
    def facts(self) -> Facts:
        """The facts that the rules used."""
        return self.diagnosis.facts

    @property
    def trace(self) -> Trace:
        """The trace itself."""
        return self.diagnosis.facts.trace

    @cached_property
    def waits(self) -> Waits:
        """Who waits for whom: the mean of all steps."""
        return waits_per_step(self.facts)

    @cached_property
    def memory(self) -> list[MemoryPeak]:
        """The peaks of allocated memory, GPUs first; empty without `profile_memory`."""
        return memory_peaks(self.trace)

    @cached_property
    def kernel_times(self) -> list[KernelTime]:
        """Kernels, copies and fills of all steps by name, the longest total first."""
        return kernel_times(self.trace)

    @cached_property
    def step_us(self) -> float:
        """The time of a step in the long run: the median on the CPU, but at least the mean of its GPU work, or the
        median if no step takes about that mean.

        If there are several kinds of step, a mean over them, for shares: no step need take that.
        """
        facts = self.facts
        if facts.kinds:
            return facts.long_run_us
        is_first_left_out = facts.prompt or facts.warm_up
        busy = fmean(map(facts.busy_us, facts.steps)) if is_first_left_out else self.summary.gpu_busy_us_per_step
        mean_us = max(facts.step_us, round(busy, 3))
        if any(abs(max(step_us(step), facts.busy_us(step)) - mean_us) <= NEAR * mean_us for step in self.trace.steps):
            return mean_us
        return max(facts.step_us, low_median(map(facts.busy_us, facts.steps)))

    @cached_property
    def mean_step_us(self) -> float:
        """The same in the mean, where several steps are longer than most. Savings, which are means, are a part of it:
        where one slow step has most of a saving, it counts."""
        usual_us = max(self.step_us, self.facts.mean_step_us)
        found = self.diagnosis.findings
        most_us = max((each.saving_us_per_step - each.beside_us for each in found), default=0.0)
        return usual_us if most_us <= usual_us else max(usual_us, self.facts.long_run_us)

    @cached_property
    def idle(self) -> Idle | None:
        """Where the GPU is idle over all steps; None without GPU work."""
        return Idle(self.facts) if self.has_gpu else None

    @property
    def before_first_us(self) -> float:
        """The GPU's time for work launched before the first step, or before the first token after a prompt."""
        first = (self.facts.steps if self.facts.prompt else self.facts.all_steps)[0].start_us
        return busy_us(a for a in self.facts.activities if a.launch is not None and a.launch.start_us < first)

    @property
    def has_gpu(self) -> bool:
        """Whether the trace has GPU work."""
        return bool(self.trace.activities)


def read_diagnosed(
    path: Path,
    rules: Sequence[Rule] = RULES,
    capture: Path | None = None,
    progress: Progress | None = None,
    book: str = "",
) -> DiagnosedTrace:
    """Read, summarize and diagnose the trace at `path`.

    `capture`: a trace of the capture of its CUDA graphs, or of the same program without graphs. Raises `TraceError`,
    also if no replay fits the capture.
    """
    with no_collection():
        captured_from = None if capture is None else read_trace(capture)
        trace, captured = with_captured_operators(read_trace(path, progress=progress), captured_from)
        if capture is not None and not captured:
            raise TraceError(
                f"{capture}: has no sequence of launches that equals a graph replay of {path}. Record the capture of "
                "the same graph, with the same shapes, in one profile(...)"
            )
        averages = () if trace.activities else key_averages(trace)
        summary = summarize(trace, averages or None)
        return DiagnosedTrace(path.name, diagnose(trace, rules, progress), summary, captured, averages, book)
