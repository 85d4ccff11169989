"""What a recording says of its machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from snippets.lab.capture.environment import commit, environment, nvidia_smi


def test_the_commit_of_a_recording(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COMMIT", "0123456789abcdef")
    assert commit() == "0123456789ab"
    monkeypatch.delenv("COMMIT")
    assert commit(tmp_path) == "unknown"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() == "unknown", "a machine without git can record"
    assert nvidia_smi("driver_version") == {}


def test_the_environment_of_a_cpu() -> None:
    place = environment("cpu")
    assert place.versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert (place.driver, place.multiprocessors, place.clocks) == ("", 0, {})
