"""Sharded weights: FSDP2."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from typing import Any

from snippets.lab.experiment import (
    Experiment,
    Instruments,
    Loop,
    Parameters,
    Work,
)
from snippets.several_gpus.experiments.clocks import (
    WARM_STEPS,
    numbers,
    times_us,
)
from snippets.several_gpus.experiments.stacks import (
    Sizes,
    adamw,
    batch_of,
    batches_of,
    compute_dtype,
    reference_of,
    training,
)

VARIANTS = ("per_block", "root_only", "kept", "ahead")


def shard(variant: str, model: Any, device: str, world: int) -> Any:
    """A stack sharded over all ranks by a function of sharded.py."""
    from torch.distributed.device_mesh import init_device_mesh

    from snippets.several_gpus import sharded

    mesh = init_device_mesh(device, (world,))
    return getattr(sharded, variant)(model, mesh, compute_dtype(device))


def trained(
    device: str,
    rank: int,
    world: int,
    variant: str,
    layers: int,
    dim: int,
    hidden: int,
    batch: int,
    tokens: int,
) -> Loop:
    """Training of a sharded stack."""
    from snippets.several_gpus.blocks import build

    sizes = (layers, dim, hidden, batch, tokens)
    model = shard(variant, build(layers, dim, hidden, device), device, world)
    batches = batches_of(rank, sizes, device)
    return Loop(
        losses=training(model, adamw(model, device), batches),
        reference=reference_of(sizes, range(world), device),
        lead=1,
    )


def training_work(
    layers: int, dim: int, hidden: int, batch: int, tokens: int
) -> Work:
    """Of one rank: the products of forward and backward, and the causal half
    of attention."""
    from snippets.several_gpus.blocks import parameters_of_block

    rows = batch * tokens
    products = 6 * rows * layers * parameters_of_block(dim, hidden)
    attention = 6 * rows * layers * tokens * dim
    return Work(bytes=0, other_flops=products + attention)


def allocated(device: str) -> int:
    """Bytes that this process has allocated on its GPU; 0 on a CPU."""
    import torch

    return torch.cuda.memory_allocated() if device == "cuda" else 0


def memory(
    instruments: Instruments,
    device: str,
    rank: int,
    world: int,
    layers: int,
    dim: int,
    hidden: int,
    batch: int,
    tokens: int,
    ways: str,
) -> dict[str, Any]:
    """What a GPU holds at moments of a training step.

    Returns {way: {"weights": of the whole model, "state_bytes": between two
    steps, "forward_bytes": at the end of a forward, "peak_bytes": of a step}};
    all less what was there before. The way `whole` is one GPU for itself.
    """
    import torch

    from snippets.several_gpus.blocks import build, loss_of

    sizes = (layers, dim, hidden, batch, tokens)
    x, target = batch_of(rank, 0, sizes, device)
    found: dict[str, Any] = {}
    for way in ways.split(","):
        gc.collect()  # FSDP's modules hang in cycles
        before = allocated(device)
        model = build(layers, dim, hidden, device)
        weights = sum(each.numel() for each in model.parameters())
        if way != "whole":
            model = shard(way, model, device, world)
        optimizer = adamw(model, device)
        for index in range(3):
            if index == 2:
                state = allocated(device) - before
                if device == "cuda":
                    torch.cuda.reset_peak_memory_stats()
            with torch.autocast(device, torch.bfloat16, way == "whole"):
                loss = loss_of(model(x), target)
            forward = allocated(device) - before
            loss.backward()
            del loss
            optimizer.step()
            optimizer.zero_grad()
        peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
        found[way] = {
            "weights": weights,
            "state_bytes": state,
            "forward_bytes": forward,
            "peak_bytes": max(0, peak - before),
        }
        del model, optimizer
    return found


def by_tokens(
    instruments: Instruments,
    device: str,
    rank: int,
    world: int,
    layers: int,
    dim: int,
    hidden: int,
    sequences: str,
    tokens: int,
    ways: str,
) -> dict[str, Any]:
    """Forward and backward behind fewer and more tokens of a GPU, without an
    optimizer.

    Returns {tokens of a GPU: {way: samples in microseconds}}; the way `alone`
    is a model in the type of the products that sends nothing.
    """
    import torch

    from snippets.several_gpus.blocks import build, loss_of

    def model_of(way: str) -> Any:
        model = build(layers, dim, hidden, device)
        if way == "alone":
            return model.to(compute_dtype(device))
        return shard(way, model, device, world)

    def step(model: Any, x: Any, target: Any) -> None:
        loss_of(model(x), target).backward()
        for weight in model.parameters():
            weight.grad = None

    models = {way: model_of(way) for way in ways.split(",")}
    found = {}
    for batch in numbers(sequences):
        sizes: Sizes = (layers, dim, hidden, batch, tokens)
        x, target = batch_of(rank, 0, sizes, device)
        steps = {
            way: functools.partial(step, model, x, target)
            for way, model in models.items()
        }
        found[str(batch * tokens)] = times_us(steps, device)
    if device == "cuda":
        torch.cuda.synchronize()
    return found


STACK: Parameters = {"layers": 4, "dim": 4096, "hidden": 14336}
STEP: Parameters = {**STACK, "batch": 4, "tokens": 1024}


def experiments() -> Iterator[Experiment]:
    """Loops of the variants, and the probes of memory and tokens."""
    for variant in VARIANTS:
        yield Experiment(
            chapter="several_gpus",
            name=f"fsdp_{variant}",
            label="step",
            group="fsdp",
            first_steps=WARM_STEPS,
            gpus=2,
            parameters=STEP,
            loop=functools.partial(trained, variant=variant),
            work=training_work,
            time_limit_s=60,
        )
    yield Experiment(
        chapter="several_gpus",
        name="fsdp_memory",
        gpus=2,
        parameters={**STEP, "ways": "whole,per_block,root_only,kept"},
        trial={"ways": "whole,per_block"},
        probe=memory,
    )
    yield Experiment(
        chapter="several_gpus",
        name="fsdp_tokens",
        gpus=2,
        parameters={
            **STACK,
            "sequences": "1,2,4,8,16",
            "tokens": 512,
            "ways": "alone,per_block,root_only,kept",
        },
        trial={"sequences": "1,4"},
        probe=by_tokens,
    )


EXPERIMENTS = tuple(experiments())
