"""Batches that show a fault: text tokenized late, large features, lengths that vary."""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import Dataset

from .model import Tokens


class Texts(Tokens):
    """The same sequences, stored as text and tokenized in Python when fetched."""

    # --8<-- [start:tokenize]
    def __getitem__(self, index: int) -> Tensor:
        text = " ".join(map(str, super().__getitem__(index).tolist()))
        ids, token = [], 0
        for character in f"{text} ":
            if character == " ":
                ids.append(token)
                token = 0
            else:
                token = 10 * token + ord(character) - ord("0")
        return torch.tensor(ids)

    # --8<-- [end:tokenize]


class Features(Dataset):
    """Batches of float32 features (batch, seq, dim), like those of images, and their targets (batch, seq)."""

    def __init__(self, vocab: int, dim: int, seq: int, batch: int, **_: int):
        generator = torch.Generator().manual_seed(0)
        self.features = torch.randn(4, batch, seq, dim, generator=generator)
        shape = (4, batch, seq)
        self.targets = torch.randint(0, vocab, shape, generator=generator)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.features[index % 4], self.targets[index % 4]


class Stacked(Dataset):
    """Batches (batch, seq + 1) of token ids, as stacked by the loader of `make_parts`."""

    def __init__(self, vocab: int, seq: int, batch: int, **_: int):
        self.tokens, self.seq, self.batch = Tokens(vocab, seq), seq, batch

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tensor:
        first = self.batch * index
        return torch.stack(
            [self.tokens[first + row] for row in range(self.batch)]
        )


class Varied(Stacked):
    """The same batches, cut to twelve different lengths."""

    def __getitem__(self, index: int) -> Tensor:
        length = self.seq - self.seq // 16 * (5 * index % 12)
        return super().__getitem__(index)[:, : length + 1]


def batches_of(fault: str, **sizes: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets of each batch of a fault's loops, in order, without a loader."""
    if fault == "pageable":
        features = Features(**sizes)
        yield from (features[index] for index in itertools.count())
    else:
        rows = Varied(**sizes) if fault == "recompile" else Stacked(**sizes)
        yield from (
            (batch[:, :-1], batch[:, 1:])
            for batch in map(rows.__getitem__, itertools.count())
        )
