"""Without a Chromium nothing here can run: said with its cure, and never overlooked where nothing may be skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.site.conftest import chromium

CURE = "sudo apt install chromium"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine with nothing on it; its one folder of programs is `tmp_path`."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CHROMIUM", "CI"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_none_is_a_skip(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(pytest.skip.Exception, match=CURE):
        chromium()


def test_none_is_a_failure_in_continuous_integration(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=CURE):
        chromium()


@pytest.mark.parametrize("name", ["chromium", "google-chrome-stable"])
def test_it_is_found_by_any_of_its_names(bare: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch(mode=0o755)
    assert chromium() == str(tmp_path / name)


def test_another_can_be_named(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("chromium", "mine"):
        (tmp_path / name).touch(mode=0o755)
    bare.setenv("CHROMIUM", str(tmp_path / "mine"))
    assert chromium() == str(tmp_path / "mine")
