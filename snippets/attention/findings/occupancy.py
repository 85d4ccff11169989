"""How full the GPU is: what a kernel takes of a multiprocessor, and why the profiler's estimate may be zero."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from snippets.attention.findings.measures import (
    ONE_KERNEL,
    WAYS,
    Measure,
    amount,
    in_steps,
    one_of,
    own_claim,
    series_claim,
    timings,
)
from snippets.attention.findings.written_out import of_operator
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure, format_value
from snippets.lab.html import Cell, Html, table
from snippets.lab.recording.device import recorded_names, shown_device
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import NotRecorded
from snippets.lab.trace.events import GpuActivity, Step, Trace, TraceError
from snippets.lab.trace.queries import middle_step

FLASH, CUDNN = WAYS["flash"], WAYS["cuDNN"]
WARP, REGISTER_UNIT, PARTITIONS = 32, 8, 4
"""Threads of a warp; registers of a thread come in eights; each quarter of a multiprocessor has its own registers."""
SHARED_UNIT_BYTES, RESERVED_SHARED_BYTES = 128, 1024
"""Shared memory of a block comes in units, and CUDA takes a part for itself."""
MOST_BLOCKS = 32
"""Blocks of a multiprocessor at a time on GPUs for data centers from compute capability 8.0 on; others hold fewer."""
SHOWN = {
    "naive": "naive, first product",
    "math": "math, first product",
    "efficient": "efficient",
    "flash": "flash",
    "cuDNN": "cuDNN",
    "Flex": "Flex",
}
"""Way -> what the table of footprints calls its kernel."""


class Residents(NamedTuple):
    """How many blocks of a kernel fit on a multiprocessor at a time, by each of its stocks."""

    registers: int
    shared_memory: int | None
    """None for a kernel that takes none."""
    threads: int
    most: int = MOST_BLOCKS

    @property
    def blocks(self) -> int:
        """By the scarcest."""
        return min(one for one in self if one is not None)


def residents(kernel: GpuActivity, stocks: Mapping[str, int]) -> Residents:
    """The blocks of a kernel that fit on a multiprocessor; `stocks` are the trace's device properties.

    Raises `TraceError` for a kernel whose footprint is not in the trace.
    """
    if kernel.block is None or kernel.registers is None or kernel.shared_memory_bytes is None:
        raise TraceError(f"the trace does not tell what {kernel.name} takes of a multiprocessor")
    warps = math.ceil(math.prod(kernel.block) / WARP)
    of_warp = math.ceil(kernel.registers / REGISTER_UNIT) * REGISTER_UNIT * WARP
    by_registers = stocks["regsPerMultiprocessor"] // PARTITIONS // of_warp * PARTITIONS // warps
    shared = math.ceil(kernel.shared_memory_bytes / SHARED_UNIT_BYTES) * SHARED_UNIT_BYTES + RESERVED_SHARED_BYTES
    return Residents(
        by_registers,
        stocks["sharedMemPerMultiprocessor"] // shared if kernel.shared_memory_bytes else None,
        stocks["maxThreadsPerMultiprocessor"] // (WARP * warps),
    )


def occupancy_percent(kernel: GpuActivity, stocks: Mapping[str, int]) -> float:
    """Share of a multiprocessor's thread slots that a kernel's blocks fill, as many as fit."""
    threads = math.prod(kernel.block or (0,))
    return 100 * residents(kernel, stocks).blocks * threads / stocks["maxThreadsPerMultiprocessor"]


def estimate_percent(kernel: GpuActivity, stocks: Mapping[str, int]) -> float:
    """What the profiler estimates: no blocks at all where one takes more shared memory than it gets without asking.

    Else as many as fit, but no more than the grid has for each multiprocessor.
    """
    threads, blocks = math.prod(kernel.block or (0,)), math.prod(kernel.grid or (0,)) / stocks["numSms"]
    is_over = (kernel.shared_memory_bytes or 0) > stocks["sharedMemPerBlock"]
    fit = 0 if is_over else residents(kernel, stocks).blocks
    return 100 * min(fit, blocks) * threads / stocks["maxThreadsPerMultiprocessor"]


def _only(step: Step) -> GpuActivity:
    if len(step.kernels) != 1:
        raise TraceError(f"{step.name} has {len(step.kernels)} kernels instead of one")
    return step.kernels[0]


def _occupancy(name: str) -> Measure:
    """A measure: computed occupancy of the one kernel of a way."""
    experiment = WAYS[name]
    return amount(experiment, "%", lambda traced, step: occupancy_percent(_only(step), traced.device_properties))


def _arithmetic(traced: Trace, step: Step) -> str:
    """Registers of a thread times threads of a block, and how many such blocks one stock of registers holds."""
    kernel, stocks = _only(step), traced.device_properties
    fit, threads = residents(kernel, stocks), math.prod(kernel.block or (0,))
    return f"{kernel.registers} x {threads} = {(kernel.registers or 0) * threads:,}, {fit.registers} of them fit"


def _estimated(_: Trace, step: Step) -> str:
    percent = _only(step).occupancy_percent
    return "none" if percent is None else format_value(percent, "%")


def _flash_occupancy(traced: Trace, step: Step) -> str:
    return f"{kernel_family(step)}, {_estimated(traced, step)}; {_arithmetic(traced, step)}"


def kernel_family(step: Step) -> str:
    """The namespace of a step's only kernel, such as `pytorch_flash`; its whole name where it has none."""
    return _only(step).name.removeprefix("void ").partition("::")[0]


def _zero_estimates(device: str) -> Figure:
    """The ways with one kernel of which the profiler estimates an occupancy of zero, with the one computed."""
    found = []
    for name in ONE_KERNEL:
        estimated = in_steps(WAYS[name], _estimated)(device)
        if str(estimated.value).startswith("0 "):
            found.append(f"{name} {_occupancy(name)(device).text}")
    return Figure(", ".join(found) or "none", origin="computed from four traces")


def chapter_kernels(device: str) -> list[tuple[GpuActivity, Mapping[str, int]]]:
    """Every kernel of the chapter's traces, once for each footprint and estimate, and the stocks of its GPU."""
    found = {}
    for name in recorded_names(device, "attention"):
        if not load_recording(f"attention/{name}", device).has_trace:
            continue
        traced = load_trace(f"attention/{name}", device)
        for one in traced.activities:
            if one.kind == "kernel" and one.occupancy_percent is not None:
                key = (one.name, one.grid, one.block, one.registers, one.shared_memory_bytes, one.occupancy_percent)
                found[key] = (one, traced.device_properties)
    return list(found.values())


def _explained(device: str) -> Figure:
    """Of how many kernels the profiler's estimate is what `estimate_percent` says, to the percent it is rounded to."""
    kernels = chapter_kernels(device)
    if not kernels:
        raise NotRecorded(f"no trace of attention on {device}; make record CHAPTER=attention")
    fits = sum(
        abs(estimate_percent(one, stocks) - (one.occupancy_percent or 0)) <= 0.5 + 1e-6 for one, stocks in kernels
    )
    return Figure(100 * fits / len(kernels), said=f"{fits} of {len(kernels)}", origin="all traces here")


def _fullest(device: str) -> Figure:
    """The way with one kernel that has the highest occupancy, and the one that takes longest."""
    full = max(ONE_KERNEL, key=lambda name: float(_occupancy(name)(device).value))
    slow = max(ONE_KERNEL, key=lambda name: timings(WAYS[name], device).warm.median_us)
    return Figure(f"{full} is the fullest, {slow} the slowest", origin="footprints in four traces, and warm times")


CLAIMS: tuple[Claim, ...] = (
    series_claim(
        "A9",
        "The flash backend is one kernel of pytorch_flash, with an estimated occupancy of 13 %: its blocks take "
        "255 x 128 registers, and two of them fit.",
        in_steps(FLASH, _flash_occupancy),
        one_of("pytorch_flash, 13.0 %; 255 x 128 = 32,640, 2 of them fit"),
        "pytorch_flash::…, 13 %; 128 x 255 = 32,640, 2 blocks, 8 of 64 warps",
        scope="this-gpu",
    ),
    own_claim(
        "O-A27",
        "As on the A100, one block of cuDNN's kernel takes so many registers that no second one fits beside it.",
        in_steps(CUDNN, _arithmetic),
        lambda shown: str(shown.value).endswith(", 1 of them fit"),
        scope="this-gpu",
    ),
    own_claim(
        "O-A28",
        "The profiler estimates an occupancy of zero for cuDNN's kernel and for Flex's, which cannot be.",
        _zero_estimates,
        lambda shown: [part.split()[0] for part in str(shown.value).split(", ")] == ["cuDNN", "Flex"],
        scope="this-gpu",
    ),
    own_claim(
        "O-A29",
        "Computed with the limit that a block has without asking for more shared memory, every estimate of the "
        "profiler in this chapter comes out, the zeros too.",
        _explained,
        one_of(100.0),
        scope="this-gpu",
    ),
    own_claim(
        "O-A24",
        "Of the ways with one kernel, the one with the highest occupancy is the slowest.",
        _fullest,
        lambda shown: len({part.split(" ")[0] for part in str(shown.value).split(", ")}) == 1,
        scope="timing",
    ),
)


def footprints() -> Html:
    """What one block of a kernel takes, how many fit, and the occupancy: computed, and the profiler's estimate."""
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for name, heading in SHOWN.items():
        traced = load_trace(WAYS[name], device)
        step, stocks = middle_step(traced), traced.device_properties
        kernel = _only(step) if name in ONE_KERNEL else of_operator(traced, step, "aten::bmm")
        fit = residents(kernel, stocks)
        rows.append(
            [
                heading,
                math.prod(kernel.block or (0,)),
                kernel.registers,
                f"{kernel.shared_memory_bytes or 0:,}",
                fit.registers,
                fit.shared_memory,
                format_value(occupancy_percent(kernel, stocks), "%"),
                None if kernel.occupancy_percent is None else format_value(kernel.occupancy_percent, "%"),
            ]
        )
    head = ["", "threads", "registers", "shared bytes", "fit by registers", "by shared memory", "occupancy", "estimate"]
    return table("What a block takes of a multiprocessor, and how many fit", head, rows)


def _default_shared(device: str) -> Figure:
    stocks = load_trace(CUDNN, device).device_properties
    return Figure(int(stocks["sharedMemPerBlock"]), "bytes", origin="device properties in the trace")


FIGURES: Mapping[str, Measure] = {
    "occupancy_flash": _occupancy("flash"),
    "occupancy_cudnn": _occupancy("cuDNN"),
    "default_shared": _default_shared,
}
"""The numbers of this part, `#!fig attention.<name>`."""
