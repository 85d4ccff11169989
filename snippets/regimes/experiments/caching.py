"""What a large batch leaves in the cache for the kernel that reads it next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from snippets.lab.experiment import (
    Instruments,
    NeedsGpu,
    Subject,
    copy_subject,
)
from snippets.regimes.experiments.layer import layer_subjects

COPIED_BYTES = 1 << 29
"""Bytes of the copy that measures the memory's ceiling: half a GiB."""


def in_cache(
    instruments: Instruments,
    device: str,
    dim: int,
    hidden: int,
    sizes: str,
    rounds: int,
) -> dict[str, Any]:
    """How fast GELU reads the result that the preceding product has just
    written.

    Returns {"l2_bytes", "copy": {"bytes": read and written, "us": samples},
    "op_us": {op: {tokens: {"after": right after the product, "flushed": once
    the L2 cache holds other data}}}, "step_us": {tokens: {step: samples}}}. An
    op's times are those of its kernel in a profile, the others are interleaved.
    """
    import torch

    if device != "cuda":
        raise NeedsGpu("a CPU's caches are not what this asks about")
    tokens = [int(size) for size in sizes.split(",")]
    subjects = {
        count: layer_subjects(device, count, dim, hidden) for count in tokens
    }
    step_us: dict[str, dict[str, Sequence[float]]] = {}
    for count, steps in subjects.items():
        for subject in steps.values():
            instruments.relative_error(subject, device)
        step_us[str(count)] = {
            name: timing.samples_us
            for name, timing in instruments.time_interleaved(steps).items()
        }
    copied = copy_subject(device, COPIED_BYTES)
    copy_us = instruments.time_interleaved({"copy": copied})["copy"].samples_us
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    products = {count: steps["linear"] for count, steps in subjects.items()}
    return {
        "l2_bytes": l2_bytes,
        "copy": {"bytes": 2 * COPIED_BYTES, "us": copy_us},
        "op_us": op_times(instruments, products, l2_bytes, rounds),
        "step_us": step_us,
    }


# --8<-- [start:after]
def rounds_of(
    products: Mapping[int, Callable[[], Any]], other: Any, rounds: int
) -> list[tuple[str, int, str]]:
    """Run GELU, and a negation that moves the same number of bytes, right after
    the product and again after a read of `other`; return the sequence."""
    import torch
    from torch.nn import functional as F

    ops: dict[str, Callable[[Any], Any]] = {
        "gelu": partial(F.gelu, approximate="tanh"),
        "negation": torch.neg,
    }
    ran = []
    for number in range(rounds):
        for count in sorted(products, reverse=number % 2 == 1):
            for name, op in ops.items():
                hidden = products[count]()
                op(hidden)
                other.sum()
                op(hidden)
                ran += [(name, count, "after"), (name, count, "flushed")]
    return ran


# --8<-- [end:after]


def op_times(
    instruments: Instruments,
    products: Mapping[int, Subject],
    l2_bytes: int,
    rounds: int,
) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Microseconds of each op's kernel in a profile of these rounds. Raises
    `RuntimeError` if the profile has another number of kernels."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    other = torch.randn(l2_bytes, device="cuda")  # four times the cache
    # before the profile: random numbers would add kernels to it
    steps = {
        count: partial(product.step, *product.inputs())
        for count, product in products.items()
    }
    for count in (1, rounds):  # a process's first profile can lose kernels
        with profile(activities=[ProfilerActivity.CUDA]) as finished:
            ran = rounds_of(steps, other, count)
            torch.cuda.synchronize()
    kernels = sorted(
        (
            activity
            for activity in instruments.read_activities(finished)
            if "elementwise" in activity.name
        ),
        key=lambda activity: activity.start_us,
    )
    if len(kernels) != len(ran):
        raise RuntimeError(f"{len(kernels)} pointwise kernels of {len(ran)}")
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for (op, size, when), kernel in zip(ran, kernels, strict=True):
        times = found.setdefault(op, {}).setdefault(str(size), {})
        times.setdefault(when, []).append(round(kernel.duration_us, 3))
    return found
