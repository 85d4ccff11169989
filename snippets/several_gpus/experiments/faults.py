"""Faults of several GPUs, before and after."""

from __future__ import annotations

import functools
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

from snippets.lab.experiment import (
    Experiment,
    Instruments,
    Loop,
    Parameters,
    Work,
)
from snippets.several_gpus.experiments.clocks import WARM_STEPS

LABEL = "step"
LARGE: Parameters = {"width": 4096, "blocks": 4, "seq": 512, "batch": 8}
"""The GPU works longer on a step than the CPU launches it, and the gradients
take a good part of backward to reduce."""
LONG: Parameters = {**LARGE, "batch": 16}
"""A step that is longer than a late CPU is late."""
SMALL: Parameters = {"width": 2048, "blocks": 8, "seq": 512, "batch": 1}
"""A step that is shorter than a late CPU is late, and not much longer than
its launches."""
TINY: Parameters = {"width": 1024, "blocks": 16, "seq": 512, "batch": 1}
"""The GPU waits for the CPU."""
ONE_QUEUE: Mapping[str, str] = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def step_work(width: int, blocks: int, seq: int, batch: int) -> Work:
    """A rank's products, forward and backward; each weight, its gradient and AdamW's two moments read and written in
    bf16."""
    weights = 8 * blocks * width**2
    return Work(
        bytes=2 * 2 * 4 * weights, other_flops=6 * weights * seq * batch
    )


def loop_of(
    device: str,
    rank: int,
    world: int,
    variant: str,
    width: int,
    blocks: int,
    seq: int,
    batch: int,
) -> Loop:
    """A loop of faults.py, by name."""
    from snippets.several_gpus import faults

    sequences = world * batch
    if variant.startswith("uneven"):
        sequences += batch // 2
    start = getattr(faults, variant)
    return Loop(
        losses=start(device, rank, world, width, blocks, seq, batch),
        reference=lambda count: float32_losses(
            device, sequences, width, blocks, seq, count
        ),
        tolerance=3e-2,  # bf16 weights round AdamW's updates
        lead=1,
    )


@functools.cache
def float32_losses(
    device: str, sequences: int, width: int, blocks: int, seq: int, count: int
) -> list[float]:
    """The losses of all sequences on one GPU in float32, without a process
    group; kept, since a group's loops have the same."""
    from snippets.several_gpus import faults

    model = faults.make_model(device, width, blocks).float()
    optimizer = faults.make_optimizer(model)
    parts = faults.batches(device, 0, [sequences], seq, width)
    losses = []
    for _ in range(count):
        total = 0.0
        for x in next(parts).float().split(8):
            loss = faults.loss_of(model, x) * (len(x) / sequences)
            loss.backward()
            total += loss.item()
        faults.update(optimizer)
        losses.append(total)
    return losses


def profiled_ranks(
    instruments: Instruments,
    device: str,
    rank: int,
    world: int,
    width: int,
    blocks: int,
    seq: int,
    batch: int,
    rounds: int,
    steps: int,
) -> dict[str, Any]:
    """The time of a step without a profiler, with one on rank 0 alone, and with one on each rank, in this order.

    Returns {"none" | "rank 0" | "all": {"us": wall time per step of the slowest rank, by round, "nccl_us": for each
    rank that is profiled, the time of its communication kernels per step, by round}}.
    """
    from torch import distributed

    from snippets.several_gpus import faults

    losses = faults.late_after(device, rank, world, width, blocks, seq, batch)
    for _ in range(steps):
        next(losses)
    found: dict[str, Any] = {}
    for name, profiled in (
        ("none", ()),
        ("rank 0", (0,)),
        ("all", tuple(range(world))),
    ):
        times, nccl = [], []
        for _ in range(rounds):
            own = _round(instruments, losses, device, steps, rank in profiled)
            ranks: list[Any] = [None] * world
            distributed.all_gather_object(ranks, own)
            times.append(max(us for us, _ in ranks))
            nccl.append([ranks[one][1] for one in profiled])
        by_rank = {
            str(one): [each[index] for each in nccl]
            for index, one in enumerate(profiled)
        }
        found[name] = {"us": times, "nccl_us": by_rank}
    return found


def _round(
    instruments: Instruments,
    losses: Generator[Any, None, None],
    device: str,
    steps: int,
    is_profiled: bool,
) -> tuple[float, float]:
    """Wall time and time of communication kernels per step, in us."""
    from torch import cuda, distributed
    from torch.profiler import profile

    wait = cuda.synchronize if device == "cuda" else int
    with profile(acc_events=True) if is_profiled else nullcontext() as profiler:
        for _ in range(2):
            next(losses)
        wait()
        distributed.barrier()
        wait()
        begin = time.perf_counter_ns()
        for _ in range(steps):
            next(losses)
        wait()
        us = (time.perf_counter_ns() - begin) / 1e3 / steps
    nccl_us = 0.0
    if profiler is not None:
        kernels = [
            each
            for each in instruments.read_activities(profiler)
            if each.name.startswith("nccl")
        ]
        nccl_us = sum(each.duration_us for each in kernels) / (2 + steps)
    return round(us, 3), round(nccl_us, 3)


GROUPS: dict[str, tuple[Parameters, tuple[str, ...]]] = {
    "uneven": (LARGE, ("uneven_before", "uneven_after")),
    "late": (LONG, ("late_before", "late_after")),
    "small": (SMALL, ("late_small_before", "item_before", "item_after")),
    "ddp": (
        LARGE,
        (
            "one_bucket_before",
            "afterwards_before",
            "unused_before",
            "ddp_after",
        ),
    ),
    "fsdp": (LARGE, ("root_only_before", "fsdp_after")),
    "no_sync": (
        LARGE,
        ("no_sync_before", "no_sync_backward", "no_sync_after"),
    ),
}
"""Group -> sizes and loops, which are timed interleaved: `uneven_faults`."""


def loops() -> Iterator[Experiment]:
    """Each fault before and after; several faults may have one mended loop."""
    for group, (sizes, names) in GROUPS.items():
        for name in names:
            variant = name.replace("late_small", "late")
            yield _loop(name, variant, sizes, group=f"{group}_faults")
    yield _loop(
        "one_queue_before",
        "fsdp_after",
        LARGE,
        environment=ONE_QUEUE,
        time_limit_s=120,
    )


def _loop(
    name: str, variant: str, sizes: Parameters, **more: Any
) -> Experiment:
    return Experiment(
        chapter="several_gpus",
        name=name,
        gpus=2,
        label=LABEL,
        parameters=sizes,
        loop=functools.partial(loop_of, variant=variant),
        work=step_work,
        first_steps=WARM_STEPS,
        **{"time_limit_s": 40, **more},
    )


EXPERIMENTS: tuple[Experiment, ...] = (
    *loops(),
    Experiment(
        chapter="several_gpus",
        name="profiled_ranks",
        gpus=2,
        probe=profiled_ranks,
        parameters={**TINY, "rounds": 5, "steps": 20},
        trial={"rounds": 1, "steps": 3},
    ),
)
