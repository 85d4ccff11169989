"""Tokens of the book's decoder on one GPU, and split over several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import Experiment, Instruments, WrongAnswer
from snippets.several_gpus.experiments.clocks import repeated, times_us
from snippets.several_gpus.experiments.stacks import (
    compute_dtype,
    relative_error,
)

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = 5e-2
"""Of the logits of a bf16 model of some thirty layers."""
READ_BYTES = 1 << 30


def split_decoder(size: str, device: str, leave: Callable[..., Any]) -> Any:
    """A decoder of the book, split over all ranks; `leave` adds what the
    ranks computed. The output head stays whole."""
    import torch.distributed as dist

    from snippets.decoder.model import build
    from snippets.several_gpus.tensor_parallel import split

    model = build(size, device, compute_dtype(device))
    # --8<-- [start:decoder]
    split(model, dist.group.WORLD, lambda x, _: x, leave)
    kv_heads = model.config.kv_heads // dist.get_world_size()
    model.config = replace(model.config, kv_heads=kv_heads)
    # --8<-- [end:decoder]
    return model


def filled_cache(model: Any, context: int) -> Any:
    """A cache of random keys and values, equal on every rank."""
    import torch

    from snippets.decoder.model import static_cache

    torch.manual_seed(1)
    cache = static_cache(model, 1, context)
    for kept in cache:
        kept.keys.normal_()
        kept.values.normal_()
    return cache


def part_of_cache(model: Any, whole: Any, rank: int, world: int) -> Any:
    """A rank's heads of a cache."""
    from snippets.decoder.model import static_cache

    cache = static_cache(model, 1, whole[0].keys.shape[2])
    for kept, other in zip(cache, whole, strict=True):
        kept.keys.copy_(other.keys.chunk(world, 1)[rank])
        kept.values.copy_(other.values.chunk(world, 1)[rank])
    return cache


def token_step(model: Any, cache: Any) -> Callable[[], Tensor]:
    """Decode a token at the last position of a cache: its logits (1, vocab)."""
    import torch

    from snippets.decoder.model import decode_one

    device = model.lm_head.weight.device
    token = torch.ones((1, 1), dtype=torch.long, device=device)
    end = cache[0].keys.shape[2] - 1
    position = torch.full((1,), end, device=device)

    def step() -> Tensor:
        with torch.no_grad():
            logits: Tensor = decode_one(
                model, token, position, cache, lambda logits: logits
            )
            return logits

    return step


def sums(leave: Callable[..., Any], like: Tensor, count: int) -> Any:
    """A step of so many sums over ranks, one behind the other."""
    import torch.distributed as dist

    def step() -> Tensor:
        y = like
        for _ in range(count):
            y = leave(y, dist.group.WORLD)
        return y

    return step


def ways_of(device: str, dim: int) -> dict[str, Callable[..., Any]]:
    """Ways to add what the ranks computed of one token; a way that this
    device lacks is left out."""
    import torch
    import torch.distributed as dist

    from snippets.several_gpus.tensor_parallel import Added, OneShot

    found: dict[str, Callable[..., Any]] = {"nccl": Added.apply}
    if device == "cuda":
        place = torch.device(device, torch.cuda.current_device())
        found["one_shot"] = OneShot(
            (1, 1, dim), compute_dtype(device), place, dist.group.WORLD
        )
    return found


def decode(
    instruments: Instruments,
    device: str,
    rank: int,
    world: int,
    sizes: str,
    context: int,
) -> dict[str, Any]:
    """A token of a decoder behind so many tokens, as a CUDA graph of eager
    kernels: on one GPU, and split over all, by kind of sum.

    Returns {"read": {"bytes", "us": samples of reading so many}, "sizes":
    {size: {"layers", "bytes": that a token reads, "whole_bytes": of these on
    every GPU, "us": {"one" or a way: samples}, "sums_us": {way: samples of all
    sums of a token, alone}, "error": {way: of the logits, against one GPU}}}}.
    """
    found = {}
    for size in sizes.split(","):
        found[size] = decoded(size, device, rank, world, context)
    return {"read": reading(device), "sizes": found}


def decoded(
    size: str, device: str, rank: int, world: int, context: int
) -> dict[str, Any]:
    """One size of `decode`."""
    from snippets.decoder.model import build, bytes_per_token

    model = build(size, device, compute_dtype(device))
    config, whole = model.config, filled_cache(model, context)
    one = token_step(model, whole)
    expected = one()
    tokens = {"one": repeated(one, device, 1)}
    alone: dict[str, Any] = {}
    errors: dict[str, float] = {}
    for way, leave in ways_of(device, config.dim).items():
        part = split_decoder(size, device, leave)
        step = token_step(part, part_of_cache(part, whole, rank, world))
        errors[way] = relative_error(step(), expected)
        if not errors[way] <= TOLERANCE:
            raise WrongAnswer(f"{size}, {way}: logits off by {errors[way]:.1e}")
        tokens[way] = repeated(step, device, 1)
        like = part.lm_head.weight[:1].view(1, 1, -1) * 0
        alone[way] = repeated(sums(leave, like, 2 * config.layers), device, 1)
    return {
        "layers": config.layers,
        "bytes": bytes_per_token(config, 1, context),
        "whole_bytes": model.lm_head.weight.nbytes,
        "us": times_us(tokens, device),
        "sums_us": times_us(alone, device),
        "error": errors,
    }


def reading(device: str) -> dict[str, Any]:
    """The time of reading 1 GiB, on a CPU 1 MiB, by a sum."""
    import torch

    size = READ_BYTES if device == "cuda" else 1 << 20
    dtype = compute_dtype(device)
    array = torch.zeros(size // dtype.itemsize, dtype=dtype, device=device)
    timed = times_us({"sum": repeated(array.sum, device, 1)}, device)
    return {"bytes": array.nbytes, "us": timed["sum"]}


def experiments() -> Iterator[Experiment]:
    """The probe on two GPUs and on four."""
    for gpus in (2, 4):
        yield Experiment(
            chapter="several_gpus",
            name=f"decode_on_{gpus}",
            gpus=gpus,
            parameters={"sizes": "1.1b,8b", "context": 512},
            probe=decode,
            time_limit_s=240,
        )


EXPERIMENTS = tuple(experiments())
