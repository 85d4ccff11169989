"""The default device's recordings, for each test to alter."""

from __future__ import annotations

import pytest

from tests.chapters.altered import AlteredDevice


@pytest.fixture
def device() -> AlteredDevice:
    return AlteredDevice()
