"""The initial state of each test of the kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from snippets.fused_mlp.geglu import plans, support, tuning
from tests.chapters.fused_mlp.hopper.checks import GUARD


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same random numbers for each test, no choices or warnings of earlier tests; no candidate fails."""
    torch.manual_seed(0)
    monkeypatch.setattr(tuning, "TIMES_US", {})
    monkeypatch.setattr(tuning, "FAILED", {})
    monkeypatch.setattr(tuning, "choices", functools.cache(lambda gpu: {}))
    monkeypatch.setattr(tuning, "keep", lambda gpu, work, way, ways: way)
    monkeypatch.setattr(plans, "PLANS", {})
    monkeypatch.setattr(support, "SAID", set())
    yield
    assert tuning.FAILED == {}


@pytest.fixture
def untuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the first candidate and compile no other, which would take most of these tests' time."""
    monkeypatch.setattr(tuning, "choose", lambda work, ways, compile_all: next(iter(ways)))


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Results are made inside buffers filled with NaN: what is not written stays NaN, what is written beside shows."""
    buffers: list[Tensor] = []

    def new_empty(like: Tensor, *sizes: int) -> Tensor:
        shape = sizes if isinstance(sizes[0], int) else sizes[0]
        buffer = torch.full((math.prod(shape) + 2 * GUARD,), math.nan, dtype=like.dtype, device=like.device)
        buffers.append(buffer)
        return buffer[GUARD:-GUARD].view(shape)

    monkeypatch.setattr(torch.Tensor, "new_empty", new_empty)
    return buffers
