"""What the page on the profiler's own faults records: the same step, captured wrongly and rightly."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import Experiment, Instruments, NeedsGpu

if TYPE_CHECKING:
    from torch.profiler import profile

BATCH = 64
OPTIONS: dict[str, dict[str, bool]] = {
    "nothing": {},
    "record_shapes": {"record_shapes": True},
    "profile_memory": {"profile_memory": True},
    "with_modules": {"with_modules": True},
    "with_flops": {"with_flops": True},
    "with_stack": {"with_stack": True},
    "all": {
        "record_shapes": True,
        "profile_memory": True,
        "with_flops": True,
        "with_stack": True,
    },
}


def _step(device: str) -> Callable[[], None]:
    """A forward and backward of many short operators, with a synchronize at its end, so that its wall time includes all
    of its GPU work."""
    import torch

    from snippets.capture_faults.model import build

    model = build(device)
    x = torch.randn(BATCH, 256, device=device)

    def step() -> None:
        model(x).square().mean().backward()

    for _ in range(10):
        step()
    _synchronize(device)
    return step


def _synchronize(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def _events(prof: profile) -> tuple[list[dict[str, Any]], int]:
    """The events of the exported trace, and the size of the file in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        prof.export_chrome_trace(str(path))
        content = path.read_bytes()
    return json.loads(content)["traceEvents"], len(content)


GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")


def _counted(prof: profile) -> dict[str, int]:
    """Count the events of an exported trace by kind."""
    events, size = _events(prof)
    categories = [event.get("cat") for event in events]
    names = [str(event.get("name")) for event in events]
    launches = [
        name
        for name, category in zip(names, categories, strict=True)
        if category in ("cuda_runtime", "cuda_driver")
    ]
    return {
        "operators": categories.count("cpu_op"),
        "launches": sum("Launch" in name for name in launches),
        "gpu": sum(category in GPU_CATEGORIES for category in categories),
        "steps": sum(
            name.startswith("ProfilerStep#")
            for name, category in zip(names, categories, strict=True)
            if category == "user_annotation"
        ),
        "bytes": size,
    }


def forgotten_step(instruments: Instruments, device: str) -> dict[str, Any]:
    """The steps that a schedule keeps without and with `prof.step()`."""
    from snippets.capture_faults.model import ended_steps, forgotten_step

    step = _step(device)
    return {
        "forgotten": _tolerant(lambda: forgotten_step(step)),
        "ended": _tolerant(lambda: ended_steps(step)),
    }


def _tolerant(take: Callable[[], profile]) -> dict[str, Any]:
    """Counts of a capture, or the error from exporting an empty capture."""
    prof = take()
    try:
        return _counted(prof)
    except (RuntimeError, AssertionError, AttributeError) as error:
        return {
            "operators": 0,
            "launches": 0,
            "gpu": 0,
            "steps": 0,
            "bytes": 0,
            "error": str(error).splitlines()[0],
        }


def cpu_only(instruments: Instruments, device: str) -> dict[str, Any]:
    """The events in a trace with the CPU's activities alone, and with all
    activities."""
    from torch.profiler import profile

    from snippets.capture_faults.model import cpu_only

    step = _step(device)
    with profile() as everything:
        step()
    return {
        "cpu_only": _counted(cpu_only(step)),
        "everything": _counted(everything),
    }


def in_a_thread(instruments: Instruments, device: str) -> dict[str, Any]:
    """The events in a trace of a step in a new thread, and of the same step in this thread."""
    from torch.profiler import profile

    from snippets.capture_faults.model import in_a_thread

    step = _step(device)
    with profile() as here:
        step()
    return {"thread": _counted(in_a_thread(step)), "here": _counted(here)}


def in_workers(
    instruments: Instruments, device: str, workers: int
) -> dict[str, Any]:
    """Count the operator that makes an item in a trace, by the loader's number of workers."""
    from snippets.capture_faults.model import in_workers

    counts = {}
    for number in (0, workers):
        events, _ = _events(in_workers(number))
        counts[str(number)] = sum(
            event.get("name") == "aten::pow" for event in events
        )
    return {"made": counts}


def overhead(
    instruments: Instruments, device: str, repeats: int, steps: int
) -> dict[str, Any]:
    """Time steps without a profiler and with each option, one after the other, `repeats` times.

    Returns for each option the time of one step in us, from the first launch until the GPU is done, one sample per
    repeat; and the bytes of the exported file per step. The first samples without a profiler come before any profile of
    the process (`before`), the others between profiles.
    """
    from torch.profiler import profile

    step = _step(device)

    def timed() -> float:
        _synchronize(device)
        start = time.perf_counter()
        for _ in range(steps):
            step()
        _synchronize(device)
        return round((time.perf_counter() - start) / steps * 1e6, 2)

    before = [timed() for _ in range(repeats)]
    samples: dict[str, list[float]] = {
        "without": [],
        **{name: [] for name in OPTIONS},
    }
    file_bytes: dict[str, float] = {}
    for _ in range(repeats):
        samples["without"].append(timed())
        for name, options in OPTIONS.items():
            with profile(**options) as prof:  # type: ignore[arg-type]  # the options are all bool
                timed()  # the first steps of a session pay for its buffers
                samples[name].append(timed())
            if name not in file_bytes:
                file_bytes[name] = round(_events(prof)[1] / (2 * steps), 1)
    return {
        "before_us": before,
        "samples_us": samples,
        "bytes_per_step": file_bytes,
    }


def second_subscriber(instruments: Instruments, device: str) -> dict[str, Any]:
    """Profile in new processes: alone, and while another process holds CUPTI.

    Returns the events of each trace, and the lines with CUPTI in them that the process wrote.
    """
    if device != "cuda":
        raise NeedsGpu("CUPTI belongs to a GPU")
    return {"alone": _new_process(False), "taken": _new_process(True)}


SCRIPT = """
import ctypes, json, sys
import torch
from torch.profiler import profile
x = torch.randn(64, 64, device="cuda")
if {taken}:
    loaded = [line.split()[-1] for line in open("/proc/self/maps") if "libcupti" in line]
    cupti = ctypes.CDLL(loaded[0] if loaded else "libcupti.so")
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)(lambda *_: None)
    handle = ctypes.c_void_p()
    assert cupti.cuptiSubscribe(ctypes.byref(handle), callback, None) == 0
with profile() as prof:
    for _ in range(4):
        x = x @ x
    torch.cuda.synchronize()
prof.export_chrome_trace(sys.argv[1])
"""


def _new_process(taken: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(taken=taken), str(path)],
            capture_output=True,
            text=True,
            timeout=90,
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        events = json.loads(path.read_bytes())["traceEvents"]
    said = [
        line for line in done.stderr.splitlines() if "CUPTI" in line.upper()
    ]
    return {
        "operators": sum(event.get("cat") == "cpu_op" for event in events),
        "gpu": sum(event.get("cat") in GPU_CATEGORIES for event in events),
        "said": [line.split("] ", 1)[-1][:200] for line in said[:3]],
    }


def unwarmed(
    instruments: Instruments, device: str, sessions: int
) -> dict[str, Any]:
    """Profile in one process without and with a warm-up step, session after session.

    Returns for each session the launches and the GPU events of its first kept step, and the time of the first and of
    the second kept step on the CPU in us.
    """
    from torch.profiler import profile, schedule

    step = _step(device)
    found: dict[str, list[dict[str, float]]] = {"unwarmed": [], "warmed": []}
    for _ in range(sessions):
        for name, warmup in (("unwarmed", 0), ("warmed", 2)):
            with profile(
                schedule=schedule(wait=0, warmup=warmup, active=3, repeat=1)
            ) as prof:
                for _ in range(warmup + 3):
                    step()
                    prof.step()
                _synchronize(device)
            events, _ = _events(prof)
            found[name].append(_first_steps(events))
    return found


def _first_steps(events: list[dict[str, Any]]) -> dict[str, float]:
    steps = sorted(
        (event["ts"], event["dur"])
        for event in events
        if event.get("cat") == "user_annotation"
        and event["name"].startswith("ProfilerStep#")
    )
    (start, duration), (_, second), *_ = steps
    launched = {
        event["args"]["correlation"]
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver")
        and "Launch" in event["name"]
        and start <= event["ts"] <= start + duration
    }
    ran = {
        event["args"].get("correlation")
        for event in events
        if event.get("cat") in GPU_CATEGORIES
    }
    return {
        "launches": len(launched),
        "missing": len(launched - ran),
        "first_us": round(duration, 2),
        "second_us": round(second, 2),
    }


def huge(instruments: Instruments, device: str, counts: str) -> dict[str, Any]:
    """Export traces of more and more steps.

    Returns for each number of steps the bytes of the file, the time of the export in ms, and the events.
    """
    from torch.profiler import profile

    step = _step(device)
    rows = []
    for count in (int(number) for number in counts.split()):
        with profile(with_stack=True, record_shapes=True) as prof:
            for _ in range(count):
                step()
            _synchronize(device)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            start = time.perf_counter()
            prof.export_chrome_trace(str(path))
            export_ms = round((time.perf_counter() - start) * 1e3, 1)
            content = path.read_bytes()
        rows.append(
            {
                "steps": count,
                "bytes": len(content),
                "export_ms": export_ms,
                "events": len(json.loads(content)["traceEvents"]),
            }
        )
    return {
        "traces": rows,
        "median_bytes_per_step": statistics.median(
            row["bytes"] / row["steps"] for row in rows
        ),
    }


def _probe(
    name: str, probe: Callable[..., dict[str, Any]], **parameters: int | str
) -> Experiment:
    return Experiment(
        chapter="capture_faults", name=name, parameters=parameters, probe=probe
    )


EXPERIMENTS = (
    _probe("overhead", overhead, repeats=11, steps=20),
    _probe("forgotten_step", forgotten_step),
    _probe("cpu_only", cpu_only),
    _probe("in_a_thread", in_a_thread),
    _probe("in_workers", in_workers, workers=2),
    _probe("second_subscriber", second_subscriber),
    _probe("unwarmed", unwarmed, sessions=8),
    _probe("huge", huge, counts="1 10 100"),
)
