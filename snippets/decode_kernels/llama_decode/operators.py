"""The two halves of a decoder layer for one new token of each sequence, as
PyTorch operators, which a compiled model or a CUDA graph may hold.

Between the two halves a cache may do its own work.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_not
from typing import Any

import torch
import triton
from torch import Tensor

from .layer_kernels import (
    decode_attend_kernel,
    decode_gate_up_kernel,
    decode_project_kernel,
    decode_residual_kernel,
)
from .sizes import (
    Tile,
    launches_dependents,
    power_of_two,
    slices_for,
    tiles_for,
    tokens_for,
)
from .support import is_interpreted

NAMESPACE = __name__.split(".")[-2]
"""From the package's name, since two copies in one process would replace each
other's operators."""
LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")


def operator(schema: str) -> Callable[[Callable[..., Any]], Any]:
    """Define an operator by its schema and its implementation, which runs with
    the first tensor's device as the current device."""
    name = schema.partition("(")[0]

    def define(function: Callable[..., Any]) -> Any:
        def run(x: Tensor, *others: Any) -> Any:
            if not x.is_cuda or x.get_device() == torch.cuda.current_device():
                return function(x, *others)
            with torch.cuda.device(x.get_device()):
                return function(x, *others)

        LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        LIBRARY.impl(name, run, "CompositeExplicitAutograd")
        return getattr(getattr(torch.ops, NAMESPACE), name).default

    return define


def fake(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define the shapes of an operator's results, for compilers."""
    return torch.library.register_fake(f"{NAMESPACE}::{name}", lib=LIBRARY)


def options(x: Tensor, tile: Tile) -> dict[str, Any]:
    """Constants of a kernel that multiplies, and how it is launched."""
    batch, dependent = x.shape[0], launches_dependents(x.device)
    return {
        "TOKENS": tokens_for(batch),
        "ROWS": tile.rows,
        "SLICES": slices_for(batch),
        "STEPS": tile.steps,
        "PARTS": tile.warps,
        "HELD": tile.held,
        "INTERPRETED": is_interpreted(),
        "DEPENDENT": dependent,
        "num_warps": tile.warps,
        "launch_pdl": dependent,
    }


def ready(tensor: Tensor) -> Tensor:
    """The tensor in the form that the kernels read: contiguous, at an address
    that is a multiple of 16."""
    if tensor.is_contiguous() and not tensor.data_ptr() & 15:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


@operator(
    "project(Tensor x, Tensor gain, Tensor q, Tensor k, Tensor v, Tensor cos, "
    "Tensor sin, Tensor(a!) keys, Tensor(b!) values, Tensor? position, "
    "float eps) -> (Tensor, Tensor)"
)
def project(
    x: Tensor, gain: Tensor, q: Tensor, k: Tensor, v: Tensor, cos: Tensor,
    sin: Tensor, keys: Tensor, values: Tensor, position: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The queries (batch, heads * head_dim) of tokens x (batch, dim), rotated,
    and counters that `complete` needs; rotated keys and values go to row
    `position` () of keys and values (batch, kv_heads, length, head_dim), or to
    row 0 if there is none.

    x is behind no norm yet: gain (dim,) is the norm's. q, k and v are weights
    (rows, dim), cos and sin (batch or 1, head_dim).
    """
    batch, kv_heads, length, head_dim = keys.shape
    heads = q.shape[0] // head_dim
    tile = tiles_for(batch, x.shape[1]).qkv
    x, gain, q, k, v = map(ready, (x, gain, q, k, v))
    cos, sin = ready(cos), ready(sin)
    out = x.new_empty(batch, heads * head_dim)
    arrived = x.new_empty(batch * kv_heads, dtype=torch.int32)
    pairs = head_dim // 2
    q_tiles = triton.cdiv(heads * pairs, tile.rows)
    kv_tiles = triton.cdiv(kv_heads * pairs, tile.rows)
    decode_project_kernel[q_tiles + 2 * kv_tiles,](
        x, gain, q, k, v, cos, sin, position, out, keys, values, arrived,
        batch, heads, kv_heads, length,
        0 if cos.shape[0] == 1 else head_dim, eps, K=x.shape[1],
        HEAD_DIM=head_dim, COUNTERS=power_of_two(batch * kv_heads),
        **options(x, tile),
    )  # fmt: skip
    return out, arrived


@fake("project")
def _(x, gain, q, k, v, cos, sin, keys, values, position, eps):
    counters = x.shape[0] * keys.shape[1]
    return (
        x.new_empty(x.shape[0], q.shape[0]),
        x.new_empty(counters, dtype=torch.int32),
    )


@operator(
    "complete(Tensor x, Tensor q, Tensor keys, Tensor values, "
    "Tensor? position, Tensor? mask, Tensor arrived, Tensor out, "
    "Tensor gain, Tensor gate, Tensor up, Tensor down, float scale, float eps) "
    "-> Tensor"
)
def complete(
    x: Tensor, q: Tensor, keys: Tensor, values: Tensor,
    position: Tensor | None, mask: Tensor | None, arrived: Tensor, out: Tensor,
    gain: Tensor, gate: Tensor, up: Tensor, down: Tensor, scale: float,
    eps: float,
) -> Tensor:  # fmt: skip
    """What a decoder layer makes of tokens x (batch, dim) and their queries:
    attention to keys and values (batch, kv_heads, length, head_dim), the output
    projection, and the MLP behind its norm, both added to x.

    It looks at all keys, or at those up to `position` (), and of these at those
    where `mask` (batch or 1, 1, 1, length) is True. `arrived` is from
    `project`. Its counters are zero before and after.
    """
    batch, kv_heads, length, head_dim = keys.shape
    heads, (hidden, dim) = q.shape[1] // head_dim, gate.shape
    tiles = tiles_for(batch, dim)
    given = (gain, out, gate, up, down)
    gain, out, gate, up, down = map(ready, given)
    copied = any(map(is_not, given, (gain, out, gate, up, down)))
    x, keys, values = ready(x), ready(keys), ready(values)
    mask_stride = 0
    if mask is not None:
        if mask.stride(3) != 1:
            mask = mask.contiguous()
        mask_stride = 0 if mask.shape[0] == 1 else mask.stride(0)
        mask = mask.view(torch.uint8)
    sums = x.new_empty(
        batch, heads, tiles.splits, head_dim, dtype=torch.float32
    )
    tops = x.new_empty(batch, heads, tiles.splits, 2, dtype=torch.float32)
    attended = torch.empty_like(q)
    dependent = launches_dependents(x.device)
    decode_attend_kernel[batch * kv_heads * tiles.splits,](
        q, keys, values, position, mask, sums, tops, arrived, attended, heads,
        kv_heads, length, mask_stride, scale, HEAD_DIM=head_dim,
        GROUP=power_of_two(heads // kv_heads),
        BLOCK_KEYS=tiles.block_keys, SPLITS=tiles.splits,
        INTERPRETED=is_interpreted(), DEPENDENT=dependent, num_warps=4,
        # later kernels load weights at once: no copies that are not written
        launch_pdl=dependent and not copied,
    )  # fmt: skip
    result = torch.empty_like(x)
    decode_residual_kernel[triton.cdiv(dim, tiles.out.rows),](
        attended, out, x, result, batch, dim, K=q.shape[1],
        **options(x, tiles.out),
    )  # fmt: skip
    middle = x.new_empty(batch, hidden)
    decode_gate_up_kernel[triton.cdiv(hidden, tiles.gate_up.rows),](
        result, gain, gate, up, middle, batch, hidden, eps, K=dim,
        **options(x, tiles.gate_up),
    )  # fmt: skip
    decode_residual_kernel[triton.cdiv(dim, tiles.down.rows),](
        middle, down, result, result, batch, dim, K=hidden,
        **options(x, tiles.down),
    )  # fmt: skip
    return result


@fake("complete")
def _(
    x, q, keys, values, position, mask, arrived, out, gain, gate, up, down,
    scale, eps,
):  # fmt: skip
    return torch.empty_like(x)
