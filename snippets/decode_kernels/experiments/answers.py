"""Are the answers right? Logits and greedy tokens against float32."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from snippets.decode_kernels.experiments.variants import (
    INT8_VARIANTS,
    SIZES,
    exact_of,
    forget,
    named,
    require_gpu,
    start_of,
)
from snippets.decoder.experiments.limits import left_out
from snippets.decoder.experiments.token_loops import (
    exact_logits,
    model_of,
    prompt_of,
)
from snippets.lab.experiment import Experiment, Instruments

if TYPE_CHECKING:
    from torch import Tensor


def answers(
    instruments: Instruments,
    device: str,
    size: str,
    prompt: int,
    tokens: int,
    variants: str,
) -> dict[str, Any]:
    """The greedy answer of each variant, compared with float32 at each token,
    behind the same tokens.

    Returns {variant: {"error": of the logits of the chosen tokens, relative,
    against float32 over the same weights, "equal": tokens that float32 over
    the same weights chooses too, "quantized": relative error of the same
    logits, both in float32, of the variant's weights against the weights
    before, so 0 in bf16, "equal_before": tokens that float32 over the weights
    before chooses too, "tokens"}}, or {"left_out": why}.
    """
    import torch

    require_gpu(device)
    if too_large := left_out(size, torch.cuda.mem_get_info()[0]):
        return {"left_out": too_large}
    model = model_of(size, device)
    ids = prompt_of(model, 1, prompt)
    found: dict[str, Any] = {}
    for name in variants.split(","):
        logits, answer = answer_of(start_of(name), model, ids, tokens)
        text = torch.cat((ids, answer[:, :-1]), dim=1)
        before = exact_logits(model, text)[0, prompt - 1 :]
        same = exact_logits(exact_of(name, model), text)[0, prompt - 1 :]
        chosen, chosen_before = (
            each.gather(1, answer[0, :, None])[:, 0] for each in (same, before)
        )
        found[name] = {
            "error": relative(logits, chosen),
            "equal": int((same.argmax(1) == answer[0]).sum()),
            "quantized": relative(chosen, chosen_before),
            "equal_before": int((before.argmax(1) == answer[0]).sum()),
            "tokens": tokens,
        }
        forget()
    return found


def answer_of(
    start: Any, model: Any, ids: Tensor, tokens: int
) -> tuple[Tensor, Tensor]:
    """The logits (tokens,) in float32 and the tokens (1, tokens) of a loop's
    first answer."""
    import torch

    logits, answer = [], []
    with closing(start(model, ids, answer=tokens)) as steps:
        for logit, token in itertools.islice(steps, tokens):
            logits.append(logit[0].to(torch.float32, copy=True))
            answer.append(token[:1].clone())
    return torch.cat(logits), torch.cat(answer, dim=1)


def relative(values: Tensor, expected: Tensor) -> float:
    """Norm of the difference over norm of what is expected."""
    values, expected = values.double(), expected.double()
    return ((values - expected).norm() / expected.norm()).item()


def answer_probes() -> Iterator[Experiment]:
    """Probes of answers of 256 tokens."""
    for size in SIZES:
        yield Experiment(
            chapter="decode_kernels",
            name=named("errors", size),
            probe=answers,
            parameters={
                "size": size,
                "prompt": 512,
                "tokens": 256,
                "variants": ",".join(("max_autotune", *INT8_VARIANTS)),
            },
            time_limit_s=240,
        )
