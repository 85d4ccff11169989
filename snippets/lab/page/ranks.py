"""Ranks of an experiment on several GPUs: the parts of their steps as bars and in a table, one step on one time axis.

What is drawn is what `kinetoscope report` computes of the same trace.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise

from kinetoscope.html import Cell, Html, note, table
from kinetoscope.ranks.lanes import LaneCall, LanePiece, RankLane, StepLanes
from kinetoscope.ranks.late import us_text
from kinetoscope.ranks.ranks import RanksReport
from kinetoscope.ranks.texts import ranks_headline
from kinetoscope.report.rank_bars import bar_row, late_ranks
from kinetoscope.report.rank_drawing import axis, figure, label, rect
from kinetoscope.report.rank_lanes import MAX_SPREAD
from snippets.lab.experiment import UnknownName
from snippets.lab.finding.device import Device
from snippets.lab.finding.ranks import compare_ranks

MOST_TIES = 12
"""Collectives that are tied across ranks: the longest."""
LEAST_TIED = 0.01
"""... of this share of the axis or more."""
_LEAST = 0.0005
"""Pieces are drawn from this share of the axis on."""
_LEAST_WAITING = 0.005
"""Who arrives last is told if a rank waits for this share of its step."""
_SCALE, _HEAD_PX, _LANE_PX, _GAP_PX, _PITCH_PX = 99.5, 18, 15, 3, 64
_COLUMNS = (
    "", "rank", "step", "own work", "hidden communication", "exposed transfer", "exposed waiting", "idle",
    "arrives last",
)  # fmt: skip


def rank_bars(device: Device, variants: Mapping[str, str], caption: str) -> Html:
    """One mean step of each rank as a bar of own work, exposed transfer, exposed waiting and idle time.

    Below own work, a dotted bar is the communication that it hides. Variants share one scale; below the heading of each
    stand the report's sentence and the rank that arrives last.

    Args:
        device: whose recordings.
        variants: heading -> `chapter/experiment` of several GPUs.
        caption: what the figure shows.
    """
    reports = _reports(device, variants)
    longest_us = max((part.step_us for report in reports.values() for part in report.parts), default=0.0) or 1.0
    body = "".join(_variant(heading, report, longest_us) for heading, report in reports.items())
    parts = [part for report in reports.values() for part in report.parts]
    times = {"hidden": "hidden_us", "transfer": "transfer_us", "waiting": "waiting_us", "idle": "idle_us"}
    kinds = ["own", *(kind for kind, name in times.items() if any(getattr(part, name) for part in parts))]
    about = "Each bar shows the mean step of a rank in the trace. All bars have the same scale."
    return figure(caption, about, body, kinds)


def _variant(heading: str, report: RanksReport, longest_us: float) -> str:
    late = late_ranks(report)
    rows = "".join(bar_row(part, late, longest_us) for part in report.parts)
    headline, last = ranks_headline(report), _last_text(report)
    told = " ".join(filter(None, [headline, "" if last.lower().rstrip(".") in headline.lower() else last]))
    return f'<p class="group"><strong>{escape(heading)}</strong><small>{escape(told)}</small></p>{rows}'


def _last_text(report: RanksReport) -> str:
    """Who arrives last most often; empty if ranks hardly wait."""
    compared = report.compared + report.compared_pairs
    waits = (part.waiting_us + part.hidden_waiting_us > _LEAST_WAITING * part.step_us for part in report.parts)
    if not any(waits):
        return ""
    most = max(report.ranks, key=lambda rank: (rank.last_at, -rank.rank))
    if not most.last_at:
        return ""
    return f"Rank {most.rank} arrives last at {most.last_at:,} of {compared:,} collectives."


def rank_table(device: Device, variants: Mapping[str, str], caption: str) -> Html:
    """The parts of each rank's mean step in a table. The arguments are those of `rank_bars`."""
    rows: list[list[Cell]] = []
    for heading, report in _reports(device, variants).items():
        compared = report.compared + report.compared_pairs
        last_at = {rank.rank: f"{rank.last_at:,} of {compared:,}" for rank in report.ranks}
        for index, part in enumerate(report.parts):
            times = part.step_us, part.own_us, part.hidden_us, part.transfer_us, part.waiting_us, part.idle_us
            rows.append([heading if not index else "", str(part.rank), *map(us_text, times), last_at[part.rank]])
    listed = table(caption, _COLUMNS, rows, scrolls=True)
    about = (
        "Mean times per step of the trace. Own work, exposed transfer, exposed waiting and idle time add up to a step. "
        "A rank arrives last at a collective if the rank's call is the shortest, and the call of another rank is "
        "longer by more than the difference between the ranks' clocks."
    )
    return Html(f"{listed}{note(about)}")


def rank_lanes(device: Device, experiment: str, caption: str) -> Html:
    """One step of each rank on one time axis. Own work is above, communication is below, and lines connect collectives.

    The step is that of the collective at which the ranks wait longest with nothing beside it. Lines tie the longest
    collectives, at most 12; a dot marks the rank that arrives last.
    """
    report = _reports(device, {"": experiment})[""]
    step = report.lanes
    if step is None:
        return note(
            "No rank waits for another in this trace, so there is no step to draw. The bars and the table of the ranks "
            "show where the time of their steps goes."
        )
    end_us = step.end_us or 1.0
    if step.spread_us > MAX_SPREAD * end_us:
        return note(
            f"Step {step.step} cannot be drawn on one time axis: even after we shift the ranks' clocks, the ends of a "
            f"collective are up to {us_text(step.spread_us)} apart."
        )
    late = late_ranks(report)
    names = "".join(_name(lane, place, late) for place, lane in enumerate(step.lanes))
    lanes = "".join(_lane(lane, place, end_us) for place, lane in enumerate(step.lanes))
    height = _PITCH_PX * len(step.lanes)
    described = f"Step {step.step}: {'; '.join(map(_sums_text, step.lanes))}"
    svg = (
        f'<svg width="100%" height="{height}" role="img" aria-label="{escape(described)}">'
        f"{lanes}{_ties(step, end_us)}{names}</svg>"
    )
    about = (
        f"Step {step.step} of the trace. The upper lane of each rank shows own work, and the lower lane shows "
        "communication. Lines connect the beginning and the end of a long collective on all ranks. A dot marks the "
        "rank that starts a collective last. We shift the clocks so that a collective ends on all ranks at the same "
        "time. "
        f"After the shift, the ends of a collective are still up to {us_text(step.spread_us)} apart."
    )
    kinds = {piece.kind for lane in step.lanes for piece in (*lane.pieces, *lane.beside)}
    return figure(caption, about, svg + axis(end_us, _SCALE, is_wide=True), kinds)


def _reports(device: Device, variants: Mapping[str, str]) -> dict[str, RanksReport]:
    runs = {heading: device[experiment] for heading, experiment in variants.items()}
    for run in runs.values():
        if run.environment.gpus == 1:
            raise UnknownName(f"{run.id} was recorded on one GPU; give an experiment with gpus=2 or more")
    return {heading: compare_ranks(run) for heading, run in runs.items()}


def _name(lane: RankLane, place: int, late: Collection[int]) -> str:
    tag = ", late" if lane.rank in late else ""
    told = f"<tspan>: {escape(_sums_text(lane).partition(': ')[2])}</tspan>"
    return f'<text class="lane" x="0" y="{place * _PITCH_PX + 12}">rank {lane.rank}{tag}{told}</text>'


def _sums_text(lane: RankLane) -> str:
    sums = {kind: 0.0 for kind in ("own", "waiting")}
    for piece in lane.pieces:
        if piece.kind in sums:
            sums[piece.kind] += piece.end_us - piece.start_us
    return f"rank {lane.rank}: {us_text(sums['own'])} own work, waits {us_text(sums['waiting'])}"


def _lane(lane: RankLane, place: int, end_us: float) -> str:
    """The two lanes of a rank: own work with idle times, and communication."""
    upper = place * _PITCH_PX + _HEAD_PX
    lower = upper + _LANE_PX + _GAP_PX
    drawn = [_rect(piece, upper, end_us) for piece in _joined(lane.pieces, ("own", "idle"), end_us)]
    communication = [*lane.pieces, *lane.beside]
    for piece in _joined(communication, ("transfer", "waiting", "hidden", "waiting-hidden"), end_us):
        drawn.append(_rect(piece, lower, end_us))
        if piece.last is not None:
            at, width = (_percent(us, end_us) for us in (piece.start_us, piece.end_us - piece.start_us))
            waits = us_text(piece.end_us - piece.start_us)
            texts = f"waits {waits} for {piece.last}", f"for {piece.last}"
            drawn.append(next(filter(None, (label(text, "waiting", at, width, lower + 12) for text in texts)), ""))
    return "".join(drawn)


def _percent(us: float, end_us: float) -> float:
    return _SCALE * us / end_us


def _rect(piece: LanePiece, y: float, end_us: float) -> str:
    at, width = (_percent(us, end_us) for us in (piece.start_us, piece.end_us - piece.start_us))
    return rect(piece.kind, at, width, y, _LANE_PX)


def _joined(pieces: Iterable[LanePiece], kinds: Collection[str], end_us: float) -> Sequence[LanePiece]:
    """The pieces of these kinds, without gaps and pieces that nobody would see."""
    least_us, joined = _LEAST * end_us, list[LanePiece]()
    for kind in kinds:
        last: LanePiece | None = None
        for piece in sorted((each for each in pieces if each.kind == kind), key=lambda each: each.start_us):
            if last is not None and piece.start_us - last.end_us < least_us and piece.last == last.last:
                last = joined[-1] = LanePiece(piece.kind, last.start_us, piece.end_us, last.last)
            else:
                last = piece
                joined.append(piece)
    return [piece for piece in joined if piece.end_us - piece.start_us >= least_us]


def _ties(step: StepLanes, end_us: float) -> str:
    """Lines between the ranks of each of the longest collectives, from begin to begin and from end to end."""
    places = {lane.rank: place for place, lane in enumerate(step.lanes)}
    together: dict[int, dict[int, LaneCall]] = {}
    for lane in step.lanes:
        for call in lane.calls:
            together.setdefault(call.number, {})[lane.rank] = call
    calls = [each for each in together.values() if len(each) > 1]
    calls.sort(key=lambda each: -max(call.end_us - call.start_us for call in each.values()))
    shown = [
        each
        for each in calls[:MOST_TIES]
        if max(call.end_us - call.start_us for call in each.values()) >= LEAST_TIED * end_us
    ]
    return "".join(_tie(each, places, end_us) for each in shown)


def _tie(calls: Mapping[int, LaneCall], places: Mapping[int, int], end_us: float) -> str:
    lower = _HEAD_PX + _LANE_PX + _GAP_PX
    ranks = sorted(calls, key=places.__getitem__)
    drawn = []
    for above, below in pairwise(ranks):
        y1, y2 = places[above] * _PITCH_PX + lower + _LANE_PX, places[below] * _PITCH_PX + lower
        first, second = calls[above], calls[below]
        for times_us in ((first.start_us, second.start_us), (first.end_us, second.end_us)):
            x1, x2 = (_percent(us, end_us) for us in times_us)
            drawn.append(f'<line class="tie" x1="{x1:.2f}%" y1="{y1}" x2="{x2:.2f}%" y2="{y2}"/>')
    last = calls[ranks[0]].last
    if last in calls:
        x, y = _percent(calls[last].start_us, end_us), places[last] * _PITCH_PX + lower + _LANE_PX / 2
        drawn.append(f'<circle class="last" cx="{x:.2f}%" cy="{y:g}" r="4"/>')
    return "".join(drawn)
