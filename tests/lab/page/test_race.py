"""A race out of hand-made recordings: exact cells, spreads between processes, recordings without steady times."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from snippets.lab.experiment import UnknownName
from snippets.lab.finding.device import Device
from snippets.lab.page.race import race_bars, race_table
from snippets.lab.recording.schema import NotTimed, Timing, Timings
from tests.lab import samples
from tests.lab.samples import EVIL, Markup, assert_only_text, cells, point, sample, save_all

VARIANTS = {"eager": "mlp/eager", "ours": "mlp/compiled"}
THREE = (2, 2, 2)


def timings(factor: float, steady: Timing | None) -> Timings:
    """Three processes of two samples each, with the medians 100, 110 and 90 times `factor`."""
    samples_us = [factor * us for us in (99, 101, 109, 111, 89, 91)]
    return Timings(
        interleaved=Timing.from_samples(samples_us, THREE),
        cold=samples.timing(200.0, 300.0),
        from_python=Timing.from_samples([400.0, 400.0, 440.0, 440.0, 420.0, 420.0], THREE),
        enqueue=samples.timing(50.0, 60.0),
        input_sets=4,
        rotated_bytes=1_000_000,
        steady=steady,
    )


def steady(us: float, **sensors: float) -> Timing:
    return Timing.from_samples([us, us, us + 4, us + 4, us + 2, us + 2], THREE, **sensors)


@pytest.fixture
def device(tmp_path: Path) -> Device:
    eager = timings(1.0, steady(100.0, clock_mhz=1695.0, watts=598.6, joules=0.0613))
    ours = timings(0.5, steady(80.0, clock_mhz=1500.0, watts=700.0, joules=0.12345))
    return save_all(
        tmp_path,
        sample("mlp/eager", points=(point(timed=eager),)),
        sample("mlp/compiled", points=(point(timed=ours),)),
    )


def test_each_kind_of_time_with_the_spread_between_processes_and_what_steady_cost(device: Device) -> None:
    content = race_table(device, VARIANTS, "A race", over="eager", more={"kernels": "kernels_per_step"})
    sensors = ["steady clock", "steady power", "steady energy per step"]
    assert cells(content) == [
        ["", "GPU, interleaved", "GPU, steady", "from Python", *sensors, "kernels"],
        [
            *("eager", "100 µs90.0 to 110 µs", "102 µs100 to 104 µs", "420 µs400 to 440 µs"),
            *("1,695 MHz", "599 W", "61.3 mJ", "2"),
        ],
        [
            *("ours", "50.0 µs45.0 to 55.0 µs0.50x of eager", "82.0 µs80.0 to 84.0 µs0.80x of eager0.80x to 0.81x"),
            *("420 µs400 to 440 µs1.00x of eager", "1,500 MHz", "700 W", "123 mJ", "2"),
        ],
    ]
    assert "Spread of times: lowest and highest of 3 processes." in Markup(content).text
    assert "Steady" not in Markup(race_table(device, VARIANTS, "c", kinds=["interleaved"])).text


def test_the_ratio_of_one_process_has_the_spread_of_its_thirds(tmp_path: Path) -> None:
    slow, fast = ((10.0, 20.0, 30.0), (5.0, 16.0, 9.0))
    device = save_all(
        tmp_path,
        sample("mlp/eager", points=(point(timed=samples.timings(*slow)),)),
        sample("mlp/compiled", points=(point(timed=samples.timings(*fast)),)),
    )
    content = race_table(device, VARIANTS, "c", kinds=("interleaved",), over="eager")
    assert cells(content)[1:] == [
        ["eager", "20.0 µs15.0 to 25.0 µs"],
        ["ours", "9.00 µs7.00 to 12.5 µs0.50x of eager0.30x to 0.80x"],
    ]
    thirds = "Spread of times: quartiles of one process. Spread of a ratio: lowest and highest third of its pairs."
    assert thirds in Markup(content).text
    assert "third" not in race_table(device, VARIANTS, "c")


def test_an_old_recording_has_no_column_for_steady_times(tmp_path: Path) -> None:
    device = save_all(tmp_path, sample("mlp/eager"), sample("mlp/compiled"))
    content = race_table(device, VARIANTS, "c")
    assert cells(content)[0] == ["", "GPU, interleaved", "from Python"]
    assert "steady" not in content.lower()


def test_a_variant_without_steady_times_beside_one_with_them(device: Device) -> None:
    old = sample("mlp/compiled", points=(point(timed=timings(0.5, None)),))
    save_all(device.root, old)
    eager, ours = cells(race_table(device, VARIANTS, "c", kinds=("steady",), over="eager"))[1:]
    assert (eager[:3], ours[:3]) == (["eager", "102 µs100 to 104 µs", "1,695 MHz"], ["ours", "–", "–"])
    (_, ours) = cells(race_table(device, VARIANTS, "c", kinds=("steady",), over="ours"))[1:]
    assert ours[1] == "–"


def test_a_clock_that_nvml_did_not_tell_has_no_column(device: Device) -> None:
    for name in ("eager", "compiled"):
        save_all(device.root, sample(f"mlp/{name}", points=(point(timed=timings(1.0, steady(100.0))),)))
    assert cells(race_table(device, VARIANTS, "c", kinds=("steady",)))[0] == ["", "GPU, steady"]


def test_ratios_of_variants_recorded_apart_are_refused(device: Device) -> None:
    recording = device["mlp/compiled"].recording
    save_all(device.root, msgspec.structs.replace(recording, session="2026-10-02T11:59:00Z"))
    with pytest.raises(NotTimed, match="recorded apart"):
        race_table(device, VARIANTS, "c", over="eager")
    assert len(cells(race_table(device, VARIANTS, "c"))) == 3


def test_usage_errors(device: Device) -> None:
    with pytest.raises(UnknownName, match="no variant 'eagre'; did you mean eager"):
        race_table(device, VARIANTS, "c", over="eagre")
    with pytest.raises(UnknownName, match="no kind of time 'stedy'; did you mean steady"):
        race_table(device, VARIANTS, "c", kinds=("stedy",))


@pytest.mark.parametrize("name", EVIL)
def test_names_stay_text(device: Device, name: str) -> None:
    assert_only_text(race_table(device, {name: "mlp/eager"}, name, over=name), name)


def test_bars_of_a_race(device: Device) -> None:
    assert cells(race_bars(device, VARIANTS, "A race", kinds=("interleaved", "steady", "enqueue"))) == [
        ["variant", "timing", "median", "lowest and highest of 3 processes; quartiles of one process"],
        ["eager", "interleaved", "100 µs", "90.0 to 110 µs"],
        ["eager", "steady", "102 µs", "100 to 104 µs"],
        ["eager", "CPU part", "55.0 µs", "52.5 to 57.5 µs"],
        ["ours", "interleaved", "50.0 µs", "45.0 to 55.0 µs"],
        ["ours", "steady", "82.0 µs", "80.0 to 84.0 µs"],
        ["ours", "CPU part", "55.0 µs", "52.5 to 57.5 µs"],
    ]
