"""What sharding costs beside exposed transfers: conversions, copies and slower products, from traces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from kinetoscope.trace.communication import collectives, is_collective
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.intervals import union_of
from kinetoscope.trace.queries import kernel_time_us
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    Run,
    at_least,
    at_most,
    claim,
    compare_ranks,
    on_ranks,
)
from snippets.lab.finding.probed import difference
from snippets.several_gpus.findings.measured import products, share_during
from snippets.several_gpus.findings.sharded import TOKENS, hidden_from, over_alone, run_of

NEXT_TO = 0.9
"""A product is next to a collective if collectives run for this share of its time or more."""


def is_packing(kernel: GpuActivity) -> bool:
    """Whether FSDP2 launched a kernel that doesn't communicate: it converts or copies weights or gradients."""
    if is_collective(kernel) or kernel.op is None:
        return False
    return any(op.name.startswith("FSDP::") for op in kernel.op.chain)


def packing(device: Device, variant: str) -> Figure:
    """The time of FSDP2's own kernels in a step of the first rank."""
    return run_of(device, variant).per_step(lambda step: kernel_time_us(filter(is_packing, step.kernels)), "us")


def own_work(device: Device, variant: str) -> Figure:
    """The longest own work of a rank in a step: kernels and copies that don't communicate."""
    run = run_of(device, variant)
    most = max(part.own_us for part in compare_ranks(run).parts)
    return Figure(most, "us", origin=f"{run.origin}, in its trace")


def products_of_ranks(device: Device, variant: str) -> list[Figure]:
    """Rank -> the time of all products in its step."""
    runs = on_ranks(run_of(device, variant))
    return [run.per_step(lambda step: kernel_time_us(products(step)), "us") for run in runs]


def slower(steps: Sequence[Step]) -> float | None:
    """How many times as long products take next to a collective as without a collective; None if it can't be told.

    Compared are kernels of the same name, launch and shapes.
    """
    alone: dict[object, list[float]] = defaultdict(list)
    beside: dict[object, list[float]] = defaultdict(list)
    for step in steps:
        busy = union_of(collectives(step))
        for kernel in products(step):
            shapes = kernel.op.input_shapes if kernel.op else ()
            share = share_during(kernel, busy)
            if share == 0:
                alone[kernel.name, kernel.grid, shapes].append(kernel.duration_us)
            elif share >= NEXT_TO:
                beside[kernel.name, kernel.grid, shapes].append(kernel.duration_us)
    both = [key for key in alone if key in beside]  # in one order: sums of floats depend on it
    if not both:
        return None
    return sum(sum(beside[key]) for key in both) / sum(len(beside[key]) * median(alone[key]) for key in both)


def slower_products(device: Device, variant: str = "per_block") -> Figure:
    """The same products next to a collective over those without: the mean and the spread of the ranks."""
    run: Run = run_of(device, variant)
    found = [ratio for each in on_ranks(run) if (ratio := slower(each.steps)) is not None]
    if not found:
        raise NotTimed(f"{run.id} on {device.name}: no product runs both next to a collective and without")
    return Figure(sum(found) / len(found), "x", (min(found), max(found)), f"{run.origin}, in its trace")


@claim("SG72", at_least(1.05), scope="timing")
def products_are_slower(device: Device) -> Figure:
    """In a step with each block sharded, a product takes at least 5 % longer next to a collective than the same product
    without a collective."""
    return slower_products(device)


def tokens_by_formula(device: Device) -> int:
    """The least measured number of tokens with which products take as long as transfers, by the formula; else the
    most."""
    counts = sorted(map(int, device[TOKENS].data))
    return next((count for count in counts if count >= hidden_from(device).number), counts[-1])


@claim("SG73", at_most(1.25), scope="timing")
def enough_tokens_hide(device: Device) -> Figure:
    """With at least C (n - 1) / (n B) tokens on each GPU, sharding each block makes forward and backward take at most
    25 % longer.

    The formula has only the products and the transfers. Conversions and copies take as long with many tokens as with
    few tokens, and a product takes longer next to a collective.
    """
    return over_alone(device, str(tokens_by_formula(device)))


def added(device: Device, tokens: str, way: str = "per_block") -> Figure:
    """What sharding adds to forward and backward."""
    return difference(device, TOKENS, (tokens, way), (tokens, "alone"))


FIGURES: Mapping[str, Measure] = {
    "fsdp_packing": lambda device: packing(device, "per_block"),
    "fsdp_kept_packing": lambda device: packing(device, "kept"),
    "fsdp_root_packing": lambda device: packing(device, "root_only"),
    "fsdp_own": lambda device: own_work(device, "per_block"),
    "fsdp_root_own": lambda device: own_work(device, "root_only"),
    "fsdp_slower_products": slower_products,
    "fsdp_root_products_0": lambda device: products_of_ranks(device, "root_only")[0],
    "fsdp_root_products_1": lambda device: products_of_ranks(device, "root_only")[1],
    "fsdp_tokens_by_formula": lambda device: Figure(tokens_by_formula(device), origin=device[TOKENS].origin),
    "fsdp_over_alone_by_formula": lambda device: over_alone(device, str(tokens_by_formula(device))),
    "fsdp_added_512": lambda device: added(device, "512"),
    "fsdp_added_8192": lambda device: added(device, "8192"),
}
