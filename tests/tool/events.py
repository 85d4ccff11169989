"""Profiler events written by hand."""

from __future__ import annotations

import json
from typing import Any

Event = dict[str, Any]
HOST = 412  # pid and main thread


def op(
    name: str,
    start: float,
    duration: float,
    *,
    external: int | None = None,
    dims: Any = None,
    strides: Any = None,
    types: Any = None,
    tid: int | str = HOST,
    cat: str = "cpu_op",
) -> Event:
    args = {"External id": external, "Input Dims": dims, "Input Strides": strides, "Input type": types}
    return _event(cat, name, start, duration, HOST, tid, args)


def annotation(name: str, start: float, duration: float, **more: Any) -> Event:
    return op(name, start, duration, cat="user_annotation", **more)


def step(number: int, start: float, duration: float, **more: Any) -> Event:
    return annotation(f"ProfilerStep#{number}", start, duration, **more)


def launch(
    correlation: int | None,
    start: float,
    duration: float = 2.0,
    *,
    name: str = "cudaLaunchKernel",
    external: int | None = None,
    tid: int | str = HOST,
) -> Event:
    cat = "cuda_runtime" if name.startswith("cuda") else "cuda_driver"
    return _event(cat, name, start, duration, HOST, tid, {"External id": external, "correlation": correlation})


def kernel(
    name: str, correlation: Any, start: float, duration: float, *, stream: Any = 7, device: Any = 0, **args: Any
) -> Event:
    shape = {"grid": [4, 2, 1], "block": [384, 1, 1], "registers per thread": 168, "shared memory": 164308}
    given = {"device": device, "stream": stream, "correlation": correlation}
    return _event("kernel", name, start, duration, 0, stream, given | shape | args)


def memcpy(correlation: int | None, start: float, duration: float, moved_bytes: int, *, stream: int = 7) -> Event:
    args = {"device": 0, "stream": stream, "correlation": correlation, "bytes": moved_bytes}
    return _event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", start, duration, 0, stream, args)


def memset(correlation: int | None, start: float, duration: float, moved_bytes: int, *, stream: int = 7) -> Event:
    args = {"device": 0, "stream": stream, "correlation": correlation, "bytes": moved_bytes}
    return _event("gpu_memset", "Memset (Device)", start, duration, 0, stream, args)


def gpu_annotation(name: str, start: float, duration: float, *, stream: int = 7) -> Event:
    return _event("gpu_user_annotation", name, start, duration, 0, stream, {})


def overhead(name: str, start: float, duration: float) -> Event:
    return _event("overhead", name, start, duration, -1, 0, {})


def memory(
    start: float,
    size: int,
    address: int | None,
    *,
    total: int | None = None,
    reserved: int | None = None,
    device: int = 0,
    tid: int | str = HOST,
) -> Event:
    """An allocation, or with a negative size a release; device -1 is the CPU."""
    args = {"Bytes": size, "Addr": address, "Total Allocated": total, "Total Reserved": reserved}
    given = {**args, "Device Id": device, "Device Type": int(device >= 0)}
    return {**_event("cpu_instant_event", "[memory]", start, 0, HOST, tid, given), "ph": "i", "s": "t"}


def trace_bytes(*events: Any, **top: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, **top, "traceEvents": events}).encode()


def _event(cat: str, name: str, start: float, duration: float, pid: Any, tid: Any, args: Event) -> Event:
    given = {key: value for key, value in args.items() if value is not None}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": duration, "args": given}
