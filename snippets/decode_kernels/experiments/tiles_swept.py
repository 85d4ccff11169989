"""Which tiles are fast? Each part of a step with each candidate."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from snippets.decode_kernels.experiments.parts import PARTS, run_part, step_of
from snippets.decode_kernels.experiments.variants import forget, require_gpu
from snippets.decoder.experiments.clocks import numbers, recorded, times_us
from snippets.decoder.experiments.token_loops import TEXT
from snippets.lab.experiment import Experiment, Instruments

WRONG = 2e-2
"""A tile is not timed if its result differs more from the default tile's."""


def tiles_of_parts(
    instruments: Instruments,
    device: str,
    sizes: str,
    batches: str,
    weights: str,
    prompt: int,
    answer: int,
    one_token: str,
    few_tokens: str,
    stages: str,
    warps: str,
) -> dict[str, Any]:
    """Each part of a step with each tile, under load. One call has all sizes
    and batches, and prints how far it is.

    Returns {"size, batch, weights": {part: {"rows x block_k, stages, warps":
    samples in microseconds of all layers}}}. A tile that does not fit the GPU
    has no samples.
    """
    require_gpu(device)
    found: dict[str, Any] = {}
    for size, batch, kind in itertools.product(
        sizes.split(","), numbers(batches), weights.split(",")
    ):
        name = f"{size}, batch {batch}, {kind}"
        step, _ = step_of(size, device, batch, prompt, answer, kind)
        shapes = one_token if batch == 1 else few_tokens
        candidates = candidates_of(shapes, stages, warps)
        found[name] = {}
        compile_tiles(step, candidates)
        for part in PARTS:
            if part != "attend":
                found[name][part] = times_of(step, part, candidates, device)
                report(name, part, found[name][part])
        del step
        forget()
    return found


def candidates_of(shapes: str, stages: str, warps: str) -> list[Any]:
    """`4x1024,8x512`, `3,4`, `4,8` -> all combinations, as tiles."""
    from snippets.decode_kernels.sizes import Tile

    cuts = [numbers(shape.replace("x", ",")) for shape in shapes.split(",")]
    return [
        Tile(rows, block_k, deep, wide)
        for rows, block_k in cuts
        for deep, wide in itertools.product(numbers(stages), numbers(warps))
    ]


def with_tile(step: Any, part: str, tile: Any) -> Any:
    """The tiles of a step with another tile for one part."""
    return replace(step.tiles, **{part: tile})


def compile_tiles(step: Any, candidates: Sequence[Any]) -> None:
    """Compile the kernels of all candidates in parallel."""
    from concurrent.futures import ThreadPoolExecutor

    import triton

    from snippets.fused_mlp.geglu.launch import FAILURES

    def compile_only(
        kernel: Any, programs: int, *given: Any, **kw: Any
    ) -> None:
        kernel.warmup(*given, grid=(programs,), **kw)

    layer, kept = step.model.layers[0], step.cache[0]
    base, step.run = step.tiles, compile_only
    with (
        ThreadPoolExecutor() as pool,
        triton.AsyncCompileMode(pool, ignore_errors=True),
    ):
        for part, tile in itertools.product(PARTS, candidates):
            if part == "attend":
                continue
            step.tiles = with_tile(step, part, tile)
            launch = getattr(step, f"launch_{part}")
            try:
                launch() if part == "head" else launch(layer, kept)
            except FAILURES:
                continue
    step.tiles = base
    del step.run  # the method of the class again


def times_of(
    step: Any, part: str, candidates: Sequence[Any], device: str
) -> dict[str, list[float]]:
    """Samples of one part by tile. Raises `ArithmeticError` for a tile that
    computes something else than the default tile."""
    from snippets.fused_mlp.geglu.launch import FAILURES

    base, expected = step.tiles, result_of(step, part)
    graphs = {}
    for tile in candidates:
        step.tiles = with_tile(step, part, tile)
        try:
            error = difference(result_of(step, part), expected)
            run = functools.partial(run_part, step, part)
            graphs[name_of(tile)] = recorded(run, device)
        except FAILURES:  # out of registers or shared memory
            continue
        finally:
            step.tiles = base
        if not error <= WRONG:
            raise ArithmeticError(f"{part}, {name_of(tile)}: {error:.1e}")
    return times_us(graphs, device, rounds=3)


def result_of(step: Any, part: str) -> Any:
    """What one part of the first layer writes, from the same random inputs."""
    import torch

    draw = torch.Generator(step.x.device).manual_seed(0)
    for tensor in (step.x, step.q, step.attended, step.hidden):
        tensor.normal_(generator=draw)
    written = {
        "qkv": step.q,
        "out": step.x,
        "gate_up": step.hidden,
        "down": step.x,
        "head": step.logit,
    }
    launch = getattr(step, f"launch_{part}")
    if part == "head":
        launch()
        step.position.sub_(1)
    else:
        launch(step.model.layers[0], step.cache[0])
    return written[part].float().clone()


def difference(values: Any, expected: Any) -> float:
    """Norm of the difference over norm of what is expected."""
    return float((values - expected).norm() / expected.norm())


def name_of(tile: Any) -> str:
    return (
        f"{tile.rows} x {tile.block_k}, {tile.stages} stages, "
        f"{tile.warps} warps"
    )


def report(name: str, part: str, samples: dict[str, list[float]]) -> None:
    """Print the three fastest tiles of a part."""
    fastest = sorted(samples, key=lambda tile: min(samples[tile]))[:3]
    shown = [f"{tile} {min(samples[tile]):.1f} us" for tile in fastest]
    print(f"{name}, {part}: {'; '.join(shown)}", file=sys.stderr, flush=True)


def tile_probes() -> Iterator[Experiment]:
    """All tiles of both sizes, batches, and types of weights."""
    yield Experiment(
        chapter="decode_kernels",
        name="tiles",
        probe=tiles_of_parts,
        parameters={
            "sizes": "1.1b,8b",
            "batches": "1,8",
            "weights": "bf16,int8",
            "prompt": TEXT["prompt"],
            "answer": TEXT["answer"],
            "one_token": "2x1024,2x2048,4x1024,4x2048,8x512,8x1024,16x512",
            "few_tokens": "16x128,16x256,16x512,32x128,32x256,64x128",
            "stages": "3,4",
            "warps": "4,8",
        },
        time_limit_s=300,
    )
