"""The default device, whose recordings a test may change."""

import pytest

from tests.chapters.altered import AlteredDevice


@pytest.fixture
def device() -> AlteredDevice:
    return AlteredDevice()
