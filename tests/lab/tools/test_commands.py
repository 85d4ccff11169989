"""The command line: what it says, what it exits with, and that it never ends in a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from snippets.lab.__main__ import COMMANDS, main
from snippets.lab.capture.recorder import Outcome
from snippets.lab.experiment import Experiment, chapters, experiments, find
from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.loading import load_recording
from snippets.lab.tools.archive import pack_archive
from snippets.lab.trace.kineto import read_trace

# KEEP archive
# KEEP capture
# KEEP recording
from tests.lab import samples
from tests.lab.samples import DEVICE, put, sample

TRACE = PROJECT / "tests/traces/mlp_eager.json.gz"
TINY = ["--batch", "4", "--in_dim", "8", "--out_dim", "16", "--device", "cpu"]

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command in this process; its exit code, what it printed, what it said on standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return run


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return samples.shelf(monkeypatch, tmp_path / "recordings")


def put_all(root: Path) -> None:
    for chapter in chapters():
        put(root, *(sample(one.id, has_trace=one.is_traced) for one in experiments(chapter)))


def process(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Its output is buffered, as it is for a reader: much of it is written only at the end."""
    command = [sys.executable, "-m", "snippets.lab", *arguments]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(command, cwd=PROJECT, env=env, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.parametrize("command", [*COMMANDS, "run"])
def test_each_command_explains_itself(call: Call, command: str) -> None:
    code, out, err = call(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: python -m snippets.lab {command}")
    assert len(out.splitlines()) >= 4


def test_the_commands_are_listed_with_what_they_do(call: Call) -> None:
    code, out, err = call("--help")
    assert (code, err) == (0, "")
    for command in (*COMMANDS, "run"):
        assert f"\n    {command} " in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["lst"], "argument COMMAND: invalid choice: 'lst' (choose from"),
        (["list", "--chek"], "unrecognized arguments: --chek"),
        (["summary"], "the following arguments are required: TRACE"),
        (["run", "linear/eager", "--batsch", "4"], "unrecognized arguments: --batsch 4"),
        (["run", "linear/eager", "--batch", "four"], "argument --batch: invalid int value: 'four'"),
        (["run", "linear/eager", "--batch", "0"], "--batch 0: at least 1 is needed"),
        (["run", "linear/eager", "--trace-dir", __file__], "is a file; give a folder"),
        (["open", "trace.json", "--timeout", "nan"], "argument --timeout: invalid"),
        (["open", "trace.json", "--timeout", "0"], "argument --timeout: invalid"),
    ],
)
def test_what_cannot_be_asked(call: Call, arguments: list[str], said: str) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "mlp/eagr"], "no experiment 'mlp/eagr'; did you mean mlp/eager or "),
        (["run", "mpl/eager"], "no chapter 'mpl'; did you mean mlp"),
        (["record", "mlp/eagr"], "no experiment 'mlp/eagr'; did you mean mlp/eager or "),
        (["record", "mlp", "liner"], "no chapter 'liner'; did you mean linear"),
        (["run", "linear"], "run takes one experiment, CHAPTER/EXPERIMENT: linear/eager linear/compiled "),
        (["run"], f"run takes one experiment, CHAPTER/EXPERIMENT: {' '.join(chapters())}"),
        (["run", "linear/eager/x", *TINY], "no experiment 'linear/eager/x'"),
    ],
)
def test_an_unknown_experiment_says_the_nearest(call: Call, arguments: list[str], said: str) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {said}")


def test_run_lists_the_parameters_of_its_experiment(call: Call) -> None:
    code, out, err = call("run", "mlp/eager", "--help")
    assert (code, err) == (0, "")
    for name, default in find("mlp/eager")[0].parameters.items():
        assert f"--{name} {name.upper()}" in out
        assert f"{default} unless given" in out
    assert "--trace-dir DIR" in out


def test_run_profiles_here_and_writes_a_trace(call: Call, tmp_path: Path) -> None:
    code, out, err = call("run", "linear/eager", *TINY, "--trace-dir", str(tmp_path / "new" / "traces"))
    assert (code, err) == (0, "")
    assert out.startswith("linear/eager on cpu: batch=4 in_dim=8 out_dim=16\n")
    (path,) = tmp_path.rglob("*.json")
    assert path == tmp_path / "new" / "traces" / "linear_eager_4_8_16.json"
    assert f"trace: {path}\n  in Perfetto:   python -m snippets.lab open {path}\n" in out
    assert "snippets.lab summary" not in out, "a trace of a CPU has no kernels to sum up"
    assert "Self CPU %" in out
    assert "aten::addmm" in out
    traced = read_trace(path)
    assert [step.name for step in traced.steps] == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    assert [op.input_shapes[1] for op in traced.cpu_ops if op.name == "aten::addmm"] == [(4, 8)] * 3
    code, out, err = call("summary", str(path))
    assert (code, out) == (2, "")
    assert "no GPU kernels in the trace. Check: ProfilerActivity.CUDA" in err


def test_run_of_what_needs_a_gpu(call: Call) -> None:
    code, _, err = call("run", "mlp/liger", "--device", "cpu")
    assert code == 2
    assert err == "error: Liger's kernel is Triton, which has no CPU backend: mlp/eager and mlp/compiled run here\n"


def test_without_a_gpu_there_is_none_to_ask_for(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(recording, "this_device", lambda: None)
    code, _, err = call("run", "linear/eager", "--device", "cuda")
    assert code == 2
    assert "there is no CUDA GPU here; leave --device out to run on the CPU" in err
    code, out, err = call("record", "linear/eager")
    assert (code, out) == (2, "")
    assert err == (
        "error: no CUDA GPU here, and recordings are only ever made on one. To see an experiment on this machine's "
        "CPU: python -m snippets.lab run CHAPTER/EXPERIMENT\n"
    )


def recording_of(monkeypatch: pytest.MonkeyPatch, failing: str, root: Path) -> list[tuple[list[str], str]]:
    """Replaces the measuring; what was asked for."""
    asked: list[tuple[list[str], str]] = []

    def record(chosen: list[Experiment], device: str) -> Iterator[Outcome]:
        asked.append(([one.name for one in chosen], device))
        for one in chosen:
            if one.name == failing:
                yield Outcome(one, "ValueError: no")
            else:
                put(root, sample(one.id, has_trace=one.is_traced))
                yield Outcome(one)

    monkeypatch.setattr(capture, "require_gpu", lambda: DEVICE)
    monkeypatch.setattr(capture, "record", record)
    return asked


def test_record_says_what_failed_and_packs_the_rest(
    call: Call, shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = recording_of(monkeypatch, "compiled", shelf)
    file = tmp_path / "home.tar.gz"
    code, out, err = call("record", "linear/eager", "linear/compiled", "--fresh", "--archive", str(file))
    assert (code, err) == (1, "")
    assert asked == [(["eager", "compiled"], DEVICE)]
    assert out.splitlines() == [
        f"{DEVICE}: 2 to record, 2 chosen",
        f"{DEVICE}: 1 recorded, 1 failed",
        "  linear/compiled: ValueError: no",
        f"{file}: 2 files; where you can commit: python -m snippets.lab import home.tar.gz",
    ]
    assert call("import", str(file)) == (0, f"{DEVICE} linear/eager\n", "")


def test_record_without_fault(call: Call, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recording_of(monkeypatch, "", shelf)
    code, out, _ = call("record", "linear")
    count = len(find("linear"))
    assert (code, out) == (0, f"{DEVICE}: {count} to record, {count} chosen\n{DEVICE}: {count} recorded, 0 failed\n")
    assert len(asked[0][0]) == count


def test_import_of_what_is_no_archive(call: Call, shelf: Path, tmp_path: Path) -> None:
    code, out, err = call("import", str(tmp_path / "none.tar.gz"))
    assert (code, out) == (2, "")
    assert err.startswith("error: none.tar.gz is no archive of recordings: [Errno 2] No such file")
    (tmp_path / "bad.tar.gz").write_bytes(b"\x1f\x8b\x08 something else")
    code, out, err = call("import", str(tmp_path / "bad.tar.gz"))
    assert (code, out) == (2, "")
    assert err.startswith("error: bad.tar.gz is no archive of recordings: ")
    put(tmp_path / "away", sample())
    pack_archive(tmp_path / "good.tar.gz", DEVICE, tmp_path / "away")
    assert call("import", str(tmp_path / "good.tar.gz")) == (0, f"{DEVICE} mlp/eager\n", "")
    assert load_recording("mlp/eager", DEVICE, shelf) == sample()


def states(out: str) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in out.splitlines() if line.startswith("  "))


def test_the_list_is_clean_when_all_is_recorded(call: Call, shelf: Path) -> None:
    put_all(shelf)
    code, out, err = call("list", "--check")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == DEVICE
    assert list(states(out)) == [one.id for chapter in chapters() for one in experiments(chapter)]
    assert set(states(out).values()) == {"recorded"}


def test_what_was_never_recorded_is_told_and_is_no_fault(call: Call, shelf: Path) -> None:
    put_all(shelf)
    for path in (shelf / DEVICE / "mlp").glob("eager.*"):
        path.unlink()
    code, out, err = call("list", "--check")
    assert (code, err) == (0, "")
    assert states(out)["mlp/eager"] == "missing"
    assert out.splitlines()[-1] == f"1 not recorded yet for {DEVICE}: on a machine with that GPU run make record"


@pytest.mark.parametrize(
    ("fault", "entry", "state"),
    [
        ("stale", "mlp/eager", "stale"),
        ("no trace", "mlp/eager", "missing"),
        ("damaged", "mlp/eager", "unreadable: eager.json is no recording (Input data was truncated); on a machine"),
        ("damaged trace", "mlp/eager", "unreadable: "),
        ("orphan", "mlp/gone", "orphan: its experiment is gone; delete its recording"),
        ("orphans", "gone/", "orphan: its chapter is gone; delete the folder"),
    ],
)
def test_the_list_names_what_is_not_current(call: Call, shelf: Path, fault: str, entry: str, state: str) -> None:
    put_all(shelf)
    put(shelf, sample(), device="nvidia-other")
    folder = shelf / DEVICE / "mlp"
    match fault:
        case "stale":
            put(shelf, sample(digest="0" * 16))
        case "no trace":
            (folder / "eager.trace.json.gz").unlink()
        case "damaged":
            (folder / "eager.json").write_text("{")
        case "damaged trace":
            (folder / "eager.trace.json.gz").write_text("{")
        case "orphan":
            put(shelf, sample("mlp/gone"))
        case "orphans":
            put(shelf, sample("gone/eager"))
    code, out, err = call("list", "--device", DEVICE, "--check")
    assert (code, err) == (1, "")
    assert states(out)[entry].startswith(state)
    assert out.splitlines()[-1] == f"1 not current for {DEVICE}: on a machine with that GPU run make record"
    assert call("list", "--device", DEVICE)[0] == 0
    assert call("list", "--device", "nvidia-other", "--check")[0] == 0, "only the builder has to be complete"
    assert "\nnvidia-other\n" in call("list")[1]


def test_prepare_says_what_a_page_will_show(call: Call, shelf: Path) -> None:
    put_all(shelf)
    put(shelf, sample(digest="0" * 16))
    (shelf / DEVICE / "mlp" / "compiled.json").unlink()
    code, out, err = call("prepare")
    assert (code, err) == (0, "")
    modes = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert modes["mlp/eager"] == ["stale", DEVICE]
    assert modes["mlp/compiled"] == ["missing", DEVICE]
    assert modes["mlp/liger"] == ["replayed", DEVICE]
    assert len(modes) == sum(len(experiments(chapter)) for chapter in chapters())


@pytest.mark.parametrize(("failing", "code"), [("", 0), ("eager", 1)])
def test_prepare_records_on_a_gpu(
    call: Call, shelf: Path, monkeypatch: pytest.MonkeyPatch, failing: str, code: int
) -> None:
    asked = recording_of(monkeypatch, failing, shelf)
    monkeypatch.setattr(capture, "wanted", lambda chosen, device, fresh: find("linear") if not fresh else chosen)
    monkeypatch.setattr(recording, "this_device", lambda: DEVICE)
    found, out, _ = call("prepare")
    assert found == code
    assert asked[0][0] == [one.name for one in find("linear")]
    assert ["linear/compiled", "live", DEVICE] in [line.split() for line in out.splitlines()]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read (No such file or directory)"),
        (TRACE.read_bytes()[:5000], "the gzip stream is cut off; copy or record the trace again"),
        (b"", "empty; record the trace again"),
        (b'{"a": 1}', "JSON, but no Kineto trace"),
        (b"\x00\x01\x02", "is no whole JSON"),
        (b'{"traceEvents": []}', "no active steps"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_summary_of_what_is_no_trace(
    call: Call, tmp_path: Path, content: bytes | None, said: str, options: list[str]
) -> None:
    path = tmp_path / "trace.json.gz"
    if content is not None:
        path.write_bytes(content)
    code, out, err = call("summary", str(path), *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert said in err


def test_summary_for_people_and_machines(call: Call) -> None:
    code, out, err = call("summary", str(TRACE), "--json")
    assert (code, err) == (0, "")
    assert (json.loads(out)["kernels_per_step"], json.loads(out)["steps"]) == (5, 3)
    code, out, err = call("summary", str(TRACE))
    assert (code, err) == (0, "")
    assert "work per step      5 kernels" in out


def test_claims_for_machines(call: Call) -> None:
    code, out, err = call("claims", "--json", "--device", "nvidia-h200")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert {"M1", "L1", "K1"} <= {one["id"] for one in found}
    assert {one["device"] for one in found} == {"nvidia-h200"}


def test_claims_of_a_device_that_is_not_recorded(call: Call) -> None:
    code, out, err = call("claims", "--device", "nonsense")
    assert (code, out) == (2, "")
    assert err == "error: nonsense is not recorded; recorded are nvidia-h200\n"


def test_a_parameter_replaces_the_points_of_a_sweep(call: Call) -> None:
    code, out, _ = call("run", "matmul_add/sweep_eager", "--size", "8", "--device", "cpu")
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("matmul_add/")] == [
        "matmul_add/sweep_eager on cpu: size=8"
    ]


@pytest.mark.parametrize("arguments", [["list"], ["claims", "--json"], ["summary", str(TRACE)], ["--help"]])
def test_a_reader_that_has_gone_is_no_error(arguments: list[str]) -> None:
    """The read end is closed before the first write, so that every print or flush meets a broken pipe."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    running = process(*arguments, stdout=write_end)
    os.close(write_end)
    _, err = running.communicate(timeout=60)
    assert err == ""
    assert running.returncode == 0


def test_the_first_line_is_enough() -> None:
    command = f"{sys.executable} -m snippets.lab claims --json | head -1"
    done = subprocess.run(command, shell=True, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[\n", "")


def test_a_mistake_exits_with_2_as_a_process() -> None:
    running = process("summary", "none.json", stdout=subprocess.PIPE)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (2, "")
    assert err.startswith("error: none.json: cannot be read")
