"""How long recording will take, and what is left of it, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

GO_ON = "run the same command again to go on"


def estimate_text(costs_s: Sequence[float], notebooks: int) -> str:
    """`, 2 labs to run, about 17 min`; empty if there is nothing to do."""
    labs = f", {notebooks} lab{'s' if notebooks > 1 else ''} to run" if notebooks else ""
    return f"{labs}, about {_minutes_text(sum(costs_s))}" if costs_s else ""


def print_left(device: str, count: int, costs_s: Sequence[float], minutes: float) -> bool:
    """Print the work that was not started in time and how to continue; return whether the minutes are too few for any
    of it."""
    if not costs_s:
        return False
    is_stuck = min(costs_s) > 60 * minutes
    cure = f"the shortest takes about {_minutes_text(min(costs_s))}, so allow more" if is_stuck else GO_ON
    print(f"{device}: {count} left, about {_minutes_text(sum(costs_s))}; {cure}")
    return is_stuck


def _minutes_text(seconds: float) -> str:
    """`17 min`, rounded up, so that this many minutes suffice."""
    return f"{max(1, math.ceil(seconds / 60))} min"
