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


def merged_trace(works_us: Sequence[float], label: str = "step", steps: int = 3, collectives: int = 1) -> bytes:
    """The merged trace of one rank for each of `works_us`: so many times a matrix product of so many microseconds, then
    an all-reduce that ends 20 us after the last rank has begun it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [folder / f"rank{rank}.json" for rank in range(len(works_us))]
        for rank, path in enumerate(paths):
            path.write_bytes(rank_trace(rank, works_us, label, steps, collectives))
        merge_ranks(paths, folder / "job.json")
        return (folder / "job.json").read_bytes()


def rank_trace(
    rank: int, works_us: Sequence[float], label: str = "step", steps: int = 3, collectives: int = 1
) -> bytes:
    """The trace of one of these ranks."""
    found: list[Event] = []
    for number in range(1, steps + 1):
        start = NEXT_US * number
        found += [step(number, start, STEP_US, external=100 * number), annotation(label, start + 1, STEP_US - 2)]
        begin = start + 10
        for index in range(collectives):
            works, meets = 100 * number + 2 * index + 1, 100 * number + 2 * index + 2
            arrives, end = begin + works_us[rank], begin + max(works_us) + TRANSFER_US
            given = {"External id": meets, **_collective(works_us)}
            call = start + 2 + index
            found += [
                op("aten::mm", call, 0.5, external=works, dims=[[64, 64], [64, 64]]),
                launch(works, call, 0.2),
                kernel("gemm", works, begin, works_us[rank], **{"External id": works}),
                op("record_param_comms", call + 0.5, 0.4, external=meets),
                launch(meets, call + 0.5, 0.2),
                kernel(ALL_REDUCE, meets, arrives, end - arrives, stream=13, **given),
            ]
            begin = end
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
