"""Profiles beside another subscriber, and without a warm-up."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from snippets.capture_faults.experiments.captures import (
    GPU_CATEGORIES,
    _events,
    _step,
    _synchronize,
)
from snippets.lab.experiment import Instruments, NeedsGpu


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
