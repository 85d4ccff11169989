"""`run`: an experiment on this machine's CPU, its table, its error, its trace."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from kinetoscope.ranks.joined import read_ranks
from kinetoscope.trace.kineto import read_trace
from snippets.lab.capture.profile_here import profile_here
from snippets.lab.capture.ranks import RankError
from snippets.lab.experiment import ExperimentError, NeedsGpu, Subject, WrongAnswer, find
from snippets.lab.recording.device import PROJECT
from tests.lab.capture.faults import PACKAGE

(RIGHT,) = find("faults/right", PACKAGE)


def test_the_error_is_printed_below_the_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    profile_here(RIGHT.at(size=8), "cpu", tmp_path / "traces")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "faults/right on cpu: size=8"
    assert any(line.split()[:1] == ["aten::matmul"] for line in lines)
    (trace,) = (tmp_path / "traces").iterdir()
    assert trace.name == "faults_right_8.json"
    assert lines[-3:-1] == [f"trace: {trace}", f"  in Perfetto:   python -m kinetoscope open {trace}"]
    word, _, error, rest = lines[-1].replace("relative error", "relative_error _").split(maxsplit=3)
    assert (word, rest) == ("relative_error", "(float64 reference, at most 1e-02)")
    assert 0 < float(error) < 1e-5
    assert len(read_trace(trace).steps) == 3


def test_each_point_of_a_sweep_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    profile_here(dataclasses.replace(RIGHT, sweep=({"size": 2}, {"size": 3})), "cpu", None)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("faults/right")] == [
        "faults/right on cpu: size=2",
        "faults/right on cpu: size=3",
    ]
    assert [line.startswith("relative error ") for line in lines].count(True) == 2


def test_a_wrong_answer_is_an_error_after_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    (wrong,) = find("faults/wrong", PACKAGE)
    with pytest.raises(WrongAnswer) as raised:
        profile_here(wrong, "cpu", None)
    assert str(raised.value) == "faults/wrong: wrong answer: relative error 5.00e-01, at most 1e-02 allowed"
    assert "aten::matmul" in capsys.readouterr().out


def test_a_reference_that_is_not_more_precise_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    def make(device: str, size: int) -> Subject:
        assert RIGHT.make is not None
        made = RIGHT.make(device=device, size=size)
        return dataclasses.replace(made, reference=lambda x, y: x @ y)

    with pytest.raises(ExperimentError, match=r"^faults/right: reference returns float32; compute it in float64$"):
        profile_here(dataclasses.replace(RIGHT, make=make), "cpu", None)
    assert capsys.readouterr().out.startswith("faults/right on cpu: size=16\n")


def test_what_a_probe_returns_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    (steady,) = find("hang/steady", PACKAGE)
    profile_here(steady, "cpu", None)
    assert json.loads(capsys.readouterr().out) == {"answer": 42}


@pytest.mark.slow
def test_several_ranks_are_profiled_into_one_trace(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (first,) = find("ranks/first", PACKAGE)
    profile_here(first.at(size=6), "cpu", tmp_path / "traces", PACKAGE)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ranks/first on cpu: size=6, 2 ranks"
    assert [line.split()[:1] for line in lines].count(["step"]) == 1, "the table of rank 0 alone"
    assert lines[1] == "The table of rank 0:"
    trace = tmp_path / "traces" / "ranks_first_6.json"
    assert [(each.rank, len(each.steps)) for each in read_ranks(trace)] == [(0, 2), (1, 2)]
    assert lines[-2:] == [f"trace: {trace}", f"  in Perfetto:   python -m kinetoscope open {trace}"]
    assert lines[-3].startswith("relative error of the losses ")


def test_errors_and_data_of_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    wrong, raises, probe = (find(f"ranks/{name}", PACKAGE)[0] for name in ("wrong", "raises", "probe"))
    with pytest.raises(
        WrongAnswer, match=r"^rank [01]: ranks/wrong: wrong answer: relative error of the losses 1\.19e-01"
    ):
        profile_here(wrong, "cpu", None, PACKAGE)
    with pytest.raises(RankError, match=r"(?s)^rank 1: Traceback.*ValueError: the first line\nthe second line$"):
        profile_here(raises, "cpu", None, PACKAGE)
    capsys.readouterr()
    profile_here(probe, "cpu", None, PACKAGE)
    headline, _, data = capsys.readouterr().out.partition("\n")
    assert headline == "ranks/probe on cpu: size=1, 2 ranks"
    assert json.loads(data)["found"][1] == {"rank": 1, "extra": "x"}


def test_too_few_gpus_for_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    (first,) = find("ranks/first", PACKAGE)
    message = "ranks/first needs 2 GPUs, and this machine has 1; --device cpu runs it with gloo"
    with pytest.raises(NeedsGpu, match=f"^{message}$"):
        profile_here(first, "cuda", None, PACKAGE)


def test_the_example_of_the_contributors_page_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its check fails if the ranks do not sum their gradients."""
    text = (PROJECT / "docs" / "contributing.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(from [^\n]+\n\n\ndef data_parallel.*?)```", text, re.DOTALL)
    reduced = "            dist.all_reduce(weight.grad)\n"
    assert example.count(reduced) == 1
    alone = example.replace(reduced, "").replace('chapter="rmsnorm"', 'chapter="alone"')
    for chapter, source in (("rmsnorm", example), ("alone", alone)):
        folder = tmp_path / tmp_path.name / chapter
        folder.mkdir(parents=True)
        (folder / "experiments.py").write_text(f"from __future__ import annotations\n\n{source}")
    monkeypatch.syspath_prepend(tmp_path)
    (experiment,) = find("rmsnorm/data_parallel", tmp_path.name)
    profile_here(experiment.at(tokens=8), "cpu", None, tmp_path.name)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "rmsnorm/data_parallel on cpu: tokens=8, 2 ranks"
    assert any(line.split()[:1] == ["c10d::allreduce_"] for line in lines)
    error = re.fullmatch(r"relative error of the losses (\S+) \(float32 reference, at most 1e-02\)", lines[-1])
    assert error is not None
    assert float(error[1]) < 1e-6
    (experiment,) = find("alone/data_parallel", tmp_path.name)
    wrong = r"^rank [01]: alone/data_parallel: wrong answer: relative error of the losses \d\.\d\de-02, at most 1e-02 "
    with pytest.raises(WrongAnswer, match=wrong):
        profile_here(experiment.at(tokens=8), "cpu", None, tmp_path.name)
