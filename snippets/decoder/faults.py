"""Faults of token loops, before and after. Each yields (logit, token), as in
loops.py; `batch` answers share one prompt (1, prompt)."""

import torch

from .caches import GrowingCache, RepeatedCache, SlicedCache
from .graphs import DecodeGraph
from .loops import after
from .model import (
    StaticCache,
    choose,
    decode_one,
    prefill,
    static_cache,
)
from .quantized import quantize

END = -1
"""No token: an answer of random weights does not end."""


def read_prompt(model, ids, batch, length=0, kind=StaticCache):
    """The prompt's logit and token for each of `batch` answers, and a cache of
    `length` with the prompt in each row."""
    prompt = static_cache(model, 1, ids.shape[1])
    first = [y.expand(batch, 1) for y in prefill(model, ids, prompt)]
    weight, size = model.lm_head.weight, ids.shape[1]
    where = (batch, length or size, weight.device, weight.dtype)
    cache = [kind(model.config, *where) for _ in prompt]
    for kept, row in zip(cache, prompt, strict=True):
        kept.keys[:, :, :size] = row.keys
        kept.values[:, :, :size] = row.values
    return *first, cache


def graph_of(model, ids, answer, batch, length=0, pick=choose):
    """A recorded decode step behind a prompt."""
    longest = length or ids.shape[1] + answer
    logit, first, cache = read_prompt(model, ids, batch, longest)
    replay = DecodeGraph(model, cache, first, after(ids), pick)
    return logit, first, replay


def replayed(model, ids, answer, batch, length=0, pick=choose):
    logit, first, replay = graph_of(model, ids, answer, batch, length, pick)
    yield logit, first
    while True:
        replay.restart(first, after(ids))
        for _ in range(answer):
            yield replay()


# 1. The CPU reads every token before it asks for the next.
def item_before(model, ids, answer, batch):
    for logit, token in replayed(model, ids, answer, batch):
        yield logit, token
        if token[0].item() == END:
            break


def item_after(model, ids, answer, batch):
    ended = torch.zeros(batch, 1, dtype=torch.bool, device=ids.device)
    for count, (logit, token) in enumerate(replayed(model, ids, answer, batch)):
        yield logit, token
        ended |= token == END
        if count % 16 == 15 and ended.all():
            break


# 2. Each token copies all keys and values.
def cat_before(model, ids, answer, batch):
    logit, first, cache = read_prompt(model, ids, batch)
    yield logit, first
    while True:
        kept = [GrowingCache(one.keys, one.values) for one in cache]
        token, position = first, after(ids)
        for _ in range(answer):
            logit, token = decode_one(model, token, position, kept)
            yield logit, token
            position = position + 1


def cat_after(model, ids, answer, batch):
    return in_place(model, ids, answer, batch, SlicedCache)


def in_place(model, ids, answer, batch, kind):
    length = ids.shape[1] + answer
    logit, first, cache = read_prompt(model, ids, batch, length, kind)
    yield logit, first
    while True:
        token, position = first, after(ids)
        for kept in cache:
            kept.end = ids.shape[1]
        for _ in range(answer):
            logit, token = decode_one(model, token, position, cache)
            yield logit, token
            position = position + 1


# 3. A mask says what `is_causal` says, and the kernel no longer knows.
def mask_before(model, ids, answer, batch):
    longest = ids.shape[1]
    cache = static_cache(model, 1, longest)
    positions = torch.arange(longest, device=ids.device)
    mask = positions <= positions[:, None]
    while True:
        hidden = model(ids, positions, cache, mask)
        yield choose(model.lm_head(hidden[:, -1]))


def mask_after(model, ids, answer, batch):
    cache = static_cache(model, 1, ids.shape[1])
    while True:
        yield prefill(model, ids, cache)


# 4. Each query head gets its own copy of keys and values.
def repeat_kv_before(model, ids, answer, batch):
    return in_place(model, ids, answer, batch, RepeatedCache)


def repeat_kv_after(model, ids, answer, batch):
    return in_place(model, ids, answer, batch, SlicedCache)


# 5. The cache is far longer than the text, and is read to its end.
def long_cache_before(model, ids, answer, batch):
    return replayed(model, ids, answer, batch, length=64 * ids.shape[1])


def long_cache_after(model, ids, answer, batch):
    return replayed(model, ids, answer, batch)


# 6. Four bits a weight, launched one operator at a time.
def int4_before(model, ids, answer, batch):
    return in_place(quantize(model, "int4"), ids, answer, batch, SlicedCache)


def int4_after(model, ids, answer, batch):
    return replayed(quantize(model, "int4"), ids, answer, batch)


# 7. The CPU draws the next token.
def sampling_before(model, ids, answer, batch):
    logit, first, replay = graph_of(model, ids, answer, batch, pick=keep_all)
    yield logit, first
    while True:
        replay.restart(first, after(ids))
        for _ in range(answer):
            logits, _ = replay()
            weights = logits.float().cpu().softmax(dim=-1)
            token = torch.multinomial(weights, 1).to(ids.device)
            yield logits.gather(-1, token), token
            replay.token.copy_(token)


def keep_all(logits):
    return logits, logits.argmax(dim=-1, keepdim=True)


def sampling_after(model, ids, answer, batch):
    return replayed(model, ids, answer, batch, pick=draw)


def draw(logits):
    """A token by its probability: the largest after division by exponential
    noise. Nothing is read by the CPU."""
    weights = logits.float().softmax(dim=-1)
    noise = torch.empty_like(weights).exponential_()
    token = (weights / noise).argmax(dim=-1, keepdim=True)
    return logits.gather(-1, token), token


# 8. The logits of a whole prompt, of which the last row is used.
def prompt_logits_before(model, ids, answer, batch):
    cache = static_cache(model, 1, ids.shape[1])
    positions = torch.arange(ids.shape[1], device=ids.device)
    while True:
        logits = model.lm_head(model(ids, positions, cache)).float()
        yield choose(logits[:, -1])


def prompt_logits_after(model, ids, answer, batch):
    cache = static_cache(model, 1, ids.shape[1])
    while True:
        yield prefill(model, ids, cache)


# 9. A prompt padded to the longest that may come.
def padded_before(model, ids, answer, batch):
    longest = 4 * ids.shape[1]
    padding = ids.new_zeros(1, longest - ids.shape[1])
    padded = torch.cat((ids, padding), dim=1)
    cache = static_cache(model, 1, longest)
    positions = torch.arange(longest, device=ids.device)
    while True:
        hidden = model(padded, positions, cache)
        yield choose(model.lm_head(hidden[:, ids.shape[1] - 1]))


def padded_after(model, ids, answer, batch):
    cache = static_cache(model, 1, ids.shape[1])
    while True:
        yield prefill(model, ids, cache)
