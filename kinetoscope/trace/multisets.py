"""Groups of multisets that have most of their elements in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Any

MAX_KINDS = 8


class Counters(dict[tuple[Any, ...], Counter[Hashable]]):
    """The counts of what each tuple has; equal tuples have one counter."""

    def __init__(self, different: Sequence[tuple[Hashable, ...]] | None = None) -> None:
        """`different`: what the numbers in a tuple mean."""
        super().__init__()
        self._different = different

    def __missing__(self, values: tuple[Any, ...]) -> Counter[Hashable]:
        meant = values if self._different is None else chain.from_iterable(self._different[each] for each in values)
        return self.setdefault(values, Counter(meant))


def largest_group(counters: Sequence[Counter[Hashable]], least: float) -> list[int]:
    """The indices of the largest group that agrees with its first member; empty for many small groups."""
    groups: list[list[int]] = []
    known: dict[frozenset[tuple[Hashable, int]], list[int]] = {}
    of_counter: dict[int, list[int]] = {}
    for index, counter in enumerate(counters):
        group = of_counter.get(id(counter))
        if group is None:
            key = frozenset(counter.items())
            group = known.get(key)
            if group is None:
                group = next((each for each in groups if common_share(counters[each[0]], counter) >= least), [])
                known[key] = group
                if not group and len(groups) < MAX_KINDS:
                    groups.append(group)
            of_counter[id(counter)] = group
        group.append(index)
    return max(groups, key=len, default=[])


def common_share(first: Counter[Hashable], second: Counter[Hashable]) -> float:
    """The share of two multisets that they have in common."""
    total = first.total() + second.total()
    return 2 * sum(min(count, second[key]) for key, count in first.items()) / total if total else 0.0
