"""Sharded, split and pipelined stacks in processes on a CPU: each equals one process."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from torch.utils._python_dispatch import TorchDispatchMode

from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.capture.ranks import run_ranks
from snippets.lab.experiment import Loop, NeedsGpu
from snippets.several_gpus import pipeline as pipelines, sharded as shards, tensor_parallel as tensors
from snippets.several_gpus.blocks import MLPBlock, build, loss_of, parameters_of_block
from snippets.several_gpus.experiments import (
    EXPERIMENTS,
    clocks,
    decoding,
    mesh,
    pipeline,
    sharded,
    stacks,
    tensor_parallel,
)

STEP = {"layers": 2, "dim": 128, "hidden": 96, "batch": 2, "tokens": 4}
FORWARD = {"layers": 2, "dim": 32, "hidden": 48, "rows": 6}
COUNT = 3
Case = tuple[Callable[..., Loop], dict[str, Any]]
LOOPS: dict[int, dict[str, Case]] = {
    2: {
        **{variant: (sharded.trained, {**STEP, "variant": variant}) for variant in sharded.VARIANTS},
        "reduced": (tensor_parallel.forward, {**FORWARD, "variant": "reduced"}),
        "sequence": (tensor_parallel.forward, {**FORWARD, "variant": "sequence"}),
        "one micro-batch": (pipeline.pipelined, {**STEP, "micro_batches": 1}),
        "two micro-batches": (pipeline.pipelined, {**STEP, "micro_batches": 2}),
    },
    4: {
        "an even mesh": (mesh.on_mesh, {**STEP, "extra": 0}),
        "a mesh with a late rank": (mesh.on_mesh, {**STEP, "extra": 1}),
        "four stages": (pipeline.pipelined, {**STEP, "layers": 4, "micro_batches": 2}),
    },
}
"""Loops by the number of ranks, at a tiny size."""


def first_losses(rank: int, world: int) -> dict[str, Any]:
    """This rank's first losses of each loop, and on rank 0 those of one process."""
    found = {}
    for name, (maker, parameters) in LOOPS[world].items():
        loop = maker("cpu", rank, world, **parameters)
        losses = [loss.item() for loss in itertools.islice(loop.losses, COUNT)]
        found[name] = losses, loop.reference(COUNT) if rank == 0 else []
    return found


@pytest.fixture(scope="module")
def losses() -> dict[str, Any]:
    """Name of a loop -> the mean of the ranks' losses, and those of one process."""
    found = {}
    for world in LOOPS:
        ranks = run_ranks(first_losses, world, limit_s=120)
        for name, (_, expected) in ranks[0].items():
            found[name] = torch.tensor([rank[name][0] for rank in ranks]).mean(0).tolist(), expected
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for world in LOOPS for name in LOOPS[world]])
def test_several_processes_have_the_losses_of_one(losses: dict[str, Any], name: str) -> None:
    mean, expected = losses[name]
    assert mean == pytest.approx(expected, rel=1e-5)
    assert len({round(loss, 3) for loss in mean}) == COUNT


def test_an_update_shows_in_the_losses() -> None:
    """Else a loop that forgets its optimizer would pass."""
    sizes = tuple(STEP.values())
    model = build(*sizes[:3], "cpu")
    untrained = model(stacks.batch_of(0, 2, sizes, "cpu")[0])
    once, trained = (stacks.losses_on_one(sizes, (0,), "cpu", count) for count in (1, 3))
    assert once[0] == trained[0]
    target = stacks.batch_of(0, 2, sizes, "cpu")[1]
    assert abs(loss_of(untrained, target).item() / trained[2] - 1) > 1e-4


def gradients(rank: int, world: int) -> dict[str, Any]:
    """Way -> this rank's result of a split MLP, the gradient of its input, and that of its part of a weight."""
    found = {}
    for way in tensors.PLANS:
        model = build(1, 16, 24, "cpu", MLPBlock)
        tensor_parallel.split_stack(way, model, dist.group.WORLD, "cpu")
        x = tensor_parallel.inputs_of(4, 16, "cpu")[0]
        x = tensor_parallel.rows_of(way, x, rank, world).clone().requires_grad_()
        mlp = model.blocks[0].mlp
        y = mlp(x)
        y.square().sum().backward()
        found[way] = y.detach(), x.grad, mlp.gate_proj.weight.grad
    plain = build(1, 16, 24, "cpu", MLPBlock)
    tensors.split(plain, dist.group.WORLD, tensor_parallel.unchanged, tensor_parallel.unchanged)
    operators = torch.ops.symm_mem  # which are for CUDA alone
    with (
        patch.object(operators, "fused_all_gather_matmul", symm_mem._fused_all_gather_matmul_fallback),
        patch.object(operators, "fused_matmul_reduce_scatter", symm_mem._fused_matmul_reduce_scatter_fallback),
        torch.no_grad(),
    ):
        found["overlapped"] = tensors.overlapped(plain.blocks[0].mlp, x.detach(), dist.group.WORLD)
    return found


@pytest.mark.slow
def test_ways_of_a_split_mlp_have_the_results_and_gradients_of_one_process() -> None:
    mlp = build(1, 16, 24, "cpu", MLPBlock).blocks[0].mlp
    x = tensor_parallel.inputs_of(4, 16, "cpu")[0].clone().requires_grad_()
    y = mlp(x)
    y.square().sum().backward()
    ranks = run_ranks(gradients, 2)
    for index, expected in enumerate((y.detach(), x.grad)):
        torch.testing.assert_close(ranks[0]["reduced"][index], expected)
        torch.testing.assert_close(torch.cat([rank["sequence"][index] for rank in ranks]), expected)
    for way in tensors.PLANS:
        torch.testing.assert_close(torch.cat([rank[way][2] for rank in ranks]), mlp.gate_proj.weight.grad)
    torch.testing.assert_close(torch.cat([rank["overlapped"] for rank in ranks]), y.detach())


class Elements(TorchDispatchMode):
    """Counts the elements of the whole array of each collective."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).split(".")[1]
        if str(func).startswith("c10d."):
            flat = [each for each in torch.utils._pytree.tree_leaves(args) if isinstance(each, torch.Tensor)]
            self.elements[name] += max(each.numel() for each in flat)
            self.calls[name] += 1
        return func(*args, **(kwargs or {}))


def transfers(rank: int, world: int) -> dict[str, Any]:
    """Variant -> the elements and the calls of a step's collectives."""
    found = {}
    sizes = tuple(STEP.values())
    x, target = stacks.batch_of(rank, 0, sizes, "cpu")
    for variant in sharded.VARIANTS:
        model = sharded.shard(variant, build(*sizes[:3], "cpu"), "cpu", world)
        with Elements() as counted:
            loss_of(model(x), target).backward()
        found[variant] = dict(counted.elements), dict(counted.calls)
    return found


@pytest.mark.slow
def test_a_sharded_step_sends_the_derived_bytes() -> None:
    weights = 2 * parameters_of_block(128, 96)
    assert (
        weights
        == 2 * (4 * 128 * 128 + 3 * 128 * 96 + 2 * 128)
        == sum(each.numel() for each in build(2, 128, 96, "cpu").parameters())
    )
    gathers, scatters = "_allgather_base_", "_reduce_scatter_base_"
    expected = {
        "per_block": ({gathers: 2 * weights, scatters: weights}, {gathers: 4, scatters: 2}),
        "root_only": ({gathers: weights, scatters: weights}, {gathers: 1, scatters: 1}),
        "kept": ({gathers: weights, scatters: weights}, {gathers: 2, scatters: 2}),
        "ahead": ({gathers: 2 * weights, scatters: weights}, {gathers: 4, scatters: 2}),
    }
    assert run_ranks(transfers, 2) == [expected, expected]
    assert [shards.bytes_sent(weights, passes, 2) for passes in (2, 3)] == [2 * weights, 3 * weights]
    assert shards.bytes_sent(weights, 3, 4, item=4) == 9 * weights
    assert shards.state_bytes(weights, 4) == 3 * weights


def probes(rank: int, world: int) -> dict[str, Any]:
    """What each probe returns at a tiny size."""
    clocks.BLOCK_US = 1.0
    instruments = TorchInstruments()
    where = (instruments, "cpu", rank, world)
    stack = {"layers": 2, "dim": 64, "hidden": 96}
    return {
        "memory": sharded.memory(*where, **stack, batch=1, tokens=4, ways="whole,per_block"),
        "tokens": sharded.by_tokens(*where, **stack, sequences="1,2", tokens=4, ways="alone,kept"),
        "rows": tensor_parallel.mlp_rows(
            *where, widths="16x24", rows="2,4", large=8, ways="alone,reduced,sequence,overlapped"
        ),
        "decode": decoding.decode(*where, sizes="tiny", context=8),
        "bubbles": pipeline.bubbles(*where, **stack, batch=1, tokens=4, counts="1,3"),
    }


@pytest.mark.slow
def test_probes_return_samples_of_the_slowest_rank() -> None:
    first, second = run_ranks(probes, 2, limit_s=120)
    weights = 2 * parameters_of_block(64, 96)
    assert {way: each["weights"] for way, each in first["memory"].items()} == {"whole": weights, "per_block": weights}
    assert {tokens: sorted(ways) for tokens, ways in first["tokens"].items()} == {
        "4": ["alone", "kept"],
        "8": ["alone", "kept"],
    }
    rows = first["rows"]["widths"]["16x24"]
    assert sorted(rows) == ["2", "4"]
    assert rows["2"]["overlapped"]["stopped"].startswith("NeedsGpu: it sends through symmetric memory")
    assert (rows["4"]["reduced"]["error"] < 1e-6, "error" in rows["4"]["alone"]) == (True, False)
    assert (first["rows"]["rates"]["flops"], first["rows"]["rates"]["bytes"]) == (1024, 64 << 20)
    tiny = first["decode"]["sizes"]["tiny"]
    assert (tiny["layers"], tiny["bytes"], tiny["whole_bytes"]) == (2, 2 * (90112 + 8 * 128), 4 * 256 * 64)
    assert (sorted(tiny["us"]), sorted(tiny["sums_us"]), tiny["error"]["nccl"] < 1e-5) == (
        ["nccl", "one"],
        ["nccl"],
        True,
    )
    assert sorted(first["bubbles"]) == ["1", "3"]
    samples = [
        *first["tokens"]["4"].values(),
        rows["2"]["alone"]["us"],
        *tiny["us"].values(),
        *first["bubbles"]["3"].values(),
    ]
    assert {len(each) for each in samples} == {clocks.ROUNDS}
    assert first["bubbles"] == second["bubbles"]
    assert min(map(min, samples)) > 0


def test_what_cannot_be_split_says_so() -> None:
    with pytest.raises(ValueError, match=r"^3 does not divide by 2 GPUs; choose another width or number of GPUs$"):
        tensors.keep(torch.nn.Linear(4, 3), 0, 0, 2)
    with pytest.raises(
        ValueError, match=r"^3 layers do not divide by 2 GPUs; choose another number of layers or GPUs$"
    ):
        pipeline.stage_of((3, 64, 96, 1, 4), 0, 2, "cpu")
    with pytest.raises(NeedsGpu, match="several_gpus/tensor_sequence runs here"):
        tensor_parallel.require_point_to_point("cpu")


def test_formulas() -> None:
    assert [pipelines.bubble(2, count) for count in (1, 4)] == [0.5, 0.2]
    assert pipelines.bubble(4, 8) == 3 / 11
    assert tensors.transfer_over_compute(3072, 4, 790e12, 355e9) == pytest.approx(1.45, abs=0.01)
    assert tensors.transfer_over_compute(14336, 2, 790e12, 329e9) == pytest.approx(0.112, abs=0.001)


def test_loops_of_a_group_share_their_sizes() -> None:
    groups: dict[str, list[Any]] = {}
    for each in EXPERIMENTS:
        if each.group in ("fsdp", "tensor", "mesh", "pipeline_on_2", "pipeline_on_4"):
            groups.setdefault(each.group, []).append((each.gpus, dict(each.parameters)))
    assert {group: len(found) for group, found in groups.items()} == {
        "fsdp": 4, "tensor": 3, "mesh": 2, "pipeline_on_2": 2, "pipeline_on_4": 1
    }  # fmt: skip
    assert all(one == found[0] for found in groups.values() for one in found)
