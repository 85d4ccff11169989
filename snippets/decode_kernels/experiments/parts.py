"""The parts of a decode step alone."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

from snippets.decode_kernels.experiments.variants import (
    BATCHES,
    SIZES,
    named,
    require_gpu,
)
from snippets.decoder.experiments.clocks import recorded, times_us
from snippets.decoder.experiments.token_loops import TEXT, model_of, prompt_of
from snippets.lab.experiment import Experiment, Instruments

PARTS = ("qkv", "attend", "out", "gate_up", "down", "head")


def parts(
    instruments: Instruments,
    device: str,
    size: str,
    batch: int,
    prompt: int,
    answer: int,
) -> dict[str, Any]:
    """Each part of a step alone: a CUDA graph of this part of every layer, so
    that its weights come from memory.

    Returns {part: {"us": samples for all layers, "bytes": that they read,
    "launches"}}.
    """
    require_gpu(device)
    step, config = step_of(size, device, batch, prompt, answer)
    context = prompt + answer // 2
    step.position.fill_(context)
    graphs = {
        part: recorded(functools.partial(run_part, step, part), device)
        for part in PARTS
    }
    samples = times_us(graphs, device)
    reading = part_bytes(config, batch, context)
    return {
        part: {
            "us": us,
            "bytes": reading[part],
            "launches": 1 if part == "head" else config.layers,
        }
        for part, us in samples.items()
    }


def run_part(step: Any, part: str, layers: int | None = None) -> None:
    """Launch one part of a step: of every layer or of the first `layers`, or
    the head, which otherwise would count the position on and on."""
    launch = getattr(step, f"launch_{part}")
    if part == "head":
        launch()
        step.position.sub_(1)
        return
    both = step.model.layers[:layers], step.cache[:layers]
    for layer, kept in zip(*both, strict=True):
        launch(layer, kept)


def part_bytes(config: Any, batch: int, context: int) -> dict[str, int]:
    """What each part of a step reads in all layers: weights, keys and values,
    in bf16."""
    kv = config.kv_heads * config.head_dim
    layer = {
        "qkv": 2 * (config.dim + 2 * kv) * config.dim,
        "attend": 4 * batch * context * kv,
        "out": 2 * config.dim * config.dim,
        "gate_up": 4 * config.hidden * config.dim,
        "down": 2 * config.dim * config.hidden,
    }
    in_layers = {part: config.layers * size for part, size in layer.items()}
    return {**in_layers, "head": 2 * config.vocab * config.dim}


def step_of(
    size: str,
    device: str,
    batch: int,
    prompt: int,
    answer: int,
    weights: str = "bf16",
    kind: Any = None,
    **options: Any,
) -> tuple[Any, Any]:
    """A step behind a prompt that was read, and the sizes of its model."""
    from snippets.decode_kernels.quantized import quantized
    from snippets.decode_kernels.steps import TokenStep
    from snippets.decoder.compiling import join_projections
    from snippets.decoder.loops import after
    from snippets.decoder.model import prefill, static_cache

    model = model_of(size, device)
    ids = prompt_of(model, batch, prompt)
    cache = static_cache(model, batch, prompt + answer)
    _, first = prefill(model, ids, cache)
    joined = join_projections(model)
    other = quantized(joined) if weights == "int8" else joined
    step = (kind or TokenStep)(other, cache, batch, **options)
    step.restart(first, after(ids))
    return step, model.config


def part_probes() -> Iterator[Experiment]:
    """The parts of both sizes and batches."""
    for batch, size in itertools.product(BATCHES, SIZES):
        yield Experiment(
            chapter="decode_kernels",
            name=named("parts", size, batch),
            probe=parts,
            parameters={**TEXT, "size": size, "batch": batch},
        )
