"""Reasons why whole rules cannot tell, always in the same words, with the profiler option that helps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from kinetoscope.diagnosis.facts import MIN_SHARE, Facts
from kinetoscope.diagnosis.rule import CannotTell, Rule
from kinetoscope.diagnosis.sites import has_operator
from kinetoscope.diagnosis.sources import CPU_AND_GPU, SHAPES, STEPS
from kinetoscope.diagnosis.start_up import runtime_name
from kinetoscope.trace.events import GpuActivity
from kinetoscope.trace.missing_gpu import unread_work


def no_gpu_work(rule: Rule, facts: Facts) -> CannotTell | None:
    """For a rule about GPU work."""
    if any(step.activities for step in facts.steps):
        return None
    if unread_work(facts.trace):
        return CannotTell(rule, "no step has GPU work that is read", "")
    return CannotTell(rule, "no step has GPU work", CPU_AND_GPU)


def no_operators(rule: Rule, facts: Facts) -> CannotTell | None:
    """For a rule about operators or annotations."""
    if facts.has_operators:
        return None
    return CannotTell(rule, "the trace has no operators of the CPU", CPU_AND_GPU)


def no_step_operators(rule: Rule, facts: Facts) -> CannotTell | None:
    """For a rule about the operators of a trace without GPU work."""
    if not facts.has_operators:
        return no_operators(rule, facts)
    return None if facts.step_operators else CannotTell(rule, "no step has an operator on its own thread", CPU_AND_GPU)


def no_calls(rule: Rule, facts: Facts) -> CannotTell | None:
    """For a rule about calls of the CUDA runtime."""
    if facts.trace.calls:
        return None
    return no_gpu_work(rule, facts) or CannotTell(rule, "the trace has no CUDA calls of the CPU", CPU_AND_GPU)


def no_warm_step(rule: Rule, facts: Facts) -> CannotTell | None:
    """For a rule about work that repeats in every step."""
    if not facts.start_up or facts.steps[-1].start_us >= facts.cold_until_us:
        return None
    runtime = runtime_name(facts.start_up)
    return CannotTell(rule, f"the trace starts {runtime}, and has no later step that is warm", STEPS)


def unseen(rule: Rule, facts: Facts, concerns: Callable[[GpuActivity], bool], needs_shapes: bool) -> CannotTell | None:
    """For a rule that needs the operators of certain activities, if most of their time lacks operators."""
    concerned = [a for step in facts.steps for a in step.activities if concerns(a)]
    lacking = [a for a in concerned if not has_operator(a) or (needs_shapes and not (a.op and a.op.input_shapes))]
    total_us, lacking_us = _total_us(concerned), _total_us(lacking)
    if lacking_us * 2 <= total_us or total_us < MIN_SHARE * facts.long_run_us * len(facts.steps):
        return None
    if any(a.launch is not None and "Graph" in a.launch.name for a in lacking):
        reason = "a CUDA graph launched these kernels: its replay names no operators; add a trace of its capture"
        return CannotTell(rule, f"{reason} with --capture", "")
    if all(map(has_operator, lacking)):
        return CannotTell(rule, "operators have no shapes", SHAPES)
    if unable := no_operators(rule, facts):
        return replace(unable, option=f"{CPU_AND_GPU}, {SHAPES}") if needs_shapes else unable
    return CannotTell(rule, "no operator of PyTorch launched these kernels", "")


def _total_us(activities: Iterable[GpuActivity]) -> float:
    return math.fsum(a.duration_us for a in activities)
