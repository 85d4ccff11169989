"""The book's own ledger, and the budget of its script."""

from __future__ import annotations

from snippets.lab.page.ledger import ledger_table, status_counts
from snippets.lab.recording.device import PROJECT
from tests.lab.page.test_ledger import rows
from tests.lab.samples import BOOK, Markup


def test_the_books_ledger() -> None:
    content = ledger_table(BOOK)
    by_id = {row[0]: row for row in reversed(rows(content))}  # the first device's
    assert by_id["M4"][1] == "≠ differs"
    assert by_id["M1"][3:5] == ["5 kernels: GEMM, GEMM, GELU, mul, GEMMPart 2", "mm, mm, gelu, mul, mm"]
    assert 'href="../measuring/#claim-d1"' in content
    assert Markup(status_counts(BOOK)).text.startswith("On the H200, of ")


def test_the_script_is_small() -> None:
    assert len((PROJECT / "docs/assets/js/ledger.js").read_bytes()) <= 3 * 1024
