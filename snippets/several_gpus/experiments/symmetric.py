"""Symmetric memory: copies to a neighbor, and kernels that add up the numbers
of all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from snippets.several_gpus.experiments.clocks import (
    Step,
    each_us,
    repeated,
    times_us,
)
from snippets.several_gpus.experiments.numbers_of_ranks import (
    ITEM_BYTES,
    random_numbers,
)

if TYPE_CHECKING:
    from torch import Tensor

CALLS = 20
"""Of a measurement in a CUDA graph."""
TOLERANCE = 1e-2
"""Of a sum in bf16, whose order differs between kernels."""


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
