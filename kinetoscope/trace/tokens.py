"""Recognize a step that produces one token: one pick of a token, attention or an embedding, one query per sequence.

A step counts as a token if all of this holds:

1. It picks tokens exactly once: `aten::argmax`, `aten::multinomial`, or a kernel of this name in a graph replay.
2. It has an embedding or attention, no convolution, and no backward pass.
3. Each sequence has one query: by the shapes of attention, else of the embedding's indices. Without shapes, by kernels
   for few rows (`gemv`, a tile with a side of 8, attention that splits the keys) in at least half of the products, or
   by a prompt: the same launches before, with more work, and writes to a cache.

A step without these signs may still be a token: then it is called a step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from kinetoscope.trace.events import CpuOp, GpuActivity
from kinetoscope.trace.kernel_names import decode_kernel_name

EMBEDDING = "aten::embedding"
PICKS = ("aten::argmax", "aten::multinomial")
ATTENTION = re.compile(r"aten::_?scaled_dot_product_(?:\w+_)?attention(?:_math)?")
"""Operators whose first three inputs are queries, keys and values: [batch, heads, length, head size]."""
_PICK_KERNEL = re.compile(r"arg_?max|multinomial|top_?[kp]_?(?:top_?p_?)?sampl|sampling_from", re.IGNORECASE)
_EMBEDDING_KERNEL = re.compile(r"(?<!rotary)(?<!rotary_)embedding|indexSelect|vectorized_gather", re.IGNORECASE)
_ONE_QUERY_KERNEL = re.compile(
    r"split_?kv|fwd_?combine|paged_attention|decode_att|mla_decode|BatchDecode|flash_decod|masked_multihead|kernel_stage1",
    re.IGNORECASE,
)
_FEW_ROWS_KERNEL = re.compile(r"gemv|wvSplitK|LLGemm1|LLMM1", re.IGNORECASE)
_CACHE_WRITE = re.compile(
    r"aten::(?:cat|index_copy_|index_put_|_index_put_impl_)$|CatArray|index_copy_kernel|index_put_kernel|"
    r"reshape_and_cache|store_kv_?cache"
)
_FEW_ROWS = 8
MAX_DEPTH = 64
"""Operators around an operator that count; a hostile trace nests thousands."""


def is_token(ops: Sequence[CpuOp], activities: Sequence[GpuActivity], *, follows_prompt: bool = False) -> bool:
    """Whether these events of a step produce one token of each sequence, by the rules of this file."""
    if any("Backward" in name or name.startswith("autograd::") for name in {op.name for op in ops}):
        return False
    kernels = [activity for activity in activities if activity.kind == "kernel"]
    picks = _kernel_picks(kernels) if kernels else len({id(outermost(op, PICKS)) for op in ops if op.name in PICKS})
    if picks != 1 or any(_operation(kernel) == "convolution" for kernel in kernels):
        return False
    attends = any(ATTENTION.fullmatch(op.name) for op in ops) or any(_operation(k) == "attention" for k in kernels)
    embeds = any(op.name == EMBEDDING for op in ops) or any(_EMBEDDING_KERNEL.search(k.name) for k in kernels)
    return (attends or embeds) and _has_one_query(ops, kernels, follows_prompt)


def may_start_token(name: str) -> bool:
    """Whether an operator or a kernel of this name reads an embedding, as the first work of a token does."""
    return name == EMBEDDING or _EMBEDDING_KERNEL.search(name) is not None


def may_pick_token(name: str) -> bool:
    """Whether an operator or a kernel of this name may pick a token."""
    return name in PICKS or _PICK_KERNEL.search(name) is not None


def queries_of(op: CpuOp) -> int | None:
    """Queries per sequence and head of an attention operator; None for another operator or without shapes."""
    if ATTENTION.fullmatch(op.name) and len(op.input_shapes) >= 3 and len(op.input_shapes[0]) == 4:
        return op.input_shapes[0][2]
    return None


def sequences(ops: Iterable[CpuOp]) -> int | None:
    """The number of sequences, by the indices [sequences, 1] of an embedding; None if no embedding tells."""
    indices = [op.input_shapes[1] for op in ops if op.name == EMBEDDING and len(op.input_shapes) > 1]
    return max((shape[0] for shape in indices if len(shape) == 2 and shape[1] == 1), default=None)


def _has_one_query(ops: Sequence[CpuOp], kernels: Sequence[GpuActivity], follows_prompt: bool) -> bool:
    if queries := {count for op in ops if (count := queries_of(op)) is not None}:
        return queries == {1}
    indices = [op.input_shapes[1] for op in ops if op.name == EMBEDDING and len(op.input_shapes) > 1]
    if any(len(shape) > 1 for shape in indices):
        return all(shape[-1] == 1 for shape in indices if len(shape) > 1)
    few = sum(map(_has_few_rows, kernels))
    products = few + sum(_operation(kernel) == "gemm" and not _has_few_rows(kernel) for kernel in kernels)
    if any(_ONE_QUERY_KERNEL.search(kernel.name) for kernel in kernels) or 0 < products <= 2 * few:
        return True
    return follows_prompt and sum(_CACHE_WRITE.search(each.name) is not None for each in (*ops, *kernels)) > 1


def _kernel_picks(kernels: Iterable[GpuActivity]) -> int:
    """The number of picks: of operators, and of kernels without an operator, adjacent ones together."""
    picked: set[int] = set()
    alone, was_pick = 0, False
    for kernel in kernels:
        outer = outermost(kernel.op, PICKS)
        if outer is not None:
            picked.add(id(outer))
        is_pick = outer is None and _PICK_KERNEL.search(kernel.name) is not None
        alone += is_pick and not was_pick
        was_pick = is_pick
    return len(picked) + alone


def outermost(op: CpuOp | None, names: Sequence[str] = ()) -> CpuOp | None:
    """The outermost operator around an operator, of these names if given; None if there is none."""
    found = None
    for _ in range(MAX_DEPTH):
        if op is None:
            break
        if not op.is_annotation and (not names or op.name in names):
            found = op
        op = op.parent
    return found


def _operation(kernel: GpuActivity) -> str:
    return decode_kernel_name(kernel.name).operation


def _has_few_rows(kernel: GpuActivity) -> bool:
    return _is_for_few_rows(kernel.name)


@cache
def _is_for_few_rows(name: str) -> bool:
    tile = decode_kernel_name(name).tile if "nvjet" in name else None
    sides = tile.split("x")[:2] if tile else []
    return _FEW_ROWS_KERNEL.search(name) is not None or any(int(side) <= _FEW_ROWS for side in sides)
