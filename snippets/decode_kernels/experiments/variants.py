"""Variants of a decode step: peers and rungs, as loops and in whole models."""

from __future__ import annotations

import functools
import gc
import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from snippets.decode_kernels.experiments.peers import generate_static, gpt_fast
from snippets.decoder.experiments.limits import (
    CHECKED,
    decoding,
    left_out,
    relative_error,
)
from snippets.decoder.experiments.token_loops import (
    TEXT,
    loop_of,
    model_of,
    prompt_of,
    token_work,
)
from snippets.lab.experiment import Experiment, Instruments, Loop, NeedsGpu

PEERS = ("reduce_overhead", "gpt_fast", "max_autotune")
RUNGS = ("plain_kernels", "kernels", "one_kernel")
"""Kernels that start one after the other; kernels that start early and load
their first weights before they wait; and one kernel."""
INT8 = "int8_"
"""Prefix of a rung with weights in int8."""
INT8_VARIANTS = ("kernels", "int8_kernels", "one_kernel", "int8_one_kernel")
SIZES = ("1.1b", "8b")
BATCHES = {1: "", 8: "_batch_8"}
"""Sequences -> the suffix of an experiment's name."""


def named(prefix: str, size: str, batch: int = 1) -> str:
    """`steady`, `1.1b`, 8 -> `steady_1_1b_batch_8`."""
    return f"{prefix}_{size.replace('.', '_')}{BATCHES[batch]}"


def start_of(variant: str) -> Callable[..., Iterator[Any]]:
    """The loop of a variant: of this chapter, or a rung of the decoder's."""
    from snippets.decode_kernels import one_kernel, steps
    from snippets.decoder import loops

    kinds: dict[str, Callable[..., steps.TokenStep]] = {
        "plain_kernels": functools.partial(steps.TokenStep, early=False),
        "kernels": steps.TokenStep,
        "one_kernel": one_kernel.OneKernelStep,
    }
    kind = kinds.get(variant.removeprefix(INT8))
    if kind is not None:
        int8 = variant.startswith(INT8)
        return functools.partial(steps.tokens, kind=kind, int8=int8)
    if variant == "gpt_fast":
        return gpt_fast
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

    Returns {"bytes": read in bf16 for a token in the middle of an answer,
    "variants": {variant: {"us", "clock_mhz", "watts", "joules", "error":
    against float32 with the same weights, "bytes"}}}, {"stopped": why} of a
    variant, or {"left_out": why} for a model that does not fit.
    """
    import torch

    from snippets.decode_kernels.quantized import bytes_saved
    from snippets.decoder.experiments.clocks import stopped
    from snippets.decoder.model import CONFIGS, bytes_per_token

    require_gpu(device)
    config = CONFIGS[size]
    if too_large := left_out(size, torch.cuda.mem_get_info()[0]):
        return {"left_out": too_large}
    model = model_of(size, device)
    ids = prompt_of(model, batch, prompt)
    read = bytes_per_token(config, batch, prompt + answer // 2)
    found: dict[str, Any] = {}
    for name in variants.split(","):
        start = functools.partial(start_of(name), answer=answer)
        try:
            found[name] = steady(
                instruments,
                name,
                loop_of(start, model, ids, exact_of(name, model)),
                model,
            )
        except torch.AcceleratorError:  # the GPU is unusable from here
            raise
        except RuntimeError as error:
            found[name] = stopped(error)
        else:
            saved = bytes_saved(config) if name.startswith(INT8) else 0
            found[name]["bytes"] = read - saved
        forget()
    return {"bytes": read, "variants": found}


def exact_of(variant: str, model: Any) -> Any:
    """The decoder whose float32 logits a variant should have: over the same
    weights as the variant."""
    from snippets.decode_kernels.quantized import exact, quantized

    return exact(quantized(model)) if variant.startswith(INT8) else model


def steady(
    instruments: Instruments, name: str, loop: Loop, model: Any
) -> dict[str, Any]:
    """One variant of `whole_steps`, after a comparison of its first logits."""
    with closing(loop.losses):
        logits = [next(loop.losses).item() for _ in range(CHECKED)]
        error = relative_error(logits, loop.reference(CHECKED))
        if not error <= loop.tolerance:  # NaN is wrong too
            raise ArithmeticError(f"{name}: relative error {error:.1e}")
        subject = decoding(loop.losses, model)
        times = instruments.time_steady({name: subject})[name]
    return {
        "us": list(times.samples_us),
        "clock_mhz": times.clock_mhz,
        "watts": times.watts,
        "joules": times.joules,
        "error": error,
    }


def forget() -> None:
    """Free what a finished variant had compiled and allocated."""
    import torch

    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


def steady_variants(batch: int) -> tuple[str, ...]:
    """gpt-fast decodes one text at a time."""
    peers = [each for each in PEERS if batch == 1 or each != "gpt_fast"]
    return (*peers, *RUNGS)


def token_experiments() -> Iterator[Experiment]:
    """The rungs and their peers, interleaved for one text, and steady; for one
    text, weights in int8 too."""
    for name in (*PEERS, *RUNGS):
        yield Experiment(
            chapter="decode_kernels",
            name=name,
            label="token",
            group="tokens",
            parameters={**TEXT, "batch": 1},
            loop=functools.partial(token_loop, variant=name),
            work=token_work,
            time_limit_s=180,
        )
    for batch, size in itertools.product(BATCHES, SIZES):
        given = {**TEXT, "batch": batch, "size": size}
        yield Experiment(
            chapter="decode_kernels",
            name=named("steady", size, batch),
            probe=whole_steps,
            parameters={**given, "variants": ",".join(steady_variants(batch))},
            time_limit_s=300,
        )
        if batch == 1:
            yield Experiment(
                chapter="decode_kernels",
                name=named("int8", size),
                probe=whole_steps,
                parameters={**given, "variants": ",".join(INT8_VARIANTS)},
                time_limit_s=180,
            )
    for size in SIZES:
        yield Experiment(
            chapter="decode_kernels",
            name=named("generate_static", size),
            probe=generate_static,
            parameters={
                "size": size,
                "batch": 1,
                "prompt": 512,
                "few": 1,
                "many": 40,
                "rounds": 4,
            },
            time_limit_s=300,
        )
