"""Two traces, or digests of them, as sections of a report: what changed by cause and by kernel."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import fmean

from kinetoscope.compare.compare import TOTALS, Comparison, Difference, compare, wall_causes
from kinetoscope.compare.damaged import damage_of
from kinetoscope.compare.noise import ALPHA, Shift, shift
from kinetoscope.compare.same_steps import ADVICE, marked_differently
from kinetoscope.html import Cell, Html, Part, details, note, table
from kinetoscope.ranks.digest import Digest, digest
from kinetoscope.ranks.one_job import ranks_text
from kinetoscope.trace.alignment import ChangeKind
from kinetoscope.trace.events import Trace, TraceError

SHOWN = 30
"""Differences in the open; the others are folded, up to `MAX_ROWS`."""
MAX_ROWS = 500
MIN_STEP_CHANGE = 0.02
"""The smallest reported change of a step's time, as a share of it."""
MIN_APART = 5.0
"""The least distance, in percent, of the mean's change and the trimmed mean's from which both are given."""
METHOD = (
    f"Noise: a change this large happens by chance in one of {1 / ALPHA:.0f} comparisons of equal programs, by the "
    "trimmed t test on logarithms (Yuen and Dixon 1973)."
)
DEPENDENT = (
    "One run on each side: the steps of a run are its sample, and they are not independent. Two runs of one program "
    "can differ by more than their steps do. Give several runs of each side: diff --before A1 A2 A3 --after B1 B2 B3."
)
# Of 224 pairs of recordings of one experiment, made again days and changes of code apart, half differ by over 0.9 % and
# a tenth by over 2.9 % (NVIDIA H200).


def comparison(before: Trace | Digest, after: Trace | Digest) -> Comparison:
    """Compare two traces kernel by kernel; if one is a digest, by decoded kernel name. Raises `TraceError`."""
    if isinstance(before, Trace) and isinstance(after, Trace):
        return compare([before], [after])
    old, new = (digest(each) if isinstance(each, Trace) else each for each in (before, after))
    busy = [[step.busy_ns / 1000 for rank in side.ranks for step in rank.steps] for side in (old, new)]
    busy = [list(filter(None, side)) for side in busy]
    if not all(busy):
        raise TraceError(
            "the GPU is not busy in any step, and a digest holds GPU work only: record steps that contain the work, or "
            "compare traces of a CPU without digests"
        )
    marks = _marks(old), _marks(new)
    differ = marks[0] != marks[1] and _calls_per_step(old) != _calls_per_step(new)
    notes = (f"{marked_differently(*marks)}, and their work differs. {ADVICE}.",) if differ else ()
    totals = dict(zip(TOTALS, zip(_totals(old), _totals(new), strict=True), strict=True))
    return Comparison(
        devices=(old.ranks[0].device or "unknown", new.ranks[0].device or "unknown"),
        unit="step",
        samples=(len(busy[0]), len(busy[1])),
        busy=shift(busy[0], busy[1]),
        totals=totals,
        causes=wall_causes(totals),
        differences=tuple(_differences(old, new)),
        left_out=(0, 0),
        steps_from=marks,
        do_steps_compare=not differ,
        notes=notes,
        damage=damage_of([before], [after]),
        ranks=ranks_text([before], [after]),
    )


def _marks(side: Digest) -> str:
    return "; ".join(dict.fromkeys(rank.steps_from for rank in side.ranks))


def _calls_per_step(side: Digest) -> dict[str, int]:
    calls: dict[str, int] = defaultdict(int)
    for kernel in side.kernels:
        calls[kernel.name] += kernel.calls
    steps = sum(rank.step_count for rank in side.ranks)
    return {name: round(count / steps) for name, count in calls.items()}


def _totals(side: Digest) -> list[float]:
    """Mean us per step and rank, in the order of `TOTALS`."""
    steps = [step for rank in side.ranks for step in rank.steps]
    work = fmean(sum(rank.operations_ns.values()) / rank.step_count for rank in side.ranks)
    times = [fmean(ns) for ns in zip(*((step.wall_ns, step.extent_ns, step.busy_ns) for step in steps), strict=True)]
    return [round(ns / 1000, 3) for ns in (*times, work)]


def _differences(before: Digest, after: Digest) -> list[Difference]:
    """Differences by decoded name, over all launch shapes of a name."""
    times: dict[str, list[tuple[float, float]]] = defaultdict(lambda: [(0.0, 0.0), (0.0, 0.0)])
    for index, side in enumerate((before, after)):
        steps = float(sum(rank.step_count for rank in side.ranks))
        for kernel in side.kernels:
            us, calls = times[kernel.name][index]
            times[kernel.name][index] = us + kernel.total_ns / 1000 / steps, calls + kernel.calls / steps
    found = []
    for name, ((old_us, old_calls), (new_us, new_calls)) in times.items():
        kind: ChangeKind = "same" if old_calls and new_calls else "removed" if old_calls else "added"
        names = (name,) if old_calls else (), (name,) if new_calls else ()
        counts = round(old_calls), round(new_calls)
        found.append(Difference(kind, *names, counts, round(old_us, 3), round(new_us, 3), None))
    return sorted(found, key=lambda each: (-abs(each.change_us), each.name))


def comparison_parts(result: Comparison, names: tuple[str, str]) -> tuple[Part, ...]:
    """The sections of `report A B`; `names` head the columns."""
    return (
        Part("What changed, by cause", _causes_html(result, names)),
        Part("What changed, by kernel", _kernels_html(result, names)),
    )


def _causes_html(result: Comparison, names: tuple[str, str]) -> Html:
    rows = [[name, *map(_us, pair), _us(pair[1] - pair[0], "+")] for name, pair in result.totals.items()]
    totals = table("Mean times per step, in us", ["", *names, "difference"], rows)
    causes = [[cause, _us(us, "+")] for cause, us in result.causes.items()]
    summed = table("Why a step takes longer or shorter on the CPU, in us", ["cause", "difference"], causes)
    return Html(f"{totals}{summed}{''.join(map(note, comparison_notes(result)))}{note(METHOD)}")


def _kernels_html(result: Comparison, names: tuple[str, str]) -> Html:
    head = ["change", "GPU work", *names, "difference", "percent", "noise"]
    shown, rest = result.differences[:SHOWN], result.differences[SHOWN:MAX_ROWS]
    listed = table("GPU work per step, in us, the largest change first", head, map(_cells, shown), text_columns=2)
    if rest:
        more = table("GPU work per step, in us: smaller changes", head, map(_cells, rest), text_columns=2)
        listed = Html(listed + details(f"{len(rest)} smaller changes", more))
    return listed


def _cells(each: Difference) -> list[Cell]:
    before, after = each.before_us if each.before else None, each.after_us if each.after else None
    times = [None if us is None else _us(us) for us in (before, after)]
    return [each.kind, each.name, *times, _us(each.change_us, "+"), *percent_texts(each.shift)]


def percent_texts(changed: Shift | None) -> tuple[str | None, str | None]:
    """`+3.0 %` and `±0.4 %`; None if unknown."""
    if changed is None:
        return None, None
    noise = changed.noise_percent
    return f"{changed.percent:+.1f} %", None if noise is None else f"±{noise:.1f} %"


def change_text(result: Comparison) -> str:
    """The change of the GPU's busy time. If the step's time changed more, also the idle time that explains it.

    If the steps of the two sides do not compare, why not; and first, that the files are ranks of one job.
    """
    if not result.do_steps_compare:
        return f"{result.ranks} Times per step do not compare. {' '.join(result.notes)}".lstrip()
    return f"{result.ranks} {_busy_text(result)} {_step_text(result)}".strip()


def _step_text(result: Comparison) -> str:
    busy = result.totals["GPU busy"]
    # a CPU that runs ahead ends a step before the GPU does
    before, after = map(max, result.totals["step on the CPU"], busy)
    change, busy_change = after - before, busy[1] - busy[0]
    if abs(change) < MIN_STEP_CHANGE * before or abs(change - busy_change) <= abs(busy_change):
        return ""
    word = "longer" if change > 0 else "less"
    return (
        f"A step takes {abs(100 * change / before):.1f} % {word}, {_us(before)} us before and {_us(after)} us after, "
        f"since the GPU idles {word}. The profiler lengthens such gaps: time both without it."
    )


def _busy_text(result: Comparison) -> str:
    percent, noise = result.busy.percent, result.busy.noise_percent
    counts = f"from {result.samples[0]} and {result.samples[1]} {result.unit}s"
    change = f"{abs(percent):.1f} % {'longer' if percent > 0 else 'less'}"
    if noise is None:
        return f"Per step the GPU is busy for {change}; the noise is unknown, {counts}."
    known = f"noise ±{noise:.1f} %, {counts}"
    if abs(percent) <= noise:
        return f"No change of the GPU's busy time beyond the noise: {percent:+.1f} %, {known}."
    return f"Per step the GPU is busy for {change}: {known}."


def comparison_notes(result: Comparison) -> list[str]:
    """Limits of the comparison, a sentence each."""
    notes = [*result.damage, *result.notes]
    if result.devices[0] != result.devices[1]:
        notes.append(f"Different GPUs: {result.devices[0]} before, {result.devices[1]} after.")
    if any(result.left_out):
        old, new = result.left_out
        notes.append(f"{old} steps before and {new} after do other work than most; they count in the totals only.")
    if few := _few_slow(result):
        notes.append(few)
    if result.unit == "step":
        notes.append(DEPENDENT)
    return notes


def _few_slow(result: Comparison) -> str:
    """That the mean busy time changes much more than the test says, which trims; empty if they agree."""
    before, after = result.totals["GPU busy"]
    mean = 100 * (after - before) / before if before else 0.0
    if abs(mean - result.busy.percent) <= max(MIN_APART, result.busy.noise_percent or math.inf):
        return ""
    return (
        f"The mean of the GPU's busy time changes by {mean:+.1f} %, but the change of {result.busy.percent:+.1f} % is "
        f"without the longest and the shortest fifth of the {result.unit}s: a few {result.unit}s differ much from the "
        "others."
    )


def _us(us: float, sign: str = "") -> str:
    return f"{us:{sign},.1f}"
