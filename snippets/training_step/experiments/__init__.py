"""What the chapter training_step measures: a healthy loop, faults before and after their fixes, and probes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from snippets.lab.experiment import Experiment, Loop, NeedsGpu, Schedule, Work
from snippets.training_step.experiments.compiling import (
    graph_breaks,
    lengths,
    tuning,
    with_own_precision,
    without_caches,
)
from snippets.training_step.probes import (
    clocks,
    memory,
    profiler_costs,
    ten_lines,
)

LABEL = "train_step"
HEALTHY: Mapping[str, int] = {
    "vocab": 16384,
    "dim": 1024,
    "heads": 16,
    "layers": 4,
    "seq": 1024,
    "batch": 16,
}
"""The sizes of the healthy step, which are the defaults for faults."""
SIZES: Mapping[str, Mapping[str, int]] = {
    "item": {"batch": 8, "layers": 2},
    "loader": {"dim": 512, "heads": 8, "batch": 32, "layers": 2, "vocab": 8192},
    "pageable": {"batch": 8, "layers": 2},
    "recompile": {
        "dim": 512,
        "heads": 8,
        "layers": 1,
        "batch": 8,
        "vocab": 8192,
    },
    "layout": {"layers": 2},
    "optimizer": {"batch": 4},
    "tensor_cores": {"batch": 8, "layers": 2},
    "vocabulary": {"vocab": 50257, "batch": 8, "layers": 2},
    "allocator": {"batch": 8, "layers": 2},
    "attention": {"batch": 8, "layers": 2},
    "tiny": {
        "vocab": 2048,
        "dim": 256,
        "heads": 4,
        "layers": 6,
        "seq": 128,
        "batch": 2,
    },
    "cold": {"layers": 2},
}
SIZES = {**SIZES, "breaks": SIZES["tiny"], "tuning": SIZES["recompile"]}
"""Fault -> sizes that show it."""


def sizes_of(fault: str) -> dict[str, int]:
    """The sizes of the loops of a fault."""
    return {**HEALTHY, **SIZES.get(fault, {})}


def step_work(
    vocab: int, dim: int, heads: int, layers: int, seq: int, batch: int
) -> Work:
    """The products of forward, each with two more in backward; half of the scores are masked.

    Bytes: each parameter, its gradient and AdamW's two moments are read and written once, in float32.
    """
    tokens = batch * seq
    linear = layers * 12 * dim * dim + dim * vocab
    attention = layers * 2 * tokens * seq * dim // 2
    return Work(
        bytes=2 * 4 * 4 * (linear + vocab * dim),
        other_flops=3 * 2 * (tokens * linear + attention),
    )


def float32_losses(
    device: str, batches: Iterable[Any], sizes: Mapping[str, int], count: int
) -> list[float]:
    """The losses of the first iterations in float32, without loader, autocast or compiler."""
    from snippets.training_step.model import make_parts, next_token_loss, update

    model, optimizer, _ = make_parts(device, **sizes)
    losses = []
    for inputs, targets in itertools.islice(batches, count):
        loss = next_token_loss(model, inputs.to(device), targets.to(device))
        update(model, optimizer, loss)
        losses.append(loss.item())
    return losses


def healthy(device: str, **sizes: int) -> Any:
    """The loop without a fault."""
    from snippets.training_step.model import make_parts, train

    model, optimizer, loader = make_parts(device, **sizes)
    return train(model, optimizer, loader, device)


def loop_of(
    device: str,
    variant: str,
    vocab: int,
    dim: int,
    heads: int,
    layers: int,
    seq: int,
    batch: int,
) -> Loop:
    """A loop of faults.py by name, or the healthy loop."""
    from snippets.training_step import faults
    from snippets.training_step.data import batches_of

    if device != "cuda" and variant == "pageable_after":
        raise NeedsGpu(
            "a CPU has no streams: training_step/pageable_before runs here"
        )
    sizes = {
        "vocab": vocab,
        "dim": dim,
        "heads": heads,
        "layers": layers,
        "seq": seq,
        "batch": batch,
    }
    start = getattr(faults, variant) if variant else healthy
    losses = start(device, **sizes)
    fault = variant.partition("_")[0]
    if fault == "recompile":
        losses = without_caches(losses)
    if variant.startswith("tensor_cores"):
        losses = with_own_precision(losses)
    return Loop(
        losses=losses,
        reference=lambda count: float32_losses(
            device, batches_of(fault, **sizes), sizes, count
        ),
        lead=24 if variant == "loader_after" else 4,
    )


def _loop(name: str, **more: Any) -> Experiment:
    fault = (
        name.partition("_")[0]
        if name.startswith(("cold", "healthy"))
        else name.rpartition("_")[0]
    )
    variant = "" if name.startswith(("cold", "healthy")) else name
    defaults = {
        "group": fault,
        "parameters": sizes_of(fault),
        "loop": partial(loop_of, variant=variant),
    }
    return Experiment(
        chapter="training_step",
        name=name,
        label=LABEL,
        work=step_work,
        **{**defaults, **more},
    )


def _pair(fault: str, *more: str) -> tuple[Experiment, ...]:
    return tuple(
        _loop(f"{fault}_{variant}") for variant in ("before", *more, "after")
    )


def _probe(
    name: str, probe: Any, sizes: Mapping[str, Any], **more: Any
) -> Experiment:
    return Experiment(
        chapter="training_step",
        name=name,
        probe=probe,
        parameters={**sizes, **more},
    )


EXPERIMENTS = (
    _loop("healthy"),
    _loop(
        "healthy_stacks",
        group="",
        timed=False,
        profiler_options=("record_shapes", "with_stack", "profile_memory"),
        schedule=Schedule(active=1),
    ),
    *_pair("item"),
    *_pair("loader"),
    *_pair("pageable", "pinned"),
    *(
        _loop(
            f"recompile_{variant}",
            timed=False,
            first_steps=1,
            profiler_options=(),
            schedule=Schedule(wait=0, active=1),
            time_limit_s=240,
        )
        for variant in ("before", "after")
    ),
    *(
        _loop(
            f"breaks_{variant}",
            profiler_options=("record_shapes", "with_stack"),
            schedule=Schedule(active=1),
        )
        for variant in ("before", "after")
    ),
    *_pair("layout"),
    *_pair("optimizer", "foreach"),
    *_pair("tensor_cores", "autocast"),
    *_pair("vocabulary"),
    *_pair("allocator"),
    *_pair("tiny", "compiled"),
    *_pair("attention"),
    _loop(
        "cold_before",
        timed=False,
        first_steps=0,
        schedule=Schedule(wait=0, warmup=0, active=3),
    ),
    _loop(
        "cold_after", timed=False, schedule=Schedule(wait=5, warmup=2, active=3)
    ),
    _probe("clocks", clocks, HEALTHY, times=20),
    _probe("lengths", lengths, sizes_of("recompile"), iterations=24),
    _probe("graph_breaks", graph_breaks, sizes_of("breaks")),
    _probe("tuning", tuning, sizes_of("tuning"), iterations=8),
    _probe("memory", memory, HEALTHY, iterations=24),
    _probe(
        "profiler_costs",
        profiler_costs,
        {"tiny": json.dumps(sizes_of("tiny")), "healthy": json.dumps(HEALTHY)},
        rounds=7,
        active=3,
    ),
    _probe("ten_lines", ten_lines, HEALTHY),
)
