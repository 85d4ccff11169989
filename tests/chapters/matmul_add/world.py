"""Recordings as the first post of the series describes its A100, and changes to them."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from snippets.lab.finding import Device
from snippets.lab.recording.schema import Ceiling, Point, Recording, Timing, Timings
from tests.lab import samples
from tests.tool import events

GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn"
QUERY = "cudaOccupancyMaxActiveBlocksPerMultiprocessor"
LAUNCH = "cudaLaunchKernel"
CODE = {
    "calls": ["buf0 = empty_strided_cuda(1)", "buf0.copy_(arg1_1)", "extern_kernels.addmm(arg0_1, out=buf0)"],
    "default_folder_is_torchinductor_user": True,
    "fxgraph_exists": True,
}


LONG = {"kept_steps": 20_000, "requests_us": [900.0, 800.0, 700.0], "after_us": [-500.0, 100.0, 9_000.0]}


def first_gaps(recorded: float = 30.0, left_out: float = 15.0) -> dict[str, Any]:
    """Gaps in profiles without a GPU, with shapes and without."""
    return {
        "variants": [
            {"warmup": warmup, "shapes": shapes, "first_us": [us, us + 1, us + 2], "next_us": [10.0] * 3}
            for warmup in (1, 50)
            for shapes, us in ((True, recorded), (False, left_out))
        ]
    }


class Events(list[dict[str, Any]]):
    """Kineto events, each launch with the GPU work that it causes."""

    def __init__(self) -> None:
        super().__init__()
        self.correlation = 0

    def put(self, call: str, at: float, kind: str = "", start: float = 0, us: float = 1, **more: Any) -> float:
        """A CUDA call and, with a `kind`, its GPU activity; returns when that ends."""
        self.correlation += 1
        self.append(events.launch(self.correlation, at, 2, name=call))
        if kind == "memcpy":
            self.append(events.memcpy(self.correlation, start, us, more["moved"]))
        elif kind == "memset":
            self.append(events.memset(self.correlation, start, us, 4))
        elif kind:
            self.append(events.kernel(kind, self.correlation, start, us, **more))
        return start + us

    def content(self) -> bytes:
        return events.trace_bytes(*self, deviceProperties=[{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}])


def matrices(count: int, size: int, *, row_first: bool = False, numbers: int = 0) -> dict[str, Any]:
    """What a trace keeps of an operator's inputs: square matrices in bf16, the first maybe a row, then numbers."""
    dims: list[list[int]] = [[size, size] for _ in range(count)]
    if row_first:
        dims[0] = [size]
    return {
        "dims": dims + [[]] * numbers,
        "strides": [[size, 1][-len(shape) :] for shape in dims] + [[]] * numbers,
        "types": ["c10::BFloat16"] * count + ["Scalar"] * numbers,
    }


def eager(
    numbers: tuple[int, ...] = (2, 3, 4),
    *,
    product: str = "aten::mm",
    queries: int = 1,
    call: str = LAUNCH,
    gaps: tuple[float, ...] = (228, 6, 5),
    widths: tuple[float, ...] = (400, 400, 400),
    delay: float = 2300,
    gemm: str = GEMM,
    gemm_us: tuple[float, ...] = (5, 5, 5),
    holes: tuple[float, ...] = (1, 1, 1),
    requests: tuple[float, ...] = (),
    wait_us: float = 1780,
    memset: bool = False,
    size: int = 64,
    apart: float = 10_000,
    item: bool = False,
) -> bytes:
    """Steps of matmul and add, as the post saw them unless said otherwise; with `item`, the CPU waits for each."""
    found, two = Events(), matrices(2, size)
    for index, number in enumerate(numbers):
        step = apart * index
        start = step + 10 + gaps[index]
        found += [
            events.step(number, step, widths[index]),
            events.annotation("matmul_add", step + 10, widths[index] - 20),
            events.op("aten::matmul", start, 60, external=100 * index + 1, **two),
            events.op(product, start + 2, 50, external=100 * index + 2, **two),
            events.op("aten::add", start + 65, 20, external=100 * index + 3, **two),
        ]
        for which in range(queries):
            found.put(QUERY, start + 5 + 3 * which)
        if memset:
            found.put("cudaMemsetAsync", start + 20, "memset", start + delay - 5)
        end = found.put(call, start + 30, gemm, start + delay, gemm_us[index])
        adds = {"registers per thread": 32, "shared memory": 0}
        end = found.put(LAUNCH, start + 70, "elementwise add", end + holes[index], 2, **adds)
        if item:
            found.append(events.op("aten::item", start + 90, 60, external=100 * index + 4))
            found.put("cudaMemcpyAsync", start + 95, "memcpy", end + 3, moved=2)
            found.put("cudaStreamSynchronize", start + 100)
    found += [events.overhead("Activity Buffer Request", at, 100) for at in requests]
    found.append(events.launch(999_999, apart * (len(numbers) - 1) + 500, wait_us, name="cudaDeviceSynchronize"))
    return found.content()


def compiled(
    *,
    bias: str = "memcpy",
    rows: tuple[str, ...] = ("TorchDynamo Cache Lookup", "AOTDispatcher Runtime Wrapper Prologue"),
    copy_us: float = 33,
    moved: int = 2 * 4096**2,
    size: int = 64,
) -> bytes:
    """Steps of addmm with a copy of b before it, inside the rows of a compiled call."""
    found, three = Events(), matrices(3, size, row_first=bias == "row", numbers=2)
    for index in range(3):
        step = 10_000.0 * index
        found += [
            events.step(index + 2, step, 500),
            events.annotation("matmul_add", step + 10, 480),
            events.op("Torch-Compiled Region: 0/0", step + 20, 400),
            *(events.op(row, step + 30 + 10 * which, 5) for which, row in enumerate(rows)),
            events.annotation("## Call CompiledFxGraph abc ##", step + 60, 300),
            events.op("aten::addmm", step + 70, 200, external=index + 1, **three),
        ]
        end = step + 500
        if bias == "memcpy":
            end = found.put("cudaMemcpyAsync", step + 80, "memcpy", end, copy_us, moved=moved)
        found.put(QUERY, step + 95)
        end = found.put(LAUNCH, step + 100, GEMM, end + 1, 580)
        if bias == "kernel":
            found.put(LAUNCH, step + 120, "elementwise add", end + 1, 20)
    return found.content()


def parsed(content: bytes) -> Trace:
    """The book's reading of a trace file."""
    return read_trace(content)


def edited(content: bytes, change: Callable[[dict[str, Any]], bool]) -> bytes:
    """A trace without the events for which `change`, which may alter them, returns False."""
    trace = json.loads(content)
    trace["traceEvents"] = [event for event in trace["traceEvents"] if change(event)]
    return json.dumps(trace).encode()


def timed(interleaved: float, enqueue: float, from_python: float) -> Timings:
    return msgspec.structs.replace(
        samples.timings(*[interleaved] * 3),
        enqueue=samples.timing(*[enqueue] * 3),
        from_python=samples.timing(*[from_python] * 3),
        steady=Timing.from_samples([1.25 * interleaved] * 3, clock_mhz=1300, watts=700, throttle=("power cap",)),
    )


def point(size: int, interleaved: float, enqueue: float, from_python: float) -> Point:
    timings = timed(interleaved, enqueue, from_python)
    return samples.point({"size": size}, timings, flops=2 * size**3, bytes=8 * size**2)


def recorded(name: str, *points: Point, **changed: Any) -> Recording:
    copy = Ceiling("copy", 2_000_000, 0, samples.timing(1, 1, 1))  # 2 TB/s
    sizes = {4096: 500, 8192: 500} | {int(at.parameters["size"]): 1 for at in points if at.parameters["size"] < 4096}
    shapes = {f"matmul {n}x{n}x{n}{layout}": (n, us) for n, us in sizes.items() for layout in ("", ", x @ w")}
    bare = [Ceiling(name, 1, 2 * n**3, samples.timing(us, us, us)) for name, (n, us) in shapes.items()]
    given = {"label": "matmul_add", "points": points, "ceilings": (copy, *bare)}
    return samples.sample(f"matmul_add/{name}", **given | changed)


def traces_of_the_post() -> dict[str, bytes]:
    small = {"holes": (1.0, 60.0, 1.0, 1.0, 1.0), "gaps": (5.0,) * 5, "widths": (400.0,) * 5, "gemm_us": (5.0,) * 5}
    twenty: dict[str, Any] = {key: (value[0],) * 20 for key, value in small.items()}
    return {
        "eager_64": eager(gaps=(8, 7, 6)),
        "eager_64_cold": eager(),
        "eager_4096": eager(gemm_us=(580, 580, 1084), delay=200, wait_us=1050, size=4096, apart=1200),
        "item_4096": eager(gemm_us=(580, 580, 580), size=4096, item=True),
        "eager_4096_cold": eager(gemm_us=(400, 700, 800), delay=200, wait_us=700, apart=1200),
        "compiled_64": compiled(moved=8192),
        "compiled_64_cold": compiled(moved=8192),
        "compiled_4096": compiled(size=4096),
        "stacked": eager(product="aten::bmm", queries=4),
        "stacked_input": eager(),
        "matrix_bias_64": compiled(rows=()),
        "matrix_bias_4096": compiled(rows=(), size=4096),
        "row_bias_64": compiled(rows=(), bias="row"),
        "row_bias_4096": compiled(rows=(), bias="row", size=4096),
        # the second request falls into the hole of step #1: 10_000 + 10 + 5 + 2300 + 5, then 60 us
        "unscheduled": eager(tuple(range(5)), requests=(1.0, 12_330.0), **small),
        "unscheduled_20": eager(tuple(range(20)), requests=(1.0,), **twenty),
    }


def recordings_of_the_post() -> list[Recording]:
    sizes = ((64, 5), (512, 8), (4096, 600))
    return [
        recorded("eager_64", point(64, 10, 40, 42)),
        recorded("compiled_64", point(64, 10, 80, 84)),
        recorded("eager_4096", point(4096, 600, 70, 610)),
        recorded("compiled_4096", point(4096, 606, 140, 615)),
        recorded("matrix_bias_64", point(64, 15, 40, 42)),
        recorded("row_bias_64", point(64, 10, 30, 32)),
        recorded("matrix_bias_4096", point(4096, 600, 40, 615)),
        recorded("row_bias_4096", point(4096, 500, 30, 515)),
        recorded("sweep_eager", *(point(n, us, 30, 60) for n, us in sizes), has_trace=False),
        recorded("sweep_compiled", *(point(n, us, 60, 90) for n, us in sizes), has_trace=False),
        *map(recorded, ("eager_64_cold", "compiled_64_cold", "eager_4096_cold", "unscheduled", "unscheduled_20")),
        recorded("stacked", point(64, 10, 50, 60)),
        recorded("stacked_input", point(64, 10, 50, 60)),
        recorded("item_4096", samples.point({"size": 4096})),
        recorded("generated_code", data=CODE, has_trace=False),
        recorded("first_gap", data=first_gaps(), has_trace=False),
        recorded("long_trace", data=LONG, has_trace=False),
    ]


def save_post(root: Path) -> None:
    """Save recordings as the post describes them."""
    traces = traces_of_the_post()
    for recording in recordings_of_the_post():
        samples.save_all(root, recording, trace=traces.get(recording.experiment))


class World:
    """A copy of what the post describes, whose files a test replaces."""

    def __init__(self, post: Path, root: Path) -> None:
        self.device = Device(root, samples.DEVICE)
        self.folder = root / samples.DEVICE / "matmul_add"
        shutil.copytree(post, root, dirs_exist_ok=True)
        self._age = itertools.count(1)

    def trace(self, name: str, content: bytes) -> None:
        path = self.folder / f"{name}.trace.json.gz"
        samples.untie(path)
        self._write(path, gzip.compress(content))

    def recording(self, recording: Recording) -> None:
        self._write(self.folder / f"{recording.experiment}.json", msgspec.json.encode(recording))

    def _write(self, path: Path, content: bytes) -> None:
        """With a time of its own: what is read is kept until the file's time is another one."""
        path.write_bytes(content)
        age = next(self._age)
        os.utime(path, ns=(age, age))

    def remove(self, *names: str) -> None:
        for path in (path for name in names for path in self.folder.glob(f"{name}.*")):
            path.unlink()
