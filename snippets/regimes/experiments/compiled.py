"""Reads the results of `torch.compile`: its guards, its code, its caches."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FIRST_CALLS = 5
"""A mode that records CUDA graphs is ready only after a few calls."""
LONGEST_SOURCE = 12_000
"""The most characters kept of a generated kernel."""


def first_compilation(device: str) -> float:
    """Seconds of the first compilation in a process, which also starts the
    compiler's worker processes; waits until they are ready."""
    import torch
    from torch._inductor.async_compile import AsyncCompile

    x = torch.randn(64, 64, device=device)
    seconds = call_s(torch.compile(lambda x: torch.sin(x) * 2), x)
    if device == "cuda":
        AsyncCompile.wait_pool_ready()
    return seconds


def first_calls(
    module: Any, options: Mapping[str, Any], x: Any
) -> dict[str, Any]:
    """Call a newly compiled module until it is ready, and read what was
    compiled. Dynamo's counters must be zero before.

    Returns {"call_s": seconds of each call, "graphs", "breaks", "guards": text
    of each, by graph, "inductor": counts of its events, "calls": what the
    generated code calls, in order, "kernels": Triton source by name}.
    """
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor.utils import run_and_get_code

    counters.clear()
    step = torch.compile(module, **options)
    begin = time.perf_counter()
    with torch.no_grad():
        _, sources = run_and_get_code(step, x)
    wait_for(x)
    seconds = [round(time.perf_counter() - begin, 4)]
    seconds += [call_s(step, x) for _ in range(FIRST_CALLS - 1)]
    return {
        "call_s": seconds,
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sorted(counters["graph_break"]),
        "guards": guards_of(module),
        "inductor": {
            name: count
            for name, count in counters["inductor"].items()
            if isinstance(count, int)
        },
        "calls": calls_of(sources),
        "kernels": kernels_of(sources),
    }


def call_s(step: Callable[[Any], object], x: Any) -> float:
    """Seconds of one call, until the GPU is done."""
    import torch

    begin = time.perf_counter()
    with torch.no_grad():
        step(x)
    wait_for(x)
    return round(time.perf_counter() - begin, 6)


def wait_for(x: Any) -> None:
    """Wait until the GPU is done, if x is on a GPU."""
    import torch

    if x.is_cuda:
        torch.cuda.synchronize()


# --8<-- [start:guards]
def guards_of(module: Any) -> list[list[str]]:
    """The guards of each compiled graph of a module's forward, the newest graph
    first. Dynamo evaluates them at every call."""
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    compiled = _debug_get_cache_entry_list(type(module).forward.__code__)
    return [
        [shortened(part) for part in entry.guard_manager.code_parts]
        for entry in compiled
    ]


# --8<-- [end:guards]


def shortened(guard: str) -> str:
    """A guard without addresses of objects, which differ from run to run."""
    return re.sub(r", \d{6,}|_0x[0-9a-f]+|_c\d+", "", guard)[:400]


def calls_of(sources: Sequence[str]) -> list[str]:
    """The calls of generated code, in order: library functions and Triton
    kernels, on a CPU C++ kernels."""
    pattern = r"(extern_kernels\.\w+)\(|(triton_\w+)\.run\(|^ +(cpp_\w+)\("
    found = (
        match.group(1) or match.group(2) or match.group(3)
        for code in sources
        for match in re.finditer(pattern, code, re.MULTILINE)
    )
    return list(found)


def kernels_of(sources: Sequence[str]) -> dict[str, str]:
    """The source of each generated Triton kernel, by name."""
    pattern = r"@triton\.jit\n(def (triton_\w+).*?)\n'''"
    return {
        name: source[:LONGEST_SOURCE]
        for code in sources
        for source, name in re.findall(pattern, code, re.DOTALL)
    }


@contextmanager
def recorded_graphs() -> Iterator[list[Any]]:
    """Collect the number of each CUDA graph that the compiler records."""
    from torch._inductor import cudagraph_trees

    found = []
    trees: Any = cudagraph_trees.CUDAGraphTreeManager
    number_next = trees.new_graph_id

    def kept(manager: Any) -> Any:
        found.append(number_next(manager))
        return found[-1]

    trees.new_graph_id = kept
    try:
        yield found
    finally:
        trees.new_graph_id = number_next


@contextmanager
def caches_in(folder: str) -> Iterator[None]:
    """Clear the compiler's caches in memory and keep its files in `folder`: an
    empty folder makes it compile again, a filled one lets it find them."""
    from torch._inductor.utils import clear_caches

    Path(folder, "triton").mkdir(parents=True, exist_ok=True)
    settings = {
        "TORCHINDUCTOR_CACHE_DIR": folder,
        "TRITON_CACHE_DIR": f"{folder}/triton",
    }
    before = {name: os.environ.get(name) for name in settings}
    clear_caches()
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        clear_caches()


@contextmanager
def tuned_choices() -> Iterator[list[dict[str, Any]]]:
    """Collect the candidates of max-autotune: for each product its name,
    {candidate: milliseconds}, the fastest first, and the descriptions of the
    first three."""
    from torch._inductor import select_algorithm

    found: list[dict[str, Any]] = []

    def keep(timings: Mapping[Any, float], name: str, *_: Any) -> None:
        worked = (pair for pair in timings.items() if math.isfinite(pair[1]))
        ranked = sorted(worked, key=lambda pair: pair[1])
        found.append(
            {
                "name": name,
                "ms": {choice.name: ms for choice, ms in ranked},
                "about": [
                    str(getattr(choice, "description", ""))[:400]
                    for choice, _ in ranked[:3]
                ],
            }
        )

    select_algorithm.add_feedback_saver(keep)
    try:
        yield found
    finally:
        select_algorithm.clear_feedback_savers()
