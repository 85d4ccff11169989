"""Functions of any trace: which GPU work communicates with other GPUs, what it does, and what hides it.

A kernel communicates if its arguments, or the operator or annotation around its launch, say so (`identity.py`). Its
name decides only where they are missing, such as kernels of inference engines. A name also does not tell an all-to-all
from a send: NCCL runs both as SendRecv.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Literal

from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.intervals import Interval, length_us, subtract, union_of

CollectiveKind = Literal[
    "allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "barrier", "send", "recv", "reduce", "gather",
    "scatter", "",
]  # fmt: skip
WAITING: tuple[CollectiveKind, ...] = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
"""Collectives that no rank can finish before all have started; a broadcast or a send lets some go on."""
_KINDS: tuple[CollectiveKind, ...] = (*WAITING, "broadcast", "send", "recv", "reduce", "gather", "scatter")
_LIBRARY = re.compile(
    r"nccl|rccl|mscclpp?|hccl|hcom_|oneccl|(?<![a-z])ccl(?:::|_)|xccl|uccl|msccl|nvshmem|rocshmem|multimem_|userbuffers|"
    r"deep_ep|(?:intra|inter)node(?:_ll)?::|quickreduce|quick_all_reduce|pplx|cross_device_reduce|allreduce_fusion|"
    r"symmetric_memory|symm_mem|mori::|mnnvl|moe_?a2a|moe_?all_?to_?all|(?<![a-z])a2a_(?:dispatch|combine|send|recv)",
    re.IGNORECASE,
)
_OPERATION = re.compile(
    r"(?<![a-z])all_?(?:reduce|gather|to_?all)\w*_kernel|All_?(?:[rR]educe|Gather|gather|[tT]o_?[aA]ll)\w*[kK]ernel|"
    r"(?:one|two)_?[sS]hot_?[aA]ll|cross_device_|(?<![A-Za-z])Ep(?:Dispatch|Combine)\w*Kernel"
)
_ON_ONE_GPU = re.compile(r"(?:warp|block|cta|thread|lane|wave)_?all_?reduce|^triton_[a-z]+_fused", re.IGNORECASE)


def is_collective(activity: GpuActivity) -> bool:
    """Whether a kernel communicates with other GPUs: by its arguments or operators, or by its name."""
    return activity.kind == "kernel" and (activity.collective is not None or communicates(activity.name))


@cache
def communicates(kernel_name: str) -> bool:
    """Whether a kernel of this name communicates: of NCCL, RCCL, oneCCL, symmetric memory, or an inference engine.

    `warpAllReduce` stays on one GPU, and Inductor names a pointwise kernel after the collective that follows.
    """
    if _ON_ONE_GPU.search(kernel_name):
        return False
    own_name = kernel_name.split("<", 1)[0]  # a template argument may be named after anything
    return _LIBRARY.search(kernel_name) is not None or _OPERATION.search(own_name) is not None


def is_peer_copy(activity: GpuActivity) -> bool:
    """Whether a memcpy is between two GPUs, as symmetric memory and pipelines in one process make them."""
    return activity.kind == "memcpy" and "PtoP" in activity.name


def collective_kind(kernel: GpuActivity) -> CollectiveKind:
    """What a kernel that communicates does; empty if the trace does not tell."""
    stated = kind_of(kernel.collective.name) if kernel.collective else ""
    return stated or kind_of(kernel.name[:200].split("<", 1)[0].split("(", 1)[0])


@cache
def kind_of(name: str) -> CollectiveKind:
    """`allreduce` from `_allreduce_base`, `nccl:all_reduce` or `ncclDevKernel_AllReduce_Sum_f16_RING_LL`.

    Empty for `ncclDevKernel_SendRecv`: an all-to-all runs it, too.
    """
    letters = "".join(filter(str.isalpha, name)).lower()
    return "" if "sendrecv" in letters else next((kind for kind in _KINDS if kind in letters), "")


def collectives(step: Step) -> tuple[GpuActivity, ...]:
    """The kernels of a step that communicate with other GPUs."""
    return tuple(kernel for kernel in step.kernels if is_collective(kernel))


def communication(step: Step) -> tuple[GpuActivity, ...]:
    """The kernels and copies of a step that communicate with other GPUs."""
    return tuple(each for each in step.activities if is_collective(each) or is_peer_copy(each))


def computing_times(activities: Iterable[GpuActivity]) -> dict[int, list[Interval]]:
    """GPU -> the times in which a kernel computes there, which hide communication."""
    kernels: dict[int, list[GpuActivity]] = defaultdict(list)
    for activity in activities:
        if activity.kind == "kernel" and not is_collective(activity):
            kernels[activity.device].append(activity)
    return {device: union_of(on_device) for device, on_device in kernels.items()}


Computing = Mapping[int, Sequence[Interval]]
"""The result of `computing_times`: of all kernels of the process, as those of another step hide communication, too."""


def exposed_collectives_us(step: Step, computing: Computing | None = None) -> float:
    """Time in which a collective runs and no other kernel of its GPU does, summed over the GPUs.

    `computing`: without it, only the step's own kernels hide.
    """
    return _exposed_us(step, collectives(step), computing)


def exposed_communication_us(step: Step, computing: Computing | None = None) -> float:
    """Time in which a GPU communicates, also by copies, and no kernel computes, summed over the GPUs."""
    return _exposed_us(step, communication(step), computing)


def _exposed_us(step: Step, communicating: Sequence[GpuActivity], computing: Computing | None) -> float:
    if not communicating:
        return 0.0
    hiding = computing_times(step.kernels) if computing is None else computing
    exposed = 0.0
    for device in {activity.device for activity in communicating}:
        times = union_of(activity for activity in communicating if activity.device == device)
        exposed += length_us(subtract(times, hiding.get(device, ())))
    return round(exposed, 3)
