"""What tests of several rooms share: findings of chapters in place of the book's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from snippets.lab.finding.book import all_claims, findings

Book = Callable[..., None]


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> Iterator[Book]:
    """Makes these the findings of chapters, `book(mlp=samples.findings(claim()))`, and all there are."""

    def forget() -> None:
        findings.cache_clear()
        all_claims.cache_clear()

    def fill(**chapters: ModuleType) -> None:
        forget()
        for chapter, module in chapters.items():
            monkeypatch.setitem(sys.modules, f"snippets.{chapter}.findings", module)
        monkeypatch.setattr("snippets.lab.finding.book.chapters_with_findings", lambda: tuple(chapters))

    yield fill
    forget()
