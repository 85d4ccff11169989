"""The initial state of each test on a Hopper GPU."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

from snippets.fused_mlp.geglu import tuning

CHOOSE = tuning.choose


@pytest.fixture(autouse=True)
def untuned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take the first candidate and compile no other, which would take most of these tests' time; none fails."""
    monkeypatch.setattr(tuning, "TIMES_US", {})
    monkeypatch.setattr(tuning, "FAILED", {})
    monkeypatch.setattr(tuning, "choices", functools.cache(lambda gpu: {}))
    monkeypatch.setattr(tuning, "keep", lambda gpu, work, way, ways: way)
    monkeypatch.setattr(tuning, "choose", lambda work, ways, compile_all: next(iter(ways)))
    yield
    assert tuning.FAILED == {}


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose as the package does, without the choices of earlier tests."""
    monkeypatch.setattr(tuning, "choose", CHOOSE)
