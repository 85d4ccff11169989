"""Probes of the chapter training_step: measurements that the profile of one loop does not contain."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from snippets.lab.experiment import Instruments, NeedsGpu


# --8<-- [start:phases]
def phases(model, optimizer, batch, kept):
    """The phases of a step by name; `kept` holds the loss between them."""
    import torch

    from snippets.training_step.model import next_token_loss

    def forward():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            kept["loss"] = next_token_loss(model, batch[:, :-1], batch[:, 1:])

    def update():
        optimizer.step()
        optimizer.zero_grad()

    return {
        "forward": forward,
        "backward": lambda: kept["loss"].backward(),
        "optimizer": update,
        "item": lambda: kept["loss"].item(),
    }


# --8<-- [end:phases]


def clocks(
    instruments: Instruments, device: str, times: int, **sizes: int
) -> dict[str, Any]:
    """Microseconds of each phase of a step, by a clock that waits for the GPU and by a clock that doesn't.

    Returns {"wrong", "right": {phase: samples}}; the phases of one step follow each other.
    """
    import torch

    from snippets.training_step.faults import timing_after, timing_before
    from snippets.training_step.model import make_parts

    if device != "cuda":
        raise NeedsGpu(
            "a CPU has nothing to wait for: training_step/healthy runs here"
        )
    model, optimizer, loader = make_parts(device, **sizes)
    batch, kept = next(iter(loader)).to(device), dict[str, Any]()
    steps = phases(model, optimizer, batch, kept)
    found: dict[str, dict[str, list[float]]] = {}
    for name, clock in (("wrong", timing_before), ("right", timing_after)):
        for _ in range(3):
            for phase in steps.values():
                phase()
        torch.cuda.synchronize()
        samples = found.setdefault(name, {phase: [] for phase in steps})
        for _ in range(times):
            for phase, call in steps.items():
                samples[phase].append(round(1e6 * clock(call), 3))
    return found


ALLOCATORS = {"default": "", "expandable segments": "expandable_segments:True"}
MEASURE_MEMORY = "import sys; from snippets.training_step.probes import memory_here; memory_here(*sys.argv[1:])"


def memory(
    instruments: Instruments, device: str, iterations: int, **sizes: int
) -> dict[str, Any]:
    """Bytes that PyTorch holds while lengths vary, for each setting of its allocator, each in its own process."""
    if device != "cuda":
        raise NeedsGpu(
            "a CPU has no caching allocator: training_step/healthy runs here"
        )
    found = {}
    for name, setting in ALLOCATORS.items():
        command = [
            sys.executable,
            "-c",
            MEASURE_MEMORY,
            str(iterations),
            json.dumps(sizes),
        ]
        environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": setting}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        )
        found[name] = json.loads(done.stdout.splitlines()[-1])
    return found


def memory_here(iterations: str, sizes: str) -> None:
    """Print, for each iteration, the peak of bytes in use, the bytes held, and the driver's allocations so far."""
    import torch

    from snippets.training_step.data import batches_of
    from snippets.training_step.model import make_parts, train_step

    shape = json.loads(sizes)
    model, optimizer, _ = make_parts("cuda", **shape)
    found: dict[str, list[int]] = {"used": [], "held": [], "allocations": []}
    for inputs, targets in itertools.islice(
        batches_of("recompile", **shape), int(iterations)
    ):
        torch.cuda.reset_peak_memory_stats()
        train_step(model, optimizer, inputs.to("cuda"), targets.to("cuda"))
        torch.cuda.synchronize()
        found["used"].append(torch.cuda.max_memory_allocated())
        found["held"].append(torch.cuda.memory_reserved())
        found["allocations"].append(
            torch.cuda.memory_stats().get("num_device_alloc", 0)
        )
    print(json.dumps(found))


OPTIONS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "record_shapes": ("record_shapes",),
    "profile_memory": ("profile_memory",),
    "with_stack": ("with_stack",),
    "all three": ("record_shapes", "profile_memory", "with_stack"),
}


def profiler_costs(
    instruments: Instruments,
    device: str,
    rounds: int,
    active: int,
    tiny: str,
    healthy: str,
) -> dict[str, Any]:
    """The cost of profiling a loop of tiny kernels and the healthy loop, whose sizes are given as JSON.

    Returns {loop: {option: {"us": wall time per recorded iteration, by round, "bytes": size of trace.json.gz}}}; the
    option `without` was measured before the process first profiled.
    """
    from snippets.training_step.model import make_parts, train

    found: dict[str, Any] = {}
    loops = {}
    for name, sizes in (("tiny", tiny), ("healthy", healthy)):
        model, optimizer, loader = make_parts(device, **json.loads(sizes))
        loops[name] = train(model, optimizer, loader, device)
        for _ in range(3):
            next(loops[name])
        samples = [
            iteration_us(loops[name], active, device) for _ in range(rounds)
        ]
        found[name] = {"without": {"us": samples, "bytes": 0}}
    for _ in range(rounds):
        for (name, losses), (option, chosen) in itertools.product(
            loops.items(), OPTIONS.items()
        ):
            us, profiler = _profiled(losses, active, device, chosen)
            entry = found[name].setdefault(option, {"us": [], "bytes": 0})
            entry["us"].append(us)
            entry["bytes"] = entry["bytes"] or _trace_bytes(profiler)
    return found


def iteration_us(losses: Iterator[Any], count: int, device: str) -> float:
    from torch import cuda

    wait = cuda.synchronize if device == "cuda" else int
    wait()
    begin = time.perf_counter_ns()
    for _ in range(count):
        next(losses)
    wait()
    return round((time.perf_counter_ns() - begin) / 1e3 / count, 3)


def _profiled(
    losses: Iterator[Any], active: int, device: str, options: Sequence[str]
) -> tuple[float, Any]:
    """Wall time per recorded iteration in microseconds, and the finished profile."""
    from torch.profiler import profile, schedule

    plan = schedule(wait=0, warmup=1, active=active, repeat=1)
    with profile(
        schedule=plan,
        acc_events=True,
        record_shapes="record_shapes" in options,
        profile_memory="profile_memory" in options,
        with_stack="with_stack" in options,
    ) as profiler:
        next(losses)
        profiler.step()
        us = iteration_us(losses, active, device)
    return us, profiler


def _trace_bytes(profiler: Any) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json.gz"
        profiler.export_chrome_trace(str(path))
        return path.stat().st_size


def ten_lines(
    instruments: Instruments, device: str, **sizes: int
) -> dict[str, Any]:
    """The output of the page's ten lines, and the bytes of the trace that they write."""
    from snippets.training_step.model import make_parts
    from snippets.training_step.record import record

    model, optimizer, loader = make_parts(device, **sizes)
    printed, before = StringIO(), Path.cwd()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(printed):
        os.chdir(folder)
        try:
            record(model, optimizer, loader, device)
        finally:
            os.chdir(before)
        return {
            "printed": printed.getvalue(),
            "trace_bytes": (Path(folder) / "trace.json.gz").stat().st_size,
        }
