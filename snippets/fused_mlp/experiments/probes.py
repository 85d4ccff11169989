"""Probes that a profile cannot replace: tuning, resources, generated code, new
shapes."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from snippets.fused_mlp.experiments.forwards import (
    COMPILED,
    TRAINING,
    training_step,
)
from snippets.fused_mlp.experiments.subjects import (
    need_gpu,
    need_hopper,
    need_kernels,
    random_tensor,
)
from snippets.lab.experiment import Instruments

TUNED = ((8192, 768, 3072), (128, 4096, 14336), (1, 4096, 14336))
"""Shapes at which `chosen` tunes."""


def chosen(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """Tuning's choices for the two kernels of the forward at each shape, and
    the time of every candidate.

    Returns {"TOKENSxDIMxHIDDEN": {"gate_up": {candidate: microseconds},
    "forward": {...}, "taken": {"gate_up": candidate, "forward": candidate}}}.
    """
    import torch

    from snippets.fused_mlp.geglu import model, tuning

    need_kernels(device)
    found: dict[str, Any] = {}
    with untuned():
        for tokens, dim, hidden in TUNED:
            tuning.TIMES_US.clear()
            module = model.FusedGeGLU(dim, hidden).to(
                device, dtype=torch.bfloat16
            )
            with torch.no_grad():
                module(random_tensor(tokens, dim, device=device))
            (times_us,) = tuning.TIMES_US.values()
            found[f"{tokens}x{dim}x{hidden}"] = {
                work.split()[0]: {
                    name: round(us, 2) for name, us in ways.items()
                }
                for work, ways in times_us.items()
            } | {
                "taken": {
                    work.split()[0]: tuning.first_of_the_fastest(ways)
                    for work, ways in times_us.items()
                }
            }
            del module
            torch.cuda.empty_cache()
    return found


@contextmanager
def untuned() -> Iterator[None]:
    """Hide earlier and shipped choices of tuning, and keep no new choices."""
    from snippets.fused_mlp.geglu import plans, tuning

    with (
        patch.object(tuning, "choices", functools.cache(lambda gpu: {})),
        patch.object(tuning, "keep", lambda gpu, work, way, ways: way),
        patch.object(tuning, "TIMES_US", {}),
        patch.object(plans, "PLANS", {}),
    ):
        yield


def resources(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """The resources of a multiprocessor that each kernel takes, from the
    compiled kernel and from the device.

    Returns {kernel: {"registers", "spills", "shared_bytes", "warps"}} and
    {"device": its limits}.
    """
    import torch
    from triton.runtime import driver

    from snippets.fused_mlp.geglu import hopper, kernels, model

    need_hopper(device)
    properties = torch.cuda.get_device_properties(0)
    found: dict[str, Any] = {
        "device": {
            "multiprocessors": properties.multi_processor_count,
            "registers": driver.active.utils.get_device_properties(0)[
                "max_num_regs"
            ],
            "shared_bytes": properties.shared_memory_per_multiprocessor,
            "threads": properties.max_threads_per_multi_processor,
        }
    }
    x = random_tensor(tokens, dim, device=device)
    gate, up = (
        random_tensor(hidden, dim, scale=dim**-0.5, device=device)
        for _ in range(2)
    )
    both = torch.stack([gate, up])
    hidden_tensor = hopper.pingpong(
        x, gate, up, None, "gelu_tanh", hopper.PINGPONG_GATED[0]
    )[0]
    runs = {
        "gated_activation_kernel": lambda: model.gated_activation(
            hidden_tensor, hidden_tensor
        ),
        "gate_up_kernel": lambda: hopper.stacked_gate_up(
            x, both, "gelu_tanh", hopper.STACKED[0]
        ),
        "pingpong_kernel": lambda: hopper.pingpong(
            x, gate, up, None, "gelu_tanh", hopper.PINGPONG_GATED[0]
        ),
    }
    for name, run in runs.items():
        kernel = getattr(kernels if hasattr(kernels, name) else hopper, name)
        kernel.device_caches.clear()
        run()
        (one,) = (
            one
            for caches in kernel.device_caches.values()
            for one in caches[0].values()
        )
        found[name] = {
            "registers": one.n_regs,
            "spills": one.n_spills,
            "shared_bytes": one.metadata.shared,
            "warps": one.metadata.num_warps,
        }
    return found


def generated(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """The code that Inductor generates for the forward: its launches, in order,
    and the source of its Triton kernels.

    "one_token" is the code of max-autotune for a single token, at the widest
    shape of the table.
    """
    import re

    import torch
    from torch._inductor.utils import fresh_cache, run_and_get_code

    from snippets.mlp.model import GeGLU

    need_gpu(device)
    found: dict[str, Any] = {}
    series = (tokens, dim, hidden)
    cases = {
        "compiled": series,
        "max_autotune": series,
        "one_token": (1, 4096, 14336),
    }
    for case, (rows, width, wide) in cases.items():
        plain = GeGLU(width, wide).to(device, dtype=torch.bfloat16).eval()
        torch._dynamo.reset()
        with fresh_cache(), torch.no_grad():
            compiled = torch.compile(
                plain, mode=COMPILED.get(case, COMPILED["max_autotune"])
            )
            _, (code, *_) = run_and_get_code(
                compiled, random_tensor(rows, width, device=device)
            )
        body = code[code.index("def call(") :]
        found[case] = {
            "calls": re.findall(
                r"(extern_kernels\.\w+|triton_\w+)(?:\.run)?\(", body
            ),
            "kernels": re.findall(
                r"@triton\.jit\n(def triton_.*?)\n'''", code, re.DOTALL
            ),
        }
    return found


def new_shapes(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """Call each variant with new numbers of tokens, time each first call, and
    count the compilations.

    Returns {"tokens": [...], variant: {"first_call_ms": [...],
    "second_call_ms": [...], "built": [...]}}: "built" is the number of graphs
    compiled so far; for the package, the number of times that the forward was
    tuned.
    """
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache

    from snippets.fused_mlp.geglu import model, tuning
    from snippets.mlp.model import GeGLU

    need_kernels(device)
    sizes = [
        tokens,
        tokens - 8,
        tokens * 3 // 4,
        tokens // 2,
        tokens // 2 - 100,
    ]
    found: dict[str, Any] = {"tokens": sizes}
    plain = GeGLU(dim, hidden).to(device, dtype=torch.bfloat16).eval()
    fused = model.FusedGeGLU.like(plain)
    steps: dict[str, Any] = {
        "static": torch.compile(plain, dynamic=False),
        "automatic": torch.compile(plain),
        "fused": fused,
    }
    for name, step in steps.items():
        torch._dynamo.reset()
        counters.clear()
        milliseconds: dict[str, list[float]] = {
            "first_call_ms": [],
            "second_call_ms": [],
        }
        built: list[int] = []
        with fresh_cache(), untuned(), torch.no_grad():
            for size in sizes:
                x = random_tensor(size, dim, device=device)
                for calls in milliseconds.values():
                    torch.cuda.synchronize()
                    begin = time.perf_counter()
                    step(x)
                    torch.cuda.synchronize()
                    calls.append(round((time.perf_counter() - begin) * 1e3, 3))
                tuned = [
                    work
                    for works in tuning.TIMES_US.values()
                    for work in works
                    if work.startswith("forward")
                ]
                built.append(
                    len(tuned)
                    if name == "fused"
                    else counters["stats"]["unique_graphs"]
                )
        found[name] = {**milliseconds, "built": built}
    return found


def kept_bytes(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """Memory of a training step of each variant, without its weights and
    inputs: between forward and backward, and at its peak.

    Returns {variant: {"held_bytes", without the result, "peak_bytes", with the
    gradients, "result_bytes", of the result and the gradients}}.
    """
    import torch

    from snippets.mlp.model import GeGLU

    need_kernels(device)
    found: dict[str, Any] = {}
    for variant in TRAINING:
        torch._dynamo.reset()
        plain = GeGLU(dim, hidden).to(device, dtype=torch.bfloat16)
        step = training_step(variant, plain, device)
        weights = list(plain.parameters())
        x = random_tensor(tokens, dim).requires_grad_()
        d_out = random_tensor(tokens, dim)
        for _ in range(2):  # compiles and tunes first
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            out = step(x)
            held = torch.cuda.memory_allocated() - before
            gradients = torch.autograd.grad(out, (x, *weights), d_out)
            results = sum(one.nbytes for one in (out, *gradients))
            peak = torch.cuda.max_memory_allocated() - before
            del out, gradients
        found[variant] = {
            "held_bytes": held - d_out.nbytes,
            "peak_bytes": peak,
            "result_bytes": results,
        }
        del plain, step, weights, x, d_out
        torch.cuda.empty_cache()
    return found
