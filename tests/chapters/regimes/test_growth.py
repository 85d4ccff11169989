"""Where time goes as work grows: the crossovers and claims of sample recordings whose times are round."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from snippets.lab.experiment import Parameters
from snippets.lab.finding import Device, NotTimed
from snippets.regimes.findings import crossovers, growth
from tests.chapters.altered import status
from tests.chapters.regimes import samples
from tests.lab.sample_recordings import Sample, page_on_samples, sample_of, save_samples

CLAIMS = [f"RG{number}" for number in range(1, 13)]
Times = Callable[[Parameters], float]


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_samples(tmp_path, samples.growth())


def change(device: Device, name: str, us: Times, cpu_us: float) -> None:
    """Replace the times of a sweep."""
    save_samples(device.root, [swept(name, us, cpu_us)])


def swept(name: str, us: Times, cpu_us: float) -> Sample:
    return samples.with_cpu(sample_of(f"regimes/growth_{name}", us), cpu_us)


def test_the_gpu_overtakes_the_cpu_between_two_points(device: Device) -> None:
    """45 us of CPU; the GPU takes 40 us at 1,024 tokens, and from there on in proportion."""
    assert crossovers.overhead_until(device[growth.STACK]).number == pytest.approx(1152)
    assert crossovers.overhead_until(device[growth.COMPILED]).number == pytest.approx(1792)


def test_the_cpus_time_is_its_median_over_the_sizes(device: Device) -> None:
    """45 us at all sizes but three: the GPU takes 40 us at 1,024 tokens, 20 at 512 and 80 at 2,048."""
    recording, trace = swept("stack", samples.stack_us, 45.0)
    cpu_us = {64: 20.0, 1024: 80.0, 2048: 60.0}
    points = []
    for point in recording.points:
        assert point.timings is not None
        enqueue = samples.timing(cpu_us.get(int(point.parameters["tokens"]), 45.0))
        points.append(msgspec.structs.replace(point, timings=msgspec.structs.replace(point.timings, enqueue=enqueue)))
    save_samples(device.root, [(msgspec.structs.replace(recording, points=tuple(points)), trace)])
    until = crossovers.overhead_until(device[growth.STACK])
    assert until.number == pytest.approx(1152)
    assert until.bounds == pytest.approx((512, 2048))
    assert crossovers.cpu_varies(device[growth.STACK]).number == pytest.approx(4)
    assert crossovers.cpu_median(device[growth.STACK]).number == pytest.approx(45)
    assert crossovers.cpu_median(device[growth.STACK]).bounds == pytest.approx((20, 80))


def test_a_crossing_without_ends_has_no_spread(device: Device) -> None:
    """The GPU is never as quick as the CPU's lowest time."""
    recording, trace = swept("stack", samples.stack_us, 45.0)
    first, *others = recording.points
    assert first.timings is not None
    quick = msgspec.structs.replace(first, timings=msgspec.structs.replace(first.timings, enqueue=samples.timing(5.0)))
    save_samples(device.root, [(msgspec.structs.replace(recording, points=(quick, *others)), trace)])
    until = crossovers.overhead_until(device[growth.STACK])
    assert (until.number, until.spread) == (pytest.approx(1152), None)


def test_memory_gives_way_to_arithmetic_where_the_ceilings_say(device: Device) -> None:
    """4,096 B a token and 16.8 MB of weights at 4 TB/s; 16.8 MFLOP a token at 700 TFLOP/s."""
    exact = (2 * (2 * 1024 * 4096 + 1024 + 4096) / 4e12) / ((16_777_216 + 10 * 4096) / 7e14 - 4096 / 4e12)
    assert exact == pytest.approx(182.5, abs=0.1)
    assert crossovers.memory_until(device[growth.STACK]).number == pytest.approx(exact, rel=0.02)


def test_the_gpus_time_grows_from_the_knee(device: Device) -> None:
    assert crossovers.growth_from(device[growth.STACK]).number == 256


def test_a_crossover_that_is_not_there_is_no_figure(device: Device) -> None:
    change(device, "stack", lambda at: 100.0, 45.0)
    for measure in (crossovers.overhead_until, crossovers.growth_from):
        with pytest.raises(NotTimed, match="at none of the sizes"):
            measure(device[growth.STACK])


def test_what_limits_each_point(device: Device) -> None:
    for tokens, at in crossovers.points(device[growth.STACK]).items():
        assert crossovers.regime_of(at) == ("overhead-bound" if tokens < 2048 else "compute-bound")
    assert crossovers.regime_of(device[f"{growth.GELU}[tokens=32768]"]) == "memory-bound"


def test_the_gpu_is_idle_while_the_cpu_is_not_done(device: Device) -> None:
    """10 us of 47, and 640 of 642."""
    assert crossovers.idle(device[f"{growth.STACK}[tokens=64]"]).number == pytest.approx(100 * 37 / 47)
    assert crossovers.idle(device[f"{growth.STACK}[tokens=16384]"]).number == pytest.approx(100 * 2 / 642)


def test_the_claims_of_the_samples(device: Device) -> None:
    """The stack reaches 61 % of the sample's matmul: that claim alone differs."""
    found = {claim_id: status(device, claim_id) for claim_id in CLAIMS}
    assert found == dict.fromkeys(CLAIMS, "holds") | {"RG5": "differs"}


def test_a_size_whose_steps_differ_has_no_count(device: Device) -> None:
    counts = crossovers.launches(device, growth.STACK)
    assert (counts[64], counts[256], counts.get(128)) == (4, 5, None)
    assert len(counts) == len(crossovers.points(device[growth.STACK])) - 1
    empty = {"stack": {"tokens": [1], "names": [[]]}}
    save_samples(device.root, [sample_of("regimes/growth_launches", 0.0, data=empty)])
    with pytest.raises(NotTimed, match="no profile agree"):
        crossovers.launches(device, growth.STACK)


def test_a_gelu_that_takes_no_time(device: Device) -> None:
    quick = (samples.BLOCK[0], ("aten::gelu", [[64, 4096]], [("gelu", 0.5)]), samples.BLOCK[2])
    save_samples(device.root, [sample_of("regimes/compute_bound", 11.0, quick)])
    assert growth.gelu_share(device).number == pytest.approx(100 * 0.5 / 9.5)
    reached = growth.near_the_matmul(device).number
    assert growth.products_share(device).number == pytest.approx(reached * 9.5 / 9.0)


def test_the_page_on_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = save_samples(tmp_path, [*samples.growth(), *samples.launches()])
    shown = page_on_samples("regimes", device, monkeypatch)
    assert "1,150" in shown
    assert "overhead-bound up to 1,024 tokens" in shown
