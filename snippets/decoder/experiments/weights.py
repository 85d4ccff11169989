"""Weights of fewer bytes: at one product, and in the whole model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from snippets.decoder.experiments.clocks import (
    kernels_of,
    numbers,
    recorded,
    stopped,
    times_us,
)
from snippets.decoder.experiments.limits import relative_error
from snippets.decoder.experiments.token_loops import (
    loop_of,
    model_of,
    prompt_of,
)
from snippets.lab.experiment import Experiment, Instruments

AUTOTUNE = {"mode": "max-autotune-no-cudagraphs"}
# --8<-- [start:ways]
WAYS: dict[str, tuple[str, Any]] = {
    "bf16": ("", None),
    "bf16 compiled": ("", AUTOTUNE),
    "int8": ("int8", None),
    "int8 compiled": ("int8", {}),
    "int8 max-autotune": ("int8", AUTOTUNE),
    "int8 packed": ("int8_packed", None),
    "int4": ("int4", None),
    "fp8": ("fp8", None),
    "fp8 compiled": ("fp8", {}),
}
"""Variant -> the kind of its weights, and how it is compiled, if it is."""
# --8<-- [end:ways]
FAILURES = (RuntimeError, NotImplementedError, ValueError, AssertionError)
"""Of an operator that this device or this type lacks."""


def one_product(
    instruments: Instruments,
    device: str,
    shapes: str,
    rows: int,
    copies: int,
    ways: str,
) -> dict[str, Any]:
    """A product of few rows with weights of each kind, as a CUDA graph over
    `copies` weights, which exceed the L2 together.

    Returns {"k x n": {variant: {"us": samples of one product, "bytes": of its
    weights, "error": against the product of the weights that the codes mean,
    "rounding": against that of the weights before, both in float64, "kernels":
    of one product}}}, or {"stopped": why} of a variant.
    """
    import torch

    from snippets.decoder.quantized import KINDS

    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    found: dict[str, Any] = {}
    for shape in shapes.split(","):
        k, n = numbers(shape.replace("x", ","))
        x = torch.randn(rows, k, device=device, dtype=dtype)
        weights = [
            torch.randn(n, k, device=device, dtype=dtype) * k**-0.5
            for _ in range(copies)
        ]
        entry: dict[str, Any] = {}
        replays = {}
        torch._dynamo.reset()
        for name in ways.split(","):
            kind, options = WAYS[name]
            try:
                linears = [
                    KINDS[kind](w) if kind else plain(w) for w in weights
                ]
                calls = [compiled(linear, options) for linear in linears]
                step = functools.partial(each, calls, x)
                result = calls[0](x).double()
                replays[name] = recorded(step, device)
                one = functools.partial(calls[0], x)
                entry[name] = {
                    "bytes": weight_bytes(linears[0]),
                    **errors(result, x, linears[0], weights[0]),
                    "kernels": kernels_of(instruments, one, device),
                }
            except torch.AcceleratorError:  # the GPU is unusable from here
                raise
            except FAILURES as error:
                entry[name] = stopped(error)
        for name, samples in times_us(replays, device).items():
            entry[name]["us"] = [us / copies for us in samples]
        found[f"{k} x {n}"] = entry
    torch._dynamo.reset()
    return found


def plain(weight: Any) -> Any:
    """A Linear of a weight (n, k)."""
    import torch
    from torch import nn

    with torch.device("meta"):
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    linear.weight = nn.Parameter(weight, requires_grad=False)
    return linear


def compiled(module: Any, options: Any) -> Any:
    """A module, compiled unless `options` is None."""
    import torch

    if options is None:
        return module
    return torch.compile(module, dynamic=False, **options)


def each(calls: list[Callable[[Any], Any]], x: Any) -> Any:
    """Call all; the last result."""
    result = None
    for call in calls:
        result = call(x)
    return result


def weight_bytes(linear: Any) -> int:
    """Of its weights and scales."""
    stored = [*linear.parameters(), *linear.buffers()]
    return sum(tensor.nbytes for tensor in stored)


def errors(result: Any, x: Any, linear: Any, weight: Any) -> dict[str, float]:
    """Relative errors of a product against float64."""
    meant = getattr(linear, "dequantized", lambda: weight)()
    found = {}
    for name, exact in (("error", meant), ("rounding", weight)):
        expected = x.double() @ exact.double().t()
        found[name] = ((result - expected).norm() / expected.norm()).item()
    return found


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bf16": ("", {}),
    "int8": ("int8", {}),
    "int8 max-autotune": ("int8", AUTOTUNE),
    "int4": ("int4", {}),
    "fp8": ("fp8", {}),
}
"""Variant -> the kind of its layers' weights, and how the layers are
compiled."""


def quantized_models(
    instruments: Instruments,
    device: str,
    size: str,
    layers: int,
    prompt: int,
    answer: int,
    ways: str,
) -> dict[str, Any]:
    """Tokens of a model whose layers have weights of each kind: each layer
    compiled, the step as a CUDA graph. The head stays in bf16.

    Returns {variant: {"us": samples of a token, "bytes": of the weights read,
    "error": of the first logits, against float32 with the weights that the
    codes mean}}, or {"stopped": why}.
    """
    import torch

    found: dict[str, Any] = {}
    for name in ways.split(","):
        torch._dynamo.reset()
        kind, options = MODELS[name]
        try:
            found[name] = quantized_tokens(
                device, (size, layers, prompt, answer), kind, options
            )
        except torch.AcceleratorError:
            raise
        except FAILURES as error:
            found[name] = stopped(error)
    torch._dynamo.reset()
    return found


def quantized_tokens(
    device: str,
    sizes: tuple[str, int, int, int],
    kind: str,
    options: dict[str, Any],
) -> dict[str, Any]:
    """One variant of `quantized_models`."""
    from snippets.decoder import loops, quantized
    from snippets.decoder.compiling import compile_layers

    size, layers, prompt, answer = sizes
    model = model_of(size, device, layers)
    other = quantized.quantize(model, kind) if kind else model
    decoding = compile_layers(other, **options)

    def start(model: Any, ids: Any) -> Any:
        if device == "cuda":
            return loops.graph(model, ids, answer, decoding)
        return loops.static(decoding, ids, answer)

    exact = quantized.dequantize(other) if kind else model
    loop = loop_of(start, other, prompt_of(model, 1, prompt), exact)
    logits = [next(loop.losses).item() for _ in range(3)]
    error = relative_error(logits, loop.reference(3))
    if not error <= loop.tolerance:
        raise ValueError(f"wrong: the logits' relative error is {error:.1e}")
    timed = times_us({"token": lambda: next(loop.losses)}, device)
    loop.losses.close()
    read = sum(weight_bytes(layer) for layer in other.layers)
    head = other.lm_head.weight.nbytes
    return {"us": timed["token"], "bytes": read + head, "error": error}


def weight_probes() -> Iterator[Experiment]:
    """Probes of quantized weights."""
    yield Experiment(
        chapter="decoder",
        name="one_product",
        probe=one_product,
        parameters={
            "shapes": "4096x14336,2048x5632",
            "rows": 1,
            "copies": 8,
            "ways": ",".join(way for way in WAYS if way != "bf16 compiled"),
        },
        time_limit_s=240,
    )
    yield Experiment(
        chapter="decoder",
        name="quantized_models",
        probe=quantized_models,
        parameters={
            "size": "1.1b",
            "layers": 22,
            "prompt": 512,
            "answer": 512,
            "ways": ",".join(MODELS),
        },
        time_limit_s=300,
    )
