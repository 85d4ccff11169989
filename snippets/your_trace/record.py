"""How a training or inference loop is traced: the lines that the page shows, around a loop of your own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def record(step: Callable[[Any], object], batches: Iterable[Any]) -> None:
    """Call `step` with each batch and write a trace of three calls to trace.json.gz."""
    # --8<-- [start:record]
    from torch.profiler import profile, schedule

    plan = schedule(wait=2, warmup=2, active=3, repeat=1)
    with profile(
        schedule=plan,
        record_shapes=True,
        on_trace_ready=lambda done: done.export_chrome_trace("trace.json.gz"),
    ) as profiler:
        for batch in batches:
            step(batch)
            profiler.step()
    # --8<-- [end:record]
