"""One recording from the measurements of several processes: one profiled, the others timed."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

import msgspec

from snippets.lab.recording.schema import Ceiling, Environment, Point, Recording, Timing, Timings

KINDS = ("interleaved", "cold", "from_python", "enqueue")
replace = msgspec.structs.replace


def merge(parts: Sequence[Recording]) -> Recording:
    """Join the parts of one recording, with the profiled part first if there is one.

    Notes, and whether there is a trace, come from the first part; samples of all parts follow each other in order. The
    last part, which has timed, describes the machine.
    """
    first, last = parts[0], parts[-1]
    return replace(
        first,
        environment=_environment([part.environment for part in parts], last.environment),
        capture_s=round(sum(part.capture_s for part in parts), 1),
        points=tuple(_point(points) for points in zip(*(part.points for part in parts), strict=True)),
        has_trace=any(part.has_trace for part in parts),
    )


def _environment(parts: Sequence[Environment], last: Environment) -> Environment:
    others = dict.fromkeys(itertools.chain.from_iterable(part.other_processes for part in parts))
    moments = dict.fromkeys(itertools.chain.from_iterable(part.throttle for part in parts))
    throttle = {
        moment: tuple(sorted({reason for part in parts for reason in part.throttle.get(moment, ())}))
        for moment in moments
    }
    return replace(last, throttle=throttle, other_processes=tuple(others))


def _point(points: tuple[Point, ...]) -> Point:
    """Errors and memory from the first part; a wrong answer in any part has already failed there."""
    timed = [point for point in points if point.timings is not None or point.iteration is not None]
    iterations = [point.iteration for point in timed if point.iteration is not None]
    ceilings = zip(*(point.ceilings for point in timed), strict=True)
    return replace(
        points[0],
        timings=_timings([point.timings for point in timed if point.timings is not None]),
        ceilings=tuple(_ceiling(each) for each in ceilings),
        iteration=join_timings(iterations) if iterations else None,
        disturbed="; ".join(dict.fromkeys(point.disturbed for point in timed if point.disturbed)),
    )


def _ceiling(parts: tuple[Ceiling, ...]) -> Ceiling:
    return replace(parts[0], timing=join_timings([part.timing for part in parts]))


def _timings(parts: Sequence[Timings]) -> Timings | None:
    if not parts:
        return None
    joined = {kind: join_timings([getattr(part, kind) for part in parts]) for kind in KINDS}
    steady = [part.steady for part in parts if part.steady is not None]
    return replace(parts[0], **joined, steady=join_timings(steady) if steady else None)


def join_timings(parts: Sequence[Timing]) -> Timing:
    """All samples in order, with the number of each process's samples; clock, power and energy are the median
    process's."""
    if len(parts) == 1:
        return parts[0]
    return Timing.from_samples(
        [sample for part in parts for sample in part.samples_us],
        rounds=tuple(len(part.samples_us) for part in parts),
        clock_mhz=statistics.median(part.clock_mhz for part in parts),
        watts=statistics.median(part.watts for part in parts),
        joules=statistics.median(part.joules for part in parts),
        throttle=tuple(sorted({reason for part in parts for reason in part.throttle})),
    )
