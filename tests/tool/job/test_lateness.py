"""Which ranks are late, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kinetoscope.job.lateness import Late, late_ranks
from kinetoscope.job.rank_parts import RankParts, rank_parts
from kinetoscope.job.windows import Window

STEP = 1000.0


@dataclass(frozen=True)
class Rank:
    own: float
    waiting: float
    stalled: float = 0.0
    launching: float = 0.0
    transfer: float = 10.0


def late(*ranks: Rank, is_shared_out: bool = False) -> tuple[tuple[int, ...], float] | None:
    """Each rank waits for the last one with the least waiting."""
    parts = [
        RankParts(number, 3, STEP, rank.own, 0.0, rank.transfer, rank.waiting, rank.stalled + rank.launching,
                  rank.stalled, rank.launching, 0.0)
        for number, rank in enumerate(ranks)
    ]  # fmt: skip
    last = min(parts, key=lambda part: part.waiting_us).rank
    waits = {(part.rank, last): part.waiting_us for part in parts if part.rank != last}
    found = late_ranks(parts, waits, is_shared_out=is_shared_out)
    return None if found is None else (found.ranks, found.saving_us)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ((Rank(900, 0), Rank(600, 300)), ((0,), 300.0)),
        ((Rank(600, 300), Rank(600, 290), Rank(895, 5)), ((2,), 295.0)),
        ((Rank(600, 0, stalled=300), Rank(600, 300)), ((0,), 300.0)),
        ((Rank(600, 0, launching=300), Rank(600, 300)), None),
        ((Rank(600, 0, stalled=100, launching=200), Rank(600, 300)), ((0,), 100.0)),
        ((Rank(700, 200), Rank(600, 300)), None),
        ((Rank(900, 0, transfer=10), Rank(560, 300, transfer=50)), ((0,), 340.0)),
        ((Rank(900, 0), Rank(900, 0)), None),
        ((Rank(900, 0), Rank(600, 300), Rank(900, 0), Rank(600, 300), Rank(600, 300)), ((0, 2), 300.0)),
    ],
    ids=[
        "more work", "one of three", "a stall", "only launches", "a stall and launches", "both wait",
        "its transfers are hidden, those of the other are not", "nobody waits", "two of five",
    ],
)  # fmt: skip
def test_who_is_late(ranks: tuple[Rank, ...], expected: tuple[tuple[int, ...], float] | None) -> None:
    assert late(*ranks) == expected


def test_work_that_is_shared_out_saves_less() -> None:
    assert late(Rank(900, 0), Rank(600, 300), is_shared_out=True) == ((0,), 150.0)


def test_partners_alone_wait_for_a_rank_of_a_mesh() -> None:
    """Ranks 1 and 2 share a group with the late rank 3; rank 0 waits for rank 2, which passes the lateness on."""
    parts = [RankParts(rank, 2, STEP, own, 0, 0, waiting, 0, 0, 0, 0) for rank, own, waiting in
             ((0, 600, 300), (1, 590, 310), (2, 600, 300), (3, 900, 0))]  # fmt: skip
    waits = {(0, 2): 300.0, (1, 3): 310.0, (2, 3): 300.0, (2, 0): 0.0, (1, 0): 0.0}
    assert late_ranks(parts, waits) == Late((3,), (0, 1, 2, 3), STEP, 305.0, is_limited=False)


def test_parts_add_up_to_the_step() -> None:
    """A window of 1,000 us: own work until 500, a call from 400 to 900 that waits until 700, another from 650 to 660
    that does not, idle time from 900 on; the second step has no communication."""
    windows = [
        Window(1, 0, 1_000_000, 500_000, 100_000, 400_000, 100_000, 60_000, 20_000),
        Window(2, 1_000_000, 2_000_000, 1_000_000, 0, 0, 0, 0, 0),
    ]
    exposed, waits, transfers = [(500_000, 900_000)], [(400_000, 700_000)], [(700_000, 900_000), (650_000, 660_000)]
    found = rank_parts(4, windows, exposed, waits, transfers, frozenset({1}))
    assert found == RankParts(4, 1, 1000.0, 500.0, 100.0, 210.0, 190.0, 100.0, 60.0, 20.0, 100.0)
    assert found.own_us + found.transfer_us + found.waiting_us + found.idle_us == found.step_us
    both = rank_parts(4, windows, exposed, waits, transfers, frozenset({1, 2}))
    assert both is not None
    assert (both.steps, both.own_us, both.waiting_us) == (2, 750.0, 95.0)
    assert rank_parts(4, windows, exposed, waits, transfers, frozenset({7})) is None
