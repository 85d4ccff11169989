"""The cost of a new shape for each variant."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any

from snippets.lab.experiment import Instruments
from snippets.mlp.experiments.forwards import _module, liger
from snippets.mlp.experiments.logs import logged


def new_shapes(
    instruments: Instruments,
    device: str,
    batch: int,
    seq: int,
    dim: int,
    hidden: int,
) -> dict[str, Any]:
    """Call each variant with new batch sizes and count the compilations.

    Returns, for static and automatic-dynamic compilation and for Liger, the
    graphs or kernels compiled so far and the milliseconds of the first call,
    one entry for each of four batch sizes in turn. Then counts that need no
    compiler: `dynamo` for other sequences of batch sizes, and `reshape` for the
    operators of `aten::reshape`.
    """
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache

    batches = [batch, batch // 2, batch // 4, batch * 3 // 4]
    found: dict[str, Any] = {"batches": batches}
    for name, dynamic in (("static", False), ("automatic", None)):
        torch._dynamo.reset()
        counters.clear()
        # otherwise it would find an earlier compilation on the disk
        with fresh_cache():
            step = torch.compile(_module(device, dim, hidden), dynamic=dynamic)
            found[name] = _first_calls(
                step,
                batches,
                seq,
                dim,
                device,
                lambda: counters["stats"]["unique_graphs"],
            )
    if device == "cuda":
        with fresh_cache():
            swapped = liger(device, batch, seq, dim, hidden).step
            found["liger"] = _first_calls(
                swapped, batches, seq, dim, device, liger_kernels_compiled
            )
    module = _module(device, dim, hidden)
    found["dynamo"] = {
        "one": graphs_and_calls(module, (*batches, 1), seq, dim, device),
        "marked": graphs_and_calls(
            module, batches, seq, dim, device, mark=True
        ),
        "static": graphs_and_calls(
            module, range(2, 14), seq, dim, device, dynamic=False
        ),
    }
    found["reshape"] = reshapes(instruments, device, dim, hidden)
    return found


def graphs_and_calls(
    module: Any,
    batches: Iterable[int],
    seq: int,
    dim: int,
    device: str,
    dynamic: bool | None = None,
    mark: bool = False,
) -> dict[str, list[int]]:
    """Count Dynamo's graphs, and the calls that ran one, after each batch size;
    a call outside of a graph is eager.

    Args:
        module: what to compile, with a backend that only counts.
        batches: the batch sizes in turn.
        seq: tokens of a sequence.
        dim: numbers of a token.
        device: `cuda` or `cpu`.
        dynamic: as `torch.compile` takes it.
        mark: whether `mark_dynamic` says at every call that the batch size
            varies.

    Returns the batch sizes, the graphs and the calls so far, and all warnings.
    """
    import torch

    count = {"graphs": 0, "in_graphs": 0}

    def backend(graph: Any, example_inputs: Any) -> Any:
        count["graphs"] += 1

        def run(*inputs: Any) -> Any:
            count["in_graphs"] += 1
            return graph.forward(*inputs)

        return run

    torch._dynamo.reset()
    step = torch.compile(module, backend=backend, dynamic=dynamic)
    found: dict[str, list[int]] = {"batches": [], "graphs": [], "in_graphs": []}
    with logged("torch._dynamo", logging.WARNING) as warnings, torch.no_grad():
        for batch in batches:
            x = torch.randn(
                batch, seq, dim, dtype=torch.bfloat16, device=device
            )
            if mark:
                torch._dynamo.mark_dynamic(x, 0)
            step(x)
            found["batches"].append(batch)
            for name, number in count.items():
                found[name].append(number)
    torch._dynamo.reset()
    return {
        **found,
        "warnings": [sum("recompile_limit" in line for line in warnings)],
    }


def reshapes(
    instruments: Instruments, device: str, rows: int, columns: int
) -> dict[str, Any]:
    """The operators under `reshape(-1)` of a contiguous tensor and of a
    transposed tensor, and the GPU activities of both."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    x = torch.randn(rows, columns, dtype=torch.bfloat16, device=device)
    found: dict[str, Any] = {}
    for name, tensor in (("contiguous", x), ("transposed", x.t())):
        tensor.reshape(-1)
        with profile(
            activities=[
                ProfilerActivity.CPU,
                *[ProfilerActivity.CUDA] * (device == "cuda"),
            ]
        ) as finished:
            tensor.reshape(-1)
            if device == "cuda":
                torch.cuda.synchronize()
        ops = [
            event.name
            for event in finished.events() or ()
            if event.name.startswith("aten::")
        ]
        on_gpu = (
            instruments.read_activities(finished) if device == "cuda" else ()
        )
        found[name] = {
            "ops": ops,
            "activities": [activity.name for activity in on_gpu],
        }
    return found


def _first_calls(
    step: Any, batches: list[int], seq: int, dim: int, device: str, count: Any
) -> dict[str, list[float]]:
    import torch

    compiled: list[float] = []
    first_ms: list[float] = []
    for batch in batches:
        x = torch.randn(batch, seq, dim, dtype=torch.bfloat16, device=device)
        begin = time.perf_counter()
        with torch.no_grad():
            step(x)
        if device == "cuda":
            torch.cuda.synchronize()
        first_ms.append(round((time.perf_counter() - begin) * 1e3, 3))
        compiled.append(count())
    return {"compiled": compiled, "first_call_ms": first_ms}


def liger_kernels_compiled() -> int:
    """Count the variants of Liger's forward kernel that Triton has compiled in
    this process."""
    from liger_kernel.ops.geglu import _geglu_tanh_forward_kernel as kernel

    return sum(len(caches[0]) for caches in kernel.device_caches.values())
