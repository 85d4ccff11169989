"""Other caches: grown by concatenation, read only as far as it is written,
repeated for each query head, and in pages."""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from .model import StaticCache


# --8<-- [start:growing]
class GrowingCache:
    """Copies all keys and values for each new token."""

    def __init__(self, keys: Tensor, values: Tensor):
        self.keys, self.values = keys, values

    def add(self, k: Tensor, v: Tensor, positions: Tensor):
        self.keys = torch.cat((self.keys, k), dim=2)
        self.values = torch.cat((self.values, v), dim=2)
        return self.keys, self.values

    def mask(self, positions: Tensor) -> None:
        """One new token sees everything: no mask."""


# --8<-- [end:growing]


# --8<-- [start:sliced]
class SlicedCache(StaticCache):
    """Written in place and read as far as it is written. The CPU counts, so
    that a view needs no mask."""

    end = 0

    def add(self, k: Tensor, v: Tensor, positions: Tensor):
        super().add(k, v, positions)
        self.end += k.shape[2]
        return self.keys[:, :, : self.end], self.values[:, :, : self.end]

    def mask(self, positions):
        """One new token sees everything that is read: no mask."""


# --8<-- [end:sliced]


class FullCache(StaticCache):
    """Ends at the newest token, which therefore sees all of it."""

    def mask(self, positions):
        """One new token sees everything: no mask."""


# --8<-- [start:repeated]
class RepeatedCache(SlicedCache):
    """Gives each query head a copy of its keys and values, as models do in
    `repeat_kv`."""

    def __init__(self, config, *where):
        super().__init__(config, *where)
        self.times = config.heads // config.kv_heads

    def add(self, k: Tensor, v: Tensor, positions: Tensor):
        keys, values = super().add(k, v, positions)
        return (
            keys.repeat_interleave(self.times, dim=1),
            values.repeat_interleave(self.times, dim=1),
        )


# --8<-- [end:repeated]


# --8<-- [start:paged]
def page_blocks(table: Tensor, pages: int, length: int, size: int) -> BlockMask:
    """Which pages each sequence reads. Build it when the table changes.

    table: (batch, pages of a sequence), where each page lies among `pages`;
    the sequence of query i sees the first `length` keys of its own pages.
    """
    batch, own = table.shape
    # (batch, pages): which part of the sequence a page holds, if any
    order = torch.full((batch, pages), own, device=table.device)
    parts = torch.arange(own, device=table.device)
    order.scatter_(1, table, parts.repeat(batch, 1))

    def is_past(
        row: Tensor, head: Tensor, query: Tensor, key: Tensor
    ) -> Tensor:
        return order[row, key // size] * size + key % size < length

    counts = torch.full((batch, 1, 1), own, device=table.device)
    indices = torch.zeros(batch, 1, 1, pages, device=table.device)
    indices[:, 0, 0, :own] = table
    return BlockMask.from_kv_blocks(
        counts.int(),
        indices.int(),
        BLOCK_SIZE=(128, size),
        mask_mod=is_past,
        seq_lengths=(1, pages * size),
    )


def paged_attention(q: Tensor, keys: Tensor, values: Tensor, blocks) -> Tensor:
    """One query of each sequence against keys and values in pages. Compile it.

    q: (batch, heads, 1, head_dim); keys and values: (1, kv_heads, pages x page
    size, head_dim), all sequences together.
    """
    return flex_attention(q, keys, values, block_mask=blocks, enable_gqa=True)


# --8<-- [end:paged]
