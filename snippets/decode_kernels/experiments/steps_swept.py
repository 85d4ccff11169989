"""How far ahead should a step ask for weights? And how is one kernel cut?"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from snippets.decode_kernels.experiments.parts import step_of
from snippets.decode_kernels.experiments.tiles_swept import (
    WRONG,
    difference,
    report,
)
from snippets.decode_kernels.experiments.variants import forget, require_gpu
from snippets.decoder.experiments.clocks import numbers, recorded, times_us
from snippets.decoder.experiments.token_loops import TEXT
from snippets.lab.experiment import Experiment, Instruments


def tiles_of_steps(
    instruments: Instruments,
    device: str,
    sizes: str,
    batches: str,
    weights: str,
    prompt: int,
    answer: int,
    ahead: str,
    one_token: str,
    few_tokens: str,
    programs: str,
) -> dict[str, Any]:
    """Whole steps that ask for more and more weights ahead, and the kernel of
    a whole step with tiles and numbers of programs on each multiprocessor. One
    call has all sizes and batches, and prints how far it is.

    Returns {"size, batch, weights": {"kernels, 512 ahead" or "one kernel, 4 x
    1024, 512 ahead, 2 programs": samples in microseconds of a step}}. What does
    not fit the GPU has no samples.
    """
    require_gpu(device)
    found: dict[str, Any] = {}
    for size, batch, kind in itertools.product(
        sizes.split(","), numbers(batches), weights.split(",")
    ):
        name = f"{size}, batch {batch}, {kind}"
        text = (size, device, batch, prompt, answer, kind)
        shapes = one_token if batch == 1 else few_tokens
        replays = {
            **kernels_replays(text, numbers(ahead)),
            **one_kernel_replays(
                text, shapes.split(","), numbers(ahead), numbers(programs)
            ),
        }
        print(f"{name}: compiled", file=sys.stderr, flush=True)
        found[name] = times_us(replays, device, rounds=3)
        report(name, "steps", found[name])
        del replays
        forget()
    return found


def kernels_replays(text: Any, ahead: Sequence[int]) -> dict[str, Any]:
    """A CUDA graph of a step by launched kernels for each number of weights
    asked for ahead."""
    step, _ = step_of(*text)
    expected, found = logits_of(step), {}
    for each in ahead:
        step.tiles = replace(step.tiles, ahead=each)
        name = f"kernels, {each} ahead"
        if replay := right_replay(step, expected, text[1]):
            found[name] = replay
    return found


def one_kernel_replays(
    text: Any,
    shapes: Sequence[str],
    ahead: Sequence[int],
    programs: Sequence[int],
) -> dict[str, Any]:
    """A CUDA graph of the kernel of a whole step for each shape of its tiles,
    number of weights asked for ahead, and number of programs on each
    multiprocessor. The kernels are compiled in parallel."""
    from concurrent.futures import ThreadPoolExecutor

    import triton

    from snippets.decode_kernels.one_kernel import OneKernelStep
    from snippets.decode_kernels.persistent import step_kernel
    from snippets.fused_mlp.geglu.launch import FAILURES, multiprocessors

    size, device, batch, prompt, answer, weights = text
    step, _ = step_of(
        size, device, batch, prompt, answer, weights, OneKernelStep
    )
    variants = {
        f"{shape.replace('x', ' x ')}, {each} ahead": cut(step, shape, each)
        for shape, each in itertools.product(shapes, ahead)
    }
    with (
        ThreadPoolExecutor() as pool,
        triton.AsyncCompileMode(pool, ignore_errors=True),
    ):
        for step.tiles in variants.values():
            arguments, options = step.launch()
            try:
                step_kernel.warmup(*arguments, grid=(1,), **options)
            except FAILURES:
                continue
    found: dict[str, Any] = {}
    expected = None
    each_has = multiprocessors(step.x.device)
    for (name, step.tiles), count in itertools.product(
        variants.items(), programs
    ):
        step.programs = count * each_has
        if expected is None:
            expected = logits_of(step)
        if replay := right_replay(step, expected, text[1]):
            found[f"one kernel, {name}, {count} programs"] = replay
    return found


def cut(step: Any, shape: str, ahead: int) -> Any:
    """Tiles of rows and columns such as `8x512` for all products but the head,
    which keeps its rows."""
    rows, block_k = numbers(shape.replace("x", ","))
    tile = replace(step.tiles.gate_up, rows=rows, block_k=block_k)
    parts = dict.fromkeys(("qkv", "out", "gate_up", "down"), tile)
    return replace(step.tiles, **parts, ahead=ahead)


def logits_of(step: Any) -> Any:
    """What a step computes first of all, again from its first token."""
    step.restart(*started(step))
    step()
    return step.logit.float().clone()


def started(step: Any) -> tuple[Any, Any]:
    """The token and the position from which a step was started: kept at the
    first call."""
    if not hasattr(step, "start"):
        step.start = step.token.clone(), step.position.clone()
    token, position = step.start
    return token, position


def right_replay(
    step: Any, expected: Any, device: str
) -> Callable[[], object] | None:
    """A CUDA graph of a step at the same position again and again, or None if
    the GPU cannot run it. Raises `ArithmeticError` for a wrong logit."""
    from snippets.fused_mlp.geglu.launch import FAILURES

    def again() -> None:
        step()
        step.position.sub_(1)

    try:
        error = difference(logits_of(step), expected)
        step.restart(*started(step))
        replay = recorded(again, device)
    except FAILURES:
        return None
    if not error <= WRONG:
        raise ArithmeticError(f"{step.tiles}: {error:.1e}")
    return replay


def step_probes() -> Iterator[Experiment]:
    """All cuts of both sizes, batches, and types of weights."""
    yield Experiment(
        chapter="decode_kernels",
        name="tiles_of_steps",
        probe=tiles_of_steps,
        parameters={
            "sizes": "1.1b,8b",
            "batches": "1,8",
            "weights": "bf16,int8",
            "prompt": TEXT["prompt"],
            "answer": TEXT["answer"],
            "ahead": "0,512,2048",
            "one_token": "4x1024,8x1024",
            "few_tokens": "16x256,32x256",
            "programs": "1,2",
        },
        time_limit_s=300,
    )
