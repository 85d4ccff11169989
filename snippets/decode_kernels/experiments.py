"""What the chapter decode_kernels measures: a token by kernels of this book
beside a token by compiled layers, the parts of a step alone, and their tiles.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from snippets.decoder.experiments.clocks import recorded, times_us
from snippets.decoder.experiments.limits import left_out, steady
from snippets.decoder.experiments.token_loops import (
    TEXT,
    loop_of,
    model_of,
    prompt_of,
    token_work,
)
from snippets.lab.experiment import Experiment, Instruments, Loop, NeedsGpu

KERNELS, ONE_KERNEL = "kernels", "one_kernel"
OURS = (KERNELS, ONE_KERNEL)
PEERS = ("reduce_overhead", "max_autotune")
MAY_LOSE = 1.05
"""A tile is tried in all parts of a step if it takes no longer than this in
one part."""


def start_of(variant: str) -> Callable[..., Iterator[Any]]:
    """The loop of a variant: of this chapter, or a rung of the decoder's."""
    from snippets.decode_kernels import steps
    from snippets.decoder import loops

    if variant in OURS:
        kind = steps.OneKernelStep if variant == ONE_KERNEL else steps.TokenStep
        return functools.partial(steps.tokens, kind=kind)
    found: Callable[..., Iterator[Any]] = getattr(loops, variant)
    return found


def require_gpu(device: str) -> None:
    if device != "cuda":
        raise NeedsGpu(
            "it runs Triton kernels or records a CUDA graph: "
            "decoder/static runs here"
        )


def token_loop(
    device: str, variant: str, size: str, batch: int, prompt: int, answer: int
) -> Loop:
    """A loop of tokens, compared with the model in float32."""
    require_gpu(device)
    model = model_of(size, device)
    start = functools.partial(start_of(variant), answer=answer)
    return loop_of(start, model, prompt_of(model, batch, prompt))


def whole_steps(
    instruments: Instruments,
    device: str,
    size: str,
    batch: int,
    prompt: int,
    answer: int,
    variants: str,
) -> dict[str, Any]:
    """Each variant alone, in blocks of seconds, with watts and joules.

    Returns {"bytes": read for a token in the middle of an answer, "variants":
    {variant: {"us", "clock_mhz", "watts", "joules", "error"}}}, or
    {"left_out": why} for a model that does not fit.
    """
    import gc

    import torch

    from snippets.decoder.model import CONFIGS, bytes_per_token

    require_gpu(device)
    if too_large := left_out(size, torch.cuda.mem_get_info()[0]):
        return {"left_out": too_large}
    model = model_of(size, device)
    ids = prompt_of(model, batch, prompt)
    found: dict[str, Any] = {}
    for name in variants.split(","):
        start = functools.partial(start_of(name), answer=answer)
        found[name] = steady(instruments, name, start, model, ids)
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
    context = prompt + answer // 2
    return {
        "bytes": bytes_per_token(CONFIGS[size], batch, context),
        "variants": found,
    }


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
    import torch

    require_gpu(device)
    step, config = step_of(size, device, batch, prompt, answer)
    context = prompt + answer // 2
    reading = part_bytes(config, batch, context)
    layers = list(zip(step.model.layers, step.cache, strict=True))

    def of_layers(part: str) -> Callable[[], None]:
        launch = getattr(step, f"launch_{part}")
        return lambda: [launch(layer, kept) for layer, kept in layers] and None

    graphs = {
        part: recorded(of_layers(part), device)
        for part in reading
        if part != "head"
    }
    step.position.fill_(context)
    step.position = torch.zeros_like(step.position)  # which the head counts on
    graphs["head"] = recorded(step.launch_head, device)
    samples = times_us(graphs, device)
    return {
        part: {
            "us": us,
            "bytes": reading[part],
            "launches": 1 if part == "head" else config.layers,
        }
        for part, us in samples.items()
    }


def part_bytes(config: Any, batch: int, context: int) -> dict[str, int]:
    """What each part of a step reads in all layers, in bf16."""
    kv = config.kv_heads * config.head_dim
    layers = 2 * config.layers
    return {
        "qkv": layers * config.dim * (config.dim + 2 * kv),
        "attend": layers * batch * context * 2 * kv,
        "out": layers * config.dim * config.dim,
        "gate_up": layers * 2 * config.dim * config.hidden,
        "down": layers * config.dim * config.hidden,
        "head": 2 * config.dim * config.vocab,
    }


def step_of(
    size: str,
    device: str,
    batch: int,
    prompt: int,
    answer: int,
    tiles: Any = None,
) -> tuple[Any, Any]:
    """A step behind a prompt that was read, and the sizes of its model."""
    from snippets.decode_kernels.steps import TokenStep
    from snippets.decoder.compiling import join_projections
    from snippets.decoder.loops import after
    from snippets.decoder.model import prefill, static_cache

    model = model_of(size, device)
    ids = prompt_of(model, batch, prompt)
    cache = static_cache(model, batch, prompt + answer)
    _, first = prefill(model, ids, cache)
    step = TokenStep(join_projections(model), cache, batch, tiles)
    step.restart(first, after(ids))
    return step, model.config


def tiles_of_parts(
    instruments: Instruments,
    device: str,
    size: str,
    batch: int,
    prompt: int,
    answer: int,
    rows: str,
    blocks: str,
    stages: str,
    warps: str,
) -> dict[str, Any]:
    """Each part of a step with each tile, one after the other under load.

    Returns {part: {"rows x block_k, stages, warps": samples in microseconds}};
    a tile that does not fit has no samples.
    """
    from snippets.decode_kernels.sizes import FEW_TOKENS, ONE_TOKEN, Tile

    require_gpu(device)
    base = ONE_TOKEN if batch == 1 else FEW_TOKENS
    numbers = [
        [int(each) for each in text.split(",")]
        for text in (rows, blocks, stages, warps)
    ]
    step, _ = step_of(size, device, batch, prompt, answer, base)
    layers = list(zip(step.model.layers, step.cache, strict=True))
    found: dict[str, Any] = {}
    for part in ("qkv", "out", "gate_up", "down", "head"):
        graphs = {}
        for sizes in itertools.product(*numbers):
            tile = Tile(*sizes)
            if part == "head" and tile.rows < base.head.rows:
                continue  # its slots are counted for the rows of `base`
            step.tiles = replace(base, **{part: tile})
            launch = getattr(step, f"launch_{part}")

            def run(launch: Any = launch, part: str = part) -> None:
                if part == "head":
                    launch()
                    return
                for layer, kept in layers:
                    launch(layer, kept)

            try:
                graphs[name_of(sizes)] = recorded(run, device)
            except RuntimeError:  # out of registers or shared memory
                continue
        found[part] = times_us(graphs, device, rounds=3)
        step.tiles = base
    return found


def name_of(sizes: Sequence[int]) -> str:
    rows, block, stages, warps = sizes
    return f"{rows} x {block}, {stages} stages, {warps} warps"


def experiments() -> Iterator[Experiment]:
    for batch, suffix in ((1, ""), (8, "_batch_8")):
        for name in (*PEERS, *OURS):
            yield Experiment(
                chapter="decode_kernels",
                name=f"{name}{suffix}",
                label="token",
                group=f"tokens{suffix}",
                parameters={**TEXT, "batch": batch},
                loop=functools.partial(token_loop, variant=name),
                work=token_work,
                time_limit_s=180,
            )
        for size in ("1.1b", "8b"):
            yield Experiment(
                chapter="decode_kernels",
                name=f"steady_{size.replace('.', '_')}{suffix}",
                probe=whole_steps,
                parameters={
                    **TEXT,
                    "size": size,
                    "batch": batch,
                    "variants": ",".join((*PEERS, *OURS)),
                },
                time_limit_s=240,
            )
            yield Experiment(
                chapter="decode_kernels",
                name=f"parts_{size.replace('.', '_')}{suffix}",
                probe=parts,
                parameters={**TEXT, "size": size, "batch": batch},
            )
    yield Experiment(
        chapter="decode_kernels",
        name="tiles",
        probe=tiles_of_parts,
        parameters={
            **TEXT,
            "rows": "2,4,8,16",
            "blocks": "512,1024,2048",
            "stages": "1,2,3,4",
            "warps": "4,8",
        },
        time_limit_s=240,
    )


EXPERIMENTS = tuple(experiments())
