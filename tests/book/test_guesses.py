"""Guesses about the book's own figures, and the budget of their script."""

from __future__ import annotations

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


def test_the_script_is_small() -> None:
    assert len((PROJECT / "docs/assets/js/guess.js").read_bytes()) <= 6 * 1024
