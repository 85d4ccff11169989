"""Thousands of short operators in a step on the CPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from kinetoscope.diagnosis.amounts import count_text, duration_text, share_text
from kinetoscope.diagnosis.cpu_loops import (
    busiest_place,
    called_operators,
    in_optimizer,
    loop_overhead_us,
    one_of_each_us,
    runs,
    shown_name,
)
from kinetoscope.diagnosis.cpu_times import is_cpu_only
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.gaps import LONG_US
from kinetoscope.diagnosis.missing import no_step_operators
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import OWN, STACKS
from kinetoscope.trace.events import CpuOp, by_start
from kinetoscope.trace.marks import WHOLE

TINY_US, MIN_CALLS = 30.0, 200
SHORT_US, MIN_CALLS_OF_SHORT = 200.0, 500
"""No model has so many layers of one kind: so many calls of an operator come from a loop over elements."""
MIN_SHARE = 0.20
_NAMED = 4


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Find operators that are called hundreds of times a step and are short; a trace of a GPU has other rules."""
    if facts.has_gpu:
        return []
    if unable := no_step_operators(RULE, facts):
        return unable
    if not is_cpu_only(facts):
        return []
    called = called_operators(facts)
    groups = _repeated(facts, called)
    if not groups:
        return []
    spans = runs(called, lambda op: op.name in groups and not in_optimizer(op))
    evidence_us = facts.length_us(spans)
    if evidence_us < MIN_SHARE * facts.mean_step_us:
        return []
    ops = [op for group in groups.values() for op in group]
    ops_us = facts.length_us(sorted(ops, key=by_start))
    saving_us = round(max(0.0, ops_us + loop_overhead_us(facts, called) - one_of_each_us(ops)), 3)
    steps = len(facts.steps)
    mean_us = fmean(op.duration_us for op in ops)
    largest = sorted(groups.values(), key=lambda group: -sum(op.duration_us for op in group))[:_NAMED]
    names = ", ".join(f"{shown_name(group[0])} {count_text(len(group) / steps, 'time')}" for group in largest)
    share = share_text(evidence_us, facts.mean_step_for(evidence_us))
    title = (
        f"{count_text(len(ops) / steps, 'short operator')} per step, {duration_text(mean_us)} each, take "
        f"{duration_text(evidence_us)} ({share}) with the Python between them: {names}"
    )
    where = busiest_place(facts, ops) or shown_name(largest[0][0])
    advice = "" if facts.has_stacks else f"{STACKS} shows the line that calls them. {RULE.advice}"
    measured = (
        Measured("short operators per step", len(ops) / steps, "operators"),
        Measured("mean duration", mean_us, "us"),
    )
    return [Finding(RULE, title, where, facts.evidence(ops), evidence_us, saving_us, advice, measured=measured)]


def _repeated(facts: Facts, called: Sequence[CpuOp]) -> dict[str, list[CpuOp]]:
    """The calls of each operator that repeats and is short, outside of the optimizer."""
    groups: dict[str, list[CpuOp]] = defaultdict(list)
    for op in called:
        if not in_optimizer(op):
            groups[op.name].append(op)
    return {name: group for name, group in groups.items() if _is_repeated(facts, group)}


def _is_repeated(facts: Facts, group: Sequence[CpuOp]) -> bool:
    per_step, mean_us = len(group) / len(facts.steps), fmean(op.duration_us for op in group)
    if mean_us < TINY_US:
        return per_step >= MIN_CALLS
    is_marked = facts.trace.steps_from != WHOLE
    return is_marked and mean_us < SHORT_US and per_step >= MIN_CALLS_OF_SHORT


RULE = Rule(
    name="tiny-operators",
    title="Many tiny operators on the CPU",
    looks_for="In a trace without GPU work, a step calls an operator hundreds of times, and calling the operator "
    "takes about as long as its work. For example, code computes a loss element by element. Of such operators, "
    "indexing is the slowest, because its backward pass writes the gradient of the whole tensor for each element. The "
    "ceiling is the time of all calls except one call of each operator. The ceiling also includes times below "
    f"{LONG_US / 1000:.0f} ms in which no operator runs, and the time before the backward pass. In these times, the "
    "loop's Python runs, or autograd orders and frees the graph. Operators of an optimizer have a separate rule.",
    threshold=f"In a step, an operator has at least {MIN_CALLS} calls with a mean below {TINY_US:.0f} µs. If the "
    f"trace marks steps, {MIN_CALLS_OF_SHORT} calls with a mean below {SHORT_US:.0f} µs also count. With the Python "
    f"between them, the calls take at least {MIN_SHARE:.0%} of a step.",
    source=OWN,
    advice="Replace the loop over elements by one operator on the whole tensor: F.cross_entropy of all tokens, "
    "gather or a mask instead of indexing, one .tolist() instead of many .item(). Or use a larger batch or "
    "torch.compile. Also time the step without the profiler, which slows short operators most.",
    find=find,
    confidence="medium",
    mistaken="The profiler slows short operators most. Without the profiler, they may take a small part of the step.",
)
