"""The same step, captured wrongly and rightly, and what each trace has of it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import Instruments

if TYPE_CHECKING:
    from torch.profiler import profile


BATCH = 64


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
