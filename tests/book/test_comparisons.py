"""Faster than what, by how much? Sentences that compare show a number, or a result directly below them."""

from __future__ import annotations

import pytest

from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.page_text import pages
from tests.book.comparisons import unbound_comparisons

PAGES = pages(PROJECT / "docs")
ALLOWED: dict[str, dict[str, str]] = {}
"""Page -> words of a sentence -> why it may compare without a number."""
MOST: dict[str, int] = {
    "attention.md": 13,
    "claims.md": 2,
    "contributing.md": 5,
    "devices.md": 2,
    "fused_mlp.md": 23,
    "kernel_names.md": 1,
    "linear.md": 11,
    "matmul_add.md": 9,
    "measuring.md": 10,
    "mlp.md": 16,
    "reading_a_trace.md": 3,
}
"""Page -> how many such sentences it has had. May only fall."""
FENCE = """\
```python exec="on" html="on"
from snippets.lab.page import show, verdicts
print(show("p-x", verdicts, "M1"))
```
"""


@pytest.mark.parametrize("page", PAGES)
def test_sentences_that_compare_show_a_number(page: str) -> None:
    allowed = ALLOWED.get(page, {})
    unbound = unbound_comparisons(page, PAGES[page])
    unused = [words for words in allowed if not any(words in sentence.text for sentence in unbound)]
    assert unused == [], "an exception that nothing needs"
    left = [sentence for sentence in unbound if not any(words in sentence.text for words in allowed)]
    listed = "\n".join(
        f"docs/{page}:{sentence.line}: {', '.join(sentence.words)}: {sentence.text}" for sentence in left
    )
    assert len(left) <= MOST.get(page, 0), f"bind these to `#!fig ...`, or to a result below:\n{listed}"


def test_lists_are_of_pages_that_exist() -> None:
    assert {*ALLOWED, *MOST} <= PAGES.keys()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ours is faster.", ("faster",)),
        ("Ours is `#!fig mlp.speedup` faster.", ()),
        ("Ours is faster.\n\n" + FENCE, ()),
        ("Ours is faster.\n\nMore.\n\n" + FENCE, ("faster",)),
        ("Ours is faster.\n\n" + FENCE.replace("verdicts", "guess_number"), ("faster",)),
        ("Ours is faster.\n\n```python\nx = 1\n```", ("faster",)),
        ("Which is faster?", ()),
        ("## Why it is faster", ()),
        ('??? question "Guess: which is faster"', ()),
        ("It no longer runs. As long as you wait, it runs.", ()),
        ("It takes a few percent and almost\nhalf.", ("a few percent", "almost", "half")),
        ("The name `fastest` is code.", ()),
        ("- One.\n- Twice as\n  many.", ("Twice",)),
    ],
)
def test_a_comparison_is_seen(text: str, words: tuple[str, ...]) -> None:
    found = unbound_comparisons("p.md", text)
    assert tuple(word for sentence in found for word in sentence.words) == words


def test_the_line_of_a_sentence() -> None:
    (found,) = unbound_comparisons("p.md", "One.\n\nTwo. Three\nfour. Five is\nlonger.\n")
    assert (found.line, found.text) == (4, "Five is longer.")
