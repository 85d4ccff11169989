"""Which rank waits for which in several groups, as arrows; for 3 to 8 ranks that wait for each other."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from kinetoscope.html import Html
from kinetoscope.ranks.collectives import GroupWaiting
from kinetoscope.ranks.late import us_text
from kinetoscope.ranks.ranks import RanksReport
from kinetoscope.report.rank_bars import late_ranks
from kinetoscope.report.rank_drawing import figure, members_text

MIN_RANKS, MAX_RANKS = 3, 8
LEAST = 0.1
"""Waits are drawn from this share of the longest exposed wait on."""
_WIDTH_PX, _HEIGHT_PX, _NODE_PX, _HEAD_PX, _APART_PX = 296, 250, 19, 8, 5
Place = tuple[float, float]


def graph_html(report: RanksReport) -> Html:
    """A figure for each set of few ranks that wait for each other in several groups with nothing beside it."""
    late = late_ranks(report)
    return Html("".join(_graph(among, report.waiting, late) for among in report.components))


def _graph(among: Sequence[int], waiting: Sequence[GroupWaiting], late: Collection[int]) -> str:
    found = [each for each in waiting if each.rank in among]
    longest_us = max((each.exposed_waiting_us for each in found), default=0.0)
    has_groups = len({each.members for each in found}) > 1
    if not (MIN_RANKS <= len(among) <= MAX_RANKS and has_groups and longest_us):
        return ""
    arrows = [each for each in found if each.exposed_waiting_us >= LEAST * longest_us]
    places = _places(among)
    pairs = {(each.rank, each.last) for each in arrows}
    is_roomy = len(among) <= 4
    drawn = [_arrow(each, places, (each.last, each.rank) in pairs, has_group=is_roomy) for each in arrows]
    drawn += [_node(rank, places[rank], rank in late) for rank in among]
    waits = ((us_text(each.exposed_waiting_us), each.rank, each.last) for each in arrows)
    told = ", ".join(f"rank {rank} waits {time} for rank {last}" for time, rank, last in waits)
    svg = (
        f'<svg class="graph" width="{_WIDTH_PX}" height="{_HEIGHT_PX}" role="img" aria-label="{told}">'
        f"{''.join(drawn)}</svg>"
    )
    about = "Exposed waiting per mean step. An arrow points at the rank that arrives last."
    if is_roomy:
        about += " Below the time: the ranks of the group."
    return figure(f"Who waits for whom among ranks {members_text(among)}", about, svg)


def _places(among: Sequence[int]) -> Mapping[int, Place]:
    """Four ranks in a square, others on a circle."""
    across, down = _WIDTH_PX / 2, _HEIGHT_PX / 2
    if len(among) == 4:
        corners = [(-80, -80), (80, -80), (-80, 80), (80, 80)]
        return {rank: (across + x, down + y) for rank, (x, y) in zip(among, corners, strict=True)}
    turn = 2 * math.pi / len(among)
    return {
        rank: (across + 98 * math.sin(index * turn), down - 98 * math.cos(index * turn))
        for index, rank in enumerate(among)
    }


def _node(rank: int, place: Place, is_late: bool) -> str:
    x, y = place
    css = ' class="late"' if is_late else ""
    return (
        f'<circle{css} cx="{x:.1f}" cy="{y:.1f}" r="{_NODE_PX}"/>'
        f'<text class="{"on-own" if is_late else "name"}" x="{x:.1f}" y="{y + 4:.1f}">{rank}</text>'
    )


def _arrow(each: GroupWaiting, places: Mapping[int, Place], has_reverse: bool, *, has_group: bool) -> str:
    """An arrow from the waiting rank to the last, with the time in its middle; two that are opposite lie apart."""
    (x1, y1), (x2, y2) = places[each.rank], places[each.last]
    length = math.hypot(x2 - x1, y2 - y1)
    along_x, along_y = (x2 - x1) / length, (y2 - y1) / length
    aside = _APART_PX if has_reverse else 0.0
    x1, y1, x2, y2 = x1 - aside * along_y, y1 + aside * along_x, x2 - aside * along_y, y2 + aside * along_x
    end = _NODE_PX + _HEAD_PX
    line = (
        f'<line x1="{x1 + _NODE_PX * along_x:.1f}" y1="{y1 + _NODE_PX * along_y:.1f}" '
        f'x2="{x2 - end * along_x:.1f}" y2="{y2 - end * along_y:.1f}" marker-end="url(#rank-arrow)"/>'
    )
    share = 0.35 if has_reverse else 0.5
    x, y = x1 + share * (x2 - x1), y1 + share * (y2 - y1)
    group = f'<text class="soft" x="{x:.1f}" y="{y + 15:.1f}">{members_text(each.members)}</text>' if has_group else ""
    return f'{line}<text x="{x:.1f}" y="{y:.1f}">{us_text(each.exposed_waiting_us)}</text>{group}'
