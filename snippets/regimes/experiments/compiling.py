"""Cost and benefit of each mode of `torch.compile`: experiments of the chapter
regimes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from snippets.lab.experiment import Experiment, Instruments, Parameters, Subject
from snippets.regimes.experiments.compiled import (
    FIRST_CALLS,
    caches_in,
    call_s,
    first_calls,
    first_compilation,
    guards_of,
    recorded_graphs,
    tuned_choices,
)
from snippets.regimes.experiments.modules import (
    REPLAYED,
    WIDTHS,
    module_of,
    module_subject,
    stack_of,
)
from snippets.regimes.experiments.subjects import CALLS_TO_RECORD

# --8<-- [start:modes]
MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "dynamic": {"dynamic": True},
    "reduce-overhead": {"mode": "reduce-overhead"},
    "max-autotune-no-cudagraphs": {"mode": "max-autotune-no-cudagraphs"},
    "max-autotune": {"mode": "max-autotune"},
}
# --8<-- [end:modes]


def compile_modes(
    instruments: Instruments,
    device: str,
    block: str,
    blocks: int,
    tokens: int,
    dim: int,
    hidden: int,
    modes: str,
    repeats: int,
    steady: int,
) -> dict[str, Any]:
    """Compile a module in each mode with empty caches and again with filled
    caches, and time all of them with eager.

    Returns {"modes": {mode: the result of `first_calls` of the first
    compilation, "cold_s": seconds of the first calls of each compilation with
    empty caches, "again_s": those with filled caches, "tuned": the candidates
    of each product with milliseconds}, "times": {variant: samples in
    microseconds by kind}, "steady": if requested, {variant: "us": samples of
    blocks of seconds, "clock_mhz", "joules" of a call}, "first_ever_s": seconds
    of the process's first compilation}. max-autotune is compiled once, the
    others `repeats` times.
    """
    import torch

    module = module_of(device, block, blocks, dim, hidden)
    x = module_subject(module, module, tokens).inputs()[0]
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with caches_in(f"{folder}/first"):
            first_ever_s = first_compilation(device)
        for mode in modes.split(","):
            times = 1 if "autotune" in mode else repeats
            for repeat in range(times):
                torch._dynamo.reset()
                with (
                    caches_in(f"{folder}/{mode}/{repeat}"),
                    tuned_choices() as tuned,
                ):
                    calls = first_calls(module, MODES[mode], x)
                seconds = calls.pop("call_s")
                entry = found.setdefault(
                    mode, {**calls, "cold_s": [], "tuned": tuned}
                )
                entry["cold_s"].append(seconds)
        torch._dynamo.reset()
        steps = {"eager": module}
        for mode, entry in found.items():
            with caches_in(f"{folder}/{mode}/0"):
                steps[mode] = torch.compile(module, **MODES[mode])
                entry["again_s"] = [
                    call_s(steps[mode], x) for _ in range(FIRST_CALLS)
                ]
    subjects = {
        name: module_subject(module, step, tokens, name not in REPLAYED)
        for name, step in steps.items()
    }
    for subject in subjects.values():
        instruments.relative_error(subject, device)
    on_gpu = subjects if device == "cuda" else {}
    samples = timed(instruments, on_gpu)
    settled = timed_steady(instruments, on_gpu if steady else {})
    torch._dynamo.reset()
    return {
        "modes": found,
        "times": samples,
        "steady": settled,
        "first_ever_s": first_ever_s,
    }


def timed(
    instruments: Instruments, subjects: Mapping[str, Subject]
) -> dict[str, dict[str, Sequence[float]]]:
    """Time subjects interleaved and from Python; samples in microseconds by
    kind."""
    if not subjects:
        return {}
    return {
        name: {
            kind: getattr(times, kind).samples_us
            for kind in ("interleaved", "from_python", "enqueue")
        }
        for name, times in instruments.time_all(subjects).items()
    }


def timed_steady(
    instruments: Instruments, subjects: Mapping[str, Subject]
) -> dict[str, dict[str, Any]]:
    """Time each subject alone, in a block of seconds."""
    return {
        name: {
            "us": times.samples_us,
            "clock_mhz": times.clock_mhz,
            "joules": times.joules,
        }
        for name, times in instruments.time_steady(subjects).items()
    }


ASKED: Mapping[str, Mapping[str, Any]] = {
    "static": {"dynamic": False},
    "automatic": {},
    "dynamic": {"dynamic": True},
}


def new_shapes(
    instruments: Instruments, device: str, dim: int, hidden: int, tokens: str
) -> dict[str, Any]:
    """Call a compiled stack with each number of tokens in turn.

    Returns {"tokens", "asked": {way to request shapes: {"call_s": seconds of
    each call, "graphs": their number so far, "guards": of each graph, the
    newest first}}, "replayed": the result of `replayed_shapes`}.
    """
    import torch
    from torch._dynamo.utils import counters

    stack = stack_of(device, dim, hidden)
    sizes = [int(size) for size in tokens.split(",")]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, caches_in(folder):
        first_compilation(device)
    for name, options in ASKED.items():
        torch._dynamo.reset()
        counters.clear()
        step = torch.compile(stack, **options)
        found[name] = {"call_s": [], "graphs": []}
        with tempfile.TemporaryDirectory() as folder, caches_in(folder):
            for count in sizes:
                x = module_subject(stack, stack, count).inputs()[0]
                found[name]["call_s"].append(call_s(step, x))
                found[name]["graphs"].append(counters["stats"]["unique_graphs"])
        found[name]["guards"] = guards_of(stack)
    torch._dynamo.reset()
    replayed = replayed_shapes(stack, sizes)
    return {"tokens": sizes, "asked": found, "replayed": replayed}


def replayed_shapes(stack: Any, sizes: Sequence[int]) -> dict[str, Any]:
    """Call a stack in the mode reduce-overhead a few times at each size.

    Returns {"call_s": seconds of each call, by size, "graphs": that Dynamo has
    compiled so far, "recorded": CUDA graphs recorded so far}.
    """
    import torch
    from torch._dynamo.utils import counters

    counters.clear()
    step = torch.compile(stack, mode="reduce-overhead")
    found: dict[str, Any] = {"call_s": [], "graphs": [], "recorded": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        caches_in(folder),
        recorded_graphs() as recorded,
    ):
        for count in sizes:
            x = module_subject(stack, stack, count).inputs()[0]
            calls = [call_s(step, x) for _ in range(CALLS_TO_RECORD)]
            found["call_s"].append(calls)
            found["graphs"].append(counters["stats"]["unique_graphs"])
            found["recorded"].append(len(recorded))
    torch._dynamo.reset()
    return found


def _modes(name: str, parameters: Parameters) -> Experiment:
    return Experiment(
        chapter="regimes",
        name=name,
        probe=compile_modes,
        parameters={
            "modes": ",".join(MODES),
            "repeats": 2,
            "steady": 0,
            **parameters,
        },
        time_limit_s=300,
    )


STACK: Parameters = {"block": "stack", "blocks": 8, "tokens": 64, **WIDTHS}
GEGLU: Parameters = {
    "block": "geglu",
    "blocks": 1,
    "tokens": 8192,
    "dim": 768,
    "hidden": 3072,
    "steady": 1,
}
COMPILING = (
    _modes("modes_stack", STACK),
    _modes("modes_geglu", GEGLU),
    Experiment(
        chapter="regimes",
        name="new_shapes",
        probe=new_shapes,
        parameters={**WIDTHS, "tokens": "64,128,96,200,200,1,500"},
        time_limit_s=180,
    ),
)
"""The modes of the compiler at a small and a large batch, and new shapes."""
