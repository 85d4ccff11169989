"""A product right after other work, and after idle times of several lengths."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from snippets.lab.experiment import Instruments, NeedsGpu

IDLE_CYCLES = (0, 500, 4_000, 10_000, 20_000, 40_000, 80_000)
"""Cycles that one thread spins before the second product; at 0 nothing is
launched between the two."""


def after_idle(
    instruments: Instruments,
    device: str,
    batch: int,
    seq: int,
    dim: int,
    hidden: int,
    rounds: int,
) -> dict[str, Any]:
    """Time the product of `up` in CUDA graphs, after three kinds of work and
    idle times of several lengths.

    The preceding work is `gate` (much arithmetic, a large result), a product
    with as much arithmetic and a small result, or a fill of four such results
    (no arithmetic). One spinning thread makes the idle time. Every graph
    repeats this for several inputs; the graphs are replayed interleaved (A B, B
    A) under the profiler.

    Returns the median microseconds of the preceding work, of the gaps, and of
    `up` in each round, by cycles.
    """
    import torch

    if device != "cuda":
        raise NeedsGpu("idle time between two kernels shows only on a GPU")

    def normal(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, dtype=torch.bfloat16, device=device)

    tokens, side = batch * seq, 2048
    inputs = [normal(tokens, dim) for _ in range(8)]
    results = [
        [
            torch.empty(tokens, hidden, dtype=torch.bfloat16, device=device)
            for _ in inputs
        ]
        for _ in range(2)
    ]
    gate, up = normal(hidden, dim).t(), normal(hidden, dim).t()
    deep = max(1, tokens * dim * hidden // side**2)
    left, right, small = (
        normal(side, deep),
        normal(side, deep).t(),
        normal(side, side),
    )
    large = torch.empty(
        4 * results[0][0].numel(), dtype=torch.bfloat16, device=device
    )
    befores: dict[str, Callable[[int], object]] = {
        "gate": lambda index: torch.mm(
            inputs[index], gate, out=results[0][index]
        ),
        "small result": lambda index: torch.mm(left, right, out=small),
        "fill": lambda index: large.fill_(1.0),
    }

    def captured(
        before: Callable[[int], object], cycles: int
    ) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for index, x in enumerate(inputs):
                before(index)
                if cycles:
                    torch.cuda._sleep(cycles)
                torch.mm(x, up, out=results[1][index])
        graph.replay()
        torch.cuda.synchronize()
        return graph

    befores["up"] = lambda index: torch.mm(
        inputs[index], up, out=results[1][index]
    )
    lengths = {
        name: len(_gpu_kernels(instruments, work))
        for name, work in befores.items()
    }
    graphs = {
        (name, cycles): captured(befores[name], cycles)
        for name in befores
        if name != "up"
        for cycles in IDLE_CYCLES
    }
    orders = [
        list(graphs) if turn % 2 == 0 else list(reversed(graphs))
        for turn in range(rounds)
    ]
    keys = [key for order in orders for key in order]

    def replay_all(_: int) -> None:
        for key in keys:
            graphs[key].replay()

    kernels = _gpu_kernels(instruments, replay_all)
    return {
        "cycles": list(IDLE_CYCLES),
        "after": idle_times(kernels, keys, lengths, len(inputs)),
    }


def _gpu_kernels(
    instruments: Instruments, work: Callable[[int], object]
) -> list[Any]:
    """The kernels of some work in order of their starts, profiled after one
    unprofiled call."""
    import torch

    work(0)  # cuBLAS chooses and allocates
    torch.cuda.synchronize()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA]
    ) as profiled:
        work(0)
        torch.cuda.synchronize()
    kernels = [
        activity
        for activity in instruments.read_activities(profiled)
        if activity.kind == "kernel"
    ]
    return sorted(kernels, key=lambda kernel: kernel.start_us)


def idle_times(
    kernels: Sequence[Any],
    replays: Sequence[tuple[str, int]],
    lengths: Mapping[str, int],
    repeats: int,
) -> dict[str, list[dict[str, list[float]]]]:
    """Medians of each replay, which repeats the preceding work, a spin (unless
    its cycles are 0) and `up`.

    Args:
        kernels: the kernels of all replays in order.
        replays: the preceding work and the cycles of each replay.
        lengths: numbers of kernels of the preceding work and of `up`.
        repeats: repetitions in a replay.

    Raises `RuntimeError` if another kernel is in the spin's place, or if
    kernels are left over.
    """
    found: dict[str, dict[int, dict[str, list[float]]]] = {}
    waiting = iter(kernels)
    for name, cycles in replays:
        samples: list[tuple[float, float, float]] = []
        for _ in range(repeats):
            before = list(itertools.islice(waiting, lengths[name]))
            spin = list(itertools.islice(waiting, 1 if cycles else 0))
            up = list(itertools.islice(waiting, lengths["up"]))
            if len(up) < lengths["up"] or [
                "spin" in kernel.name for kernel in (*before, *spin, *up)
            ].count(True) != len(spin):
                raise RuntimeError(
                    f"after {name} and {cycles} cycles, not the expected "
                    "kernels"
                )
            end = before[-1].start_us + before[-1].duration_us
            end_of_up = up[-1].start_us + up[-1].duration_us
            samples.append(
                (
                    end - before[0].start_us,
                    up[0].start_us - end,
                    end_of_up - up[0].start_us,
                )
            )
        times = found.setdefault(name, {}).setdefault(
            cycles, {"before_us": [], "gap_us": [], "up_us": []}
        )
        for key, values in zip(times, zip(*samples, strict=True), strict=True):
            times[key].append(round(statistics.median(values), 3))
    if next(waiting, None) is not None:
        raise RuntimeError("the profile has more kernels than the graphs")
    return {name: list(by_cycles.values()) for name, by_cycles in found.items()}
