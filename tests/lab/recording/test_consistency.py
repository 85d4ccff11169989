"""Contradicting times of one step, as two captures on one GPU once recorded them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from snippets.lab.recording.consistency import (
    contradictions,
    is_scattered,
    loop_contradiction,
    loop_trace_contradiction,
    trace_contradiction,
)
from snippets.lab.recording.device import recorded_devices
from snippets.lab.recording.loading import load_recordings
from snippets.lab.recording.schema import Timing, Timings
from tests.lab.samples import BOOK, timing


def times(**changed: Timing) -> Timings:
    """A GPU-bound step of 270 us that the CPU enqueues in 70."""
    usual = Timings(timing(270, 270), timing(280, 280), timing(275, 275), timing(70, 70), 4, 1)
    return msgspec.structs.replace(usual, **changed)


@pytest.mark.parametrize(
    ("changed", "reasons"),
    [
        ({}, ()),
        ({"interleaved": timing(513, 513), "from_python": timing(520, 520)}, ("interleaved 513 us, but cold 280 us",)),
        (
            {"from_python": timing(2275, 2275)},
            ("from Python 2275 us, but enqueue 70 us and interleaved 270 us",),
        ),
        ({"enqueue": timing(2200, 2200), "from_python": timing(2275, 2275)}, ()),
        ({"steady": timing(300, 300)}, ()),
        ({"steady": timing(540, 540)}, ("steady 540 us, but interleaved 270 us",)),
        (
            {"cold": timing(280, 280, 280, 600)},
            ("more than 20 % of the cold samples are over 20 % off their median",),
        ),
    ],
    ids=[
        "undisturbed",
        "twice cold",
        "a time slice",
        "overhead-bound",
        "at a lower clock",
        "twice steady",
        "two clusters",
    ],
)
def test_what_does_not_fit_is_named(changed: dict[str, Any], reasons: tuple[str, ...]) -> None:
    assert contradictions(times(**changed)) == reasons


def test_a_fifth_of_the_samples_may_be_far_and_a_microsecond_never_is() -> None:
    assert not is_scattered(timing(*[100.0] * 4, 130.0))
    assert is_scattered(timing(*[100.0] * 3, 130.0))
    assert not is_scattered(timing(3.0, 3.0, 4.0, 4.0))


def test_a_trace_fits_its_times() -> None:
    assert trace_contradiction(192, times(interleaved=timing(167, 167))) == ""
    assert trace_contradiction(2.7, times(interleaved=timing(5.5, 5.5))) == ""
    assert trace_contradiction(600, times()) == "busy for 600 us in the trace, but interleaved 270 us"
    assert trace_contradiction(100, times()) == "busy for 100 us in the trace, but interleaved 270 us"


def test_a_loop_is_not_longer_without_the_profiler() -> None:
    assert loop_trace_contradiction(100, timing(109, 110, 111)) == ""
    reason = "100 us in the trace, but 111 us without the profiler"
    assert loop_trace_contradiction(100, timing(109, 111, 112)) == reason


def of_each_process(timings: Timings) -> list[Timings]:
    """The times as each process saw them when it judged them; how far processes differ is the spread's to say."""
    kinds = {kind: getattr(timings, kind) for kind in ("interleaved", "cold", "from_python", "enqueue", "steady")}
    parts = {kind: each.parts for kind, each in kinds.items() if each is not None}
    processes = range(min(map(len, parts.values())))
    return [
        msgspec.structs.replace(timings, **{kind: Timing.from_samples(parts[kind][index]) for kind in parts})
        for index in processes
    ]


@pytest.mark.parametrize("device", recorded_devices(BOOK.root))
def test_the_recordings_of_the_book_fit_or_say_so(device: str) -> None:
    """A sweep is timed in one process, which judged all of its samples."""
    for recording in load_recordings(BOOK.root, device):
        is_sweep = len(recording.points) > 1
        for point in recording.points:
            if point.timings is not None and not point.disturbed:
                for timings in [point.timings] if is_sweep else of_each_process(point.timings):
                    assert contradictions(timings) == (), recording.id


def test_blocks_of_a_loop_may_not_scatter() -> None:
    assert (
        loop_contradiction(timing(100, 101, 102, 140)) == "more than 20 % of the blocks are over 20 % off their median"
    )
    assert loop_contradiction(timing(100, 101, 102, 103, 140)) == ""
