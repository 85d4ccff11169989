"""What one profile does not show: generated code, the first step, a long trace."""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from snippets.lab.experiment import Instruments, NeedsGpu
from snippets.matmul_add.experiments.steps import compiled, eager


def generated_code(
    instruments: Instruments, device: str, size: int
) -> dict[str, Any]:
    """Compile with empty caches and read the code that Inductor wrote.

    Returns `calls`, the lines of the generated `call` that launch work, and
    whether the graph cache is in `torchinductor_<user>/fxgraph` under the
    system's folder for temporary files.
    """
    import getpass

    import torch
    from torch._inductor import config
    from torch._inductor.runtime.cache_dir_utils import (
        cache_dir,
        default_cache_dir,
    )
    from torch._inductor.utils import run_and_get_code

    subject = compiled(device, size)
    torch._dynamo.reset()
    # otherwise the code comes from the cache and is not logged
    with config.patch(force_disable_caches=True):
        _, sources = run_and_get_code(subject.step, *subject.inputs())
    subject.step(*subject.inputs())
    folder = Path(default_cache_dir())
    expected = (
        Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
    )
    marks = (
        "extern_kernels.",
        ".run(",
        ".copy_(",
        "empty_strided",
        "reinterpret_tensor",
    )
    body = sources[0][sources[0].index("def call(") :].splitlines()
    return {
        "calls": [
            line.strip() for line in body if any(mark in line for mark in marks)
        ],
        "default_folder_is_torchinductor_user": folder == expected,
        "fxgraph_exists": (Path(cache_dir()) / "fxgraph").is_dir(),
    }


def first_gap(
    instruments: Instruments, device: str, size: int, repeats: int
) -> dict[str, Any]:
    """Profile steps without a GPU, so that neither cuBLAS nor CUDA can lengthen
    one.

    Returns, for short and long warm-ups in turn, with and without shapes, the
    time from entering the label to `aten::matmul`: that of the first kept step
    of each profile, and the median of the four after it.
    """
    import torch
    from torch.profiler import (
        ProfilerActivity,
        profile,
        record_function,
        schedule,
    )

    from snippets.matmul_add.model import matmul_add

    inputs = [torch.randn(size, size) for _ in range(3)]
    for _ in range(200):
        matmul_add(*inputs)
    variants: list[dict[str, Any]] = [
        {"warmup": warmup, "shapes": shapes, "first_us": [], "next_us": []}
        for warmup in (1, 50)
        for shapes in (True, False)
    ]
    for _ in range(repeats):
        for variant in variants:
            warmup, shapes = variant["warmup"], variant["shapes"]
            # --8<-- [start:first_gap]
            plan = schedule(wait=1, warmup=warmup, active=5, repeat=1)
            with profile(
                activities=[ProfilerActivity.CPU],
                schedule=plan,
                record_shapes=shapes,
                acc_events=True,
            ) as prof:
                for _ in range(1 + warmup + 5):
                    with record_function("matmul_add"):
                        matmul_add(*inputs)
                    prof.step()
            starts: dict[str, list[float]] = {
                "matmul_add": [],
                "aten::matmul": [],
            }
            for event in prof.events():
                starts.get(event.name, []).append(event.time_range.start)
            # --8<-- [end:first_gap]
            first, *rest = (
                inner - outer
                for outer, inner in zip(
                    *(sorted(times) for times in starts.values()), strict=True
                )
            )
            variant["first_us"].append(round(first, 3))
            variant["next_us"].append(round(statistics.median(rest), 3))
    return {"variants": variants}


def long_trace(
    instruments: Instruments, device: str, size: int, steps: int
) -> dict[str, Any]:
    """Profile many steps after one warm-up step.

    Returns the kept steps, and the `Activity Buffer Request`s of the trace: the
    duration of each, and its time after the begin of the first kept step.
    """
    from torch.profiler import (
        ProfilerActivity,
        profile,
        record_function,
        schedule,
    )

    if device != "cuda":
        raise NeedsGpu(
            "the profiler requests these buffers for the records of a GPU"
        )
    subject = eager(device, size)
    inputs = subject.inputs()
    plan = schedule(wait=1, warmup=1, active=steps, repeat=1)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, schedule=plan, acc_events=True) as prof:
        for _ in range(steps + 2):
            with record_function("matmul_add"):
                subject.step(*inputs)
            prof.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        prof.export_chrome_trace(str(path))
        events = json.loads(path.read_bytes())["traceEvents"]
    kept = [
        event["ts"]
        for event in events
        if event.get("cat") == "user_annotation"
        and event["name"].startswith("ProfilerStep#")
    ]
    requests = sorted(
        (event["ts"] - min(kept), event["dur"])
        for event in events
        if event["name"] == "Activity Buffer Request"
    )
    return {
        "kept_steps": len(kept),
        "requests_us": [round(us, 3) for _, us in requests],
        "after_us": [round(after, 3) for after, _ in requests],
    }
