"""A trace read, summarized and diagnosed: the data of every section of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from kinetoscope.diagnosis.cpu_times import STATES, cpu_causes
from kinetoscope.diagnosis.diagnose import Diagnosis, diagnose
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.gaps import Waits
from kinetoscope.diagnosis.idle import Idle
from kinetoscope.diagnosis.memory import Alive, MemoryPeak, memory_peaks
from kinetoscope.diagnosis.pages import PAGES
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.report.gpus import gpu_data
from kinetoscope.report.waiting import waits_per_step
from kinetoscope.report.work_tables import KernelTime, kernel_times
from kinetoscope.trace.averages import Average, key_averages
from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.kineto import no_collection, read_trace
from kinetoscope.trace.progress import Progress
from kinetoscope.trace.queries import busy_us, step_us
from kinetoscope.trace.replays import with_captured_operators
from kinetoscope.trace.tokens import sequences
from kinetoscope.trace.totals import Summary, low_median, summarize

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
        mean_us = max(facts.step_us, self.summary.gpu_busy_us_per_step)
        if any(abs(max(step_us(step), facts.busy_us(step)) - mean_us) <= NEAR * mean_us for step in self.trace.steps):
            return mean_us
        return max(facts.step_us, low_median(map(facts.busy_us, facts.steps)))

    @property
    def mean_step_us(self) -> float:
        """The same in the mean, where several steps are longer than most. Savings, which are means, are a part of
        it."""
        return max(self.step_us, self.facts.mean_step_us)

    @cached_property
    def idle(self) -> Idle | None:
        """Where the GPU is idle over all steps; None without GPU work."""
        return Idle(self.facts) if self.has_gpu else None

    @property
    def before_first_us(self) -> float:
        """The GPU's time for work launched before the first step: of a token loop, the prompt."""
        first = self.facts.all_steps[0].start_us
        return busy_us(a for a in self.facts.activities if a.launch is not None and a.launch.start_us < first)

    @property
    def has_gpu(self) -> bool:
        """Whether the trace has GPU work."""
        return bool(self.trace.activities)


def read_diagnosed(
    path: Path, rules: Sequence[Rule] = RULES, capture: Path | None = None, progress: Progress | None = None
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
        return DiagnosedTrace(path.name, diagnose(trace, rules, progress), summary, captured, averages)


def finding_data(finding: Finding, step_us: float) -> dict[str, Any]:
    """A finding as JSON data."""
    return {
        "rule": finding.rule.name,
        "severity": finding.severity(step_us),
        "title": finding.title,
        "evidence_us_per_step": round(finding.evidence_us_per_step, 3),
        "ceiling_us_per_step": round(finding.saving_us_per_step, 3),
        "where": finding.where,
        "advice": finding.advice or finding.rule.advice,
        "source": finding.rule.source,
        "page": PAGES.get(finding.rule.name, ""),
    }


def unknown_data(unknown: CannotTell) -> dict[str, Any]:
    """A question that a trace cannot answer, as JSON data."""
    return {"rule": unknown.rule.name, "reason": unknown.reason, "option": unknown.option}


def token_loop_data(diagnosed: DiagnosedTrace) -> dict[str, Any] | None:
    """A loop that produces one token per step, as JSON data: `before_first_us` is the GPU's time before its first
    token, the prefill if the trace has it. None for other steps."""
    facts = diagnosed.facts
    if not facts.is_token_loop:
        return None
    return {
        "tokens": len(facts.token_steps),
        "sequences": sequences(facts.step.ops),
        "us_per_token": diagnosed.step_us,
        "before_first_us": diagnosed.before_first_us,
    }


def memory_data(peaks: Sequence[MemoryPeak]) -> dict[str, Any] | None:
    """The first peak as JSON data, and those of other devices without their blocks; None if nothing was recorded."""
    if not peaks:
        return None
    return _peak_data(peaks[0]) | {
        "bytes_by_category": peaks[0].by_category,
        "alive": [_alive_data(each) for each in peaks[0].alive],
        "other_devices": [_peak_data(peak) for peak in peaks[1:]],
    }


def _alive_data(alive: Alive) -> dict[str, Any]:
    op, where, category, size, blocks = alive
    return {"op": op, "where": where, "category": category, "bytes": size, "count": blocks}


def _peak_data(peak: MemoryPeak) -> dict[str, Any]:
    return {
        "device": peak.name,
        "peak_bytes": peak.peak_bytes,
        "at_us": peak.at_us,
        "reserved_bytes": peak.reserved_bytes,
        "total_bytes": peak.total_bytes,
        "before_trace_bytes": peak.before_bytes,
    }


def report_data(diagnosed: DiagnosedTrace) -> dict[str, Any]:
    """The summary's keys; the use of the GPUs; the GPU's idle time over all steps, null without GPU work;
    `operators_from_capture`, `token_loop`, `findings`, `cannot_tell` and `memory`; without GPU work also
    `cpu_us_per_step`."""
    data: dict[str, Any] = msgspec.to_builtins(diagnosed.summary)
    data |= gpu_data(diagnosed.facts.gpu_use)
    step_us, idle = diagnosed.mean_step_us, diagnosed.idle
    data["idle_us"] = idle and idle.total_us
    data["idle_in_steps_us"] = idle and idle.in_steps_us
    data["idle_between_steps_us"] = idle and idle.between_steps_us
    data["operators_from_capture"] = diagnosed.captured
    data["token_loop"] = token_loop_data(diagnosed)
    data["findings"] = [finding_data(finding, step_us) for finding in diagnosed.diagnosis.findings]
    data["cannot_tell"] = [unknown_data(unknown) for unknown in diagnosed.diagnosis.cannot_tell]
    data["memory"] = memory_data(diagnosed.memory)
    if not diagnosed.has_gpu:
        data["cpu_us_per_step"] = {STATES[cause][0]: round(us, 3) for cause, us in cpu_causes(diagnosed.facts).items()}
    return data
