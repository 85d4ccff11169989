"""What the options of DistributedDataParallel change: buckets, gradients as
views of them, and `no_sync`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from snippets.lab.experiment import Instruments, WrongAnswer
from snippets.several_gpus.experiments.clocks import Step, numbers, times_us
from snippets.several_gpus.experiments.training import (
    CHECKED,
    LEARNING_RATE,
    batches_of,
    dtype_of,
    training,
    weights_apart,
)

MIB = 1 << 20


def ddp_options(
    instruments: Instruments,
    device: str,
    rank: int,
    world: int,
    width: int,
    blocks: int,
    tokens: int,
    caps: str,
    first: int,
    batches: int,
) -> dict[str, Any]:
    """DistributedDataParallel with other options.

    Returns {"ranks", "bytes": of all gradients, "variants": of `buckets`,
    "accumulation": of `accumulation` with half of the tokens}.
    """
    from snippets.several_gpus.model import parameter_count

    item = dtype_of(device).itemsize
    shape = width, blocks
    return {
        "ranks": world,
        "bytes": item * parameter_count(*shape),
        "variants": buckets(device, rank, *shape, tokens, numbers(caps), first),
        "accumulation": accumulation(
            device, rank, *shape, tokens // 2, batches
        ),
    }


def buckets(
    device: str,
    rank: int,
    width: int,
    blocks: int,
    tokens: int,
    caps: list[int],
    first: int,
) -> dict[str, Any]:
    """`bucket_cap_mb` of each of `caps`, the defaults, a first bucket of
    `first` MiB alone, and buckets as gradients.

    Returns {variant: {"us", "buckets": their bytes in the order of transfer,
    "held_bytes": by gradients and buckets before the optimizer's step}}.
    """
    from snippets.several_gpus.parallel import ddp

    options: dict[str, dict[str, Any]] = {
        f"bucket_cap_mb={cap}": {"bucket_cap_mb": cap} for cap in caps
    }
    options |= {
        "defaults": {},
        "large first bucket": {},
        "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
    }
    steps: dict[str, Step] = {}
    variants: dict[str, dict[str, Any]] = {}
    for name, given in options.items():
        with first_bucket(first if name == "large first bucket" else 1):
            rung = functools.partial(ddp, **given)
            steps[name], variants[name] = opened(
                device, rank, rung, width, blocks, tokens
            )
    for name, samples in times_us(steps, device).items():
        variants[name]["us"] = samples
    return variants


@contextmanager
def first_bucket(mebibytes: int) -> Iterator[None]:
    """The size of the first bucket of a DistributedDataParallel that is made
    here with the default `bucket_cap_mb`."""
    import torch.distributed

    defaults: Any = torch.distributed
    before = defaults._DEFAULT_FIRST_BUCKET_BYTES
    defaults._DEFAULT_FIRST_BUCKET_BYTES = mebibytes * MIB
    try:
        yield
    finally:
        defaults._DEFAULT_FIRST_BUCKET_BYTES = before


def opened(
    device: str, rank: int, rung: Any, width: int, blocks: int, tokens: int
) -> tuple[Step, dict[str, Any]]:
    """A step after its buckets are rebuilt, their bytes, and the memory that
    gradients and buckets hold between backward and the optimizer's step."""
    import torch

    wrapped: list[Any] = []
    held = [0]

    def kept(model: Any) -> Any:
        module, finish = rung(model)
        wrapped.append(module)

        def noting() -> None:
            finish()
            if device == "cuda":
                held[0] = torch.cuda.memory_allocated()

        return module, noting

    _, losses = training(device, rank, kept, width, blocks, tokens)
    before = torch.cuda.memory_allocated() if device == "cuda" else 0
    step = functools.partial(next, losses)
    for _ in range(CHECKED):
        step()
    found: dict[str, Any] = {"buckets": bucket_bytes(wrapped[0])}
    if device == "cuda":
        found["held_bytes"] = held[0] - before
    return step, found


def bucket_bytes(module: Any) -> list[int]:
    """The bytes of each bucket of a DistributedDataParallel, after its first
    backward."""
    text = module._get_ddp_logging_data()["rebuilt_bucket_sizes"]
    return [int(size) for size in text.split(",")]


def accumulation(
    device: str, rank: int, width: int, blocks: int, tokens: int, batches: int
) -> dict[str, Any]:
    """Steps of several batches: an all-reduce for each batch, or for the last
    alone.

    Returns {"batches", "tokens", "synced_us", "no_sync_us"}, of a step.
    """
    import torch

    from snippets.several_gpus import parallel
    from snippets.several_gpus.model import random_model

    dtype = dtype_of(device)
    drawn = batches_of(rank, width, tokens, device, dtype)
    several = list(itertools.islice(itertools.cycle(drawn), batches))
    ways: dict[str, Any] = {
        "synced_us": parallel.accumulate_synced,
        "no_sync_us": parallel.accumulate,
    }
    steps: dict[str, Step] = {}
    for name, way in ways.items():
        model = random_model(width, blocks, device, dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        module, _ = parallel.ddp_views(model)
        steps[name] = functools.partial(way, module, optimizer, several)
        for _ in range(CHECKED):
            steps[name]()
        if apart := weights_apart(model, device):
            raise WrongAnswer(f"{name}: sums of weights differ by {apart:.1e}")
    return {"batches": batches, "tokens": tokens, **times_us(steps, device)}
