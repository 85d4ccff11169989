"""What a compiled token loop costs before it is fast."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from snippets.decoder.experiments.token_loops import model_of, prompt_of
from snippets.lab.experiment import Experiment, Instruments


def first_calls(
    instruments: Instruments,
    device: str,
    size: str,
    layers: int,
    prompt: int,
    tokens: int,
) -> dict[str, Any]:
    """The first tokens of a compiled loop with empty caches.

    Returns {"call_s": {mode: seconds of each token, the GPU done}} for the
    whole step in the mode reduce-overhead, and for a step of compiled layers;
    the modules are compiled at the first call.
    """
    import torch
    from torch._inductor.utils import fresh_cache

    from snippets.decoder import loops
    from snippets.decoder.compiling import compile_layers
    from snippets.decoder.model import decode_one

    model = model_of(size, device, layers)
    ids = prompt_of(model, 1, prompt)

    def layers_alone(model: Any, ids: Any, answer: int) -> Any:
        other = compile_layers(model)

        def decode(model: Any, token: Any, position: Any, cache: Any) -> Any:
            return decode_one(other, token, position, cache)

        return loops.static(model, ids, answer, decode)

    found = {}
    starts = {"whole": loops.reduce_overhead, "layers": layers_alone}
    for name, start in starts.items():
        torch._dynamo.reset()
        with fresh_cache():
            running = start(model, ids, tokens)
            next(running)  # the prompt
            found[name] = calls_s(running, tokens, device)
            running.close()
    torch._dynamo.reset()
    return {"call_s": found}


def calls_s(tokens: Iterator[Any], count: int, device: str) -> list[float]:
    """Seconds of each of the next tokens, until the GPU is done."""
    import torch

    seconds = []
    for _ in range(count):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        next(tokens)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(round(time.perf_counter() - begin, 6))
    return seconds


def lengths(
    instruments: Instruments,
    device: str,
    size: str,
    layers: int,
    prompt: int,
    tokens: int,
) -> dict[str, Any]:
    """A compiled step whose cache grows with each token, and a step with a
    static cache.

    Returns {cache: {"call_s": seconds of each token, "graphs": compiled so
    far}}. `cat` may compile for each length, `static` compiles once; in the
    variant `cat, static shapes` the compiler may not assume changing shapes.
    The variant `not compiled` comes first, so that its attention meets each
    length for the first time, and has the "again_s" of a second answer.
    """
    import torch
    from torch._dynamo.utils import counters

    from snippets.decoder import loops
    from snippets.decoder.model import decode_one

    model = model_of(size, device, layers)
    ids = prompt_of(model, 1, prompt)
    running = loops.eager(model, ids, tokens)
    next(running)  # the prompt
    passes = [calls_s(running, tokens, device) for _ in range(2)]
    running.close()
    plain = {"call_s": passes[0], "again_s": passes[1], "graphs": [0] * tokens}
    found: dict[str, Any] = {"not compiled": plain}
    variants: Sequence[tuple[str, Any, bool | None]] = (
        ("cat", loops.eager, None),
        ("cat, static shapes", loops.eager, False),
        ("static", loops.static, None),
    )
    for name, start, dynamic in variants:
        torch._dynamo.reset()
        counters.clear()
        decode = torch.compile(decode_one, dynamic=dynamic)
        running = start(model, ids, tokens, decode)
        next(running)
        entry: dict[str, list[Any]] = {"call_s": [], "graphs": []}
        for _ in range(tokens):
            entry["call_s"] += calls_s(running, 1, device)
            entry["graphs"].append(counters["stats"]["unique_graphs"])
        found[name] = entry
        running.close()
    torch._dynamo.reset()
    return found


def compile_probes() -> Iterator[Experiment]:
    """Probes of compilations."""
    yield Experiment(
        chapter="decoder",
        name="first_calls",
        probe=first_calls,
        parameters={"size": "1.1b", "layers": 8, "prompt": 512, "tokens": 8},
        time_limit_s=240,
    )
    yield Experiment(
        chapter="decoder",
        name="lengths",
        probe=lengths,
        parameters={"size": "1.1b", "layers": 1, "prompt": 640, "tokens": 10},
        time_limit_s=180,
    )
