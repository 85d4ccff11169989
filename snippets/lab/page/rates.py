"""The rates of a step's activities, as percentages of the ceilings measured in the recording's session."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from kinetoscope.html import Html, note
from kinetoscope.trace.units import format_value
from kinetoscope.trace.work import ActivityWork
from snippets.lab.charts.numbers import percent_text
from snippets.lab.finding.device import Run
from snippets.lab.finding.measure import LEAST_US
from snippets.lab.recording.ceilings import (
    COPY,
    LARGE_MATMUL,
    LINEAR,
    layout_of,
    matmul_name,
    with_layout,
)
from snippets.lab.recording.schema import Ceiling

TOO_SHORT, IN_L2, ABOVE = "too short", "in L2", "above a ceiling"
WHY = {
    TOO_SHORT: f"a kernel below {LEAST_US:g} µs has no percentage, because the time of a ceiling includes the "
    "gap between two kernels",
    IN_L2: "the kernel's bytes fit into the L2 cache, so the memory's rate doesn't limit the kernel",
    ABOVE: "kernels in a short trace run at a higher clock than in a long timing, and the L2 cache may hold a part "
    "of the bytes",
}
"""Why a cell has no percentage, or one above 100 -> the reason."""


@dataclass
class Rates:
    """FLOP/s and bytes/s of a run's activities in cells; collects the ceilings and reasons that they name."""

    run: Run
    used: dict[str, Ceiling] = field(default_factory=dict)
    reasons: dict[str, None] = field(default_factory=dict)

    def flops(self, work: ActivityWork | None, times_us: Sequence[float]) -> Html | None:
        """FLOP/s, and the percentage of a matmul's rate; None if the work is not a matmul or took no time."""
        if work is None or not work.flops or min(times_us) <= 0:
            return None
        name = matmul_ceiling(work, self.run.ceilings)
        size = "large" if name == LARGE_MATMUL else "bare"
        return self._cell(work.flops, "flop/s", times_us, name, f"{size} {layout_of(name)}" if name else "", "")

    def bytes(self, work: ActivityWork | None, times_us: Sequence[float]) -> Html | None:
        """Bytes/s, and the percentage of a copy's rate; None if the bytes are unknown or took no time."""
        if work is None or min(times_us) <= 0:
            return None
        name = COPY if COPY in self.run.ceilings else None
        reason = IN_L2 if work.bytes <= self.run.environment.l2_bytes else ""
        return self._cell(work.bytes, "bytes/s", times_us, name, "copy", reason)

    def _cell(
        self, amount: int, unit: str, times_us: Sequence[float], name: str | None, label: str, reason: str
    ) -> Html:
        rate = format_value(amount / statistics.fmean(times_us) * 1e6, unit)
        if name is None:
            return Html(rate)
        ceiling = self.run.ceiling(name)
        low, middle, high = shares(amount, times_us, ceiling)
        reason = TOO_SHORT if statistics.fmean(times_us) < LEAST_US else reason
        if reason:
            self.reasons[reason] = None
            return Html(f"{rate}<small>{reason}</small>")
        self.used[name] = ceiling
        if high > 100:
            self.reasons[ABOVE] = None
        if middle > 100:
            return Html(f"{rate}<small>above {label}</small>")
        if middle < 0.5:
            return Html(f"<small>&lt;1 % of {label}</small>")
        percent = percent_text(low, high)
        return Html(f'{rate}<small title="of {escape(with_layout(name))}">{percent} of {label}</small>')

    def note(self, works: Iterable[ActivityWork | None]) -> Html:
        """The line below a table that explains rates, ceilings and missing percentages; empty without rates."""
        if not any(works):
            return Html("")
        text = "Rates: the least work for the shapes of the operator's inputs, divided by the kernel's time."
        if self.used:
            listed = ", ".join(_named(ceiling) for ceiling in self.used.values())
            text += (
                f" Percentages compare the kernel's rate with this GPU's ceilings in the same session ({listed}). "
                "If a percentage has two numbers, they are the lowest and the highest share."
            )
        text += "".join(f" {reason[0].upper()}{reason[1:]}: {WHY[reason]}." for reason in self.reasons)
        return note(text)


def shares(amount: int, times_us: Sequence[float], ceiling: Ceiling) -> tuple[float, float, float]:
    """Percent of a ceiling: lowest, at the mean time, and highest, over the times and the ceiling's own spread."""
    least_us, most_us = ceiling.timing.spread_us
    share = 100 * amount / (ceiling.flops or ceiling.bytes)
    middle = share * ceiling.timing.median_us / statistics.fmean(times_us)
    return share * least_us / max(times_us), middle, share * most_us / min(times_us)


def matmul_ceiling(work: ActivityWork, ceilings: Iterable[str]) -> str | None:
    """The name of a matmul's ceiling: the same shape in its own layout, in any layout of its type, or the large one.

    Work that the chapter states has no shape, and is compared with the large matmul.
    """
    names = list(ceilings)
    large = [LARGE_MATMUL] if work.dtype in ("", "bfloat16") else []
    if work.matmul is None:
        return next((name for name in large if name in names), None)
    own = [matmul_name(*work.matmul, layout, work.dtype) for layout in (work.layout, LINEAR, "x @ w") if layout]
    return next((name for name in (*own, *large) if name in names), None)


def _named(ceiling: Ceiling) -> str:
    if not ceiling.flops:
        return f"{ceiling.name} {format_value(ceiling.rate, 'bytes/s')}"
    size = "large" if ceiling.name == LARGE_MATMUL else "bare"
    return f"{size} {with_layout(ceiling.name)} {format_value(ceiling.rate, 'flop/s')}"
