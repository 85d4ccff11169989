"""Token loops written by hand: launches of operators, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.tool.events import Event, kernel, launch, op

PITCH_US = 10.0
GEMV, GEMM = "gemvx::kernel<int, __nv_bfloat16>", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
ONE_QUERY, MANY_QUERIES = "pytorch_flash::flash_fwd_splitkv_kernel<x>", "pytorch_flash::flash_fwd_kernel<x>"
LAYERS, HEADS, SIZE, VOCABULARY = 3, 4, 64, 1000


@dataclass(frozen=True)
class Launch:
    """An operator of 8 us every `PITCH_US` that launches one kernel; `op` may be None."""

    op: str | None
    kernel: str
    us: float = 3.0
    grid: tuple[int, int, int] = (1, 1, 1)
    dims: Any = None


def events(launches: Sequence[Launch], *, start: float = 0.0, first: int = 1) -> list[Event]:
    """The launches, each with its kernel 5 us after the beginning of its operator."""
    made: list[Event] = []
    for index, each in enumerate(launches):
        at, correlation = start + PITCH_US * index, first + index
        if each.op is not None:
            made.append(op(each.op, at, 8.0, dims=each.dims))
        made.append(launch(correlation, at + 2.0))
        made.append(kernel(each.kernel, correlation, at + 5.0, each.us, grid=list(each.grid)))
    return made


def forward(queries: int, positions: int, *, sequences: int = 1, us: float = 3.0, shapes: bool = True) -> list[Launch]:
    """A decoder with a growing cache, for so many queries of each sequence, up to so many positions."""
    product = GEMV if queries == 1 else GEMM
    attention = ONE_QUERY if queries == 1 else MANY_QUERIES
    grid, cached = (queries, sequences, 1), (positions, sequences, 1)
    old, new = ([sequences, HEADS, count, SIZE] for count in (positions - queries, queries))
    whole = [sequences, HEADS, positions, SIZE]

    def given(*dims: Any) -> Any:
        return list(dims) if shapes else None

    made = [
        Launch("aten::embedding", "indexSelectSmallIndex", us, grid, given([VOCABULARY, 256], [sequences, queries]))
    ]
    for _ in range(LAYERS):
        made += [
            Launch("aten::linear", product, us, grid),
            Launch("aten::cat", "CatArrayBatchedCopy", us, cached, given([old, new], [])),
            Launch("aten::scaled_dot_product_attention", attention, us, cached, given(new, whole, whole)),
            Launch("aten::linear", product, us, grid),
            Launch("aten::silu", "silu_kernel", us, grid),
        ]
    return [*made, Launch("aten::linear", product, us, grid), Launch("aten::argmax", "ArgMaxOps", us)]


def answer(prompt: int, tokens: int, **more: Any) -> list[Launch]:
    """A prompt, then so many tokens one by one."""
    ahead = forward(prompt, prompt, us=9.0, **more)
    return [*ahead, *(each for index in range(tokens) for each in forward(1, prompt + 1 + index, **more))]
