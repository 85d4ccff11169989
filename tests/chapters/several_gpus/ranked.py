"""Functions that tests run in each of two ranks, with gloo on the CPU."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.experiment import WrongAnswer
from snippets.several_gpus import parallel
from snippets.several_gpus.experiments import beside, clocks, data_parallel, ddp_options, link, token_counts, training
from snippets.several_gpus.model import random_model

WIDTH, BLOCKS, TOKENS = 16, 2, 8
SMALL_BUCKET_BYTES = 4096
"""About one matrix of the model."""
RUNGS: dict[str, Any] = {
    "each_parameter": parallel.each_parameter,
    "one_bucket": parallel.one_bucket,
    "buckets_in_backward": partial(parallel.buckets_in_backward, bucket_bytes=SMALL_BUCKET_BYTES),
    "ddp": parallel.ddp,
    "ddp_views": parallel.ddp_views,
}


def gradients_of_rungs(rank: int, world: int) -> dict[str, list[list[float]]]:
    """Rung -> the gradients of one step, by parameter."""
    found = {}
    for name, rung in RUNGS.items():
        model = random_model(WIDTH, BLOCKS, "cpu", torch.float32)
        module, finish = rung(model)
        x, y = training.batches_of(rank, WIDTH, TOKENS, "cpu", torch.float32)[0]
        F.mse_loss(module(x), y).backward()
        finish()
        found[name] = [each.grad.flatten().tolist() for each in model.parameters()]
    return found


def loops(rank: int, world: int, variant: str) -> tuple[list[float], list[float]]:
    """Losses of four steps, and the reference of four."""
    loop = data_parallel.rung_loop("cpu", rank, world, variant, WIDTH, BLOCKS, TOKENS)
    losses = [next(loop.losses).item() for _ in range(4)]
    expected = loop.reference(4) if rank == 0 else []
    return losses, list(expected)


def loop_without_mean(rank: int, world: int) -> str:
    """The message of a loop whose ranks keep their own gradients."""
    model, losses = training.training("cpu", rank, parallel.alone, WIDTH, BLOCKS, TOKENS)
    try:
        list(itertools.islice(training.checked(model, losses, "cpu"), 4))
    except WrongAnswer as error:
        return str(error)
    return ""


def calls_of_rungs(rank: int, world: int) -> dict[str, list[int]]:
    """Rung of our own -> numbers in each all-reduce of one step."""
    sent: list[int] = []
    all_reduce = dist.all_reduce

    def counted(tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
        sent.append(tensor.numel())
        return all_reduce(tensor, *args, **options)

    dist.all_reduce = counted
    try:
        found = {}
        for name in ("each_parameter", "one_bucket", "buckets_in_backward"):
            sent.clear()
            _, losses = training.training("cpu", rank, RUNGS[name], WIDTH, BLOCKS, TOKENS)
            next(losses)
            found[name] = list(sent)
        return found
    finally:
        dist.all_reduce = all_reduce


def probes(rank: int, world: int) -> dict[str, Any]:
    """What each probe returns at a tiny size."""
    clocks.BLOCK_US = 1.0
    given = (TorchInstruments(), "cpu", rank, world)
    shape = (WIDTH, BLOCKS)
    return {
        "link": link.link(*given, "1,2", "1,4", 1, 1, "1"),
        "tokens": token_counts.token_counts(*given, *shape, "2,4"),
        "ddp_options": ddp_options.ddp_options(*given, *shape, TOKENS, "1,2", 1, 4),
        "beside": beside.beside(*given, 8, 1, "2"),
    }


def slowest(rank: int, world: int) -> list[float]:
    """The slowest of two values on each rank."""
    return clocks.slowest([1.0 + rank, 5.0 - rank], "cpu")
