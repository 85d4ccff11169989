"""A cache that is written anew for every token."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import unseen
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.sources import DYNAMIC_CACHE
from kinetoscope.diagnosis.waste import Waste, findings
from kinetoscope.trace.events import GpuActivity, Step


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Check the shapes of each `aten::cat` of a token."""
    if not facts.token_steps:
        return []
    tokens = set(map(id, facts.token_steps))

    def look(step: Step) -> list[Waste]:
        return [Waste((a,), a.duration_us) for a in step.activities if id(step) in tokens and _appends(a)]

    return unseen(RULE, facts, _is_cat, needs_shapes=True) or findings(RULE, facts, look, _describe)


def _is_cat(activity: GpuActivity) -> bool:
    return activity.kind == "kernel" and activity.op is not None and activity.op.name == "aten::cat"


def _appends(activity: GpuActivity) -> bool:
    """Whether it joins [batch, heads, positions, size] and one more position, in any order of dimensions."""
    if not _is_cat(activity) or activity.op is None:
        return False
    shapes = [shape for shape in activity.op.input_shapes if shape]
    if len(shapes) != 2 or len(shapes[0]) != len(shapes[1]) or len(shapes[0]) < 3:
        return False
    different = [(old, new) for old, new in zip(*shapes, strict=True) if old != new]
    return len(different) == 1 and different[0][1] == 1 < different[0][0]


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    ops = {id(a.op): a.op for found in waste for a in found.activities if a.op is not None}.values()
    largest = max((op.input_shapes[0] for op in ops), key=math.prod)
    return (
        f"{count_text(len(ops), 'tensor')} of the cache copied per token to append one position: "
        f"{duration_text(time_us)}, the largest {list(largest)}"
    )


RULE = Rule(
    name="growing-cache",
    title="The cache is copied for every token",
    looks_for="In a step that produces one token, `aten::cat` joins a tensor of three or more dimensions with one "
    "more position. A growing cache of keys and values works like this. Then each token reads and writes the whole "
    "cache one more time than attention needs.",
    threshold="These copies take at least 1 % of a step.",
    source=f"{DYNAMIC_CACHE}; the share is this book's",
    advice="Allocate the cache once for the longest sequence, and write each position in place (`index_copy_`). In "
    "transformers, pass cache_implementation='static' to generate. Attention should then read only the filled part "
    "of the cache.",
    find=find,
    confidence="medium",
    mistaken="The growing tensor isn't a cache of keys and values, or the whole sequence is short.",
)
