"""Memory is allocated from the driver inside a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import MIN_SHARE, Facts
from kinetoscope.diagnosis.missing import no_calls, no_gpu_work, no_warm_step
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import MSPROF
from kinetoscope.trace.events import Span, starting_in


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Calls that allocate or free memory of the GPU or page-locked memory."""
    calls = [
        call for call in facts.in_steps(facts.cpu.spans["memory allocation"]) if call.start_us >= facts.cold_until_us
    ]
    if not calls or _has_settled(facts, calls):
        return []
    saving_us = facts.saving_us(calls)
    if saving_us < MIN_SHARE * facts.step_us:
        return []
    calls_us = facts.length_us(calls)
    counts = Counter(call.name for call in calls).most_common(3)
    names = ", ".join(count_text(count / len(facts.steps), name, name) for name, count in counts)
    title = f"Allocating from the driver takes {duration_text(calls_us)} per step: {names}"
    where = facts.sites([max(calls, key=lambda call: call.duration_us)])[0].text
    measured = (Measured("allocator calls per step", len(calls) / len(facts.steps), "calls"),)
    return [Finding(RULE, title, where, facts.evidence(calls), calls_us, saving_us, measured=measured)]


def _has_settled(facts: Facts, calls: Sequence[Span]) -> bool:
    """Whether the trace begins cold and only its next steps allocate, but not the last: the allocator is filling its
    cache."""
    allocates = [bool(starting_in(calls, step.start_us, step.end_us)) for step in facts.steps]
    return facts.warm_up is not None and not allocates[-1] and allocates == sorted(allocates, reverse=True)


RULE = Rule(
    name="allocator-in-step",
    title="Memory is allocated from the driver inside a step",
    looks_for="The CPU calls cudaMalloc, cudaFree, cudaHostAlloc or a similar function inside a step. A warm "
    "allocator of PyTorch keeps its memory and makes no such calls. cudaFree also waits for the GPU. Steps right "
    "after a cold step may fill the allocator.",
    threshold=f"The ceiling is at least {MIN_SHARE:.0%} of the median step.",
    source=f"{MSPROF} (memory.yaml: 10 ms); the share is this book's",
    advice="If these are the first steps, record later steps. If not, sizes change from step to step, or memory is "
    "short: pad to a few sizes, set PYTORCH_ALLOC_CONF=expandable_segments:True, and don't call "
    "torch.cuda.empty_cache() in the loop.",
    find=find,
    needs=(no_calls, no_gpu_work, no_warm_step),
    confidence="high",
    mistaken="The loop isn't warm yet: the first steps fill the allocator, and later steps make no such calls.",
)
