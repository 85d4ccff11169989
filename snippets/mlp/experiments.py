"""What the chapter mlp measures: one GeGLU forward pass in three variants, and
the cost of a new shape for each."""

from __future__ import annotations

import itertools
import logging
import os
import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from snippets.lab.experiment import (
    Experiment,
    Instruments,
    NeedsGpu,
    Subject,
    Work,
)

SHAPE = {"batch": 64, "seq": 128, "dim": 768, "hidden": 3072}
HUB_KERNELS = "kernels-community/liger-kernels"


def forward_work(batch: int, seq: int, dim: int, hidden: int) -> Work:
    """Three products; x, three weights and the result once each, in bf16. No
    intermediate has to be stored."""
    tokens = batch * seq
    return Work(
        bytes=2 * (2 * tokens * dim + 3 * dim * hidden),
        matmuls=(
            (tokens, dim, hidden),
            (tokens, dim, hidden),
            (tokens, hidden, dim),
        ),
    )


def _subject(
    module: Any,
    step: Any,
    shape: tuple[int, int, int],
    device: str,
    **notes: str,
) -> Subject:
    import torch

    from snippets.mlp.model import geglu_reference

    weights = [
        layer.weight.detach()
        for layer in (module.gate_proj, module.up_proj, module.down_proj)
    ]

    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            result: torch.Tensor = step(x)
            return result

    return Subject(
        step=forward,
        inputs=lambda: (
            torch.randn(*shape, dtype=torch.bfloat16, device=device),
        ),
        reference=lambda x: geglu_reference(x, *weights),
        notes=notes,
    )


def _module(device: str, dim: int, hidden: int) -> Any:
    import torch

    from snippets.mlp.model import GeGLU

    return GeGLU(dim, hidden).to(device, dtype=torch.bfloat16).eval()


# --8<-- [start:variants]
def eager(device: str, batch: int, seq: int, dim: int, hidden: int) -> Subject:
    module = _module(device, dim, hidden)
    return _subject(module, module, (batch, seq, dim), device)


def compiled(
    device: str, batch: int, seq: int, dim: int, hidden: int
) -> Subject:
    import torch

    module = _module(device, dim, hidden)
    return _subject(module, torch.compile(module), (batch, seq, dim), device)


def liger(device: str, batch: int, seq: int, dim: int, hidden: int) -> Subject:
    from torch import nn

    if device != "cuda":
        raise NeedsGpu(
            "Liger's kernel is Triton, which has no CPU backend: mlp/eager and "
            "mlp/compiled run here"
        )
    layers, origin = liger_layers()
    module = _module(device, dim, hidden)
    # --8<-- [start:swap]
    swapped = layers.LigerGEGLUMLP()
    for name, layer in module.named_children():
        assert isinstance(layer, nn.Linear)
        setattr(swapped, name, layer)
    # --8<-- [end:swap]
    return _subject(swapped, swapped, (batch, seq, dim), device, liger=origin)


# --8<-- [end:variants]


def liger_layers() -> tuple[Any, str]:
    """The layers of the Hub's Liger kernels, version 1, and where they were
    loaded from."""
    from kernels import get_kernel

    if not hub_reachable():
        local = Path(__file__).parent / "liger_kernels"
        os.environ["LOCAL_KERNELS"] = f"{HUB_KERNELS}={local}"
    kernel = get_kernel(HUB_KERNELS, version=1)
    is_local = "LOCAL_KERNELS" in os.environ
    return (
        kernel.layers,
        "a local layer over PyPI's liger-kernel"
        if is_local
        else "the Hugging Face Hub, version 1",
    )


def hub_reachable(timeout_s: float = 3.0) -> bool:
    """Whether the Hub answers; False without a request if `HF_HUB_OFFLINE` or
    `LOCAL_KERNELS` forbids it."""
    import socket
    from urllib.parse import urlsplit

    if os.environ.get("HF_HUB_OFFLINE") or "LOCAL_KERNELS" in os.environ:
        return False
    host = (
        urlsplit(
            os.environ.get("HF_ENDPOINT", "https://huggingface.co")
        ).hostname
        or ""
    )
    try:
        socket.create_connection((host, 443), timeout=timeout_s).close()
    except OSError:
        return False
    return True


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


class _Lines(logging.Handler):
    """A log handler that keeps its messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message."""
        self.lines.append(record.getMessage())


@contextmanager
def logged(name: str, level: int) -> Iterator[list[str]]:
    """Collect the messages of a logger and its children instead of printing
    them."""
    logger, keeper = logging.getLogger(name), _Lines()
    before, propagate, handlers = (
        logger.level,
        logger.propagate,
        logger.handlers,
    )
    logger.setLevel(level)
    logger.propagate, logger.handlers = False, [keeper]
    try:
        yield keeper.lines
    finally:
        logger.setLevel(before)
        logger.propagate, logger.handlers = propagate, handlers


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


IDLE_CYCLES = (0, 500, 4_000, 10_000, 20_000, 40_000, 80_000)
"""Cycles that one thread spins before the second product; at 0 nothing is
launched between the two."""


def after_idle(
    instruments: Instruments,
    device: str,
    batch: int,
    seq: int,
    dim: int,
    hidden: int,
    rounds: int,
) -> dict[str, Any]:
    """Time the product of `up` in CUDA graphs, after three kinds of work and
    idle times of several lengths.

    The preceding work is `gate` (much arithmetic, a large result), a product
    with as much arithmetic and a small result, or a fill of four such results
    (no arithmetic). One spinning thread makes the idle time. Every graph
    repeats this for several inputs; the graphs are replayed interleaved (A B, B
    A) under the profiler.

    Returns the median microseconds of the preceding work, of the gaps, and of
    `up` in each round, by cycles.
    """
    import torch

    if device != "cuda":
        raise NeedsGpu("idle time between two kernels shows only on a GPU")

    def normal(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, dtype=torch.bfloat16, device=device)

    tokens, side = batch * seq, 2048
    inputs = [normal(tokens, dim) for _ in range(8)]
    results = [
        [
            torch.empty(tokens, hidden, dtype=torch.bfloat16, device=device)
            for _ in inputs
        ]
        for _ in range(2)
    ]
    gate, up = normal(hidden, dim).t(), normal(hidden, dim).t()
    deep = max(1, tokens * dim * hidden // side**2)
    left, right, small = (
        normal(side, deep),
        normal(side, deep).t(),
        normal(side, side),
    )
    large = torch.empty(
        4 * results[0][0].numel(), dtype=torch.bfloat16, device=device
    )
    befores: dict[str, Callable[[int], object]] = {
        "gate": lambda index: torch.mm(
            inputs[index], gate, out=results[0][index]
        ),
        "small result": lambda index: torch.mm(left, right, out=small),
        "fill": lambda index: large.fill_(1.0),
    }

    def captured(
        before: Callable[[int], object], cycles: int
    ) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for index, x in enumerate(inputs):
                before(index)
                if cycles:
                    torch.cuda._sleep(cycles)
                torch.mm(x, up, out=results[1][index])
        graph.replay()
        torch.cuda.synchronize()
        return graph

    befores["up"] = lambda index: torch.mm(
        inputs[index], up, out=results[1][index]
    )
    lengths = {
        name: len(_gpu_kernels(instruments, work))
        for name, work in befores.items()
    }
    graphs = {
        (name, cycles): captured(befores[name], cycles)
        for name in befores
        if name != "up"
        for cycles in IDLE_CYCLES
    }
    orders = [
        list(graphs) if turn % 2 == 0 else list(reversed(graphs))
        for turn in range(rounds)
    ]
    keys = [key for order in orders for key in order]

    def replay_all(_: int) -> None:
        for key in keys:
            graphs[key].replay()

    kernels = _gpu_kernels(instruments, replay_all)
    return {
        "cycles": list(IDLE_CYCLES),
        "after": idle_times(kernels, keys, lengths, len(inputs)),
    }


def _gpu_kernels(
    instruments: Instruments, work: Callable[[int], object]
) -> list[Any]:
    """The kernels of some work in order of their starts, profiled after one
    unprofiled call."""
    import torch

    work(0)  # cuBLAS chooses and allocates
    torch.cuda.synchronize()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA]
    ) as profiled:
        work(0)
        torch.cuda.synchronize()
    kernels = [
        activity
        for activity in instruments.read_activities(profiled)
        if activity.kind == "kernel"
    ]
    return sorted(kernels, key=lambda kernel: kernel.start_us)


def idle_times(
    kernels: Sequence[Any],
    replays: Sequence[tuple[str, int]],
    lengths: Mapping[str, int],
    repeats: int,
) -> dict[str, list[dict[str, list[float]]]]:
    """Medians of each replay, which repeats the preceding work, a spin (unless
    its cycles are 0) and `up`.

    Args:
        kernels: the kernels of all replays in order.
        replays: the preceding work and the cycles of each replay.
        lengths: numbers of kernels of the preceding work and of `up`.
        repeats: repetitions in a replay.

    Raises `RuntimeError` if another kernel is in the spin's place, or if
    kernels are left over.
    """
    found: dict[str, dict[int, dict[str, list[float]]]] = {}
    waiting = iter(kernels)
    for name, cycles in replays:
        samples: list[tuple[float, float, float]] = []
        for _ in range(repeats):
            before = list(itertools.islice(waiting, lengths[name]))
            spin = list(itertools.islice(waiting, 1 if cycles else 0))
            up = list(itertools.islice(waiting, lengths["up"]))
            if len(up) < lengths["up"] or [
                "spin" in kernel.name for kernel in (*before, *spin, *up)
            ].count(True) != len(spin):
                raise RuntimeError(
                    f"after {name} and {cycles} cycles, not the expected "
                    "kernels"
                )
            end = before[-1].start_us + before[-1].duration_us
            end_of_up = up[-1].start_us + up[-1].duration_us
            samples.append(
                (
                    end - before[0].start_us,
                    up[0].start_us - end,
                    end_of_up - up[0].start_us,
                )
            )
        times = found.setdefault(name, {}).setdefault(
            cycles, {"before_us": [], "gap_us": [], "up_us": []}
        )
        for key, values in zip(times, zip(*samples, strict=True), strict=True):
            times[key].append(round(statistics.median(values), 3))
    if next(waiting, None) is not None:
        raise RuntimeError("the profile has more kernels than the graphs")
    return {name: list(by_cycles.values()) for name, by_cycles in found.items()}


SMALL_TO_LARGE = (
    {"batch": 1, "seq": 1},
    *({"batch": batch} for batch in (1, 4, 16, 64, 128)),
)


def _profiled(
    name: str, make: Any, group: str = "forward", **more: Any
) -> Experiment:
    shape = SHAPE | more.pop("shape", {})
    return Experiment(
        chapter="mlp",
        name=name,
        label="mlp_fwd",
        parameters=shape,
        make=make,
        work=forward_work,
        group=group,
        **more,
    )


EXPERIMENTS = (
    _profiled("eager", eager),
    _profiled("compiled", compiled),
    _profiled("liger", liger),
    *(
        _profiled(f"{name}_4096", make, "hidden_4096", shape={"hidden": 4096})
        for name, make in (
            ("eager", eager),
            ("compiled", compiled),
            ("liger", liger),
        )
    ),
    _profiled("sweep_eager", eager, "sweep", sweep=SMALL_TO_LARGE),
    _profiled("sweep_compiled", compiled, "sweep", sweep=SMALL_TO_LARGE),
    _profiled("sweep_liger", liger, "sweep", sweep=SMALL_TO_LARGE),
    Experiment(
        chapter="mlp",
        name="new_shapes",
        parameters=SHAPE,
        probe=new_shapes,
        time_limit_s=180,
    ),
    Experiment(
        chapter="mlp",
        name="tuned",
        parameters={**SHAPE, "times": 12},
        probe=tuned,
        time_limit_s=300,
    ),
    Experiment(
        chapter="mlp",
        name="after_idle",
        parameters={**SHAPE, "rounds": 12},
        probe=after_idle,
    ),
)
