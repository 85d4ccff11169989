"""Decisions made once for a shape: the ways to do its work."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from . import tuning
from .support import known, say_once, unsupported
from .ways import Way
from .work import Sizes

# --8<-- [start:plan]
PLANS: dict[tuple, tuple[Way, ...]] = {}
"""Work and the shapes, types and devices of its tensors -> the ways to do it,
empty if plain PyTorch does it."""
PLANS_KEPT = 1024


def planned(
    make: Callable[..., tuple[tuple[Way, ...], bool]],
    activation: str,
    *tensors: Tensor,
) -> tuple[Way, ...]:
    """The ways to do this work. `make` decides them when it first sees the
    shapes, and returns whether the decision is final."""
    key = (
        make,
        activation,
        *[(one.shape, one.dtype, one.get_device()) for one in tensors],
    )
    ways = PLANS.get(key)
    if ways is None:
        ways, is_settled = make(activation, *map(ready, tensors))
        if is_settled:
            if len(PLANS) >= PLANS_KEPT:
                PLANS.clear()
            PLANS[key] = ways
    return ways


def tuned(
    work: str, ways: dict[str, Way], run: Callable, *tensors: Tensor
) -> tuple[tuple[Way, ...], bool]:
    """The way that tuning chooses, where `run(way)` calls it with these
    tensors; empty if no way runs. Also whether the choice is final: nothing can
    be timed while a CUDA graph is captured."""

    def compile_all() -> None:
        from .launch import compile_together

        compile_together(ways.values(), *tensors)

    trials = {name: functools.partial(run, way) for name, way in ways.items()}
    try:
        name = tuning.choose(work, trials, compile_all)
    except tuning.NoWay as error:
        say_once(f"none of their launches succeeds ({error})")
        return (), True
    return (ways[name or next(iter(ways))],), name is not None


def named(work: str, activation: str, sizes: Sizes, only_portable: bool) -> str:
    """The name of tuned work on disk."""
    portable = " portable" if only_portable else ""
    return f"{work} {activation} {sizes.name}{portable}"


def ready(tensor: Tensor) -> Tensor:
    """The tensor in the form that the kernels read: contiguous, at an address
    that is a multiple of 16."""
    if tensor.is_contiguous() and not tensor.data_ptr() & 15:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def is_plain(
    activation: str, *tensors: Tensor, is_pointwise: bool = False
) -> bool:
    """Whether PyTorch does the work: it is unsupported, which warns once, or
    empty."""
    known(activation)
    reason = unsupported(*tensors, is_pointwise=is_pointwise)
    if reason:
        say_once(reason)
    return bool(reason) or not all(one.numel() for one in tensors)


# --8<-- [end:plan]
