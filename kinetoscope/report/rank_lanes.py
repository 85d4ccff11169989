"""Who waits for whom: one step of several ranks on one time axis, the waits by group, and the stages of a pipeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from kinetoscope.html import Cell, Html, note, table
from kinetoscope.ranks.collectives import GroupWaiting
from kinetoscope.ranks.lanes import LanePiece, RankLane, StepLanes
from kinetoscope.ranks.late import us_text
from kinetoscope.ranks.pipeline import Pipeline
from kinetoscope.ranks.ranks import RanksReport
from kinetoscope.report.rank_bars import late_ranks
from kinetoscope.report.rank_drawing import axis, figure, group_text, label, members_text, range_text, rect, row
from kinetoscope.report.rank_graph import graph_html

MOST_WAITS = 12
"""Rows of the table of waits."""
MAX_SPREAD = 0.02
"""Ends of a collective may lie apart by this share of the axis; else lanes are not drawn."""
_SCALE, _LANE_PX = 99.5, 24
_LEAST = 0.0005
"""Pieces are drawn from this share of the axis on."""
_CONNECTED = 0.005
"""Idle time up to this share of the axis does not divide own work."""


def waits_html(report: RanksReport) -> Html:
    """The lanes, then the stages or the waits by group; empty if no rank waits."""
    lanes = "" if report.lanes is None else _lanes_html(report.lanes, report, late_ranks(report))
    arrows = "" if report.pipeline is not None else graph_html(report)
    stages = "" if report.pipeline is None else _stages_html(report.pipeline)
    return Html(f"{lanes}{arrows}{stages}{_groups_html(report)}")


def _lanes_html(step: StepLanes, report: RanksReport, late: Collection[int]) -> Html:
    end_us = step.end_us or 1.0
    if step.spread_us > MAX_SPREAD * end_us:
        return note(
            f"Step {step.step} cannot be drawn on one time axis: collectives end up to {us_text(step.spread_us)} apart "
            "on these ranks, even after the clocks are shifted."
        )
    lanes = _in_order(step.lanes, report.pipeline)
    rows = "".join(_lane(lane, end_us, late) for lane in lanes)
    left = len(report.ranks) - len(lanes)
    more = f" {len(lanes)} of {len(report.ranks):,} ranks are drawn." if left else ""
    numbers = (
        " A number in own work: the number of the last receive before it, else of the next send."
        if report.pipeline
        else ""
    )
    waits = [piece for lane in lanes for piece in lane.pieces if piece.last is not None]
    last = max(waits, key=lambda piece: piece.end_us - piece.start_us).last if waits else None
    about = (
        ("" if last is None else f"“For {last}”: rank {last} arrives last. ")
        + "A rank's step begins where its step before ended. The clocks are shifted so that collectives end at once on "
        "all ranks; the ends are still up to "
        f"{us_text(step.spread_us)} apart.{numbers}{more}"
    )
    kinds = {"own", *(piece.kind for lane in lanes for piece in lane.pieces)}
    return figure(f"Step {step.step} of each rank on one time axis", about, rows + axis(end_us, _SCALE), kinds)


def _in_order(lanes: Sequence[RankLane], found: Pipeline | None) -> Sequence[RankLane]:
    """The lanes in the order of the stages, or of the ranks."""
    if found is None:
        return lanes
    order = [stage.rank for stage in found.stages]
    return sorted(lanes, key=lambda lane: (order.index(lane.rank) if lane.rank in order else len(order), lane.rank))


def _lane(lane: RankLane, end_us: float, late: Collection[int]) -> str:
    def percent(us: float) -> float:
        return _SCALE * us / end_us

    start, end = lane.pieces[0].start_us, lane.pieces[-1].end_us
    drawn, labels = [rect("own", percent(start), percent(end - start), 0, _LANE_PX)], []
    for piece in lane.pieces:
        if piece.kind != "own" and piece.end_us - piece.start_us >= _LEAST * end_us:
            drawn.append(rect(piece.kind, percent(piece.start_us), percent(piece.end_us - piece.start_us), 0, _LANE_PX))
    for piece in _labeled(lane.pieces, _CONNECTED * end_us):
        at, width = percent(piece.start_us), percent(piece.end_us - piece.start_us)
        labels.append(next(filter(None, (label(text, piece.kind, at, width) for text in _texts(piece))), ""))
    sums = {kind: 0.0 for kind in ("own", "transfer", "waiting", "idle")}
    for piece in lane.pieces:
        sums[piece.kind] += piece.end_us - piece.start_us
    described = ", ".join(f"{us_text(us)} {'own work' if kind == 'own' else kind}" for kind, us in sums.items())
    tag = "late" if lane.rank in late else ""
    return row(f"rank {lane.rank}", "".join(drawn + labels), f"rank {lane.rank}: {described}", tag=tag)


def _texts(piece: LanePiece) -> tuple[str, ...]:
    """The labels of a piece, the longest first."""
    if piece.kind == "own":
        return () if piece.number is None else (str(piece.number),)
    us = us_text(piece.end_us - piece.start_us)
    return (us,) if piece.last is None else (f"{us} for {piece.last}", f"for {piece.last}")


def _labeled(pieces: Iterable[LanePiece], connected_us: float) -> Iterable[LanePiece]:
    """Waiting and own work; own work with the same number across short idle times is one piece."""
    own: LanePiece | None = None
    for piece in pieces:
        if piece.kind == "idle" and piece.end_us - piece.start_us <= connected_us:
            continue
        is_own = piece.kind == "own"
        if own is not None and is_own and own.number == piece.number:
            own = LanePiece("own", own.start_us, piece.end_us, None, own.number)
            continue
        if own is not None:
            yield own
        own = piece if is_own else None
        if piece.kind == "waiting":
            yield piece
    if own is not None:
        yield own


def _groups_html(report: RanksReport) -> Html:
    """Which ranks wait for which rank in which group."""
    together: dict[tuple[str, tuple[int, ...], int], list[GroupWaiting]] = defaultdict(list)
    for each in report.waiting:
        if each.waiting_us:
            together[each.group, each.members, each.last].append(each)
    if not together:
        return Html("")
    head = ["ranks", "wait for rank", "group", "collectives", "waiting", "exposed"]
    rows = [_group_cells(waits) for waits in list(together.values())[:MOST_WAITS]]
    caption = "Who waits for whom in which group, per mean step, the longest exposed waiting first"
    left = len(together) - len(rows)
    more = f" In {left:,} more cases ranks wait less." if left > 0 else ""
    about = (
        "A rank that arrives last may itself have waited before: only a rank that waits little and works longer is "
        "called late. Waits of several ranks for the same event are one cost: do not add them up."
    )
    return Html(f"{table(caption, head, rows, text_columns=3, scrolls=True)}{note(about + more)}")


def _group_cells(waits: Sequence[GroupWaiting]) -> list[Cell]:
    """The waits in one group for one rank."""
    first = waits[0]
    return [
        members_text(sorted(each.rank for each in waits)),
        str(first.last),
        group_text(first.group, first.members) or None,
        f"{max(each.collectives for each in waits):.3g}",
        range_text([each.waiting_us for each in waits]),
        range_text([each.exposed_waiting_us for each in waits]),
    ]


def _stages_html(found: Pipeline) -> Html:
    rows: list[list[Cell]] = [
        [
            f"{place}: rank {stage.rank}",
            us_text(stage.own_us),
            us_text(stage.transfer_us),
            ", ".join(f"{us_text(us)} for {other}" for other, us in stage.waits_us.items() if us) or None,
            us_text(stage.idle_us),
            us_text(stage.bubble_us),
            us_text(stage.step_us),
        ]
        for place, stage in enumerate(found.stages, 1)
    ]
    head = ["stage", "own work", "transfer", "waits", "idle", "bubble", "step"]
    about = (
        f"Bubble: the stage neither works nor transfers, {100 * found.bubble_share:.0f} % of the stages' steps. Each "
        "step counts from the end of the rank's step before, so the start of a late stage is in its step before."
    )
    return Html(table("The stages in the order in which they send", head, rows, scrolls=True) + note(about))
