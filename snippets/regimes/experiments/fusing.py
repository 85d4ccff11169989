"""Cases in which fusion does not win: experiments of the chapter regimes on a Linear with its GELU, by the number of
tokens."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from snippets.lab.experiment import (
    Experiment,
    Instruments,
    NeedsGpu,
    Schedule,
    Subject,
    copy_subject,
)
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
COPIED_BYTES = 1 << 29
"""Bytes of the copy that measures the memory's ceiling: half a GiB."""


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


def in_cache(
    instruments: Instruments,
    device: str,
    dim: int,
    hidden: int,
    sizes: str,
    rounds: int,
) -> dict[str, Any]:
    """How fast GELU reads the result that the preceding product has just
    written.

    Returns {"l2_bytes", "copy": {"bytes": read and written, "us": samples},
    "op_us": {op: {tokens: {"after": right after the product, "flushed": once
    the L2 cache holds other data}}}, "step_us": {tokens: {step: samples}}}. An
    op's times are those of its kernel in a profile, the others are interleaved.
    """
    import torch

    if device != "cuda":
        raise NeedsGpu("a CPU's caches are not what this asks about")
    tokens = [int(size) for size in sizes.split(",")]
    subjects = {
        count: layer_subjects(device, count, dim, hidden) for count in tokens
    }
    step_us: dict[str, dict[str, Sequence[float]]] = {}
    for count, steps in subjects.items():
        for subject in steps.values():
            instruments.relative_error(subject, device)
        step_us[str(count)] = {
            name: timing.samples_us
            for name, timing in instruments.time_interleaved(steps).items()
        }
    copied = copy_subject(device, COPIED_BYTES)
    copy_us = instruments.time_interleaved({"copy": copied})["copy"].samples_us
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    products = {count: steps["linear"] for count, steps in subjects.items()}
    return {
        "l2_bytes": l2_bytes,
        "copy": {"bytes": 2 * COPIED_BYTES, "us": copy_us},
        "op_us": op_times(instruments, products, l2_bytes, rounds),
        "step_us": step_us,
    }


# --8<-- [start:after]
def rounds_of(
    products: Mapping[int, Callable[[], Any]], other: Any, rounds: int
) -> list[tuple[str, int, str]]:
    """Run GELU, and a negation that moves the same number of bytes, right after
    the product and again after a read of `other`; return the sequence."""
    import torch
    from torch.nn import functional as F

    ops: dict[str, Callable[[Any], Any]] = {
        "gelu": partial(F.gelu, approximate="tanh"),
        "negation": torch.neg,
    }
    ran = []
    for number in range(rounds):
        for count in sorted(products, reverse=number % 2 == 1):
            for name, op in ops.items():
                hidden = products[count]()
                op(hidden)
                other.sum()
                op(hidden)
                ran += [(name, count, "after"), (name, count, "flushed")]
    return ran


# --8<-- [end:after]


def op_times(
    instruments: Instruments,
    products: Mapping[int, Subject],
    l2_bytes: int,
    rounds: int,
) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Microseconds of each op's kernel in a profile of these rounds. Raises
    `RuntimeError` if the profile has another number of kernels."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    other = torch.randn(l2_bytes, device="cuda")  # four times the cache
    # before the profile: random numbers would add kernels to it
    steps = {
        count: partial(product.step, *product.inputs())
        for count, product in products.items()
    }
    for count in (1, rounds):  # a process's first profile can lose kernels
        with profile(activities=[ProfilerActivity.CUDA]) as finished:
            ran = rounds_of(steps, other, count)
            torch.cuda.synchronize()
    kernels = sorted(
        (
            activity
            for activity in instruments.read_activities(finished)
            if "elementwise" in activity.name
        ),
        key=lambda activity: activity.start_us,
    )
    if len(kernels) != len(ran):
        raise RuntimeError(f"{len(kernels)} pointwise kernels of {len(ran)}")
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for (op, size, when), kernel in zip(ran, kernels, strict=True):
        times = found.setdefault(op, {}).setdefault(str(size), {})
        times.setdefault(when, []).append(round(kernel.duration_us, 3))
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
