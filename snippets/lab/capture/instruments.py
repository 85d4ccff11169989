"""What capture hands to each probe: its own functions, so that chapters need not import them."""

from __future__ import annotations

from snippets.lab.capture.checking import relative_error
from snippets.lab.capture.profiling import read_activities
from snippets.lab.capture.timing import ROUNDS, prepare, time_interleaved, time_prepared
from snippets.lab.experiment import Subject
from snippets.lab.recording.schema import Timing


class TorchInstruments:
    """The instruments of this process; they implement `experiment.Instruments`."""

    rounds = ROUNDS
    relative_error = staticmethod(relative_error)
    prepare = staticmethod(prepare)
    time_prepared = staticmethod(time_prepared)
    read_activities = staticmethod(read_activities)

    def time_interleaved(self, subjects: dict[str, Subject]) -> dict[str, Timing]:
        """Prepare subjects and time them A B, B A; the interleaved times alone."""
        timings = time_interleaved(subjects, lambda name: None)
        return {name: timing.interleaved for name, timing in timings.items()}
