"""A mesh of GPUs: tensor parallel along its rows, sharded along its columns."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from snippets.lab.experiment import Experiment, Loop, Parameters
from snippets.several_gpus.experiments.clocks import WARM_STEPS
from snippets.several_gpus.experiments.sharded import training_work
from snippets.several_gpus.experiments.stacks import (
    adamw,
    batches_of,
    compute_dtype,
    reference_of,
    training,
)


def on_mesh(
    device: str,
    rank: int,
    world: int,
    layers: int,
    dim: int,
    hidden: int,
    batch: int,
    tokens: int,
    extra: int,
) -> Loop:
    """Training of a stack on a grid of ranks: each row of the grid splits the
    layers, each column shards the weights that are left. The last rank
    multiplies `extra` more matrices in each forward."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh

    from snippets.several_gpus import sharded, tensor_parallel
    from snippets.several_gpus.blocks import build

    # --8<-- [start:mesh]
    grid = init_device_mesh(
        device, (2, world // 2), mesh_dim_names=("data", "tensor")
    )
    model = build(layers, dim, hidden, device)
    plan = tensor_parallel.PLANS["reduced"]
    tensor_parallel.split(model, grid["tensor"].get_group(), *plan)
    sharded.per_block(model, grid["data"], compute_dtype(device))
    # --8<-- [end:mesh]
    if extra and rank == world - 1:
        spare = torch.randn(2 * dim, 2 * dim, device=device)
        spare = spare.to(compute_dtype(device))

        def more(*_: Any) -> None:
            for _index in range(extra):
                spare @ spare

        model.register_forward_pre_hook(more)
    sizes = (layers, dim, hidden, batch, tokens)
    batches = batches_of(grid.get_local_rank("data"), sizes, device)
    return Loop(
        losses=training(model, adamw(model, device), batches),
        reference=reference_of(sizes, range(2), device),
        lead=1,
    )


MESH: Parameters = {
    "layers": 2,
    "dim": 4096,
    "hidden": 14336,
    "batch": 4,
    "tokens": 1024,
}


def experiments() -> Iterator[Experiment]:
    """The loop on four GPUs, without and with a late rank."""
    for name, extra in (("mesh_even", 0), ("mesh_late", 12)):
        yield Experiment(
            chapter="several_gpus",
            name=name,
            label="step",
            group="mesh",
            first_steps=WARM_STEPS,
            gpus=4,
            parameters=MESH,
            loop=functools.partial(on_mesh, extra=extra),
            work=training_work,
            time_limit_s=60,
        )


EXPERIMENTS = tuple(experiments())
