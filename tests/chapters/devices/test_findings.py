"""The pages devices and measuring: exact rates from recordings written by hand, and the book's own recordings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from snippets.devices.experiments import PRODUCTS
from snippets.devices.findings import gpus, measuring
from snippets.devices.findings.measuring import STEPS, gpu_and_cpu, steps_below_roof
from snippets.lab.finding import Claim, Device, NotRecorded, NotTimed, format_value
from snippets.lab.finding.book import judge
from snippets.lab.recording.loading import load_recordings
from snippets.lab.recording.schema import Ceiling, Point, Recording, Timing
from tests.lab import samples
from tests.lab.samples import BOOK, cells

ONE_MS = samples.timing(990.0, 1000.0, 1010.0)


def save_session(root: Path, name: str, session: str, *limits: Ceiling) -> Device:
    recording = samples.sample(f"devices/{name}", session=session, ceilings=limits, has_trace=False)
    return samples.save_all(root, recording)


def test_ceilings_by_size_with_their_median_and_bounds_over_sessions(tmp_path: Path) -> None:
    large, small = (Ceiling(f"matmul {size}", 600, 2_000_000, ONE_MS) for size in ("1024x32x64", "64x64x64"))
    for session, gigabytes in (("a", 3), ("b", 1), ("c", 2)):
        copy = Ceiling("copy", gigabytes * 1_000_000_000, 0, ONE_MS)
        save_session(tmp_path, session, session, copy, large, small)
    device = save_session(tmp_path, "d", "d", Ceiling("matmul 8192x8192x8192", 600, 4_000_000, ONE_MS))
    save_session(tmp_path, "e", "e", Ceiling("matmul 64x64x64, x @ w", 600, 2_000_000, ONE_MS))
    assert cells(gpus.ceilings(device)) == [
        ["ceiling", "median", "lowest session", "highest session", "sessions"],
        ["copy", "2.00 TB/s", "1.00 TB/s", "3.00 TB/s", "3"],
        ["matmul 8192x8192x8192", *["4.00 GFLOP/s"] * 3, "1"],
        ["matmul 64x64x64", *["2.00 GFLOP/s"] * 3, "3"],
        ["matmul 64x64x64, x @ w", *["2.00 GFLOP/s"] * 3, "1"],
        ["matmul 1024x32x64", *["2.00 GFLOP/s"] * 3, "3"],
    ]


def test_a_session_that_times_a_ceiling_several_times_counts_once_by_its_median(tmp_path: Path) -> None:
    def timed(name: str, session: str, *gigabytes: int) -> Recording:
        point = samples.point(timed=samples.timings())
        copies = [(Ceiling("copy", each * 1_000_000_000, 0, ONE_MS),) for each in gigabytes]
        points = tuple(msgspec.structs.replace(point, ceilings=each) for each in copies)
        sample = samples.sample(f"devices/{name}", session=session, has_trace=False)
        return msgspec.structs.replace(sample, points=points)

    swept = [timed("a", "first", 9, 4), timed("b", "first", 5), timed("c", "second", 1), timed("d", "third", 6)]
    assert cells(gpus.ceilings(samples.save_all(tmp_path, *swept)))[1:] == [
        ["copy", "5.00 TB/s", "1.00 TB/s", "6.00 TB/s", "3"]
    ]


def with_environment(name: str, date: str, driver: str, *, timed: bool = True, **clocks: float) -> Recording:
    environment = samples.environment(date=date, driver=driver, clocks=clocks)
    points = (samples.point(timed=samples.timings() if timed else None),)
    return samples.sample(f"devices/{name}", environment=environment, points=points, has_trace=False)


def test_environments_are_those_of_timed_recordings(tmp_path: Path) -> None:
    timed = with_environment("timed", "2026-01-01", "at work")
    untimed = with_environment("untimed", "2999-01-01", "idle", timed=False)
    device = samples.save_all(tmp_path, timed, untimed)
    assert [each.driver for each in gpus.sessions_of(device.root, device.name)] == ["at work"]
    rows = dict(cells(gpus.circumstances(device)))
    assert (rows["driver"], rows["last recorded"]) == ("at work", "2999-01-01")
    alone = samples.save_all(tmp_path / "other", untimed)
    with pytest.raises(NotRecorded, match=r"no timed recording for nvidia-sample; run make record on that machine"):
        gpus.sessions_of(alone.root, alone.name)


def test_clocks_are_bounds_over_sessions_and_the_rest_is_the_latest(tmp_path: Path) -> None:
    late = with_environment("late", "2026-02-02", "new", sm_mhz=1980.0, power_w=337.4)
    middle = with_environment("middle", "2026-02-01", "old", sm_mhz=1290.4, power_w=685.0)
    early = with_environment("early", "2026-01-31", "oldest", sm_mhz=1500.0)
    rows = dict(cells(gpus.circumstances(samples.save_all(tmp_path / "three", middle, late, early))))
    assert (rows["driver"], rows["last recorded"]) == ("new", "2026-02-02")
    assert (rows["SM clock under load"], rows["power under load"]) == ("1290 to 1980 MHz", "337 to 685 W")
    assert rows["temperature"] == "–", "nobody read it"
    rows = dict(cells(gpus.circumstances(samples.save_all(tmp_path / "one", late))))
    assert rows["SM clock under load"] == "1980 MHz"


def test_every_recorded_device_has_a_column(tmp_path: Path) -> None:
    recording = samples.sample("devices/copy", has_trace=False)
    for name in ("nvidia-a", "nvidia-b"):
        device = samples.save_all(tmp_path, recording, device=name)
    assert cells(gpus.circumstances(device))[0] == ["", "NVIDIA Sample", "NVIDIA Sample"]


def test_the_link_is_that_of_the_last_recording_with_the_most_gpus(tmp_path: Path) -> None:
    place = {"link": "NVLink 4.0, 18 links, peer access", "versions": {"nccl": "2.28.9"}}
    jobs = [
        samples.sample(
            f"several_gpus/{name}",
            points=(),
            has_trace=False,
            environment=samples.environment(gpus=gpus, **place | more),
        )
        for name, gpus, more in (("link_2", 2, {"link": "PCIe"}), ("link_4", 4, {}))
    ]
    alone = samples.sample("devices/copy", has_trace=False)
    rows = dict(cells(gpus.circumstances(samples.save_all(tmp_path / "jobs", alone, *jobs))))
    assert (rows["several GPUs"], rows["NCCL"]) == ("4 GPUs, NVLink 4.0, 18 links, peer access", "2.28.9")
    rows = dict(cells(gpus.circumstances(samples.save_all(tmp_path / "alone", alone))))
    assert {"several GPUs", "NCCL"}.isdisjoint(rows)


def test_a_chapter_that_a_device_lacks_is_a_dash(tmp_path: Path) -> None:
    recorded = {"nvidia-a": ("index/one_token", "mlp/eager", "mlp/compiled"), "nvidia-b": ("devices/copy", "mlp/eager")}
    for name, experiments in recorded.items():
        for experiment in experiments:
            device = samples.save_all(tmp_path, samples.sample(experiment, has_trace=False), device=name)
    table = gpus.recorded_chapters(device)
    assert cells(table) == [["chapter", "A", "B"], ["devices", "–", "1"], ["index", "1", "–"], ["mlp", "2", "1"]]
    assert re.findall(r'href="(.*?)"', table) == ["../measuring/", "../", "../mlp/"]


def test_devices_are_compared_with_the_first(tmp_path: Path) -> None:
    """The second one's product takes twice as long, its copy as long; it has no linear layer."""
    times = {"nvidia-a": {"devices/copy": 1000.0, "devices/matmul": 1000.0, "linear/eager": 1000.0}}
    times["nvidia-b"] = {"devices/copy": 1000.0, "devices/matmul": 2000.0}
    for name, times_us in times.items():
        for experiment, us in times_us.items():
            points = (samples.point(timed=samples.timings(us, us, us)),)
            recording = samples.sample(experiment, points=points, has_trace=False)
            device = samples.save_all(tmp_path, recording, device=name)
    head, product, copy, *others = cells(gpus.compared(device))
    assert head == ["", "A", "B", "ratio to A"]
    assert product == ["a product of 8192 x 8192 x 8192", "1.00 ms", "2.00 ms", "2.00x"]
    assert copy == ["a copy of one gibibyte", "1.00 ms", "1.00 ms", "1.00x"]
    assert ["a linear layer", "1.00 ms", "–", "–"] in others
    assert ["an MLP", "–", "–", "–"] in others
    assert len(others) == len(gpus.COMPARED) - 2


def test_every_ceiling_of_the_book_is_in_the_table() -> None:
    names = {ceiling.name for each in load_recordings(BOOK.root, BOOK.name) for ceiling in each.ceilings}
    assert {row[0] for row in cells(gpus.ceilings(BOOK))[1:]} == names


def test_the_book_s_steps_are_shown_by_their_timings() -> None:
    run = BOOK["linear/eager"]
    bars = cells(gpu_and_cpu(BOOK, caption="What the page says"))
    assert [row[:3] for row in bars if row[0] == "a linear layer"] == [
        ["a linear layer", "GPU", run.time().text],
        ["a linear layer", "CPU", run.time("enqueue").text],
    ]
    below = {row[0]: row[1:3] for row in cells(steps_below_roof(BOOK, caption="What the page says"))[1:]}
    rate = format_value(run.point.flops / run.timing().median_us * 1e6, "flop/s")
    assert below["linear"] == [f"{run.point.flops / run.point.bytes:.1f}", rate]
    assert list(below) == list(STEPS)


def test_without_recordings_the_page_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(NotRecorded, match="make record"):
        gpus.circumstances(samples.device(tmp_path))


def test_a_group_took_its_time_once(tmp_path: Path) -> None:
    seconds = {"a": ("first", 10.0), "b": ("first", 10.0), "c": ("second", 2.5)}
    for name, (session, capture_s) in seconds.items():
        recording = samples.sample(f"devices/{name}", session=session, capture_s=capture_s, has_trace=False)
        device = samples.save_all(tmp_path, recording)
    assert (gpus.capture_us(device).value, gpus.capture_us(device).text) == (12.5e6, "12.5 s")


def probe(root: Path, name: str, data: dict[str, Any]) -> Device:
    return samples.save_all(root, samples.sample(f"devices/{name}", data=data, points=(), has_trace=False))


def kinds(interleaved: float, cold: float, from_python: float, enqueue: float) -> dict[str, list[float]]:
    """Six equal samples of each kind."""
    given = {"interleaved": interleaved, "cold": cold, "from_python": from_python, "enqueue": enqueue}
    return {kind: [us] * 6 for kind, us in given.items()}


@pytest.mark.parametrize(("after_us", "status"), [(20.1, "differs"), (24.0, "holds")])
def test_enqueue_before_and_after_the_profiler(tmp_path: Path, after_us: float, status: str) -> None:
    """Three parts of the samples all have to agree; what the control drifts does not count."""
    data = {
        "first": kinds(5.0, 6.0, 21.0, 20.0),
        "again": kinds(5.0, 6.0, 21.0, 20.0),
        "after": kinds(5.0, 6.0, after_us + 1, after_us),
    }
    device = probe(tmp_path, "after_profiling", data)
    assert judge(measuring.enqueue_beyond_drift, "devices", device).status == status
    data["after"]["enqueue"] = [24.0] * 4 + [20.0] * 2
    device = probe(tmp_path / "part", "after_profiling", data)
    assert judge(measuring.enqueue_beyond_drift, "devices", device).status == "inconclusive"
    data["first"]["enqueue"] = [10.0] * 6
    drifting = probe(tmp_path / "drifting", "after_profiling", data)
    assert judge(measuring.enqueue_beyond_drift, "devices", drifting).status == "differs"
    rows = cells(measuring.profiled(device))
    assert [row[0] for row in rows] == ["kind of time", "interleaved", "cold", "from Python", "enqueue"]
    assert [cell.split(" µs")[0] for cell in rows[4][1:4]] == ["20.0", "20.0", "24.0"]
    assert rows[4][4].startswith("1.20x")


NEIGHBOR_CLAIMS = (measuring.from_python_when_shared, measuring.cold_when_shared, measuring.range_when_shared)


def shared_figure(name: str, device: Device) -> str:
    return measuring.FIGURES[name](device).text


def statuses(device: Device, *claims: Claim) -> list[str]:
    return [judge(claim, "devices", device).status for claim in claims]


def test_a_neighbor_on_the_gpu(tmp_path: Path) -> None:
    """Alone all fits. With a neighbor the product takes twice the cold time, and Python waits 2 ms for its turn."""
    alone = {"large product": kinds(200, 200, 205, 10), "small step": kinds(3, 4, 16, 15)}
    shared = {"large product": kinds(400, 200, 410, 10), "small step": kinds(4, 4, 2015, 15)}
    device = probe(tmp_path, "shared", {"alone": alone, "shared": shared})
    assert statuses(device, *NEIGHBOR_CLAIMS, measuring.contradicted) == ["holds"] * 4
    assert shared_figure("large_interleaved_when_shared", device) == "2.00x"
    assert shared_figure("large_shared_reason", device) == "interleaved 400 us, but cold 200 us"
    rows = cells(measuring.shared(device))
    assert [row[0] for row in rows[1:3]] == ["large product, interleaved", "large product, cold"]
    assert [row[3][:5] for row in rows[1:]] == ["2.00x", "1.00x", "2.00x", "1.00x", "1.33x", "1.00x", "126x", "1.00x"]


def test_a_neighbor_that_gpu_events_do_not_see(tmp_path: Path) -> None:
    """The wall clock does, and contradicts them."""
    alone = {"large product": kinds(200, 200, 205, 10), "small step": kinds(3, 4, 16, 15)}
    shared = {"large product": kinds(200, 200, 410, 10), "small step": kinds(3, 4, 2015, 15)}
    device = probe(tmp_path, "shared", {"alone": alone, "shared": shared})
    assert statuses(device, *NEIGHBOR_CLAIMS, measuring.contradicted) == ["holds"] * 4
    assert shared_figure("large_interleaved_when_shared", device) == "1.00x"
    assert (
        shared_figure("large_shared_reason", device) == "from Python 410 us, but enqueue 10 us and interleaved 200 us"
    )


def test_a_neighbor_that_only_some_samples_see(tmp_path: Path) -> None:
    """A median hides them, so the range is of all samples: 210 us over 200 are in the band, 211 us are not."""
    alone = {"large product": kinds(200, 200, 205, 10), "small step": kinds(3, 4, 16, 15)}
    for us, status in ((210, "holds"), (211, "inconclusive")):
        large = {**alone["large product"], "interleaved": [200.0, 200.0, 200.0, 200.0, 200.0, us]}
        shared = {**alone, "large product": large}
        device = probe(tmp_path / str(us), "shared", {"alone": alone, "shared": shared})
        assert measuring.range_when_shared(device).value == us / 200
        assert statuses(device, measuring.range_when_shared) == [status], "two thirds of the samples agree"


@pytest.mark.parametrize(("steady_us", "status"), [((88, 99, 110), "holds"), ((81, 99, 110), "inconclusive")])
def test_shares_are_compared_within_a_process(tmp_path: Path, steady_us: tuple[float, ...], status: str) -> None:
    """Shares of 0.8, 0.9 and 1 interleaved, a tenth more steady: processes apart, and each of them agrees."""

    def timed(interleaved: tuple[float, ...], steady: tuple[float, ...]) -> tuple[Point, ...]:
        first, second = (
            Timing.from_samples([us for us in each for _ in range(2)], (2, 2, 2)) for each in (interleaved, steady)
        )
        timings = msgspec.structs.replace(samples.timings(), interleaved=first, steady=second)
        return (samples.point(timed=timings),)

    ours = samples.sample("fused_mlp/fused", points=timed((80, 90, 100), steady_us), has_trace=False)
    compiled = samples.sample("fused_mlp/compiled", points=timed((100,) * 3, (100,) * 3), has_trace=False)
    samples.save_all(tmp_path, ours)
    device = samples.save_all(tmp_path, compiled)
    assert statuses(device, measuring.share_steady_over_interleaved) == [status]


def test_layouts_point_by_point(tmp_path: Path) -> None:
    """Twice as long at the last of four sizes, equal at the others."""
    for name, last_us in (("layout_linear", 10.0), ("layout_plain", 20.0)):
        points = [samples.point(dict(sizes), samples.timings(10.0, 10.0, 10.0)) for sizes in PRODUCTS]
        points[-1] = samples.point(dict(PRODUCTS[-1]), samples.timings(last_us, last_us, last_us))
        recording = samples.sample(f"devices/{name}", points=tuple(points), has_trace=False)
        device = samples.save_all(tmp_path, recording)
    assert (measuring.layout_difference(device).value, measuring.layout_difference(device).text) == (100, "100 %")
    rows = cells(measuring.layouts(device))
    assert [row[0] for row in rows[1:]] == [
        "8192 x 8192 x 8192",
        "4096 x 4096 x 4096",
        "8192 x 768 x 3072",
        "64 x 64 x 64",
    ]
    assert [row[3][:5] for row in rows[1:]] == ["1.00x", "1.00x", "1.00x", "2.00x"]


@pytest.mark.parametrize(("random_us", "status"), [(1500.0, "holds"), (1410.0, "differs")])
def test_random_numbers_take_longer_than_ones(tmp_path: Path, random_us: float, status: str) -> None:
    """By steady time, of which two variants have different numbers of samples."""
    times = {"matmul": [random_us] * 6, "matmul_ones": [1400.0] * 7}
    for name, samples_us in times.items():
        steady = Timing.from_samples(samples_us, (2, 2, len(samples_us) - 4))
        points = (samples.point(timed=msgspec.structs.replace(samples.timings(), steady=steady)),)
        device = samples.save_all(tmp_path, samples.sample(f"devices/{name}", points=points, has_trace=False))
    assert judge(measuring.random_over_ones, "devices", device).status == status


def test_processes_and_quartiles_apart(tmp_path: Path) -> None:
    """Medians 10, 11 and 12: 2 of 11. Within the processes the quartiles are 0, 1 of 11 and 2 of 12 apart."""
    timing = Timing.from_samples((10, 10, 10, 10, 11, 12, 10, 12, 14), (3, 3, 3))
    between, within = 100 * 2 / timing.median_us, 100 * 1 / 11
    points = (samples.point(timed=msgspec.structs.replace(samples.timings(), enqueue=timing, interleaved=timing)),)
    for step in STEPS.values():
        device = samples.save_all(tmp_path, samples.sample(step, points=points))
    found = [figure.value for figure in measuring.apart(device, "mlp/eager", "enqueue")]
    assert found == pytest.approx([between, within])
    assert len(cells(measuring.processes(device))) == 1 + len(STEPS)
    assert measuring.FIGURES["enqueue_processes"](device).value == pytest.approx(between)
    one = samples.save_all(tmp_path / "one", samples.sample("mlp/eager"))
    with pytest.raises(NotTimed, match=r"mlp/eager was timed in one process; make record CHAPTER=mlp"):
        measuring.apart(one, "mlp/eager", "enqueue")
