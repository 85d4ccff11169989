"""The commands `list` and `prepare`: the state of every experiment, as a gate and before a build."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from snippets.lab.__main__ import main
from snippets.lab.experiment import NeedsGpu, experiments, find
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.tools.prepare import prepare
from tests.lab.notebooks.hostile import NOT_OUTPUTS
from tests.lab.notebooks.test_files import hostile_notebook
from tests.lab.samples import environment, recordings, sample, save_all
from tests.lab.tools.machine import FakeMachine

CURE = f"for {DEFAULT_DEVICE}: on a machine with that GPU run make record"


BOOK = ("linear", "mlp")
"""All chapters of a small book."""
EXPERIMENTS = [experiment for chapter in BOOK for experiment in experiments(chapter)]


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every experiment of the small book, recorded on the default device."""
    folder = tmp_path_factory.mktemp("complete")
    for experiment in EXPERIMENTS:
        save(folder, experiment.id, has_trace=experiment.is_traced)
    return folder


@pytest.fixture
def root(complete: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them that a test may change."""
    for command in ("listing", "prepare", "record"):
        monkeypatch.setattr(f"snippets.lab.tools.{command}.chapters", lambda: BOOK)
    shutil.copytree(complete, tmp_path / "recordings")
    return recordings(monkeypatch, tmp_path / "recordings")


def save(root: Path, name: str = "mlp/eager", device: str = DEFAULT_DEVICE, **changed: object) -> None:
    where = environment(device=device.replace("-", " ").upper())
    save_all(root, sample(name, environment=where, **changed), device=device)


def listed(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[str], dict[str, str]]:
    """Exit code, lines, and the states by name."""
    code = main(["list", *options])
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    return code, lines, dict(line.split(maxsplit=1) for line in lines if line.startswith("  "))


def test_the_list_is_clean_when_all_is_recorded(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, states = listed(capsys, "--check")
    assert (code, lines[0]) == (0, DEFAULT_DEVICE)
    assert list(states) == [experiment.id for experiment in EXPERIMENTS]
    assert set(states.values()) == {"recorded"}
    assert len(lines) == 1 + len(states)


def test_an_experiment_that_was_never_recorded_passes_the_gate(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (root / DEFAULT_DEVICE / "mlp").glob("eager.*"):
        path.unlink()
    code, lines, states = listed(capsys, "--check")
    assert (code, states["mlp/eager"]) == (0, "missing")
    assert lines[-1] == f"1 not recorded yet {CURE}"


def test_what_needs_several_gpus_is_told_apart(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def on_ranks(**_: object) -> dict[str, object]:
        raise NotImplementedError

    known = {"linear": experiments("linear"), "mlp": experiments("mlp")}
    (first, second), rest = known["mlp"][:2], known["mlp"][2:]
    given: dict[str, object] = {"make": None, "loop": None, "work": None, "sweep": (), "probe": on_ranks}
    known["mlp"] = (replace(first, **given, gpus=2), replace(second, **given, gpus=4), *rest)  # type: ignore[arg-type]
    monkeypatch.setattr("snippets.lab.tools.listing.experiments", known.__getitem__)
    for name in (first.name, second.name):
        for path in (root / DEFAULT_DEVICE / "mlp").glob(f"{name}.*"):
            path.unlink()
    code, lines, states = listed(capsys, "--check")
    assert (code, states[first.id], states[second.id]) == (0, "needs 2 GPUs", "needs 4 GPUs")
    assert lines[-2:] == [
        f"1 not recorded yet for {DEFAULT_DEVICE}: on a machine with {gpus} GPUs of that kind run make record"
        for gpus in (2, 4)
    ]


def damage_stale(root: Path) -> None:
    save(root, fingerprint="0" * 16)


def damage_trace_missing(root: Path) -> None:
    (root / DEFAULT_DEVICE / "mlp/eager.trace.json.gz").unlink()


def damage_json(root: Path) -> None:
    (root / DEFAULT_DEVICE / "mlp/eager.json").write_text("{")


def damage_trace(root: Path) -> None:
    (root / DEFAULT_DEVICE / "mlp/eager.trace.json.gz").write_text("{")


def add_orphan(root: Path) -> None:
    save(root, "mlp/gone")


def add_orphans(root: Path) -> None:
    save(root, "gone/eager")


@pytest.mark.parametrize(
    ("damage", "entry", "state"),
    [
        (damage_stale, "mlp/eager", "stale"),
        (damage_trace_missing, "mlp/eager", "missing trace"),
        (
            damage_json,
            "mlp/eager",
            "unreadable: eager.json is not a recording (Input data was truncated); on a machine",
        ),
        (damage_trace, "mlp/eager", "unreadable: "),
        (add_orphan, "mlp/gone", "orphan: its experiment is gone; delete its recording"),
        (add_orphans, "gone/", "orphan: its chapter is gone; delete the folder"),
    ],
)
def test_the_gate_fails_on_what_is_not_current(
    root: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None], entry: str, state: str
) -> None:
    save(root, device="nvidia-other")
    damage(root)
    code, lines, states = listed(capsys, "--device", DEFAULT_DEVICE, "--check")
    assert code == 1
    assert states[entry].startswith(state)
    assert lines[-1] == f"1 not current {CURE}"
    assert listed(capsys, "--device", DEFAULT_DEVICE)[0] == 0
    assert listed(capsys, "--device", "nvidia-other", "--check")[0] == 0, "only the default device must be complete"
    lines = listed(capsys)[1]
    assert lines[lines.index("nvidia-other") :][-1] == (
        f"{len(EXPERIMENTS) - 1} not recorded yet for nvidia-other: on a machine with that GPU run make record"
    )


def test_prepare_prints_what_a_page_will_show(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage_stale(root)
    (root / DEFAULT_DEVICE / "mlp/compiled.json").unlink()
    assert prepare(root, fresh=False, here=None, machine=no_machine) == 0
    modes = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert modes["mlp/eager"] == ["stale", DEFAULT_DEVICE]
    assert modes["mlp/compiled"] == ["missing", DEFAULT_DEVICE]
    assert modes["mlp/liger"] == ["replayed", DEFAULT_DEVICE]
    assert len(modes) == len(EXPERIMENTS)


def test_prepare_sets_a_lab_aside_that_no_page_can_show(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    hostile = hostile_notebook(root, NOT_OUTPUTS["stream without text"])
    written = hostile.path.read_bytes()
    assert prepare(root, fresh=False, here=None, machine=no_machine) == 0
    out, err = capsys.readouterr()
    assert "\nlabs/mlp                                 unreadable: its outputs are missing" in out
    assert err == (
        "warning: labs/mlp: an output is not text or HTML: Object missing required field `text` - at `$[0]`; "
        "shown without outputs, the file as it was is .cache/labs/mlp.ipynb\n"
    )
    assert (tmp_path / ".cache/labs/mlp.ipynb").read_bytes() == written
    assert prepare(root, fresh=False, here=None, machine=no_machine) == 0
    assert capsys.readouterr().err == "", "once"


def no_machine() -> NoReturn:
    pytest.fail("there is no GPU to record on")


def test_prepare_records_nothing_where_another_device_is_asked_for(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DEVICE", DEFAULT_DEVICE)
    assert prepare(root, fresh=False, here="nvidia-other", machine=no_machine) == 0
    assert {line.split()[1] for line in capsys.readouterr().out.splitlines()} == {"replayed"}


def test_prepare_says_why_a_gpu_is_not_recorded(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("snippets.lab.tools.prepare.why_no_device", lambda: "nvidia-smi fails")
    assert prepare(root, fresh=False, here=None, machine=no_machine) == 0
    assert capsys.readouterr().err == "warning: nothing is recorded here: nvidia-smi fails\n"
    monkeypatch.setenv("DEVICE", DEFAULT_DEVICE)
    assert prepare(root, fresh=False, here=None, machine=no_machine) == 0
    assert capsys.readouterr().err == "", "another device is asked for"


@pytest.mark.parametrize(("failing", "code"), [("", 0), ("linear/eager", 1)])
def test_prepare_records_on_a_gpu(root: Path, capsys: pytest.CaptureFixture[str], failing: str, code: int) -> None:
    machine = FakeMachine(failing=failing, pending=[one.id for one in find("linear")])
    assert prepare(root, fresh=False, here=DEFAULT_DEVICE, machine=machine.build) == code
    assert machine.recorded == [one.id for one in find("linear")]
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["linear/compiled", "live", DEFAULT_DEVICE] in lines


def test_prepare_warns_where_cuda_and_nvidia_smi_count_gpus_in_another_order(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = FakeMachine(pending=(), device="nvidia-h100")
    assert prepare(root, fresh=False, here="nvidia-t4", machine=machine.build) == 0
    assert capsys.readouterr().err.startswith("warning: CUDA records nvidia-h100, but pages open with nvidia-t4, ")
    machine = FakeMachine(pending=())
    assert prepare(root, fresh=False, here=DEFAULT_DEVICE, machine=machine.build) == 0
    assert capsys.readouterr().err == ""


def test_prepare_refuses_a_gpu_in_use(root: Path) -> None:
    machine = FakeMachine(in_use="python3 (pid 4)")
    with pytest.raises(NeedsGpu, match=r"^python3 \(pid 4\) uses this GPU$"):
        prepare(root, fresh=True, here=DEFAULT_DEVICE, machine=machine.build)
    assert prepare(root, fresh=False, here=DEFAULT_DEVICE, machine=FakeMachine(in_use="x", pending=()).build) == 0
