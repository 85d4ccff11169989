"""The package transformers: `generate` as people call it, over the weights of
the chapter's decoder."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Generator, Iterator
from typing import Any
from unittest.mock import patch

from snippets.decoder.experiments.token_loops import (
    TOLERANCE,
    exact_logits,
    model_of,
    prompt_of,
)
from snippets.lab.experiment import (
    Experiment,
    Instruments,
    Loop,
    NeedsGpu,
    Parameters,
    Schedule,
)

MISSING = "needs transformers: pip install transformers==5.17.0"


def as_transformers(model: Any) -> Any:
    """The same weights as `LlamaForCausalLM`. Raises `ModuleNotFoundError`."""
    import torch

    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING) from error
    ours = model.config
    config = LlamaConfig(
        vocab_size=ours.vocab,
        hidden_size=ours.dim,
        intermediate_size=ours.hidden,
        num_hidden_layers=ours.layers,
        num_attention_heads=ours.heads,
        num_key_value_heads=ours.kv_heads,
        max_position_embeddings=model.rotary.shape[1],
        rms_norm_eps=ours.eps,
        rope_parameters={"rope_type": "default", "rope_theta": ours.theta},
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        attn_implementation="sdpa",
    )
    with torch.device("meta"):
        theirs = LlamaForCausalLM(config)
    weights = {
        name if name.startswith("lm_head") else f"model.{name}": weight
        for name, weight in model.state_dict().items()
    }
    theirs.load_state_dict(weights, assign=True)
    # what no checkpoint holds
    rotary = type(theirs.model.rotary_emb)(config)
    theirs.model.rotary_emb = rotary.to(model.lm_head.weight.device)
    return theirs.eval().requires_grad_(False)


class TokenSpans:
    """A logits processor that begins a span `token` in the trace at each call
    and ends the one before. It keeps the logits of the newest token."""

    def __init__(self) -> None:
        self.scores: Any = None
        self.span: Any = None

    def __call__(self, ids: Any, scores: Any) -> Any:
        import torch

        self.end()
        self.scores = scores
        self.span = torch.profiler.record_function("token")
        self.span.__enter__()
        return scores

    def end(self) -> None:
        """End the span."""
        if self.span is not None:
            self.span.__exit__(None, None, None)
        self.span = None


@contextlib.contextmanager
def stopping(check: str, device: str, longest: int) -> Iterator[None]:
    """How `generate` asks whether all sequences have ended: "each" token, as
    it does, "late", one token later without waiting, or "never": then it ends
    at `longest` tokens, prompt included.

    Raises `NeedsGpu` for "late" on a CPU, and `NotImplementedError` where this
    version cannot.
    """
    from transformers.generation import utils

    if check == "each":
        yield
        return
    if check == "late" and device == "cpu":
        raise NeedsGpu("a CPU has no events: decoder/generate runs here")
    names = {"late": "DeferredStopCheck", "never": "StopCheck"}
    if not hasattr(utils, names[check]):
        raise NotImplementedError(f"no {names[check]} in this transformers")
    stop_check = getattr(utils, names[check])
    if check == "late":
        replaced: Any = patch.object(
            stop_check, "is_supported", lambda *_, **__: True
        )
    else:
        replaced = patch.object(
            stop_check,
            "__call__",
            lambda _self, _unfinished, _tokens, length: length >= longest,
        )
    with replaced:
        yield


def generate(
    theirs: Any, ids: Any, new: int, spans: Any, **options: Any
) -> Any:
    """Call `generate`, greedy, for exactly so many new tokens. The end token
    is one that no text has, so that its check runs."""
    import torch

    return theirs.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new,
        do_sample=False,
        eos_token_id=theirs.config.vocab_size,
        pad_token_id=0,
        logits_processor=[spans] if spans else None,
        **options,
    )


def generate_loop(
    device: str, check: str, size: str, batch: int, prompt: int, tokens: int
) -> Loop:
    """A loop of whole calls of `generate`, with a span `token` from the choice
    of each token to that of the next."""
    import torch

    model = model_of(size, device)
    theirs = as_transformers(model)
    ids = prompt_of(model, batch, prompt)
    texts: list[torch.Tensor] = []

    def calls() -> Generator[torch.Tensor, None, None]:
        spans = TokenSpans()
        while True:
            with stopping(check, device, prompt + tokens):
                text = generate(theirs, ids, tokens, spans)
            spans.end()
            texts[:] = [text[:1]]
            yield spans.scores[0, text[0, -1]]

    def reference(count: int) -> list[float]:
        text = texts[0]
        logits = exact_logits(model, text[:, :-1])[0, -1]
        return [logits[text[0, -1]].item()] * count

    return Loop(calls(), reference, TOLERANCE)


WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "dynamic": ("each", {}),
    "late": ("late", {}),
    "never": ("never", {}),
    "static eager": (
        "each",
        {"cache_implementation": "static", "disable_compile": True},
    ),
    "static": ("each", {"cache_implementation": "static"}),
}
"""Variant -> when the end is checked, and options of `generate`. `static`
compiles by itself."""


def generate_times(
    instruments: Instruments,
    device: str,
    size: str,
    batch: int,
    prompt: int,
    few: int,
    many: int,
    rounds: int,
    ways: str,
) -> dict[str, Any]:
    """The time of a token of `generate`, from calls for few and for many new
    tokens, variants A B, B A.

    Returns {"version", "variants": {variant: {"us": samples of a token,
    "first_us": of a call for few tokens, "warm_up_s": of the first two
    calls}}}, {"stopped": why} of a variant, or {"missing": why}.
    """
    import importlib.metadata

    model = model_of(size, device)
    try:
        theirs = as_transformers(model)
    except ModuleNotFoundError as error:
        return {"missing": str(error)}
    ids = prompt_of(model, batch, prompt)
    found: dict[str, Any] = {}
    variants = {name: way(name, prompt + many) for name in ways.split(",")}
    for name, (check, options) in variants.items():
        try:
            call = functools.partial(
                call_s, theirs, ids, check=check, **options
            )
            warm_up_s = [call(new=new) for new in (few, many)]
        except (NotImplementedError, NeedsGpu) as error:
            found[name] = {"stopped": str(error)}
            continue
        found[name] = {"us": [], "first_us": [], "warm_up_s": warm_up_s}
    running = [name for name in found if "us" in found[name]]
    for index, place in itertools.product(range(rounds), range(len(running))):
        name = running[place if index % 2 == 0 else -1 - place]
        entry = found[name]
        check, options = variants[name]
        few_s, many_s = (
            call_s(theirs, ids, new=new, check=check, **options)
            for new in (few, many)
        )
        each_s = (many_s - few_s) / (many - few)
        entry["us"].append(round(1e6 * each_s, 3))
        entry["first_us"].append(round(1e6 * few_s, 3))
    version = importlib.metadata.version("transformers")
    return {"version": version, "variants": found}


def way(name: str, longest: int) -> tuple[str, dict[str, Any]]:
    """When the end is checked, and options of `generate`; a static cache is as
    long for few tokens as for many."""
    check, options = WAYS[name]
    if "cache_implementation" in options:
        options = {**options, "max_cache_len": longest}
    return check, options


def call_s(
    theirs: Any, ids: Any, new: int, check: str, **options: Any
) -> float:
    """Seconds of one call, until the GPU is done."""
    import torch

    if is_gpu := ids.device.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    with stopping(check, ids.device.type, ids.shape[1] + new):
        generate(theirs, ids, new, None, **options)
    if is_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - begin


CALL: Parameters = {"size": "1.1b", "batch": 1, "prompt": 512}


def generate_experiments() -> Iterator[Experiment]:
    """`generate`: traces of few tokens by stop check, and times."""
    for name, check in (
        ("generate", "each"),
        ("generate_late", "late"),
        ("generate_never", "never"),
    ):
        yield Experiment(
            chapter="decoder",
            name=name,
            label="generate",
            parameters={**CALL, "tokens": 3},
            loop=functools.partial(generate_loop, check=check),
            schedule=Schedule(active=1),
            timed=False,
        )
    yield Experiment(
        chapter="decoder",
        name="generate_times",
        probe=generate_times,
        parameters={
            **CALL,
            "few": 1,
            "many": 40,
            "rounds": 4,
            "ways": "dynamic,late,never,static eager",
        },
        time_limit_s=300,
    )
