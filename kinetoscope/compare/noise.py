"""Whether two samples of times differ beyond their noise: the two-sample trimmed t test on logarithms.

Yuen and Dixon, Biometrika 60 (1973) 369: trimmed means, the variance pooled from the winsorized samples, h1 + h2 - 2
degrees of freedom, where h of n values are left. Trimming a fifth at each end keeps a slow first step or a hiccup from
deciding; below five values nothing is trimmed and it is Student's test. A rank test (Mann-Whitney) does not work with
the three steps that most traces have: of three against three, its smallest p is 1 in 20.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

ALPHA = 0.005
"""Chance of a false alarm that a test may have, before the change must also reach the gate."""
TRIMMED = 0.2
"""Share of the values left out at each end."""
_INTERVALS = 256  # of Simpson's rule: enough for six digits of p


@dataclass(frozen=True)
class Shift:
    """The change of a sample in percent, with its noise."""

    percent: float
    """Trimmed mean of the second against the first; +3.0: 3 % slower."""
    error_percent: float
    """Standard error of `percent`."""
    freedom: int
    """Degrees of freedom; 0 if each side has one value, so that the noise is unknown."""
    p: float
    """Chance of a slowdown at least this large if nothing changed; 1.0 if the noise is unknown."""

    @property
    def noise_percent(self) -> float | None:
        """The largest change that chance causes more often than `ALPHA`, in percent; None if the noise is unknown."""
        return self.error_percent * _quantile(ALPHA, self.freedom) if self.freedom else None


def shift(before: Sequence[float], after: Sequence[float], resolution: float = 0.0) -> Shift:
    """Compare two samples of positive times.

    `resolution`: relative standard deviation that rounding of the clock adds to a value; without it, three equal values
    would have no noise. Raises `ValueError` if a sample is empty or has a value that is not positive.
    """
    (low, square, kept), (high, other_square, other_kept) = _trimmed(before), _trimmed(after)
    change, freedom = high - low, kept + other_kept - 2
    percent = 100 * math.expm1(change)
    if not freedom:
        return Shift(percent, 0.0, 0, 1.0)
    variance = max((square + other_square) / freedom, resolution**2)
    error = math.sqrt(variance * (1 / kept + 1 / other_kept))
    p = upper_tail(change / error, freedom) if error else float(change <= 0)
    return Shift(percent, 100 * error, freedom, p)


def typical(values: Sequence[float]) -> float:
    """The trimmed geometric mean of positive times."""
    return math.exp(_trimmed(values)[0])


def _trimmed(values: Sequence[float]) -> tuple[float, float, int]:
    """Trimmed mean of the logarithms, sum of squares of the winsorized logarithms, number of untrimmed values."""
    logs = sorted(map(math.log, values))
    if not logs:
        raise ValueError("an empty sample")
    cut = int(TRIMMED * len(logs))
    kept = logs[cut : len(logs) - cut]
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    mean = math.fsum(winsorized) / len(winsorized)
    return math.fsum(kept) / len(kept), math.fsum((value - mean) ** 2 for value in winsorized), len(kept)


def upper_tail(t: float, freedom: int) -> float:
    """Chance that Student's t is at least `t`: with t = sqrt(freedom) tan x, an integral of cos(x)^(freedom - 1)."""
    if t < 0:
        return 1 - upper_tail(-t, freedom)
    start = math.atan(t / math.sqrt(freedom))
    width = (math.pi / 2 - start) / _INTERVALS
    heights = [math.cos(start + index * width) ** (freedom - 1) for index in range(_INTERVALS + 1)]
    area = (heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2])) * width / 3
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    return min(1.0, scale * area)


@lru_cache(maxsize=256)
def _quantile(alpha: float, freedom: int) -> float:
    """The value that Student's t exceeds with probability `alpha`."""
    low, high = 0.0, 1.0
    while upper_tail(high, freedom) > alpha:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle, freedom) > alpha else (low, middle)
    return high
