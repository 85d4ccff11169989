"""Files are replaced together: a fault while they are written leaves all of them as they were."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.files import new_file, write_together, write_whole
from kinetoscope.terminal import CommandError

OLD, NEW = {"a": b"old a", "b": b"old b", "c": b"old c"}, {"a": b"new a", "b": None, "c": b"new c"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in OLD.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def found(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write(folder: Path) -> None:
    write_together({folder / name: content for name, content in NEW.items()})


def at_call(number: int, act: Callable[[], None], real: Callable[..., Any]) -> Callable[..., Any]:
    """A function that acts before its call of this number."""
    calls = iter(range(1, 100))

    def call(*arguments: Any) -> Any:
        if next(calls) == number:
            act()
        return real(*arguments)

    return call


def full() -> None:
    raise OSError(28, "No space left on device")


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_what_is_given_replaces_what_was(folder: Path) -> None:
    write(folder)
    assert found(folder) == {"a": b"new a", "c": b"new c"}
    write_whole(folder / "a", b"whole")
    assert found(folder)["a"] == b"whole"


@pytest.mark.parametrize("act", [full, ctrl_c])
@pytest.mark.parametrize("number", [1, 2])
def test_a_fault_while_they_are_written_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], number: int
) -> None:
    monkeypatch.setattr(os, "fsync", at_call(number, act, os.fsync))
    with pytest.raises((OSError, KeyboardInterrupt)):
        write(folder)
    assert found(folder) == OLD


@pytest.mark.parametrize("number", [1, 2])
def test_ctrl_c_waits_while_they_are_moved(folder: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(os, "replace", at_call(number, ctrl_c, os.replace))
    with pytest.raises(KeyboardInterrupt):
        write(folder)
    assert found(folder) == {"a": b"new a", "c": b"new c"}
    assert signal.getsignal(signal.SIGINT) is before


def test_a_move_that_fails_leaves_whole_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones are moved; no other file is left."""
    monkeypatch.setattr(os, "replace", at_call(2, full, os.replace))
    with pytest.raises(OSError, match="No space"):
        write(folder)
    assert found(folder) == {"a": b"new a", "c": b"old c"}


def test_a_link_in_the_place_of_the_new_file_is_not_followed(folder: Path) -> None:
    """A stranger's folder may have one for each number that a process can have."""
    (folder / f".a.{os.getpid()}.new").symlink_to("victim")
    write_whole(folder / "a", b"whole")
    assert found(folder) == {**OLD, "a": b"whole"}


@pytest.mark.parametrize("act", [full, ctrl_c])
def test_a_new_file_takes_its_place_at_the_end_or_not_at_all(folder: Path, act: Callable[[], None]) -> None:
    with new_file(folder / "a") as file:
        file.write(b"new a")
        assert found(folder)["a"] == b"old a"
    (folder / "link").symlink_to(folder / "a")
    with new_file(folder / "link") as file:
        file.write(b"by a link")
    assert found(folder) == OLD | {"a": b"by a link", "link": b"by a link"}
    with pytest.raises((CommandError, KeyboardInterrupt)), new_file(folder / "b"):
        act()
    assert found(folder)["b"] == b"old b"
    assert len(found(folder)) == 4


@pytest.mark.parametrize(("name", "message"), [("", "is not a plain file"), ("no/a", "cannot write .*No such file")])
def test_where_no_file_can_be(folder: Path, name: str, message: str) -> None:
    with pytest.raises(CommandError, match=message), new_file(folder / name):
        pass
