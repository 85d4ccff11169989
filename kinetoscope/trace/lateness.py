"""The parts of each rank's steps, and which ranks are late: a step would be shorter if they were on time.

A rank is late if it waits little while the others wait with nothing beside it on their GPUs, and if its own work, or a
stall of its program, is longer than theirs. Waiting beside own work costs nothing. Waiting for a rank whose CPU is busy
launching is no lateness: the profiler makes each launch longer, on some ranks more than on others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from statistics import fmean, median

from msgspec import Struct

from kinetoscope.trace.intervals import Interval, intersect, lengths_in, subtract, union
from kinetoscope.trace.windows import Window

LITTLE = 0.3
"""A late rank waits at most this share of the ranks' median waiting."""
CLEARLY = 0.8
"""The excess of work is known less well than the waiting, so it decides only below this share of it."""
ALIKE = 0.5
"""Several ranks are late if each has at least this share of the largest excess of work."""

WaitsFor = Mapping[tuple[int, int], float]
"""A rank, and another at whose side it takes part in collectives -> the exposed waiting at those at which the other
arrives last, in us per step."""


class RankParts(Struct, frozen=True):
    """Mean times of a rank's steps on its GPU, in us; own, transfer, waiting and idle add up to the step."""

    rank: int
    steps: int
    step_us: float
    own_us: float
    """Kernels and copies that do not communicate."""
    hidden_us: float
    """Of `own_us`: beside communication."""
    transfer_us: float
    """Only communication runs, and it does not wait."""
    waiting_us: float
    """Only communication runs, and it waits for another rank."""
    idle_us: float
    stalled_us: float
    """Of `idle_us`: the program does not launch, for a reason that is not the cost of launching."""
    launching_us: float
    """Of `idle_us`: the next launch comes late, from a thread that works."""
    hidden_waiting_us: float
    """Waiting beside own work, which costs nothing."""

    @property
    def work_us(self) -> float:
        """The time for which the rank itself is to blame."""
        return self.own_us + self.stalled_us


class Late(Struct, frozen=True):
    """Ranks that are late, the one with the most work first."""

    ranks: tuple[int, ...]
    saving_us: float
    """The time by which a step would be shorter if these ranks were on time."""


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


def late_ranks(parts: Sequence[RankParts], waits_us: WaitsFor, *, is_shared_out: bool = False) -> Late | None:
    """The late ranks among those that wait for each other, and what they cost; None if there are none.

    A step would be shorter by the time that their partners wait for them with nothing beside it, and by the partners'
    exposed transfers beyond those of the late ranks, which hide them; or by the excess of the late ranks' work, if that
    is clearly less. `is_shared_out`: the others would get the work that the late ranks lose.
    """
    usual = median(each.waiting_us for each in parts) if parts else 0.0
    quick = [each for each in parts if each.waiting_us <= LITTLE * usual]
    others = [each for each in parts if each.waiting_us > LITTLE * usual]
    if not quick or len(others) < len(quick):
        return None
    work = median(each.work_us for each in others)
    most = max(each.work_us for each in quick)
    late = sorted(
        (each for each in quick if each.work_us - work >= min(ALIKE * (most - work), most - work)),
        key=lambda each: (-each.work_us, each.rank),
    )
    excess_us = min(each.work_us for each in late) + max(each.waiting_us for each in late)
    excess_us -= max(other.work_us for other in others)
    if is_shared_out:
        excess_us = min(excess_us, most - fmean(each.work_us for each in parts))
    hidden_us = max(each.transfer_us for each in late)
    waited_us = _waited_us({each.rank for each in late}, waits_us)
    waited_us += fmean(max(0.0, other.transfer_us - hidden_us) for other in others)
    saving = excess_us if excess_us < CLEARLY * waited_us else waited_us
    return Late(tuple(each.rank for each in late), round(saving, 3)) if saving > 0 else None


def _waited_us(late: Container[int], waits_us: WaitsFor) -> float:
    """The mean time that a partner of the late ranks waits for them."""
    partners: dict[int, float] = defaultdict(float)
    for (waiting, last), us in waits_us.items():
        if last in late and waiting not in late:
            partners[waiting] += us
    return fmean(partners.values()) if partners else 0.0
