"""Files of other tools: each is named, with the tool that reads it."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.doctor.trace_checks import check_trace
from kinetoscope.trace.events import TraceError
from kinetoscope.trace.foreign import ACCELERATOR, ASCEND, AUTOGRAD, BROWSER, OTHER, VIZTRACER, XLA
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.queries import require_steps
from kinetoscope.trace.totals import summarize
from tests.tool.events import Event, launch, op

SNAPSHOT = {"segments": [], "device_traces": [[]]}


def tar(content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("trace.json")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def zipped(content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("trace.json", content)
    return packed.getvalue()


FILES: dict[str, tuple[bytes, str, str]] = {
    "report.sqlite": (b"SQLite format 3\0\x10\0\1\1", "a SQLite database", "nsys stats"),
    "report.nsys-rep": (b"\x02\x01binary", "a report of Nsight Systems", "nsys stats"),
    "report.ncu-rep": (b"NVR\0\x05", "a report of Nsight Compute", "ncu --import"),
    "trace.json.zip": (zipped(b"{}"), "a .zip archive", "unpack it"),
    "trace.tar.gz": (tar(b'{"traceEvents": []}'), "a .tar archive", "unpack it"),
    "trace.json.zst": (b"\x28\xb5\x2f\xfd\x04\0", "compressed with zstd", "zstd -d"),
    "snapshot.pickle": (pickle.dumps(SNAPSHOT), "maybe a memory snapshot of PyTorch", "pytorch.org/memory_viz"),
    "snapshot.json": (json.dumps(SNAPSHOT).encode(), "a memory snapshot of PyTorch", "pytorch.org/memory_viz"),
    "et.json": (b'{"schema": "1.1.1-chakra.0.0.4", "nodes": []}', "an execution trace (PARAM, Chakra)", "Chakra read"),
    "a.cpuprofile": (b'{"nodes": [], "samples": [], "timeDeltas": []}', "a CPU profile of a browser", "developer"),
    "speedscope.json": (b'{"shared": {}, "profiles": []}', "a profile for Speedscope", "www.speedscope.app"),
    "results.json": (b'{"rocprofiler-sdk-tool": [{}]}', "a result of rocprofv3", "own tools"),
    "trace.pftrace": (b"\n\x0b\x10\x01", "a binary trace of Perfetto", "ui.perfetto.dev"),
    "host.xplane.pb": (b"\n\xff{\0", "a profile of JAX, TensorFlow or PyTorch/XLA", "XProf"),
    "lfs.json": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "a pointer of Git LFS", "git lfs pull"),
    "trace.json": (b"<!doctype html><title>Sign in</title>", "HTML or XML", "download the file itself"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_tool(name: str, tmp_path: Path) -> None:
    content, what, reader = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: is ")
    assert what in message
    assert ", not a .json or .json.gz trace of the PyTorch profiler; " in message
    assert reader in message.rpartition("; ")[2]


@pytest.mark.parametrize(
    "content", [b"not a trace", b"\x03\x01\x02", b" ", gzip.compress(b"columns,of,numbers", mtime=0)]
)
def test_a_file_that_nothing_is_known_of(content: bytes) -> None:
    with pytest.raises(TraceError, match=r"^trace is not a \.json or \.json\.gz trace$"):
        read_trace(content)


def event(name: str = "a", **fields: Any) -> Event:
    return {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": 5, "dur": 3, **fields}


def label(name: str) -> Event:
    return {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": name}}


def bounds(**fields: Any) -> list[Event]:
    return [event(**fields, ph="B"), event(**fields, ph="E")]


FOREIGN: dict[str, tuple[Any, str]] = {
    "Ascend": (
        [label("Ascend Hardware"), *(event("MatMulV2", ts=str(5 * n)) for n in range(40))],
        f"40 events, none with a category that is read: {ASCEND}",
    ),
    "torch.autograd.profiler": (
        [event("aten::mm", pid="CPU functions"), event("aten::mm", ph="s", cat="cpu_to_cuda")],
        f"1 event, none with a category that is read: {AUTOGRAD}",
    ),
    "a browser": (
        {"traceEvents": [event(cat="devtools.timeline,v8"), *bounds(cat="blink.user_timing")], "metadata": {}},
        "2 events, none with a category that is read (devtools.timeline,v8, blink.user_timing in B and E events): "
        + BROWSER,
    ),
    "VizTracer": (
        {"traceEvents": [event(cat="FEE")], "viztracer_metadata": {}},
        f"1 event, none with a category that is read (FEE): {VIZTRACER}",
    ),
    "JAX": ([label("/device:TPU:0"), event("fusion")], f"1 event, none with a category that is read: {XLA}"),
    "another accelerator": (
        {"schemaVersion": 1, "traceEvents": [event(cat="hpu_op")] * 2},
        f"2 events, none with a category that is read (hpu_op): {ACCELERATOR}",
    ),
    "beginnings and ends": (
        bounds(cat="kernel"),
        f"1 event, none with a category that is read (kernel in B and E events): {OTHER}",
    ),
    "numbers": ([1, 2], f"2 events, none with a category that is read (no object): {OTHER}"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_events_of_another_tool(name: str) -> None:
    """Also beside Kineto's events, which are read as ever."""
    content, message = FOREIGN[name]
    trace = read_trace(json.dumps(content).encode())
    for function in (require_steps, summarize):
        with pytest.raises(TraceError) as raised:
            function(trace)
        assert str(raised.value) == message
    (check,) = [check for check in check_trace(trace) if check.name == "format"]
    assert (check.status, f"{check.seen}; {check.cure}") == ("failed", message)
    events = content if isinstance(content, list) else content["traceEvents"]
    mixed = read_trace(json.dumps([*events, op("aten::mm", 0, 9), launch(1, 3)]).encode())
    assert summarize(mixed).steps == 1


def test_counters_of_cupti_instead_of_kernels() -> None:
    ranges = [event("kernel", cat="cuda_profiler_range")] * 3
    trace = read_trace(json.dumps([op("aten::mm", 0, 9), launch(1, 3), *ranges]).encode())
    (note,) = summarize(trace).notes
    assert note.startswith("no GPU kernels: CUPTI measured 3 ranges with counters (cuda_profiler_range) instead")
    (check,) = [check for check in check_trace(trace) if check.name == "GPU events"]
    assert (check.status, check.seen) == (
        "failed",
        "no kernel: CUPTI measured 3 ranges with counters instead of recording activities",
    )
