"""Guesses about the book's own figures, and the budget of their scripts."""

from __future__ import annotations

import gzip

import pytest

from snippets.lab.experiment import UnknownName
from snippets.lab.page.guesses import guess_choice, guess_number, guess_order
from snippets.lab.recording.device import PROJECT
from tests.lab.page.test_guesses import data
from tests.lab.samples import BOOK


def test_guesses_about_the_books_figures() -> None:
    assert data(guess_number(BOOK, "mlp.eager.kernels_per_step"))["answer"] == 5
    assert data(guess_order(BOOK, "mlp.order"))["answer"] == ["mm", "mm", "gelu", "mul", "mm"]
    assert data(guess_choice(BOOK, "claim:M4"))["answer"] == "differs"
    fused = data(guess_number(BOOK, "mlp.fused_us"))
    assert (fused["scale"], fused["suffix"]) == (1.0, " µs")
    with pytest.raises(UnknownName, match=r"no figure 'mlp\.no_such_figure'"):
        guess_number(BOOK, "mlp.no_such_figure")


def test_the_scripts_are_small() -> None:
    scripts = (PROJECT / f"docs/assets/js/{name}.js" for name in ("guess", "curtain"))
    assert sum(len(gzip.compress(script.read_bytes())) for script in scripts) <= 7 * 1024
