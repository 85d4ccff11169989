"""A training loop as its user wrote it: profiled, compared with its float32 run, timed in blocks of iterations.

    iteration  wall time per iteration of a block, batches fetched and the GPU done; variants A B, B A

A block's first iterations are not timed: a loader has prefetched their batches while another variant ran.

Of several ranks, each runs its loop: the mean of their losses is compared, a block begins when all ranks are there, and
the slowest rank's time counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from snippets.lab.capture.agreement import ALONE, Ranks
from snippets.lab.capture.gpu import Gpu
from snippets.lab.capture.profiling import synchronize
from snippets.lab.capture.timing import Sample, sample_interleaved, timing_of
from snippets.lab.experiment import Experiment, ExperimentError, Loop, WrongAnswer
from snippets.lab.recording.schema import Timing

ROUNDS, ROUNDS_OF_RANKS = 7, 5
BLOCK_S = 0.15
MIN_ITERATIONS = 4
CHECKED = 3
"""Iterations with compared losses; the first allocates gradients and the optimizer's state."""
MAX_GROWTH = 1e6
"""The largest reference loss, as a multiple of the first: beyond it, the losses diverge."""


@dataclass(frozen=True)
class TimedLoop:
    """A loop, its device, and the iterations of a timed block."""

    loop: Loop
    device: str
    iterations: int = MIN_ITERATIONS
    ranks: Ranks = ALONE


@contextmanager
def open_loop(experiment: Experiment, device: str, ranks: Ranks = ALONE) -> Iterator[Loop]:
    """Call the maker; at the end stop the loop, and with it its loader's workers."""
    assert experiment.loop is not None
    loop = experiment.loop(device=device, **ranks.arguments, **experiment.parameters)
    if not isinstance(loop, Loop):
        raise ExperimentError(f"{experiment.id}: loop returned a {type(loop).__name__}; return a Loop")
    with closing(loop.losses):
        yield loop


def profile_loop(experiment: Experiment, loop: Loop, device: str, ranks: Ranks = ALONE) -> profile:
    """Run an experiment's schedule under `torch.profiler` and return the finished profile of this rank."""
    for _ in range(experiment.first_steps):
        next(loop.losses)
    synchronize(device)
    ranks.barrier()
    plan = experiment.schedule
    prof = profile(
        activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda"),
        schedule=schedule(wait=plan.wait, warmup=plan.warmup, active=plan.active, repeat=1),
        acc_events=True,
        record_shapes="record_shapes" in experiment.profiler_options,
        with_stack="with_stack" in experiment.profiler_options,
        profile_memory="profile_memory" in experiment.profiler_options,
    )
    with prof:
        for _ in range(plan.steps):
            with record_function(experiment.label):
                next(loop.losses)
            prof.step()
        synchronize(device)
    return prof


def check_loop(loop: Loop, device: str, ranks: Ranks = ALONE) -> tuple[float, str, int]:
    """Compare the first losses of a fresh loop with those of its reference, and measure its memory.

    Returns the relative error, the reference's dtype and the peak bytes of later iterations beyond the bytes allocated
    before, of the rank with most. Rank 0 computes the reference while the others wait. Raises `WrongAnswer` on every
    rank.
    """
    losses = [next(loop.losses).item()]
    before = 0
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    losses += [next(loop.losses).item() for _ in range(CHECKED - 1)]
    peak_bytes = torch.cuda.max_memory_allocated() - before if device == "cuda" else 0
    expected = ranks.gather(list(loop.reference(CHECKED)) if ranks.is_first else [])[0]
    if max(map(abs, expected)) > MAX_GROWTH * abs(expected[0]) > 0:  # the last loss would hide errors of the others
        raise WrongAnswer(f"the losses of the reference grow to {max(expected):.1e}; use a smaller learning rate")
    error = math.dist(ranks.means(losses), expected) / math.hypot(*expected)
    if not error <= loop.tolerance:  # NaN is wrong too
        raise WrongAnswer(f"relative error of the losses {error:.2e}, at most {loop.tolerance:.0e} allowed")
    return error, "float32", int(ranks.largest(peak_bytes))


def keep_reference(loop: Loop, path: Path) -> Loop:
    """The loop with its reference losses kept in a file: rank 0 computes them in the first process, and no other
    process makes several GPUs wait for them."""

    def reference(count: int) -> Sequence[float]:
        if not path.exists():
            path.write_bytes(msgspec.json.encode(list(loop.reference(count))))
        return msgspec.json.decode(path.read_bytes(), type=list[float])

    return replace(loop, reference=reference)


def time_loops(loops: Mapping[str, Loop], device: str, gpu: Gpu, ranks: Ranks = ALONE) -> dict[str, Timing]:
    """The wall time of an iteration of each loop, blocks A B, B A; of several ranks, the slowest rank's."""
    timed = {name: _with_iterations(loop, device, ranks) for name, loop in loops.items()}
    rounds = ROUNDS if ranks.world == 1 else ROUNDS_OF_RANKS
    sampled = sample_interleaved(timed, rounds, lambda each: _block(each, gpu))
    return {name: timing_of(samples) for name, samples in sampled.items()}


def _with_iterations(loop: Loop, device: str, ranks: Ranks) -> TimedLoop:
    """The loop with the number of iterations that takes `BLOCK_S`: the same number on every rank."""
    shortest = TimedLoop(loop, device, ranks=ranks)
    seconds = _block(shortest, Gpu()).us / 1e6
    return TimedLoop(loop, device, max(MIN_ITERATIONS, math.ceil(BLOCK_S / seconds)), ranks)


def _block(timed: TimedLoop, gpu: Gpu) -> Sample:
    losses = timed.loop.losses
    for _ in range(timed.loop.lead):
        next(losses)
    synchronize(timed.device)
    timed.ranks.barrier()
    begin = time.perf_counter_ns()
    for _ in range(timed.iterations):
        next(losses)
    synchronize(timed.device)
    elapsed_us = timed.ranks.largest((time.perf_counter_ns() - begin) / 1e3)
    return Sample(elapsed_us / timed.iterations, gpu.reading(energy=False))
