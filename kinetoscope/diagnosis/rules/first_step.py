"""The first step takes much longer than the others."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import GPUPROF, STEPS
from kinetoscope.diagnosis.start_up import MIN_CALL_US, START_UP_US, runtime_name
from kinetoscope.diagnosis.step_facts import MIN_STEPS, MIN_WARM_UP_US, WARM_UP_RATIO, WARM_UP_RATIO_OF_TWO
from kinetoscope.trace.events import CudaCall, Span, Step
from kinetoscope.trace.intervals import length_us, union_of
from kinetoscope.trace.step_kinds import long_run_us, usual_us

OTHER_WORK_RATIO = 2.0
"""So many times the operators of the others are other work: in this book's recordings, warm-up adds at most half."""
OTHER_WORK = (
    "Look at what only the first step does. A validation pass or a checkpoint is no fault: record steps without it, or "
    "time it on its own. If the step compiles, record later: torch.profiler.schedule(wait=5, warmup=2, active=3)."
)


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Compare the first step with the median of the others of its kind, else look for the start of the runtime."""
    first = facts.warm_up
    if first is None and facts.start_up:
        return [_start_up(facts)]
    if first is None and len(facts.all_steps) < MIN_STEPS:
        return CannotTell(RULE, f"the trace has fewer than {MIN_STEPS} steps", STEPS)
    if first is None:
        return []
    first_us, others_us = long_run_us(first), usual_us(facts.all_steps)
    extra_us = round((first_us - others_us) / len(facts.all_steps), 3)
    title = f"The first step takes {duration_text(first_us)}, the others {duration_text(others_us)}"
    more = _operators(first) / max(1, median(map(_operators, facts.steps)))
    if more >= OTHER_WORK_RATIO:
        title += f", and it runs {more:.1f} times as many operators"
    if facts.cold_until_us == first.end_us:
        title += f". It {_started(facts.start_up)}"
    step = Span(first.name, first.start_us, round(first_us, 3))
    top = [op for op in first.ops if op.parent is None or op.parent.name == first.name]
    longest = sorted(top, key=lambda op: -op.duration_us)[:10]
    where = facts.sites(longest[:1])[0].text or longest[0].name if longest else ""
    advice = OTHER_WORK if more >= OTHER_WORK_RATIO else ""
    measured = Measured("the first step", first_us, "us"), Measured("the other steps", others_us, "us")
    evidence = (step, *longest)
    return [Finding(RULE, title, where, evidence, extra_us, extra_us, advice, measured, beside_us=extra_us)]


def _operators(step: Step) -> int:
    return sum(not op.is_annotation for op in step.ops)


def _start_up(facts: Facts) -> Finding:
    calls = facts.start_up
    where = facts.sites([max(calls, key=lambda call: call.duration_us)])[0].text
    title = f"The trace {_started(calls)}"
    times = facts.length_us(calls), facts.saving_us(calls)
    measured = (Measured("calls that start the runtime", len(calls), "calls"),)
    return Finding(RULE, title, where, facts.evidence(calls), *times, measured=measured)


def _started(calls: Sequence[CudaCall]) -> str:
    longest = max(calls, key=lambda call: call.duration_us)
    calls_us = duration_text(length_us(union_of(calls)))
    return (
        f"starts {runtime_name(calls)}: {count_text(len(calls), 'call')} of {calls_us}, the longest "
        f"{longest.name} with {duration_text(longest.duration_us)}"
    )


RULE = Rule(
    name="first-step",
    title="The first step takes much longer",
    looks_for="The first step is much longer than the others, because it loads kernels, compiles, tunes and fills "
    "the allocator, or has additional work. All other rules leave this step out. A first step whose kernels have more "
    "to do, such as a prompt, is no fault. If no step is much longer, the rule "
    "looks for long calls before the first GPU work of the trace, which create contexts or load modules once.",
    threshold=f"With {MIN_STEPS} or more steps, the first step takes over {WARM_UP_RATIO:.0f} times the median of the "
    f"other steps with as much work, and {MIN_WARM_UP_US / 1000:.0f} ms longer, and no later step is as long. With "
    f"two steps, the first step takes over {WARM_UP_RATIO_OF_TWO:.0f} times as long as the other step. Without such a "
    f"step, calls of at least {MIN_CALL_US / 1000:.0f} ms take {START_UP_US / 1000:.0f} ms before the first GPU work, "
    "and no later call of the same function takes half as long.",
    source=f"{GPUPROF} (warm-up: above 3 times the median); the start of the runtime is this book's",
    advice="Record later steps: torch.profiler.schedule(wait=5, warmup=2, active=3). To start faster, cache compiled "
    "code (TORCHINDUCTOR_CACHE_DIR) and tuning results.",
    find=find,
    is_once=True,
    confidence="high",
    mistaken="You want the first step in the trace, for example to measure a cold start, or the first step has other "
    "work.",
)
