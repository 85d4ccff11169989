"""The world of the post, for every test a copy of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chapters.matmul_add.world import World, save_post


@pytest.fixture(scope="module")
def post(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("post")
    save_post(root)
    return root


@pytest.fixture
def world(post: Path, tmp_path: Path) -> World:
    return World(post, tmp_path)
