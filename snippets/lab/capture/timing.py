"""How long a step takes, in a process that has never profiled: CUDA graph
replays, variants interleaved.

    interleaved  a graph of one step per input set, all sets
                 together larger than the L2 cache; time / sets
    cold         the cache overwritten, then a graph of one step
    from_python  a Python loop, until the GPU is done
    enqueue      the same loop, until the last launch has returned

Variants are timed A B, B A, A B, ... so that clock and power drift affect them
alike. Sample i of one variant is the partner of sample i of every other.
steady.py times the same graphs in blocks of seconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

from snippets.lab.capture.gpu import Gpu, Reading
from snippets.lab.experiment import Subject
from snippets.lab.recording.schema import Timing, Timings

V = TypeVar("V")
ROUNDS = 41
FROM_PYTHON_ROUNDS = 21
FROM_PYTHON_STEPS = 20
"""Few enough that the launch queue (1024 entries on today's drivers) never
makes the CPU wait for the GPU."""
Timed = tuple[dict[str, Timings], dict[str, Timing]]
"""The timings of variants, by name, and of the ceilings in the same turns, by
name."""
MIN_SETS, MAX_SETS = 4, 4096
MIN_SAMPLE_US = 2_000.0
"""A shorter graph is replayed several times per sample, so that the event
clock's 0.5 us do not matter."""


@dataclass
class Variant:
    """A subject prepared for timing."""

    subject: Subject
    input_sets: list[tuple[torch.Tensor, ...]]
    rotating: Callable[[], None]
    """Runs a step for each input set."""
    single: Callable[[], None]
    """Runs one step."""
    rotated_bytes: int
    outputs: list[torch.Tensor]
    replays: int = 1


@dataclass(frozen=True)
class Sample:
    """One sample of a variant, with NVML's reading during it."""

    us: float
    reading: Reading
    enqueue_us: float = 0.0


def timing_of(samples: Sequence[Sample]) -> Timing:
    """The timing of at least two samples, with the median clock and power, and
    every throttle reason."""
    readings = [sample.reading for sample in samples]
    return Timing.from_samples(
        [sample.us for sample in samples],
        clock_mhz=statistics.median(reading.clock_mhz for reading in readings),
        watts=round(statistics.median(reading.watts for reading in readings), 1),
        throttle=tuple(sorted({reason for reading in readings for reason in reading.throttle})),
    )


# fmt: off
# --8<-- [start:interleaved]
def time_interleaved(
    variants: Mapping[str, Variant], ceilings: Mapping[str, Variant], gpu: Gpu
) -> Timed:
    """Time all variants A B, B A, interleaved with the ceilings. Builds and
    compiles nothing."""
    flush = torch.empty(
        max(256 << 20, 4 * l2_bytes()), dtype=torch.uint8, device="cuda"
    )
    interleaved = sample_interleaved(
        {**variants, **ceilings}, ROUNDS, partial(_interleaved, gpu=gpu)
    )
    cold = sample_interleaved(
        variants, ROUNDS, partial(_cold, flush=flush, gpu=gpu)
    )
    from_python = sample_interleaved(
        variants, FROM_PYTHON_ROUNDS, partial(_from_python, gpu=gpu)
    )
    steps = {
        name: Timings(
            interleaved=timing_of(interleaved[name]),
            cold=timing_of(cold[name]),
            from_python=timing_of(from_python[name]),
            enqueue=Timing.from_samples(
                [sample.enqueue_us for sample in from_python[name]]
            ),
            input_sets=len(variant.input_sets),
            rotated_bytes=variant.rotated_bytes,
        )
        for name, variant in variants.items()
    }
    return steps, {name: timing_of(interleaved[name]) for name in ceilings}


# --8<-- [end:interleaved]
# fmt: on


def time_prepared(variants: Mapping[str, Variant], rounds: int, gpu: Gpu) -> dict[str, Timing]:
    """The interleaved time alone, of prepared variants, in at least two
    rounds."""
    sampled = sample_interleaved(variants, rounds, partial(_interleaved, gpu=gpu))
    return {name: timing_of(samples) for name, samples in sampled.items()}


def l2_bytes() -> int:
    """Size of this device's L2 cache."""
    return int(torch.cuda.get_device_properties(0).L2_cache_size)


# fmt: off
# --8<-- [start:prepare]
def prepare(subject: Subject) -> Variant:
    """Draw the input sets and capture the two graphs of a subject."""
    first = subject.inputs()
    output = subject.step(*first)
    per_set = sum(tensor.nbytes for tensor in (*first, output))
    count = min(MAX_SETS, max(MIN_SETS, -(-2 * l2_bytes() // per_set)))
    input_sets = [first, *(subject.inputs() for _ in range(count - 1))]
    # kept alive, or the graph would write them all to one place
    outputs: list[torch.Tensor] = []

    def all_sets() -> None:
        outputs.extend(subject.step(*inputs) for inputs in input_sets)

    def one_set() -> None:
        outputs.append(subject.step(*first))

    rotating = (
        _graph(all_sets) if subject.in_graph else _stream(all_sets, outputs)
    )
    single = _graph(one_set) if subject.in_graph else _stream(one_set, outputs)
    variant = Variant(
        subject, input_sets, rotating, single, count * per_set, outputs
    )
    once_us = replays_us(variant) * count
    variant.replays = max(1, round(MIN_SAMPLE_US / max(once_us, 1.0)))
    return variant


# --8<-- [end:prepare]
# fmt: on


def _stream(work: Callable[[], None], outputs: list[torch.Tensor]) -> Callable[[], None]:
    def run() -> None:
        outputs.clear()
        work()

    return run


def _graph(work: Callable[[], None]) -> Callable[[], None]:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay


def sample_interleaved(
    variants: Mapping[str, V],
    rounds: int,
    sample: Callable[[V], Sample],
) -> dict[str, list[Sample]]:
    """Discard one sample of each variant, then take `rounds` in the order A B,
    B A, A B, ..."""
    samples: dict[str, list[Sample]] = {name: [] for name in variants}
    for variant in variants.values():
        sample(variant)
    for turn in range(rounds):
        order = list(variants) if turn % 2 == 0 else list(variants)[::-1]
        for name in order:
            samples[name].append(sample(variants[name]))
    return samples


# fmt: off
# --8<-- [start:samples]
def _interleaved(variant: Variant, gpu: Gpu) -> Sample:
    start, end = (
        torch.cuda.Event(enable_timing=True),
        torch.cuda.Event(enable_timing=True),
    )
    if not variant.subject.in_graph:
        # keeps the GPU busy while the CPU enqueues the first of the steps that
        # are timed
        variant.single()
    start.record()
    for _ in range(variant.replays):
        variant.rotating()
    end.record()
    reading = gpu.reading(energy=False)  # while the GPU replays
    end.synchronize()
    return Sample(
        float(start.elapsed_time(end))
        * 1e3
        / (variant.replays * len(variant.input_sets)),
        reading,
    )


def _cold(variant: Variant, flush: torch.Tensor, gpu: Gpu) -> Sample:
    start, end = (
        torch.cuda.Event(enable_timing=True),
        torch.cuda.Event(enable_timing=True),
    )
    # also keeps the GPU busy while the CPU enqueues the three calls below
    flush.zero_()
    start.record()
    variant.single()
    end.record()
    reading = gpu.reading(energy=False)
    end.synchronize()
    return Sample(float(start.elapsed_time(end)) * 1e3, reading)


def _from_python(variant: Variant, gpu: Gpu) -> Sample:
    """Wall time of a step until the GPU is done, and the CPU's time to enqueue
    it."""
    step, sets = variant.subject.step, variant.input_sets
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for i in range(FROM_PYTHON_STEPS):
        step(*sets[i % len(sets)])
    enqueued = time.perf_counter_ns()
    torch.cuda.synchronize()
    done = time.perf_counter_ns()
    us, enqueue_us = (
        (until - begin) / 1e3 / FROM_PYTHON_STEPS for until in (done, enqueued)
    )
    return Sample(us, gpu.reading(energy=False), enqueue_us)


# --8<-- [end:samples]
# fmt: on


def replays_us(variant: Variant) -> float:
    """The time of a step in one sample of replays, from which their number is
    chosen."""
    return _interleaved(variant, Gpu()).us
