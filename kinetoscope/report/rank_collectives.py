"""The collective that costs most beside the longest, on one time axis, and all collectives of its step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from kinetoscope.html import Html, note
from kinetoscope.job.matching import PAIR
from kinetoscope.ranks.collectives import CollectiveTimes, RankCall, ShownCollectives
from kinetoscope.ranks.late import us_text
from kinetoscope.ranks.ranks import RanksReport
from kinetoscope.report.rank_bars import late_ranks
from kinetoscope.report.rank_drawing import axis, figure, group_text, label, rect, row
from kinetoscope.trace.intervals import Interval, ns, subtract
from kinetoscope.trace.units import format_value

MOST_CALLS, FEW_CALLS = 8, 5
"""Ranks of a collective with a row each; of more ranks, the ranks that wait longest, and the last to arrive."""
NAMES = {
    "allreduce": "All-reduce",
    "allgather": "All-gather",
    "reducescatter": "Reduce-scatter",
    "alltoall": "All-to-all",
    "barrier": "Barrier",
    "sendrecv": "Send and receive",
}
_SCALE = 98.0
"""Percent of a drawing for the longest call: the last rectangle needs room for its edge."""
_LEAST = 0.0005
"""Own work beside a call is drawn from this share of the axis on."""
_LEAST_EXPOSED = 0.003
"""... and exposed waiting, whose edges are wider."""
_STRIP_PX, MOST_WIDTH = 84, 10.0
"""Height of the strip, and the most of its width, in percent, for one bar."""


def collectives_html(report: RanksReport) -> Html:
    """Both collectives, and the strip; empty if no rank waits."""
    shown = report.shown
    if shown is None:
        return Html("")
    is_same = _place(shown.costliest) == _place(shown.longest)
    collectives = [shown.costliest] if is_same else [shown.longest, shown.costliest]
    longest_us = max(-call.start_us for each in collectives for call in each.calls) or 1.0
    rows = "".join(_collective(each, shown, longest_us, late_ranks(report)) for each in collectives)
    name = noun(shown.of_step)
    caption = f"The {name} that costs most is {'also' if is_same else 'not'} the longest"
    if not shown.costliest.exposed_waiting_us:
        caption = f"All waiting is beside own work: no {name} costs time by waiting"
    about = (
        "Upper line of a rank: its kernel of the collective. Lower line: its own work beside it. Time counts from the "
        "first arrival; the collective ends on all ranks at once, so starts are compared without clocks."
    )
    calls = [call for each in collectives for call in each.calls]
    kinds = ["transfer", "waiting"] + ["own", "waiting-hidden"] * any(call.beside for call in calls)
    drawn = figure(caption, about, rows + axis(longest_us, _SCALE), kinds)
    return Html(f"{drawn}{_strip(shown)}")


def _place(each: CollectiveTimes) -> tuple[object, ...]:
    return each.step, each.operation, each.group, each.members, each.index


def collective_name(each: CollectiveTimes) -> str:
    """`All-reduce no. 3 of step 5, group dp [0, 1], 67.1 MB`."""
    size = f", {format_value(each.bytes, 'bytes')}" if each.bytes else ""
    group = group_text(each.group, each.members)
    listed = f", group {group}" if group else ""
    return f"{NAMES.get(each.operation, each.operation)} no. {each.index + 1} of step {each.step}{listed}{size}"


def _collective(each: CollectiveTimes, shown: ShownCollectives, longest_us: float, late: Sequence[int]) -> str:
    kinds = [
        name
        for name, other in (("costs most", shown.costliest), ("longest", shown.longest))
        if _place(each) == _place(other)
    ]
    waits = max(each.calls, key=lambda call: (call.exposed_waiting_us, call.waiting_us))
    told = (
        f"Lasts {us_text(-waits.start_us)} on rank {waits.rank}: {us_text(waits.waiting_us)} of waiting, of it "
        f"{us_text(waits.exposed_waiting_us)} exposed, and {us_text(each.transfer_us)} of transfer."
    )
    if len(each.calls) > MOST_CALLS:
        told += f" {FEW_CALLS} of its ranks are drawn: those that wait longest, and the last to arrive."
    first_us = max(-call.start_us for call in each.calls)
    rows = "".join(_call(call, each, first_us, longest_us, late) for call in _chosen(each))
    head = f"<strong>{' and '.join(kinds).capitalize()}</strong>: {escape(collective_name(each))}"
    return f'<p class="group">{head}<small>{escape(told)}</small></p>{rows}'


def _chosen(each: CollectiveTimes) -> Sequence[RankCall]:
    if len(each.calls) <= MOST_CALLS:
        return each.calls
    last = next(call for call in each.calls if call.rank == each.last)
    return [*[call for call in each.calls if call.rank != each.last][: FEW_CALLS - 1], last]


def _call(call: RankCall, each: CollectiveTimes, first_us: float, longest_us: float, late: Sequence[int]) -> str:
    def percent(us: float) -> float:
        return _SCALE * us / longest_us

    start, arrived = first_us + call.start_us, first_us - each.transfer_us
    drawn = [rect("waiting-hidden", percent(start), percent(call.waiting_us), 0, 18)] if call.waiting_us else []
    for begin, end in _joined(_exposed(call), 0.0, _LEAST_EXPOSED * longest_us):
        drawn.append(rect("waiting", percent(first_us + begin), percent(end - begin), 0, 18))
    if call.waiting_us:
        drawn.append(
            label(f"waits {us_text(call.waiting_us)}", "waiting", percent(start), percent(call.waiting_us), 13)
        )
    drawn.append(rect("transfer", percent(arrived), percent(each.transfer_us), 0, 18))
    drawn += [
        rect("own", percent(first_us + begin), percent(end - begin), 20, 8)
        for begin, end in _joined(call.beside, _LEAST * longest_us, _LEAST * longest_us)
    ]
    if call.rank == each.last and percent(arrived) > 30:
        drawn.append(f'<text class="end" x="{percent(arrived) - 1:.2f}%" y="13">rank {call.rank} arrives</text>')
    described = (
        f"rank {call.rank} starts at {us_text(start)}, waits {us_text(call.waiting_us)}, of it "
        f"{us_text(call.exposed_waiting_us)} exposed, then transfers for {us_text(each.transfer_us)}"
    )
    tag = "late" if call.rank in late else "last" if call.rank == each.last else ""
    return row(f"rank {call.rank}", "".join(drawn), described, height=30, tag=tag)


def _exposed(call: RankCall) -> list[tuple[float, float]]:
    """The waiting of a call without the times of own work beside it."""
    waiting = [(ns(call.start_us), ns(call.start_us + call.waiting_us))]
    beside: list[Interval] = [(ns(start), ns(end)) for start, end in call.beside]
    return [(start / 1000, end / 1000) for start, end in subtract(waiting, beside)]


def _joined(times: Sequence[tuple[float, float]], gap_us: float, least_us: float) -> list[tuple[float, float]]:
    """Times with gaps shorter than `gap_us` joined, and without times shorter than `least_us`."""
    joined: list[tuple[float, float]] = []
    for start, end in times:
        if joined and start - joined[-1][1] < gap_us:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return [(start, end) for start, end in joined if end - start >= least_us]


def _strip(shown: ShownCollectives) -> Html:
    """The waiting at each collective of the step, the exposed part in its lower part; empty for fewer than three."""
    waits = [max(each.calls, key=lambda call: (call.waiting_us, call.exposed_waiting_us)) for each in shown.of_step]
    highest = max((call.waiting_us for call in waits), default=0.0)
    if len(waits) < 3 or not highest:
        return Html("")
    width, drawn = min(MOST_WIDTH, 100 / len(waits)), []
    places = [_place(each) for each in shown.of_step]
    costliest = places.index(_place(shown.costliest)) if _place(shown.costliest) in places else 0
    for index, call in enumerate(waits):
        total, exposed = (_STRIP_PX * us / highest for us in (call.waiting_us, call.exposed_waiting_us))
        drawn.append(rect("waiting-hidden", index * width, width * 0.9, _STRIP_PX - total, total - exposed))
        drawn.append(rect("waiting", index * width, width * 0.9, _STRIP_PX - exposed, exposed))
    middle = (costliest + 0.45) * width
    numbers = [(costliest, middle), (0, width * 0.45), (len(waits) - 1, (len(waits) - 0.55) * width)]
    drawn += [
        f'<text x="{at:.2f}%" y="{_STRIP_PX + 15}">{index + 1}</text>'
        for index, at in numbers
        if index == costliest or abs(at - middle) > 8
    ]
    total_us, exposed_us = sum(call.waiting_us for call in waits), sum(call.exposed_waiting_us for call in waits)
    things = f"{noun(shown.of_step)}s"
    turn = _turn(waits)
    told = f" From no. {turn + 1} on, most of each wait is exposed." if turn else ""
    about = f"Each bar: the longest wait of a rank, at most {us_text(highest)}. No. {costliest + 1} costs most.{told}"
    described = f"{len(waits)} {things}: {us_text(total_us)} of waiting, of it {us_text(exposed_us)} exposed"
    svg = f'<svg width="100%" height="{_STRIP_PX + 18}" role="img" aria-label="{described}">{"".join(drawn)}</svg>'
    first = shown.costliest
    caption = f"{len(waits):,} {things} of step {first.step} in their order: waiting, and its exposed part"
    summed = note(f"Together {us_text(total_us)} of waiting, of it {us_text(exposed_us)} exposed.")
    kinds = ["waiting"] + ["waiting-hidden"] * (total_us > exposed_us)
    return Html(f"{figure(caption, about, svg, kinds)}{summed}")


def noun(collectives: Iterable[CollectiveTimes]) -> str:
    """`collective`; `send` if all are sends with their receives."""
    return "send" if all(each.operation == PAIR for each in collectives) else "collective"


def _turn(waits: Sequence[RankCall]) -> int | None:
    """The first collective from which on waits are mostly exposed, if any before are not; of waits that matter."""
    least = 0.01 * max(call.waiting_us for call in waits)
    counted = [(index, call) for index, call in enumerate(waits) if call.waiting_us >= least]
    turn = None
    for index, call in reversed(counted):
        if call.exposed_waiting_us < 0.5 * call.waiting_us:
            return turn
        turn = index
    return None
