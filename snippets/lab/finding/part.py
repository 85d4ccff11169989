"""A part of samples or steps: those of one process, or a third. Spreads are computed from three."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from snippets.lab.recording.schema import Timing

Item = TypeVar("Item")


def thirds(items: tuple[Item, ...]) -> tuple[tuple[Item, ...], ...]:
    """Three consecutive parts of three or more items, the last the longest; of fewer, one part."""
    third = len(items) // 3
    return (items[:third], items[third : 2 * third], items[2 * third :]) if third else (items,)


def part_of(parts: Sequence[tuple[Item, ...]], index: int) -> tuple[Item, ...]:
    """One of several parts; empty if there is no such part, or only one."""
    return parts[index] if 1 < len(parts) > index else ()


def part_of_timing(timing: Timing, index: int) -> Timing | None:
    """The samples of one process, as a timing; None if `part_of` finds no such part."""
    samples_us = part_of(timing.parts, index)
    if not samples_us:
        return None
    part = timing_of_samples(samples_us)
    return msgspec.structs.replace(
        timing, median_us=part.median_us, q1_us=part.q1_us, q3_us=part.q3_us, samples_us=samples_us, rounds=()
    )


def timing_of_samples(samples_us: Sequence[float]) -> Timing:
    """A timing with median and quartiles from one or more samples in microseconds."""
    several = samples_us if len(samples_us) > 1 else [*samples_us, *samples_us]
    q1, median, q3 = statistics.quantiles(several, n=4, method="inclusive")
    return Timing(median, q1, q3, tuple(samples_us))
