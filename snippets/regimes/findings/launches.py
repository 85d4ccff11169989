"""What launch overhead is and what removes it."""

import math
from collections.abc import Mapping
from functools import partial

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import busy_us, extent_us, kernel_time_us
from snippets.lab.finding import (
    Device,
    Figure,
    Run,
    Source,
    at_least,
    at_most,
    between,
    claim,
    derived,
    equals,
    format_value,
    paired_ratio,
    percent_saved,
    quantity,
    share_of_ceiling,
    unpaired_ratio,
)
from snippets.lab.page import figure_cell, race_bars, show as show, timeline
from snippets.lab.recording.ceilings import COPY
from snippets.regimes.findings.crossovers import idle

ARTICLE = "The Profiling Deep-Dive on nn.Linear Fusion"
SIZES: Mapping[str, int] = {"small": 64, "middle": 1024, "large": 8192}
"""Name -> tokens of the stack of eight blocks."""
REMEDIES: Mapping[str, str] = {
    "eager": "eager",
    "torch.compile": "compiled",
    "fused kernel": "fused",
    "CUDA graph": "graphed",
    "fused, CUDA graph": "fused_graphed",
    "reduce-overhead": "reduce_overhead",
}
"""Heading -> variant."""
BLOCKS = 8


def timed(device: Device, variant: str, size: str) -> Run:
    """A variant of the stack of eight blocks, timed."""
    return device[f"regimes/launch_{variant}[tokens={SIZES[size]}]"]


def launches(device: Device, variant: str, size: str) -> Figure:
    """Calls of a step that put work on the GPU, in its trace; `small` and `large` have a trace."""
    return quantity(device[f"regimes/{size}_{variant}"], "gpu_calls_per_step")


def launches_saved(device: Device, variant: str, size: str = "small") -> Figure:
    """The percentage of eager's launches that a variant does without."""
    eager, other = (launches(device, name, size) for name in ("eager", variant))
    return derived(100 * (1 - other.number / eager.number), eager, other, unit="%")


def wall_saved(device: Device, variant: str, size: str) -> Figure:
    """The percentage of eager's time from Python that a variant saves; below zero if it is slower."""
    return percent_saved(paired_ratio(timed(device, variant, size), timed(device, "eager", size), "from_python"))


def fused_of_eager(device: Device, kind: str, size: str = "small") -> Figure:
    """The time of the step with the fused kernel / eager's."""
    return paired_ratio(timed(device, "fused", size), timed(device, "eager", size), kind)


def compiled_gelu(device: Device) -> Figure:
    """The time of a compiled step's pointwise kernels / eager's, in the traces at 8,192 tokens."""

    def pointwise_us(step: Step) -> float:
        return kernel_time_us(kernel for kernel in step.kernels if "gelu" in kernel.name.lower())

    runs = (device[f"regimes/large_{variant}"] for variant in ("compiled", "eager"))
    compiled, eager = (run.per_step(pointwise_us, "us") for run in runs)
    return unpaired_ratio(compiled, eager)


def gap_in_graph(device: Device) -> Figure:
    """The mean time between one kernel and the next in the trace of the CUDA graph, without the copy before it."""

    def mean_gap_us(step: Step) -> float:
        return (extent_us(step.kernels) - busy_us(step.kernels)) / max(1, len(step.kernels) - 1)

    return device["regimes/small_graphed"].per_step(mean_gap_us, "us")


def copy_of_x(device: Device, variant: str) -> Figure:
    """The GPU's time to copy x to where a graph reads it, in the trace at 64 tokens."""

    def copied_us(step: Step) -> float:
        copies = (each for each in step.activities if each.op is not None and each.op.name.endswith("copy_"))
        return math.fsum(each.duration_us for each in copies)

    return device[f"regimes/small_{variant}"].per_step(copied_us, "us")


def per_token(device: Device) -> Figure:
    """A token's time from Python at 8,192 tokens over that at 64, eager."""
    many, few = (timed(device, "eager", size).time("from_python") for size in ("large", "small"))
    ratio, share = unpaired_ratio(many, few), SIZES["small"] / SIZES["large"]
    low, high = ratio.bounds
    return Figure(share * ratio.number, "x", (share * low, share * high), ratio.origin)


def graph_of_copy(device: Device) -> Figure:
    """The rate at which the CUDA graph of eight blocks reads its bytes with 64 tokens, in percent of a copy's."""
    return share_of_ceiling(timed(device, "graphed", "small"), COPY)


# Claims


@claim("RG27", at_most(50), scope="timing")
def not_memory_bound(device: Device) -> Figure:
    """With 64 tokens, a CUDA graph of eight blocks isn't memory-bound: it moves its bytes at no more than half of a
    large copy's rate."""
    return graph_of_copy(device)


@claim("RG15", at_least(BLOCKS * 3))
def launches_of_eager(device: Device) -> Figure:
    """Eager makes at least as many launches as the eight blocks have operators, with three operators in each block."""
    return launches(device, "eager", "small")


@claim("RG16", equals(0))
def nothing_to_fuse(device: Device) -> Figure:
    """The compiled stack makes the same number of launches as the eager stack, because each block has a single
    pointwise operator, between two products that Inductor leaves to cuBLAS."""
    eager, compiled = (launches(device, variant, "small") for variant in ("eager", "compiled"))
    return derived(eager.number - compiled.number, eager, compiled, display=f"{eager.text} and {compiled.text}")


@claim("RG17", at_most(3))
def one_call(device: Device) -> Figure:
    """As a CUDA graph, recorded by hand or by reduce-overhead, all eight blocks together take three launches at
    most."""
    counts = [launches(device, variant, "small") for variant in ("graphed", "reduce_overhead")]
    return derived(max(count.number for count in counts), *counts, display=" and ".join(count.text for count in counts))


@claim("RG18", between(60, 70), source=Source(ARTICLE, "cut GPU kernel launch overhead by 60–70 %", ""))
def fusion_saves_launches(device: Device) -> Figure:
    """A fused implementation of the stack saves 60 to 70 % of the launches, with 64 or with 8,192 tokens.

    One kernel for a Linear and its GELU takes the place of two or three launches. The launch of the second Linear
    stays, because this Linear needs whole rows of the first Linear's result. Only a CUDA graph saves more launches."""
    saved = {size: launches_saved(device, "fused", size) for size in ("small", "large")}
    display = " and ".join(f"{figure.text} at {SIZES[size]:,} tokens" for size, figure in saved.items())
    return derived(max(figure.number for figure in saved.values()), *saved.values(), unit="%", display=display)


@claim("RG19", between(20, 30), scope="timing", source=Source(ARTICLE, "a 20–30 % wall-time speedup", ""))
def fusion_saves_time_at_few(device: Device) -> Figure:
    """With 64 tokens, a fused implementation of the stack saves 20 to 30 % of the time from Python.

    Launching a Triton kernel from Python takes more CPU time than the launches that the kernel replaces, and the step
    waits for the CPU. In a CUDA graph, where only the GPU's time counts, the fused kernel saves time."""
    return wall_saved(device, "fused", "small")


@claim("RG20", between(20, 30), scope="timing", source=Source(ARTICLE, "a 20–30 % wall-time speedup", ""))
def fusion_saves_time_at_many(device: Device) -> Figure:
    """With 8,192 tokens, a fused implementation of the stack saves 20 to 30 % of the time from Python.

    The products take most of the time, and this chapter's simple kernel multiplies more slowly than cuBLAS. The slower
    product takes more time than fusing saves."""
    return wall_saved(device, "fused", "large")


@claim("RG21", at_least(50), scope="timing")
def graph_at_few(device: Device) -> Figure:
    """With 64 tokens, a CUDA graph of eight blocks saves at least half of eager's time from Python."""
    return wall_saved(device, "graphed", "small")


@claim("RG22", at_most(10), scope="timing")
def graph_at_many(device: Device) -> Figure:
    """With 8,192 tokens, a CUDA graph of eight blocks saves at most a tenth of eager's time from Python, because the
    GPU idles little in eager."""
    return wall_saved(device, "graphed", "large")


@claim("RG23", at_least(50), scope="timing")
def idle_eager(device: Device) -> Figure:
    """With 64 tokens and eight blocks in eager, the GPU idles for at least half of the time from Python."""
    return idle(timed(device, "eager", "small"))


@claim("RG24", at_most(15), scope="timing")
def idle_graphed(device: Device) -> Figure:
    """With 64 tokens and eight blocks in a CUDA graph, the GPU idles for at most 15 % of the time from Python."""
    return idle(timed(device, "graphed", "small"))


@claim("RG26", at_least(2), scope="timing")
def fusion_within_a_graph(device: Device) -> Figure:
    """With 64 tokens, a CUDA graph of eight blocks with the fused kernel takes at least 2 % less time from Python than
    a CUDA graph of eager's kernels."""
    fused, plain = (timed(device, variant, "small") for variant in ("fused_graphed", "graphed"))
    return percent_saved(paired_ratio(fused, plain, "from_python"))


@claim("RG25", at_most(0.1), scope="timing")
def batching(device: Device) -> Figure:
    """In eager, a token takes at most a tenth as long in a batch of 8,192 tokens as in a batch of 64 tokens."""
    return per_token(device)


# Pieces of the page


def remedies(device: Device, size: str) -> Html:
    """Each remedy at one size: launches, the CPU's time, the GPU's, the time from Python, and the saving."""
    rows: list[list[Cell]] = []
    for heading, variant in REMEDIES.items():
        run = timed(device, variant, size)
        times = [run.time(kind).text for kind in ("enqueue", "interleaved", "from_python")]
        saved = None if variant == "eager" else figure_cell(wall_saved(device, variant, size))
        rows.append([heading, launches(device, variant, size).text, *times, idle(run).text, saved])
    if size == "small":
        rows.append(_larger_batch(device))
    head = ["variant", "launches", "CPU", "GPU", "from Python", "GPU idle", "time saved"]
    return table(f"One step of eight blocks with {SIZES[size]:,} tokens: eager and each remedy", head, rows)


def _larger_batch(device: Device) -> list[Cell]:
    """Eager with 8,192 tokens, its launches and its times divided among groups of 64 tokens."""
    few, many = SIZES["small"], SIZES["large"]
    run = timed(device, "eager", "large")
    launched = launches(device, "eager", "large").number * few / many
    times = [run.time(kind).number * few / many for kind in ("enqueue", "interleaved", "from_python")]
    saved = 100 * (1 - per_token(device).number)
    heading = f"eager, {many:,} tokens, for each {few} tokens"
    texts = (format_value(us, "us") for us in times)
    return [heading, format_value(launched), *texts, idle(run).text, format_value(saved, "%")]


def against_article(device: Device) -> Html:
    """Each remedy's saving of eager's launches, and of the time from Python at each size."""
    rows: list[list[Cell]] = []
    for heading, variant in list(REMEDIES.items())[1:]:
        saved = [figure_cell(wall_saved(device, variant, size)) for size in SIZES]
        launched = [launches_saved(device, variant, size).text for size in ("small", "large")]
        rows.append([heading, *launched, *saved])
    counted = [f"launches saved, {SIZES[size]:,} tokens" for size in ("small", "large")]
    head = ["remedy", *counted, *(f"time from Python saved, {tokens:,} tokens" for tokens in SIZES.values())]
    return table("What each remedy saves compared with eager (a number below zero is a loss)", head, rows)


def remedy_bars(device: Device, size: str) -> Html:
    """The CPU's time and the time from Python of each remedy."""
    variants = {heading: timed(device, variant, size) for heading, variant in REMEDIES.items()}
    runs = {heading: f"{run.id}[{run.selector}]" for heading, run in variants.items()}
    caption = f"Time of a step of eight blocks with {SIZES[size]:,} tokens"
    return race_bars(device, runs, caption, kinds=("from_python", "enqueue", "interleaved"))


eager_and_graphed = partial(
    timeline, variants={"eager": "regimes/small_eager", "a CUDA graph": "regimes/small_graphed"}
)

FIGURES = {
    **{f"graph_saves_{size}": partial(wall_saved, variant="graphed", size=size) for size in SIZES},
    "fused_on_gpu": partial(fused_of_eager, kind="interleaved"),
    "fused_enqueue": partial(fused_of_eager, kind="enqueue"),
    "fused_on_gpu_large": partial(fused_of_eager, kind="interleaved", size="large"),
    "eager_launches": partial(launches, variant="eager", size="small"),
    "fused_launches": partial(launches, variant="fused", size="small"),
    "graph_launches": partial(launches, variant="graphed", size="small"),
    "graph_copies": partial(copy_of_x, variant="graphed"),
    "reduce_overhead_copies": partial(copy_of_x, variant="reduce_overhead"),
}


def cpu_of_a_launch(device: Device) -> Figure:
    """The CPU's time of one eager step with 64 tokens, divided by its launches."""
    time, count = timed(device, "eager", "small").time("enqueue"), launches(device, "eager", "small")
    low, high = time.bounds
    number = count.number
    return Figure(time.number / number, "us", (low / number, high / number), time.origin, count.conclusive)
