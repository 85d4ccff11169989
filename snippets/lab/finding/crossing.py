"""Sizes at which one limit of a growing step gives way to another, interpolated between the measured sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

HALF = 0.5
"""Growth halfway between not at all (0) and in proportion (1), as an exponent: doubling makes it 1.41 times as much."""


def crossing(sizes: Sequence[float], falling: Sequence[float], rising: Sequence[float]) -> float | None:
    """The size at which the line of `rising` crosses the line of `falling`, on logarithmic scales.

    The last crossing counts, where noise makes several. None if there is none: one of the two is larger throughout.

    Args:
        sizes: ascending, above zero.
        falling: a value for each size, above zero, larger at first: what a step costs at any size.
        rising: a value for each size: what grows with it.
    """
    logs = [math.log(first / second) for first, second in zip(falling, rising, strict=True)]
    above = [index for index, log in enumerate(logs) if log > 0]
    if not above or above[-1] == len(logs) - 1:
        return None
    index = above[-1]
    share = logs[index] / (logs[index] - logs[index + 1])
    return math.exp((1 - share) * math.log(sizes[index]) + share * math.log(sizes[index + 1]))


def grows_from(sizes: Sequence[float], values: Sequence[float]) -> float | None:
    """The smallest size from which the value grows with at least the power `HALF` of the size.

    The exponent of a step is log(values' ratio) / log(sizes' ratio): 0 for a value that stays, 1 for one in proportion.
    None if the last step, to the largest size, has less.
    """
    found = None
    pairs = list(itertools.pairwise(zip(sizes, values, strict=True)))
    for (size, value), (next_size, next_value) in reversed(pairs):
        if math.log(next_value / value) < HALF * math.log(next_size / size):
            break
        found = size
    return found
