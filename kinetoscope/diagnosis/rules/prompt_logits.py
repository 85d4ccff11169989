"""Logits of all positions of a prompt, though one is used."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import MIN_SHARE, Facts
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import LOGITS_TO_KEEP
from kinetoscope.diagnosis.token_work import product_works
from kinetoscope.trace.events import GpuActivity
from kinetoscope.trace.queries import busy_us
from kinetoscope.trace.work import PRODUCTS, op_work

MIN_ROWS = 16


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Look before the first token for a product as wide as the last product of a token."""
    if not facts.token_steps:
        return []
    first = facts.token_steps[0]
    matmul = next((work.matmul for _, work in reversed(list(product_works(first))) if work.matmul is not None), None)
    before = [a for a in facts.activities if a.launch is not None and a.launch.start_us < first.start_us]
    if matmul is None or not before:
        return []
    used, _, vocabulary = matmul
    products = {id(a.op): rows for a in before if (rows := _rows(a, vocabulary)) >= MIN_ROWS * used}
    if not products:
        return []
    rows = max(products.values())
    wide = [a for a in before if id(a.op) in products or _has_logits(a, rows, vocabulary)]
    wide_us = busy_us(wide)
    saving_us = wide_us * (1 - used / rows)
    if saving_us < MIN_SHARE * busy_us(before):
        return []
    title = (
        f"Logits of {rows:,} positions before the first token, of which {used:,} {'is' if used == 1 else 'are'} used: "
        f"{duration_text(wide_us)} in {count_text(len(wide), 'kernel')}, {rows * vocabulary / 1e6:,.3g} million values"
    )
    longest = max(wide, key=lambda activity: activity.duration_us)
    evidence_us, once_us = (round(us / len(facts.steps), 3) for us in (wide_us, saving_us))
    measured = (Measured("positions", rows, "rows"), Measured("positions used", used, "rows"))
    place, evidence = facts.place(longest), facts.evidence(wide)
    return [Finding(RULE, title, place, evidence, evidence_us, once_us, measured=measured, beside_us=once_us)]


def _rows(activity: GpuActivity, vocabulary: int) -> int:
    """The rows of a product with as many columns as the vocabulary; 0 for other work."""
    op = activity.op
    work = op_work(op) if op is not None and op.name in PRODUCTS else None
    if work is None or work.matmul is None or work.matmul[2] != vocabulary:
        return 0
    return work.matmul[0]


def _has_logits(activity: GpuActivity, rows: int, vocabulary: int) -> bool:
    """Whether an operator reads logits of all rows: to convert, scale or copy them."""
    shapes = activity.op.input_shapes if activity.op is not None else ()
    return any(shape[-1:] == (vocabulary,) and math.prod(shape) == rows * vocabulary for shape in shapes)


RULE = Rule(
    name="prompt-logits",
    title="Logits of all positions of the prompt",
    looks_for="Before the first token of a token loop, a product computes logits for each position of the prompt. "
    "This product has as many columns as the last product of a token. Only the last position of a sequence picks the "
    "first token. The logits of the other positions take time and much memory.",
    threshold=f"The product has at least {MIN_ROWS} times as many rows as for a token. With its conversions, it takes "
    f"at least {MIN_SHARE:.0%} of the GPU's time before the first token.",
    source=f"{LOGITS_TO_KEEP}; the threshold is this book's",
    advice="Pass only the last position to the output layer: `head(hidden[:, -1:])`. In transformers, use "
    "`logits_to_keep=1`. If you score the prompt, keep all positions.",
    find=find,
    is_once=True,
    confidence="medium",
    mistaken="You need the logits of all positions, for example to score the prompt or for speculative decoding.",
)
