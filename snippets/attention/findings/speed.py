"""Occupancy, and the GPU time, CPU time and memory of each variant at one shape."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import GpuActivity, Step, TraceError
from kinetoscope.trace.occupancy import estimate_percent, fits_by, footprint_of, kernel_percent, stocks_of
from kinetoscope.trace.units import format_value
from snippets.attention.findings.variants import EIGHT, ONE_KERNEL, VARIANTS, first_of
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotRecorded,
    Run,
    Source,
    at_least,
    between,
    claim,
    equals,
    matches,
)
from snippets.lab.finding.measure import paired_ratio, point_ratio
from snippets.lab.page import Columns, figure_cell, show as show, variants_table
from snippets.lab.recording.schema import Timing

NAIVE, FLASH, CUDNN = VARIANTS["naive"], VARIANTS["flash"], VARIANTS["cuDNN"]


def only_kernel(step: Step) -> GpuActivity:
    """The only kernel of a step. Raises `TraceError` if the step has none or several."""
    if len(step.kernels) != 1:
        raise TraceError(f"{step.name} has {len(step.kernels)} kernels instead of one")
    return step.kernels[0]


def occupancy(run: Run) -> Figure:
    """Computed occupancy of the one kernel of a run."""
    properties = run.whole.trace.device_properties
    return run.per_step(lambda step: kernel_percent(only_kernel(step), properties), "%")


def arithmetic(step: Step, properties: Mapping[str, int]) -> str:
    """Registers of a thread times threads of a block, and the number of such blocks that the registers allow."""
    registers, _, threads = footprint = footprint_of(only_kernel(step))
    fit = fits_by(footprint, stocks_of(properties))["registers"]
    return f"{registers} x {threads} = {registers * threads:,}, {fit} of them fit"


def estimated(step: Step) -> str:
    """The profiler's estimate for the one kernel of a step."""
    percent = only_kernel(step).occupancy_percent
    return "none" if percent is None else format_value(percent, "%")


def chapter_kernels(device: Device) -> list[tuple[GpuActivity, Mapping[str, int]]]:
    """Every kernel of the chapter's traces, once for each footprint and estimate, and the properties of its GPU."""
    kernels = {}
    for run in (device[f"attention/{name}"] for name in device.recorded_names("attention")):
        for kernel in run.whole.trace.activities if run.recording.has_trace else ():
            if kernel.kind == "kernel" and kernel.occupancy_percent is not None:
                footprint = (kernel.name, kernel.grid, kernel.block, kernel.registers, kernel.shared_memory_bytes)
                kernels[(*footprint, kernel.occupancy_percent)] = (kernel, run.whole.trace.device_properties)
    return list(kernels.values())


@claim(
    "A9",
    equals("pytorch_flash, 13.0 %; 255 x 128 = 32,640, 2 of them fit"),
    scope="this-gpu",
    source=Source("Part 3", "pytorch_flash::…, 13 %; 128 x 255 = 32,640, 2 blocks, 8 of 64 warps"),
)
def flash_occupancy(device: Device) -> Figure:
    """The flash backend runs one kernel of pytorch_flash, with an estimated occupancy of 13 %: a block takes 255 x 128
    registers, and two blocks fit."""
    properties = device[FLASH].whole.trace.device_properties

    def parts(step: Step) -> str:
        namespace = only_kernel(step).name.removeprefix("void ").partition("::")[0]
        return f"{namespace}, {estimated(step)}; {arithmetic(step, properties)}"

    return device[FLASH].per_step(parts)


@claim("O-A27", equals(1), scope="this-gpu")
def cudnn_blocks_that_fit(device: Device) -> Figure:
    """The registers of a multiprocessor suffice for one block of cuDNN's kernel, but not for two blocks."""
    properties = device[CUDNN].whole.trace.device_properties

    def fit(step: Step) -> int:
        return fits_by(footprint_of(only_kernel(step)), stocks_of(properties))["registers"]

    count, text = device[CUDNN].per_step(fit), device[CUDNN].per_step(lambda step: arithmetic(step, properties))
    return replace(count, display=text.text)


@claim("O-A28", matches(r"cuDNN [^,]*, Flex [^,]*"), scope="this-gpu")
def zero_estimates(device: Device) -> Figure:
    """The profiler estimates an occupancy of zero for the kernels of cuDNN and FlexAttention, which is impossible."""
    runs = {name: device[VARIANTS[name]] for name in ONE_KERNEL}
    zeros = [name for name, run in runs.items() if str(run.per_step(estimated).value).startswith("0 ")]
    computed = ", ".join(f"{name} {occupancy(runs[name]).text}" for name in zeros)
    return Figure(computed or "none", origin="computed from four traces")


@claim("O-A29", equals(100.0), scope="this-gpu")
def explained_estimates(device: Device) -> Figure:
    """A computation with the default limit of shared memory reproduces every occupancy that the profiler estimates in
    this chapter, including the zeros."""
    kernels = chapter_kernels(device)
    if not kernels:
        raise NotRecorded(f"no trace of attention on {device.name}; make record CHAPTER=attention")
    # The profiler rounds its estimate to a whole percent.
    errors = [abs(estimate_percent(*each) - (each[0].occupancy_percent or 0)) for each in kernels]
    fits = sum(error <= 0.5 + 1e-6 for error in errors)
    return Figure(100 * fits / len(kernels), display=f"{fits} of {len(kernels)}", origin="all traces here")


@claim("O-A24", matches(r"(\S+) is the fullest, \1 the slowest"), scope="timing")
def fullest_and_slowest(device: Device) -> Figure:
    """Of the four variants of attention with one kernel, the variant with the highest occupancy has the longest
    interleaved time."""
    runs = {name: device[VARIANTS[name]] for name in ONE_KERNEL}
    fullest = max(runs, key=lambda name: occupancy(runs[name]).number)
    slowest = max(runs, key=lambda name: runs[name].timing().median_us)
    text = f"{fullest} is the fullest, {slowest} the slowest"
    return Figure(text, origin="footprints in four traces, and interleaved times")


def footprints(device: Device) -> Html:
    """The resources of a kernel's block, how many blocks fit, and the occupancy: computed and by the profiler."""
    rows: list[Sequence[Cell]] = []
    for heading in ("naive", "math", *ONE_KERNEL):
        run, has_one = device[VARIANTS[heading]], heading in ONE_KERNEL
        kernel = only_kernel(run.step) if has_one else first_of(run.step, "aten::bmm")
        registers, shared_bytes, threads = footprint = footprint_of(kernel)
        fits, estimate = fits_by(footprint, stocks_of(run.trace.device_properties)), kernel.occupancy_percent
        computed = format_value(kernel_percent(kernel, run.trace.device_properties), "%")
        profiled = None if estimate is None else format_value(estimate, "%")
        name = heading if has_one else f"{heading}, first product"
        takes = (threads, registers, f"{shared_bytes:,}", fits["registers"], fits.get("shared memory"))
        rows.append([name, *takes, computed, profiled])
    head = ["", "threads", "registers of a thread", "bytes of shared memory", "blocks that fit by registers"]
    head += ["blocks that fit by shared memory", "occupancy", "profiler's estimate"]
    caption = "One block of each kernel: its resources, how many blocks fit on a multiprocessor, and the occupancy"
    return table(caption, head, rows)


def default_shared(device: Device) -> Figure:
    """The default limit of a block's shared memory."""
    properties = device[CUDNN].whole.trace.device_properties
    return Figure(int(properties["sharedMemPerBlock"]), "bytes", origin="device properties in the trace")


SERIES_GPU_US = {"in_place": 1955.0, "math": 7239.0, "efficient": 277.9, "flash": 146.8, "cudnn": 186.3}
"""Part 3's GPU time of a forward on its A100, by experiment."""
SERIES_CPU_US = {"efficient": 117.0, "flash": 138.0, "cudnn": 214.0}
"""Part 3's CPU time of a forward, under the profiler."""
SERIES_ORDER = "GPU: flash 146.8, cuDNN 186.3, efficient 277.9 µs; CPU: efficient 117, flash 138, cuDNN 214 µs"
NAMED = {heading: VARIANTS[heading] for heading in ("efficient", "flash", "cuDNN")}


def fastest_first(device: Device, variants: Mapping[str, str], kind: str = "interleaved") -> Figure:
    """Headings by the median of a timing, displayed with the times; `kind` is a field of `Timings`."""
    times_us = {heading: device[experiment].timing(kind).median_us for heading, experiment in variants.items()}
    names = sorted(times_us, key=times_us.__getitem__)
    text = ", ".join(f"{name} {format_value(times_us[name], 'us')}" for name in names)
    return Figure(", ".join(names), origin=f"{kind} medians", display=text)


def over_a100(run: Run) -> Figure:
    """The time of the series' A100 over this GPU's interleaved time."""
    timing, series_us = run.timing(), SERIES_GPU_US[run.recording.experiment]
    fast_us, slow_us = timing.spread_us
    spread = (series_us / slow_us, series_us / fast_us)
    return Figure(series_us / timing.median_us, "x", spread, "the series' time over our interleaved time")


@claim("A4", between(3.33, 4.07), scope="timing", source=Source("Part 3", "7.239 against 1.955 ms, 3.7x"))
def math_over_in_place(device: Device) -> Figure:
    """The math backend takes 3.7 times as long as naive attention masked in place, within 10 %.

    The math backend multiplies in float32. By the data sheets, this GPU multiplies float32 over three times as fast as
    an A100. The in-place variant mostly moves scores, and this GPU's memory is little more than twice as fast as the
    A100's memory. So math became faster by a larger factor.
    """
    return paired_ratio(device["attention/math"], device["attention/in_place"])


@claim(
    "A11",
    equals("flash, cuDNN, efficient"),
    scope="timing",
    source=Source("Part 3", SERIES_ORDER),
    is_advice=True,
)
def backends_in_order(device: Device) -> Figure:
    """By GPU time, flash is the fastest backend, cuDNN the second and efficient the third.

    On this GPU, cuDNN runs a kernel written for Hopper, as the kernel's name says (sm90, wgmma). PyTorch's flash
    backend is FlashAttention 2, and the name of efficient's kernel contains sm80. So flash and efficient were written
    for the A100's generation.
    """
    return fastest_first(device, NAMED)


@claim("O-A30", equals("efficient, flash, cuDNN"), scope="timing")
def backends_on_the_cpu(device: Device) -> Figure:
    """By CPU time, efficient is the fastest backend, flash the second and cuDNN the third, as in the blog series."""
    return fastest_first(device, NAMED, "enqueue")


@claim("O-A31", between(1.8, 2.2), scope="timing")
def cudnn_gain_over_flash(device: Device) -> Figure:
    """From the blog series' A100 to this GPU, the speedup of cuDNN is about twice the speedup of flash."""
    cudnn, flash = (over_a100(device[experiment]).number for experiment in (CUDNN, FLASH))
    return Figure(cudnn / flash, "x", origin="the series' times over interleaved medians, cuDNN's over flash's")


@claim("O-A32", equals("cuDNN, Flex, flash, efficient, compiled, in place, naive, math"), scope="timing")
def eight_in_order(device: Device) -> Figure:
    """By interleaved GPU time, the variants of attention come in the order cuDNN, Flex, flash, efficient,
    compiled, in place, naive, math."""
    return fastest_first(device, EIGHT)


@claim("O-A33", at_least(1.25), scope="timing")
def naming_cudnn(device: Device) -> Figure:
    """A call of SDPA that names cuDNN keeps the CPU busy at least 25 % longer than a call that lets PyTorch pick
    cuDNN."""
    return paired_ratio(device[CUDNN], device["attention/auto"], "enqueue")


@claim("O-A34", between(1, 1.1), scope="this-gpu")
def fused_peak(device: Device) -> Figure:
    """Every fused variant of attention has a peak memory of its result and at most 10 % more."""
    points = [device[VARIANTS[heading]].point for heading in ONE_KERNEL]
    ratios = [4 * point.peak_memory_bytes / point.bytes for point in points]  # a quarter of the bytes is the result
    return Figure(max(ratios), "x", (min(ratios), max(ratios)), "peak memory over the bytes of the result")


def _steady(of: Callable[[Timing], Cell]) -> Callable[[Run], Cell]:
    """A cell of the steady timing, empty if a recording has none."""
    return lambda run: None if run.timings.steady is None else of(run.timings.steady)


STEADY: Columns = {
    "GPU, steady": _steady(lambda timing: format_value(timing.median_us, "us")),
    "steady clock": _steady(lambda timing: f"{timing.clock_mhz:,.0f} MHz" if timing.clock_mhz else None),
}


def series_cell(run: Run, times_us: Mapping[str, float]) -> Cell:
    """The series' time of an experiment, if it gave one."""
    time_us = times_us.get(run.recording.experiment)
    return None if time_us is None else format_value(time_us, "us")


def gpu_times(device: Device) -> Html:
    """Each variant's forward on the GPU, the series' A100 for comparison, and its peak memory."""
    columns: Columns = {
        "series, on an A100": lambda run: series_cell(run, SERIES_GPU_US),
        "GPU, interleaved": "interleaved_us",
        "speedup over the A100": lambda run: over_a100(run).text if run.recording.experiment in SERIES_GPU_US else None,
        **STEADY,
        "from Python": "from_python_us",
        "peak memory": "peak_memory_bytes",
    }
    caption = "One forward of each variant: GPU times, time from Python, peak memory"
    return variants_table(device, VARIANTS, caption, columns=columns)


def cpu_times(device: Device) -> Html:
    """The CPU time of a forward: under the profiler, as in the series, and without it."""
    columns: Columns = {
        "series, with the profiler": lambda run: series_cell(run, SERIES_CPU_US),
        "with the profiler": "cpu_us",
        "without the profiler": lambda run: figure_cell(run.time("enqueue")),
    }
    return variants_table(device, VARIANTS, "CPU time of one forward", columns=columns)


FIGURES: Mapping[str, Measure] = {
    "occupancy_cudnn": lambda device: occupancy(device[CUDNN]),
    "threads_cudnn": lambda device: device[CUDNN].per_step(lambda step: footprint_of(only_kernel(step)).threads),
    "time_naive_to_cudnn": lambda device: paired_ratio(device[NAIVE], device[CUDNN]),
    "time_cudnn_gain": lambda device: over_a100(device[CUDNN]),
    "time_flash_gain": lambda device: over_a100(device[FLASH]),
    "time_peak_ratio": lambda device: point_ratio(device[NAIVE], device[FLASH], "peak_memory_bytes"),
}
