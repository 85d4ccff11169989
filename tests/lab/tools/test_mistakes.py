"""Mistakes at the command line of the book: each is an exit code and a line that no terminal can obey."""

from __future__ import annotations

import errno
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from snippets.lab.__main__ import COMMANDS, main
from tests.lab.samples import DEVICE
from tests.tool.test_mistakes import ESCAPED, HOSTILE, ODD_CONTENT, assert_each_is_told, folder as folder

ODD_NAMES = (
    "", " ", ".", "..", "/", "a/b/c", "../mlp", "mlp/../mlp", "mlp/", "/eager", "MLP", "x" * 5000, "%00", "mlp;ls",
    "$(id)", "日本", "\udcff", "é", "null", "-1", "0", "1e9", "*", "?", "mlp/eager[batch=1]", "mlp eager", HOSTILE,
    f"mlp/{HOSTILE}", f"labs/{HOSTILE}",
)  # fmt: skip
OPTIONS = (
    [], ["lst"], [HOSTILE], ["--", HOSTILE], ["--debug"], ["report"], ["list", "--chek"], ["list", HOSTILE],
    ["chapter", "a", "b"],
    ["claims", "--json", "--accept"], ["claims", "--device"], ["record", "--minutes", "0"],
    ["record", "--minutes", "x"], ["record", "--fresh", "--minutes", "9"],
    ["serve", "--port", "x"], ["serve", "--port", HOSTILE], ["serve", "x"],
    ["prepare", "x"], ["prepare", "--no"], ["import"], ["import", "a", "b"], ["import", "a\0b"], ["import", "."],
    ["run", "linear/eager", "--batch", "9" * 5000], ["run", "linear/eager", "--batch", HOSTILE],
    ["run", "linear/eager", "--device", HOSTILE], ["run", "linear/eager", f"--{HOSTILE}", "4"],
    ["run", "linear/eager", "--trace-dir", "good.json"], ["run", "linear/eager", "--trace-dir", HOSTILE],
    ["run", "linear/eager", "--trace-dir"], ["run", "linear/eager", "extra"], ["run", "mlp/liger", "--device", "cpu"],
)  # fmt: skip


def mistakes() -> Iterator[list[str]]:
    """Arguments, run in a folder with the odd files and one good trace."""
    for name in (*ODD_CONTENT, "none.json", "folder", "x" * 300, "good.json/x", ""):
        yield ["import", name]
    for command, name in itertools.product(("run", "record", "chapter"), ODD_NAMES):
        yield [command, "--", name]
    for command, name in itertools.product(("list", "claims"), ODD_NAMES[1:]):
        yield [command, f"--device={name}"]
    yield from OPTIONS


def test_each_mistake_is_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_each_is_told(main, mistakes(), folder, capsys, at_least=100)


@pytest.mark.parametrize("command", [["record", "--"], ["claims", "--device"]])
def test_a_hostile_name_is_escaped(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, HOSTILE]) == 2
    assert ESCAPED in capsys.readouterr().err.replace("\\\\", "\\")


RECORDINGS = ("a file", "a folder for a recording", "null", "text", "a hostile device", "a hostile chapter", "a loop")


def broken_recordings(root: Path, fault: str) -> None:
    chapter = root / DEVICE / "mlp"
    if fault == "a file":
        root.write_bytes(b"x")
        return
    chapter.mkdir(parents=True)
    if fault == "a folder for a recording":
        (chapter / "eager.json").mkdir()
    if fault == "a loop":
        (chapter / "eager.json").symlink_to("eager.json")
    if fault in ("null", "text"):
        (chapter / "eager.json").write_text(fault)
    if fault.startswith("a hostile"):
        other = root / HOSTILE / "mlp" if fault == "a hostile device" else root / DEVICE / HOSTILE
        other.mkdir(parents=True)
        (other / "eager.json").write_text(json.dumps({"environment": {"device": HOSTILE}}))


@pytest.mark.parametrize("fault", RECORDINGS)
def test_list_of_broken_recordings(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECORDINGS", str(tmp_path / "recordings"))
    broken_recordings(tmp_path / "recordings", fault)
    code = main(["list"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert all(line.isprintable() for line in f"{out}{err}".split("\n"))
    assert not any(line.lstrip().startswith("::") for line in out.split("\n"))
    if fault in ("a folder for a recording", "a loop", "null", "text"):
        assert "unreadable: eager.json" in out


def test_debug_of_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "mlp/liger", "--device", "cpu", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_missing_package_has_its_cure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*arguments: object) -> None:
        raise ModuleNotFoundError("No module named 'mkdocs'")

    monkeypatch.setattr("snippets.lab.tools.claims.command", fail)
    assert main(["claims"]) == 1
    assert capsys.readouterr().err == "error: No module named 'mkdocs'; install what is missing: make setup\n"


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_debug_is_in_every_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"] if command else ["--help"])
    assert "--debug, before or after any command" in capsys.readouterr().out


def test_a_chapter_on_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from snippets.lab.tools.scaffold import create_chapter
    from tests.lab import copies

    root = copies.project(tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("snippets.lab.tools.scaffold.write_whole", full)
    with pytest.raises(OSError, match="No space left"):
        create_chapter("rmsnorm", root)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
