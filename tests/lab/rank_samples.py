"""Traces of the ranks of a data-parallel step, written by hand, as one file."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from kinetoscope.ranks.joining import merge_ranks
from tests.tool.events import Event, annotation, kernel, launch, op, step, trace_bytes

BASE_NS = 1_790_857_026_000_000_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
STEP_US, TRANSFER_US, NEXT_US = 200.0, 20.0, 1000.0


def merged_trace(works_us: Sequence[float], label: str = "step", steps: int = 3) -> bytes:
    """The merged trace of one rank for each of `works_us`: a matrix product of so many microseconds, then an
    all-reduce that ends 20 us after the last rank has begun it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [folder / f"rank{rank}.json" for rank in range(len(works_us))]
        for rank, path in enumerate(paths):
            path.write_bytes(rank_trace(rank, works_us, label, steps))
        merge_ranks(paths, folder / "job.json")
        return (folder / "job.json").read_bytes()


def rank_trace(rank: int, works_us: Sequence[float], label: str = "step", steps: int = 3) -> bytes:
    """The trace of one of these ranks."""
    found: list[Event] = []
    for number in range(1, steps + 1):
        start = NEXT_US * number
        works, meets = 10 * number + 1, 10 * number + 2
        begin, end = start + 10 + works_us[rank], start + 10 + max(works_us) + TRANSFER_US
        found += [
            step(number, start, STEP_US, external=works),
            annotation(label, start + 1, STEP_US - 2),
            op("aten::mm", start + 2, 6, external=works, dims=[[64, 64], [64, 64]]),
            launch(works, start + 4),
            kernel("gemm", works, start + 10, works_us[rank], **{"External id": works}),
            op("record_param_comms", start + 9, 6, external=meets),
            launch(meets, start + 12),
            kernel(ALL_REDUCE, meets, begin, end - begin, stream=13, **{"External id": meets, **_collective(works_us)}),
        ]
    job = {"rank": rank, "world_size": len(works_us), "backend": "nccl"}
    job |= {"pg_config": [{"pg_name": "0", "ranks": list(range(len(works_us)))}]}
    devices = [{"id": 0, "name": "NVIDIA Sample"}]
    return trace_bytes(*found, baseTimeNanoseconds=BASE_NS, distributedInfo=job, deviceProperties=devices)


def _collective(works_us: Sequence[float]) -> Event:
    """What the profiler tells of the kernel of an all-reduce."""
    return {
        "Collective name": "allreduce",
        "In msg nelems": 1 << 20,
        "Out msg nelems": 1 << 20,
        "Group size": len(works_us),
        "dtype": "BFloat16",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": str(list(range(len(works_us)))),
    }
