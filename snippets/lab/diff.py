"""Two steps side by side, aligned kernel by kernel: what stayed, what took its place, what vanished, what is new."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Literal, TypeVar

from snippets.lab import kernel_names, recording, trace
from snippets.lab.figures import Figure, gpu_calls, in_words, label_us, per_step
from snippets.lab.html import Cell, Html, table
from snippets.lab.tables import durations_us, figure_cell, middle_step
from snippets.lab.trace import GpuActivity, Step, Trace
from snippets.lab.work import Known, works_of

T = TypeVar("T")
Change = Literal["same", "replaced", "vanished", "new"]
Work = Known | Callable[[Trace, Step], Known] | None

SIGNS: Mapping[Change, str] = {"same": "=", "replaced": "→", "vanished": "−", "new": "+"}


@dataclass(frozen=True)
class Pair:
    """What became of one activity of the step before, or of a few that others took the place of together."""

    change: Change
    before: tuple[GpuActivity, ...]
    after: tuple[GpuActivity, ...]


def aligned(before: Step, after: Step) -> tuple[Pair, ...]:
    """The GPU work of two steps in order, each activity in exactly one pair.

    `same`: one of a name for one of that name. `replaced`: others stand between the same neighbors, one for one where
    operation and number agree, else all in one pair, such as GELU and a product for the kernel that fuses them.
    `vanished` and `new`: nothing of their kind stands there in the other step.
    """
    pairs: list[Pair] = []
    for equal, gone, come in _blocks(before.activities, after.activities, lambda one: (one.kind, one.name)):
        pairs += [Pair("same", tuple(gone), tuple(come))] if equal else _by_operation(gone, come)
    return tuple(pairs)


def _blocks(
    before: Sequence[T], after: Sequence[T], key: Callable[[T], Hashable]
) -> Iterator[tuple[bool, Sequence[T], Sequence[T]]]:
    """Both sequences cut up: single items that are equal by `key`, and what stands between them."""
    start = other_start = 0
    common = _common(list(map(key, before)), list(map(key, after)))
    for place, other in [*common, (len(before), len(after))]:
        if start < place or other_start < other:
            yield False, before[start:place], after[other_start:other]
        start, other_start = place + 1, other + 1
        if place < len(before):
            yield True, before[place:start], after[other:other_start]


def _common(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Places of a longest common subsequence, as early as they can be.

    Bit-parallel (Hyyrö 2004): a row for each item of `before`, and in it a bit for each of `after`, 0 where the
    sequence gets longer. Thousands of kernels take a fraction of a second; `difflib` takes minutes for repeated layers.
    """
    places: dict[Hashable, int] = defaultdict(int)
    for other, item in enumerate(after):
        places[item] |= 1 << other
    rows = [(1 << len(after)) - 1]
    for item in before:
        matched = rows[-1] & places[item]
        rows.append(((rows[-1] + matched) | (rows[-1] - matched)) & rows[0])
    found: list[tuple[int, int]] = []
    place, other = len(before), len(after)
    while place and other:
        bit = 1 << (other - 1)
        if rows[place] & bit:
            other -= 1
        elif not rows[place - 1] & bit:
            place -= 1
        else:
            place, other = place - 1, other - 1
            found.append((place, other))
    return found[::-1]


def _by_operation(gone: Sequence[GpuActivity], come: Sequence[GpuActivity]) -> Iterator[Pair]:
    """Pairs for what stands between two equal neighbors: a run of one operation takes the place of another of it."""
    for equal, old, new in _blocks(_runs(gone), _runs(come), lambda run: _operation(run[0])):
        if equal:
            yield from _replaced(old[0], new[0])
        else:
            yield from _changed(tuple(chain.from_iterable(old)), tuple(chain.from_iterable(new)))


def _runs(activities: Sequence[GpuActivity]) -> list[tuple[GpuActivity, ...]]:
    return [tuple(run) for _, run in groupby(activities, _operation)]


def _operation(activity: GpuActivity) -> str:
    return kernel_names.decode(activity.name).operation if activity.kind == "kernel" else activity.kind


def _replaced(old: tuple[GpuActivity, ...], new: tuple[GpuActivity, ...]) -> Iterator[Pair]:
    """Two runs of one operation: one for one where they are as many."""
    if len(old) != len(new):
        yield Pair("replaced", old, new)
        return
    for one, other in zip(old, new, strict=True):
        yield Pair("replaced", (one,), (other,))


def _changed(old: tuple[GpuActivity, ...], new: tuple[GpuActivity, ...]) -> Iterator[Pair]:
    if old and new:
        yield Pair("replaced", old, new)
        return
    yield from (Pair("vanished", (one,), ()) for one in old)
    yield from (Pair("new", (), (one,)) for one in new)


def trace_diff(
    before: str,
    after: str,
    device: str,
    names: tuple[str, str],
    caption: str,
    *,
    work: tuple[Work, Work] = (None, None),
) -> Html:
    """What changed from one experiment's step to another's: `chapter/experiment` twice, and what to call them.

    `work` as in `tables.kernel_table`, for either. Raises `RecordingMissing` without a recording of both, `TraceError`
    where a trace has no step or no kernel.
    """
    traces = (recording.trace(before, device), recording.trace(after, device))
    labels = (recording.load(before, device).label, recording.load(after, device).label)
    return diff(*traces, names, caption, labels=labels, work=work)


def diff(
    before: Trace,
    after: Trace,
    names: tuple[str, str],
    caption: str,
    *,
    labels: tuple[str, str] = ("", ""),
    work: tuple[Work, Work] = (None, None),
) -> Html:
    """Two tables: the GPU work of the middle steps aligned, and the totals of a step.

    `labels` name the spans whose CPU time is compared; without one it is that of the whole step.
    """
    for traced in (before, after):
        trace.require_kernels(traced)
    steps = (middle_step(before), middle_step(after))
    times = tuple(map(_times, (before, after), steps))
    rows = [_row(pair, *times) for pair in aligned(*steps)]
    listed = table(caption, ["change", "GPU work", *names, "difference"], rows, text_columns=2)
    old, new = (_totals(*one) for one in zip((before, after), labels, work, strict=True))
    compared = [[name, _cell(old[name]), _cell(new[name]), _difference(old[name], new[name])] for name in old]
    totals = table(f"{caption}: a step in all", ["", *names, "difference"], compared)
    return Html(f'<div class="lab-diff">{listed}{totals}</div>')


def _times(traced: Trace, step: Step) -> dict[GpuActivity, Figure]:
    """How long each activity took: the mean over the steps that agree, with their shortest and longest."""
    found = zip(step.activities, durations_us(traced, step), strict=True)
    return {one: Figure(statistics.fmean(us), "us", (min(us), max(us))) for one, us in found}


def _row(pair: Pair, old: Mapping[GpuActivity, Figure], new: Mapping[GpuActivity, Figure]) -> list[Cell]:
    before, after = _sum(old[one] for one in pair.before), _sum(new[one] for one in pair.after)
    shown = [kernel_names.shown(one.name) for one in pair.before or pair.after]
    if pair.change == "replaced":
        shown += [Html(f'<span class="after">→ {kernel_names.shown(one.name)}</span>') for one in pair.after]
    change = Html(f'<span class="change {pair.change}">{SIGNS[pair.change]} {pair.change}</span>')
    times = (before.text if pair.before else None, after.text if pair.after else None)
    return [change, Html("<br>".join(shown)), *times, _difference(before, after)]


def _sum(times: Iterable[Figure]) -> Figure:
    found = [_range(one) for one in times]
    value, least, most = (math.fsum(one[place] for one in found) for place in range(3))
    return Figure(value, "us", (least, most))


def _totals(traced: Trace, label: str, known: Work) -> dict[str, Figure | None]:
    def cpu_us(step: Step) -> float:
        return label_us(traced, step, label) if label else step.end_us - step.start_us

    return {
        "kernel time": per_step(traced, lambda step: trace.kernel_time_us(step.activities), "us"),
        "GPU busy": per_step(traced, lambda step: trace.busy_us(step.activities), "us"),
        "GPU activities": per_step(traced, lambda step: len(step.activities)),
        "CUDA calls that launch them": per_step(traced, lambda step: gpu_calls(traced, step)),
        "CUDA calls in all": per_step(traced, lambda step: len(step.launches)),
        "operators and regions": per_step(traced, lambda step: sum(not op.is_annotation for op in step.ops)),
        "CPU time": per_step(traced, cpu_us, "us"),
        "bytes moved": _moved(traced, known),
    }


def _moved(traced: Trace, known: Work) -> Figure | None:
    """Bytes that a step has to move, `at least` where the work of some activities is not known; None where of all."""
    works = works_of(traced, middle_step(traced), known)
    if not any(works):
        return None
    found = per_step(traced, lambda step: sum(one.bytes for one in works_of(traced, step, known) if one), "bytes")
    return found if all(works) else replace(found, said=f"at least {found.text}")


def _cell(shown: Figure | None) -> Cell:
    return None if shown is None else figure_cell(shown)


def _difference(old: Figure | None, new: Figure | None) -> Cell:
    """With its percentage, or a word that the steps differ by more; None where either side is not known in full."""
    if old is None or new is None or old.said or new.said:
        return None
    (before, least, most), (after, lower, upper) = _range(old), _range(new)
    if round(after - before, 6) == 0:  # sums of times may differ in the last bit
        return "0"
    signed = _signed(after - before, old.unit)
    if lower <= most and least <= upper:
        return Html(f"{signed}<small>within the spread</small>")
    percent = f"<small>{100 * (after - before) / before:+.0f} %</small>" if old.unit and before and after else ""
    return Html(signed + percent.replace("-", "−"))


def _range(shown: Figure) -> tuple[float, float, float]:
    """Value, smallest and largest step of a number."""
    assert isinstance(shown.value, int | float)
    return (shown.value, *(shown.spread or (shown.value, shown.value)))


def _signed(value: float, unit: str) -> str:
    sign = "+" if value > 0 else "−" if value < 0 else ""
    return f"{sign}{in_words(abs(value), unit)}"
