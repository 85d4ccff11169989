"""Copies between the host and the GPU that no kernel hides."""

from __future__ import annotations

from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import duration_text, share_text
from kinetoscope.diagnosis.cpu_states import is_download, is_pageable_upload
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_gpu_work
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import NSYS_AI
from kinetoscope.trace.events import GpuActivity
from kinetoscope.trace.intervals import length_us, union_of

MIN_SHARE = 0.05


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Time in which such copies run and no kernel does, a mean over the steps."""
    copies = [copy for copy in facts.gpu_use.host_copies if not _has_own_rule(copy)]
    alone_us = facts.gpu_use.alone_us(copies)
    if not copies or alone_us < MIN_SHARE * facts.long_run_us:
        return []
    downloads = sum(map(is_download, copies))
    way = "from the host" if not downloads else "to the host" if downloads == len(copies) else "to and from the host"
    copies_us = round(length_us(union_of(copies)) / len(facts.steps), 3)
    megabytes = sum(copy.moved_bytes or 0 for copy in copies) / len(facts.steps) / 1e6
    share = share_text(alone_us, facts.mean_step_for(alone_us))
    title = (
        f"Copies {way} that no kernel hides take {duration_text(alone_us)} per step "
        f"({share}), of {duration_text(copies_us)} in all, {megabytes:,.3g} MB"
    )
    longest = max(copies, key=lambda copy: copy.duration_us)
    measured = (
        Measured("copied per step", megabytes * 1e6, "bytes"),
        Measured("copies alone per step", alone_us, "us"),
    )
    return [Finding(RULE, title, facts.place(longest), facts.evidence(copies), copies_us, alone_us, measured=measured)]


def _has_own_rule(copy: GpuActivity) -> bool:
    """Whether the rule `pageable-copies` counts it, together with the time that the CPU waits for it."""
    return is_pageable_upload(copy) and copy.launch is not None


RULE = Rule(
    name="exposed-copies",
    title="Copies between host and GPU that no kernel hides",
    looks_for="Copies between CPU and GPU (Memcpy HtoD and DtoH) run while no kernel runs. Such copies move batches, "
    "offloaded weights, optimizer states, caches or checkpoints, or come from .cpu(), .numpy() and .tolist(). Copies "
    "within a GPU count as GPU work. Copies to the GPU from pageable memory have a separate rule.",
    threshold=f"Such time is at least {MIN_SHARE:.0%} of a step.",
    source=f"{NSYS_AI} (copies to the GPU above 5 % of an iteration; here those that no kernel hides, in both "
    "directions)",
    advice="Copy while kernels run: use pinned memory, non_blocking=True and a separate stream, and prefetch the "
    "next batch or layer. Copy less: reduce on the GPU, convert to a smaller type first, copy rarely, and keep on "
    "the GPU what fits.",
    find=find,
    needs=(no_gpu_work,),
    confidence="high",
    mistaken="The copy is rare in the whole run, such as a checkpoint, and happens to be in the recorded steps.",
)
