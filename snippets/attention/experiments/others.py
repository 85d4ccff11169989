"""Attention by others: a kernel from the Hub, and the compiler's code."""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING, Any

from snippets.attention.experiments.steps import (
    _exact,
    _random,
    _without_gradients,
    attention,
)
from snippets.lab.experiment import Instruments, NeedsGpu, Subject
from snippets.mlp.experiments.forwards import hub_reachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Step = Callable[..., Tensor]

HUB_KERNELS = "kernels-community/flash-attn2"
HUB_VERSION = 1


# Probes: a kernel from the Hub, and the compiler's code


def hub_flash(
    instruments: Instruments,
    device: str,
    batch: int,
    heads: int,
    tokens: int,
    head_dim: int,
) -> dict[str, Any]:
    """The Hub's flash-attention against PyTorch's, forward and causal,
    interleaved, if the Hub's kernel can be loaded.

    Returns {"version", "samples_us": {variant: interleaved}, "errors":
    {variant: relative error}}; or {"missing": why}.
    """
    from snippets.attention import model

    if device != "cuda":
        raise NeedsGpu(
            "the Hub's flash-attention has no kernel for a CPU: "
            "attention/flash runs here"
        )
    kernel = hub_kernel()
    if isinstance(kernel, str):
        return {"missing": kernel}

    def flash(*by_token: Tensor) -> Tensor:
        q, k, v = (tensor.transpose(1, 2) for tensor in by_token)
        return model.sdpa(q, k, v, "flash").transpose(1, 2)

    def reference(*by_token: Tensor) -> Tensor:
        q, k, v = (tensor.transpose(1, 2) for tensor in by_token)
        return _exact(device, q, k, v).transpose(1, 2)

    steps: dict[str, Step] = {
        "hub": functools.partial(kernel.flash_attn_func, causal=True),
        "flash": flash,
    }
    # the Hub's layout
    inputs = functools.partial(
        _random, (batch, tokens, heads, head_dim), device, 3
    )
    subjects = {
        name: Subject(_without_gradients(step), inputs, reference)
        for name, step in steps.items()
    }
    errors = {
        name: instruments.relative_error(subject, device)[0]
        for name, subject in subjects.items()
    }
    samples_us = {
        name: list(one.samples_us)
        for name, one in instruments.time_interleaved(subjects).items()
    }
    return {"version": HUB_VERSION, "samples_us": samples_us, "errors": errors}


def hub_kernel() -> Any:
    """The Hub's module, or a sentence with the reason why it cannot be loaded.
    Uses the network only if it answers immediately."""
    is_here = HUB_KERNELS in os.environ.get(
        "LOCAL_KERNELS", ""
    ) or os.environ.get("HF_HUB_OFFLINE")
    if not (is_here or hub_reachable()):
        return "the Hugging Face Hub cannot be reached from here"
    try:
        from kernels import get_kernel

        return get_kernel(HUB_KERNELS, version=HUB_VERSION)
    except (ImportError, OSError, RuntimeError, ValueError) as missing:
        return f"{type(missing).__name__}: {str(missing).splitlines()[0]}"


def compiled_code(
    instruments: Instruments,
    device: str,
    batch: int,
    heads: int,
    tokens: int,
    head_dim: int,
) -> dict[str, Any]:
    """The code that Inductor generates for the naive forward, and whether
    Inductor recognized attention.

    Returns {"fused_attention": how many patterns it replaced by a call of SDPA,
    "calls": what the generated code runs, in order, "kernels": the source of
    its Triton kernels}.
    """
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache, run_and_get_code

    tensors = _random((batch, heads, tokens, head_dim), device, 3)
    torch._dynamo.reset()
    counters.clear()
    with fresh_cache():
        _, (code, *_) = run_and_get_code(
            _without_gradients(attention("compiled", device, tokens)), *tensors
        )
    body = code[code.index("def call(") :]
    return {
        "fused_attention": counters["inductor"]["fuse_attention"],
        "calls": re.findall(
            r"(extern_kernels\.\w+|aten\._\w+|(?:triton|cpp)_\w+)"
            r"(?:\.run|\.default)?\(",
            body,
        ),
        "kernels": re.findall(
            r"@triton\.jit\n(def triton_.*?)\n'''", code, re.DOTALL
        ),
    }
