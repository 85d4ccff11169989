"""What no CPU can run: NCCL's groups, graphs and sends, and symmetric memory, on two GPUs of this machine."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from snippets.lab.capture.agreement import meet
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.capture.ranks import run_ranks
from snippets.several_gpus import blocks, pipeline
from snippets.several_gpus.experiments import beside, clocks, link, symmetric, tensor_parallel
from snippets.several_gpus.experiments.numbers_of_ranks import random_numbers

COUNT = 1 << 16

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


def grouped(rank: int, world: int) -> dict[str, Any]:
    """What ranks agree on beside nccl, and the blocks of an all-reduce in a group with fewer."""
    ranks = meet(rank, world)
    ranks.barrier()
    numbers = random_numbers("cuda", rank, COUNT)
    group = beside.group_of(2)
    assert group is not None
    seen = clocks.activities_of(TorchInstruments(), lambda: dist.all_reduce(numbers, group=group), "cuda")
    return {
        "ranks": ranks.gather(rank),
        "device": torch.cuda.current_device(),
        "blocks": [one["blocks"] for one in seen if one["name"].startswith("nccl")],
    }


def replayed(rank: int, world: int) -> dict[str, float]:
    """An all-reduce launched and in a graph: both means are equal on all ranks."""
    numbers = random_numbers("cuda", rank, COUNT)
    steps = link.collectives_of(numbers, numbers[: COUNT // world], link.average_of("cuda"))
    replay = clocks.repeated(steps["all_reduce"], "cuda", 3)
    replay()
    times = clocks.times_us({"graph": replay, "launched": steps["all_reduce"]}, "cuda", rounds=2)
    return {"sum": float(numbers.double().sum()), **{name: min(us) for name, us in times.items()}}


def stages(rank: int, world: int) -> float:
    """The loss of a pipeline's step, on its last stage."""
    model = blocks.build(2, 64, 128, "cuda")
    batches = list(torch.ones(4, 1, 8, 64, device="cuda"))
    step = pipeline.step(model.blocks[rank], batches, lambda _, y: blocks.loss_of(y, torch.zeros_like(y)))
    return float(step.item())


def summed(rank: int, world: int) -> float:
    """The error of both kinds of all-reduce in symmetric memory."""
    shared, _, group = symmetric.symmetric("cuda", COUNT)
    return symmetric.sum_error(symmetric.all_reduces(shared, group), shared, rank)


def overlapped(rank: int, world: int) -> float:
    """The error of an MLP split over both GPUs, whose pieces are sent while others are multiplied."""
    found = tensor_parallel.mlp_us("cuda", rank, world, 256, 512, 128, "overlapped")
    return float(found["overlapped"]["error"])


def test_groups_of_ranks() -> None:
    first, second = run_ranks(grouped, 2, device="cuda")
    assert (first["device"], second["device"]) == (0, 1)
    assert first["ranks"] == second["ranks"] == [0, 1]
    assert set(first["blocks"] + second["blocks"]) <= {1, 2}
    assert first["blocks"]


def test_a_collective_in_a_graph() -> None:
    first, second = run_ranks(replayed, 2, device="cuda")
    assert first["sum"] == second["sum"]
    assert 0 < first["graph"] < 1e5
    assert first["launched"] == second["launched"] > 0, "the slowest rank's time counts"


def test_a_pipeline_of_two_stages() -> None:
    first, last = run_ranks(stages, 2, device="cuda")
    assert (first, last > 0) == (0, True)


def test_sums_in_symmetric_memory() -> None:
    assert max(run_ranks(summed, 2, device="cuda")) < symmetric.TOLERANCE


def test_an_overlapped_mlp() -> None:
    assert max(run_ranks(overlapped, 2, device="cuda")) < tensor_parallel.TOLERANCE
