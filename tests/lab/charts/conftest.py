"""Drawings are made anew in every test, whatever an earlier build has kept."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setattr("snippets.lab.cache.PROJECT", tmp_path_factory.mktemp("cache"))
