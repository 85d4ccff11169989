"""Figures by name: every quantity of a run, and an error with the nearest name for one that nothing computes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kinetoscope.trace.events import TraceError
from snippets.lab.experiment import UnknownName
from snippets.lab.finding.book import figure
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.quantities import QUANTITIES
from snippets.lab.recording.schema import NotRecorded, NotTimed, RecordingError, Timing
from tests.lab import samples
from tests.lab.conftest import Book
from tests.lab.samples import DEVICE, EVIL, sample, save_all


@pytest.fixture
def device(tmp_path: Path) -> Device:
    """mlp/eager with a trace, a sweep of two points, and linear/eager, which was not timed."""
    small = samples.point({"batch": 1, "seq": 1}, samples.timings(1.0, 2.0, 3.0))
    points = (small, samples.point({"batch": 64, "seq": 128}, samples.timings()))
    sweep = sample("mlp/sweep_eager", points=points, has_trace=False)
    steady = Timing.from_samples((20.0, 22.0), (1, 1), clock_mhz=1755.0, watts=652.5, joules=0.01435)
    turns = Timing.from_samples((10.0, 20.0, 30.0), clock_mhz=1980.0, watts=310.0)
    timed = msgspec.structs.replace(samples.timings(), steady=steady, interleaved=turns)
    eager = sample(points=(samples.point(timed=timed),))
    return save_all(tmp_path, eager, sweep, sample("linear/eager", points=(samples.point(),), label="other"))


@pytest.mark.parametrize(
    ("name", "text", "spread"),
    [
        ("mlp.eager.kernels_per_step", "2", ""),
        ("mlp.eager.memsets_per_step", "1", ""),
        ("mlp.eager.memcpys_per_step", "0", ""),
        ("mlp.eager.activities_per_step", "3", ""),
        ("mlp.eager.gpu_calls_per_step", "3", ""),
        ("mlp.eager.cuda_calls_per_step", "3", ""),
        ("mlp.eager.ops_per_step", "1", ""),
        ("mlp.eager.kernel_time_us", "20.0 µs", ""),
        ("mlp.eager.busy_us", "24.0 µs", ""),
        ("mlp.eager.extent_us", "64.0 µs", ""),
        ("mlp.eager.overlap_us", "0 µs", ""),
        ("mlp.eager.cpu_us", "80.0 µs", ""),
        ("mlp.eager.interleaved_us", "20.0 µs", "15.0 to 25.0 µs"),
        ("mlp.eager.cold_us", "50.0 µs", "45.0 to 55.0 µs"),
        ("mlp.eager.from_python_us", "80.0 µs", "75.0 to 85.0 µs"),
        ("mlp.eager.enqueue_us", "6.00 µs", "5.50 to 6.50 µs"),
        ("mlp.eager.steady_us", "21.0 µs", "20.0 to 22.0 µs"),
        ("mlp.eager.interleaved_clock_mhz", "1,980 MHz", ""),
        ("mlp.eager.interleaved_watts", "310 W", ""),
        ("mlp.eager.steady_clock_mhz", "1,755 MHz", ""),
        ("mlp.eager.steady_watts", "652 W", ""),
        ("mlp.eager.joules", "14.3 mJ", ""),
        ("mlp.eager.flops", "2.00 MFLOP", ""),
        ("mlp.eager.bytes", "4.00 MB", ""),
        ("mlp.eager.flops_per_s", "100 GFLOP/s", "80.0 to 133 GFLOP/s"),
        ("mlp.eager.bytes_per_s", "200 GB/s", "160 to 267 GB/s"),
        ("mlp.eager.peak_memory_bytes", "16.4 kB", ""),
        ("mlp.eager.relative_error", "2.3e-03", ""),
        ("mlp.sweep_eager.interleaved_us[batch=1,seq=1]", "2.00 µs", "1.50 to 2.50 µs"),
        ("mlp.sweep_eager.interleaved_us[batch=64]", "20.0 µs", "15.0 to 25.0 µs"),
    ],
)
def test_figures_by_name(device: Device, name: str, text: str, spread: str) -> None:
    measured = figure(name, device)
    assert (measured.text, measured.spread_text, measured.conclusive) == (text, spread, True)
    assert measured.origin.startswith("NVIDIA Sample, mlp/")


def test_every_quantity_has_a_test() -> None:
    (cases,) = [mark.args[1] for mark in test_figures_by_name.pytestmark]
    assert {name.split(".")[2].partition("[")[0] for name, _, _ in cases} == set(QUANTITIES)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mlp.eager.kernels", "no quantity 'kernels'; did you mean kernel_time_us or kernels_per_step or"),
        ("mlp.eagr.interleaved_us", "no experiment 'mlp/eagr'; did you mean mlp/eager"),
        ("mpl.eager.interleaved_us", "no chapter 'mpl'; did you mean mlp?"),
        ("mlp.sweep_eager.interleaved_us", "mlp/sweep_eager has 2 points; pick one, such as [batch=1,seq=1]"),
        (
            "mlp.sweep_eager.interleaved_us[batch=2]",
            "mlp/sweep_eager has no point 'batch=2'; did you mean batch=64,seq=128 or batch=1,seq=1?",
        ),
        ("mlp.sweep_eager.interleaved_us[size=1]", "mlp/sweep_eager has no point 'size=1'; did you mean"),
        ("mlp.sweep_eager.interleaved_us[batch]", "no figure 'mlp.sweep_eager.interleaved_us[batch]'; did you mean"),
        ("mlp.sweep_eager.interleaved_us[]", "no figure 'mlp.sweep_eager.interleaved_us[]'; did you mean"),
        ("mlp.sweep_eager.kernels_per_step", "mlp/sweep_eager has no trace: it is a sweep or a probe"),
        (
            "mlp.sweep_eager.kernels_per_step[batch=1]",
            "mlp/sweep_eager[batch=1]: kernels_per_step needs a trace, and a point of a sweep has none",
        ),
        ("mlp.no_such_figure", "no figure 'mlp.no_such_figure'; did you mean"),
        ("nowhere.kernels", "no findings of 'nowhere'; did you mean"),
        ("kernels", "no findings of 'kernels'; did you mean"),
        ("../x.y", "no findings of ''"),
        ("", "no findings of ''"),
        (EVIL[0], "no findings of"),
    ],
)
def test_a_figure_that_nothing_computes(book: Book, device: Device, name: str, message: str) -> None:
    book(mlp=samples.findings(gate=lambda device: Figure(1)))
    with pytest.raises(UnknownName) as raised:
        figure(name, device)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("mlp.compiled.interleaved_us", NotRecorded, "no recording 'mlp/compiled' for nvidia-sample; on a machine"),
        ("linear.eager.interleaved_us", NotTimed, "linear/eager was recorded without timings; make record"),
        ("mlp.sweep_eager.steady_us[batch=64]", NotTimed, "mlp/sweep_eager has no steady timing; make record"),
        ("mlp.sweep_eager.joules[batch=64]", NotTimed, "mlp/sweep_eager has no steady timing; make record"),
        (
            "mlp.sweep_eager.interleaved_watts[batch=1]",
            NotTimed,
            "mlp/sweep_eager has no watts of its interleaved timing; make record",
        ),
        ("linear.eager.flops_per_s", NotTimed, "linear/eager was recorded without timings; make record"),
        ("linear.eager.cpu_us", TraceError, "ProfilerStep#2 has no annotation 'other'"),
    ],
)
def test_a_figure_that_is_not_there_yet(device: Device, name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        figure(name, device)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    "name", ["mlp.eagr.interleaved_us", "mlp.eager.kernels", "mlp.sweep_eager.interleaved_us[batch=2]"]
)
def test_what_does_not_exist_is_an_error_where_nothing_is_recorded_too(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownName):
        figure(name, samples.device(tmp_path))


def test_figures_of_a_chapter(book: Book, device: Device) -> None:
    book(mlp=samples.findings(answer=lambda device: Figure(f"of {device.name}")))
    assert figure("mlp.answer", device).text == f"of {DEVICE}"
    assert figure("mlp.answer", Device(device.root, "nvidia-x")).text == "of nvidia-x"
    with pytest.raises(UnknownName, match=r"^no figure 'mlp\.answr'; did you mean mlp\.answer\?$"):
        figure("mlp.answr", device)


def test_a_damaged_recording_is_an_error(device: Device) -> None:
    (device.root / DEVICE / "mlp" / "eager.json").write_text("{")
    with pytest.raises(RecordingError, match=r"^eager\.json is not a recording"):
        figure("mlp.eager.interleaved_us", device)
