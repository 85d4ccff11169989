"""Align two steps kernel by kernel: the same, replaced, removed and added work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Literal, TypeVar

from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.kernel_names import decode_kernel_name

T = TypeVar("T")
ChangeKind = Literal["same", "replaced", "removed", "added"]


@dataclass(frozen=True)
class Change:
    """One difference, or one match, between two steps: the activities before and after."""

    kind: ChangeKind
    before: tuple[GpuActivity, ...]
    after: tuple[GpuActivity, ...]


def align(before: Step, after: Step) -> tuple[Change, ...]:
    """Match the GPU work of two steps in order; each activity is in exactly one change.

    `same`: both steps run an activity of this name. `replaced`: the steps run different activities between the same
    neighbors. If operation and count agree, each activity is paired with its replacement; else one change holds all of
    them, such as GELU and a matmul before, and the kernel that fuses them after. `removed` and `added`: the other step
    runs nothing between these neighbors.
    """
    changes: list[Change] = []
    for is_same, old_run, new_run in _blocks(
        before.activities, after.activities, lambda activity: (activity.kind, activity.name)
    ):
        changes += [Change("same", tuple(old_run), tuple(new_run))] if is_same else _by_operation(old_run, new_run)
    return tuple(changes)


def _blocks(
    before: Sequence[T], after: Sequence[T], key: Callable[[T], Hashable]
) -> Iterator[tuple[bool, Sequence[T], Sequence[T]]]:
    """Split both sequences into single items with equal keys (True) and the runs between them (False)."""
    start = other_start = 0
    common = _common(list(map(key, before)), list(map(key, after)))
    for index, other_index in [*common, (len(before), len(after))]:
        if start < index or other_start < other_index:
            yield False, before[start:index], after[other_start:other_index]
        start, other_start = index + 1, other_index + 1
        if index < len(before):
            yield True, before[index:start], after[other_index:other_start]


def _common(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return index pairs of a longest common subsequence, as early as possible.

    Bit-parallel (Hyyrö 2004): each item of `before` has a row with a bit for each item of `after`; 0 means that the
    subsequence grows there. Thousands of kernels take a fraction of a second; `difflib` takes minutes for repeated
    layers.
    """
    bits_of: dict[Hashable, int] = defaultdict(int)
    for other_index, item in enumerate(after):
        bits_of[item] |= 1 << other_index
    rows = [(1 << len(after)) - 1]
    for item in before:
        matched = rows[-1] & bits_of[item]
        rows.append(((rows[-1] + matched) | (rows[-1] - matched)) & rows[0])
    common: list[tuple[int, int]] = []
    index, other_index = len(before), len(after)
    while index and other_index:
        bit = 1 << (other_index - 1)
        if rows[index] & bit:
            other_index -= 1
        elif not rows[index - 1] & bit:
            index -= 1
        else:
            index, other_index = index - 1, other_index - 1
            common.append((index, other_index))
    return common[::-1]


def _by_operation(old_run: Sequence[GpuActivity], new_run: Sequence[GpuActivity]) -> Iterator[Change]:
    """Pair the activities between equal neighbors: a run of one operation replaces a run of the same operation."""
    for is_same, old, new in _blocks(_runs(old_run), _runs(new_run), lambda run: _operation(run[0])):
        if is_same:
            yield from _replaced(old[0], new[0])
        else:
            yield from _changed(tuple(chain.from_iterable(old)), tuple(chain.from_iterable(new)))


def _runs(activities: Sequence[GpuActivity]) -> list[tuple[GpuActivity, ...]]:
    return [tuple(run) for _, run in groupby(activities, _operation)]


def _operation(activity: GpuActivity) -> str:
    return decode_kernel_name(activity.name).operation if activity.kind == "kernel" else activity.kind


def _replaced(old: tuple[GpuActivity, ...], new: tuple[GpuActivity, ...]) -> Iterator[Change]:
    """Pair two runs of one operation: activity by activity if their lengths agree."""
    if len(old) != len(new):
        yield Change("replaced", old, new)
        return
    for before, after in zip(old, new, strict=True):
        yield Change("replaced", (before,), (after,))


def _changed(old: tuple[GpuActivity, ...], new: tuple[GpuActivity, ...]) -> Iterator[Change]:
    if old and new:
        yield Change("replaced", old, new)
        return
    yield from (Change("removed", (activity,), ()) for activity in old)
    yield from (Change("added", (), (activity,)) for activity in new)
