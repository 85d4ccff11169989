"""What tests of this chapter are given."""

from __future__ import annotations

import pytest

from tests.bench import AlteredDevice


@pytest.fixture
def altered() -> AlteredDevice:
    return AlteredDevice()
