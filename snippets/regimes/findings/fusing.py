"""Where fusion does not win: few tokens and many, and a bias that moves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.events import Step
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    Run,
    at_least,
    at_most,
    between,
    claim,
    equals,
    timing_of_samples,
)
from snippets.lab.finding.measure import (
    derived,
    largest,
    listed,
    paired_ratio,
    ratio_of_pairs,
    smallest,
)
from snippets.lab.page import figure_cell, show as show, timeline, waiting
from snippets.lab.recording.schema import Timing

TOKENS = (1, 16, 64, 256, 1024, 8192)
"""Of the sweep."""
SMALL = TOKENS[:3]
STACKS: Mapping[str, str] = {"eager": "eager", "compiled": "compiled", "written out, compiled": "written_out"}
"""Heading -> variant of the traced stack."""
FEW, MANY = 64, 8192
"""Tokens of the traces."""


def layer(device: Device, variant: str, tokens: int) -> Run:
    """The Linear with its GELU, `eager` or `fused`, at so many tokens."""
    return device[f"regimes/layer_{variant}[tokens={tokens}]"]


def fused_over_eager(device: Device, tokens: int, kind: str = "interleaved") -> Figure:
    """The fused kernel's time / that of eager's two kernels."""
    return paired_ratio(layer(device, "fused", tokens), layer(device, "eager", tokens), kind)


def layer_clock(device: Device, kind: str) -> Figure:
    """The GPU's clock while eager's two kernels were timed with many tokens. Raises `NotTimed`."""
    run = layer(device, "eager", MANY)
    clock = run.timing(kind).clock_mhz
    if not clock:
        raise NotTimed(f"{run.id} has no clock of its {kind} timing; make record CHAPTER=regimes")
    return Figure(clock, "MHz", origin=f"{run.origin}, {kind}")


def opening(device: Device) -> Html:
    """The Linear with its GELU in two kernels and in one, with one token, some, and many."""
    sizes = {
        f"{tokens:,} token{'s' * (tokens > 1)}": {
            variant: f"regimes/layer_{variant}[tokens={tokens}]" for variant in ("eager", "fused")
        }
        for tokens in (1, 1024, 8192)
    }
    return waiting(
        device, sizes, "A Linear with GELU: the CPU's time, the GPU's time, and the time until the GPU is done"
    )


def layer_table(device: Device) -> Html:
    """Eager's two kernels and the fused one at each size: on the GPU and from Python."""
    rows: list[list[Cell]] = []
    for tokens in TOKENS:
        cells: list[Cell] = [f"{tokens:,}"]
        for kind in ("interleaved", "from_python"):
            cells += [figure_cell(layer(device, variant, tokens).time(kind)) for variant in ("eager", "fused")]
            cells.append(figure_cell(fused_over_eager(device, tokens, kind)))
        rows.append(cells)
    head = [
        "tokens",
        "eager, GPU",
        "fused, GPU",
        "ratio, GPU",
        "eager, from Python",
        "fused, from Python",
        "ratio, from Python",
    ]
    return table("Times of a Linear and its GELU: eager's two kernels, and the fused kernel", head, rows)


def stack(device: Device, variant: str, tokens: int) -> Run:
    """A traced forward of the stack."""
    return device[f"regimes/bias_{variant}_{tokens}"]


def stack_timeline(device: Device, tokens: int) -> Html:
    """One forward of each variant, aligned."""
    variants = {heading: f"regimes/bias_{variant}_{tokens}" for heading, variant in STACKS.items()}
    return timeline(device, variants, f"One forward of the stack with {tokens:,} tokens")


def has_bias(name: str) -> bool:
    """Whether a kernel's name says that it adds a bias: of cuBLAS by `bias`, of Inductor by `add`."""
    return bool(re.search(r"bias|fused_.*add", name, re.IGNORECASE))


def bias_place(step: Step) -> str:
    """Which kernel adds the bias of the first Linear: `product`, `GELU`, or `a kernel of its own`."""
    kernels = [kernel.name for kernel in step.kernels]
    if has_bias(kernels[0]):
        return "product"
    gelu = next((name for name in kernels if "gelu" in name.lower()), "")
    return "GELU" if has_bias(gelu) else "a kernel of its own"


def places(device: Device, tokens: int) -> Figure:
    """Which kernel adds the first bias in each variant."""
    return listed({name: stack(device, variant, tokens).per_step(bias_place) for name, variant in STACKS.items()})


def bias_timing(device: Device, tokens: int, variant: str) -> Timing:
    """Times of a forward of the stack, interleaved with the other variants."""
    return timing_of_samples(device["regimes/biases"].data["us"][str(tokens)][variant])


def bias_over_eager(device: Device, tokens: int, variant: str) -> Figure:
    """A variant's forward over eager's, on the GPU."""
    upper, lower = (bias_timing(device, tokens, name) for name in (variant, "eager"))
    return ratio_of_pairs(upper, lower, f"{device['regimes/biases'].origin}, {variant} over eager, {tokens} tokens")


def _kernel_us(step: Step, index: int) -> float:
    return step.kernels[index].duration_us


def bias_kernels(device: Device, tokens: int) -> Html:
    """The kernels of a forward, by variant, with their times in the trace."""
    rows: list[list[Cell]] = []
    for heading, variant in STACKS.items():
        run = stack(device, variant, tokens)
        for index, kernel in enumerate(run.step.kernels):
            us = run.per_step(partial(_kernel_us, index=index), "us")
            rows.append([heading if index == 0 else "", code(kernel.name), figure_cell(us)])
    return table(
        f"Kernels of one forward of the stack with {tokens:,} tokens",
        ["variant", "kernel", "time"],
        rows,
        text_columns=2,
    )


def bias_times(device: Device) -> Html:
    """A forward of each variant at each size, interleaved."""
    sizes = device["regimes/biases"].data["us"]
    rows: list[list[Cell]] = []
    for tokens in sorted(map(int, sizes)):
        eager = Figure.from_timing(bias_timing(device, tokens, "eager"))
        ratios = (bias_over_eager(device, tokens, variant) for variant in ("compiled", "written_out"))
        rows.append([f"{tokens:,}", figure_cell(eager), *map(figure_cell, ratios)])
    head = ["tokens", "eager", "compiled / eager", "written out, compiled / eager"]
    return table("Interleaved times of one forward of the stack", head, rows)


def bias_calls(device: Device, dtype: str, variant: str) -> Figure:
    """The calls of Inductor's code for the stack, in order, without numbers."""
    calls = device["regimes/biases"].data["code"][dtype][variant]["calls"]
    names = [re.sub(r"^extern_kernels\.|^triton_poi_|_\d+$", "", call) for call in calls]
    return Figure(", ".join(names), origin=f"{device['regimes/biases'].origin}, {dtype}, {variant}")


def calls_table(device: Device) -> Html:
    """The calls of Inductor's code for the stack, by type and form."""
    rows = [
        [dtype, heading, code(bias_calls(device, dtype, variant).text, 90)]
        for dtype in ("bfloat16", "float32")
        for heading, variant in (("nn.Linear", "compiled"), ("written out", "written_out"))
    ]
    head = ["type", "source", "calls, in order"]
    return table(f"Calls in the generated code with {FEW} tokens", head, rows, text_columns=3)


@claim("RG43", at_most(0.9), scope="timing")
def layer_on_gpu(device: Device) -> Figure:
    """On the GPU and with 1 to 64 tokens, one kernel for a Linear and its GELU takes at most nine tenths of the time of
    eager's two kernels."""
    return largest(*(fused_over_eager(device, tokens) for tokens in SMALL))


@claim("RG44", at_least(1), scope="timing")
def layer_from_python(device: Device) -> Figure:
    """Timed from Python with 1 to 64 tokens, one launch of the fused Triton kernel takes longer than eager's two
    operators."""
    return smallest(*(fused_over_eager(device, tokens, "from_python") for tokens in SMALL))


@claim("RG45", at_least(1.1), scope="timing")
def fused_many(device: Device) -> Figure:
    """On the GPU and with 8192 tokens, the fused kernel takes at least a tenth longer than eager's two kernels."""
    return fused_over_eager(device, MANY)


@claim("RG46", equals("eager product, compiled product, written out, compiled GELU"), scope="this-gpu")
def bias_moves(device: Device) -> Figure:
    """In the eager stack and in the compiled stack with nn.Linear, the product adds the first bias. If product and sum
    are written out, GELU's kernel adds the first bias, with 64 tokens and with 8192 tokens."""
    found = [places(device, tokens) for tokens in (FEW, MANY)]
    return derived(" or ".join(dict.fromkeys(figure.text for figure in found)), *found)


@claim("RG47", equals("addmm, fused_gelu, addmm; mm, fused_addmm_gelu, addmm"), scope="this-gpu")
def kept_in_bf16(device: Device) -> Figure:
    """In bfloat16, Inductor leaves the bias of an nn.Linear in the product, and in float32, Inductor moves the bias
    into GELU's kernel."""
    types = [bias_calls(device, dtype, "compiled") for dtype in ("bfloat16", "float32")]
    return derived("; ".join(figure.text for figure in types), *types)


@claim("RG48", at_least(1), scope="timing")
def compiled_over_eager(device: Device) -> Figure:
    """On the GPU and with 64, 1024 and 8192 tokens, the compiled stack takes at least as long as the eager stack."""
    return smallest(*(bias_over_eager(device, tokens, "compiled") for tokens in (FEW, 1024, MANY)))


@claim("RG49", between(0.97, 1.03), scope="timing")
def moved_bias(device: Device) -> Figure:
    """With 8192 tokens, moving the first bias out of the product changes the compiled stack's time by at most 3 %."""
    moved, kept = (bias_timing(device, MANY, variant) for variant in ("written_out", "compiled"))
    return ratio_of_pairs(moved, kept, f"{device['regimes/biases'].origin}, written out over nn.Linear, compiled")


FIGURES: Mapping[str, Measure] = {
    "layer_clock": lambda device: layer_clock(device, "interleaved"),
    "layer_clock_from_python": lambda device: layer_clock(device, "from_python"),
}
