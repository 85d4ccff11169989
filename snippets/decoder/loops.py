"""The rungs of a ladder: the same tokens of the same weights, each time with
less for the CPU to do.

Each yields (logit, token), (batch, 1) each: first what follows the prompt ids
(batch, prompt), then one token after the other, again from the prompt after
each `answer`.
"""

import torch

from .caches import GrowingCache
from .compiling import compile_layers, join_projections
from .graphs import DecodeGraph
from .model import decode_one, prefill, static_cache


def after(ids):
    """(1,): the first position after a prompt."""
    return torch.full((1,), ids.shape[1], device=ids.device)


# --8<-- [start:eager]
def eager(model, ids, answer, decode=decode_one):
    prompt = static_cache(model, ids.shape[0], ids.shape[1])
    logit, first = prefill(model, ids, prompt)
    yield logit, first
    while True:
        cache = [GrowingCache(kept.keys, kept.values) for kept in prompt]
        token, position = first, after(ids)
        for _ in range(answer):
            logit, token = decode(model, token, position, cache)
            yield logit, token
            position = position + 1


# --8<-- [end:eager]


# --8<-- [start:static]
def static(model, ids, answer, decode=decode_one, keep_addresses=False):
    cache = static_cache(model, ids.shape[0], ids.shape[1] + answer)
    if keep_addresses:  # else "skipping cudagraphs due to mutated inputs"
        for kept in cache:
            torch._dynamo.mark_static_address(kept.keys)
            torch._dynamo.mark_static_address(kept.values)
    logit, first = prefill(model, ids, cache)
    yield logit, first
    while True:
        token, position = first, after(ids)
        for _ in range(answer):
            logit, token = decode(model, token, position, cache)
            yield logit, token
            position = position + 1


# --8<-- [end:static]


# --8<-- [start:replayed]
def graph(model, ids, answer, decoding=None):
    cache = static_cache(model, ids.shape[0], ids.shape[1] + answer)
    logit, first = prefill(model, ids, cache)
    yield logit, first
    replay = DecodeGraph(decoding or model, cache, first, after(ids))
    while True:
        replay.restart(first, after(ids))
        for _ in range(answer):
            yield replay()


# --8<-- [end:replayed]


# --8<-- [start:compiled]
def compiled(model, ids, answer):
    decode = torch.compile(decode_one, fullgraph=True)
    return static(model, ids, answer, decode)


def reduce_overhead(model, ids, answer):
    step = torch.compile(decode_one, fullgraph=True, mode="reduce-overhead")

    def decode(model, token, position, cache):
        logit, token = step(model, token, position, cache)
        return logit, token.clone()  # the next replay overwrites it

    return static(model, ids, answer, decode, keep_addresses=True)


def layers(model, ids, answer):
    return graph(model, ids, answer, compile_layers(model))


def joined(model, ids, answer):
    other = join_projections(model)
    return graph(model, ids, answer, compile_layers(other))


def max_autotune(model, ids, answer):
    options = {"mode": "max-autotune-no-cudagraphs"}
    other = join_projections(model)
    return graph(model, ids, answer, compile_layers(other, **options))


# --8<-- [end:compiled]
