"""What limits a token: the rates of this GPU, the boundary of a kernel, and
whole models near these limits."""

from __future__ import annotations

import functools
import gc
import math
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from snippets.decoder.experiments.clocks import (
    Step,
    by_name,
    kernels_of,
    recorded,
    stopped,
    times_us,
)
from snippets.decoder.experiments.own_kernels import fused
from snippets.decoder.experiments.token_loops import (
    NEW_LENGTHS,
    TEXT,
    loop_of,
    model_of,
    prompt_of,
    read_answer,
)
from snippets.lab.experiment import Experiment, Instruments, NeedsGpu, Subject

ROOM = 1.5
"""Free memory over the bytes of a model's weights, without which the model is
left out."""
CHECKED = 3


def ceilings(
    instruments: Instruments, device: str, mebibytes: int, matmul: int
) -> dict[str, Any]:
    """The rates of this GPU: reading alone, copying, multiplying.

    Returns {"bytes": of each, "flops", "samples_us": {"sum", "matvec",
    "copy", "matmul"}}. A sum and a matrix times a vector read and hardly
    write; a copy writes as much as it reads, and both count.
    """
    import torch

    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    size = mebibytes << 20
    x = torch.randn(size // 4, device=device)
    rows = size // dtype.itemsize >> 13
    matrix = torch.randn(rows, 1 << 13, device=device, dtype=dtype)
    vector = torch.randn(1 << 13, device=device, dtype=dtype)
    target = torch.empty_like(x)
    square = torch.randn(matmul, matmul, device=device, dtype=dtype)
    steps: dict[str, Step] = {
        "sum": x.sum,
        "matvec": lambda: matrix @ vector,
        "copy": lambda: target.copy_(x),
        "matmul": lambda: square @ square.t(),
    }
    return {
        "bytes": {"sum": size, "matvec": size, "copy": 2 * size},
        "flops": 2 * matmul**3,
        "samples_us": times_us(steps, device),
    }


def boundary(
    instruments: Instruments, device: str, kernels: int, sizes: str
) -> dict[str, Any]:
    """How long a kernel takes inside a CUDA graph that does next to nothing.

    Returns {elements: {"us": samples of a kernel's share of a graph of so many
    kernels, each of which waits for the one before, "stream_us": launched one
    by one, "kernel_us" and "gap_us": of each kernel of a profiled replay}}.
    On a CPU nothing is a graph.
    """
    import torch

    found: dict[str, Any] = {}
    for elements in (int(size) for size in sizes.split(",")):
        x = torch.zeros(elements, device=device)

        def chain(x: torch.Tensor = x) -> None:
            for _ in range(kernels):
                x.add_(1.0)

        replay = recorded(chain, device)
        timed = times_us({"graph": replay, "stream": chain}, device)
        profiled = kernels_of(instruments, replay, device)
        found[str(elements)] = {
            "us": [us / kernels for us in timed["graph"]],
            "stream_us": [us / kernels for us in timed["stream"]],
            "kernel_us": [one["us"] for one in profiled],
            "gap_us": [one["gap_us"] for one in profiled[1:]],
        }
    return found


def whole_models(
    instruments: Instruments,
    device: str,
    size: str,
    batch: int,
    prompt: int,
    answer: int,
    variants: str,
) -> dict[str, Any]:
    """Rungs of the ladder alone, in blocks of seconds, with watts and joules.

    Returns {"bytes": read for a token at the middle of an answer, "variants":
    {rung: {"us", "clock_mhz", "watts", "joules", "error"}}}, {"stopped": why}
    of a rung, or {"left_out": why} for a model that does not fit. The rung
    `fused` is `joined` with the gated MLP of the chapter fused_mlp.
    """
    import torch

    from snippets.decoder import loops
    from snippets.decoder.model import CONFIGS, bytes_per_token

    if device != "cuda":
        raise NeedsGpu("its power is the GPU's: decoder/eager runs here")
    config = CONFIGS[size]
    if too_large := left_out(size, torch.cuda.mem_get_info()[0]):
        return {"left_out": too_large}
    model = model_of(size, device)
    ids = prompt_of(model, batch, prompt)
    found: dict[str, Any] = {}
    for name in variants.split(","):
        rung = fused if name == "fused" else getattr(loops, name)
        start = functools.partial(rung, answer=answer)
        if name in NEW_LENGTHS:
            read_answer(start(model, ids), answer)
        try:
            found[name] = steady(instruments, name, start, model, ids)
        except torch.AcceleratorError:  # the GPU is unusable from here
            raise
        except RuntimeError as error:
            found[name] = stopped(error)
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
    context = prompt + answer // 2
    return {
        "bytes": bytes_per_token(config, batch, context),
        "context": context,
        "variants": found,
    }


def left_out(size: str, free_bytes: int) -> str:
    """Why a model is left out; empty if it has room."""
    from snippets.decoder.model import CONFIGS, bytes_per_token

    config = CONFIGS[size]
    embedding = 2 * config.dim * config.vocab
    needed = ROOM * (bytes_per_token(config, 0, 0) + embedding)
    if free_bytes >= needed:
        return ""
    free_gb, needed_gb = free_bytes / 1e9, needed / 1e9
    return (
        f"{size} needs {needed_gb:.0f} GB of memory, {free_gb:.0f} GB are free"
    )


def steady(
    instruments: Instruments, name: str, start: Any, model: Any, ids: Any
) -> dict[str, Any]:
    """One rung of `whole_models`, after a comparison of its first logits."""
    loop = loop_of(start, model, ids)
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


def relative_error(values: list[float], expected: Any) -> float:
    """Norm of the difference over norm of what is expected."""
    return math.dist(values, expected) / math.hypot(*expected)


def decoding(losses: Iterator[Any], model: Any) -> Subject:
    """A step of a loop as a subject that is timed in the stream. Its inputs
    stand for the weights that it reads, so that four sets exceed the L2."""
    return Subject(
        step=lambda _: next(losses),
        inputs=lambda: (model.lm_head.weight,),
        reference=lambda weight: weight,
        in_graph=False,
    )


def prefill_lengths(
    instruments: Instruments, device: str, size: str, tokens: str
) -> dict[str, Any]:
    """Prompts of more and more tokens, as CUDA graphs.

    Returns {tokens: {"us": samples, "flops", "bytes": the weights, "kernels":
    of one replay by name}}; half of the scores of a prompt are hidden.
    """
    from snippets.decoder.model import (
        bytes_per_token,
        flops_per_token,
        prefill,
        static_cache,
    )

    model = model_of(size, device)
    found: dict[str, Any] = {}
    for count in (int(number) for number in tokens.split(",")):
        ids = prompt_of(model, 1, count)
        cache = static_cache(model, 1, count)
        step = recorded(functools.partial(prefill, model, ids, cache), device)
        head = 2 * (count - 1) * model.config.dim * model.config.vocab
        found[str(count)] = {
            "us": times_us({"prefill": step}, device)["prefill"],
            "flops": count * flops_per_token(model.config, count // 2) - head,
            "bytes": bytes_per_token(model.config, 1, count),
            "kernels": by_name(kernels_of(instruments, step, device)),
        }
    return found


def limit_probes() -> Iterator[Experiment]:
    """Probes of what limits a token."""
    yield Experiment(
        chapter="decoder",
        name="ceilings",
        probe=ceilings,
        parameters={"mebibytes": 1024, "matmul": 8192},
    )
    yield Experiment(
        chapter="decoder",
        name="boundary",
        probe=boundary,
        parameters={"kernels": 1000, "sizes": "1,1048576"},
    )
    whole = (
        ("steady_1b", "1.1b", "eager,graph,layers,joined,fused"),
        ("steady_8b", "8b", "layers,max_autotune"),
    )
    for name, size, variants in whole:
        yield Experiment(
            chapter="decoder",
            name=name,
            probe=whole_models,
            parameters={**TEXT, "size": size, "variants": variants},
            time_limit_s=240,
        )
    yield Experiment(
        chapter="decoder",
        name="prefill_lengths",
        probe=prefill_lengths,
        parameters={"size": "1.1b", "tokens": "16,32,64,128,256,512,1024,2048"},
    )
