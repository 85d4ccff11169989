"""Two steps aligned, kernel by kernel: what stayed, what replaced it, what was removed, what was added."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Literal, TypeVar

from snippets.lab.trace.events import GpuActivity, Step
from snippets.lab.trace.kernel_names import decode_kernel_name

T = TypeVar("T")
ChangeKind = Literal["same", "replaced", "vanished", "new"]


@dataclass(frozen=True)
class Change:
    """What became of one activity of the step before, or of a few that others took the place of together."""

    kind: ChangeKind
    before: tuple[GpuActivity, ...]
    after: tuple[GpuActivity, ...]


def align(before: Step, after: Step) -> tuple[Change, ...]:
    """The GPU work of two steps in order, each activity in exactly one pair.

    `same`: one of a name for one of that name. `replaced`: others stand between the same neighbors, one for one where
    operation and number agree, else all in one pair, such as GELU and a product for the kernel that fuses them.
    `vanished` and `new`: nothing of their kind stands there in the other step.
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
    """Both sequences cut up: single items that are equal by `key`, and what stands between them."""
    start = other_start = 0
    common = _common(list(map(key, before)), list(map(key, after)))
    for index, other_index in [*common, (len(before), len(after))]:
        if start < index or other_start < other_index:
            yield False, before[start:index], after[other_start:other_index]
        start, other_start = index + 1, other_index + 1
        if index < len(before):
            yield True, before[index:start], after[other_index:other_start]


def _common(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Places of a longest common subsequence, as early as they can be.

    Bit-parallel (Hyyrö 2004): a row for each item of `before`, and in it a bit for each of `after`, 0 where the
    sequence gets longer. Thousands of kernels take a fraction of a second; `difflib` takes minutes for repeated layers.
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
    """Pairs for what stands between two equal neighbors: a run of one operation takes the place of another of it."""
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
    """Two runs of one operation: one for one where they are as many."""
    if len(old) != len(new):
        yield Change("replaced", old, new)
        return
    for was, now in zip(old, new, strict=True):
        yield Change("replaced", (was,), (now,))


def _changed(old: tuple[GpuActivity, ...], new: tuple[GpuActivity, ...]) -> Iterator[Change]:
    if old and new:
        yield Change("replaced", old, new)
        return
    yield from (Change("vanished", (activity,), ()) for activity in old)
    yield from (Change("new", (), (activity,)) for activity in new)
