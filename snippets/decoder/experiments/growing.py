"""Growing a token loop: batches, contexts, caches, and a second request."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from snippets.decoder.experiments.attending import cache_kinds, split_keys
from snippets.decoder.experiments.clocks import (
    numbers,
    recorded,
    stopped,
    times_us,
)
from snippets.decoder.experiments.token_loops import model_of, prompt_of
from snippets.lab.experiment import Experiment, Instruments

if TYPE_CHECKING:
    from torch import Tensor


def filled(model: Any, batch: int, length: int, kind: Any = None) -> Any:
    """A cache of `length` with random keys and values."""
    from snippets.decoder.model import StaticCache

    weight = model.lm_head.weight
    where = (batch, length, weight.device, weight.dtype)
    cache = [(kind or StaticCache)(model.config, *where) for _ in model.layers]
    for kept in cache:
        kept.keys.normal_()
        kept.values.normal_()
    return cache


def decode_at(model: Any, cache: Any, batch: int, end: int) -> Any:
    """A step that decodes a token at the same position again and again."""
    import torch

    from snippets.decoder.model import decode_one

    token = prompt_of(model, batch, 1)
    position = torch.full((1,), end - 1, device=token.device)

    def step() -> Tensor:
        for kept in cache:
            kept.end = end - 1  # of a cache that is read as far as written
        _, following = decode_one(model, token, position, cache)
        return following

    return step


def batches(
    instruments: Instruments,
    device: str,
    size: str,
    context: int,
    counts: str,
    large: str,
) -> dict[str, Any]:
    """Decode steps of more and more sequences: compiled layers, as a CUDA
    graph; the products of such a step alone; and, where products are large
    enough to reach the rates of the GPU, those of the head and one layer of
    the size `large`.

    Returns {batch: {"us": samples of the step, "products_us",
    "large_products_us", "bytes", "flops", "weight_bytes"}}, or {batch:
    {"stopped": why}}.
    """
    import torch

    from snippets.decoder.model import build, bytes_per_token, flops_per_token

    model = model_of(size, device)
    other = build(large, device, model.lm_head.weight.dtype, 1, layers=1)
    found: dict[str, Any] = {}
    for batch in numbers(counts):
        torch._dynamo.reset()
        try:
            timed = batch_us(model, other, device, batch, context)
        except torch.OutOfMemoryError as error:
            found[str(batch)] = stopped(error)
            continue
        found[str(batch)] = {
            **timed,
            "bytes": bytes_per_token(model.config, batch, context),
            "weight_bytes": bytes_per_token(model.config, 0, 0),
            "flops": batch * flops_per_token(model.config, context),
        }
    torch._dynamo.reset()
    return found


def batch_us(
    model: Any, large: Any, device: str, batch: int, context: int
) -> dict[str, list[float]]:
    """The samples of one batch of `batches`."""
    from snippets.decoder.caches import FullCache
    from snippets.decoder.compiling import compile_layers

    cache = filled(model, batch, context, FullCache)
    step = decode_at(compile_layers(model), cache, batch, context)
    steps = {
        "us": recorded(step, device),
        "products_us": recorded(products(model, batch), device),
        "large_products_us": recorded(products(large, batch), device),
    }
    return times_us(steps, device)


def products(model: Any, batch: int) -> Callable[[], Any]:
    """The matrix products of a decode step, on random inputs."""
    import torch
    from torch.nn import functional as F

    weights = [
        weight
        for name, weight in model.named_parameters()
        if weight.dim() == 2 and "embed" not in name
    ]
    inputs = {
        weight.shape[1]: torch.randn(batch, weight.shape[1]).to(weight)
        for weight in weights
    }

    def step() -> Any:
        y = None
        for weight in weights:
            y = F.linear(inputs[weight.shape[1]], weight)
        return y

    return step


def contexts(
    instruments: Instruments, device: str, size: str, tokens: str
) -> dict[str, Any]:
    """A decode step behind longer and longer texts, as a CUDA graph of eager
    kernels: with a mask, and with a view of what is written.

    Returns {tokens: {"masked_us", "sliced_us": samples, "bytes", "cache_bytes",
    "kernels": those of one layer's attention, sliced}}.
    """
    from snippets.decoder.caches import SlicedCache
    from snippets.decoder.model import bytes_per_token

    model = model_of(size, device)
    found: dict[str, Any] = {}
    for end in numbers(tokens):
        cache = filled(model, 1, end)
        masked = recorded(decode_at(model, cache, 1, end), device)
        cache = filled(model, 1, end, SlicedCache)
        sliced = recorded(decode_at(model, cache, 1, end), device)
        steps = {"masked_us": masked, "sliced_us": sliced}
        whole = bytes_per_token(model.config, 1, end)
        found[str(end)] = {
            **times_us(steps, device),
            "bytes": whole,
            "cache_bytes": whole - bytes_per_token(model.config, 0, 0),
        }
    return found


def second_request(
    instruments: Instruments,
    device: str,
    size: str,
    context: int,
    prompts: str,
    tokens: int,
) -> dict[str, Any]:
    """What one reader waits for while the prompt of another is read.

    Returns {tokens of the other prompt: microseconds from each token of the
    first to the next; the other prompt comes in the middle}.
    """
    from snippets.decoder.model import prefill, static_cache

    model = model_of(size, device)
    cache = filled(model, 1, context)
    decode = recorded(decode_at(model, cache, 1, context), device)
    found: dict[str, Any] = {}
    for length in numbers(prompts):
        ids, other = prompt_of(model, 1, length), static_cache(model, 1, length)
        prefill(model, ids, other)
        read = functools.partial(prefill, model, ids, other)
        found[str(length)] = gaps_us(decode, read, tokens)
    return found


def gaps_us(
    decode: Callable[[], Any], other: Callable[[], Any], tokens: int
) -> Sequence[float]:
    """Microseconds between tokens, as the CPU sees them; before the middle one
    the other request's prompt is read."""
    times = []
    for index in range(tokens + 1):
        if index == tokens // 2 + 1:
            other()
        decode().cpu()
        times.append(time.perf_counter_ns())
    return [
        round((after - before) / 1e3, 3)
        for before, after in itertools.pairwise(times)
    ]


def growth_probes() -> Iterator[Experiment]:
    """Probes of the second page."""
    probes: dict[str, tuple[Any, dict[str, int | str]]] = {
        "batches": (
            batches,
            {
                "size": "1.1b",
                "context": 256,
                "counts": "1,8,64,128,256,512",
                "large": "8b",
            },
        ),
        "contexts": (
            contexts,
            {"size": "1.1b", "tokens": "128,1024,4096,16384,65536"},
        ),
        "split_keys": (
            split_keys,
            {"points": "1x256,1x1024,1x4096,1x16384,32x1024"},
        ),
        "cache_kinds": (
            cache_kinds,
            {
                "size": "1.1b",
                "batch": 8,
                "longest": 16384,
                "tokens": "1024,8192",
                "page": 128,
            },
        ),
        "second_request": (
            second_request,
            {
                "size": "1.1b",
                "context": 1024,
                "prompts": "512,2048,8192",
                "tokens": 40,
            },
        ),
    }
    for name, (probe, parameters) in probes.items():
        yield Experiment(
            chapter="decoder", name=name, probe=probe, parameters=parameters
        )
