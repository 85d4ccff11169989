"""How fast an activity did its work, beside the ceilings that were measured in the session of its recording."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from snippets.lab.finding.figure import format_value
from snippets.lab.html import Html
from snippets.lab.recording.ceilings import COPY, LARGE_MATMUL, CeilingRates
from snippets.lab.trace.work import ActivityWork


def matmul_ceiling(work: ActivityWork, ceilings: CeilingRates) -> str | None:
    """What a matmul is measured against: the bare one of its own M x K x N where it was timed, else the large one."""
    own = f"matmul {'x'.join(map(str, work.matmul))}" if work.matmul else LARGE_MATMUL
    return next((name for name in (own, LARGE_MATMUL) if name in ceilings), None)


def flop_rate(work: ActivityWork | None, us: float, ceilings: CeilingRates) -> Html | None:
    """FLOPs a second, and in percent of a matmul's; None for what is no matmul or took no time."""
    if work is None or not work.flops or us <= 0:
        return None
    what = matmul_ceiling(work, ceilings)
    of = "of large" if what == LARGE_MATMUL else "of bare"
    return _cell(work.flops / us * 1e6, "flop/s", ceilings.get(what or ""), of)


def byte_rate(work: ActivityWork | None, us: float, ceilings: CeilingRates) -> Html | None:
    """Bytes a second, and in percent of a plain copy's; None where the bytes are not known or it took no time."""
    if work is None or us <= 0:
        return None
    return _cell(work.bytes / us * 1e6, "bytes/s", ceilings.get(COPY), "of copy")


def _cell(rate: float, unit: str, ceiling: float | None, of: str) -> Html:
    if not ceiling:
        return Html(format_value(rate, unit))
    percent = 100 * rate / ceiling
    if percent < 0.5:  # the launch took the time, and how many bytes a second a fill of four had says nothing
        return Html(f"<small>&lt;1 % {of}</small>")
    return Html(f"{format_value(rate, unit)}<small>{percent:.0f} % {of}</small>")


def rates_note(works: Sequence[ActivityWork | None], ceilings: CeilingRates) -> Html:
    """The line below a table with rates: what they are, and of which ceilings the percentages; empty without any."""
    known = [work for work in works if work is not None]
    if not known:
        return Html("")
    text = "Rates: the least that there was to do, by the shapes of the operator's inputs, over the time."
    matmuls = (matmul_ceiling(work, ceilings) for work in known if work.flops)
    used = dict.fromkeys(what for what in (COPY, *matmuls) if what is not None and what in ceilings)
    if used:
        listed = ", ".join(_named(what, ceilings[what]) for what in used)
        text += f" Percentages: of what this GPU kept up in the same session ({listed}), which a short trace can beat."
    return Html(f'<p class="lab-note">{escape(text)}</p>')


def _named(what: str, rate: float) -> str:
    if what == COPY:
        return f"copy {format_value(rate, 'bytes/s')}"
    return f"{'large' if what == LARGE_MATMUL else 'bare'} {what} {format_value(rate, 'flop/s')}"
