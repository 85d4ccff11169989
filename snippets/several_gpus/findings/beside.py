"""What a transfer takes from a matrix product next to it, and what the product takes from the transfer."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    Source,
    at_least,
    at_most,
    between,
    claim,
    equals,
    unpaired_ratio,
)
from snippets.lab.finding.probed import entry, rate, ratio, time
from snippets.lab.page import Computation, floor_bars, prediction as prediction, show as show
from snippets.several_gpus.findings.link import sent_share, size_text

BESIDE = "several_gpus/beside"
NAMES = {
    "all_reduce": "all-reduce: default blocks",
    "all_gather": "all-gather: default blocks",
    "max_ctas=16": "all-reduce: max_ctas=16",
    "max_ctas=8": "all-reduce: max_ctas=8",
    "max_ctas=4": "all-reduce: max_ctas=4",
    "max_ctas=2": "all-reduce: max_ctas=2",
    "copy": "copy to the other GPU: DMA engine",
}
"""Transfer -> its name, in the order of the page."""
FEWER = "max_ctas=4"


def product_alone_us(device: Device) -> Figure:
    """The product alone."""
    return time(device, BESIDE, "alone_us")


def transfer_us(device: Device, name: str) -> Figure:
    """A transfer alone."""
    return time(device, BESIDE, "transfers", name, "us")


def product_us(device: Device, name: str) -> Figure:
    """The product while a transfer runs. Raises `NotTimed` if the transfers ended before the products."""
    if not entry(device, BESIDE, "transfers", name, "outlasted"):
        raise NotTimed(f"{BESIDE} on {device.name}: the transfers {name} ended before the products next to them")
    return time(device, BESIDE, "transfers", name, "product_us")


def slowdown(device: Device, name: str) -> Figure:
    """How many times as long the product takes next to a transfer."""
    return unpaired_ratio(product_us(device, name), product_alone_us(device))


def blocks(device: Device, name: str) -> int:
    """The blocks of a transfer's NCCL kernel; 0 of a copy."""
    found: int = entry(device, BESIDE, "transfers", name, "blocks")
    return found


def multiprocessors(device: Device) -> int:
    """The multiprocessors of the GPU."""
    found: int = entry(device, BESIDE, "multiprocessors")
    return found


def predicted_us(device: Device, name: str = "all_reduce") -> Figure:
    """The product on the multiprocessors that the transfer's blocks leave."""
    alone, all_of_them = product_alone_us(device), multiprocessors(device)
    factor = all_of_them / (all_of_them - blocks(device, name))
    low, high = (factor * bound for bound in alone.bounds)
    return Figure(factor * alone.number, "us", (low, high), f"{alone.origin}; blocks of {name}")


@claim("SG27", at_most(25), scope="this-gpu")
def held_multiprocessors(device: Device) -> Figure:
    """The kernel of an all-reduce of 512 MiB has at most a quarter as many blocks as the GPU has multiprocessors."""
    share = 100 * blocks(device, "all_reduce") / multiprocessors(device)
    return Figure(share, "%", origin=f"{BESIDE}, the grid of its kernel")


@claim("SG28", at_least(1.05), scope="timing")
def product_is_slower(device: Device) -> Figure:
    """During an all-reduce, a matrix product takes at least 5 % longer than without a transfer."""
    return slowdown(device, "all_reduce")


@claim(
    "SG29",
    between(1.3, 1.4),
    scope="timing",
    source=Source("PyTorch, issue 179937", "30 to 40 % slower", device=""),
)
def as_slow_as_said(device: Device) -> Figure:
    """During an all-gather, a matrix product takes 30 to 40 % longer than without a transfer.

    On this GPU, the share of the multiprocessors that NCCL's kernel occupies explains our smaller slowdown. The source
    names no GPU and no sizes.
    """
    return slowdown(device, "all_gather")


@claim("SG30", at_least(0.95), scope="timing")
def multiprocessors_explain(device: Device) -> Figure:
    """During an all-reduce, a matrix product takes at least 0.95 times the time that we predict from the free
    multiprocessors."""
    return unpaired_ratio(product_us(device, "all_reduce"), predicted_us(device))


@claim("SG31", equals(4))
def blocks_as_asked(device: Device) -> Figure:
    """With `max_ctas=4`, the kernel of an all-reduce has four blocks."""
    return Figure(blocks(device, FEWER), origin=f"{BESIDE}, the grid of its kernel")


@claim("SG32", at_most(0.97), scope="timing")
def fewer_blocks_help_the_product(device: Device) -> Figure:
    """A product takes at least 3 % less time during an all-reduce with `max_ctas=4` than during an all-reduce with
    NCCL's default."""
    return unpaired_ratio(product_us(device, FEWER), product_us(device, "all_reduce"))


@claim("SG33", at_least(1.5), scope="timing")
def fewer_blocks_cost_rate(device: Device) -> Figure:
    """An all-reduce without a product takes at least 1.5 times as long with `max_ctas=4` as with NCCL's default."""
    return unpaired_ratio(transfer_us(device, FEWER), transfer_us(device, "all_reduce"))


@claim("SG34", at_most(1.1), scope="timing")
def dma_engine_is_free(device: Device) -> Figure:
    """During a copy to the other GPU, a product takes at most 10 % longer than without a transfer."""
    return slowdown(device, "copy")


@claim("SG36", equals("Memcpy"))
def copy_is_no_kernel(device: Device) -> Figure:
    """In the trace, a copy to the other GPU is a memcpy and not a kernel, so a DMA engine copies."""
    name: str = entry(device, BESIDE, "transfers", "copy", "activity")
    return Figure(name.partition(" ")[0], origin=f"{BESIDE}: {name}")


@claim("SG35", at_most(0.95), scope="timing")
def side_by_side_saves(device: Device) -> Figure:
    """An all-reduce and products take at least 5 % less time side by side than one after the other."""
    return pair_ratio(device, "all_reduce")


def pair_ratio(device: Device, name: str) -> Figure:
    """A transfer and products side by side, over one after the other."""
    keys = ("transfers", name)
    return ratio(device, BESIDE, (*keys, "side_by_side_us"), (*keys, "in_order_us"))


HOLDING = Computation(
    "How long does the product take on the multiprocessors that are left?",
    "several_gpus.product_predicted_us",
    "Alone, the product takes {several_gpus.product_alone_us} on {several_gpus.multiprocessors} multiprocessors, and "
    "NCCL leaves {several_gpus.multiprocessors_left} multiprocessors.",
    "Divide the product's time by the share of the multiprocessors that are left.",
    {"several_gpus.product_alone_us": "your result is the time of the product without a transfer."},
)


def beside_bars(device: Device) -> Html:
    """The product next to each transfer, above the product alone."""
    rungs = {text: product_us(device, name) for name, text in _timed(device).items()}
    conditions = "A product of 8192 x 8192 x 8192 in bf16 on each of two GPUs, slowest rank. One linear scale."
    caption = "Time of a matrix product during a transfer"
    return floor_bars(
        device, ("product alone: no transfer", product_alone_us(device)), rungs, caption, conditions=conditions
    )


def _timed(device: Device) -> dict[str, str]:
    """The transfers that were timed next to the product to its end, with their names."""
    found = entry(device, BESIDE, "transfers")
    return {name: text for name, text in NAMES.items() if found.get(name, {}).get("outlasted")}


def beside_table(device: Device) -> Html:
    """Each transfer: blocks, its rate alone, the product next to it, and a pair in order and side by side."""
    rows: list[list[Cell]] = []
    for name, text in _timed(device).items():
        share = 1.0 if name == "copy" else sent_share(name if name == "all_gather" else "all_reduce", 2)
        sent = rate(share * entry(device, BESIDE, "bytes"), transfer_us(device, name), "bytes/s")
        pair = [time(device, BESIDE, "transfers", name, kind) for kind in ("in_order_us", "side_by_side_us")]
        cells = [sent, product_us(device, name), slowdown(device, name), *pair]
        rows.append([text.replace(": ", ", "), f"{blocks(device, name)}", *map(figure_cell, cells)])
    head = [
        "transfer",
        "blocks",
        "rate of the transfer alone",
        "product during the transfer",
        "over product alone",
        "pair, one after the other",
        "pair, side by side",
    ]
    caption = "Transfers of 512 MiB, and a matrix product during each transfer"
    return table(caption, head, rows)


FIGURES: Mapping[str, Measure] = {
    "product_beside_us": lambda device: product_us(device, "all_reduce"),
    "product_predicted_us": predicted_us,
    "all_reduce_blocks": lambda device: Figure(blocks(device, "all_reduce"), origin=BESIDE),
    "slowdown_by_all_reduce": lambda device: slowdown(device, "all_reduce"),
    "slowdown_by_copy": lambda device: slowdown(device, "copy"),
    "pair_of_all_reduce": lambda device: pair_ratio(device, "all_reduce"),
    "pair_of_copy": lambda device: pair_ratio(device, "copy"),
    "transfer_bytes": lambda device: Figure(size_text(entry(device, BESIDE, "bytes")), origin=BESIDE),
    "multiprocessors": lambda device: Figure(multiprocessors(device), origin=BESIDE),
    "multiprocessors_left": lambda device: Figure(
        multiprocessors(device) - blocks(device, "all_reduce"), origin=BESIDE
    ),
}
