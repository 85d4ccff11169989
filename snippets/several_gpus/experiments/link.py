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

if TYPE_CHECKING:
    from torch import Tensor

KIB, MIB = 1 << 10, 1 << 20
ITEM_BYTES = 2  # of bf16
SMALL_BYTES = 4 * MIB
"""Up to here, a graph of a measurement has `CALLS` calls, else two."""
CALLS = 20
TOLERANCE = 1e-2
"""Of a sum in bf16, whose order differs between kernels."""


def random_numbers(device: str, rank: int, count: int) -> Tensor:
    """(count,) in bf16, other numbers on each rank."""
    import torch

    draw = torch.Generator(device).manual_seed(1 + rank)
    dtype = torch.bfloat16
    return torch.randn(count, dtype=dtype, device=device, generator=draw)


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


def symmetric(device: str, count: int) -> tuple[Any, Any, str]:
    """A tensor (count,) in bf16 that all ranks can address, its handle, and
    the name of the group."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symm_mem

    name = dist.group.WORLD.group_name  # type: ignore[union-attr]
    place = torch.device(device, torch.cuda.current_device())
    shared = symm_mem.empty((count,), dtype=torch.bfloat16, device=place)
    return shared, symm_mem.rendezvous(shared, name), name


def neighbor_copy(
    device: str, rank: int, world: int, size: int
) -> Callable[[], Tensor]:
    """A copy of so many bytes into the memory of the next rank's GPU."""
    import torch

    shared, handle, _ = symmetric(device, size // ITEM_BYTES)
    there = handle.get_buffer(
        (rank + 1) % world, (size // ITEM_BYTES,), torch.bfloat16
    )
    here = random_numbers(device, rank, size // ITEM_BYTES)

    def copy() -> Tensor:
        copied: Tensor = there.copy_(here)
        return copied

    copy.keeps = shared, handle  # type: ignore[attr-defined]
    return copy


def copies(device: str, rank: int, world: int, size: int) -> dict[str, Any]:
    """Copies to the next rank's memory: by rank 0 alone, and by all ranks.

    Returns {"bytes": of one copy, "one_us", "all_us"}.
    """
    if device != "cuda":
        return {"missing": "needs GPUs that address each other's memory"}
    copy = neighbor_copy(device, rank, world, size)
    one = copy if rank == 0 else lambda: None
    return {"bytes": size, **times_us({"one_us": one, "all_us": copy}, device)}


def symmetric_memory(
    device: str, rank: int, sizes: list[int]
) -> dict[str, Any]:
    """All-reduce by NCCL, and by kernels that read the other ranks' memory.

    One shot: each rank reads all numbers of all ranks. Two shots: each rank
    adds up its part, and the others read it. Neither uses multicast.
    Returns {bytes: {"nccl_us", "one_shot_us", "two_shot_us", "error": the
    larger of the two}}, in CUDA graphs of repeated calls.
    """
    if device != "cuda":
        return {"missing": "needs GPUs that address each other's memory"}
    found: dict[str, Any] = {}
    for size in sizes:
        shared, _, group = symmetric(device, size // ITEM_BYTES)
        steps = all_reduces(shared, group)
        error = sum_error(steps, shared, rank)
        graphs = {
            name: repeated(step, device, CALLS) for name, step in steps.items()
        }
        samples = times_us(graphs, device)
        found[str(size)] = {
            name: each_us(each, CALLS) for name, each in samples.items()
        }
        found[str(size)]["error"] = error
    return found


def all_reduces(shared: Tensor, group: str) -> dict[str, Step]:
    """The three ways to add up a shared tensor."""
    import torch
    import torch.distributed as dist

    kernels = torch.ops.symm_mem
    private = shared.clone()
    return {
        "nccl_us": lambda: dist.all_reduce(private, op=dist.ReduceOp.AVG),
        "one_shot_us": lambda: kernels.one_shot_all_reduce(
            shared, "sum", group
        ),
        "two_shot_us": lambda: kernels.two_shot_all_reduce_(
            shared, "sum", group
        ),
    }


def sum_error(steps: dict[str, Step], shared: Tensor, rank: int) -> float:
    """The larger relative error of both kernels, against NCCL's sum in
    float32. Raises `ArithmeticError` if it is too large."""
    import torch
    import torch.distributed as dist

    mine = random_numbers("cuda", rank, shared.numel())
    exact = mine.float()
    dist.all_reduce(exact)
    errors = []
    for name in ("one_shot_us", "two_shot_us"):
        shared.copy_(mine)
        torch.cuda.synchronize()
        dist.barrier()
        result: Any = steps[name]()
        error = (result.float() - exact).norm() / exact.norm()
        errors.append(float(error.item()))
        dist.barrier()
    shared.copy_(mine)
    if not max(errors) <= TOLERANCE:  # NaN is wrong too
        raise ArithmeticError(f"relative error of a sum {max(errors):.1e}")
    return max(errors)


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
        )


EXPERIMENTS = tuple(link_probes())
