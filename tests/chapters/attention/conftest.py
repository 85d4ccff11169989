"""Fixtures of this chapter's tests."""

import pytest

from tests.chapters.altered import AlteredDevice


@pytest.fixture
def altered() -> AlteredDevice:
    return AlteredDevice()
