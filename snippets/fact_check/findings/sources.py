"""The quoted sources: four articles about Part 2 of the series, and the posts."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from snippets.lab.finding import Source


class Document(NamedTuple):
    """A text that is checked here."""

    who: str
    """Its title, as the ledger has it; of one article, what it is, because it has the title of the post."""
    short: str
    """Its name in tables: where it was published."""


DEEP_DIVE = Document("The Profiling Deep-Dive on nn.Linear Fusion", "1minai")
DIGEST = Document(
    "a summary titled “Profiling in PyTorch (Part 2): From nn.Linear to a Fused MLP”", "Summary of Part 2"
)
NEWS = Document("Hugging Face has published the second installment of its PyTorch profiling series", "TokenFeed")
TUTORIAL = Document("Profiling in PyTorch: From nn.Linear to Fused MLP Optimization", "n1n.ai")
POSTS = tuple(Document(part, part) for part in ("Part 1", "Part 2", "Part 3"))
ARTICLES = (DEEP_DIVE, DIGEST, NEWS, TUTORIAL)
DOCUMENTS = (*ARTICLES, *POSTS)

A100 = "NVIDIA A100"
ANYWHERE = ""
"""The device of a value that a source gives for no GPU in particular."""
deep_dive, digest, news, tutorial = (partial(Source, document.who) for document in ARTICLES)


TEN_PERCENT = 0.1


def about(value: float) -> tuple[float, float]:
    """A quoted value, give or take a tenth."""
    return value * (1 - TEN_PERCENT), value * (1 + TEN_PERCENT)
