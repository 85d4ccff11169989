"""Loops of tokens: the rungs of the ladder, and faults before and after.

What a loop "loses" is the logit of the token that it chose. The reference
gives the logit of the same token in float32, behind the same tokens.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import (
    Experiment,
    Loop,
    NeedsGpu,
    Parameters,
    Work,
)

if TYPE_CHECKING:
    from torch import Tensor

LABEL = "token"
ON_GPU = {
    "graph": "static",
    "layers": "compiled",
    "joined": "compiled",
    "max_autotune": "compiled",
    "item_before": "eager",
    "item_after": "eager",
    "long_cache_before": "static",
    "long_cache_after": "static",
    "int4_before": "cat_after",
    "int4_after": "static",
    "sampling_before": "eager",
    "sampling_after": "eager",
}
"""Loop that needs a CUDA graph, or a kernel for CUDA alone -> a similar loop
that runs on a CPU."""
PROMPTS = ("mask", "prompt_logits", "padded")
"""Faults whose loops read a prompt at each iteration."""
NEW_LENGTHS = (
    "eager",
    "cat_before",
    "cat_after",
    "repeat_kv_before",
    "repeat_kv_after",
    "int4_before",
)
"""Loops whose attention meets another length at each token of an answer."""
TOLERANCE = 3e-2
"""Of logits of a bf16 model of some twenty layers."""
CHECKED = 3
"""Tokens that are compared, and so kept: copies of later tokens would be in
the trace."""


LONGEST = 1 << 17
"""Positions of the table of angles."""


@functools.lru_cache(maxsize=1)
def model_of(size: str, device: str, layers: int = 0) -> Any:
    """A decoder with random weights, built once for all loops of a process.
    In bf16; on a CPU in float32, which is faster there."""
    import torch

    from snippets.decoder.model import build

    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return build(size, device, dtype, LONGEST, layers)


def prompt_of(model: Any, batch: int, tokens: int) -> Tensor:
    """(batch, tokens) random ids."""
    import torch

    device = model.lm_head.weight.device
    draw = torch.Generator(device).manual_seed(1)
    shape = (batch, tokens)
    return torch.randint(
        model.config.vocab, shape, device=device, generator=draw
    )


def exact_logits(model: Any, ids: Tensor) -> Tensor:
    """(1, tokens, vocab): the logits at each position of (1, tokens) ids in
    float32, of one layer after the other to save memory."""
    import torch

    from snippets.decoder.model import StaticCache

    with torch.no_grad():
        positions = torch.arange(ids.shape[1], device=ids.device)
        rotary = model.rotary[:, positions].float()
        x = model.embed_tokens(ids).float()
        where = (1, ids.shape[1], ids.device, torch.float32)
        for layer in model.layers:
            exact = copy.deepcopy(layer).float()
            kept = StaticCache(model.config, *where)
            x = exact(x, rotary, kept, positions, None)
        x = copy.deepcopy(model.norm).float()(x)
        return x @ model.lm_head.weight.float().t()


def watched(
    tokens: Iterator[tuple[Tensor, Tensor]], chosen: list[Tensor]
) -> Generator[Tensor, None, None]:
    """The logits of the first answer of a loop; its first tokens go into
    `chosen`."""
    for logit, token in tokens:
        if len(chosen) < CHECKED:
            chosen.append(token[:1].clone())
        yield logit[0, 0]


def exact_choices(
    model: Any, ids: Tensor, chosen: Sequence[Tensor], in_prompt: bool
) -> list[float]:
    """The logits of chosen tokens (1, 1) in float32: of each behind the
    prompt if `in_prompt`, else behind the prompt and the tokens before it."""
    import torch

    end = ids.shape[1]
    read = ids if in_prompt else torch.cat((ids, *chosen), dim=1)
    logits = exact_logits(model, read)[0]
    places = [end - 1 + (0 if in_prompt else i) for i in range(len(chosen))]
    return [
        logits[place, int(token.item())].item()
        for place, token in zip(places, chosen, strict=True)
    ]


def loop_of(
    start: Callable[..., Iterator[Any]],
    model: Any,
    ids: Tensor,
    exact: Any = None,
    in_prompt: bool = False,
) -> Loop:
    """A loop of tokens, compared with `exact`, or with the model itself, in
    float32."""
    chosen: list[Tensor] = []
    return Loop(
        losses=watched(start(model, ids), chosen),
        reference=lambda count: exact_choices(
            exact or model, ids[:1], chosen[:count], in_prompt
        ),
        tolerance=TOLERANCE,
    )


def require_gpu(variant: str, device: str) -> None:
    """Raise `NeedsGpu` for a loop that has no form for a CPU."""
    if device != "cuda" and variant in ON_GPU:
        raise NeedsGpu(
            "it records a CUDA graph or needs a kernel of a GPU: "
            f"decoder/{ON_GPU[variant]} runs here"
        )


def rung(
    device: str, variant: str, size: str, batch: int, prompt: int, answer: int
) -> Loop:
    """A rung of the ladder, by name."""
    from snippets.decoder import loops

    require_gpu(variant, device)
    model = model_of(size, device)
    start = functools.partial(getattr(loops, variant), answer=answer)
    ids = prompt_of(model, batch, prompt)
    if variant in NEW_LENGTHS:
        read_answer(start(model, ids), answer)
    return loop_of(start, model, ids)


def read_answer(tokens: Generator[Any, None, None], answer: int) -> None:
    """Run a loop through its first answer: cuDNN plans attention at the first
    call with each length, which takes tens of milliseconds, and keeps the plan
    for the process."""
    with closing(tokens):
        for _ in itertools.islice(tokens, 1 + answer):
            pass


def fault(
    device: str,
    variant: str,
    size: str,
    layers: int,
    batch: int,
    prompt: int,
    answer: int,
) -> Loop:
    """A loop of faults.py, by name."""
    from snippets.decoder import faults, quantized

    require_gpu(variant, device)
    model = model_of(size, device, layers)
    start = functools.partial(
        getattr(faults, variant), answer=answer, batch=batch
    )
    exact = None
    if variant.startswith("int4"):
        exact = quantized.dequantize(quantized.quantize(model, "int4"))
    ids = prompt_of(model, 1, prompt)
    if variant in NEW_LENGTHS:
        read_answer(start(model, ids), answer)
    return loop_of(start, model, ids, exact, variant.startswith(PROMPTS))


def token_work(size: str, batch: int, prompt: int, answer: int) -> Work:
    """The weights once, and the keys and values of half an answer."""
    from snippets.decoder.model import CONFIGS, bytes_per_token, flops_per_token

    config, context = CONFIGS[size], prompt + answer // 2
    return Work(
        bytes=bytes_per_token(config, batch, context),
        other_flops=batch * flops_per_token(config, context),
    )


LADDER = {
    "eager": "launched",
    "static": "launched",
    "graph": "ladder",
    "compiled": "launched",
    "reduce_overhead": "ladder",
    "layers": "ladder",
    "joined": "ladder",
    "max_autotune": "ladder",
}
"""Rungs, from the first to the last -> their group. The times of rungs whose
kernels the CPU launches follow the CPU's speed, so they are repeated alone."""
TEXT: Parameters = {
    "size": "1.1b",
    "batch": 1,
    "prompt": 512,
    "answer": 32,
}
SMALL: Parameters = {**TEXT, "layers": 4}
LONG: Parameters = {**SMALL, "prompt": 4096, "answer": 8}
MANY: Parameters = {**SMALL, "layers": 1, "prompt": 2048, "answer": 8}
FAULTS: dict[str, Parameters] = {
    "item": SMALL,
    "sampling": SMALL,
    "int4": {**SMALL, "answer": 16},
    "long_cache": {**SMALL, "batch": 8},
    "cat": {**MANY, "batch": 1536},
    "mask": LONG,
    "repeat_kv": {**MANY, "batch": 256},
    "prompt_logits": LONG,
    "padded": LONG,
}
"""Fault -> sizes that show it, in few layers. With many answers of one prompt,
the cache takes longer to read than an eager step takes to launch."""


def ladder() -> Iterator[Experiment]:
    """The rungs, timed in turns."""
    for name, group in LADDER.items():
        yield Experiment(
            chapter="decoder",
            name=name,
            label=LABEL,
            group=group,
            parameters=TEXT,
            loop=functools.partial(rung, variant=name),
            work=token_work,
            time_limit_s=180,
        )


def pairs() -> Iterator[Experiment]:
    """Each fault, before and after."""
    for name, sizes in FAULTS.items():
        for state in ("before", "after"):
            yield Experiment(
                chapter="decoder",
                name=f"{name}_{state}",
                label="prompt" if name in PROMPTS else LABEL,
                group=name,
                parameters=sizes,
                loop=functools.partial(fault, variant=f"{name}_{state}"),
            )
