"""The caching allocator: how it rounds, what it keeps, and a request that fails although enough bytes are free."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from snippets.lab.experiment import Experiment, Instruments, NeedsGpu

MIB = 1 << 20
SETTINGS: Mapping[str, str] = {
    "default": "",
    "expandable segments": "expandable_segments:True",
    "large blocks whole": "max_split_size_mb:100",
}
"""Heading -> PYTORCH_ALLOC_CONF."""
VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""The new name and the old one; PyTorch reads both."""
HERE = "import sys; from snippets.training_memory.allocator import here; here(*sys.argv[1:])"
REQUESTS = (
    1,
    512,
    513,
    100_000,
    MIB,
    MIB + 1,
    5 * MIB,
    10 * MIB,
    10 * MIB + 1,
    19 * MIB + MIB // 2,
    20 * MIB + 1,
    100 * MIB + 1,
)
"""Bytes that are requested from an empty cache."""
LENT = tuple(range(16, 68, 4))
"""MiB of the blocks that are released later: 16, 20, ... 64."""
KEPT = {"2 MiB": 2, "1 MiB": 1}
"""The block kept after each released block -> its MiB."""
LARGE = 128
"""MiB of the request at the end."""
SPARE = 40
"""MiB that the process may hold besides the blocks."""
STATISTICS = {
    "requested": "requested_bytes.all.current",
    "allocated": "allocated_bytes.all.current",
    "reserved": "reserved_bytes.all.current",
    "split": "inactive_split_bytes.all.current",
    "asked": "num_device_alloc",
    "returned": "num_device_free",
    "retries": "num_alloc_retries",
    "ooms": "num_ooms",
}


def statistics() -> dict[str, int]:
    """Bytes and counts of the allocator now."""
    import torch

    found = torch.cuda.memory_stats()
    return {name: int(found.get(key, 0)) for name, key in STATISTICS.items()}


def empty() -> None:
    """Give everything back to the driver."""
    import torch

    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()


def rounding() -> list[dict[str, int]]:
    """For each of REQUESTS the bytes that one allocation takes from an empty
    cache."""
    import torch

    found = []
    for size in REQUESTS:
        empty()
        before = statistics()
        tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        after = statistics()
        found.append(
            {
                "request": size,
                "block": after["allocated"] - before["allocated"],
                "segments": after["reserved"] - before["reserved"],
            }
        )
        del tensor
    return found


def segments() -> list[dict[str, Any]]:
    """The allocator's segments by address: the bytes of each block and the function that allocated it, "" if it is
    free."""
    import torch

    found = []
    snapshot = torch.cuda.memory._snapshot()
    for segment in sorted(
        snapshot["segments"], key=lambda each: int(each["address"])
    ):
        blocks = segment["blocks"]
        found.append(
            {
                "pool": segment["segment_type"],
                "bytes": int(segment["total_size"]),
                "blocks": [int(each["size"]) for each in blocks],
                "owners": [_owner(each) for each in blocks],
            }
        )
    return found


def _owner(each: Mapping[str, Any]) -> str:
    """The function that called `block`, or "active" if unknown; empty for a free block."""
    if not str(each["state"]).startswith("active"):
        return ""
    names = [
        str(frame["name"])
        for frame in each.get("frames", [])
        if PurePath(str(frame["filename"])).name == "fragments.py"
    ]
    return next((name for name in names if name != "block"), "active")


def attempt(mib: int) -> str:
    """Allocate `mib` MiB; return the error, or "" on success."""
    import torch

    from snippets.training_memory.experiments.fragments import block

    try:
        tensor = block(mib)
    except torch.OutOfMemoryError as error:
        return str(error)
    del tensor
    return ""


def fragmented(kept: int) -> dict[str, Any]:
    """Run `interleave` on a small card, and request a block that is larger than each hole.

    Returns the statistics of the moments `cached` (one free segment), `interleaved` and `asked`; of `interleaved` also
    the segments and the output of memory_summary(); and the error of the request.
    """
    import torch

    from snippets.training_memory.experiments.fragments import (
        block,
        interleave,
        limit_to,
    )

    empty()
    whole = sum(LENT) + len(LENT) * kept
    limit_to(whole + SPARE)
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    torch.cuda.memory._record_memory_history(
        "state", context="state", stacks="python"
    )
    tensor = block(whole)
    del tensor
    found: dict[str, Any] = {
        "limit": (whole + SPARE) * MIB,
        "cached": statistics(),
        "cached_summary": torch.cuda.memory_summary(),
    }
    kept_blocks = interleave(LENT, kept)
    found["interleaved"] = statistics()
    found["summary"] = torch.cuda.memory_summary()
    found["segments"] = segments()
    found["error"] = attempt(LARGE)
    found["asked"] = statistics()
    found["segments_after"] = segments()
    torch.cuda.memory._record_memory_history(enabled=None)
    del kept_blocks
    empty()
    limit_to(torch.cuda.get_device_properties(0).total_memory // MIB)
    return found


def profiled(kept: int) -> list[dict[str, Any]]:
    """The profiler's rows for `interleave`: calls and bytes of each operator."""
    import torch
    from torch.profiler import profile, record_function

    from snippets.training_memory.experiments.fragments import interleave

    empty()
    with profile(profile_memory=True) as profiler:
        with record_function("interleave"):
            kept_blocks = interleave(LENT, kept)
        torch.cuda.synchronize()
    del kept_blocks
    return [
        {
            "name": row.key,
            "calls": row.count,
            "self_bytes": row.self_device_memory_usage,
            "bytes": row.device_memory_usage,
        }
        for row in profiler.key_averages()
        if row.device_memory_usage or row.self_device_memory_usage
    ]


def context_bytes(free_before: int) -> int:
    """The driver's memory for this process, without the bytes that PyTorch
    requested."""
    import torch

    from snippets.training_memory.experiments.fragments import block

    tensor = block(1)
    torch.cuda.synchronize()
    free, _ = torch.cuda.mem_get_info()
    reserved = statistics()["reserved"]
    del tensor
    return free_before - int(free) - reserved


def here(free_before: str) -> None:
    """Measure in this process, and print everything as JSON."""
    import torch

    snapshot = torch.cuda.memory._snapshot
    found: dict[str, Any] = {
        "context": context_bytes(int(free_before)),
        "setting": snapshot().get("allocator_settings", {}),
        "rounding": rounding(),
        "fragmented": {name: fragmented(kept) for name, kept in KEPT.items()},
        "profiled": {name: profiled(kept) for name, kept in KEPT.items()},
    }
    print(json.dumps(found, default=str))


def allocators(instruments: Instruments, device: str) -> dict[str, Any]:
    """The same requests with each setting of the allocator, each in its own process: {heading: the output of
    `here`}."""
    import torch

    if device != "cuda":
        raise NeedsGpu(
            "a CPU has no caching allocator: training_memory/holds runs here"
        )
    found = {}
    for name, setting in SETTINGS.items():
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        done = subprocess.run(
            [sys.executable, "-c", HERE, str(free)],
            env=_environment(setting),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr.strip()[-2000:]}")
        found[name] = json.loads(done.stdout.splitlines()[-1])
    return found


def _environment(setting: str) -> dict[str, str]:
    """This process's environment with one setting of the allocator."""
    others = {
        name: value
        for name, value in os.environ.items()
        if name not in VARIABLES
    }
    return {**others, **dict.fromkeys(VARIABLES if setting else (), setting)}


ALLOCATOR = (
    Experiment(
        chapter="training_memory",
        name="allocators",
        parameters={},
        probe=allocators,
    ),
)
