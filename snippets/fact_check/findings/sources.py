"""The quoted sources: four articles about Part 2 of the series, and the posts."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from snippets.lab.finding import Source


class Document(NamedTuple):
    """A text that is checked here."""

    who: str
    """Its title, as the ledger has it. The digest has the post's title, so the ledger says which of the two it is."""
    short: str
    """Its name in tables: what it is."""


DEEP_DIVE = Document("The Profiling Deep-Dive on nn.Linear Fusion", "Deep dive")
DIGEST = Document("a digest of “Profiling in PyTorch (Part 2): From nn.Linear to a Fused MLP”", "Digest")
NEWS = Document("Hugging Face has published the second installment of its PyTorch profiling series", "News item")
TUTORIAL = Document("Profiling in PyTorch: From nn.Linear to Fused MLP Optimization", "Tutorial")
POSTS = tuple(Document(part, part) for part in ("Part 1", "Part 2", "Part 3"))
ARTICLES = (DEEP_DIVE, DIGEST, NEWS, TUTORIAL)
DOCUMENTS = (*ARTICLES, *POSTS)

A100, H100 = "NVIDIA A100", "NVIDIA H100"
deep_dive, digest, news, tutorial = (partial(Source, document.who) for document in ARTICLES)


TEN_PERCENT = 0.1


def about(value: float) -> tuple[float, float]:
    """A quoted value, give or take a tenth."""
    return value * (1 - TEN_PERCENT), value * (1 + TEN_PERCENT)


def short_name(who: str) -> str:
    """The name of a source in tables. Raises `KeyError` for a source that is not listed here."""
    return {document.who: document.short for document in DOCUMENTS}[who]
