"""Attention of one query: which kernel, how its keys are split, and kinds of
caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from snippets.decoder.experiments.clocks import (
    kernels_of,
    numbers,
    recorded,
    stopped,
    times_us,
)
from snippets.lab.experiment import Instruments

if TYPE_CHECKING:
    from torch import Tensor

HEADS = ((32, 4, 64), (32, 8, 128))
"""Heads, heads of keys and values, and their dimension: of both models."""


def split_keys(
    instruments: Instruments, device: str, points: str
) -> dict[str, Any]:
    """The kernels of attention for one query behind texts: `8x1024` are eight
    sequences of so many tokens.

    Returns {"points": [{"heads", "kv_heads", "head_dim", "batch", "tokens",
    "variant", "us": samples as a CUDA graph, "kernels"}]}; variants: keys and
    values shared by a group of heads, repeated for each head, and shared
    behind a mask.
    """
    found = []
    for heads, kv_heads, head_dim in HEADS:
        for point in points.split(","):
            batch, length = numbers(point.replace("x", ","))
            shape = {
                "heads": heads,
                "kv_heads": kv_heads,
                "head_dim": head_dim,
                "batch": batch,
                "tokens": length,
            }
            steps = attentions(device, **shape)
            replays = {
                name: recorded(step, device) for name, step in steps.items()
            }
            timed = times_us(replays, device, 3)
            for name, step in steps.items():
                kernels = kernels_of(instruments, step, device)
                entry = {"us": timed[name], "kernels": kernels}
                found.append({**shape, "variant": name, **entry})
    return {"points": found}


def attentions(
    device: str,
    heads: int,
    kv_heads: int,
    head_dim: int,
    batch: int,
    tokens: int,
) -> dict[str, Callable[[], Tensor]]:
    """The variants of `split_keys`."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attend

    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    shape = (batch, kv_heads, tokens, head_dim)
    q = torch.randn(batch, heads, 1, head_dim, device=device, dtype=dtype)
    k, v = (torch.randn(shape, device=device, dtype=dtype) for _ in range(2))
    times = heads // kv_heads
    many_k, many_v = (x.repeat_interleave(times, dim=1) for x in (k, v))
    mask = torch.ones(1, tokens, dtype=torch.bool, device=device)
    return {
        "shared": lambda: attend(q, k, v, enable_gqa=True),
        "repeated": lambda: attend(q, many_k, many_v),
        "masked": lambda: attend(q, k, v, attn_mask=mask, enable_gqa=True),
    }


def cache_kinds(
    instruments: Instruments,
    device: str,
    size: str,
    batch: int,
    longest: int,
    tokens: str,
    page: int,
) -> dict[str, Any]:
    """One layer's attention of a decode step with each kind of cache, of
    `longest` tokens where its size is fixed.

    Returns {tokens: {kind: {"us": samples, "error": relative, in float32}}}
    for `cat`, `static` (read to its end behind a mask), `sliced` and `paged`;
    a kind that cannot run has {"stopped": why}.
    """
    import torch

    from snippets.decoder.model import CONFIGS

    config = CONFIGS[size]
    found: dict[str, Any] = {}
    for end in numbers(tokens):
        torch._dynamo.reset()
        draws = [
            torch.randn(batch, n, length, config.head_dim, device=device)
            for n, length in (
                (config.heads, 1),
                (config.kv_heads, longest),
                (config.kv_heads, longest),
            )
        ]
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        q, keys, values = (x.to(dtype) for x in draws)
        exact = attention_of(q.float(), keys.float(), values.float(), end)
        kinds = cache_steps(q, keys, values, end, page)
        entry: dict[str, Any] = {}
        replays = {}
        for name, step in kinds.items():
            try:
                result = step().float()
                replays[name] = recorded(step, device)
            except torch.AcceleratorError:  # the GPU is unusable from here
                raise
            except (RuntimeError, AssertionError) as error:
                entry[name] = stopped(error)
                continue
            off = (result - exact).norm() / exact.norm()
            entry[name] = {"error": off.item()}
        for name, samples in times_us(replays, device).items():
            entry[name]["us"] = samples
        found[str(end)] = entry
    torch._dynamo.reset()
    return found


def attention_of(q: Tensor, keys: Tensor, values: Tensor, end: int) -> Tensor:
    """One query of each sequence against its first `end` keys."""
    from torch.nn.functional import scaled_dot_product_attention

    keys, values = keys[:, :, :end], values[:, :, :end]
    return scaled_dot_product_attention(q, keys, values, enable_gqa=True)


def cache_steps(
    q: Tensor, keys: Tensor, values: Tensor, end: int, page: int
) -> dict[str, Callable[[], Tensor]]:
    """A step of each kind of cache: write the newest key and value, attend."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attend

    from snippets.decoder.caches import page_blocks, paged_attention

    batch, _, longest, _ = keys.shape
    place = torch.tensor([end - 1], device=q.device)
    k, v = (
        keys[:, :, end - 1 : end].clone(),
        values[:, :, end - 1 : end].clone(),
    )
    old = [x[:, :, : end - 1].clone() for x in (keys, values)]
    mask = (torch.arange(longest, device=q.device) < end)[None]

    def write() -> None:
        keys.index_copy_(2, place, k)
        values.index_copy_(2, place, v)

    def cat() -> Tensor:
        grown_k = torch.cat((old[0], k), dim=2)
        grown_v = torch.cat((old[1], v), dim=2)
        return attend(q, grown_k, grown_v, enable_gqa=True)

    def static() -> Tensor:
        write()
        return attend(q, keys, values, attn_mask=mask, enable_gqa=True)

    def sliced() -> Tensor:
        write()
        return attention_of(q, keys, values, end)

    own = -(-end // page)
    pages = batch * own
    table = torch.randperm(pages, device=q.device).view(batch, own)
    pool_k, pool_v = (
        in_pages(x[:, :, : own * page], table, page) for x in (keys, values)
    )
    blocks = page_blocks(table, pages, end, page)
    read = torch.compile(paged_attention, dynamic=False)
    last = table[:, (end - 1) // page] * page + (end - 1) % page  # (batch,)

    def paged() -> Tensor:
        for pool, new in ((pool_k, k), (pool_v, v)):
            pool[0].index_copy_(1, last, new[:, :, 0].transpose(0, 1))
        return read(q, pool_k, pool_v, blocks)

    return {"cat": cat, "static": static, "sliced": sliced, "paged": paged}


def in_pages(x: Tensor, table: Tensor, page: int) -> Tensor:
    """(batch, heads, tokens, head_dim) as (1, heads, pages x page, head_dim),
    each page where the table (batch, pages of a sequence) says."""
    parts = x.unflatten(2, (-1, page)).transpose(1, 2).flatten(0, 1)
    pool = parts.new_empty(parts.shape)  # (pages, heads, page, head_dim)
    pool[table.flatten()] = parts
    return pool.transpose(0, 1).flatten(1, 2)[None].contiguous()
