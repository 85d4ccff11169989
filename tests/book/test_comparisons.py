"""Sentences that compare must give a number, or have a result directly below them."""

from __future__ import annotations

import pytest

from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.page_text import pages
from tests.book.comparisons import unbound_comparisons

PAGES = pages(PROJECT / "docs")
SHAPES = "follows from shapes, layouts or counts that stand beside it"
WORDS = "says what a word, an option or an algorithm means; nothing is measured"
CASES = "a condition or an advice: it holds where the comparison does"
GUESS = "says that it is a guess, or quotes another"
NEXT_TO_IT = "concludes from the figure or picture right before it, or announces the one right after it"
ALLOWED: dict[str, dict[str, str]] = {
    "attention.md": {
        "infinity less infinity is not a number": WORDS,
        "When a larger score comes": WORDS,
        "Four times the work on twice the bytes": SHAPES,
        "has no use for faster products": CASES,
        "Give each head 128 numbers instead of 64": SHAPES,
    },
    "claims.md": {"it is a third of the samples": WORDS, "from the least to the largest": WORDS},
    "contributing.md": {
        "half a matmul where a mask hides the other half": WORDS,
        "*about twice* is 1.8 to 2.2": WORDS,
        "smaller shapes where there is": CASES,
        "claim D1 in the [ledger]": "names the claim",
        "Random inputs and zeros do not take the same time": "a rule for who measures; Measuring has the numbers",
    },
    "fused_mlp.md": {
        "One product twice as wide replaces two": SHAPES,
    },
    "fused_mlp_use.md": {
        "within a margin of the fastest": WORDS,
    },
    "linear.md": {"Steps further up do it faster": WORDS, "On a smaller GPU expect": CASES},
    "matmul_add.md": {
        "The smallest steps reach neither limit": NEXT_TO_IT,
        "The longer bar of each pair": CASES,
        "The first kept step is the widest": NEXT_TO_IT,
    },
    "measuring.md": {
        "the CPU's share almost vanishes": WORDS,
        "are larger than the L2 cache": "kept by the recorder, and said in each recording",
        "For the very smallest steps": CASES,
        "looks faster than it would alone": NEXT_TO_IT,
        "times it a third time": "a third time is a count here",
        "*about twice* is from 1.8 to 2.2": WORDS,
    },
    "mlp.md": {
        "Our guess: it is faster because": GUESS,
        "At 3072 columns that power is 4096": SHAPES,
    },
    "regimes.md": {
        "it waits for the largest": WORDS,
        "the CPU where it takes longer": WORDS,
        "Another one may multiply faster": CASES,
        "While the first limit is the largest": WORDS,
        "On a smaller GPU expect": CASES,
        "the slower of the two sides": CASES,
    },
}
"""Page -> words of a sentence -> why it may compare without a number."""
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
    assert not left, f"bind these to `#!fig ...`, or to a result below:\n{listed}"


def test_lists_are_of_pages_that_exist() -> None:
    assert ALLOWED.keys() <= PAGES.keys()


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
        ("- [Which is faster?](x.md#faster)", ()),
        ("- [Ours is faster](x.md#faster)", ("faster",)),
        ("## Why it is faster", ()),
        ('??? question "Guess: which is faster"', ()),
        ("It no longer runs. As long as you wait, it runs.", ()),
        ("It takes a few percent and almost\nhalf.", ("a few percent", "almost", "half")),
        ("The name `fastest` is code.", ()),
        ("- One.\n- Twice as\n  many.", ("Twice",)),
        ("**In your trace:** look for the slowest.", ()),
        ("**Why.** In your trace: ours is faster.", ("faster",)),
    ],
)
def test_a_comparison_is_seen(text: str, words: tuple[str, ...]) -> None:
    found = unbound_comparisons("p.md", text)
    assert tuple(word for sentence in found for word in sentence.words) == words


def test_the_line_of_a_sentence() -> None:
    (found,) = unbound_comparisons("p.md", "One.\n\nTwo. Three\nfour. Five is\nlonger.\n")
    assert (found.line, found.text) == (4, "Five is longer.")
