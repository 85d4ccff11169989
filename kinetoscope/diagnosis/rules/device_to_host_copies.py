"""Copies from the GPU to the host."""

from __future__ import annotations

from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import duration_text, share_text
from kinetoscope.diagnosis.cpu_states import is_download, launcher
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_gpu_work
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.sources import NSYS_AI
from kinetoscope.trace.events import Span

MIN_SHARE = 0.05


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Copies to the host in all steps, by their time on the GPU."""
    copies = [a for step in facts.steps for a in step.activities if is_download(a)]
    if not copies:
        return []
    copies_us = facts.length_us(copies)
    spans: list[Span] = [span for copy in copies if (span := launcher(copy)) is not None]
    saving_us = min(facts.saving_us(spans, copies), copies_us) if spans else copies_us
    if saving_us < MIN_SHARE * facts.step_us:
        return []
    longest = max(copies, key=lambda copy: copy.duration_us)
    where = facts.sites([longest.launch])[0].text if longest.launch else ""
    moved = sum(copy.moved_bytes or 0 for copy in copies) / len(facts.steps)
    title = (
        f"Copies to the host take {duration_text(copies_us)} per step ({share_text(copies_us, facts.step_us)}), "
        f"{moved / 1e6:,.3g} MB"
    )
    return [Finding(RULE, title, where, facts.evidence(copies), copies_us, saving_us)]


RULE = Rule(
    name="device-to-host-copies",
    title="Copies from the GPU to the host",
    looks_for="Memcpy DtoH activities, as .cpu(), .numpy(), .tolist() and checkpoints make them.",
    threshold=f"from {MIN_SHARE:.0%} of the median step on",
    source=f"{NSYS_AI} (copies to the GPU above 5 % of an iteration; here those to the host)",
    advice="Reduce on the GPU and copy the result; copy seldom; copy to pinned memory with non_blocking=True on a "
    "stream of its own.",
    find=find,
    needs=(no_gpu_work,),
)
