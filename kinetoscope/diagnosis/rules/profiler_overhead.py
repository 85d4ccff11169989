"""The profiler itself takes much of the step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import duration_text, share_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_gpu_work
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import OWN

MIN_SHARE = 0.10


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Overheads that CUPTI reports, in steps, while the GPU has no work."""
    spans = facts.in_steps(facts.trace.overheads)
    saving_us = facts.saving_us(spans)
    if not spans or saving_us < MIN_SHARE * facts.step_us:
        return []
    sums: dict[str, float] = defaultdict(float)
    for span in spans:
        sums[span.name] += span.duration_us
    longest = max(sums, key=lambda name: sums[name])
    total_us = facts.length_us(spans)
    title = (
        f"Overheads of CUPTI take {duration_text(total_us)} per step "
        f"({share_text(total_us, facts.mean_step_for(total_us))}), most of it {longest}"
    )
    measured = (Measured("overheads per step", len(spans) / len(facts.steps), "events"),)
    return [Finding(RULE, title, longest, facts.evidence(spans), total_us, saving_us, measured=measured)]


RULE = Rule(
    name="profiler-overhead",
    title="The profiler takes much of the step",
    looks_for="The trace shows events of the category overhead (Activity Buffer Request, Buffer Flush, "
    "Instrumentation, Lazy Function Loading) while the GPU has no work. Traces of AMD GPUs and old traces have no "
    "such events.",
    threshold=f"The ceiling is at least {MIN_SHARE:.0%} of the median step.",
    source=f"{OWN}; CUPTI's kinds of overhead: https://docs.nvidia.com/cupti/api/group__CUPTI__ACTIVITY__API.html",
    advice="Without the profiler, a step doesn't have this time. Warm the profiler up in the schedule (wait=1, "
    "warmup=1), record fewer steps, and leave out with_stack, record_shapes and profile_memory. Lazy Function "
    "Loading is the first launch of a kernel.",
    find=find,
    needs=(no_gpu_work,),
    confidence="high",
    mistaken="The program itself has no fault, because without the profiler, a step doesn't have this time.",
)
