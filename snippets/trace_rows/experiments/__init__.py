"""What the page on the rows of a trace records: small steps that put each row into a trace."""

from __future__ import annotations

from typing import Any

from snippets.lab.experiment import Experiment, Instruments, Schedule
from snippets.trace_rows.experiments.steps import (
    ROWS,
    WIDTH,
    copies,
    copies_work,
    full_queue,
    full_queue_work,
    graph,
    graph_work,
    item,
    item_work,
    train,
    train_work,
    two_streams,
    two_streams_work,
)


def memory(
    instruments: Instruments, device: str, rows: int, width: int
) -> dict[str, Any]:
    """Profile three training steps with `profile_memory`.

    Returns the rows of `key_averages()`: calls, times in us, and the bytes allocated less the bytes freed, by the
    operator itself and with its callees. On a GPU these are bytes of GPU memory, on a CPU of CPU memory.
    """
    from torch.profiler import profile

    subject = train(device, rows, width, 0)
    x = subject.inputs()
    for _ in range(3):
        subject.step(*x)
    with profile(profile_memory=True, record_shapes=True) as prof:
        for _ in range(3):
            subject.step(*x)
    place = "device" if device == "cuda" else "cpu"
    return {
        "rows": [
            {
                "name": row.key,
                "calls": row.count,
                "self_cpu_us": round(row.self_cpu_time_total, 1),
                "cpu_us": round(row.cpu_time_total, 1),
                "self_gpu_us": round(row.self_device_time_total, 1),
                "gpu_us": round(row.device_time_total, 1),
                "self_bytes": getattr(row, f"self_{place}_memory_usage"),
                "bytes": getattr(row, f"{place}_memory_usage"),
            }
            for row in prof.key_averages()
        ]
    }


def _rows(name: str, make: Any, work: Any, **more: Any) -> Experiment:
    parameters = more.pop("parameters")
    return Experiment(
        chapter="trace_rows",
        name=name,
        label=name,
        parameters=parameters,
        make=make,
        work=work,
        timed=False,
        **more,
    )


TRAINING = {"rows": ROWS, "width": WIDTH}

EXPERIMENTS = (
    _rows("train", train, train_work, parameters={**TRAINING, "compiled": 0}),
    _rows(
        "compiled", train, train_work, parameters={**TRAINING, "compiled": 1}
    ),
    _rows(
        "first",
        train,
        train_work,
        parameters={**TRAINING, "compiled": 0},
        first_steps=0,
        schedule=Schedule(0, 0, 2),
    ),
    _rows(
        "two_streams",
        two_streams,
        two_streams_work,
        parameters={"rows": 8, "columns": 1 << 20},
    ),
    _rows(
        "full_queue",
        full_queue,
        full_queue_work,
        parameters={"size": 16384, "launches": 1200},
        schedule=Schedule(1, 1, 1),
    ),
    _rows("item", item, item_work, parameters={"elements": 1 << 26}),
    _rows("copies", copies, copies_work, parameters={"size": 4096}),
    _rows("graph", graph, graph_work, parameters=TRAINING),
    Experiment(
        chapter="trace_rows", name="memory", parameters=TRAINING, probe=memory
    ),
)
