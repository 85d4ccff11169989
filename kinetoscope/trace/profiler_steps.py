"""Names of the steps that `prof.step()` records."""

from __future__ import annotations

import re

STEP_NAME = re.compile(r"ProfilerStep#([0-9]{1,18})")


def number_of(name: str) -> int | None:
    """7 of `ProfilerStep#7`; None of another name."""
    match = STEP_NAME.fullmatch(name)
    return int(match[1]) if match else None
