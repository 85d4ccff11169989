"""A part of what was recorded: the samples of one process, or one active step. Spreads are computed from three."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from snippets.lab.recording.schema import Timing

Item = TypeVar("Item")


@dataclass
class Reads:
    """The recordings that a measure has read of a device."""

    runs: dict[str, None] = field(default_factory=dict)
    """Experiments and points, `mlp/sweep_eager[batch=1,seq=1]`, in the order of reading."""
    has_parts: bool = False
    """Whether a part of a recording, instead of all, was read."""


def thirds(items: tuple[Item, ...]) -> tuple[tuple[Item, ...], ...]:
    """Three consecutive parts of three or more items, the last the longest; of fewer, one part."""
    third = len(items) // 3
    return (items[:third], items[third : 2 * third], items[2 * third :]) if third else (items,)


def part_of(parts: Sequence[tuple[Item, ...]], index: int | None, reads: Reads | None) -> tuple[Item, ...]:
    """One of several parts, noted in `reads`; empty if all parts are requested or there is no such part."""
    if index is None or not 1 < len(parts) > index:
        return ()
    if reads is not None:
        reads.has_parts = True
    return parts[index]


def part_of_timing(timing: Timing, index: int | None, reads: Reads | None) -> Timing:
    """The samples of one process, as a timing; the whole timing if `part_of` finds no such part."""
    samples_us = part_of(timing.parts, index, reads) if index is not None else ()
    if not samples_us:
        return timing
    part = timing_of_samples(samples_us)
    return msgspec.structs.replace(
        timing, median_us=part.median_us, q1_us=part.q1_us, q3_us=part.q3_us, samples_us=samples_us, rounds=()
    )


def timing_of_samples(samples_us: Sequence[float]) -> Timing:
    """A timing with median and quartiles from one or more samples in microseconds."""
    several = samples_us if len(samples_us) > 1 else [*samples_us, *samples_us]
    q1, median, q3 = statistics.quantiles(several, n=4, method="inclusive")
    return Timing(median, q1, q3, tuple(samples_us))
