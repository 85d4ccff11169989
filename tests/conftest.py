"""Tests marked `gpu` are skipped, with the reason, where there is no CUDA GPU."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if not needing:
        return
    import torch

    if not torch.cuda.is_available():
        for item in needing:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU; torch.cuda.is_available() is False here"))
