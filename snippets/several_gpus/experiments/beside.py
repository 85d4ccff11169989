"""A matrix product next to a transfer: what the transfer takes from it, and
how fewer blocks of NCCL or a DMA engine change this."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import Experiment, Instruments
from snippets.several_gpus.experiments.clocks import (
    ROUNDS,
    Step,
    activities_of,
    block_us,
    numbers,
    slowest,
    times_us,
)
from snippets.several_gpus.experiments.link import (
    MIB,
    average_of,
    collectives_of,
    or_reason,
)
from snippets.several_gpus.experiments.numbers_of_ranks import (
    ITEM_BYTES,
    random_numbers,
)
from snippets.several_gpus.experiments.symmetric import neighbor_copy
from snippets.several_gpus.experiments.token_counts import matmul

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

PRODUCTS = 8
"""Products that are timed in a row while a transfer runs."""
MARGIN = 3.0
"""Transfers are launched for this many times the products' time, so that they
outlast products that they slow down."""


def group_of(max_ctas: int) -> ProcessGroup | None:
    """A process group whose collectives take at most so many blocks; the
    default group for 0."""
    import torch.distributed as dist

    if not max_ctas or dist.get_backend() != "nccl":
        return None
    options = dist.ProcessGroupNCCL.Options()
    options.config.max_ctas = max_ctas
    group: ProcessGroup = dist.new_group(pg_options=options)
    return group


def transfers_of(
    device: str, rank: int, world: int, size: int, ctas: list[int]
) -> dict[str, Callable[[], object]]:
    """Transfer -> a call that starts it on the current stream: collectives on
    an array of `size` bytes, the all-reduce with fewer blocks, and a copy of
    as many bytes to the next rank, which a DMA engine makes."""
    import torch.distributed as dist

    whole = random_numbers(device, rank, size // ITEM_BYTES)
    part = random_numbers(device, rank, size // ITEM_BYTES // world)
    op = average_of(device)
    steps = collectives_of(whole, part, op)
    found: dict[str, Callable[[], object]] = {
        name: steps[name] for name in ("all_reduce", "all_gather")
    }
    for count in ctas:
        reduce = functools.partial(dist.all_reduce, whole, op=op)
        found[f"max_ctas={count}"] = functools.partial(
            reduce, group=group_of(count)
        )
    if device == "cuda":
        found["copy"] = neighbor_copy(device, rank, world, size)
    return found


def products_us(
    product: Step, transfer: Step, side: Any, transfers: int, device: str
) -> tuple[float, bool]:
    """Microseconds of a product while so many transfers run on the stream
    `side`, and whether they outlasted the products."""
    import torch
    import torch.distributed as dist

    if device != "cuda":
        for _ in range(transfers):
            transfer()
        return block_us(product, device, PRODUCTS), True
    begin, end, last = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    torch.cuda.synchronize()
    dist.barrier()
    with torch.cuda.stream(side):
        transfer()
        side.record_event(begin)  # the transfers are under way from here
        for _ in range(transfers):
            transfer()
        side.record_event(last)
    torch.cuda.current_stream().wait_event(begin)
    start = torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(PRODUCTS):
        product()
    end.record()
    torch.cuda.synchronize()
    us = float(start.elapsed_time(end)) * 1e3 / PRODUCTS
    return us, end.elapsed_time(last) > 0


def pair(product: Step, transfer: Step, side: Any, products: int) -> Step:
    """One transfer on the stream `side`, and products next to it."""
    import torch

    def step() -> None:
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            transfer()
        for _ in range(products):
            product()
        main.wait_stream(side)

    return step


def in_order(product: Step, transfer: Step, products: int) -> Step:
    """One transfer, and then products."""

    def step() -> None:
        transfer()
        for _ in range(products):
            product()

    return step


def beside(
    instruments: Instruments,
    device: str,
    rank: int,
    world: int,
    matmul_size: int,
    mebibytes: int,
    max_ctas: str,
) -> dict[str, Any]:
    """A square product alone, next to transfers, and next to one transfer of
    about the same duration.

    Returns {"ranks", "bytes": of a transfer, "flops": of a product,
    "multiprocessors", "alone_us", "transfers": {transfer: {"us": of it alone,
    "product_us": of a product next to it, "outlasted": whether the transfers
    took longer than the products in each round, "activity", "blocks": of its
    kernel or copy, "products": of a pair, "in_order_us", "side_by_side_us"}}};
    a transfer that failed is {"stopped": why}.
    """
    import torch

    product = matmul(device, rank, *[matmul_size] * 3)
    size = MIB * mebibytes
    transfers = transfers_of(device, rank, world, size, numbers(max_ctas))
    alone = times_us({"alone_us": product}, device)
    multiprocessors = 1
    if device == "cuda":
        properties = torch.cuda.get_device_properties(
            torch.cuda.current_device()
        )
        multiprocessors = properties.multi_processor_count
    measure = functools.partial(
        next_to, device, product, min(alone["alone_us"])
    )
    found = {
        name: or_reason(functools.partial(measure, transfer))
        for name, transfer in transfers.items()
    }
    for name, transfer in transfers.items():  # the profiler comes last
        seen = activities_of(instruments, transfer, device)
        longest = max(seen, key=lambda one: one["us"], default={})
        found[name] |= {
            "activity": longest.get("name", ""),
            "blocks": longest.get("blocks", 0),
        }
    return {
        "ranks": world,
        "bytes": size,
        "flops": 2 * matmul_size**3,
        "multiprocessors": multiprocessors,
        **alone,
        "transfers": found,
    }


def next_to(
    device: str, product: Step, alone_us: float, transfer: Step
) -> dict[str, Any]:
    """The measurements of one transfer, as `beside` returns them."""
    import torch

    side = torch.cuda.Stream() if device == "cuda" else None
    samples = times_us({"us": transfer}, device)
    once_us = min(samples["us"])
    count = math.ceil(MARGIN * PRODUCTS * alone_us / once_us)
    times = [
        products_us(product, transfer, side, count, device)
        for _ in range(ROUNDS)
    ]
    ended = slowest([float(not outlasted) for _, outlasted in times], device)
    products = max(1, round(once_us / alone_us))
    pairs = {"in_order_us": in_order(product, transfer, products)}
    if side is not None:
        pairs["side_by_side_us"] = pair(product, transfer, side, products)
    return {
        **samples,
        "product_us": slowest([us for us, _ in times], device),
        "outlasted": not any(ended),
        "products": products,
        **times_us(pairs, device),
    }


EXPERIMENTS = (
    Experiment(
        chapter="several_gpus",
        name="beside",
        gpus=2,
        probe=beside,
        parameters={
            "matmul_size": 8192,
            "mebibytes": 512,
            "max_ctas": "2,4,8,16",
        },
        trial={"max_ctas": "4"},
    ),
)
