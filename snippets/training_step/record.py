"""The lines that profile the chapter's training loop, as its page shows them, around the loop of `model.train`."""

from __future__ import annotations

from typing import Any

from snippets.training_step.model import train


def record(model: Any, optimizer: Any, loader: Any, device: str) -> None:
    """Profile three iterations of the loop, print the profiler's table and write trace.json.gz."""
    # --8<-- [start:record]
    from torch.profiler import profile, schedule

    plan = schedule(wait=5, warmup=2, active=3, repeat=1)
    losses = train(model, optimizer, loader, device)
    with profile(schedule=plan, record_shapes=True) as profiler:
        for _ in range(10):
            next(losses)
            profiler.step()
    table = profiler.key_averages(group_by_input_shape=True)
    print(table.table(sort_by="self_cuda_time_total", row_limit=8))
    profiler.export_chrome_trace("trace.json.gz")
    # --8<-- [end:record]
