"""The host reads values of every token."""

from __future__ import annotations

from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import MIN_SHARE, Facts
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.rules.sync_in_step import downloads, unclaimed_times, until_work, waits
from kinetoscope.diagnosis.sources import GENERATE_SYNCS


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Waits of a token loop in operators that copy to the host."""
    if not facts.is_token_loop:
        return []
    copies = downloads(facts)
    reads = [(call, site) for call, site in waits(facts) if site.op is not None and id(site.op) in copies]
    if not reads:
        return []
    ops = {id(site.op) for _, site in reads}
    copied = [copy for op in ops for copy in copies[op]]
    spans = [until_work(facts, site.outer or call) for call, site in reads]
    saving_us = facts.saving_us(spans, copied, unclaimed_times(facts)[0])
    if saving_us < MIN_SHARE * facts.step_us:
        return []
    calls = [call for call, _ in reads]
    waiting_us = facts.length_us(calls)
    places = list(dict.fromkeys(site.text for _, site in sorted(reads, key=lambda read: -read[0].duration_us)))
    values = count_text(len(ops) / len(facts.steps), "value")
    title = f"The host reads {values} per token and waits {duration_text(waiting_us)}"
    measured = (Measured("values read per token", len(ops) / len(facts.steps), "values"),)
    return [
        Finding(RULE, title, ", ".join(places[:3]), facts.evidence(calls), waiting_us, saving_us, measured=measured)
    ]


RULE = Rule(
    name="host-reads",
    title="The host reads values of every token",
    looks_for="In a loop that produces one token per step, an operator copies a value to the CPU, and the CPU waits "
    "for this value: .item(), .tolist(), .cpu() or an `if` on a tensor. Usually the value says whether the sequence "
    "ends. During the wait, the CPU can't launch the next token. Other waits belong to the rule sync-in-step.",
    threshold=f"Without the reads, a step could be at least {MIN_SHARE:.0%} of the median step shorter.",
    source=f"{GENERATE_SYNCS}; the share is this book's",
    advice="Keep the tokens on the GPU: feed the picked token back without reading it. Check for the end of the "
    "sequence every tenth token, or one token late from pinned memory, and cut off tokens after the end.",
    find=find,
    confidence="high",
    mistaken="The CPU must know each token before the next token, as for grammars or tools that constrain the answer.",
)
