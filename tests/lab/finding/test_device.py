"""A device gives runs by name; what is missing, untimed or unknown is told apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kinetoscope.trace.events import TraceError
from snippets.lab.experiment import UnknownName, find
from snippets.lab.finding.device import Device, Run, all_devices
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.part import timing_of_samples
from snippets.lab.finding.points import select_point
from snippets.lab.finding.views import part
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.schema import NotRecorded, NotTimed, RecordingError, Timing
from tests.lab import samples
from tests.lab.samples import DEVICE, point, sample, save_all, timings
from tests.tool import events

SMALL, LARGE = {"batch": 1, "seq": 1}, {"batch": 64, "seq": 1}


@pytest.fixture
def device(tmp_path: Path) -> Device:
    sweep = (point(dict(SMALL), timings(1.0, 2.0, 3.0)), point(dict(LARGE), timings(10.0, 20.0, 30.0)))
    return save_all(tmp_path, sample(data={"graphs": 2}), sample("mlp/sweep_eager", points=sweep, has_trace=False))


def test_a_run_is_what_was_recorded(device: Device) -> None:
    run = device["mlp/eager"]
    assert (run.id, run.selector, run.is_recorded, run.label) == ("mlp/eager", "", True, "mlp_fwd")
    assert (samples.untied(run.recording), run.environment, run.data) == (
        sample(data={"graphs": 2}),
        samples.environment(),
        {"graphs": 2},
    )
    assert run.origin == "NVIDIA Sample, mlp/eager"
    assert [step.number for step in run.steps] == [2, 3, 4]
    assert run.step.number == 3
    assert run.trace_path == f"{DEVICE}/mlp/eager.trace.json.gz"
    assert (device.root / run.trace_path).is_file()


def test_numbers_of_a_run(device: Device) -> None:
    run = device["mlp/eager"]
    assert run.per_step(lambda step: len(step.kernels)) == Figure(
        2, origin="NVIDIA Sample, mlp/eager, per step of its trace"
    )
    assert run.per_step(lambda step: 1.0 * step.number, "us").bounds == (2.0, 4.0)
    assert run.step_timing(lambda step: 10.0 * step.number) == Timing(30.0, 25.0, 35.0, (20.0, 30.0, 40.0))
    assert run.time() == Figure(20.0, "us", (15.0, 25.0), "NVIDIA Sample, mlp/eager")
    assert [run.timing(kind).median_us for kind in ("cold", "from_python", "enqueue")] == [50.0, 80.0, 6.0]
    assert dict(run.ceilings) == {"copy": 1e12}
    assert (run.ceiling("copy").bytes, run.ceiling("copy").rate) == (2_000_000, 1e12)


def test_points_of_a_sweep(device: Device) -> None:
    sweep = device["mlp/sweep_eager"]
    assert [each.parameters for each in sweep.points] == [SMALL, LARGE]
    assert device["mlp/sweep_eager[batch=64,seq=1]"].point.parameters == LARGE
    assert device["mlp/sweep_eager[batch=64]"].time().value == 20.0
    assert sweep.at(batch=1, seq=1) == device["mlp/sweep_eager[batch=1,seq=1]"]
    assert sweep.at(batch=1).time().value == 2.0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mlp/eagr", "no experiment 'mlp/eagr'; did you mean mlp/eager"),
        ("mpl/eager", "no chapter 'mpl'; did you mean mlp?"),
        ("mlp", "'mlp' is not an experiment; did you mean mlp/"),
        ("mlp/sweep_compiled[batch=3]", "mlp/sweep_compiled has no point 'batch=3'; did you mean"),
    ],
)
def test_what_does_not_exist(device: Device, name: str, message: str) -> None:
    for where in (device, Device(device.root / "nowhere", DEVICE)):
        with pytest.raises(UnknownName) as raised:
            _ = where[name]
        assert str(raised.value).startswith(message)


def test_what_is_not_recorded_yet(device: Device) -> None:
    run = device["mlp/compiled"]
    assert not run.is_recorded
    with pytest.raises(
        NotRecorded, match=r"^no recording 'mlp/compiled' for nvidia-sample; .* make record CHAPTER=mlp$"
    ):
        _ = run.recording
    with pytest.raises(NotRecorded):
        _ = Device(device.root, "nvidia-x")["mlp/eager"].trace


def test_what_was_not_timed(device: Device) -> None:
    save_all(device.root, sample("mlp/compiled", points=(point(),)))
    with pytest.raises(NotTimed, match=r"^mlp/compiled was recorded without timings; make record CHAPTER=mlp$"):
        device["mlp/compiled"].time()
    with pytest.raises(NotTimed, match=r"^mlp/eager has no ceiling 'matmul 1x1x1'; make record CHAPTER=mlp$"):
        device["mlp/eager"].ceiling("matmul 1x1x1")


def test_a_sweep_has_no_trace(device: Device) -> None:
    with pytest.raises(UnknownName, match=r"^mlp/sweep_eager has no trace: it is a sweep or a probe$"):
        _ = device["mlp/sweep_eager"].trace


def test_the_time_of_a_loops_iteration(device: Device) -> None:
    save_all(device.root, sample(points=(point(iteration=Timing.from_samples((10, 30, 20, 50), rounds=(2, 2))),)))
    run = device["mlp/eager"]
    assert run.timing("iteration").median_us == 25
    assert part(device, 1)["mlp/eager"].timing("iteration").samples_us == (20, 50)
    assert run.time("iteration").number == 25
    with pytest.raises(NotTimed, match=r'^mlp/eager is a loop: ask for kind="iteration"$'):
        run.timing("from_python")
    save_all(device.root, sample())
    kinds = "'interleaved' or 'cold' or 'from_python' or 'enqueue' or 'steady'"
    with pytest.raises(NotTimed, match=f"^mlp/eager is no loop: ask for kind={kinds}$"):
        device["mlp/eager"].timing("iteration")


def test_a_trace_without_steps(device: Device) -> None:
    save_all(device.root, sample(), trace=events.trace_bytes(events.op("aten::mm", 0, 5)))
    run = device["mlp/eager"]
    assert run.trace.steps == ()
    for read in (lambda: run.steps, lambda: run.step, lambda: run.per_step(lambda step: 1)):
        with pytest.raises(TraceError, match="no active steps"):
            read()


def test_a_damaged_recording_is_not_a_missing_one(device: Device) -> None:
    (device.root / DEVICE / "mlp" / "eager.json").write_text("{")
    with pytest.raises(RecordingError, match="is not a recording") as raised:
        _ = device["mlp/eager"].is_recorded
    assert not isinstance(raised.value, NotRecorded)


def test_one_point_is_chosen_by_its_parameters() -> None:
    points = [SMALL, LARGE]
    assert [select_point("c/s", points, selector) for selector in ("batch=1", "batch=64,seq=1")] == [0, 1]
    assert select_point("c/s", [SMALL], "") == 0
    for selector in ("", "seq=1"):
        with pytest.raises(UnknownName, match=r"^c/s has 2 points; pick one, such as \[batch=1,seq=1\]$"):
            select_point("c/s", points, selector)
    with pytest.raises(UnknownName, match=r"^c/s has no point 'batch=65'; did you mean batch=64,seq=1"):
        select_point("c/s", points, "batch=65")


def test_samples_as_a_timing() -> None:
    assert timing_of_samples([10.0, 20.0, 30.0]) == Timing(20.0, 15.0, 25.0, (10.0, 20.0, 30.0))
    assert timing_of_samples([4.0]) == Timing(4.0, 4.0, 4.0, (4.0,))


def test_all_devices(tmp_path: Path) -> None:
    assert all_devices(tmp_path) == (Device(tmp_path, DEFAULT_DEVICE),)
    for name in ("nvidia-z", "nvidia-a", DEFAULT_DEVICE):
        save_all(tmp_path, sample(), device=name)
    found = all_devices(tmp_path)
    assert [each.name for each in found] == [DEFAULT_DEVICE, "nvidia-a", "nvidia-z"]
    assert [each.is_default for each in found] == [True, False, False]
    assert [each.short_name for each in found] == ["H200", "A", "Z"]
    assert found[1].recorded_names("mlp") == ("eager",)


def test_a_run_reads_nothing_until_it_is_asked(tmp_path: Path) -> None:
    nothing = Device(tmp_path / "nowhere", "x")
    assert nothing["mlp/sweep_eager[batch=1,seq=1]"] == Run(nothing, "mlp/sweep_eager", "batch=1,seq=1")


def test_a_missing_recording_of_several_gpus_says_how_many(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_ranks(**_: object) -> dict[str, object]:
        raise NotImplementedError

    (new,) = find("mlp/compiled")
    on_two = replace(new, make=None, work=None, sweep=(), probe=on_ranks, gpus=2)
    monkeypatch.setattr("snippets.lab.finding.device.find", lambda name: (on_two,))
    with pytest.raises(NotRecorded, match=r"run make record CHAPTER=mlp; it needs 2 GPUs$"):
        _ = device["mlp/compiled"].recording
