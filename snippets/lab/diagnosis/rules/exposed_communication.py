"""Collectives that no other GPU work hides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from snippets.lab.diagnosis.amounts import duration_text, share_text
from snippets.lab.diagnosis.collectives import collective_name, exposed, is_collective
from snippets.lab.diagnosis.facts import Facts
from snippets.lab.diagnosis.intervals import length_us, union_of
from snippets.lab.diagnosis.rule import CannotTell, Finding, Rule
from snippets.lab.diagnosis.sources import CPU_AND_GPU, TENSORBOARD

MIN_SHARE = 0.10


def check(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Time in which a GPU runs only collectives, a mean over GPUs and steps."""
    if not facts.has_gpu:
        return CannotTell(RULE, "the trace has no GPU events", CPU_AND_GPU)
    collectives = [a for step in facts.steps for a in step.activities if is_collective(a)]
    if not collectives:
        return []
    times = exposed(facts.activities, collectives)
    exposed_us = round(sum(map(length_us, times.values())) / len(facts.steps) / len(times), 3)
    if exposed_us < MIN_SHARE * facts.step_us:
        return []
    sums: dict[str, float] = defaultdict(float)
    for activity in collectives:
        sums[collective_name(activity)] += activity.duration_us
    longest = max(sums, key=lambda name: sums[name])
    total_us = round(length_us(union_of(collectives)) / len(facts.steps), 3)
    title = (
        f"Collectives that no other work hides take {duration_text(exposed_us)} per step "
        f"({share_text(exposed_us, facts.step_us)}), of {duration_text(total_us)} in all; the longest are {longest}"
    )
    op = next((a.op for a in collectives if a.op is not None and collective_name(a) == longest), None)
    while op is not None and op.parent is not None and op.parent.name.startswith("c10d"):
        op = op.parent
    where = facts.sites([op])[0].text if op else longest
    return [Finding(RULE, title, where or longest, facts.evidence(collectives), total_us, exposed_us)]


RULE = Rule(
    name="exposed-communication",
    title="Collectives that no other work hides",
    looks_for="Kernels of NCCL or RCCL while no other kernel, memcpy or memset runs on their GPU. A collective also "
    "waits for the slowest rank: part of its time may be waiting.",
    threshold=f"from {MIN_SHARE:.0%} of the median step on, a mean over the GPUs",
    source=f"{TENSORBOARD} (communication above 10 % of a step)",
    advice="Overlap: DDP with larger or smaller buckets (bucket_cap_mb), FSDP prefetching, async_op=True and wait() "
    "later. Send less: bf16 gradients, accumulate over several steps.",
    check=check,
)
