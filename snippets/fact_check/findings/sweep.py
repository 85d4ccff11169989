"""The block Linear, GELU, Linear at many numbers of tokens, in three precisions: fact_check/block."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from snippets.lab.finding import Device, Figure, ratio_of_pairs, timing_of_samples
from snippets.lab.recording.schema import NotTimed, Timing

PRECISIONS = {"bfloat16": "bf16", "tf32": "TF32", "float32": "float32"}
"""Key of the recording -> name on pages."""
FUSED = ("epilogue", "pingpong")
"""GELU in the first product: by cuBLAS's epilogue, or by this book's kernel for Hopper."""
EXPERIMENT = "fact_check/block"


def sizes(device: Device, arithmetic: str, variant: str = "block") -> list[int]:
    """The numbers of tokens at which a variant was timed, rising."""
    samples = device[EXPERIMENT].data["samples_us"].get(arithmetic, {})
    return sorted(int(tokens) for tokens, variants in samples.items() if variant in variants)


def block_timing(device: Device, arithmetic: str, tokens: int, variant: str) -> Timing:
    """The timing of a variant at a size. Raises `NotTimed`."""
    samples = device[EXPERIMENT].data["samples_us"].get(arithmetic, {}).get(str(tokens), {})
    if variant not in samples:
        raise NotTimed(f"{EXPERIMENT} has no {variant} in {PRECISIONS[arithmetic]} at {tokens} tokens")
    return timing_of_samples(samples[variant])


def fastest_fused(device: Device, arithmetic: str, tokens: int) -> str:
    """The fused block that takes the least time at a size. Raises `NotTimed`."""
    timed = [variant for variant in FUSED if tokens in sizes(device, arithmetic, variant)]
    if not timed:
        raise NotTimed(f"{EXPERIMENT} has no fused block in {PRECISIONS[arithmetic]} at {tokens} tokens")
    return min(timed, key=lambda variant: block_timing(device, arithmetic, tokens, variant).median_us)


def fused_timing(device: Device, arithmetic: str, tokens: int) -> Timing:
    """The timing of the fastest fused block."""
    return block_timing(device, arithmetic, tokens, fastest_fused(device, arithmetic, tokens))


def gain(device: Device, arithmetic: str, tokens: int) -> Figure:
    """The eager block's time / the fastest fused block's."""
    plain = block_timing(device, arithmetic, tokens, "block")
    origin = f"{EXPERIMENT}, {PRECISIONS[arithmetic]}, {tokens:,} tokens"
    return ratio_of_pairs(plain, fused_timing(device, arithmetic, tokens), origin)


def tokens_taking(device: Device, arithmetic: str, variant: str, us: float) -> float:
    """The number of tokens at which a variant takes so long, between two sizes by their logarithms.

    Raises `NotTimed` if no size takes as long, or each takes longer.
    """
    timed = [
        (tokens, block_timing(device, arithmetic, tokens, variant).median_us) for tokens in sizes(device, arithmetic)
    ]
    for (fewer, below), (more, above) in itertools.pairwise(timed):
        if below <= us <= above:
            share = math.log(us / below) / math.log(above / below) if above > below else 0.0
            return fewer * math.pow(more / fewer, share)
    raise NotTimed(f"no size in {PRECISIONS[arithmetic]} takes that long")


def between_sizes(device: Device, arithmetic: str, tokens: float, of: Callable[[int], Figure]) -> Figure:
    """A figure at a number of tokens between two sizes, by their logarithms, and its spread alike."""
    fewer, more = _neighbors(sizes(device, arithmetic), tokens)
    if fewer == more:
        return of(fewer)
    left, right = of(fewer), of(more)
    share = math.log(tokens / fewer) / math.log(more / fewer)

    def at(below: float, above: float) -> float:
        return below * math.pow(above / below, share)

    spread = (at(left.bounds[0], right.bounds[0]), at(left.bounds[1], right.bounds[1]))
    return Figure(at(left.number, right.number), left.unit, spread, f"{left.origin} to {right.origin}")


def _neighbors(timed: Sequence[int], tokens: float) -> tuple[int, int]:
    """The sizes next to a number of tokens. Raises `NotTimed` outside of all sizes."""
    below = [size for size in timed if size <= tokens]
    above = [size for size in timed if size >= tokens]
    if not below or not above:
        raise NotTimed(f"{EXPERIMENT} has no sizes around {tokens:,.0f} tokens")
    return below[-1], above[0]


def time_at(device: Device, arithmetic: str, tokens: float, variant: str) -> Figure:
    """The time of a variant, or of the fastest `fused` block, at a number of tokens between two sizes."""

    def time(size: int) -> Figure:
        chosen = (
            fused_timing(device, arithmetic, size)
            if variant == "fused"
            else block_timing(device, arithmetic, size, variant)
        )
        return Figure.from_timing(chosen, f"{EXPERIMENT}, {variant}, {size:,} tokens")

    return between_sizes(device, arithmetic, tokens, time)


def gain_at(device: Device, arithmetic: str, tokens: float) -> Figure:
    """The gain of fusing at a number of tokens between two sizes."""
    return between_sizes(device, arithmetic, tokens, lambda size: gain(device, arithmetic, size))
