"""How long a step takes on the GPU, without the profiler: CUDA graph replays, variants interleaved.

    interleaved  a graph of one step per input set, all sets together larger than the L2 cache; time / sets
    cold         the cache overwritten, then a graph of one step
    from_python  a Python loop, until the GPU is done
    enqueue      the same loop, until the last launch has returned

Variants are timed A B, B A, A B, ... so that clock and power drift hit them alike; sample i of one is the partner of
sample i of the other.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from snippets.lab.experiment import Subject
from snippets.lab.recording.schema import Timing, Timings

Sample = TypeVar("Sample")
ROUNDS = 41
FROM_PYTHON_ROUNDS = 21
FROM_PYTHON_STEPS = 20
"""Few enough that the launch queue (1024 entries on today's drivers) never makes the CPU wait for the GPU."""
MIN_SETS, MAX_SETS = 4, 4096
MIN_SAMPLE_US = 2_000.0
"""A shorter graph is replayed several times per sample, so that the event clock's 0.5 us do not matter."""


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


def timing_from_samples(samples_us: list[float]) -> Timing:
    """Median and quartiles of at least two samples, in microseconds."""
    q1, median, q3 = statistics.quantiles(samples_us, n=4, method="inclusive")
    return Timing(round(median, 3), round(q1, 3), round(q3, 3), tuple(round(sample, 3) for sample in samples_us))


# --8<-- [start:interleaved]
def time_interleaved(subjects: dict[str, Subject], progress: Callable[[str], None]) -> dict[str, Timings]:
    """Time all subjects in one process, A B, B A. Each must have been run before, so that nothing is built here.

    Call `progress(name)` before preparing each, which is where a step that cannot be timed fails.
    """
    variants = {}
    for name, subject in subjects.items():
        progress(name)
        variants[name] = prepare(subject)
    flush = torch.empty(max(256 << 20, 4 * l2_bytes()), dtype=torch.uint8, device="cuda")
    interleaved = sample_interleaved(variants, ROUNDS, _interleaved_us)
    cold = sample_interleaved(variants, ROUNDS, lambda variant: _cold_us(variant, flush))
    from_python = sample_interleaved(variants, FROM_PYTHON_ROUNDS, _from_python_us)
    return {
        name: Timings(
            interleaved=timing_from_samples(interleaved[name]),
            cold=timing_from_samples(cold[name]),
            from_python=timing_from_samples([both[1] for both in from_python[name]]),
            enqueue=timing_from_samples([both[0] for both in from_python[name]]),
            input_sets=len(variant.input_sets),
            rotated_bytes=variant.rotated_bytes,
        )
        for name, variant in variants.items()
    }


# --8<-- [end:interleaved]


def time_prepared(variants: dict[str, Variant], rounds: int = ROUNDS) -> dict[str, Timing]:
    """The interleaved time alone, of prepared variants; two rounds at least."""
    return {
        name: timing_from_samples(samples)
        for name, samples in sample_interleaved(variants, rounds, _interleaved_us).items()
    }


def l2_bytes() -> int:
    """Size of this device's L2 cache."""
    return int(torch.cuda.get_device_properties(0).L2_cache_size)


# --8<-- [start:prepare]
def prepare(subject: Subject) -> Variant:
    """Draw the input sets and capture the two graphs of a subject."""
    first = subject.inputs()
    output = subject.step(*first)
    per_set = sum(tensor.nbytes for tensor in (*first, output))
    count = min(MAX_SETS, max(MIN_SETS, -(-2 * l2_bytes() // per_set)))
    input_sets = [first, *(subject.inputs() for _ in range(count - 1))]
    outputs: list[torch.Tensor] = []  # kept alive, or the graph would write them all to one place

    def all_sets() -> None:
        outputs.extend(subject.step(*inputs) for inputs in input_sets)

    def one_set() -> None:
        outputs.append(subject.step(*first))

    rotating = _graph(all_sets) if subject.in_graph else _stream(all_sets, outputs)
    single = _graph(one_set) if subject.in_graph else _stream(one_set, outputs)
    variant = Variant(subject, input_sets, rotating, single, count * per_set, outputs)
    once_us = _interleaved_us(variant) * count
    variant.replays = max(1, round(MIN_SAMPLE_US / max(once_us, 1.0)))
    return variant


# --8<-- [end:prepare]


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
    variants: dict[str, Variant], rounds: int, sample: Callable[[Variant], Sample]
) -> dict[str, list[Sample]]:
    """Discard one sample of each, then take `rounds` in the order A B, B A, A B, ..."""
    samples: dict[str, list[Sample]] = {name: [] for name in variants}
    for variant in variants.values():
        sample(variant)
    for turn in range(rounds):
        order = list(variants) if turn % 2 == 0 else list(reversed(variants))
        for name in order:
            samples[name].append(sample(variants[name]))
    return samples


# --8<-- [start:samples]
def _interleaved_us(variant: Variant) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(variant.replays):
        variant.rotating()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / (variant.replays * len(variant.input_sets))


def _cold_us(variant: Variant, flush: torch.Tensor) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    flush.zero_()  # also keeps the GPU busy while the CPU enqueues the three calls below
    start.record()
    variant.single()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def _from_python_us(variant: Variant) -> tuple[float, float]:
    """(CPU time to enqueue a step, wall time of a step until the GPU is done), in microseconds."""
    step, sets = variant.subject.step, variant.input_sets
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for i in range(FROM_PYTHON_STEPS):
        step(*sets[i % len(sets)])
    enqueued = time.perf_counter_ns()
    torch.cuda.synchronize()
    done = time.perf_counter_ns()
    return (enqueued - begin) / 1e3 / FROM_PYTHON_STEPS, (done - begin) / 1e3 / FROM_PYTHON_STEPS


# --8<-- [end:samples]
