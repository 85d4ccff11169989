"""A trace as you would record it yourself: the lines that the page shows."""

from __future__ import annotations

from snippets.matmul_add.model import matmul_add


def record(size: int, device: str) -> None:
    """Print the profiler's table of three steps and write their trace to trace.json.gz."""
    # --8<-- [start:record]
    import torch
    from torch.profiler import profile, record_function, schedule

    x, w, b = torch.randn(3, size, size, dtype=torch.bfloat16, device=device)
    plan = schedule(wait=1, warmup=1, active=3, repeat=1)
    with profile(schedule=plan, record_shapes=True) as prof:
        for _ in range(5):
            with record_function("matmul_add"):
                matmul_add(x, w, b)
            prof.step()
    print(prof.key_averages().table(sort_by="self_cpu_time_total"))
    prof.export_chrome_trace("trace.json.gz")
    # --8<-- [end:record]
