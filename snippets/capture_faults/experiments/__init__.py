"""What the page on the profiler's own faults records: the same step, captured wrongly and rightly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snippets.capture_faults.experiments.captures import (
    cpu_only,
    forgotten_step,
    in_a_thread,
    in_workers,
)
from snippets.capture_faults.experiments.costs import huge, overhead
from snippets.capture_faults.experiments.sessions import (
    second_subscriber,
    unwarmed,
)
from snippets.lab.experiment import Experiment


def _probe(
    name: str, probe: Callable[..., dict[str, Any]], **parameters: int | str
) -> Experiment:
    return Experiment(
        chapter="capture_faults", name=name, parameters=parameters, probe=probe
    )


EXPERIMENTS = (
    _probe("overhead", overhead, repeats=11, steps=20),
    _probe("forgotten_step", forgotten_step),
    _probe("cpu_only", cpu_only),
    _probe("in_a_thread", in_a_thread),
    _probe("in_workers", in_workers, workers=2),
    _probe("second_subscriber", second_subscriber),
    _probe("unwarmed", unwarmed, sessions=8),
    _probe("huge", huge, counts="1 10 100"),
)
