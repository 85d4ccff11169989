"""Variants are sampled A B, B A; a probe gets the room's own functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from snippets.lab.capture.gpu import Gpu, Reading
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.capture.profiling import read_activities
from snippets.lab.capture.timing import ROUNDS, Sample, Variant, _interleaved, prepare, sample_interleaved, timing_of
from snippets.lab.experiment import Instruments, Subject
from snippets.lab.recording.schema import Timing


def test_a_timing_keeps_its_samples() -> None:
    assert Timing.from_samples([5.0, 1.0, 2.0, 4.0, 3.0004]) == Timing(3.0, 2.0, 4.0, (5.0, 1.0, 2.0, 4.0, 3.0))


def test_a_timing_has_the_middle_of_its_readings_and_every_reason() -> None:
    readings = [Reading(1980, 300, 0), Reading(1500, 700, 0, ("power cap",)), Reading(1400, 690, 0, ("thermal",))]
    timing = timing_of([Sample(us, reading) for us, reading in zip((1.0, 2.0, 3.0), readings, strict=True)])
    assert (timing.clock_mhz, timing.watts, timing.joules, timing.throttle) == (1500, 690, 0, ("power cap", "thermal"))
    assert timing.samples_us == (1.0, 2.0, 3.0)


def test_variants_take_turns_and_their_first_sample_is_discarded() -> None:
    taken: list[str] = []

    def sample(variant: Any) -> int:
        taken.append(variant)
        return len(taken)

    variants: dict[str, Any] = {"a": "A", "b": "B", "c": "C"}
    assert sample_interleaved(variants, 3, sample) == {"a": [4, 9, 10], "b": [5, 8, 11], "c": [6, 7, 12]}
    assert "".join(taken) == "ABC" + "ABC" + "CBA" + "ABC"


@pytest.mark.parametrize(("in_graph", "calls"), [(True, "start all all end"), (False, "one start all all end")])
def test_a_sample_in_the_stream_starts_on_a_busy_gpu(
    in_graph: bool, calls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    names = iter(("start", "end"))

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            self.name = next(names)

        def record(self) -> None:
            called.append(self.name)

        def synchronize(self) -> None:
            """Nothing runs."""

        def elapsed_time(self, end: Event) -> float:
            return 0.06

    monkeypatch.setattr(torch.cuda, "Event", Event)
    subject = Subject(torch.relu, lambda: (), torch.relu, in_graph=in_graph)
    sets: list[tuple[torch.Tensor, ...]] = [(), (), ()]
    variant = Variant(subject, sets, lambda: called.append("all"), lambda: called.append("one"), 0, [], replays=2)
    assert _interleaved(variant, Gpu()).us == pytest.approx(10.0)
    assert " ".join(called) == calls


def test_the_instruments_of_a_probe() -> None:
    instruments: Instruments = TorchInstruments(Gpu())
    assert instruments.rounds == ROUNDS
    assert instruments.prepare == prepare
    assert instruments.read_activities == read_activities
