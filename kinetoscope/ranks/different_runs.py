"""Whether files are of one run: ranks of one job are recorded at one time."""

from __future__ import annotations

from collections.abc import Mapping


def different_runs(spans_ns: Mapping[int, tuple[int, int]]) -> str:
    """That a rank starts after another has ended, in a sentence; empty if all were recorded at one time.

    Args:
        spans_ns: rank -> start and end of its work, in ns since 1970.
    """
    if not spans_ns:
        return ""
    first = min(spans_ns, key=lambda rank: spans_ns[rank][1])
    last = max(spans_ns, key=lambda rank: spans_ns[rank][0])
    apart_s = (spans_ns[last][0] - spans_ns[first][1]) / 1e9
    if apart_s <= 0:
        return ""
    return (
        f"Rank {last} starts {apart_s:,.3g} s after rank {first} has ended: they are of different runs, or the clocks "
        "of their machines differ."
    )
