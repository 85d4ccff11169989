"""Copies from pageable memory to the GPU."""

from __future__ import annotations

from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.cpu_states import is_pageable_upload
from kinetoscope.diagnosis.facts import MIN_SHARE, Facts
from kinetoscope.diagnosis.missing import no_gpu_work
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import NSIGHT
from kinetoscope.trace.events import CpuOp
from kinetoscope.trace.queries import copies


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Pageable copies of all steps, with the operators that wait for them."""
    uploads = [copy for step in facts.steps for copy in copies(step, "HtoD")]
    if any("Pageable" not in copy.name and "Pinned" not in copy.name for copy in uploads):
        return CannotTell(RULE, "the names of the copies to the GPU do not say whether the memory is pageable", "")
    pageable = [copy for copy in uploads if is_pageable_upload(copy)]
    if not pageable:
        return []
    spans = facts.in_steps(facts.cpu.spans["pageable copy"])
    saving_us = facts.saving_us(spans, pageable)
    if saving_us < MIN_SHARE * facts.step_us:
        return []
    ops = [span for span in sorted(spans, key=lambda span: -span.duration_us) if isinstance(span, CpuOp)][:1]
    where = facts.sites(ops)[0].text if ops else ""
    megabytes = sum(copy.moved_bytes or 0 for copy in pageable) / len(facts.steps) / 1e6
    copies_us = facts.length_us([*pageable, *spans])
    title = (
        f"{count_text(len(pageable) / len(facts.steps), 'copy')} per step from pageable "
        f"memory: {megabytes:,.3g} MB, {duration_text(copies_us)}"
    )
    measured = (
        Measured("copies per step", len(pageable) / len(facts.steps), "copies"),
        Measured("copied per step", megabytes * 1e6, "bytes"),
    )
    return [Finding(RULE, title, where, facts.evidence(pageable), copies_us, saving_us, measured=measured)]


RULE = Rule(
    name="pageable-copies",
    title="Copies from pageable memory",
    looks_for="The trace shows Memcpy HtoD (Pageable -> Device). For such a copy, the driver first copies to pinned "
    "memory, and the CPU waits. Copies from pinned memory are asynchronous, and run while the GPU computes.",
    threshold=f"The ceiling is at least {MIN_SHARE:.0%} of the median step.",
    source=f"{NSIGHT} (cuda_memcpy_async); the share is this book's",
    advice="Use DataLoader(pin_memory=True) and tensor.to(device, non_blocking=True). Create constants on the GPU "
    "(device=...) instead of copying them.",
    find=find,
    needs=(no_gpu_work,),
    confidence="high",
    mistaken="The data is used once, and pinning the data takes longer than the copy saves.",
)
