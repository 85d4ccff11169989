"""Steady times: each variant alone for seconds, so that it runs at the clock
that its own power draw allows.

Interleaved with others, a variant that draws much power runs at the clock that
its neighbors leave it. A training job does not have such neighbors.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from snippets.lab.capture.gpu import Gpu, Reading
from snippets.lab.capture.timing import Variant, replays_us
from snippets.lab.recording.schema import Timing

BLOCK_S = 2.0
CHUNK_US = 20_000.0
"""Replays between two events; long enough that NVML answers while they run."""
LEAST_READINGS = 10
"""With fewer, a tick of NVML's energy counter at either end of a block changes
the power by a tenth, so power stays unknown."""
AHEAD = 2
"""Chunks that wait in the GPU's queue, so that it never idles."""


@dataclass(frozen=True)
class _Chunk:
    start: torch.cuda.Event
    end: torch.cuda.Event


def time_steady(variants: Mapping[str, Variant], gpu: Gpu, rotate: int = 0) -> dict[str, Timing]:
    """Time each variant in a block of `BLOCK_S`, the first half discarded.

    Args:
        variants: prepared variants.
        gpu: is read while the replays run.
        rotate: how many variants the order is rotated by; each process has
            its own.
    """
    names = list(variants)
    first = rotate % len(names) if names else 0
    return {name: _block(variants[name], gpu) for name in [*names[first:], *names[:first]]}


# fmt: off
# --8<-- [start:steady]
def _block(variant: Variant, gpu: Gpu) -> Timing:
    steps = len(variant.input_sets)
    once_us = replays_us(variant) * steps
    rounds = max(1, round(CHUNK_US / once_us))
    more_readings = round(rounds * once_us / CHUNK_US) - 1
    begin = time.perf_counter()
    waiting: deque[_Chunk] = deque()
    samples_us: list[float] = []
    readings: list[tuple[float, Reading]] = []
    while (elapsed_s := time.perf_counter() - begin) < BLOCK_S or len(
        samples_us
    ) < 3:
        waiting.append(_enqueue(variant, rounds))
        if len(waiting) <= AHEAD:
            continue
        while_running = [_read(gpu)]
        for _ in range(more_readings):
            time.sleep(CHUNK_US * 1e-6)
            while_running.append(_read(gpu))
        chunk = waiting.popleft()
        chunk.end.synchronize()
        if elapsed_s > BLOCK_S / 2:
            samples_us.append(
                float(chunk.start.elapsed_time(chunk.end))
                * 1e3
                / (rounds * steps)
            )
            readings += while_running
    torch.cuda.synchronize()
    return steady_timing(samples_us, readings)


# --8<-- [end:steady]
# fmt: on


def _read(gpu: Gpu) -> tuple[float, Reading]:
    return time.perf_counter(), gpu.reading(energy=True)


def _enqueue(variant: Variant, rounds: int) -> _Chunk:
    chunk = _Chunk(
        torch.cuda.Event(enable_timing=True),
        torch.cuda.Event(enable_timing=True),
    )
    chunk.start.record()
    for _ in range(rounds):
        variant.rotating()
    chunk.end.record()
    return chunk


def steady_timing(samples_us: list[float], readings: list[tuple[float, Reading]]) -> Timing:
    """The timing of a block's settled half, from its samples and NVML's
    readings with their seconds."""
    watts = counted_watts(readings) or statistics.median(reading.watts for _, reading in readings)
    watts = watts if len(readings) >= LEAST_READINGS else 0.0
    return Timing.from_samples(
        samples_us,
        clock_mhz=statistics.median(reading.clock_mhz for _, reading in readings),
        watts=round(watts, 1),
        joules=float(f"{watts * statistics.median(samples_us) * 1e-6:.5g}"),
        throttle=tuple(sorted({reason for _, reading in readings for reason in reading.throttle})),
    )


def counted_watts(readings: list[tuple[float, Reading]]) -> float:
    """Mean power from NVML's energy counter, between its first and its last
    tick; 0 with fewer than two ticks.

    The counter moves in ticks of many milliseconds, so the block's own begin
    and end cannot be used.
    """
    ticks = [(at, new.joules) for (_, old), (at, new) in itertools.pairwise(readings) if new.joules > old.joules]
    if len(ticks) < 2:
        return 0.0
    (begin_s, begin), (end_s, end) = ticks[0], ticks[-1]
    return (end - begin) / (end_s - begin_s)
