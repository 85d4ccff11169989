"""The kernels of a token of the last rung, and which of them are products of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import Step
from kinetoscope.trace.kernel_names import decode_kernel_name
from snippets.decoder.findings.limits import LAST
from snippets.decoder.findings.reading import BF16_BYTES, SMALL, read_rate
from snippets.lab.finding import Device, Figure, Measure, format_value
from snippets.lab.page import kernel_name_html, show as show

MIN_SHARE = 0.01
"""Of a token's GPU time: kernels that take less are one row."""


def kernels(device: Device) -> Html:
    """The kernels of at least 1 % of a token of the last rung: number, time, and the rate of reading where a kernel is
    one of the model's products."""
    step = device[LAST].step
    known, total = product_bytes(step), math.fsum(kernel.duration_us for kernel in step.kernels)
    rows: list[list[Cell]] = []
    rest: list[float] = []
    for name, times in grouped(step).items():
        us = math.fsum(times)
        if us < MIN_SHARE * total:
            rest += times
            continue
        moved = sum(known.get(id(kernel), 0) for kernel in step.kernels if kernel.name == name)
        rows.append([kernel_name_html(name), *_kernel_cells(times, total), *_rate_cells(device, moved, us)])
    if rest:
        rows.append(["all others", *_kernel_cells(rest, total), None, None, None])
    head = [
        "kernel",
        "number",
        "time of all kernels",
        "share of GPU time",
        "time of one kernel",
        "bytes of weights",
        "rate of reading",
        "share of the highest rate",
    ]
    return table("The kernels of a token in the joined-projections graph", head, rows)


def _kernel_cells(times: Sequence[float], total: float) -> list[Cell]:
    us = math.fsum(times)
    share, each = format_value(100 * us / total, "%"), format_value(us / len(times), "us")
    return [f"{len(times)}", format_value(us, "us"), share, each]


def _rate_cells(device: Device, moved: int, us: float) -> list[Cell]:
    if not moved:
        return [None, None, None]
    reads = 1e6 * moved / us
    share = format_value(100 * reads / read_rate(device).number, "%")
    return [format_value(moved, "bytes"), format_value(reads, "bytes/s"), share]


def product_bytes(step: Step) -> dict[int, int]:
    """The id of each kernel that is a product of the model -> its weights' bytes, by the order of the products.

    Empty if the step has another number of products than the model, as after a split of one into two kernels.
    """
    shape = SMALL
    layer = [
        shape.dim * (shape.dim + 2 * shape.kv_dim),
        shape.dim * shape.dim,
        2 * shape.dim * shape.hidden,
        shape.dim * shape.hidden,
    ]
    expected = [*(layer * shape.layers), shape.embedding]
    products = [kernel for kernel in step.kernels if decode_kernel_name(kernel.name).operation in ("gemm", "gemv")]
    if len(products) != len(expected):
        return {}
    return {id(kernel): BF16_BYTES * weights for kernel, weights in zip(products, expected, strict=True)}


def grouped(step: Step) -> dict[str, list[float]]:
    """Kernel name -> its durations, the longest sum first."""
    times: dict[str, list[float]] = {}
    for kernel in step.kernels:
        times.setdefault(kernel.name, []).append(kernel.duration_us)
    return dict(sorted(times.items(), key=lambda item: -math.fsum(item[1])))


def product_share(device: Device) -> Figure:
    """The products' share of the GPU's time on the last rung."""

    def share(step: Step) -> float:
        times = grouped(step)
        products = (us for name, us in times.items() if decode_kernel_name(name).operation in ("gemm", "gemv"))
        return 100 * math.fsum(map(math.fsum, products)) / math.fsum(map(math.fsum, times.values()))

    return device[LAST].per_step(share, "%")


FIGURES: Mapping[str, Measure] = {"product_share": product_share}
