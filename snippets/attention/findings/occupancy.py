"""How full the GPU is: what a kernel takes of a multiprocessor, and why the profiler's estimate may be zero."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from snippets.attention.findings.variants import ONE_KERNEL, VARIANTS, first_of
from snippets.lab.finding import Device, Figure, Measure, NotRecorded, Run, Source, claim, equals, matches
from snippets.lab.finding.figure import format_value
from snippets.lab.html import Cell, Html, table
from snippets.lab.page import show as show
from snippets.lab.trace.events import GpuActivity, Step, TraceError

FLASH, CUDNN = VARIANTS["flash"], VARIANTS["cuDNN"]
WARP, REGISTER_UNIT, PARTITIONS = 32, 8, 4
"""Threads of a warp; registers of a thread come in eights; each quarter of a multiprocessor has its own registers."""
SHARED_UNIT_BYTES, RESERVED_SHARED_BYTES = 128, 1024
"""Shared memory of a block comes in units, and CUDA takes a part for itself."""
MAX_BLOCKS = 32
"""Blocks of a multiprocessor at a time on GPUs for data centers from compute capability 8.0 on; others hold fewer."""
Stocks = Mapping[str, int]
"""What a multiprocessor has: the device properties of a trace."""


class Residents(NamedTuple):
    """How many blocks of a kernel fit on a multiprocessor at a time, by each of its stocks."""

    registers: int
    shared_memory: int | None
    """None for a kernel that takes none."""
    threads: int
    limit: int = MAX_BLOCKS

    @property
    def blocks(self) -> int:
        """By the scarcest."""
        return min(count for count in self if count is not None)


def residents(kernel: GpuActivity, stocks: Stocks) -> Residents:
    """The blocks of a kernel that fit on a multiprocessor.

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


def occupancy_percent(kernel: GpuActivity, stocks: Stocks) -> float:
    """Share of a multiprocessor's thread slots that a kernel's blocks fill, as many as fit."""
    return 100 * residents(kernel, stocks).blocks * _threads(kernel) / stocks["maxThreadsPerMultiprocessor"]


def estimate_percent(kernel: GpuActivity, stocks: Stocks) -> float:
    """What the profiler estimates: no blocks at all where one takes more shared memory than it gets without asking.

    Else as many as fit, but no more than the grid has for each multiprocessor.
    """
    available = math.prod(kernel.grid or (0,)) / stocks["numSms"]
    is_over = (kernel.shared_memory_bytes or 0) > stocks["sharedMemPerBlock"]
    fit = 0 if is_over else residents(kernel, stocks).blocks
    return 100 * min(fit, available) * _threads(kernel) / stocks["maxThreadsPerMultiprocessor"]


def _threads(kernel: GpuActivity) -> int:
    return math.prod(kernel.block or (0,))


def only_kernel(step: Step) -> GpuActivity:
    """The kernel of a step that has one. Raises `TraceError` for any other."""
    if len(step.kernels) != 1:
        raise TraceError(f"{step.name} has {len(step.kernels)} kernels instead of one")
    return step.kernels[0]


def occupancy(run: Run) -> Figure:
    """Computed occupancy of the one kernel of a run."""
    stocks = run.trace.device_properties
    return run.per_step(lambda step: occupancy_percent(only_kernel(step), stocks), "%")


def arithmetic(step: Step, stocks: Stocks) -> str:
    """Registers of a thread times threads of a block, and how many such blocks one stock of registers holds."""
    kernel = only_kernel(step)
    fit, threads = residents(kernel, stocks), _threads(kernel)
    return f"{kernel.registers} x {threads} = {(kernel.registers or 0) * threads:,}, {fit.registers} of them fit"


def estimated(step: Step) -> str:
    """The profiler's estimate for the one kernel of a step."""
    percent = only_kernel(step).occupancy_percent
    return "none" if percent is None else format_value(percent, "%")


def chapter_kernels(device: Device) -> list[tuple[GpuActivity, Stocks]]:
    """Every kernel of the chapter's traces, once for each footprint and estimate, and the stocks of its GPU."""
    kernels = {}
    for name in device.recorded_names("attention"):
        run = device[f"attention/{name}"]
        for kernel in run.trace.activities if run.recording.has_trace else ():
            if kernel.kind == "kernel" and kernel.occupancy_percent is not None:
                footprint = (kernel.name, kernel.grid, kernel.block, kernel.registers, kernel.shared_memory_bytes)
                kernels[(*footprint, kernel.occupancy_percent)] = (kernel, run.trace.device_properties)
    return list(kernels.values())


@claim(
    "A9",
    equals("pytorch_flash, 13.0 %; 255 x 128 = 32,640, 2 of them fit"),
    scope="this-gpu",
    source=Source("Part 3", "pytorch_flash::…, 13 %; 128 x 255 = 32,640, 2 blocks, 8 of 64 warps"),
)
def flash_occupancy(device: Device) -> Figure:
    """The flash backend is one kernel of pytorch_flash, with an estimated occupancy of 13 %: its blocks take
    255 x 128 registers, and two of them fit."""
    stocks = device[FLASH].trace.device_properties

    def parts(step: Step) -> str:
        namespace = only_kernel(step).name.removeprefix("void ").partition("::")[0]
        return f"{namespace}, {estimated(step)}; {arithmetic(step, stocks)}"

    return device[FLASH].per_step(parts)


@claim("O-A27", matches(r".*, 1 of them fit"), scope="this-gpu")
def cudnn_registers(device: Device) -> Figure:
    """As on the A100, one block of cuDNN's kernel takes so many registers that no second one fits beside it."""
    stocks = device[CUDNN].trace.device_properties
    return device[CUDNN].per_step(lambda step: arithmetic(step, stocks))


@claim("O-A28", matches(r"cuDNN [^,]*, Flex [^,]*"), scope="this-gpu")
def zero_estimates(device: Device) -> Figure:
    """The profiler estimates an occupancy of zero for cuDNN's kernel and for Flex's, which cannot be."""
    runs = {name: device[VARIANTS[name]] for name in ONE_KERNEL}
    zeros = [name for name, run in runs.items() if str(run.per_step(estimated).value).startswith("0 ")]
    computed = ", ".join(f"{name} {occupancy(runs[name]).text}" for name in zeros)
    return Figure(computed or "none", origin="computed from four traces")


@claim("O-A29", equals(100.0), scope="this-gpu")
def explained_estimates(device: Device) -> Figure:
    """Computed with the limit that a block has without asking for more shared memory, every estimate of the profiler in
    this chapter comes out, the zeros too."""
    kernels = chapter_kernels(device)
    if not kernels:
        raise NotRecorded(f"no trace of attention on {device.name}; make record CHAPTER=attention")
    # The profiler rounds its estimate to a whole percent.
    errors = [abs(estimate_percent(kernel, stocks) - (kernel.occupancy_percent or 0)) for kernel, stocks in kernels]
    fits = sum(error <= 0.5 + 1e-6 for error in errors)
    return Figure(100 * fits / len(kernels), display=f"{fits} of {len(kernels)}", origin="all traces here")


@claim("O-A24", matches(r"(\S+) is the fullest, \1 the slowest"), scope="timing")
def fullest_and_slowest(device: Device) -> Figure:
    """Of the ways with one kernel, the one with the highest occupancy is the slowest."""
    runs = {name: device[VARIANTS[name]] for name in ONE_KERNEL}
    fullest = max(runs, key=lambda name: occupancy(runs[name]).number)
    slowest = max(runs, key=lambda name: runs[name].timing().median_us)
    text = f"{fullest} is the fullest, {slowest} the slowest"
    return Figure(text, origin="footprints in four traces, and interleaved times")


def footprints(device: Device) -> Html:
    """What one block of a kernel takes, how many fit, and the occupancy: computed, and the profiler's estimate."""
    rows: list[Sequence[Cell]] = []
    for heading in ("naive", "math", *ONE_KERNEL):
        run, has_one = device[VARIANTS[heading]], heading in ONE_KERNEL
        kernel = only_kernel(run.step) if has_one else first_of(run.step, "aten::bmm")
        fit, estimate = residents(kernel, run.trace.device_properties), kernel.occupancy_percent
        takes = (_threads(kernel), kernel.registers, f"{kernel.shared_memory_bytes or 0:,}")
        computed = format_value(occupancy_percent(kernel, run.trace.device_properties), "%")
        profiled = None if estimate is None else format_value(estimate, "%")
        name = heading if has_one else f"{heading}, first product"
        rows.append([name, *takes, fit.registers, fit.shared_memory, computed, profiled])
    head = ["", "threads", "registers", "shared bytes", "fit by registers", "by shared memory", "occupancy", "estimate"]
    return table("What a block takes of a multiprocessor, and how many fit", head, rows)


def default_shared(device: Device) -> Figure:
    """Shared memory of a block that does not ask for more."""
    stocks = device[CUDNN].trace.device_properties
    return Figure(int(stocks["sharedMemPerBlock"]), "bytes", origin="device properties in the trace")


FIGURES: Mapping[str, Measure] = {
    "occupancy_flash": lambda device: occupancy(device[FLASH]),
    "occupancy_cudnn": lambda device: occupancy(device[CUDNN]),
    "default_shared": default_shared,
}
