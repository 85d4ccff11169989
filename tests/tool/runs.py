"""Traces written by hand for reports on several: steps of kernels, ranks with collectives."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import msgspec

from kinetoscope.trace.events import Collective, GpuActivity, Step, Trace

GEMM, ADD = "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT", "triton_poi_fused_add_0"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
Kernel = tuple[str, float, float]  # name, start within the step, duration

STEP_US = 1000.0


def trace_of(
    steps: Sequence[Iterable[Kernel]], *, rank: int | None = None, world_size: int | None = None, group: str = ""
) -> Trace:
    """Steps of 1,000 us one after the other; a group's kernels named nccl are allreduces of its `world_size`."""
    made = []
    for number, kernels in enumerate(steps):
        start = number * STEP_US
        activities = tuple(
            GpuActivity(
                name,
                float(start + at),
                float(us),
                "memcpy" if name.startswith("Memcpy") else "kernel",
                0,
                7,
                grid=(4, 2, 1),
                collective=Collective("allreduce", group_size=world_size, group=group)
                if group and name.startswith("nccl")
                else None,
            )
            for name, at, us in kernels
        )
        made.append(Step(number, f"ProfilerStep#{number}", start, start + STEP_US, (), (), activities))
    every = tuple(activity for step in made for activity in step.activities)
    return Trace("NVIDIA Sample", {}, (), (), every, tuple(made), (), (), (), rank=rank, world_size=world_size)


def with_steps(trace: Trace, steps: Iterable[Step]) -> Trace:
    return msgspec.structs.replace(trace, steps=tuple(steps))


def halves(trace: Trace, dice: random.Random) -> tuple[Trace, Trace]:
    """The steps of a trace dealt out at random."""
    steps = dice.sample(trace.steps, len(trace.steps))
    middle = len(steps) // 2
    return with_steps(trace, steps[:middle]), with_steps(trace, steps[middle:])


def slowed(trace: Trace, factor: float, name: str = "") -> Trace:
    """All GPU work, or that whose name contains `name`, takes longer; nothing is moved, as its times are kept apart."""

    def change(step: Step) -> Step:
        begin = step.activities[0].start_us if step.activities else 0.0
        activities = tuple(
            msgspec.structs.replace(
                each,
                start_us=round(begin + (each.start_us - begin) * factor, 3),
                duration_us=round(each.duration_us * (factor if name in each.name else 1.0), 3),
            )
            for each in step.activities
        )
        return msgspec.structs.replace(step, activities=activities)

    return with_steps(trace, map(change, trace.steps))
