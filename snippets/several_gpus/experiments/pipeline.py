"""A pipeline of stages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import Experiment, Instruments, Loop, Parameters
from snippets.several_gpus.experiments.clocks import (
    WARM_STEPS,
    numbers,
    times_us,
)
from snippets.several_gpus.experiments.sharded import training_work
from snippets.several_gpus.experiments.stacks import (
    Sizes,
    adamw,
    batch_of,
    batches_of,
    compute_dtype,
    reference_of,
)

if TYPE_CHECKING:
    from torch import Tensor


def stage_of(sizes: Sizes, rank: int, world: int, device: str) -> Any:
    """A rank's blocks of the stack, in the type of the products."""
    from torch import nn

    from snippets.several_gpus.blocks import build

    layers, dim, hidden, _, _ = sizes
    if layers % world:
        raise ValueError(
            f"{layers} layers do not divide by {world} GPUs; choose another number of layers or GPUs"
        )
    each = layers // world
    blocks = build(layers, dim, hidden, device).blocks
    stage = nn.Sequential(*blocks[rank * each : (rank + 1) * each])
    return stage.to(compute_dtype(device))


def steps_of(
    stage: Any, optimizer: Any, batches: Iterator[Any], count: int, world: int
) -> Generator[Tensor, None, None]:
    """A step for each batch, in so many micro-batches. The last stage yields
    its loss times the number of ranks, the others zero, so that the mean over
    the ranks is the loss."""
    from snippets.several_gpus.pipeline import step

    for x, target in batches:
        targets = target.chunk(count)
        loss = step(stage, x.chunk(count), functools.partial(part, targets))
        optimizer.step()
        optimizer.zero_grad()
        yield world * loss


def part(targets: Any, index: int, y: Tensor) -> Tensor:
    """The loss of one micro-batch."""
    from snippets.several_gpus.blocks import loss_of

    return loss_of(y, targets[index])


def pipelined(
    device: str,
    rank: int,
    world: int,
    layers: int,
    dim: int,
    hidden: int,
    batch: int,
    tokens: int,
    micro_batches: int,
) -> Loop:
    """Training of a stack, a stage on each rank."""
    sizes = (layers, dim, hidden, batch, tokens)
    stage = stage_of(sizes, rank, world, device)
    batches = batches_of(0, sizes, device)
    optimizer = adamw(stage, device)
    return Loop(
        losses=steps_of(stage, optimizer, batches, micro_batches, world),
        reference=reference_of(sizes, (0,), device),
        lead=1,
    )


def bubbles(
    instruments: Instruments,
    device: str,
    rank: int,
    world: int,
    layers: int,
    dim: int,
    hidden: int,
    batch: int,
    tokens: int,
    counts: str,
) -> dict[str, Any]:
    """Forward and backward of more and more micro-batches of `batch`
    sequences, without an optimizer.

    Returns {micro-batches: {"us": samples of the pipeline, "alone_us": of a
    stage that computes as much and waits for nobody}}.
    """
    sizes = (layers, dim, hidden, batch, tokens)
    stage = stage_of(sizes, rank, world, device)
    x, target = batch_of(0, 0, sizes, device)
    found = {}
    for count in numbers(counts):
        batches = [x] * count
        steps = {
            "us": piped(stage, batches, target),
            "alone_us": alone(stage, batches, target),
        }
        found[str(count)] = times_us(steps, device)
    return found


def piped(stage: Any, batches: list[Any], target: Tensor) -> Callable[[], None]:
    """A step of a pipeline whose gradients are thrown away."""
    from snippets.several_gpus.blocks import loss_of
    from snippets.several_gpus.pipeline import step

    def run() -> None:
        step(stage, batches, lambda _, y: loss_of(y, target))
        stage.zero_grad()

    return run


def alone(stage: Any, batches: list[Any], target: Tensor) -> Callable[[], None]:
    """The same forwards and backwards of one stage, without its neighbors."""
    from snippets.several_gpus.blocks import loss_of

    def run() -> None:
        inputs = [x.detach().requires_grad_() for x in batches]
        outputs = [loss_of(stage(x), target) / len(inputs) for x in inputs]
        for loss in outputs:
            loss.backward()
        stage.zero_grad()

    return run


STACK: Parameters = {
    "layers": 4,
    "dim": 4096,
    "hidden": 14336,
    "tokens": 1024,
}
MICRO_BATCHES = (2, 8)
"""Of the loops on two GPUs, from the same batch."""


def experiments() -> Iterator[Experiment]:
    """Loops on two GPUs and on four, and the probes of bubbles."""
    for gpus, count in (*((2, count) for count in MICRO_BATCHES), (4, 8)):
        yield Experiment(
            chapter="several_gpus",
            name=f"pipeline_{count}_on_{gpus}",
            label="step",
            group=f"pipeline_on_{gpus}",
            first_steps=WARM_STEPS,
            gpus=gpus,
            parameters={**STACK, "batch": 8},
            loop=functools.partial(pipelined, micro_batches=count),
            work=training_work,
            time_limit_s=60,
        )
    for gpus in (2, 4):
        yield Experiment(
            chapter="several_gpus",
            name=f"bubble_on_{gpus}",
            gpus=gpus,
            parameters={**STACK, "batch": 1, "counts": "1,2,4,8,16"},
            trial={"counts": "1,4"},
            probe=bubbles,
        )


EXPERIMENTS = tuple(experiments())
