"""Print what torch can record on this machine, a line of JSON per stage: `python -m kinetoscope.doctor.torch_probe`.

It runs in a separate process, because a broken installation may crash, hang or write to the terminal. `doctor` reports
that.
"""

from __future__ import annotations

import json
import re
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from kinetoscope.trace.kineto import read_trace

TRIES = 3
"""Profiles until a kernel appears: the profiler is known to drop kernels at a session's start."""
MARK = "torch_probe"
"""The key of its lines: libraries print others."""
_CUPTI_PACKAGES = ("nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12", "nvidia-cuda-cupti-cu11")


def main() -> None:
    """Print each stage when it is done, so that a crash leaves the earlier stages."""
    build = _build()
    _print(build)
    if "import_error" in build:
        return
    gpus = _gpus()
    _print(gpus)
    if gpus["gpus"] and "CUDA" in build["activities"]:
        _print({"stage": "profile"})
        _print(_profile())
        _print({"cupti_loaded": _loaded_cupti(), "stage": "done"})


def _print(facts: dict[str, Any]) -> None:
    print(json.dumps({MARK: facts}), flush=True)


def _build() -> dict[str, Any]:
    try:
        import torch
        from torch.profiler import supported_activities
    except Exception as error:  # no package, a library that does not load, a package of another Python
        return {"import_error": f"{type(error).__name__}: {error}"}
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda or "",
        "hip": torch.version.hip or "",
        "kineto": bool(torch.autograd.kineto_available()),  # type: ignore[attr-defined]
        "activities": sorted(activity.name for activity in supported_activities()),
        "cupti_package": _cupti_package(),
    }


def _cupti_package() -> str:
    for name in _CUPTI_PACKAGES:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


def _gpus() -> dict[str, Any]:
    import torch

    try:
        torch.cuda.init()
        names = [torch.cuda.get_device_properties(index).name for index in range(torch.cuda.device_count())]
    except Exception as error:  # a CPU build, no driver, an old driver, a GPU that is lost
        return {"gpus": [], "gpu_error": str(error).strip().split("\n")[0]}
    return {"gpus": names}


def _profile() -> dict[str, Any]:
    """Profile one matrix product; return the number of kernels in the trace."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    kernels, tries = 0, 0
    try:
        matrix = torch.ones(256, 256, device="cuda")
        (matrix @ matrix).sum().item()
        while not kernels and tries < TRIES:
            tries += 1
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as finished:
                (matrix @ matrix).sum()
                torch.cuda.synchronize()
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "trace.json"
                finished.export_chrome_trace(str(path))
                activities = read_trace(path).activities
            kernels = sum(activity.kind == "kernel" for activity in activities)
    except Exception as error:  # out of memory, a kernel image for another GPU, an unreadable trace
        return {"profile_error": f"{type(error).__name__}: {str(error).strip()}".split("\n")[0], "tries": tries}
    return {"kernels": kernels, "tries": tries}


def _loaded_cupti() -> list[str]:
    """The CUPTI libraries of this process, with their folders."""
    try:
        maps = Path("/proc/self/maps").read_text("utf-8", errors="replace")
    except OSError:
        return []
    return sorted(set(re.findall(r"/\S*libcupti\S*", maps)))


if __name__ == "__main__":
    main()
