"""Slow text is made once for its inputs, and a read-only disk costs only time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from snippets.lab import cache
from snippets.lab.cache import cached, code_key, end_build, once, start_build


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(cache, "PROJECT", tmp_path)
    return tmp_path / ".cache" / "lab"


def test_a_text_is_made_once_for_its_key(folder: Path) -> None:
    made = []

    def make() -> str:
        made.append(1)
        return "µ" * 3

    assert [cached(("bars", 1), make), cached(("bars", 1), make), cached(("bars", 2), make)] == ["µµµ"] * 3
    assert len(made) == 2
    assert len(list(folder.iterdir())) == 2


def test_any_text_is_kept(folder: Path) -> None:
    """A name in a trace is any text, even half of a surrogate pair."""
    text = "\ud800 \r\n \0 日本"
    assert [cached("key", lambda: text), cached("key", lambda: "again")] == [text, text]


def test_without_a_writable_folder_it_is_made_each_time(folder: Path) -> None:
    folder.parent.write_text("a file where the folder should be")
    assert [cached("key", lambda: "first"), cached("key", lambda: "second")] == ["first", "second"]


def test_the_files_used_longest_ago_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_FILES", 2)
    monkeypatch.setattr(cache, "PRUNE_EVERY", 1)
    for number in range(3):
        cached(number, lambda: "text")
        newest = max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (number, number))
    made: list[int] = []
    cached(0, lambda: str(made.append(0)))
    cached(2, lambda: str(made.append(2)))
    assert made == [0]


def test_the_key_of_code_changes_with_a_file_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("A = 1")
    before = code_key(tmp_path)
    (tmp_path / "a.py").write_text("A = 2")
    code_key.cache_clear()
    assert code_key(tmp_path) != before
    assert code_key(tmp_path) == code_key(tmp_path / "a.py")


@once
def counted(name: str, *, times: int = 1) -> list[str]:
    """A new list for each call."""
    return [name] * times


def test_a_function_is_called_once_in_a_build_for_the_same_arguments() -> None:
    start_build()
    first, twice = counted("a"), counted("a", times=2)
    assert [counted("a"), counted("a", times=2)] == [["a"], ["a", "a"]]
    assert (counted("a") is first, counted("a", times=2) is twice, counted("b") is first) == (True, True, False)
    start_build()
    assert counted("a") is not first


def test_a_function_is_called_each_time_outside_of_a_build() -> None:
    assert counted("a") is not counted("a")
    start_build()
    inside = counted("a")
    end_build()
    assert counted("a") is not inside


def test_what_raises_is_asked_again() -> None:
    """A recording that was missing may be there at the next call."""
    answers = iter([KeyError("missing"), "there"])

    @once
    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, KeyError):
            raise answer
        return answer

    start_build()
    with pytest.raises(KeyError):
        ask()
    assert [ask(), ask()] == ["there", "there"]
