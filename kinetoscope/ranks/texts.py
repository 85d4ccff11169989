"""A comparison of ranks in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from kinetoscope.ranks.late import Straggler, us_text
from kinetoscope.ranks.ranks import RanksReport, launch_bound
from kinetoscope.trace.soundness import DROPPED

MIN_EXPOSED = 0.05
"""Communication or waiting while a GPU does nothing else is worth a headline from this share of a step on."""
MOSTLY_LAST = 0.75
"""A rank that arrives last at this share of the collectives is named, even if that costs little."""


def ranks_headline(report: RanksReport) -> str:
    """What the ranks wait for, and what it costs, in a sentence or two; and whether kernels or ranks are missing."""
    return " ".join(filter(None, [_dropped_sentence(report), _headline(report), _missing_sentence(report)]))


def _headline(report: RanksReport) -> str:
    late, exposed = report.straggler, exposed_transfer_us(report)
    if report.pipeline is not None and late is None:
        return _pipeline_headline(report)
    if late is not None and late.saving_us >= exposed:
        others = [*map(_other_headline, report.stragglers[1:])]
        return " ".join([_late_headline(late, report), *others])
    if len(report.ranks) < 2 or not (report.compared or report.compared_pairs):
        return f"{_unknown_sentence(report)}{_exposed_sentence(report)}"
    if not report.parts:
        return "These ranks have no step in common, so that nothing tells what waiting costs."
    if (bound := launch_bound(report.parts)) is not None and bound.launching_us >= exposed:
        return (
            f"The GPU of rank {bound.rank} waits for launches, {us_text(bound.launching_us)} of "
            f"{us_text(bound.step_us)} per step. The profiler makes launches longer, so it may decide which rank "
            f"arrives last.{_exposed_sentence(report)}"
        )
    if late is not None:
        return f"{_exposed_sentence(report).strip()} {_late_headline(late, report)}"
    if report.missing_ranks and (waits := _longest_wait(report)):
        return f"{waits}{_exposed_sentence(report)}"
    exposed_or_hidden = _exposed_sentence(report) or _hidden_sentence(report)
    return f"{_waiting_sentence(report)}{exposed_or_hidden}"


def _nobody(report: RanksReport) -> str:
    nobody = "None of the given ranks" if report.missing_ranks else "No rank"
    return f"{nobody} delays the others by much"


def _unknown_sentence(report: RanksReport) -> str:
    """Why nothing tells who arrives last."""
    if len(report.ranks) < 2:
        return "One rank alone cannot tell who arrives last."
    if not any(rank.collectives for rank in report.digest.ranks):
        return "These ranks have no collectives on a GPU: nothing tells who arrives last."
    return "No collective was found on several ranks: nothing tells who arrives last."


def _longest_wait(report: RanksReport) -> str:
    """Which of the given ranks waits longest, and for whom; empty if no wait is worth a headline."""
    steps_us = {part.rank: part.step_us for part in report.parts}
    for each in report.waiting:
        step_us = steps_us.get(each.rank, 0.0)
        if each.exposed_waiting_us >= MIN_EXPOSED * step_us > 0:
            times = f"{us_text(each.exposed_waiting_us)} of {us_text(step_us)} per step"
            return f"Rank {each.rank} waits {times} for rank {each.last}."
    return ""


def transfer_name(report: RanksReport) -> str:
    """`transfer`, which includes waiting for ranks that are not given."""
    return "transfer, or waiting for a missing rank" if report.missing_ranks else "transfer"


def exposed_transfer_us(report: RanksReport) -> float:
    """Transfer while a GPU does nothing else in a step, the median of the ranks."""
    return median(part.transfer_us for part in report.parts) if report.parts else 0.0


def _late_headline(late: Straggler, report: RanksReport) -> str:
    saved = f"about {us_text(late.saving_us)} shorter, of {us_text(late.step_us)} ({_percent(late)}){late.slow_steps}"
    if report.pipeline is not None and late.rank in {stage.rank for stage in report.pipeline.stages}:
        return f"Rank {late.rank} is the slowest stage: if it were as fast as the others, a step would be {saved}."
    if late.is_shared_out:
        return (
            f"Rank {late.rank} is late: it gets more data by all-to-all than the others. With equal shares, a step "
            f"would be {saved}."
        )
    if late.also_late:
        return f"{_ranks_text((late.rank, *late.also_late))} are late: if they were not, a step would be {saved}."
    return f"Rank {late.rank} is late: if it were not, a step would be {saved}."


def _dropped_sentence(report: RanksReport) -> str:
    """That traces lack many kernels, so that the times of their ranks are too low; empty if they do not."""
    ranks = [rank.rank or 0 for rank in report.digest.ranks if any(DROPPED in text for text in rank.damage)]
    if not ranks:
        return ""
    traces = f"The trace of rank {ranks[0]} lacks" if len(ranks) == 1 else f"The traces of {_ranks_text(ranks)} lack"
    return f"{traces.replace('Ranks', 'ranks')} many kernels, so these times are wrong: record the job again."


def _missing_sentence(report: RanksReport) -> str:
    """That a rank that is not given may be later; empty if all are given."""
    if not report.missing_ranks:
        return ""
    given = len(report.ranks)
    total = given + report.missing_ranks
    are = "is" if given == 1 else "are"
    return f"Only {given:,} of {total:,} ranks {are} given: the rank that arrives last may be missing."


def _other_headline(late: Straggler) -> str:
    return f"Among {_ranks_text(late.among).lower()}, rank {late.rank} is late: {us_text(late.saving_us)}."


def _percent(late: Straggler) -> str:
    return f"{100 * late.saving_us / late.step_us:.0f} %"


def _ranks_text(ranks: Sequence[int]) -> str:
    shown = [str(rank) for rank in ranks[:8]]
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    listed = f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 and not more else ", ".join(shown)
    return f"Ranks {listed}{more}"


def _pipeline_headline(report: RanksReport) -> str:
    found = report.pipeline
    assert found is not None
    longest = max(
        ((us, stage.rank, other) for stage in found.stages for other, us in stage.waits_us.items()), default=None
    )
    waits = (
        f" Rank {longest[1]} waits longest, {us_text(longest[0])} per step for rank {longest[2]}." if longest else ""
    )
    return (
        f"A pipeline of {len(found.stages)} stages: the bubble is {100 * found.bubble_share:.0f} % of their steps, and "
        f"no stage is much slower than the others.{waits}"
    )


def _waiting_sentence(report: RanksReport) -> str:
    """That no rank alone is late, and if the ranks wait, why that has no single cause, or no cost."""
    parts = report.parts
    least, most = min(part.waiting_us for part in parts), max(part.waiting_us for part in parts)
    if all(part.waiting_us >= MIN_EXPOSED * part.step_us for part in parts):
        return (
            f"The rank that arrives last changes, and each rank waits {us_text(least)} to {us_text(most)} per step "
            "while its GPU does nothing else."
        )
    last = max(report.ranks, key=lambda rank: rank.last_at)
    compared = report.compared + report.compared_pairs
    if last.last_at >= MOSTLY_LAST * compared and any(
        part.hidden_waiting_us >= MIN_EXPOSED * part.step_us for part in parts if part.rank != last.rank
    ):
        return (
            f"{_nobody(report)}: rank {last.rank} arrives last at {last.last_at:,} of {compared:,} collectives, but "
            "the others do their own work while they wait, so the waiting costs little."
        )
    return f"{_nobody(report)}."


def _exposed_sentence(report: RanksReport) -> str:
    """The transfer that nothing hides, if it is worth a sentence: the median of the ranks, or the most if ranks are
    missing, for which a given rank may wait. Begins with a space."""
    if not report.parts:
        return ""
    us, step_us = exposed_transfer_us(report), median(part.step_us for part in report.parts)
    most = max(report.parts, key=lambda part: part.transfer_us)
    if report.missing_ranks:
        us, step_us = most.transfer_us, most.step_us
    if us < MIN_EXPOSED * step_us or not step_us:
        return ""
    percent = f"{100 * us / step_us:.0f} %"
    times = f"{us_text(us)} of {us_text(step_us)} per step"
    if report.missing_ranks:
        return (
            f" On rank {most.rank}, transfer, or waiting for a missing rank, takes {times} ({percent}) while the GPU "
            "does nothing else."
        )
    middle = ", median of the ranks" if len(report.parts) > 1 else ""
    return f" Communication takes {times} ({percent}{middle}) while the GPU does nothing else."


def _hidden_sentence(report: RanksReport) -> str:
    """That other work hides the communication, where there is any; begins with a space."""
    us = exposed_transfer_us(report)
    if not any(part.hidden_us for part in report.parts):
        return ""
    return f" The ranks' own work hides all communication except {us_text(us)} per step."


def straggler_text(late: Straggler) -> str:
    """The share of the waiting that a straggler causes, what it costs, and why it is late."""
    return (
        f"{late.share:.0%} of the waiting is at collectives at which rank {late.rank} arrives last. Only waiting while "
        f"the GPU does nothing else costs time: {us_text(late.saving_us)} per step. Compared with the others, "
        f"{late.why}."
    )
