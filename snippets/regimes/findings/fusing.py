"""Where fusion does not win: few tokens, a bias that moves, a tensor that is still in the cache."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    Run,
    timing_of_samples,
)
from snippets.lab.finding.measure import listed, paired_ratio, ratio_of_pairs
from snippets.lab.html import Cell, Html, code, table
from snippets.lab.page import figure_cell, timeline, waiting
from snippets.lab.page import show as show
from snippets.lab.recording.schema import Timing
from snippets.lab.trace.events import Step

BF16_BYTES = 2
HIDDEN = 4096
TOKENS = (1, 16, 64, 256, 1024, 8192)
"""Of the sweep."""
STACKS: Mapping[str, str] = {"eager": "eager", "compiled": "compiled", "written out, compiled": "written_out"}
"""Heading -> variant of the traced stack."""
OPS: Mapping[str, str] = {"gelu": "GELU", "negation": "negation"}
"""What ran after the product -> its name on the page."""
FEW, MANY = 64, 8192
"""Tokens of the traces."""


def layer(device: Device, variant: str, tokens: int) -> Run:
    """The Linear with its GELU, `eager` or `fused`, at so many tokens."""
    return device[f"regimes/layer_{variant}[tokens={tokens}]"]


def fused_over_eager(device: Device, tokens: int, kind: str = "interleaved") -> Figure:
    """The fused kernel's time over that of eager's two."""
    return paired_ratio(layer(device, "fused", tokens), layer(device, "eager", tokens), kind)


def opening(device: Device) -> Html:
    """The Linear with its GELU in two kernels and in one, with one token, some, and many."""
    sizes = {
        f"{tokens:,} token{'s' * (tokens > 1)}": {
            variant: f"regimes/layer_{variant}[tokens={tokens}]" for variant in ("eager", "fused")
        }
        for tokens in (1, 1024, 8192)
    }
    return waiting(device, sizes, "How long you wait for a Linear with GELU, and for whom")


def layer_table(device: Device) -> Html:
    """Eager's two kernels and the fused one at each size: on the GPU and from Python."""
    rows: list[list[Cell]] = []
    for tokens in TOKENS:
        cells: list[Cell] = [f"{tokens:,}"]
        for kind in ("interleaved", "from_python"):
            cells += [figure_cell(layer(device, variant, tokens).time(kind)) for variant in ("eager", "fused")]
            cells.append(figure_cell(fused_over_eager(device, tokens, kind)))
        rows.append(cells)
    head = ["tokens", "eager, GPU", "fused, GPU", "ratio", "eager, from Python", "fused, from Python", "ratio "]
    return table("A Linear and its GELU in two kernels and in one", head, rows)


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
    return table(f"Kernels of one forward with {tokens:,} tokens", ["variant", "kernel", "time"], rows, text_columns=2)


def bias_times(device: Device) -> Html:
    """A forward of each variant at each size, interleaved."""
    sizes = device["regimes/biases"].data["us"]
    rows: list[list[Cell]] = []
    for tokens in sorted(map(int, sizes)):
        eager = Figure.from_timing(bias_timing(device, tokens, "eager"))
        ratios = (bias_over_eager(device, tokens, variant) for variant in ("compiled", "written_out"))
        rows.append([f"{tokens:,}", figure_cell(eager), *map(figure_cell, ratios)])
    head = ["tokens", "eager", "compiled, of eager", "written out and compiled, of eager"]
    return table("One forward of the stack on the GPU, interleaved", head, rows)


def bias_calls(device: Device, dtype: str, variant: str) -> Figure:
    """What Inductor's code calls for the stack, in order, without numbers."""
    calls = device["regimes/biases"].data["code"][dtype][variant]["calls"]
    names = [re.sub(r"^extern_kernels\.|^triton_poi_|_\d+$", "", call) for call in calls]
    return Figure(", ".join(names), origin=f"{device['regimes/biases'].origin}, {dtype}, {variant}")


def calls_table(device: Device) -> Html:
    """What Inductor's code calls for the stack by type and form."""
    rows = [
        [dtype, heading, code(bias_calls(device, dtype, variant).text, 90)]
        for dtype in ("bfloat16", "float32")
        for heading, variant in (("nn.Linear", "compiled"), ("written out", "written_out"))
    ]
    return table("What the generated code calls", ["type", "source", "calls, in order"], rows, text_columns=3)


def cache_data(device: Device) -> Mapping[str, Any]:
    """What the probe of the cache returned."""
    found: Mapping[str, Any] = device["regimes/in_cache"].data
    return found


def cache_sizes(device: Device) -> list[int]:
    """Numbers of tokens of that probe."""
    return sorted(int(tokens) for tokens in cache_data(device)["op_us"]["gelu"])


def gelu_bytes(tokens: int) -> int:
    """What GELU reads and writes."""
    return 2 * BF16_BYTES * tokens * HIDDEN


def op_rate(device: Device, op: str, tokens: int, when: str) -> Figure:
    """The rate of GELU or of a negation right `after` the product that wrote its input, or with the cache `flushed`."""
    timing = timing_of_samples(cache_data(device)["op_us"][op][str(tokens)][when])
    low, high = (gelu_bytes(tokens) / us * 1e6 for us in reversed(timing.spread_us))
    origin = f"{device['regimes/in_cache'].origin}, {op}, {tokens} tokens, {when}"
    return Figure(gelu_bytes(tokens) / timing.median_us * 1e6, "bytes/s", (low, high), origin)


def copy_rate(device: Device) -> Figure:
    """The rate of a large copy in the same process."""
    copy = cache_data(device)["copy"]
    timing = timing_of_samples(copy["us"])
    low, high = (copy["bytes"] / us * 1e6 for us in reversed(timing.spread_us))
    origin = f"{device['regimes/in_cache'].origin}, copy"
    return Figure(copy["bytes"] / timing.median_us * 1e6, "bytes/s", (low, high), origin)


def of_copy(device: Device, op: str, tokens: int, when: str = "after") -> Figure:
    """The rate of GELU or of a negation over that of a large copy."""
    rate, copied = op_rate(device, op, tokens, when), copy_rate(device)
    (low, high), (slow, fast) = rate.bounds, copied.bounds
    origin = f"{rate.origin}; over {copied.origin}"
    return Figure(rate.number / copied.number, "x", (low / fast, high / slow), origin)


def step_timing(device: Device, tokens: int, step: str) -> Timing:
    """Times of a step of the layer: `linear`, `eager`, `epilogue` or `fused`."""
    return timing_of_samples(cache_data(device)["step_us"][str(tokens)][step])


def saved_by_epilogue(device: Device, tokens: int) -> Figure:
    """Time that cuBLAS's GELU epilogue saves of eager's two kernels."""
    eager, fused = (step_timing(device, tokens, step) for step in ("eager", "epilogue"))
    pairs = [a - b for a, b in zip(eager.samples_us, fused.samples_us, strict=True)]
    medians = [statistics.median(part) for part in timing_of_samples(pairs).parts]
    origin = f"{device['regimes/in_cache'].origin}, eager less epilogue, {tokens} tokens"
    return Figure(statistics.median(pairs), "us", (min(medians), max(medians)), origin)


def as_copy_us(device: Device, tokens: int) -> Figure:
    """Time in which a large copy would move what GELU reads and writes."""
    rate = copy_rate(device)
    low, high = (1e6 * gelu_bytes(tokens) / each for each in reversed(rate.bounds))
    return Figure(1e6 * gelu_bytes(tokens) / rate.number, "us", (low, high), rate.origin)


def cache_table(device: Device) -> Html:
    """GELU's rate right after its input was written and from memory, and what fusing it saves."""
    rows: list[list[Cell]] = []
    for tokens in cache_sizes(device):
        rows.append(
            [
                f"{tokens:,}",
                Figure(gelu_bytes(tokens) / 2, "bytes").text,
                *(figure_cell(op_rate(device, op, tokens, when)) for op in OPS for when in ("after", "flushed")),
                figure_cell(as_copy_us(device, tokens)),
                figure_cell(saved_by_epilogue(device, tokens)),
            ]
        )
    rates = [f"{name}, {when}" for name in OPS.values() for when in ("right after", "from memory")]
    head = ["tokens", "GELU's input", *rates, "as a large copy", "saved by the epilogue"]
    return table("GELU on what the product wrote, and what fusing it saves", head, rows)


FIGURES: Mapping[str, Measure] = {
    "fused_few": lambda device: fused_over_eager(device, FEW),
    "fused_few_python": lambda device: fused_over_eager(device, FEW, "from_python"),
}
