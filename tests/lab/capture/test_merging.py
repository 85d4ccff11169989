"""Parts of several processes become one recording: samples in order, the middle process's sensors, all reasons."""

from __future__ import annotations

from typing import Any

import msgspec

from snippets.lab.capture.merging import join_timings, merge
from snippets.lab.recording.schema import Ceiling, Point, Recording, Timing
from tests.lab.samples import environment, point, sample, timing, timings

replace = msgspec.structs.replace


def timed(us: float, **changed: Any) -> Point:
    steady = Timing.from_samples((us, us), clock_mhz=us, watts=10 * us, joules=us / 10, throttle=("power cap",))
    times = replace(timings(us, us + 2, us + 4), steady=steady)
    return point(timed=times, ceilings=(Ceiling("copy", 1, 0, timing(us, us)),), **changed)


def process(us: float, **changed: Any) -> Recording:
    return replace(sample(has_trace=False, session=f"session {us}", capture_s=us, **changed), points=(timed(us),))


def test_samples_follow_each_other_and_sensors_are_the_middle_processs() -> None:
    merged = merge([process(30), process(10), process(20)])
    (joined,) = merged.points
    assert joined.timings is not None
    assert joined.timings.steady is not None
    interleaved = joined.timings.interleaved
    assert interleaved.samples_us == (30, 32, 34, 10, 12, 14, 20, 22, 24)
    assert (interleaved.rounds, interleaved.median_us) == ((3, 3, 3), 22)
    assert interleaved.parts == ((30, 32, 34), (10, 12, 14), (20, 22, 24))
    assert interleaved.spread_us == (12, 32)
    steady = joined.timings.steady
    assert (steady.clock_mhz, steady.watts, steady.joules, steady.throttle) == (20, 200, 2, ("power cap",))
    assert joined.ceilings[0].timing.rounds == (2, 2, 2)
    assert (merged.session, merged.capture_s) == ("session 30", 60)


def test_a_profiled_part_gives_the_trace_and_the_notes() -> None:
    profiled = replace(sample(data={"chosen": 1}, session="first"), points=(point(),))
    merged = merge([profiled, process(10), process(20)])
    assert (merged.has_trace, merged.data, merged.session) == (True, {"chosen": 1}, "first")
    assert merged.points[0].timings is not None
    assert merged.points[0].timings.interleaved.rounds == (3, 3)


def test_one_process_is_left_as_it_is() -> None:
    assert join_timings([timing(1, 2, 3)]) == timing(1, 2, 3)
    assert merge([process(10)]).points == process(10).points


def test_every_reason_is_kept_once() -> None:
    other, idle = environment(other_processes=("train.py",)), environment(throttle={"before": ("idle",), "after": ()})
    parts = [
        replace(process(10), environment=other, points=(timed(10, disturbed="twice as long"),)),
        replace(process(20), environment=idle, points=(timed(20, disturbed="twice as long"),)),
    ]
    merged = merge(parts)
    assert merged.disturbed == "train.py used the GPU too; twice as long"
    assert merged.environment.throttle == {"before": ("idle",), "after": ()}
