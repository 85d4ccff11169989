"""The command line of the tool in this process: its help, its name as it was called, what it prints and exits with."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kinetoscope import __version__
from kinetoscope.__main__ import COMMANDS, main
from kinetoscope.terminal import called, expand_patterns, quoted
from tests.tool.recorded import PROJECT
from tests.tool.simple import trace_json

TRACE = PROJECT / "tests/traces/mlp_eager.json.gz"

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command in this process; its exit code, what it printed, and what it printed on standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_with_an_example(call: Call, command: str) -> None:
    code, out, err = call(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: kinetoscope {command} ")
    assert f"\n\n  kinetoscope {command}" in out
    assert "%" not in out.replace("5 % of it", "")


def test_the_commands_are_listed_with_what_they_do(call: Call) -> None:
    code, out, err = call("--help")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines() if line.startswith("    ") and line[4] != " "] == [*COMMANDS]


def test_the_version(call: Call) -> None:
    assert call("--version") == (0, f"kinetoscope {__version__}\n", "")


@pytest.mark.parametrize(
    ("path", "environment", "name"),
    [
        ("/opt/venv/bin/kinetoscope", {}, "kinetoscope"),
        ("/opt/venv/bin/kinetoscope", {"UV": "/usr/bin/uv"}, "kinetoscope"),  # uv run, in a project
        ("/cache/uv/archive-v0/x/bin/kinetoscope", {"UV": "/usr/bin/uv"}, "uvx kinetoscope"),
        ("/home/me/.cache/pipx/abbe520/bin/kinetoscope", {}, "pipx run kinetoscope"),
        ("/home/me/.local/share/pipx/venvs/kinetoscope/bin/kinetoscope", {}, "kinetoscope"),  # pipx install
        ("/opt/venv/lib/python3.13/site-packages/kinetoscope/__main__.py", {}, "python -m kinetoscope"),
        ("/opt/venv/lib/python3.13/site-packages/pytest/__main__.py", {}, "kinetoscope"),
        ("", {}, "kinetoscope"),
    ],
)
def test_messages_name_the_command_as_it_was_called(
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    environment: dict[str, str],
    name: str,
) -> None:
    monkeypatch.setattr(sys, "argv", [path])
    monkeypatch.delenv("UV", raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert call("reportt")[2].splitlines()[-1] == f"{name}: error: no command 'reportt'; did you mean report?"
    assert f"\n  {name} diff before.json.gz after.json.gz\n" in call("diff", "--help")[1]
    (tmp_path / "a.json").write_bytes(trace_json())
    assert call("report", str(tmp_path / "a.json"))[0] == 0
    html = (tmp_path / "a.report.html").read_text(encoding="utf-8")
    assert f"<code>{name} open a.json</code>" in html
    assert f"<dt>made with</dt><dd>{name} report, version {__version__}</dd>" in html


@pytest.mark.parametrize(
    ("path", "before"),
    [
        ("/cache/uv/archive-v0/x/bin/kinetoscope", "uvx --from"),
        ("/home/me/.cache/pipx/abbe520/bin/kinetoscope", "pipx run --spec"),
    ],
)
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.org/book/wheel/k.whl", "https://example.org/book/wheel/k.whl"),
        ("https://example.org/k.whl?a&b", "'https://example.org/k.whl?a&b'"),
        ("file:///home/me/k.whl", ""),
    ],
)
def test_messages_name_the_address_of_a_wheel_that_no_index_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str, before: str, url: str, shown: str
) -> None:
    about = tmp_path / "kinetoscope-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: kinetoscope\n")
    (about / "direct_url.json").write_text(json.dumps({"url": url, "archive_info": {}}))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "argv", [path])
    monkeypatch.setenv("UV", "/usr/bin/uv")
    assert called() == (f"{before} {shown} kinetoscope" if shown else f"{before.partition(' --')[0]} kinetoscope")


def test_help_imports_no_command_and_no_package() -> None:
    script = """
import sys
from kinetoscope.__main__ import main
try:
    main(["--help"])
finally:
    print(sorted(name for name in sys.modules if name.startswith("kinetoscope")), "msgspec" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=True)
    modules = ["", ".__main__", ".program", ".terminal", ".trace", ".trace.errors", ".trace.progress", ".trace.text"]
    assert done.stdout.splitlines()[-1] == f"{[f'kinetoscope{name}' for name in modules]} False"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        *((command, "-q, --quiet no progress, no line about a file that was written") for command in COMMANDS),
        ("open", "seconds to wait for the browser (default 300)"),
        *((command, "print JSON") for command in ("summary", "decode")),
    ],
)
def test_options_are_explained(call: Call, command: str, text: str) -> None:
    assert text in " ".join(call(command, "--help")[1].split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "\nkinetoscope: error: no command; the commands are report, "),
        (["reportt", "a.json"], "\nkinetoscope: error: no command 'reportt'; did you mean report?\n"),
        (["list"], "error: no command 'list'; the commands are report, "),
        (
            ["my trace.json.gz"],
            "error: no command 'my trace.json.gz'; for a file: kinetoscope report 'my trace.json.gz'\n",
        ),
        ([__file__], f"for a file: kinetoscope report {__file__}\n"),
        (["report", "a.json", "--open", "--json"], "--open shows a file; give -o FILE.html"),
        (["report", "a.json", "--open", "-o", "-"], "--open shows a file; give -o FILE.html"),
        (["summary", "--chek"], "the following arguments are required: TRACE"),
        (["summary", "x", "--chek"], "kinetoscope summary: error: unrecognized arguments: --chek\n"),
        (["report", "x", "--outptu=y", "--x"], "unrecognized arguments: --outptu=y --x; did you mean --output?\n"),
        *(
            (["open", "trace.json", "--timeout", text], f"must be a positive number of seconds, not '{text}'")
            for text in ("0", "-1", "nan", "soon")
        ),
        (["summary", str(PROJECT / "README.md")], f"{PROJECT / 'README.md'} is not a .json or .json.gz trace\n"),
    ],
)
def test_usage_errors(call: Call, arguments: list[str], message: str) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read (No such file or directory)"),
        (TRACE.read_bytes()[:20], "the gzip stream is cut off; copy or record the trace again"),
        (b"", "empty; record the trace again"),
        (b'{"a": 1}', "JSON, but not a Kineto trace"),
        (b"\x00\x01\x02", "trace.json.gz is not a .json or .json.gz trace"),
        (b'{"traceEvents": [', "is not complete JSON"),
        (b'{"traceEvents": []}', "no active steps"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_summary_of_a_bad_file(
    call: Call, tmp_path: Path, content: bytes | None, message: str, options: list[str]
) -> None:
    path = tmp_path / "trace.json.gz"
    if content is not None:
        path.write_bytes(content)
    code, out, err = call("summary", str(path), *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err


def test_summary_as_text_and_as_json(call: Call) -> None:
    code, out, err = call("summary", str(TRACE), "--json")
    assert (code, err) == (0, "")
    assert (json.loads(out)["kernels_per_step"], json.loads(out)["steps"]) == (5, 3)
    code, out, err = call("summary", str(TRACE))
    assert (code, err) == (0, "")
    assert "work per step      5 kernels" in out


def test_decode_as_text_and_as_json(call: Call) -> None:
    code, out, err = call("decode", "nvjet_sm90_tst_128x64", "--json")
    assert (code, err) == (0, "")
    assert (json.loads(out)["library"], json.loads(out)["tile"]) == ("cublas", "128x64")
    assert "\nlibrary    cublas\n" in call("decode", "nvjet_sm90_tst_128x64")[1]


@pytest.mark.parametrize(
    ("name", "posix", "windows"),
    [
        ("a.json", "a.json", "a.json"),
        (r"C:\runs\a.json", r"'C:\runs\a.json'", r"C:\runs\a.json"),
        ("a b.json", "'a b.json'", '"a b.json"'),
        ("a&b's.json", """'a&b'"'"'s.json'""", '"a&b\'s.json"'),
    ],
)
def test_a_name_is_quoted_for_the_shell_of_the_system(name: str, posix: str, windows: str) -> None:
    assert (quoted(name, is_windows=False), quoted(name, is_windows=True)) == (posix, windows)


def test_patterns_are_expanded_where_no_shell_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("rank1.json", "rank0.json", "-odd.json"):
        Path(name).touch()
    given = ["report", "rank*.json", "none*.json", "-o*", "C:\\a\\b.json"]
    assert expand_patterns(given) == ["report", "rank0.json", "rank1.json", *given[2:]]


HOSTILE_NAMES = ("##[error]spoof", "::error::spoof", "##[add-mask]a", f"{'x' * 90} ::error::wrapped")


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize("command", ["summary", "report", "diff", "doctor", "decode"])
def test_no_command_of_a_log_on_standard_output(call: Call, tmp_path: Path, command: str, options: list[str]) -> None:
    """GitHub reads `##[` anywhere in a line of a log, and `::` at its start."""
    for name in HOSTILE_NAMES:
        path = tmp_path / f"{name[:20]}.json"
        path.write_bytes(trace_json(op=name, name=name))
        other = tmp_path / "other.json"
        other.write_bytes(trace_json())
        given = {"decode": [name], "diff": [str(path), str(other)]}.get(command, [str(path)])
        code, out, _ = call(command, *options, *(["--"] if command == "decode" else []), *given)
        assert code in (0, 1)
        assert "##[" not in out
        assert not any(line.lstrip().startswith("::") for line in out.splitlines())
        if options and command in ("summary", "decode"):
            assert name in str(json.loads(out)), "the value is what it was"
