"""The command `report`: files, JSON, errors."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from kinetoscope.__main__ import main
from kinetoscope.report.trace_report import report_data
from tests.tool.events import HOST
from tests.tool.report.samples import SHAPES, SMALL, SYNC, diagnosed, traced, write


def test_the_file_lies_beside_the_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = write(tmp_path)
    before = trace.read_bytes()
    assert main(["report", str(trace)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.json", "train.report.html"]
    assert trace.read_bytes() == before
    out = capsys.readouterr().out
    assert out.startswith("A step takes 100 µs and the GPU works 45 % of it. ")
    assert out.endswith(f": {tmp_path / 'train.report.html'}\n")
    assert out.count("\n") == 1


def test_two_traces_never_get_one_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = write(tmp_path)
    packed = tmp_path / "train.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    first, second = tmp_path / "train.report.html", tmp_path / "train.json.gz.report.html"
    for trace, path in [(plain, first), (packed, second), (plain, first), (packed, second)]:
        assert main(["report", str(trace)]) == 0
        assert capsys.readouterr().out.endswith(f": {path}\n")
    assert ["<title>train.json: report<" in path.read_text(encoding="utf-8") for path in (first, second)] == [
        True,
        False,
    ]
    assert len(list(tmp_path.iterdir())) == 4


def test_a_file_of_another_origin_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, paths = write(tmp_path), [tmp_path / "train.report.html", tmp_path / "train.json.report.html"]
    for path in paths:
        path.write_text("my own notes")
    assert main(["report", str(trace)]) == 1
    assert capsys.readouterr().err == f"error: {paths[1]} is not a report on train.json; name a file with -o\n"
    assert [path.read_text() for path in paths] == ["my own notes"] * 2
    paths[1].unlink()
    assert main(["report", str(trace)]) == 0
    assert capsys.readouterr().out.endswith(f": {paths[1]}\n")
    assert paths[0].read_text() == "my own notes"


def test_the_longest_name_with_characters_that_html_escapes(tmp_path: Path) -> None:
    trace = tmp_path / ("&\u202e" + 230 * '"' + ".json")
    write(tmp_path).rename(trace)
    assert [main(["report", str(trace)]) for _ in range(2)] == [0, 0]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("place", ["before", "after"])
def test_quiet_prints_nothing_but_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str) -> None:
    for trace, code in [(write(tmp_path), 0), (tmp_path / "none.json", 2)]:
        arguments = ["report", str(trace)]
        assert main(["-q", *arguments] if place == "before" else [*arguments, "--quiet"]) == code
        out, err = capsys.readouterr()
        assert (out, err[:7]) == ("", "error: " if code else "")
    assert (tmp_path / "train.report.html").is_file()
    assert main(["report", str(tmp_path / "train.json")]) == 0
    assert capsys.readouterr().out.endswith(".report.html\n"), "only those calls were quiet"


@pytest.mark.parametrize("is_there", [True, False])
def test_the_browser_shows_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: shown.append(address) or is_there)
    monkeypatch.chdir(tmp_path)
    write(tmp_path).rename("a b.json")
    assert main(["report", "a b.json", "--open"]) == 0
    (address,) = shown
    assert address == (tmp_path / "a b.report.html").as_uri()
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith(" a b.report.html" if is_there else f"no browser here; open the report in one: {address}")


def test_a_file_by_name_replaces_the_old_one(tmp_path: Path) -> None:
    trace, out = write(tmp_path), tmp_path / "slow.html"
    out.write_text("old")
    assert main(["report", str(trace), "-o", str(out)]) == 0
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_to_standard_output(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["report", str(write(tmp_path)), "-o", "-"]) == 0
    out = capfdbinary.readouterr().out
    assert out.startswith(b"<!doctype html>")
    assert out.endswith(b"</html>\n")
    assert [path.name for path in tmp_path.iterdir()] == ["train.json"]


def test_json_writes_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = write(tmp_path)
    assert main(["report", str(trace), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["kernels_per_step"] == 1
    assert isinstance(data["findings"], list)
    assert [path.name for path in tmp_path.iterdir()] == ["train.json"]


def test_json_of_findings() -> None:
    data = report_data(diagnosed(traced(), SMALL, SYNC, SHAPES))
    call = {"name": "cudaStreamSynchronize", "kind": "runtime call", "start_us": 40.0, "duration_us": 50.0}
    copy = {"name": "Memcpy DtoD (Device -> Device)", "kind": "memcpy", "start_us": 80.0, "duration_us": 5.0}
    assert data["findings"] == [
        {
            "id": "sync:ed183d67",
            "rule": "sync",
            "severity": "high",
            "title": "The CPU waits <50 us>",
            "where": "train.py:3",
            "ceiling_us_per_step": 30.0,
            "ceiling_share": 0.3,
            "is_once": False,
            "evidence_us_per_step": 50.0,
            "evidence": [
                {"metric": "calls that wait", "value": 1.0, "unit": "calls"},
                {"metric": "longest event", "value": 50.0, "unit": "us"},
            ],
            "events": [{**call, "device": None, "stream": None, "thread": f"{HOST}/{HOST}"}],
            "confidence": "high",
            "false_positive": "The wait is wanted.",
            "advice": "Wait later.",
            "source": "a list, https://example.org/rules.",
            "page": "your_trace/#rule-sync",
        },
        {
            "id": "small",
            "rule": "small",
            "severity": "low",
            "title": "One small copy",
            "where": "",
            "ceiling_us_per_step": 2.0,
            "ceiling_share": 0.02,
            "is_once": False,
            "evidence_us_per_step": 5.0,
            "evidence": [{"metric": "longest event", "value": 5.0, "unit": "us"}],
            "events": [{**copy, "device": 0, "stream": 7, "thread": None}],
            "confidence": "medium",
            "false_positive": "",
            "advice": "Leave it.",
            "source": "our own",
            "page": "your_trace/#rule-small",
        },
    ]
    assert data["cannot_tell"] == [{"rule": "shapes", "reason": "no shapes", "option": "record_shapes=True"}]


@pytest.mark.parametrize("name", ["train.json", "other.json.gz", "link.html"])
def test_a_trace_is_never_replaced(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    trace = write(tmp_path)
    before = trace.read_bytes()
    os.link(trace, tmp_path / "link.html")
    assert main(["report", str(trace), "-o", str(tmp_path / name)]) == 2
    assert "would replace a trace; give -o a name that ends in .html" in capsys.readouterr().err
    assert trace.read_bytes() == before


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "missing" / "a.html"
    assert main(["report", str(write(tmp_path)), "-o", str(out)]) == 1
    assert capsys.readouterr().err == (
        f"error: cannot write {out} (No such file or directory); choose another file with -o\n"
    )


def test_a_folder_as_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(write(tmp_path)), "-o", str(tmp_path)]) == 2
    assert "is a folder; give -o a file in it" in capsys.readouterr().err


def test_json_and_standard_output_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(write(tmp_path)), "--json", "-o", "-"]) == 2
    assert "both print" in capsys.readouterr().err


def test_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.json"
    path.write_text("no")
    assert main(["report", str(path)]) == 2
    assert "is not a .json or .json.gz trace" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        (lambda path: path.symlink_to("victim.txt"), "a link"),
        (lambda path: path.symlink_to("nowhere"), "a link"),
        (os.mkfifo, "not a plain file"),
    ],
)
def test_the_default_output_is_no_link_and_no_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: Callable[[Path], None], kind: str
) -> None:
    """Such a file may have come with the trace, in an unpacked folder."""
    trace, beside = write(tmp_path), tmp_path / "train.report.html"
    (tmp_path / "victim.txt").write_text("whole")
    place(beside)
    names = sorted(os.listdir(tmp_path))
    assert main(["report", str(trace)]) == 1
    assert capsys.readouterr().err == (
        f"error: {beside} is {kind}, and nobody named it; delete it, or name a file with -o\n"
    )
    assert sorted(os.listdir(tmp_path)) == names
    assert (tmp_path / "victim.txt").read_text() == "whole"


def test_a_link_that_somebody_named_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link.html").symlink_to("target.html")
    assert main(["report", str(write(tmp_path)), "-o", str(tmp_path / "link.html")]) == 0
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "target.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("name", [".", "..", "/", ""])
def test_a_folder_as_trace(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", name]) == 2
    assert capsys.readouterr().err == f"error: {name or '.'}: is a folder; give a trace in it, a .json or .json.gz\n"


@pytest.mark.parametrize("name", ["a b;$(touch pwned).json", "it's `x`.json", "-x.json", "--help.json"])
def test_the_command_on_the_page_is_safe_to_copy(tmp_path: Path, name: str) -> None:
    trace = tmp_path / name
    write(tmp_path).rename(trace)
    assert main(["report", str(trace), "-o", str(tmp_path / "a.html")]) == 0
    (line,) = re.findall(r'aria-label="Command"><code>(.*?)</code>', (tmp_path / "a.html").read_text(encoding="utf-8"))
    *_, command, argument = shlex.split(unescape(line))
    assert (command, argument) == ("open", f"./{name}" if name.startswith("-") else name)
