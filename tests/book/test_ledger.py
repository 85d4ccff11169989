"""The book's own ledger, and the budget of its script."""

from __future__ import annotations

import pytest

from snippets.lab.cache import start_build
from snippets.lab.page import ledger
from snippets.lab.page.ledger import ledger_list, status_counts
from snippets.lab.recording.device import PROJECT
from tests.lab.page.test_ledger import entries
from tests.lab.samples import BOOK, Markup


def test_the_books_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "all_devices", lambda root: (BOOK,))
    start_build()
    content = ledger_list(BOOK)
    by_id = {sentence.split()[0]: parts for sentence, *parts in entries(content)}
    assert any(part.startswith("≠ differs H200: ") for part in by_id["M4"])
    assert by_id["M1"][0] == "✓ holds H200: mm, mm, gelu, mul, mm"
    assert "Part 2: 5 kernels: GEMM, GEMM, GELU, mul, GEMM" in by_id["M1"]
    assert 'href="../measuring/#claim-d1"' in content
    assert Markup(status_counts(BOOK)).text.startswith("On the H200, of ")


def test_the_script_is_small() -> None:
    assert len((PROJECT / "docs/assets/js/ledger.js").read_bytes()) <= 4 * 1024
