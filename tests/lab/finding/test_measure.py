"""Measures that chapters share: exact values and spreads, from pairs where there are pairs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import (
    derived,
    difference_of_pairs,
    largest,
    listed,
    paired_difference,
    paired_ratio,
    percent,
    percent_saved,
    point_difference,
    point_ratio,
    ratio_of_kinds,
    ratio_of_pairs,
    same,
    share_of_ceiling,
    smallest,
    unpaired_ratio,
)
from snippets.lab.finding.views import part
from snippets.lab.recording.schema import Ceiling, NotTimed, Timing
from tests.lab.samples import point, sample, save_all, timing, timings


@pytest.fixture
def device(tmp_path: Path) -> Device:
    """mlp/eager takes 20 us and mlp/compiled 10 us, of one session; mlp/liger is of another."""
    ceilings = (
        Ceiling("copy", 1_000_000, 0, timing(1.0, 1.0, 1.0)),
        Ceiling("matmul 8x8x8", 1000, 400_000, timing(1.0, 1.0, 1.0)),
    )
    slow, fast = point(timed=timings(10.0, 20.0, 30.0)), point(timed=timings(10.0, 10.0, 10.0))
    return save_all(
        tmp_path,
        sample("mlp/eager", points=(slow,), ceilings=ceilings),
        sample("mlp/compiled", points=(fast,)),
        sample("mlp/liger", points=(fast,), session="2026-10-02T00:00:00Z"),
        sample("mlp/eager_backward", points=(point(),)),
    )


def test_a_ratio_is_that_of_pairs() -> None:
    """Not 40 / 20, the ratio of the medians: drift that hits both of a pair cancels."""
    upper, lower = timing(10.0, 90.0, 40.0, 80.0, 30.0), timing(10.0, 30.0, 20.0, 20.0, 20.0)
    assert ratio_of_pairs(upper, lower, "o") == Figure(2.0, "x", (1.0, 3.0), "o")  # thirds: 1; 3; 2, 4, 1.5
    with pytest.raises(ValueError, match="longer than argument 1"):
        ratio_of_pairs(timing(1.0, 2.0), timing(1.0, 2.0, 3.0))


def test_the_spread_of_pairs_is_that_of_their_processes() -> None:
    upper = Timing.from_samples((10.0, 20.0, 90.0, 30.0, 30.0, 40.0, 80.0), (3, 2, 2))
    lower = Timing.from_samples((10.0,) * 7, (3, 2, 2))
    assert ratio_of_pairs(upper, lower) == Figure(3.0, "x", (2.0, 6.0))  # 2, 3 and 6
    assert difference_of_pairs(upper, lower) == Figure(20.0, "us", (10.0, 50.0))  # 10, 20 and 50


def test_ratio_and_difference_of_runs(device: Device) -> None:
    eager, compiled = device["mlp/eager"], device["mlp/compiled"]
    origin = "mlp/eager over mlp/compiled, interleaved, in pairs"
    assert paired_ratio(eager, compiled) == Figure(2.0, "x", (1.0, 3.0), origin)
    assert paired_ratio(eager, compiled, "cold").value == 1.0
    difference = paired_difference(eager, compiled)
    assert (difference.value, difference.unit, difference.spread) == (10.0, "us", (0.0, 20.0))
    assert paired_difference(compiled, eager).spread == (-20.0, 0.0)


def test_steady_samples_are_compared_process_by_process(tmp_path: Path) -> None:
    """Blocks of a second have as many samples as fit: no pairs. Processes: 30 over 10, 20 over 10, 50 over 10."""
    upper = Timing.from_samples((30.0, 30.0, 20.0, 50.0, 50.0), (2, 1, 2))
    lower = Timing.from_samples((10.0,) * 4, (1, 2, 1))
    points = (point(timed=msgspec.structs.replace(timings(), steady=steady)) for steady in (upper, lower))
    names = ("mlp/eager", "mlp/compiled")
    device = save_all(tmp_path, *(sample(name, points=(one,)) for name, one in zip(names, points, strict=True)))
    runs = [device[name] for name in names]
    origin = "mlp/eager over mlp/compiled, steady"
    assert paired_ratio(*runs, "steady") == Figure(3.0, "x", (2.0, 5.0), origin)
    assert paired_difference(*runs, "steady").spread == (10.0, 40.0)
    second = [part(device, 1)[name] for name in names]
    assert paired_ratio(*second, "steady").value == 2.0


def test_the_whole_is_in_its_spread(tmp_path: Path) -> None:
    """Processes: 10 over 5 and 20 over 10, but with most samples at 20 and at 5."""
    upper, lower = Timing.from_samples((10.0, 20.0, 20.0), (1, 2)), Timing.from_samples((5.0, 5.0, 10.0), (2, 1))
    points = (point(timed=msgspec.structs.replace(timings(), steady=steady)) for steady in (upper, lower))
    names = ("mlp/eager", "mlp/compiled")
    device = save_all(tmp_path, *(sample(name, points=(one,)) for name, one in zip(names, points, strict=True)))
    figure = paired_ratio(*(device[name] for name in names), "steady")
    assert (figure.value, figure.spread) == (4.0, (2.0, 4.0))


def test_runs_of_two_sessions_are_no_pairs(device: Device) -> None:
    for measure in (paired_ratio, paired_difference):
        with pytest.raises(
            NotTimed, match=r"^mlp/eager and mlp/liger were recorded apart; make record CHAPTER=mlp FRES"
        ):
            measure(device["mlp/eager"], device["mlp/liger"])
        with pytest.raises(NotTimed, match=r"^mlp/eager_backward was recorded without timings"):
            measure(device["mlp/eager"], device["mlp/eager_backward"])


def test_an_unpaired_ratio_has_the_extremes_of_both() -> None:
    upper, lower = Figure(6.0, "us", (4.0, 8.0), "a"), Figure(2, origin="b")
    assert unpaired_ratio(upper, lower) == Figure(3.0, "x", (2.0, 4.0), "a; over b")
    assert unpaired_ratio(lower, upper) == Figure(2 / 6, "x", (2 / 8, 2 / 4), "b; over a")
    assert unpaired_ratio(lower, lower).spread is None
    assert not unpaired_ratio(Figure(4, conclusive=False), lower).conclusive
    assert not unpaired_ratio(upper, Figure(4, conclusive=False)).conclusive


def test_a_ratio_in_percent() -> None:
    assert percent(Figure(0.5, "x", (0.25, 0.75), "o")) == Figure(50.0, "%", (25.0, 75.0), "o")
    assert percent(Figure(2, "x")).spread == (200.0, 200.0)
    assert percent_saved(Figure(0.8, "x", (0.5, 1.25), "o")) == Figure(20.0, "%", (-25.0, 50.0), "o")


def test_the_share_of_a_ceiling(device: Device) -> None:
    """Of 4 MB in 20 us, where a copy moves 1 MB in 1 us; of 2 MFLOP, where a matmul does 0.4 MFLOP in 1 us."""
    share = share_of_ceiling(device["mlp/eager"], "copy")
    assert (share.value, share.unit, share.origin) == (20.0, "%", "NVIDIA Sample, mlp/eager, of copy")
    assert share.spread == pytest.approx((400 / 30, 40.0))  # in 30 us and in 10 us
    assert share_of_ceiling(device["mlp/eager"], "matmul 8x8x8").value == pytest.approx(25.0)
    assert share_of_ceiling(device["mlp/eager"], "copy", "cold").value == 8.0
    with pytest.raises(NotTimed, match="no ceiling 'matmul 1x1x1'"):
        share_of_ceiling(device["mlp/eager"], "matmul 1x1x1")


def test_a_share_is_that_of_pairs_with_the_ceiling(tmp_path: Path) -> None:
    """Where a lower clock slows both in the same turn, the share stays; of other counts, the medians are compared."""
    step = point(bytes=1000, timed=timings(20.0, 40.0, 60.0))
    drifting, shorter = Ceiling("copy", 1000, 0, timing(10.0, 20.0, 30.0)), Ceiling("copy", 1000, 0, timing(10.0, 30.0))
    device = save_all(tmp_path, sample(points=(step,), ceilings=(drifting,)))
    assert share_of_ceiling(device["mlp/eager"], "copy").spread == (50.0, 50.0)
    save_all(tmp_path, sample(points=(step,), ceilings=(shorter,)))
    share = share_of_ceiling(device["mlp/eager"], "copy")
    assert (share.value, share.spread) == (50.0, pytest.approx((30.0, 250 / 3)))


def test_a_share_of_a_short_step_means_little(device: Device) -> None:
    short, long = (point(timed=timings(us, us, us)) for us in (9.99, 10.0))
    save_all(device.root, sample("mlp/eager", points=(short,)))
    message = r"^mlp/eager takes 9\.99 µs; a share of copy means little below 10\.0 µs$"
    with pytest.raises(NotTimed, match=message):
        share_of_ceiling(device["mlp/eager"], "copy")
    save_all(device.root, sample("mlp/eager", points=(long,)))
    assert share_of_ceiling(device["mlp/eager"], "copy").number > 0


def test_extremes() -> None:
    figures = (Figure(2.0, "us"), Figure(1.0, "us"), Figure(3.0, "us"))
    assert (smallest(*figures), largest(*figures)) == (figures[1], figures[2])


def test_whether_all_are_the_same() -> None:
    assert same(Figure("a", origin="o"), Figure("a", origin="p"), Figure("a", origin="o")) == Figure(
        True, origin="o; p"
    )
    assert same(Figure("a"), Figure("b")) == Figure(False)
    assert same(Figure(1), Figure(1, conclusive=False)) == Figure(True, conclusive=False)


def test_fields_of_points_are_compared_without_a_spread(tmp_path: Path) -> None:
    upper, lower = point(peak_memory_bytes=3000), point(peak_memory_bytes=2000)
    device = save_all(tmp_path, sample("mlp/eager", points=(upper,)), sample("mlp/compiled", points=(lower,)))
    eager, compiled = device["mlp/eager"], device["mlp/compiled"]
    ratio = point_ratio(eager, compiled, "peak_memory_bytes")
    assert ratio == Figure(1.5, "x", origin="peak_memory_bytes, mlp/eager over mlp/compiled")
    difference = point_difference(eager, compiled, "peak_memory_bytes")
    assert difference == Figure(1000, "bytes", origin="peak_memory_bytes, mlp/eager less mlp/compiled")


def test_one_kind_of_timing_over_another(device: Device) -> None:
    """The CPU takes 6 us to launch what takes the GPU 20 us."""
    ratio = ratio_of_kinds(device["mlp/eager"], "enqueue")
    assert (ratio.value, ratio.spread) == (0.3, (7 / 30, 0.5))
    assert ratio_of_kinds(device["mlp/eager"], "cold", "enqueue").value == 50 / 6


def test_kinds_of_different_counts_are_no_pairs(tmp_path: Path) -> None:
    uneven = timings(10.0, 20.0, 30.0, 40.0, 50.0)
    ratio = ratio_of_kinds(save_all(tmp_path, sample(points=(point(timed=uneven),)))["mlp/eager"], "enqueue")
    assert ratio == Figure(0.2, "x", (5.5 / 40, 6.5 / 20), "NVIDIA Sample, mlp/eager, enqueue over interleaved")


def test_kinds_of_different_counts_are_compared_process_by_process(tmp_path: Path) -> None:
    """Processes: 30 over 10, 20 over 12.5, 50 over 10."""
    upper = Timing.from_samples((30.0, 30.0, 20.0, 50.0, 50.0), (2, 1, 2))
    lower = Timing.from_samples((10.0, 12.5, 12.5, 10.0), (1, 2, 1))
    timed = msgspec.structs.replace(timings(), enqueue=upper, interleaved=lower)
    ratio = ratio_of_kinds(save_all(tmp_path, sample(points=(point(timed=timed),)))["mlp/eager"], "enqueue")
    assert (ratio.value, ratio.spread) == (30 / 11.25, (20 / 12.5, 50 / 10))


def test_figures_are_listed_by_name_and_conclusive_when_all_are() -> None:
    figures = {"eager": Figure(8, origin="o"), "compiled": Figure(2.0, "us", origin="p")}
    assert listed(figures) == Figure("eager 8, compiled 2.00 µs", origin="o; p")
    assert listed({"a": Figure(1), "b": Figure(2, conclusive=False)}, "; ") == Figure("a 1; b 2", conclusive=False)
    assert derived(3, Figure(1), Figure(2), unit="bytes", display="three") == Figure(3, "bytes", display="three")
