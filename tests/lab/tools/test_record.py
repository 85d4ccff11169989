"""The command `record`, on a machine on which nothing is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.__main__ import main
from snippets.lab.capture.recorder import CostOf, Outcome
from snippets.lab.capture.selection import NoGpu
from snippets.lab.experiment import Experiment, NeedsGpu, find
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.tools.record import PATIENCE, patient, record, this_machine
from tests.lab.notebooks.test_files import write_notebook
from tests.lab.samples import recordings, sample, save_all
from tests.lab.tools.machine import FakeMachine


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No recordings, and beside them one small notebook."""
    folder = recordings(monkeypatch, tmp_path / "recordings")
    write_notebook(folder)
    return folder


def test_record_prints_what_failed_and_packs_the_rest(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = FakeMachine(failing="linear/compiled")
    file = tmp_path / "home.tar.gz"
    names = ["linear/eager", "linear/compiled"]
    assert record(root, names, fresh=True, archive=file, machine=machine.build()) == 1
    assert machine.recorded == names
    assert capsys.readouterr().out.splitlines() == [
        f"{DEFAULT_DEVICE}: 2 to record, 2 chosen, about 1 min",
        f"{DEFAULT_DEVICE}: 1 recorded, 1 failed",
        "  linear/compiled: ValueError: no",
        f"{file}: all recordings of {DEFAULT_DEVICE}, 2 files; on a machine that can commit, run: "
        "python -m snippets.lab import home.tar.gz",
    ]
    assert main(["import", str(file)]) == 0
    assert capsys.readouterr().out == "1 unchanged: the same recording is here\n"


def test_record_without_failures(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = FakeMachine()
    assert record(root, ["linear"], machine=machine.build()) == 0
    ids = [experiment.id for experiment in find("linear")]
    assert machine.recorded == ids
    assert capsys.readouterr().out.splitlines() == [
        f"{DEFAULT_DEVICE}: {len(ids)} to record, {len(ids)} chosen, about 2 min",
        f"{DEFAULT_DEVICE}: {len(ids)} recorded, 0 failed",
    ]


def test_record_names_the_chapters_that_are_stale_beside_what_is_chosen(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("linear/eager", "linear/compiled", "mlp/eager", "attention/naive", "attention/flash"):
        save_all(root, sample(name, fingerprint="0" * 16), device=DEFAULT_DEVICE)
    save_all(root, sample("mlp/compiled"), device=DEFAULT_DEVICE)
    machine = FakeMachine(pending=["linear/eager"])
    assert record(root, ["linear/eager", "mlp/eager"], machine=machine.build()) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{DEFAULT_DEVICE}: 1 to record, 2 chosen, about 1 min",
        f"{DEFAULT_DEVICE}: stale, too, but not chosen: attention (2), linear (1); "
        "make record CHAPTER='attention linear' records them",
        f"{DEFAULT_DEVICE}: 1 recorded, 0 failed",
    ]


def test_record_without_a_gpu_records_nothing(root: Path) -> None:
    def require_gpu() -> str:
        raise NoGpu("no CUDA GPU here")

    machine = FakeMachine().build()
    with pytest.raises(NeedsGpu, match="no CUDA GPU here"):
        record(root, ["linear"], machine=type(machine)(require_gpu, *list(vars(machine).values())[1:]))
    assert not root.exists()


@pytest.mark.parametrize(("why", "message"), [("", "no CUDA GPU here, "), ("nvidia-smi fails", "nvidia-smi fails$")])
def test_a_gpu_that_torch_cannot_use_is_refused_with_the_cause(
    monkeypatch: pytest.MonkeyPatch, why: str, message: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("snippets.lab.capture.selection.this_device", lambda: None)
    monkeypatch.setattr("snippets.lab.tools.record.why_no_device", lambda: why)
    with pytest.raises(NoGpu, match=f"^{message}"):
        this_machine().require_gpu()


def test_a_gpu_of_amd_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda index: "AMD Instinct MI300X")
    with pytest.raises(NoGpu, match=r"^this machine's GPU is AMD's, and the experiments need an NVIDIA GPU"):
        this_machine().require_gpu()


@pytest.mark.parametrize("names", [["labs"], ["labs/mlp"], ["mlp"], []])
def test_record_runs_notebooks_that_are_not_current(
    root: Path, capsys: pytest.CaptureFixture[str], names: list[str]
) -> None:
    machine = FakeMachine(pending=())
    assert record(root, names, machine=machine.build()) == 0
    assert machine.notebooks == ["mlp"]
    assert "labs/mlp: recorded\n" in capsys.readouterr().out
    assert record(root, names, machine=machine.build()) == 0
    assert machine.notebooks == ["mlp"], "it is current now"
    assert record(root, ["labs/mlp"], fresh=True, machine=machine.build()) == 0
    assert machine.notebooks == ["mlp", "mlp"]


def test_record_leaves_other_notebooks_alone(root: Path) -> None:
    machine = FakeMachine(pending=())
    assert record(root, ["linear", "mlp/eager"], machine=machine.build()) == 0
    other = FakeMachine(pending=(), device="nvidia-other")
    assert record(root, [], machine=other.build()) == 0
    assert machine.notebooks == other.notebooks == []


def test_a_notebook_that_fails_is_named_with_its_cause(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = FakeMachine(pending=(), failing_notebook="mlp, code cell 2: no\nTraceback")
    assert record(root, ["labs/mlp"], machine=machine.build()) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{DEFAULT_DEVICE}: 0 to record, 0 chosen, 1 lab to run, about 5 min",
        "labs/mlp: mlp, code cell 2: no",
        f"{DEFAULT_DEVICE}: 0 recorded, 0 failed",
        "  labs/mlp: mlp, code cell 2: no",
        "Traceback",
    ]


def test_no_such_notebook(root: Path) -> None:
    with pytest.raises(Exception, match=r"^no notebook 'labs/mpl'; did you mean labs/mlp\?$"):
        record(root, ["labs/mpl"], machine=FakeMachine().build())


def test_the_gpu_is_reserved_while_something_is_measured(root: Path) -> None:
    machine = FakeMachine(pending=("linear/eager",))
    for options in ({}, {"wait": True}, {"shared": True}):
        assert record(root, ["linear"], machine=machine.build(), **options) == 0
    assert machine.reserved == [(False, False), (True, False), (False, True)]
    assert machine.released == 3
    assert record(root, ["linear/compiled"], machine=machine.build()) == 0
    assert len(machine.reserved) == 3, "nothing to record"
    assert record(root, ["labs/mlp"], machine=machine.build()) == 0
    assert len(machine.reserved) == 4, "a notebook runs on the GPU too"


def test_a_gpu_in_use_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = FakeMachine(in_use="python3 (pid 4)")
    monkeypatch.setattr("snippets.lab.tools.record.this_machine", machine.build)
    assert main(["record", "linear/eager"]) == 2
    assert capsys.readouterr().err == "error: python3 (pid 4) uses this GPU\n"
    assert machine.recorded == []
    for option in ("--wait", "--shared"):
        assert main(["record", "linear/eager", option]) == 0
    assert machine.recorded == ["linear/eager"] * 2


def test_what_a_recorder_that_was_waited_for_has_recorded_is_not_recorded_again(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = FakeMachine()
    built = machine.build()
    answers = iter([["linear/eager", "linear/compiled"], ["linear/compiled"]])
    select = lambda *_: [one for id in next(answers) for one in find(id)]  # noqa: E731
    assert record(root, ["linear"], wait=True, machine=replace(built, select_pending=select)) == 0
    assert machine.recorded == ["linear/compiled"]


CHEAP, DEAR = ["linear/new_strides", "linear/sweep_eager", "mlp/tuned"], ["mlp/new_shapes", "mlp/sweep_eager"]
"""Experiments that are started one by one: probes and sweeps."""


def test_minutes_start_nothing_that_would_end_later(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = FakeMachine(pending=[*CHEAP, *DEAR])
    assert record(root, [*CHEAP, *DEAR, "labs"], minutes=1, machine=machine.build()) == 0
    assert (machine.recorded, machine.notebooks) == (CHEAP, [])
    assert capsys.readouterr().out.splitlines() == [
        f"{DEFAULT_DEVICE}: 5 to record, 5 chosen, 1 lab to run, about 7 min",
        f"{DEFAULT_DEVICE}: 3 recorded, 0 failed",
        f"{DEFAULT_DEVICE}: 3 left, about 6 min; run the same command again to go on",
    ]


def test_the_same_command_goes_on_until_nothing_is_left(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = FakeMachine(pending=[*CHEAP, *DEAR])
    for expected in (CHEAP, [*CHEAP, *DEAR]):
        assert record(root, [*CHEAP, *DEAR], minutes=1, machine=machine.build()) == 0
        assert machine.recorded == expected
        machine.pending = DEAR
    assert "left" not in capsys.readouterr().out.splitlines()[-1]


def test_a_notebook_is_run_when_it_probably_ends_in_time(root: Path) -> None:
    machine = FakeMachine(pending=CHEAP)
    assert record(root, [*CHEAP, "labs"], minutes=5.9, machine=machine.build()) == 0
    assert (machine.recorded, machine.notebooks) == (CHEAP, [])
    assert record(root, [*CHEAP, "labs"], minutes=6, machine=machine.build()) == 0
    assert machine.notebooks == ["mlp"]


def test_too_few_minutes_for_anything_say_how_many_it_takes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = FakeMachine(pending=CHEAP, cost_s=200)
    assert record(root, ["linear", "mlp/tuned"], minutes=3, machine=machine.build()) == 1
    assert machine.recorded == []
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"{DEFAULT_DEVICE}: 0 recorded, 0 failed",
        f"{DEFAULT_DEVICE}: 3 left, about 10 min; the shortest takes about 4 min, so allow more",
    ]


def test_what_failed_is_not_left(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = FakeMachine(pending=CHEAP, failing=CHEAP[0])
    assert record(root, ["linear", "mlp/tuned"], minutes=0.7, machine=machine.build()) == 1
    assert f"{DEFAULT_DEVICE}: 1 left, about 1 min; run the same" in capsys.readouterr().out


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "soon"])
def test_minutes_are_a_number_above_0(minutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["record", f"--minutes={minutes}"])
    assert f"argument --minutes: must be a positive number of minutes, not '{minutes}'" in capsys.readouterr().err


def test_a_fresh_start_has_nothing_to_go_on_with(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["record", "--fresh", "--minutes=9"])
    assert "not allowed with argument --fresh" in capsys.readouterr().err


@pytest.mark.parametrize(("device", "times"), [(DEFAULT_DEVICE, 1), ("nvidia-h100-80gb-hbm3", PATIENCE)])
def test_another_gpu_has_more_time_and_the_same_estimate(
    root: Path, monkeypatch: pytest.MonkeyPatch, device: str, times: int
) -> None:
    pending = find("fused_mlp/few_tokens")
    given: list[tuple[int, float]] = []

    def measure(*args: Sequence[Experiment], cost_s: CostOf, limit_s: float) -> list[Outcome]:
        given.extend((one.time_limit_s, cost_s(one)) for one in args[2])
        return []

    monkeypatch.setattr("snippets.lab.capture.recorder.record_experiments", measure)
    machine = this_machine()
    cost_s = machine.recorded_cost_s(root, device)
    assert list(machine.record_experiments(root, device, pending, cost_s, 60.0)) == []
    limit_s = pending[0].time_limit_s
    assert given == [(times * limit_s, float(limit_s))]


def test_ranks_that_hang_do_not_hold_several_gpus_for_longer_on_another_gpu() -> None:
    (one,) = find("several_gpus/alone")
    assert patient([one], "nvidia-h100-80gb-hbm3") == [one]


@pytest.fixture
def on_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """`linear/eager` needs one GPU, `linear/compiled` two, every other experiment of `linear` four."""
    gpus = {"eager": 1, "compiled": 2}

    def found(name: str) -> list[Experiment]:
        return [
            each if each.name == "eager" else replace(each, make=None, work=None, probe=on_ranks, sweep=(), gpus=count)
            for each in find(name)
            for count in [gpus.get(each.name, 4)]
        ]

    monkeypatch.setattr("snippets.lab.tools.record.find", found)


def on_ranks(**_: object) -> dict[str, object]:
    raise NotImplementedError


OF_FOUR = [one.id for one in find("linear") if one.name not in ("eager", "compiled")]


@pytest.mark.usefixtures("on_several")
@pytest.mark.parametrize(
    ("gpus", "lines", "recorded"),
    [
        (
            1,
            [
                "needs 2 GPUs, and this machine has 1: linear/compiled",
                f"needs 4 GPUs, and this machine has 1: {', '.join(OF_FOUR)}",
            ],
            ["linear/eager"],
        ),
        (2, [f"needs 4 GPUs, and this machine has 2: {', '.join(OF_FOUR)}"], ["linear/eager", "linear/compiled"]),
        (4, [], ["linear/eager", "linear/compiled", *OF_FOUR]),
    ],
)
def test_what_needs_more_gpus_is_named_and_left_out(
    root: Path, capsys: pytest.CaptureFixture[str], gpus: int, lines: list[str], recorded: list[str]
) -> None:
    machine = FakeMachine(gpus=gpus)
    assert record(root, ["linear"], machine=machine.build()) == 0
    assert (sorted(machine.recorded), machine.reserved_gpus) == (sorted(recorded), [gpus])
    printed = capsys.readouterr().out.splitlines()
    assert printed[: len(lines)] == lines
    assert printed[len(lines)].startswith(f"{DEFAULT_DEVICE}: {len(recorded)} to record, {len(recorded)} chosen, ")


@pytest.mark.usefixtures("on_several")
def test_nothing_to_record_on_too_few_gpus_is_no_failure(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = FakeMachine()
    assert record(root, ["linear/compiled"], machine=machine.build()) == 0
    assert (machine.recorded, machine.reserved) == ([], [])
    assert capsys.readouterr().out.splitlines() == [
        "needs 2 GPUs, and this machine has 1: linear/compiled",
        f"{DEFAULT_DEVICE}: 0 to record, 0 chosen",
        f"{DEFAULT_DEVICE}: 0 recorded, 0 failed",
    ]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(143)])
def test_what_is_recorded_before_an_interruption_is_packed(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], interruption: BaseException
) -> None:
    machine = FakeMachine()
    built = machine.build()

    def interrupted(*args: Any) -> Iterator[Outcome]:
        yield next(iter(built.record_experiments(*args)))
        raise interruption

    names = ["linear/eager", "linear/compiled"]
    for archive in (None, tmp_path / "home.tar.gz"):
        with pytest.raises(type(interruption)):
            record(root, names, archive=archive, machine=replace(built, record_experiments=interrupted))
    assert main(["import", str(tmp_path / "home.tar.gz")]) == 0
    assert capsys.readouterr().out.endswith("1 unchanged: the same recording is here\n")
