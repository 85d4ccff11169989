"""The ladder of data parallel, and the probes of its options."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from snippets.lab.experiment import Experiment, Loop, Parameters
from snippets.several_gpus.experiments.clocks import WARM_STEPS
from snippets.several_gpus.experiments.ddp_options import ddp_options
from snippets.several_gpus.experiments.token_counts import token_counts
from snippets.several_gpus.experiments.training import (
    BATCHES,
    LEARNING_RATE,
    batches_of,
    checked,
    dtype_of,
    training,
)

RUNGS = (
    "alone",
    "each_parameter",
    "one_bucket",
    "buckets_in_backward",
    "ddp",
    "ddp_views",
)


@functools.cache
def exact_losses(
    world: int,
    is_together: bool,
    width: int,
    blocks: int,
    tokens: int,
    device: str,
    count: int,
) -> tuple[float, ...]:
    """The mean losses of `count` steps over all ranks' batches in float32 on
    one GPU: of one model, or of a model for each rank without communication.
    All rungs of a process share them.
    """
    import torch
    import torch.nn.functional as F

    from snippets.several_gpus.model import random_model

    dtype = dtype_of(device)
    batches = [
        batches_of(rank, width, tokens, device, dtype) for rank in range(world)
    ]
    groups = [batches] if is_together else [[each] for each in batches]
    means = [0.0] * count
    for group in groups:
        model = random_model(width, blocks, device, dtype).float()
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        for index in range(count):
            for each in group:
                x, y = each[index % BATCHES]
                loss = F.mse_loss(model(x.float()), y.float())
                (loss / len(group)).backward()
                means[index] += loss.item() / world
            optimizer.step()
            optimizer.zero_grad()
    return tuple(means)


def rung_loop(
    device: str,
    rank: int,
    world: int,
    variant: str,
    width: int,
    blocks: int,
    tokens: int,
) -> Loop:
    """A rung of the ladder, by name."""
    from snippets.several_gpus import parallel

    rung = getattr(parallel, variant)
    model, losses = training(device, rank, rung, width, blocks, tokens)
    if variant != "alone":
        losses = checked(model, losses, device)
    return Loop(
        losses=losses,
        reference=functools.partial(
            exact_losses,
            world,
            variant != "alone",
            width,
            blocks,
            tokens,
            device,
        ),
        lead=1,
    )


SHAPE: Parameters = {"width": 2048, "blocks": 16, "tokens": 4096}


def ladder() -> Iterator[Experiment]:
    """The rungs, timed interleaved."""
    for name in RUNGS:
        yield Experiment(
            chapter="several_gpus",
            name=name,
            gpus=2,
            label="step",
            group="ladder",
            first_steps=WARM_STEPS,
            parameters=SHAPE,
            loop=functools.partial(rung_loop, variant=name),
            time_limit_s=40,
        )


def option_probes() -> Iterator[Experiment]:
    """What tokens, buckets and accumulation change."""
    probes: dict[str, tuple[Any, Parameters, Parameters]] = {
        "tokens": (
            token_counts,
            {
                "width": 4096,
                "blocks": 4,
                "counts": "256,512,1024,2048,4096,8192",
            },
            {"counts": "256,2048"},
        ),
        "ddp_options": (
            ddp_options,
            {
                **SHAPE,
                "tokens": 2048,
                "caps": "1,25,100,250,2000",
                "first": 250,
                "batches": 4,
            },
            {"caps": "1,2000"},
        ),
    }
    for name, (probe, parameters, trial) in probes.items():
        yield Experiment(
            chapter="several_gpus",
            name=name,
            gpus=2,
            probe=probe,
            parameters=parameters,
            trial=trial,
        )


EXPERIMENTS = (*ladder(), *option_probes())
