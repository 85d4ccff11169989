"""On a CPU: one of a pair that answers wrongly, and three that end in other ways. A package, as long chapters have."""

from __future__ import annotations

from typing import Any

from snippets.lab.experiment import Experiment
from tests.lab.broken.faults.experiments.makers import aborts, hangs, raises, right, work, wrong


def _profiled(name: str, make: Any, **more: Any) -> Experiment:
    return Experiment(chapter="faults", name=name, label="f", parameters={"size": 16}, make=make, work=work, **more)


EXPERIMENTS = (
    _profiled("wrong", wrong, group="pair"),
    _profiled("right", right, group="pair"),
    _profiled("raises", raises),
    _profiled("hangs", hangs, time_limit_s=9),
    _profiled("aborts", aborts),
)
