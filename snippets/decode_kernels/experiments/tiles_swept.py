"""Which tiles are fast? Whole steps, each with another tile of one part: in a
whole step, a tile that is fastest alone is often not the fastest."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from snippets.decode_kernels.experiments.parts import run_part, step_of
from snippets.decode_kernels.experiments.variants import forget, require_gpu
from snippets.decoder.experiments.clocks import numbers, recorded, times_us
from snippets.decoder.experiments.limits import left_out
from snippets.decoder.experiments.token_loops import TEXT
from snippets.lab.experiment import Experiment, Instruments

WRITTEN = {
    "qkv": "q", "out": "x", "gate_up": "hidden", "down": "x", "head": "logit"
}  # fmt: skip
"""Each part that multiplies by a weight -> the tensor that it writes."""
PAIRED = ("qkv", "gate_up")
"""Parts of which a program multiplies pairs of rows."""
WRONG = 2e-2
"""The error, against the default tile's result, above which a tile is wrong."""


def tiles(
    instruments: Instruments,
    device: str,
    sizes: str,
    batches: str,
    weights: str,
    prompt: int,
    answer: int,
    shapes: str,
    registers: int,
) -> dict[str, Any]:
    """Whole steps, each with one candidate as the tile of one part, and the
    default tiles of all other parts. One call has all sizes and batches, and
    prints how far it is.

    Returns {"size, batch, weights": {part: {"chosen": the default tile, "us":
    {tile: samples of a step}}}}, or {"left_out": why} for a model that does not
    fit. A tile is named "rows x columns, warps, held". A tile that does not fit
    the GPU has no samples.
    """
    import torch

    require_gpu(device)
    found: dict[str, Any] = {}
    for size, batch, kind in itertools.product(
        sizes.split(","), numbers(batches), weights.split(",")
    ):
        name = f"{size}, batch {batch}, {kind}"
        if too_large := left_out(size, torch.cuda.mem_get_info()[0]):
            found[name] = {"left_out": too_large}
            continue
        step, _ = step_of(size, device, batch, prompt, answer, kind)
        start = step.token.clone(), step.position.clone()
        cut = {
            part: tiles_of(step, part, shapes, registers) for part in WRITTEN
        }
        compile_tiles(step, cut)
        found[name] = {}
        for part, candidates in cut.items():
            samples = times_of(step, start, part, candidates, device)
            chosen = name_of(getattr(step.tiles, part), step.batch, step.int8)
            found[name][part] = {"chosen": chosen, "us": samples}
            report(f"{name}, {part}", chosen, samples)
        del step
        forget()
    return found


def tiles_of(step: Any, part: str, shapes: str, registers: int) -> list[Any]:
    """`1x1x4,8x1x8`, rows x steps x warps -> tiles of a part.

    At each step, a thread loads 16 bytes, into 4 registers, for each 8 slices
    of rows. A tile holds as many blocks as fit into so many registers, and
    another tile half as many. Shapes of which no block fits are left out, as
    are those with fewer rows than tensor cores take.
    """
    from snippets.decode_kernels.sizes import Tile, slices_for

    config = step.model.config
    columns = config.hidden if part == "down" else config.dim
    row_bytes = columns if step.int8 else 2 * columns
    found = []
    for shape in shapes.split(","):
        rows, steps, warps = numbers(shape.replace("x", ","))
        slices = rows * slices_for(step.batch)
        if slices < 8:
            continue
        each = slices // 8 * 4 * steps * (2 if part in PAIRED else 1)
        fit = registers // each
        blocks = -(-row_bytes // Tile(rows, steps, warps).row_bytes(step.batch))
        most = min(fit, blocks)
        found += [
            Tile(rows, steps, warps, held) for held in (most, most // 2) if held
        ]
    return found


def name_of(tile: Any, batch: int, int8: bool) -> str:
    """`8 x 512, 4 warps, 4 held`, rows x columns of a block."""
    columns = tile.row_bytes(batch) // (1 if int8 else 2)
    return f"{tile.rows} x {columns}, {tile.warps} warps, {tile.held} held"


def compile_tiles(step: Any, cut: Mapping[str, Sequence[Any]]) -> None:
    """Compile the kernels of all tiles of the parts in parallel. The first layer's
    kernels and the second layer's have different options."""
    from concurrent.futures import ThreadPoolExecutor

    import triton

    from snippets.fused_mlp.geglu.launch import FAILURES, uncollected

    def compile_only(kernel: Any, _: int, *given: Any, **options: Any) -> None:
        kernel.warmup(*given, grid=(1,), **options)

    base, step.run = step.tiles, compile_only
    position = step.position.clone()
    with (
        uncollected(),
        ThreadPoolExecutor() as pool,
        triton.AsyncCompileMode(pool, ignore_errors=True),
    ):
        for part, candidates in cut.items():
            for tile in candidates:
                step.tiles = replace(base, **{part: tile})
                with contextlib.suppress(*FAILURES):
                    run_part(step, part, layers=2)
    step.tiles = base
    step.position.copy_(position)  # which the head's part changes
    del step.run  # the method of the class again


def times_of(
    step: Any, start: Any, part: str, candidates: Sequence[Any], device: str
) -> dict[str, list[float]]:
    """Samples of a step by tile of one part, from a token and its position.
    Raises `ArithmeticError` for a tile that computes something else than the
    default tile."""
    from snippets.fused_mlp.geglu.launch import FAILURES

    def again() -> None:
        step()
        step.position.sub_(1)  # each replay is at the same position

    step.restart(*start)
    base, expected = step.tiles, result_of(step, part)
    step.restart(*start)
    chosen = getattr(base, part)
    graphs = {name_of(chosen, step.batch, step.int8): recorded(again, device)}
    for tile in candidates:
        name = name_of(tile, step.batch, step.int8)
        if tile == chosen:
            continue
        step.tiles = replace(base, **{part: tile})
        try:
            wrong = (result_of(step, part) - expected).norm()
            error = float(wrong / expected.norm())
            step.restart(*start)
            graphs[name] = recorded(again, device)
        except FAILURES:  # out of registers or shared memory
            continue
        finally:
            step.tiles = base
        if not error <= WRONG:
            raise ArithmeticError(f"{part}, {name}: {error:.1e}")
    return times_us(graphs, device, rounds=3)


def result_of(step: Any, part: str) -> Any:
    """What one part of the first layer writes, from the same random inputs."""
    import torch

    draw = torch.Generator(step.x.device).manual_seed(0)
    for tensor in (step.x, step.q, step.attended, step.hidden):
        tensor.normal_(generator=draw)
    run_part(step, part, layers=1)
    return getattr(step, WRITTEN[part]).float().clone()


def report(what: str, chosen: str, samples: Mapping[str, list[float]]) -> None:
    """Print the steps with the three fastest tiles and the default tile."""
    fastest = sorted(samples, key=lambda tile: min(samples[tile]))[:3]
    shown = [
        f"{tile} {min(samples[tile]):.1f} us" for tile in (*fastest, chosen)
    ]
    print(f"{what}: {'; '.join(shown)}", file=sys.stderr, flush=True)


def tile_probes() -> Iterator[Experiment]:
    """Tiles of both sizes, for one text and weights in bf16."""
    yield Experiment(
        chapter="decode_kernels",
        name="tiles",
        probe=tiles,
        parameters={
            "sizes": "1.1b,8b",
            "batches": "1",
            "weights": "bf16",
            "prompt": TEXT["prompt"],
            "answer": TEXT["answer"],
            "shapes": "1x1x1,2x1x1,4x1x1,1x1x2,2x1x2,4x1x2,8x1x2,4x1x4,4x2x4,"
            "8x1x4,4x1x8,8x1x8",
            "registers": 128,
        },
        time_limit_s=300,
    )
