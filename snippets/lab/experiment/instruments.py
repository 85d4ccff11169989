"""The measuring functions of a probe; the capture room implements them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from snippets.lab.experiment.subject import Subject

if TYPE_CHECKING:
    from torch.profiler import profile


class StepTimes(Protocol):
    """GPU times of one step in microseconds; sample i of two steps that were timed together are a pair."""

    @property
    def q1_us(self) -> float:
        """Lower quartile."""

    @property
    def median_us(self) -> float:
        """Median."""

    @property
    def q3_us(self) -> float:
        """Upper quartile."""

    @property
    def samples_us(self) -> tuple[float, ...]:
        """All samples, in the order in which they were taken."""


class SteadyTimes(StepTimes, Protocol):
    """Times of a step that ran alone for seconds, with NVML's readings; 0 if NVML did not answer."""

    @property
    def clock_mhz(self) -> float:
        """Median clock of the multiprocessors."""

    @property
    def watts(self) -> float:
        """Mean power draw."""

    @property
    def joules(self) -> float:
        """Energy of one step."""


class AllTimes(Protocol):
    """The times of one step without and with its launches."""

    @property
    def interleaved(self) -> StepTimes:
        """The GPU's time alone."""

    @property
    def cold(self) -> StepTimes:
        """The GPU's time alone, with an empty L2 cache."""

    @property
    def from_python(self) -> StepTimes:
        """The time until the GPU is done with a Python loop."""

    @property
    def enqueue(self) -> StepTimes:
        """The time until the last launch of that loop has returned."""


class Instruments(Protocol):
    """The measuring functions of a probe. Times are interleaved: the GPU's own, launch-free, inputs larger than the
    L2."""

    @property
    def rounds(self) -> int:
        """The number of samples that `time_interleaved` takes of each subject."""

    def relative_error(self, subject: Subject, device: str) -> tuple[float, str, int]:
        """The error of one step, the reference's dtype, and the step's peak bytes. Raises `WrongAnswer`."""

    def time_interleaved(self, subjects: Mapping[str, Subject]) -> Mapping[str, StepTimes]:
        """Prepare subjects and time them A B, B A."""

    def time_all(self, subjects: Mapping[str, Subject]) -> Mapping[str, AllTimes]:
        """Prepare subjects and take their interleaved, cold, from-Python and enqueue times."""

    def time_steady(self, subjects: Mapping[str, Subject]) -> Mapping[str, SteadyTimes]:
        """Prepare subjects and time each alone in a block of seconds."""

    def prepare(self, subject: Subject) -> Any:
        """Draw a subject's inputs and capture its graphs, for `time_prepared`."""

    def time_prepared(self, variants: Mapping[str, Any], rounds: int) -> Mapping[str, StepTimes]:
        """Time prepared subjects A B, B A in `rounds` rounds, at least two."""

    def read_activities(self, finished: profile) -> Sequence[Any]:
        """The GPU activities of a finished profile, with name, duration_us, grid and block."""
