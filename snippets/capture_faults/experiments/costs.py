"""What each option costs, and how a trace grows."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from snippets.capture_faults.experiments.captures import (
    _events,
    _step,
    _synchronize,
)
from snippets.lab.experiment import Instruments

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
