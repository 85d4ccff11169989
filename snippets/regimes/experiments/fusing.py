"""Cases in which fusion does not win: experiments of the chapter regimes on a Linear with its GELU, by the number of
tokens."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

from snippets.lab.experiment import (
    Experiment,
    Instruments,
    NeedsGpu,
    Schedule,
    Subject,
)
from snippets.regimes.experiments.caching import in_cache
from snippets.regimes.experiments.compiled import (
    caches_in,
    calls_of,
    kernels_of,
)
from snippets.regimes.experiments.layer import layer_subjects, layer_work
from snippets.regimes.experiments.modules import (
    WIDTHS,
    module_subject,
    stack_of,
)
from snippets.regimes.experiments.subjects import stack_work

FEW_TO_MANY = tuple(
    {"tokens": tokens} for tokens in (1, 16, 64, 256, 1024, 8192)
)


def layer(
    device: str, variant: str, tokens: int, dim: int, hidden: int
) -> Subject:
    """One of the four steps; two of them need a GPU."""
    if device != "cuda" and variant in ("epilogue", "fused"):
        raise NeedsGpu(
            f"{variant} runs on a GPU: regimes/layer_eager runs here"
        )
    return layer_subjects(device, tokens, dim, hidden)[variant]


# --8<-- [start:written_out]
def written_out(
    up: Any, up_bias: Any, down: Any, down_bias: Any
) -> Callable[[Any], Any]:
    """The stack without nn.Linear: product and sum are two operators."""
    from torch.nn import functional as F

    def forward(x: Any) -> Any:
        hidden = F.gelu(x @ up.t() + up_bias, approximate="tanh")
        return hidden @ down.t() + down_bias

    return forward


# --8<-- [end:written_out]


def stack_steps(stack: Any) -> dict[str, Any]:
    """The stack eager, compiled, and compiled from its written-out form.

    Inductor tunes no pointwise kernel here: it would choose another launch
    configuration from one compilation to the next.
    """
    import torch

    options: dict[str, Any] = {"triton.autotune_pointwise": False}
    form = written_out(*stack.parameters())
    return {
        "eager": stack,
        "compiled": torch.compile(stack, options=options),
        "written_out": torch.compile(form, options=options),
    }


def stack_variant(
    device: str, variant: str, tokens: int, dim: int, hidden: int
) -> Subject:
    """One of the three, for a trace."""
    stack = stack_of(device, dim, hidden)
    return module_subject(stack, stack_steps(stack)[variant], tokens)


def biases(
    instruments: Instruments,
    device: str,
    dim: int,
    hidden: int,
    sizes: str,
) -> dict[str, Any]:
    """Where the compiler adds the bias of the first Linear, and the cost.

    Returns {"code": {dtype: {variant: {"calls": what the generated code calls, in order, "kernels": Triton source by
    name}}}, "us": {tokens: {variant: samples}}}, times interleaved and in bf16.
    """
    import torch
    from torch._inductor.utils import run_and_get_code

    found: dict[str, Any] = {"code": {}, "us": {}}
    tokens = [int(size) for size in sizes.split(",")]
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        caches_in(folder),
    ):
        for dtype in ("float32", "bfloat16"):
            stack = stack_of(device, dim, hidden, dtype)
            x = module_subject(stack, stack, tokens[0]).inputs()[0]
            code = found["code"][dtype] = {}
            for name, step in stack_steps(stack).items():
                if name == "eager":
                    continue
                with torch.no_grad():
                    _, sources = run_and_get_code(step, x)
                code[name] = {
                    "calls": calls_of(sources),
                    "kernels": kernels_of(sources),
                }
        for count in tokens if device == "cuda" else ():
            torch._dynamo.reset()
            subjects = {
                name: module_subject(stack, step, count)
                for name, step in stack_steps(stack).items()
            }
            for subject in subjects.values():
                instruments.relative_error(subject, device)
            timings = instruments.time_interleaved(subjects)
            found["us"][count] = {
                name: timing.samples_us for name, timing in timings.items()
            }
    torch._dynamo.reset()
    return found


def _traced(variant: str, tokens: int) -> Experiment:
    return Experiment(
        chapter="regimes",
        name=f"bias_{variant}_{tokens}",
        label="stack_forward",
        parameters={**WIDTHS, "tokens": tokens},
        make=partial(stack_variant, variant=variant),
        work=stack_work,
        group=f"bias_{tokens}",
        schedule=Schedule(active=3),
        timed=False,
    )


FUSING = (
    *(
        Experiment(
            chapter="regimes",
            name=f"layer_{variant}",
            label="linear_gelu",
            parameters={**WIDTHS, "tokens": 64},
            make=partial(layer, variant=variant),
            work=layer_work,
            group="layer",
            sweep=FEW_TO_MANY,
        )
        for variant in ("eager", "fused")
    ),
    *(
        _traced(variant, tokens)
        for tokens in (64, 8192)
        for variant in ("eager", "compiled", "written_out")
    ),
    Experiment(
        chapter="regimes",
        name="biases",
        probe=biases,
        parameters={**WIDTHS, "sizes": "64,1024,8192"},
        time_limit_s=180,
    ),
    Experiment(
        chapter="regimes",
        name="in_cache",
        probe=in_cache,
        parameters={
            **WIDTHS,
            "sizes": "64,256,1024,2048,4096,8192,16384",
            "rounds": 15,
        },
    ),
)
"""Small batches, the bias of a large one, and what is still in the cache."""
