"""The functions of capture that each probe gets, so that chapters need not import them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from snippets.lab.capture.checking import relative_error
from snippets.lab.capture.gpu import Gpu, open_gpu
from snippets.lab.capture.profiling import read_activities
from snippets.lab.capture.steady import time_steady
from snippets.lab.capture.timing import ROUNDS, Variant, prepare, time_interleaved, time_prepared
from snippets.lab.experiment import Subject
from snippets.lab.recording.schema import Timing, Timings


@dataclass(frozen=True)
class TorchInstruments:
    """The instruments of this process; they implement `experiment.Instruments`."""

    gpu: Gpu = field(default_factory=open_gpu)
    rounds: int = ROUNDS
    relative_error = staticmethod(relative_error)
    prepare = staticmethod(prepare)
    read_activities = staticmethod(read_activities)

    def time_prepared(self, variants: Mapping[str, Variant], rounds: int = ROUNDS) -> dict[str, Timing]:
        """Time prepared subjects A B, B A in `rounds` rounds, at least two."""
        return time_prepared(variants, rounds, self.gpu)

    def time_interleaved(self, subjects: Mapping[str, Subject]) -> dict[str, Timing]:
        """Prepare subjects and time them A B, B A; the interleaved times alone."""
        return time_prepared(_prepared(subjects), ROUNDS, self.gpu)

    def time_all(self, subjects: Mapping[str, Subject]) -> dict[str, Timings]:
        """Prepare subjects and take their interleaved, cold, from-Python and enqueue times."""
        return time_interleaved(_prepared(subjects), {}, self.gpu)[0]

    def time_steady(self, subjects: Mapping[str, Subject]) -> dict[str, Timing]:
        """Prepare subjects and time each alone in a block of seconds."""
        return time_steady(_prepared(subjects), self.gpu)


def _prepared(subjects: Mapping[str, Subject]) -> dict[str, Variant]:
    return {name: prepare(subject) for name, subject in subjects.items()}
