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
    pairs: list[Change] = []
    for equal, gone, come in _blocks(before.activities, after.activities, lambda one: (one.kind, one.name)):
        pairs += [Change("same", tuple(gone), tuple(come))] if equal else _by_operation(gone, come)
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


def _by_operation(gone: Sequence[GpuActivity], come: Sequence[GpuActivity]) -> Iterator[Change]:
    """Pairs for what stands between two equal neighbors: a run of one operation takes the place of another of it."""
    for equal, old, new in _blocks(_runs(gone), _runs(come), lambda run: _operation(run[0])):
        if equal:
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
    for one, other in zip(old, new, strict=True):
        yield Change("replaced", (one,), (other,))


def _changed(old: tuple[GpuActivity, ...], new: tuple[GpuActivity, ...]) -> Iterator[Change]:
    if old and new:
        yield Change("replaced", old, new)
        return
    yield from (Change("vanished", (one,), ()) for one in old)
    yield from (Change("new", (), (one,)) for one in new)
