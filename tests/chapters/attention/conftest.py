"""Fixtures of this chapter's tests."""

from __future__ import annotations

import pytest

from tests.chapters.altered import AlteredDevice


@pytest.fixture
def altered() -> AlteredDevice:
    return AlteredDevice()
