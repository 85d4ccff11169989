"""The link: collectives by size, many calls for the same bytes, copies to a
neighbor, and all-reduce in symmetric memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import Experiment, Instruments
from snippets.several_gpus.experiments.clocks import (
    Step,
    each_us,
    numbers,
    repeated,
    stopped,
    times_us,
)
from snippets.several_gpus.experiments.numbers_of_ranks import (
    ITEM_BYTES,
    random_numbers,
)
from snippets.several_gpus.experiments.symmetric import (
    CALLS,
    copies,
    symmetric_memory,
)

if TYPE_CHECKING:
    from torch import Tensor

KIB, MIB = 1 << 10, 1 << 20
SMALL_BYTES = 4 * MIB
"""Up to here, a graph of a measurement has `CALLS` calls, else two."""


def average_of(device: str) -> Any:
    """How numbers of the ranks become one: a mean, which keeps repeated calls
    finite. gloo has no mean, so it takes the largest."""
    import torch.distributed as dist

    return dist.ReduceOp.AVG if device == "cuda" else dist.ReduceOp.MAX


def collectives_of(whole: Tensor, part: Tensor, op: Any) -> dict[str, Step]:
    """The three collectives on an array (count,), of which each rank has the
    whole, or a part (count / ranks,) of its own."""
    import torch.distributed as dist

    return {
        "all_reduce": lambda: dist.all_reduce(whole, op=op),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(
            part, whole, op=op
        ),
    }


def curve(
    device: str, rank: int, world: int, sizes: list[int], in_graph: bool
) -> dict[str, dict[str, list[float]]]:
    """Each collective by the bytes of the whole array: microseconds of a call
    in a CUDA graph of repeated calls, or launched by Python one by one.

    Returns {collective: {bytes: samples}}.
    """
    count = max(sizes) // ITEM_BYTES
    whole = random_numbers(device, rank, count)
    part = random_numbers(device, rank, count // world)
    found: dict[str, dict[str, list[float]]] = {}
    for size in sizes:
        count = size // ITEM_BYTES
        steps = collectives_of(
            whole[:count], part[: count // world], average_of(device)
        )
        calls = 1
        if in_graph:
            calls = CALLS if size <= SMALL_BYTES else 2
            steps = {
                name: repeated(step, device, calls)
                for name, step in steps.items()
            }
        for name, samples in times_us(steps, device).items():
            by_size = found.setdefault(name, {})
            by_size[str(size)] = each_us(samples, calls)
    return found


def many_calls(
    device: str, rank: int, size: int, counts: list[int], in_graph: bool
) -> dict[str, list[float]]:
    """All-reduce of the same bytes in more and more calls: microseconds of
    all calls, in a CUDA graph or launched by Python.

    Returns {calls: samples}.
    """
    whole = random_numbers(device, rank, size // ITEM_BYTES)
    steps: dict[str, Step] = {}
    for count in counts:
        step = functools.partial(
            reduce_parts, whole.chunk(count), average_of(device)
        )
        steps[str(count)] = repeated(step, device, 1) if in_graph else step
    return times_us(steps, device)


def reduce_parts(parts: Sequence[Tensor], op: Any) -> None:
    """An all-reduce of each part."""
    import torch.distributed as dist

    for part in parts:
        dist.all_reduce(part, op=op)


def link(
    instruments: Instruments,
    device: str,
    rank: int,
    world: int,
    kibibytes: str,
    calls: str,
    calls_mebibytes: int,
    copy_mebibytes: int,
    symmetric_kibibytes: str,
) -> dict[str, Any]:
    """All measurements of the link.

    Python's launches come first, because NCCL orders later launches with the
    graphs that it is captured in.
    Returns {"ranks", "collectives": {collective: {bytes: {"us": in a CUDA
    graph, "launched_us": launched by Python}}}, "calls": {"bytes", "counts":
    {calls: {"us", "launched_us"}}}, "copies", "symmetric"}; a part that failed
    is {"stopped": why}.
    """
    sizes = [KIB * each for each in numbers(kibibytes)]
    size, counts = MIB * calls_mebibytes, numbers(calls)
    by_size = functools.partial(curve, device, rank, world, sizes)
    by_count = functools.partial(many_calls, device, rank, size, counts)
    launched, launched_calls = by_size(False), by_count(False)
    graphs, graph_calls = by_size(True), by_count(True)
    symmetric_sizes = [KIB * each for each in numbers(symmetric_kibibytes)]
    copied = functools.partial(copies, device, rank, world)
    return {
        "ranks": world,
        "collectives": {
            name: both(graphs[name], launched[name]) for name in graphs
        },
        "calls": {"bytes": size, "counts": both(graph_calls, launched_calls)},
        "copies": or_reason(lambda: copied(MIB * copy_mebibytes)),
        "symmetric": or_reason(
            lambda: symmetric_memory(device, rank, symmetric_sizes)
        ),
    }


def both(
    graphs: Mapping[str, list[float]], launched: Mapping[str, list[float]]
) -> dict[str, dict[str, list[float]]]:
    """Samples of calls in graphs and of launched calls under the same keys."""
    return {
        key: {"us": graphs[key], "launched_us": launched[key]} for key in graphs
    }


def or_reason(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A part of the data, or why it failed."""
    import torch

    try:
        return measure()
    except torch.AcceleratorError:  # the GPU is unusable from here
        raise
    except RuntimeError as error:
        return stopped(error)


def link_probes() -> Iterator[Experiment]:
    """The same measurements on two and on four GPUs."""
    for gpus in (2, 4):
        yield Experiment(
            chapter="several_gpus",
            name=f"link_{gpus}",
            gpus=gpus,
            probe=link,
            parameters={
                "kibibytes": "4,16,64,256,1024,4096,16384,65536,262144,1048576",
                "calls": "1,4,16,64,256,1024",
                "calls_mebibytes": 64,
                "copy_mebibytes": 256,
                "symmetric_kibibytes": "16,64,256,1024,4096,16384",
            },
            trial={
                "kibibytes": "4,1024,65536",
                "calls": "1,16",
                "symmetric_kibibytes": "64,16384",
            },
        )


EXPERIMENTS = tuple(link_probes())
