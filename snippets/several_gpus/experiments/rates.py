"""Rates of a GPU and of the link, which formulas take."""

from __future__ import annotations

from typing import Any

from snippets.several_gpus.experiments.clocks import repeated, times_us
from snippets.several_gpus.experiments.stacks import compute_dtype

MIB = 1 << 20


def rates(device: str, large: int) -> dict[str, Any]:
    """A product of (large, large) factors, and an all-reduce of 64 MiB.

    Returns {"flops", "bytes": of the array, "us": {"matmul": samples,
    "all_reduce": samples}}.
    """
    import torch
    import torch.distributed as dist

    dtype = compute_dtype(device)
    a, b = torch.randn(2, large, large, device=device).to(dtype)
    array = torch.zeros(64 * MIB // dtype.itemsize, device=device, dtype=dtype)
    steps = {
        "matmul": lambda: a @ b,
        "all_reduce": lambda: dist.all_reduce(array),
    }
    timed = times_us(
        {name: repeated(step, device, 1) for name, step in steps.items()},
        device,
    )
    return {"flops": 2 * large**3, "bytes": array.nbytes, "us": timed}
