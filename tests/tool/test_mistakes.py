"""Mistakes at the command line, a hundred and more: each is an exit code and a line that no terminal can obey."""

from __future__ import annotations

import errno
import gzip
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from kinetoscope.__main__ import COMMANDS, main
from tests.tool.simple import trace_json

HOSTILE = "\x1b[2J\u202e\x9b31m\n::error::x##[error]y"
ESCAPED = r"\x1b[2J\u202e\x9b31m\n::error::x## [error]y"
ODD_CONTENT = {
    "empty.json": b"",
    "space.json": b" \n",
    "text.json": b"not a trace",
    "null.json": b"null",
    "number.json": b"1e999",
    "list.json": b"[]",
    "object.json": b"{}",
    "events.json": b'{"traceEvents": null}',
    "odd_events.json": b'{"traceEvents": [null, 1, [], "x", {"ph": "X"}]}',
    "deep.json": b"[" * 100_000,
    "binary.json": bytes(range(256)),
    "cut.json.gz": gzip.compress(trace_json())[:30],
    "zip.json.gz": b"PK\x03\x04",
    "digest.json": b'{"format": "profiling-pytorch digest", "version": -1}',
    f"{HOSTILE.replace('/', '')}.json": b"{",
}
READERS = (
    ["summary"],
    ["summary", "--json"],
    ["doctor"],
    ["report"],
    ["report", "--json"],
    ["report", "--digest-only", "-o", "out.digest.json"],
    ["open", "--no-browser", "--timeout", "0.001"],
)
OPTIONS = (
    [], ["lst"], [HOSTILE], ["--", HOSTILE], ["--debug"], ["list"], ["summary", "--chek"],
    ["decode"], ["decode", "a", "b"], ["decode", f"--{HOSTILE}"],
    ["summary"], ["diff"], ["diff", "one.json"], ["diff", "a", "b", "c"], ["diff", "--before", "a.json"],
    ["diff", "a", "b", "--gate", "0"], ["diff", "a", "b", "--gate", HOSTILE], ["diff", "a", "b", "--gate", "nan"],
    ["report"], ["report", "a.json", "b.json"], ["report", "a.json", "--rank", "1"], ["report", "a", "--rank", "x"],
    ["report", "a.json", "--digest-only"], ["report", "a.json", "--digest-only", "-o", "-"],
    ["report", "good.json", "-o", "good.json"], ["report", "good.json", "-o", "none/x.html"],
    ["report", "good.json", "-o", "."], ["report", "good.json", "-o", "x" * 300], ["report", "good.json", "-o", "a\0b"],
    ["report", "good.json", "-o", f"none{HOSTILE}/x.html"], ["report", "good.json", "--json", "-o", "-"],
    ["report", "good.json", "-o", "good.json/x.html"], ["diff", "good.json", "none.json"], ["summary", "a\0b"],
    ["report", "good.json", "good.json", "good.json", "-o", "x.html"], ["diff", "good.json", "good.json/x"],
    ["open", "good.json", "--timeout", "0"], ["open", "good.json", "--timeout", HOSTILE], ["open", "a\0b"],
)  # fmt: skip


def mistakes() -> Iterator[list[str]]:
    """Arguments, run in a folder with the odd files and one good trace."""
    for reader, name in itertools.product(READERS, (*ODD_CONTENT, "none.json", "folder", "x" * 300, "good.json/x", "")):
        yield [*reader, name]
    yield from OPTIONS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, content in ODD_CONTENT.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "good.json").write_bytes(trace_json())
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assert_told(code: int, out: str, err: str) -> None:
    assert code in (1, 2)
    assert "Traceback" not in err
    assert "error: " in err.splitlines()[-1]
    assert all(line.isprintable() for line in f"{out}{err}".split("\n"))
    assert not any(line.lstrip().startswith("::") for line in f"{out}{err}".split("\n"))
    assert "##[" not in err


def assert_each_is_told(
    main: Callable[[list[str]], int],
    mistakes: Iterable[list[str]],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    at_least: int,
) -> None:
    made = 0
    before = sorted(path for path in folder.rglob("*"))
    for arguments in mistakes:
        try:
            code = main(arguments)
        except SystemExit as ended:  # of argparse
            code = int(ended.code or 0)
        out, err = capsys.readouterr()
        accepted = out and (arguments[:1] == ["doctor"] or (arguments[:1] == ["summary"] and code == 0))
        try:
            if not accepted:
                assert_told(code, out, err)
        except AssertionError as error:
            raise AssertionError(f"{arguments}: {code} {out[-300:]!r} {err[-300:]!r}") from error
        made += 1
    assert made >= at_least
    assert sorted(path for path in folder.rglob("*")) == before


def test_each_mistake_is_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_each_is_told(main, mistakes(), folder, capsys, at_least=140)


def test_a_hostile_name_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", HOSTILE]) == 2
    assert ESCAPED in capsys.readouterr().err.replace("\\\\", "\\")


@pytest.mark.parametrize("place", ["before", "after"])
def test_debug_shows_where_an_error_came_from(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["summary", "none.json"]
    assert main(["--debug", *arguments] if place == "before" else [*arguments, "--debug"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last):\n")
    assert err.splitlines()[-1].startswith("error: none.json: cannot be read")


def test_debug_after_two_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "--", "--debug"]) == 0
    assert capsys.readouterr().out.startswith("name       --debug\n")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_debug_is_in_every_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"] if command else ["--help"])
    assert "--debug, before or after any command" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "x\n.json"), r"x\n.json: No space left on device; free some"),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system; write to another place"),
        (PermissionError(errno.EACCES, "Permission denied", b"a"), "a: Permission denied; write to another place"),
        (RuntimeError(HOSTILE), f"RuntimeError: {ESCAPED}; run the command again with --debug"),
        (MemoryError(), "not enough memory; "),
        (RecursionError("too deep"), "RecursionError: too deep; "),
        (ModuleNotFoundError("No module named 'msgspec'"), "No module named 'msgspec'; install what is missing: pip"),
    ],
)  # fmt: skip
def test_whatever_a_command_raises(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("kinetoscope.trace.kernel_names.print_kernel_name", fail)
    assert main(["decode", "x"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"error: {line}")
    assert err.count("\n") == 1
