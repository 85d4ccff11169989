"""The rates of an activity, as percentages of the ceilings measured in the recording's session."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from snippets.lab.finding.figure import format_value
from snippets.lab.html import Html
from snippets.lab.recording.ceilings import COPY, LARGE_MATMUL, CeilingRates, matmul_name
from snippets.lab.trace.work import ActivityWork


def matmul_ceiling(work: ActivityWork, ceilings: CeilingRates) -> str | None:
    """The ceiling for a matmul: the bare matmul with the same M x K x N if it was timed, else the large matmul.

    A session times each shape in one layout, that of its steps.
    """
    bare = matmul_name(*work.matmul) if work.matmul else LARGE_MATMUL
    names = [name for name in ceilings if name == bare or name.startswith(f"{bare}, ")]
    return next((name for name in (*names, LARGE_MATMUL) if name in ceilings), None)


def flop_rate(work: ActivityWork | None, us: float, ceilings: CeilingRates) -> Html | None:
    """FLOP/s, and the percentage of a matmul's rate; None if the work is not a matmul or took no time."""
    if work is None or not work.flops or us <= 0:
        return None
    name = matmul_ceiling(work, ceilings)
    label = "of large" if name == LARGE_MATMUL else "of bare"
    return _cell(work.flops / us * 1e6, "flop/s", ceilings.get(name or ""), label)


def byte_rate(work: ActivityWork | None, us: float, ceilings: CeilingRates) -> Html | None:
    """Bytes/s, and the percentage of a copy's rate; None if the bytes are unknown or the activity took no time."""
    if work is None or us <= 0:
        return None
    return _cell(work.bytes / us * 1e6, "bytes/s", ceilings.get(COPY), "of copy")


def _cell(rate: float, unit: str, ceiling: float | None, of: str) -> Html:
    if not ceiling:
        return Html(format_value(rate, unit))
    percent = 100 * rate / ceiling
    if percent < 0.5:  # start-up dominates: the bytes/s of a memset of 4 bytes mean nothing
        return Html(f"<small>&lt;1 % {of}</small>")
    return Html(f"{format_value(rate, unit)}<small>{percent:.0f} % {of}</small>")


def rates_note(works: Sequence[ActivityWork | None], ceilings: CeilingRates) -> Html:
    """The line below a table that explains its rates and the ceilings of its percentages; empty without rates."""
    known = [work for work in works if work is not None]
    if not known:
        return Html("")
    text = "Rates: the least that there was to do, by the shapes of the operator's inputs, over the time."
    matmuls = (matmul_ceiling(work, ceilings) for work in known if work.flops)
    used = dict.fromkeys(name for name in (COPY, *matmuls) if name is not None and name in ceilings)
    if used:
        listed = ", ".join(_named(name, ceilings[name]) for name in used)
        text += f" Percentages: of what this GPU kept up in the same session ({listed}), which a short trace can beat."
    return Html(f'<p class="lab-note">{escape(text)}</p>')


def _named(name: str, rate: float) -> str:
    if name == COPY:
        return f"copy {format_value(rate, 'bytes/s')}"
    return f"{'large' if name == LARGE_MATMUL else 'bare'} {name} {format_value(rate, 'flop/s')}"
