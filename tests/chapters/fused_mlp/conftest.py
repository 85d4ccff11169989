"""The default device's recordings, for each test to alter, and the initial state of each test of kernels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from snippets.fused_mlp.geglu import plans, support
from tests.chapters.altered import AlteredDevice
from tests.chapters.guarded import guarding


@pytest.fixture
def device() -> AlteredDevice:
    return AlteredDevice()


@pytest.fixture(autouse=True)
def initial(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same random numbers for each test, no plans or warnings of earlier ones."""
    torch.manual_seed(0)
    monkeypatch.setattr(plans, "PLANS", {})
    monkeypatch.setattr(support, "SAID", set())
    support.unsupported_device.cache_clear()


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Results are made inside buffers filled with NaN: what is not written stays NaN, what is written beside shows."""
    buffers: list[Tensor] = []
    monkeypatch.setattr(torch.Tensor, "new_empty", guarding(buffers))
    return buffers
