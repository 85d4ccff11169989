"""Parts of a device, the spread of any measure over them, and the verdicts that it decides."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kinetoscope.trace.events import TraceError
from snippets.lab.finding.band import Band, at_least, at_most, between, equals
from snippets.lab.finding.book import Verdict, doubt, figure, judge
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import Measure, paired_ratio
from snippets.lab.finding.part import thirds
from snippets.lab.finding.spread import measure_spread
from snippets.lab.finding.views import NoPart, noted, part
from snippets.lab.recording.schema import Ceiling, NotTimed, Timing, Timings
from tests.lab import samples
from tests.lab.conftest import Book
from tests.lab.samples import claim, environment, point, sample, save_all, timings

SLOW = Timing.from_samples((20.0, 22.0, 24.0, 30.0, 32.0, 34.0, 40.0, 42.0, 44.0), (3, 3, 3), clock_mhz=1980.0)
FAST = Timing.from_samples((10.0, 11.0, 12.0, 15.0, 16.0, 17.0, 10.0, 10.5, 11.0), (3, 3, 3))
COPY = Ceiling("copy", 2_000_000, 0, Timing.from_samples((1.0, 1.0, 2.0, 2.0, 4.0, 4.0), (2, 2, 2)))


def timed(interleaved: Timing, **changed: Timing) -> Timings:
    return msgspec.structs.replace(timings(), interleaved=interleaved, **changed)


@pytest.fixture
def device(tmp_path: Path) -> Device:
    """Two experiments in three processes, and a sweep of one process."""
    sweep = (point({"size": 1}, timings(*map(float, range(1, 10)))), point({"size": 2}, timings(1.0, 2.0)))
    return save_all(
        tmp_path,
        sample("mlp/eager", points=(point(timed=timed(SLOW, steady=FAST)),), ceilings=(COPY,)),
        sample("mlp/compiled", points=(point(timed=timed(FAST)),)),
        sample("mlp/sweep_eager", points=sweep, has_trace=False),
        trace=samples.trace_json(kernels=(1, 2, 4)),
    )


def time_us(device: Device) -> Figure:
    return device["mlp/eager"].time()


def test_a_part_reads_the_samples_of_one_process(device: Device) -> None:
    runs = [part(device, index)["mlp/eager"] for index in range(3)]
    assert [run.timing().samples_us for run in runs] == [(20.0, 22.0, 24.0), (30.0, 32.0, 34.0), (40.0, 42.0, 44.0)]
    assert [run.time().value for run in runs] == [22.0, 32.0, 42.0]
    assert [run.timings.interleaved for run in runs] == [run.timing() for run in runs]
    assert [run.timings.steady and run.timings.steady.median_us for run in runs] == [11.0, 16.0, 10.5]
    assert {(run.timing().rounds, run.timing().clock_mhz) for run in runs} == {((), 1980.0)}
    assert [run.ceiling("copy").timing.median_us for run in runs] == [1.0, 2.0, 4.0]
    assert [dict(run.ceilings) for run in runs] == [{"copy": 2e12}, {"copy": 1e12}, {"copy": 5e11}]
    assert device["mlp/eager"].timing() == SLOW


def test_a_part_of_one_process_is_a_third_of_its_samples(device: Device) -> None:
    at = [part(device, index)["mlp/sweep_eager"].at(size=1) for index in range(3)]
    assert [run.timing().samples_us for run in at] == [(1.0, 2.0, 3.0), (4.0, 5.0, 6.0), (7.0, 8.0, 9.0)]


def test_where_there_is_no_such_part_it_is_the_whole(device: Device) -> None:
    whole = device["mlp/sweep_eager[size=2]"].timing()
    assert [part(device, index)["mlp/sweep_eager[size=2]"].timing() for index in range(3)] == [whole] * 3
    two = Timing.from_samples((1.0, 1.0, 2.0, 2.0), (2, 2))
    save_all(device.root, sample("mlp/liger", points=(point(timed=timed(two)),)))
    assert [part(device, index)["mlp/liger"].time().value for index in range(3)] == [1.0, 2.0, 1.5]
    save_all(device.root, sample("mlp/eager"), trace=samples.trace_json(kernels=(2,)))
    assert [len(part(device, index)["mlp/eager"].steps) for index in range(3)] == [1, 1, 1]


def test_a_part_reads_one_active_step(device: Device) -> None:
    runs = [part(device, index)["mlp/eager"] for index in range(3)]
    assert [run.per_step(lambda step: len(step.kernels)).value for run in runs] == [1, 2, 4]
    assert [run.step.number for run in runs] == [2, 3, 4]
    assert [run.step_timing(lambda step: 1.0 * step.number).samples_us for run in runs] == [(2.0,), (3.0,), (4.0,)]


def test_a_part_has_no_trace_and_no_whole_timing(device: Device) -> None:
    """What has no parts raises, or is named `whole`: no samples of all processes come out of a part by chance."""
    run = part(device, 1)["mlp/eager"]
    with pytest.raises(NoPart, match="mlp/eager: a part has no trace of its own"):
        _ = run.trace
    assert (run.point.timings, run.points[0].iteration, run.recording.ceilings) == (None, None, ())
    assert (run.point.flops, run.data, run.environment) == (
        device["mlp/eager"].point.flops,
        device["mlp/eager"].data,
        device["mlp/eager"].environment,
    )
    assert run.whole == device["mlp/eager"]
    assert ([len(step.kernels) for step in run.whole.steps], run.whole.timing()) == ([1, 2, 4], SLOW)
    assert [step.number for step in run.whole.trace.steps] == [2, 3, 4]
    assert device["mlp/eager"].whole == device["mlp/eager"]


def test_a_noted_part_and_a_part_of_a_noted_device_are_parts(device: Device) -> None:
    """A measure may ask for an experiment of another device, and has the errors of that device named."""
    above, below = noted(part(device, 1)), noted(device)
    for view in (above, part(below, 1)):
        run = view["mlp/eager"]
        assert (run.time().value, len(run.step.kernels), len(run.whole.trace.steps)) == (32.0, 2, 3)
        with pytest.raises(NoPart):
            _ = run.trace
    assert (list(above.runs), list(below.runs)) == (["mlp/eager"], ["mlp/eager"])
    assert part(below, 1).beside(device.name)["mlp/eager"].time().value == 32.0
    assert below.beside(device.name) == above.unnoted.whole == device


def test_thirds() -> None:
    assert thirds((1, 2)) == ((1, 2),)
    assert thirds((1, 2, 3)) == ((1,), (2,), (3,))
    assert thirds(tuple(range(8))) == ((0, 1), (2, 3), (4, 5, 6, 7))


def test_the_spread_of_any_measure(device: Device) -> None:
    """The least and the largest of the whole and of its parts, however the measure derives its number."""
    squared = measure_spread(lambda device: Figure(device["mlp/eager"].timing().median_us ** 2, "us"), device)
    assert (squared.figure.value, squared.figure.spread, squared.is_known) == (32.0**2, (22.0**2, 42.0**2), True)
    assert [part.value for part in squared.parts] == [22.0**2, 32.0**2, 42.0**2]
    own = measure_spread(lambda device: Figure(32.0, "us", (1.0, 33.0)), device)
    assert (own.figure.spread, own.is_known) == ((1.0, 33.0), True)
    joined = measure_spread(lambda device: Figure(device["mlp/eager"].time().number, "us", (25.0, 50.0)), device)
    assert joined.figure.spread == (22.0, 50.0)


def test_a_constant_has_no_spread(device: Device) -> None:
    constant = measure_spread(lambda device: Figure(5.0, "us"), device)
    assert (constant.figure, constant.is_known) == (Figure(5.0, "us"), False)
    from_probe = measure_spread(lambda device: Figure(device["mlp/eager"].point.flops, "flop"), device)
    assert not from_probe.is_known


def test_a_part_without_a_value_sets_a_doubt(device: Device) -> None:
    """The part that is left out could be the one that disagrees: without the doubt, `at_most(45)` holds."""

    def lacking(error: Exception) -> Measure:
        def not_below(device: Device) -> Figure:
            if device["mlp/eager"].time().number < 25:
                raise error
            return time_us(device)

        return not_below

    for error in (NotTimed("too short"), TraceError("no kernel")):
        doubted = f"only 2 of 3 parts have a value: {error}"
        spread = measure_spread(lacking(error), device)
        assert [part.value for part in spread.parts] == [32.0, 42.0]
        assert (spread.figure.spread, spread.figure.conclusive, spread.figure.doubt) == ((22.0, 42.0), False, doubted)
        judged = verdict(device, at_most(45), lacking(error))
        assert (judged.status, judged.reason) == ("inconclusive", doubted)
    assert verdict(device, at_most(45)).status == "holds"


def test_a_figure_that_is_in_doubt_keeps_its_reason(device: Device) -> None:
    def cold(device: Device) -> Figure:
        if device["mlp/eager"].time().number != 32:
            raise NotTimed("too short")
        return Figure(32.0, "us", conclusive=False, doubt="the clock fell")

    assert verdict(device, at_least(1), cold).reason == "the clock fell"


def test_a_mistake_in_a_part_is_no_missing_value(device: Device) -> None:
    """A `KeyError` in one part made *holds* of *inconclusive*. On another GPU than the default it is a mismatch."""

    def by_key(device: Device) -> Figure:
        us = device["mlp/eager"].time().number
        return Figure({22.0: 22.0, 32.0: 32.0}[us], "us")

    with pytest.raises(KeyError, match=r"^42\.0\n"):
        verdict(device, at_most(35), by_key)
    other = save_all(device.root, sample("mlp/eager", points=(point(timed=timed(SLOW)),)), device="nvidia-t4")
    judged = verdict(other, at_most(35), by_key)
    assert (judged.status, judged.measured) == ("not measured", None)


def verdict(device: Device, band: Band, measure: Measure = time_us) -> Verdict:
    return judge(claim(measure=measure, band=band, scope="timing"), "mlp", device)


@pytest.mark.parametrize(
    ("band", "status", "reason"),
    [
        (at_least(22.0), "holds", ""),
        (at_least(22.1), "inconclusive", "only a part of the spread is in the band (at least 22.1 µs)"),
        (at_least(42.1), "differs", ""),
        (between(30.0, 35.0), "inconclusive", "only a part of the spread is in the band (30.0 µs to 35.0 µs)"),
        (at_most(21.9), "differs", ""),
        (lambda figure: figure.number > 30, "inconclusive", "only a part of the spread is in the band"),
    ],
)
def test_the_verdict_of_a_timing_is_that_of_its_whole_spread(
    device: Device, band: Band, status: str, reason: str
) -> None:
    judged = verdict(device, band)
    assert (judged.status, judged.reason, judged.has_spread) == (status, reason, True)
    assert judged.measured == Figure(32.0, "us", (22.0, 42.0), "NVIDIA Sample, mlp/eager")


def test_a_count_is_judged_by_its_value(device: Device) -> None:
    counted = claim(measure=time_us, band=at_least(30.0), scope="this-gpu")
    assert judge(counted, "mlp", device).status == "holds"


def test_names_of_parts_may_disagree(device: Device) -> None:
    def faster(device: Device) -> Figure:
        ratio = paired_ratio(device["mlp/eager"], device["mlp/compiled"]).number
        return Figure("compiled" if ratio > 3 else "about the same")

    judged = verdict(device, equals("about the same"), faster)
    assert (judged.status, judged.measured) == ("inconclusive", Figure("about the same"))
    assert judged.reason == "parts of the samples disagree: about the same; compiled"
    assert verdict(device, equals("about the same", "compiled"), faster).status == "holds"
    assert verdict(device, equals("eager"), faster).status == "differs"


def test_what_a_measure_reads_is_noted(device: Device) -> None:
    watched = noted(device)
    assert watched.unnoted is device
    time_us(watched)
    watched["mlp/sweep_eager"].at(size=1).time()
    _ = watched["mlp/compiled"]  # not read
    assert list(watched.runs) == ["mlp/eager", "mlp/sweep_eager[size=1]"]


def test_a_timing_from_a_disturbed_recording_is_inconclusive(device: Device) -> None:
    disturbed = sample(points=(point(timed=timed(SLOW), disturbed="steady is 1.4 times interleaved"),))
    save_all(device.root, disturbed)
    reason = "mlp/eager was disturbed: steady is 1.4 times interleaved"
    for band in (at_least(1.0), at_most(1.0)):
        assert (verdict(device, band).status, verdict(device, band).reason) == ("inconclusive", reason)
    other = verdict(device, at_most(20.0), lambda device: device["mlp/compiled"].time())
    assert (other.status, other.reason) == ("holds", "")
    counted = claim(measure=lambda device: Figure(5, origin=device["mlp/eager"].origin))
    assert judge(counted, "mlp", device).status == "holds"


def test_only_the_point_that_was_read_disturbs(device: Device) -> None:
    times = timings(*map(float, range(1, 10)))
    points = (point({"size": 1}, times), point({"size": 2}, times, disturbed="two clusters"))
    save_all(device.root, sample("mlp/sweep_eager", points=points, has_trace=False))
    statuses = [verdict(device, at_least(1.0), lambda device, at=at: at_size(device, at)).status for at in (1, 2)]
    assert statuses == ["holds", "inconclusive"]
    shared = sample("mlp/sweep_eager", points=points[:1], environment=environment(other_processes=("game",)))
    save_all(device.root, shared)
    judged = verdict(device, at_least(1.0), lambda device: at_size(device, 1))
    assert judged.reason == "mlp/sweep_eager[size=1] was disturbed: game used the GPU too"


def at_size(device: Device, size: int) -> Figure:
    return device["mlp/sweep_eager"].at(size=size).time()


def test_figures_have_the_spread_of_their_parts(book: Book, device: Device) -> None:
    sixfold = claim(measure=lambda device: Figure(6 * time_us(device).number, "us"), band=at_least(200.0))
    module = samples.findings(doubled=lambda device: Figure(2 * time_us(device).number, "us"), five=claim().measure)
    timing_claim = samples.findings(samples.claim(measure=sixfold.measure, band=sixfold.band, scope="timing"))
    vars(module).update(sixfold=next(value for name, value in vars(timing_claim).items() if name == "_0"))
    vars(module)["sixfold"].measure.__module__ = module.__name__
    book(mlp=module)
    assert figure("mlp.doubled", device) == Figure(64.0, "us", (44.0, 84.0))
    assert figure("mlp.five", device) == Figure(5)
    assert figure("mlp.sixfold", device).spread == (132.0, 252.0)
    assert doubt("mlp.sixfold", device) == "only a part of the spread is in the band (at least 200 µs)"
    assert [doubt(name, device) for name in ("mlp.five", "mlp.doubled", "mlp.eager.interleaved_us")] == [""] * 3
