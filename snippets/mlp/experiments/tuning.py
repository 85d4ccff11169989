"""How Inductor chooses the launch of its fused kernel, and what it costs."""

from __future__ import annotations

import logging
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from snippets.lab.experiment import Instruments, NeedsGpu
from snippets.mlp.experiments.forwards import _module, _subject, eager, liger
from snippets.mlp.experiments.logs import logged

TRIALS: Mapping[str, tuple[bool, Mapping[str, object]]] = {
    "default": (False, {}),
    "room": (True, {}),
    "max_autotune_pointwise": (False, {"max_autotune_pointwise": True}),
    "coordinate_descent_tuning": (False, {"coordinate_descent_tuning": True}),
    "autotune_pointwise=False": (False, {"triton.autotune_pointwise": False}),
}
"""Name -> whether a gigabyte is allocated and freed before the first call, and
Inductor's options."""


def tuned(
    instruments: Instruments,
    device: str,
    batch: int,
    seq: int,
    dim: int,
    hidden: int,
    times: int,
) -> dict[str, Any]:
    """Compile several times with empty caches and read how Inductor launches
    its fused kernel.

    Returns for each compilation the kernel's grid and block, its median
    microseconds in a profile of ten steps, and Inductor's own timings; the same
    in `trials` under other conditions; the GPU's work meanwhile; and the times
    of whole forwards with each configuration, interleaved with eager's and
    Liger's.
    """
    import torch

    if device != "cuda":
        raise NeedsGpu("how a kernel is launched shows only on a GPU")
    shape = {"batch": batch, "seq": seq, "dim": dim, "hidden": hidden}
    module = _module(device, dim, hidden)
    # compiled code, as long as a graph may replay its kernels
    kept: list[Any] = []
    forwards: dict[str, Any] = {}
    trials: dict[str, Any] = {}
    for trial, (room, options) in TRIALS.items():
        found: dict[str, Any] = {
            "grid": [],
            "block": [],
            "fused_us": [],
            "benchmark_us": [],
        }
        count = times // 4 if options else times // 2 if room else times
        for _ in range(max(1, count)):
            with compiled_afresh(module, options, kept) as compiled_module:
                subject = _subject(
                    module, compiled_module, (batch, seq, dim), device
                )
                x = subject.inputs()[0]
                set_peak(room)
                with logged(
                    "torch._inductor.runtime.triton_heuristics", logging.DEBUG
                ) as lines:
                    subject.step(x)
                fused = [
                    one
                    for one in _kernels(instruments, subject.step, x)
                    if one.name.startswith("triton_")
                ]
                launch = (
                    f"{'x'.join(map(str, fused[0].grid))}, "
                    f"{'x'.join(map(str, fused[0].block))}"
                )
                if launch not in forwards:
                    forwards[launch] = instruments.prepare(subject)
            found["grid"].append(fused[0].grid)
            found["block"].append(fused[0].block)
            found["fused_us"].append(
                statistics.median(kernel.duration_us for kernel in fused)
            )
            found["benchmark_us"].append(benchmarked(lines))
        trials[trial] = found
    tuning = {
        name: _while_tuning(
            instruments, module, (batch, seq, dim), TRIALS[name][0]
        )
        for name in ("default", "room")
    }
    forwards |= {
        name: instruments.prepare(make(device, **shape))
        for name, make in (("eager", eager), ("Liger", liger))
    }
    timings = instruments.time_prepared(forwards, instruments.rounds)
    torch._dynamo.reset()
    return {
        **trials.pop("default"),
        "trials": trials,
        "while_tuning": tuning,
        "forward_us": {
            name: timing.samples_us for name, timing in timings.items()
        },
    }


@contextmanager
def compiled_afresh(
    module: Any, options: Mapping[str, object], kept: list[Any]
) -> Iterator[Any]:
    """The module compiled by Inductor with empty caches; `kept` keeps its
    compiled code alive."""
    import torch
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.utils import fresh_cache

    def backend(graph: Any, example_inputs: Any) -> Any:
        kept.append(
            compile_fx(graph, example_inputs, config_patches=dict(options))
        )
        return kept[-1]

    torch._dynamo.reset()
    with fresh_cache():  # the old cache has its measurements
        yield torch.compile(module, backend=backend)


# --8<-- [start:room]
def set_peak(room: bool) -> None:
    """Reset the peak of allocated memory, as in a new process; then raise it by
    a gigabyte or leave it.

    The distance to the peak tells Inductor whether it may clone an input on the
    GPU when it tunes.
    """
    import torch

    torch.cuda.reset_peak_memory_stats()
    if room:
        torch.empty(1 << 30, dtype=torch.uint8, device="cuda")


# --8<-- [end:room]


def benchmarked(lines: Iterable[str]) -> dict[str, float]:
    """Inductor's logged microseconds by configuration: `1024 elements, 4
    warps`."""
    pattern = r"(?:COORDESC: )?XBLOCK: (\d+),.*?num_warps: (\d+),.*: (\d+\.\d+), nreg "
    matches = (re.match(pattern, line) for line in lines)
    return {
        f"{match[1]} elements, {match[2]} warps": round(
            1e3 * float(match[3]), 3
        )
        for match in matches
        if match
    }


def _while_tuning(
    instruments: Instruments,
    module: Any,
    shape: tuple[int, int, int],
    room: bool,
) -> dict[str, dict[str, float]]:
    """The GPU's work during the first call of a compiled module: count and
    median microseconds by name."""
    import torch

    durations: dict[str, list[float]] = {}
    with compiled_afresh(module, {}, []) as step, torch.no_grad():
        x = torch.randn(*shape, dtype=torch.bfloat16, device="cuda")
        set_peak(room)
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CUDA]
        ) as profiled:
            step(x)
            torch.cuda.synchronize()
        for activity in instruments.read_activities(profiled):
            durations.setdefault(activity.name, []).append(activity.duration_us)
    return {
        name: {"count": len(us), "median_us": statistics.median(us)}
        for name, us in durations.items()
    }


def _kernels(instruments: Instruments, step: Any, x: Any) -> Any:
    """The GPU activities of ten profiled steps, after three unprofiled
    steps."""
    import torch

    for _ in range(3):
        step(x)
    torch.cuda.synchronize()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA]
    ) as profiled:
        for _ in range(10):
            step(x)
        torch.cuda.synchronize()
    return instruments.read_activities(profiled)
