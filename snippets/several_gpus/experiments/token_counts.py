"""Steps of more and more tokens: from how many on a step hides its
all-reduce."""

from __future__ import annotations

import gc
from typing import Any

from snippets.lab.experiment import Instruments
from snippets.several_gpus.experiments.clocks import Step, numbers, times_us
from snippets.several_gpus.experiments.link import average_of
from snippets.several_gpus.experiments.numbers_of_ranks import random_numbers
from snippets.several_gpus.experiments.training import stepping


def token_counts(
    instruments: Instruments,
    device: str,
    rank: int,
    world: int,
    width: int,
    blocks: int,
    counts: str,
) -> dict[str, Any]:
    """Steps of more and more tokens: without communication, with one bucket
    after backward, and with DistributedDataParallel.

    Returns {"ranks", "bytes": of all gradients, "all_reduce_us": of so many
    bytes, "matmul": {"us", "flops"} of an up projection of the most tokens,
    "counts": {tokens: {"alone_us", "one_bucket_us", "ddp_us"}}}.
    """
    import torch.distributed as dist

    from snippets.several_gpus import parallel
    from snippets.several_gpus.model import parameter_count

    rungs: dict[str, Any] = {
        "alone_us": parallel.alone,
        "one_bucket_us": parallel.one_bucket,
        "ddp_us": parallel.ddp_views,
    }
    tokens = numbers(counts)
    found: dict[str, Any] = {}
    for count in tokens:
        steps = {
            name: stepping(device, rank, rung, width, blocks, count)
            for name, rung in rungs.items()
        }
        found[str(count)] = times_us(steps, device)
        steps.clear()
        gc.collect()  # modules of DistributedDataParallel are in cycles
    gradients = random_numbers(device, rank, parameter_count(width, blocks))
    op = average_of(device)
    alone = {
        "all_reduce_us": lambda: dist.all_reduce(gradients, op=op),
        "us": matmul(device, rank, max(tokens), width, 4 * width),
    }
    samples = times_us(alone, device)
    return {
        "ranks": world,
        "bytes": gradients.nbytes,
        "all_reduce_us": samples["all_reduce_us"],
        "matmul": {
            "us": samples["us"],
            "flops": 8 * max(tokens) * width**2,
        },
        "counts": found,
    }


def matmul(device: str, rank: int, m: int, k: int, n: int) -> Step:
    """(m, k) @ (k, n), as a linear layer has it."""
    x = random_numbers(device, rank, m * k).view(m, k)
    weight = random_numbers(device, rank, k * n).view(n, k)
    return lambda: x @ weight.t()
