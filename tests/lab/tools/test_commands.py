"""The command line of the book in this process: what it prints and exits with, and never a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.summary import summary_text
from kinetoscope.trace.totals import summarize
from snippets.lab.__main__ import COMMANDS, main
from snippets.lab.capture.ranks import RankError
from snippets.lab.experiment import chapters, find
from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.loading import load_recording
from snippets.lab.tools.archive import pack_archive
from tests.lab.samples import BOOK, environment, recordings, sample, save_all, untied

TINY = ["--batch", "4", "--in_dim", "8", "--out_dim", "16", "--device", "cpu"]

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
    assert out.startswith(f"usage: python -m snippets.lab {command} ")
    assert f"\n\n  python -m snippets.lab {command}" in out


def test_the_commands_are_listed_with_what_they_do(call: Call) -> None:
    code, out, err = call("--help")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines() if line.startswith("    ") and line[4] != " "] == [*COMMANDS]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("list", "exit with 1 if a recording for nvidia-h200 is stale or unreadable"),
        ("record", "then pack all recordings of this device, old and new, as .tar.gz"),
        ("serve", "port (default 8000)"),
        ("claims", "print JSON"),
    ],
)
def test_options_are_explained(call: Call, command: str, text: str) -> None:
    assert text in " ".join(call(command, "--help")[1].split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "error: no command; the commands are list, "),
        (["lst"], "error: no command 'lst'; did you mean list?\n"),
        (["list", "--chek"], "unrecognized arguments: --chek"),
        (["run", "linear/eager", "--batsch", "4"], "unrecognized arguments: --batsch 4"),
        (["run", "linear/eager", "--batch", "four"], "argument --batch: invalid int value: 'four'"),
        (["run", "linear/eager", "--batch", "0"], "--batch 0: must be at least 1"),
        (["run", "linear/eager", "--trace-dir", __file__], "is a file; give a folder"),
    ],
)
def test_usage_errors(call: Call, arguments: list[str], message: str) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "mlp/eagr"], "no experiment 'mlp/eagr'; did you mean mlp/eager or "),
        (["run", "mpl/eager"], "no chapter 'mpl'; did you mean mlp"),
        (["record", "mlp/eagr"], "no experiment 'mlp/eagr'; did you mean mlp/eager or "),
        (["record", "mlp", "liner"], "no chapter 'liner'; did you mean linear"),
        (["run", "linear"], "run takes one experiment, CHAPTER/EXPERIMENT: linear/eager linear/compiled "),
        (["run"], f"run takes one experiment, CHAPTER/EXPERIMENT: {' '.join(chapters())}"),
        (["run", "linear/eager/x", *TINY], "no experiment 'linear/eager/x'"),
        (["run", "labs/mlp"], f"labs/mlp is a notebook: open {Path('docs/labs/mlp.ipynb')}\n"),
        (["run", "labs/mpl"], "no notebook 'labs/mpl'; did you mean labs/mlp"),
        (["record", "labs/mpl"], "no notebook 'labs/mpl'; did you mean labs/mlp"),
        (["list", "--device", "h200"], "no recordings for 'h200'; known: nvidia-h200"),
        (["claims", "--device", "h200"], "no recordings for 'h200'; known: nvidia-h200"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(
    call: Call, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(PROJECT)
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")


def test_run_lists_the_parameters_of_its_experiment(call: Call) -> None:
    code, out, err = call("run", "mlp/eager", "--help")
    assert (code, err) == (0, "")
    for name, default in find("mlp/eager")[0].parameters.items():
        assert f"--{name} {name.upper()}" in out
        assert f"default {default}\n" in out
    assert "--trace-dir DIR" in out


def test_run_profiles_here_and_writes_a_trace(call: Call, tmp_path: Path) -> None:
    code, out, err = call("run", "linear/eager", *TINY, "--trace-dir", str(tmp_path / "new" / "traces"))
    assert (code, err) == (0, "")
    assert out.startswith("linear/eager on cpu: batch=4 in_dim=8 out_dim=16\n")
    (path,) = tmp_path.rglob("*.json")
    assert path == tmp_path / "new" / "traces" / "linear_eager_4_8_16.json"
    assert f"trace: {path}\n  in Perfetto:   python -m kinetoscope open {path}\n" in out
    assert "kinetoscope summary" not in out, "a trace of a CPU has no kernels to sum up"
    assert "Self CPU %" in out
    assert "aten::addmm" in out
    assert "relative error " in out
    trace = read_trace(path)
    assert [step.name for step in trace.steps] == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    assert [op.input_shapes[1] for op in trace.cpu_ops if op.name == "aten::addmm"] == [(4, 8)] * 3
    text = summary_text(summarize(trace))
    assert "note               no GPU kernels, no CUDA call and no GPU in this trace: " in text
    assert "aten::addmm" in text


def test_the_traceback_of_a_rank_has_lines(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a rank, which has escape codes of a terminal, as `run_ranks` raises it."""
    told = "rank 1: Traceback (most recent call last):\n  File \"a.py\", line 16\nNameError: name 'los' \x1b[31m"

    def profile_here(*_: object) -> None:
        raise RankError(told)

    monkeypatch.setattr("snippets.lab.capture.profile_here.profile_here", profile_here)
    code, _, err = call("run", "linear/eager", *TINY)
    assert code == 1
    assert err.splitlines() == [
        "Traceback (most recent call last):",
        '  File "a.py", line 16',
        "NameError: name 'los' \\x1b[31m",
        "error: rank 1: failed; its traceback is above",
    ]
    told = "rank 0, 1: did not end within 60 s"
    assert call("run", "linear/eager", *TINY) == (1, "", f"error: {told}\n")


def test_a_parameter_replaces_the_points_of_a_sweep(call: Call) -> None:
    code, out, _ = call("run", "matmul_add/sweep_eager", "--size", "8", "--device", "cpu")
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("matmul_add/")] == [
        "matmul_add/sweep_eager on cpu: size=8"
    ]


def test_run_of_what_needs_a_gpu(call: Call) -> None:
    code, _, err = call("run", "mlp/liger", "--device", "cpu")
    assert code == 2
    assert err == "error: Liger's kernel is Triton, which has no CPU backend: mlp/eager and mlp/compiled run here\n"


def test_run_on_a_gpu_without_a_gpu(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, _, err = call("run", "linear/eager", "--device", "cuda")
    assert code == 2
    assert "no CUDA GPU on this machine; omit --device to run on the CPU" in err


def test_import(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device, given = "nvidia-t100", environment(device="NVIDIA T100")
    root = recordings(monkeypatch, tmp_path / "recordings")
    code, out, err = call("import", str(tmp_path / "none.tar.gz"))
    assert (code, out, err) == (2, "", f"error: cannot read {tmp_path / 'none.tar.gz'}: no such file\n")
    (tmp_path / "bad.tar.gz").write_bytes(b"\x1f\x8b\x08 something else")
    code, out, err = call("import", str(tmp_path / "bad.tar.gz"))
    assert (code, out) == (2, "")
    assert err.startswith("error: bad.tar.gz is not an archive of recordings: ")
    save_all(tmp_path / "away", sample(environment=given), device=device)
    pack_archive(tmp_path / "away", device, tmp_path / "good.tar.gz")
    assert call("import", str(tmp_path / "good.tar.gz")) == (0, f"{device} mlp/eager\n", "")
    assert untied(load_recording(root, device, "mlp/eager")) == sample(environment=given)
    same = "1 unchanged: the same recording is here\n"
    assert call("import", str(tmp_path / "good.tar.gz")) == (0, same, "")
    save_all(root, sample(session="2026-10-02T00:00:00Z", environment=given), device=device)
    kept = f"1 kept, because the recording here is newer: {device} mlp/eager\n"
    assert call("import", str(tmp_path / "good.tar.gz")) == (0, kept, "")


def test_claims_as_json(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device with the recordings of one chapter."""
    root = recordings(monkeypatch, tmp_path / "recordings")
    shutil.copytree(BOOK.root / "nvidia-h200/linear", root / "nvidia-h200/linear")
    code, out, err = call("claims", "--json", "--device", "nvidia-h200")
    assert (code, err) == (0, "")
    assert out.isascii()
    ledger = json.loads(out)
    assert {"M1", "L1", "K1"} <= {verdict["id"] for verdict in ledger}
    assert {verdict["device"] for verdict in ledger} == {"nvidia-h200"}


def test_chapter_without_a_name(call: Call) -> None:
    code, out, err = call("chapter")
    assert (code, out) == (2, "")
    assert err.startswith("error: no name given. make chapter NAME=rmsnorm: ")
