"""Profiler events written by hand, and a large synthetic trace whose answers are known."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
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


def trace_bytes(*events: Any, **top: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, **top, "traceEvents": events}).encode()


def _event(cat: str, name: str, start: float, duration: float, pid: Any, tid: Any, args: Event) -> Event:
    given = {key: value for key, value in args.items() if value is not None}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": duration, "args": given}


@dataclass
class Known:
    """What a synthetic trace holds, counted in ns while it is written."""

    events: int = 0
    steps: int = 20
    kernels: int = 0
    memcpys: int = 0
    memsets: int = 0
    kernel_ns: int = 0
    busy_ns: int = 0
    calls: dict[str, int] = field(default_factory=dict)  # by kernel name


_BASE_NS = 4_346_902_577_329_998  # of a real trace: large enough that a float64 just holds the nanoseconds
_OPS = (
    ("aten::mm", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", "cuLaunchKernelEx", [[8192, 768], [768, 3072]]),
    (
        "aten::mul",
        "void at::native::vectorized_elementwise_kernel<8, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, "
        "c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int, at::native::"
        "BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, "
        "std::array<char*, 3ul>)",
        "cudaLaunchKernel",
        [[64, 128, 3072], [64, 128, 3072]],
    ),
    (
        "aten::gelu",
        "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::"
        "native::GeluType)::{lambda()#1}::operator()() const::{lambda()#4}::operator()() const::{lambda(c10::BFloat16)"
        "#1}, "
        "std::array<char*, 2ul> >(int, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType))",
        "cudaLaunchKernel",
        [[64, 128, 3072], []],
    ),
    (
        "aten::addmm",
        "nvjet_sm90_tst_64x8_64x16_1x2_h_bz_bias_TNT",
        "cuLaunchKernelEx",
        [[64], [1024, 32], [32, 64], []],
    ),
    ("aten::copy_", "Memcpy DtoD (Device -> Device)", "cudaMemcpyAsync", [[64, 128, 3072], [64, 128, 3072], []]),
    ("aten::zero_", "Memset (Device)", "cudaMemsetAsync", [[64, 128, 3072]]),
)


def synthetic_trace(path: Path, megabytes: float, seed: int = 0) -> Known:
    """Write about `megabytes` of Kineto-shaped JSON: op, call, GPU activity, two flow events per launch; 20 steps."""
    known = Known()
    dice = random.Random(seed)
    launches = int(megabytes * 1e6 / 1_314)  # bytes per launch, measured
    with path.open("w", encoding="utf-8") as file:
        file.write(
            '{\n  "schemaVersion": 1,\n  "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],\n'
            '  "record_shapes": 1,\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": 1790857026000000000,\n'
            '  "traceEvents": [\n'
        )
        for text in _synthetic_events(dice, launches // known.steps, known):
            file.write(f"  {text},\n")
            known.events += 1
        file.write(
            '  {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 4346902578329.1}\n'
        )
        file.write('  ],\n  "traceName": "synthetic.json"\n}\n')
    known.events += 1
    return known


def _synthetic_events(dice: random.Random, launches_per_step: int, known: Known) -> Iterator[str]:
    yield _metadata("process_name", {"name": "python3"})
    yield _metadata("process_labels", {"labels": "CPU"})
    now, free, reached = _BASE_NS, {7: 0, 13: 0}, 0
    identity = 0
    for number in range(2, 2 + known.steps):
        step_start, late = now, []
        identity += 1
        step_identity = identity
        for _ in range(launches_per_step):
            identity += 1
            op_name, name, call, dims = dice.choices(_OPS, weights=(4, 4, 3, 3, 1, 1))[0]
            start, now = now + dice.randint(100, 2_000), now + 6_000 + dice.randint(0, 3_000)
            call_start = start + 1_500 + dice.randint(0, 1_000)
            stream = 13 if dice.random() < 0.1 else 7
            gpu_start = max(call_start + 3_000 + dice.randint(0, 2_000), free[stream] + 300)
            gpu_ns = dice.randint(800, 12_000)
            free[stream] = gpu_start + gpu_ns
            late.append((gpu_start, gpu_start + gpu_ns))
            yield _synthetic_op(op_name, dims, start, now - 500 - start, identity)
            category = "cuda_driver" if call.startswith("cu") and not call.startswith("cuda") else "cuda_runtime"
            args = f'"External id": {identity}, "cbid": 211, "correlation": {identity}'
            host = f'"pid": {HOST}, "tid": {HOST}'
            call_time = f'"ts": {_us(call_start)}, "dur": {_us(2_400)}'
            yield f'{{"ph": "X", "cat": "{category}", "name": "{call}", {host}, {call_time}, "args": {{{args}}}}}'
            yield f'{{"ph": "s", "id": {identity}, {host}, "ts": {_us(call_start)}, "cat": "ac2g", "name": "ac2g"}}'
            yield _synthetic_activity(name, call, stream, gpu_start, gpu_ns, identity)
            gpu = f'"pid": 0, "tid": {stream}, "ts": {_us(gpu_start)}'
            yield f'{{"ph": "f", "id": {identity}, {gpu}, "cat": "ac2g", "name": "ac2g", "bp": "e"}}'
            known.memcpys += call == "cudaMemcpyAsync"
            known.memsets += call == "cudaMemsetAsync"
            if "Launch" in call:
                known.kernels += 1
                known.kernel_ns += gpu_ns
                known.calls[name] = known.calls.get(name, 0) + 1
        now += 2_000
        args = f'"External id": {step_identity}, "Record function id": 0, "Ev Idx": {step_identity}'
        yield (
            f'{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{number}", "pid": {HOST}, "tid": {HOST}, '
            f'"ts": {_us(step_start)}, "dur": {_us(now - step_start)}, "args": {{{args}}}}}'
        )
        now += 1_000
        now = max(now, *free.values())  # synchronized: steps do not overlap on the GPU, so that their unions add up
        for begin, end in sorted(late):
            known.busy_ns += max(0, end - max(begin, reached))
            reached = max(reached, end)


def _synthetic_op(name: str, dims: list[list[int]], start: int, duration: int, identity: int) -> str:
    args = {
        "External id": identity,
        "Record function id": 0,
        "Concrete Inputs": [""] * len(dims),
        "Input type": ["c10::BFloat16" if dim else "Scalar" for dim in dims],
        "Input Strides": [[*dim[1:], 1] for dim in dims],
        "Input Dims": dims,
        "Ev Idx": identity,
    }
    return (
        f'{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": {HOST}, "tid": {HOST}, "ts": {_us(start)}, '
        f'"dur": {_us(duration)}, "args": {json.dumps(args)}}}'
    )


def _synthetic_activity(name: str, call: str, stream: int, start: int, duration: int, identity: int) -> str:
    common = f'"External id": {identity}, "device": 0, "context": 1, "stream": {stream}, "correlation": {identity}'
    if call in ("cudaMemcpyAsync", "cudaMemsetAsync"):
        category = "gpu_memcpy" if call == "cudaMemcpyAsync" else "gpu_memset"
        args = f'{common}, "bytes": 4096, "memory bandwidth (GB/s)": 3.2'
    else:
        category = "kernel"
        args = (
            f'{common}, "queued": 0, "registers per thread": {len(name) % 200}, "shared memory": 0, '
            '"blocks per SM": 1.0, "warps per SM": 12.0, "grid": [2, 66, 1], "block": [384, 1, 1], '
            '"est. achieved occupancy %": 19'
        )
    return (
        f'{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 0, "tid": {stream}, "ts": {_us(start)}, '
        f'"dur": {_us(duration)}, "args": {{{args}}}}}'
    )


def _metadata(name: str, args: Event) -> str:
    return json.dumps({"name": name, "ph": "M", "ts": _BASE_NS / 1000, "pid": HOST, "tid": 0, "args": args})


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"
