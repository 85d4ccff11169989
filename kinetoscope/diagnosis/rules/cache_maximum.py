"""Attention that reads a cache of fixed size to its end, though little of it is filled."""

from __future__ import annotations

from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import duration_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import unseen
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.sources import STATIC_CACHE
from kinetoscope.diagnosis.token_work import attention_op, heads_repeated
from kinetoscope.diagnosis.waste import Waste, findings
from kinetoscope.trace.events import CpuOp, GpuActivity, Step
from kinetoscope.trace.tokens import EMBEDDING, queries_of

MIN_TIMES = 2
_WRITES = ("aten::index_copy_", "aten::index_put_", "aten::_index_put_impl_", "aten::scatter_")


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Compare the positions that attention reads with those that prompt and tokens can have filled."""
    if not facts.token_steps:
        return []
    if unable := unseen(RULE, facts, _attends, needs_shapes=True):
        return unable
    lengths = {step.start_us: length for step in facts.token_steps if (length := _cache_length(step)) is not None}
    if not lengths:
        return []
    prompts = [op for op in facts.trace.cpu_ops if _prompt_length(op) > 1]
    first = min(step.start_us for step in facts.token_steps)
    if not any(op.start_us < first for op in prompts):
        reason = "the trace begins after the prompt, so how far the cache is filled is unknown"
        return CannotTell(RULE, reason, "with profile(...) around the whole of generate(), the prompt included")
    filled = {
        step.start_us: sum(_prompt_length(op) for op in prompts if op.start_us < step.start_us) + index + 1
        for index, step in enumerate(facts.token_steps)
    }

    def look(step: Step) -> list[Waste]:
        length = lengths.get(step.start_us, 0)
        if length <= MIN_TIMES * filled.get(step.start_us, length):
            return []
        unused = 1 - filled[step.start_us] / length
        return [Waste((a,), a.duration_us * unused) for a in step.activities if _reads_all(a, length)]

    start = facts.step.start_us
    known = start if start in lengths else next(iter(lengths))

    def describe(_waste: Sequence[Waste], time_us: float) -> str:
        return (
            f"Attention reads {lengths[known]:,} positions of the cache for every token, of which at most "
            f"{filled[known]:,} are filled: {duration_text(time_us)} per token"
        )

    return findings(RULE, facts, look, describe)


def _attends(activity: GpuActivity) -> bool:
    return attention_op(activity) is not None


def _reads_all(activity: GpuActivity, length: int) -> bool:
    """Whether it is attention over the whole cache, or a copy of the whole cache for all heads."""
    op = attention_op(activity)
    if op is not None:
        return _positions(op) == length
    return heads_repeated(activity) is not None and activity.op is not None and length in activity.op.input_shapes[0]


def _cache_length(step: Step) -> int | None:
    """The positions that attention with a mask reads of a cache that the step writes in place; None without one."""
    targets = (op.input_shapes[0] for op in step.ops if op.name in _WRITES and op.input_shapes)
    written = {shape[-2] for shape in targets if len(shape) >= 3}
    lengths = {_positions(op) for op in step.ops if queries_of(op) == 1 and _has_mask(op)}
    return max(lengths & written, default=None)


def _positions(op: CpuOp) -> int:
    return op.input_shapes[1][-2] if len(op.input_shapes) > 1 and len(op.input_shapes[1]) == 4 else 0


def _has_mask(op: CpuOp) -> bool:
    return len(op.input_shapes) > 3 and op.input_shapes[3][-1:] == op.input_shapes[1][-2:-1]


def _prompt_length(op: CpuOp) -> int:
    """The length of a prompt [sequences, length] that an embedding reads; 0 for another operator."""
    if op.name != EMBEDDING or len(op.input_shapes) < 2 or not op.input_shapes[1]:
        return 0
    return op.input_shapes[1][-1]


RULE = Rule(
    name="cache-maximum",
    title="Attention reads an almost empty cache to its end",
    looks_for="In steps that produce one token, attention with a mask reads a cache of fixed size, which the step "
    "writes in place. The rule compares the size of the cache with the number of positions that the prompts and "
    "tokens of the trace can have filled.",
    threshold=f"The cache is more than {MIN_TIMES} times as long as its filled part. The unfilled part's share of the "
    "time of attention, and of copies for all heads, is at least 1 % of a step.",
    source=f"{STATIC_CACHE}; the threshold is this book's",
    advice="Make the cache as long as prompt and answer need (`max_cache_len`, `max_new_tokens`). Use a few sizes, "
    "such as 256, 512 and 1,024, so that each size compiles once. Or pass attention only the filled part, rounded up "
    "to a block.",
    find=find,
    confidence="low",
    mistaken="In use, prompts and answers are longer than in this trace, and fill the cache.",
)
