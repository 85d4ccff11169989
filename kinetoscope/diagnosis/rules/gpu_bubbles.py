"""A GPU of a process is idle while another GPU works."""

from __future__ import annotations

from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import duration_text, share_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_gpu_work
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule

MIN_SHARE = 0.10


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Compare the times in which the GPUs of the process work."""
    use = facts.gpu_use
    count = len(use.gpus)
    if count < 2:
        return []
    bubble_us = round(sum(gpu.bubble_us for gpu in use.gpus) / count, 3)
    if bubble_us < MIN_SHARE * facts.long_run_us:
        return []
    idlest = max(use.gpus, key=lambda gpu: gpu.bubble_us)
    turns = f"The {count} GPUs work in turns: " if use.take_turns else ""
    share = share_text(idlest.bubble_us, facts.mean_step_for(idlest.bubble_us))
    title = (
        f"{turns}GPU {idlest.device} idles {duration_text(idlest.bubble_us)} per step "
        f"({share}) while another GPU works; the mean of the {count} GPUs is "
        f"{duration_text(bubble_us)}"
    )
    where = ", ".join(f"GPU {gpu.device}" for gpu in use.gpus)
    evidence = facts.evidence([activity for step in facts.steps for activity in step.activities])
    measured = (Measured("GPUs", count, "GPUs"), Measured("longest bubble per step", idlest.bubble_us, "us"))
    return [Finding(RULE, title, where, evidence, use.uneven_us, bubble_us, measured=measured)]


RULE = Rule(
    name="gpu-bubbles",
    title="A GPU is idle while another GPU works",
    looks_for="Several GPUs of one process don't work at the same time. For example, layers on different GPUs wait "
    "for each other (naive model parallelism), a pipeline has few micro-batches, or one GPU has more work than the "
    "others. The ceiling spreads all work evenly over the GPUs. GPUs of other processes don't count.",
    threshold=f"A GPU is idle while another GPU works for at least {MIN_SHARE:.0%} of a step (mean over the GPUs).",
    source="GPipe (bubbles of a pipeline): https://arxiv.org/abs/1811.06965; the share is this book's",
    advice="Split each batch into micro-batches and pipeline them (`torch.distributed.pipelining`). Or give each GPU "
    "a part of every batch or layer, in a separate process: DistributedDataParallel, FSDP or tensor parallelism. If "
    "the model fits on one GPU, use one GPU.",
    find=find,
    needs=(no_gpu_work,),
    confidence="high",
    mistaken="The GPUs are meant to take turns. For example, one GPU serves another program, or holds what doesn't "
    "fit on the other GPU.",
)
