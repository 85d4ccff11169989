"""A decoder layer of Transformers for one new token of each sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import support
from .known import Known

try:
    from . import operators
except ImportError:  # without Triton, which `support` finds out, too
    operators = None  # type: ignore[assignment]


def why_not(
    known: Known, x: Tensor, cache: Any, mask: Any,
    rotary: tuple[Tensor, Tensor], more: dict[str, Any], is_trained: bool,
) -> str:  # fmt: skip
    """Why the kernels cannot do a known layer's work for x (batch, 1, dim);
    empty if they can. The cache keeps something for the layer."""
    kept = support.kept_by(cache, known.place)
    if reason := support.other_cache(cache, kept):
        return reason
    if is_trained:
        return "it is in training mode"
    keys, values, (cos, sin), q = kept.keys, kept.values, rotary, known.q
    batch, kv_heads, length, head_dim = keys.shape
    dtypes = x.dtype, q.dtype, known.gain.dtype, keys.dtype, cos.dtype
    devices = {x.device, q.device, keys.device, cos.device}
    if len(devices) > 1:
        return "its tensors are on different devices"
    if reason := support.unsupported(x.device, dtypes, batch, known.sizes):
        return reason
    if [x.shape[0], x.shape[2], kv_heads, head_dim] != [
        batch, known.sizes[0], *known.sizes[3:]
    ]:  # fmt: skip
        return "its cache or its input has other sizes"
    angles = list(cos.shape)
    if angles != list(sin.shape) or angles not in (
        [batch, 1, head_dim],
        [1, 1, head_dim],
    ):
        return f"they do not know a rotation of shape {tuple(cos.shape)}"
    if torch.is_grad_enabled() and any(
        one.requires_grad for one in (x, keys, values, *known[:9])
    ):
        return "they have no gradient, and one is needed"
    seen = length if support.is_static(kept) else length + 1
    return support.other_surroundings(x, mask, seen, more)


def one_token(
    known: Known, x: Tensor, cache: Any, mask: Tensor | None,
    rotary: tuple[Tensor, Tensor],
) -> Tensor:  # fmt: skip
    """What a layer makes of x (batch, 1, dim), whose keys and values it adds to
    the cache at the layer's place. The kernels write into a static cache; any
    other adds the keys and values itself."""
    kept = support.kept_by(cache, known.place)
    token, cos, sin = x[:, 0], rotary[0][:, 0], rotary[1][:, 0]
    is_static = support.is_static(kept)
    keys, values = kept.keys, kept.values
    position = kept.cumulative_length if is_static else None
    if not is_static:
        batch, kv_heads, _, head_dim = keys.shape
        keys = x.new_empty(batch, kv_heads, 1, head_dim)
        values = x.new_empty(batch, kv_heads, 1, head_dim)
    q, arrived = operators.project(
        token, known.gain, known.q, known.k, known.v, cos, sin, keys, values,
        position, known.eps,
    )  # fmt: skip
    if not is_static:
        keys, values = cache.update(keys, values, known.place)
    out = operators.complete(
        token, q, keys, values, position, mask, arrived, known.out,
        known.second_gain, known.gate, known.up, known.down, known.scale,
        known.second_eps,
    )  # fmt: skip
    if is_static:
        # not by a kernel: Inductor may read it after an operator changed it
        kept.cumulative_length.add_(1)
    return out[:, None]
