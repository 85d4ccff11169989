"""A trace with an event of every kind that is read, and one value of it replaced."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from kinetoscope.trace.summaries import Summary
from tests.tool.events import (
    Event,
    gpu_annotation,
    kernel,
    launch,
    memcpy,
    memory,
    memset,
    op,
    overhead,
    step,
)

COLLECTIVE = {
    "Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "Group size": 2, "dtype": "Float",
    "Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1]",
    "Global rank start": 0, "Global rank stride": 1, "Rank": 0, "Seq": 3, "Src Rank": 0, "Dst Rank": 1, "Comms Id": 77,
}  # fmt: skip
TOP: Event = {
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "numSms": 132}],
    "distributedInfo": {"rank": 0, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]},
    "baseTimeNanoseconds": 1_767_189_312_000_000_000,
}
VALUES: tuple[Any, ...] = (
    None, True, "", "soon", "nan", -1, 0, 7, 1.5, -(10**18), 2**53, 2**64, 10**400, -(10**400), 1e308, -1e308, [], [1],
    {}, {"a": 1}, [[[]]], [-(10**400), 1, 1],
)  # fmt: skip
SUMS = (
    "kernels_per_step", "memcpy_per_step", "memset_per_step", "kernel_time_us_per_step", "gpu_busy_us_per_step",
    "h2d_us_per_step", "collectives_us_per_step",
)  # fmt: skip


def every_kind(steps: int = 3) -> list[Event]:
    """Each step has a product, a copy, a fill, a collective and one event of each other kind."""
    return [event for number in range(steps) for event in _step(number)]


def _step(number: int) -> Iterator[Event]:
    at, ids = 1000.0 * number, 10 * number + 1
    shapes = {"dims": [[64, 64], [64, 64]], "strides": [[64, 1], [64, 1]], "types": ["float", "float"]}
    yield step(number, at, 900)
    yield op("aten::mm", at + 10, 50, external=ids, **shapes)
    yield launch(ids, at + 20, 5, external=ids)
    yield kernel("gemm", ids, at + 100, 80, **{"External id": ids, "est. achieved occupancy %": 50, "graph id": 0})
    yield launch(ids + 1, at + 70, 5, name="cudaMemcpyAsync")
    yield memcpy(ids + 1, at + 200, 20, 4096)
    yield launch(ids + 2, at + 80, 5, name="cudaMemsetAsync")
    yield memset(ids + 2, at + 230, 5, 64)
    communication = op("record_param_comms", at + 85, 20, external=ids + 3)
    communication["args"].update(COLLECTIVE)
    yield communication
    yield launch(ids + 3, at + 90, 5)
    yield kernel("ncclDevKernel_AllReduce", ids + 3, at + 300, 100, **COLLECTIVE)
    yield memory(at + 15, 1024, 7 + number, total=2048, reserved=9999)
    yield {**overhead("train.py(3): f", at + 5, 200), "cat": "python_function", "pid": 412, "tid": 412}
    yield {**overhead("Stream Sync", at + 400, 50), "cat": "cuda_sync", "args": {"stream": 7, "wait_on_stream": 3}}
    yield {"ph": "C", "cat": "hardware_counters", "name": "c", "pid": 0, "ts": at + 6, "args": {"v": 1.5}}
    yield gpu_annotation("forward", at + 100, 300)
    yield overhead("Buffer Flush", at + 2, 2)


def paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value inside of JSON."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*before, key)
        if isinstance(inner, dict | list):
            yield from paths(inner, (*before, key))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of JSON with another value at a place."""
    changed = copy.deepcopy(document)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


def sums(summary: Summary) -> dict[str, Any]:
    """The times and counts of a summary."""
    return {name: getattr(summary, name) for name in SUMS}
