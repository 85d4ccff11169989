"""Variants are sampled A B, B A; what a probe is handed are the room's own functions."""

from __future__ import annotations

from typing import Any

from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.capture.profiling import read_activities
from snippets.lab.capture.timing import ROUNDS, prepare, sample_interleaved, time_prepared, timing_from_samples
from snippets.lab.experiment import Instruments
from snippets.lab.recording.schema import Timing


def test_a_timing_keeps_its_samples() -> None:
    assert timing_from_samples([5.0, 1.0, 2.0, 4.0, 3.0004]) == Timing(3.0, 2.0, 4.0, (5.0, 1.0, 2.0, 4.0, 3.0))


def test_variants_take_turns_and_their_first_sample_is_discarded() -> None:
    taken: list[str] = []

    def sample(variant: Any) -> int:
        taken.append(variant)
        return len(taken)

    variants: dict[str, Any] = {"a": "A", "b": "B", "c": "C"}
    assert sample_interleaved(variants, 3, sample) == {"a": [4, 9, 10], "b": [5, 8, 11], "c": [6, 7, 12]}
    assert "".join(taken) == "ABC" + "ABC" + "CBA" + "ABC"


def test_the_instruments_of_a_probe() -> None:
    instruments: Instruments = TorchInstruments()
    assert instruments.rounds == ROUNDS
    assert (instruments.prepare, instruments.time_prepared) == (prepare, time_prepared)
    assert instruments.read_activities == read_activities
