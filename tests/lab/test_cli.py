"""python -m snippets.lab as a newcomer meets it: help, mistakes, a run on the CPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snippets.lab import __main__ as cli
from snippets.lab import kineto, recording
from snippets.lab.trace import TraceError

TRACES = Path(__file__).parent.parent / "traces"


def test_help_names_every_command_and_shows_examples(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for command in ("list", "record", "import", "run", "summary", "claims", "prepare"):
        assert f"\n    {command} " in shown
    assert "python -m snippets.lab run mlp/compiled --batch 16" in shown


@pytest.mark.parametrize("command", ["list", "record", "import", "summary", "claims", "prepare"])
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    assert "usage: python -m snippets.lab" in capsys.readouterr().out


def test_run_has_help_with_and_without_an_experiment(capsys):
    assert cli.main(["run", "--help"]) == 0
    assert "--trace-dir DIR" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "mlp/eager", "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "--hidden HIDDEN" in shown
    assert "3072 unless given" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "mlp/eagr"], "did you mean mlp/eager"),
        (["run", "mpl/eager"], "did you mean mlp"),
        (["run", "mlp"], "run takes one experiment"),
        (["record", "mlp/eagr"], "did you mean mlp/eager"),
        (["summary", "nowhere.json"], "nowhere.json"),
        (["import", "nowhere.tar.gz"], "nowhere.tar.gz"),
        (["run", "mlp/liger", "--device", "cpu"], "Triton"),
    ],
)
def test_a_mistake_is_an_error_with_a_cure_and_costs_nothing(arguments, message, capsys):
    assert cli.main(arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert message in told
    assert "Traceback" not in told


def test_an_unknown_parameter_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "mlp/eager", "--depth", "3"])
    assert ended.value.code == 2
    assert "--depth" in capsys.readouterr().err


def test_recording_without_a_gpu_says_what_to_do_instead(capsys, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(recording, "this_device", lambda: None)
    assert cli.main(["record"]) == 2
    assert "python -m snippets.lab run CHAPTER/EXPERIMENT" in capsys.readouterr().err
    monkeypatch.setattr(recording, "this_device", lambda: "nvidia-a100")
    assert cli.main(["record"]) == 2
    assert "install a CUDA build of torch" in capsys.readouterr().err


def test_a_run_prints_the_profilers_table_and_writes_a_trace(tmp_path, capsys):
    small = ["--batch", "2", "--seq", "3", "--dim", "8", "--hidden", "16"]
    assert cli.main(["run", "mlp/eager", "--device", "cpu", "--trace-dir", str(tmp_path), *small]) == 0
    shown = capsys.readouterr().out
    assert "mlp/eager on cpu: batch=2 seq=3 dim=8 hidden=16" in shown
    assert "aten::gelu" in shown
    (written,) = tmp_path.iterdir()
    assert written.name == "mlp_eager_2_3_8_16.json"
    traced = kineto.read(written)
    assert [step.number for step in traced.steps] == [2, 3, 4]
    assert all(traced.label_span(step, "mlp_fwd") for step in traced.steps)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # torch's own, when its compiler is first imported
@pytest.mark.skipif(not (shutil.which("c++") or shutil.which("g++")), reason="Inductor needs a C++ compiler on a CPU")
def test_a_run_of_a_measurement_prints_its_data(capsys):
    assert cli.main(["run", "linear/new_strides", "--device", "cpu", "--batch", "4", "--in_dim", "3"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["graphs"] == [1, 2]
    assert data["raised"] == ""


def test_list_knows_recorded_stale_missing_and_orphaned(tmp_path, capsys, monkeypatch):
    shelf = tmp_path / recording.BUILDER
    source = recording.RECORDINGS / recording.BUILDER
    for name in ("devices/copy.json", "devices/copy.trace.json.gz", "devices/matmul.json"):
        (shelf / name).parent.mkdir(parents=True, exist_ok=True)
        (shelf / name).write_bytes((source / name).read_bytes())
    (shelf / "devices" / "gone.json").write_bytes((source / "devices/copy.json").read_bytes())
    (shelf / "lost").mkdir()
    monkeypatch.setattr(recording, "RECORDINGS", tmp_path)
    for function in (recording.load, recording.trace, recording.devices, recording.recorded):
        monkeypatch.setattr(function, "__defaults__", (*(function.__defaults__ or ())[:-1], tmp_path))
    assert cli.main(["list", "--check"]) == 1
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines() if line.startswith("  "))
    assert lines["devices/copy"] == "recorded"
    assert lines["devices/matmul"] == "missing"  # its trace is not there
    assert lines["devices/gone"].startswith("orphan: its experiment is gone")
    assert lines["lost/"].startswith("orphan: its chapter is gone")
    assert lines["mlp/eager"] == "missing"
    monkeypatch.setattr(recording, "PROTOCOL", 0)
    assert cli.main(["list"]) == 0
    assert "devices/copy                             stale" in capsys.readouterr().out


def test_summary_of_a_damaged_file_is_an_error(tmp_path, capsys):
    packed = (TRACES / "mlp_eager.json.gz").read_bytes()
    (tmp_path / "cut.json.gz").write_bytes(packed[: len(packed) // 2])
    assert cli.main(["summary", str(tmp_path / "cut.json.gz")]) == 2
    assert "cut.json.gz" in capsys.readouterr().err
    with pytest.raises(TraceError):
        kineto.read(tmp_path / "cut.json.gz")


def test_summary_for_machines(capsys):
    assert cli.main(["summary", "--json", str(TRACES / "mlp_eager.json.gz")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["device"], found["kernels_per_step"], found["memset_per_step"]) == ("NVIDIA H200", 5, 2)
    assert found["steps_agree"] is True
    assert {"name", "calls", "total_us", "mean_us", "op", "grid", "block", "registers", "shared_memory_bytes"} <= set(
        found["kernels"][0]
    )


def test_a_reader_that_goes_away_leaves_no_traceback():
    command = f"{sys.executable} -m snippets.lab claims | head -1"
    run = subprocess.run(
        ["bash", "-c", command], cwd=recording.ROOT, capture_output=True, text=True, check=True, env=os.environ
    )
    assert run.stderr == ""
    assert len(run.stdout.splitlines()) == 1


def test_prepare_says_what_each_page_will_show(capsys, monkeypatch):
    monkeypatch.setattr(recording, "this_device", lambda: None)
    monkeypatch.delenv("DEVICE", raising=False)
    assert cli.main(["prepare"]) == 0
    shown = capsys.readouterr().out
    assert "mlp/eager                                replayed   nvidia-h200" in shown
