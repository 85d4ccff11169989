"""The parts of a rank's mean step: own work, transfer, waiting for other ranks, and idle time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from kinetoscope.job.windows import Window
from kinetoscope.trace.intervals import Interval, intersect, lengths_in, subtract, union


class RankParts(Struct, frozen=True):
    """Mean times of a rank's steps on its GPU, in us; own, transfer, waiting and idle add up to the step."""

    rank: int
    steps: int
    step_us: float
    own_us: float
    """Time of kernels and copies that do not communicate."""
    hidden_us: float
    """The part of `own_us` during which communication runs, too."""
    transfer_us: float
    """Time in which only communication runs, without waiting."""
    waiting_us: float
    """Time in which only communication runs, and waits for another rank."""
    idle_us: float
    stalled_us: float
    """The part of `idle_us` in which the program does not launch, for a reason other than the cost of launching."""
    launching_us: float
    """The part of `idle_us` in which the next launch comes late, from a thread that works."""
    hidden_waiting_us: float
    """Waiting at the same time as own work, which does not make the step longer."""

    @property
    def work_us(self) -> float:
        """The time for which the rank itself is to blame."""
        return self.own_us + self.stalled_us


def rank_parts(
    rank: int,
    windows: Sequence[Window],
    exposed: Sequence[Interval],
    waits: Iterable[Interval],
    transfers: Iterable[Interval],
    steps: frozenset[int],
) -> RankParts | None:
    """The parts of the given steps of a rank; None if it has none of them.

    While another call transfers, a waiting call costs nothing.
    """
    shown = [window for window in windows if window.number in steps]
    if not shown:
        return None
    spans = [(window.start_ns, window.end_ns) for window in shown]
    all_waits = union(waits)
    alone_ns = sum(lengths_in(spans, intersect(subtract(all_waits, union(transfers)), exposed)))
    beside_ns = sum(lengths_in(spans, subtract(all_waits, exposed)))

    def mean_us(total_ns: int) -> float:
        return round(total_ns / len(shown) / 1000, 3)

    return RankParts(
        rank=rank,
        steps=len(shown),
        step_us=mean_us(sum(window.length_ns for window in shown)),
        own_us=mean_us(sum(window.own_ns for window in shown)),
        hidden_us=mean_us(sum(window.hidden_ns for window in shown)),
        transfer_us=mean_us(sum(window.exposed_ns for window in shown) - alone_ns),
        waiting_us=mean_us(alone_ns),
        idle_us=mean_us(sum(window.idle_ns for window in shown)),
        stalled_us=mean_us(sum(window.stalled_ns for window in shown)),
        launching_us=mean_us(sum(window.launching_ns for window in shown)),
        hidden_waiting_us=mean_us(beside_ns),
    )
