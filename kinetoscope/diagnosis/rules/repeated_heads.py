"""Keys and values that are copied for every query head."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.sources import REPEAT_KV
from kinetoscope.diagnosis.token_work import attention_op, heads_repeated
from kinetoscope.diagnosis.waste import Waste, findings
from kinetoscope.trace.events import Step


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Check the shapes and strides of each copy before attention."""
    tokens = set(map(id, facts.token_steps))
    return findings(RULE, facts, lambda step: _look(step, is_token=id(step) in tokens), _describe)


def _look(step: Step, *, is_token: bool) -> list[Waste]:
    """The copies, and in a token also attention: it reads each head of keys and values several times."""
    repeated = [(a, times) for a in step.activities if (times := heads_repeated(a)) is not None]
    attention = [activity for activity in step.activities if attention_op(activity) is not None]
    if not repeated or not attention:
        return []
    waste = [Waste((activity,), activity.duration_us) for activity, _ in repeated]
    times = min(times for _, times in repeated)
    if times > 1 and is_token:
        waste += [Waste((activity,), activity.duration_us * (1 - 1 / times)) for activity in attention]
    return waste


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    copies = [a for found in waste for a in found.activities if heads_repeated(a) is not None]
    copies_us = math.fsum(activity.duration_us for activity in copies)
    title = (
        f"{count_text(len(copies), 'copy')} of keys or values for all query heads: {duration_text(copies_us)} per step"
    )
    if len(copies) < len(waste):
        title += f", and attention reads the copies: {duration_text(time_us)} together"
    return title


RULE = Rule(
    name="repeated-heads",
    title="Keys and values are copied for all query heads",
    looks_for="In a step with attention, a copy has a tensor [batch, heads, times, positions, size] whose dimension "
    "`times` repeats (its stride is 0), or `aten::repeat_interleave` has a tensor of four dimensions. This is "
    "grouped-query attention, written out. In a step that produces one token, the ceiling includes what attention "
    "reads more than once.",
    threshold="The ceiling is at least 1 % of a step.",
    source=f"{REPEAT_KV}; the ceiling is this book's",
    advice="Call `F.scaled_dot_product_attention(..., enable_gqa=True)` with unrepeated heads of keys and values, or "
    "FlexAttention. In transformers, a mask causes these copies: if no sequence is padded, pass no mask.",
    find=find,
    confidence="medium",
    mistaken="On this GPU, the attention kernel doesn't accept grouped heads, so the kernel needs the copy.",
)
