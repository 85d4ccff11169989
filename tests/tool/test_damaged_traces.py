"""Whatever a trace file holds, the reader returns or raises TraceError, and what it returns can be reported."""

from __future__ import annotations

import copy
import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from hypothesis import given, strategies as st

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.doctor.checks import checks_text
from kinetoscope.doctor.trace_checks import check_trace
from kinetoscope.report.diagnosed import DiagnosedTrace
from kinetoscope.report.document import report_html
from kinetoscope.report.trace_report import TraceReport, trace_report
from kinetoscope.trace.documents import BRIEF_CHARACTERS, document_text
from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.summaries import summary_document
from kinetoscope.trace.summary import summary_text
from kinetoscope.trace.totals import summarize
from tests.tool.events import HOST, Event, gpu_annotation, kernel, launch, memcpy, memset, op, overhead, step
from tests.tool.trace.test_trace import exercise

GPU = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel"}


def work(identity: int, at: float, name: str = "gemm", **more: Any) -> list[Event]:
    product = op("aten::mm", at, 12, external=identity, dims=[[64, 64], [64, 64]], types=["float", "float"])
    return [product, launch(identity, at + 3, external=identity), kernel(name, identity, at + 9, 5.125, **more)]


def steps() -> Iterator[Event]:
    """Copies, overhead, annotations on the GPU, stacks, memory and a collective."""
    yield overhead("Buffer Flush", 1010, 15)
    nccl = {"Collective name": "allreduce", "In msg nelems": 64, "Group size": 2, "dtype": "Float"}
    for number in (1, 2):
        at = 1000.0 * number
        yield from (step(number, at, 800), gpu_annotation(f"ProfilerStep#{number}", at + 5, 780))
        yield from work(number * 10, at + 20)
        yield from work(number * 10 + 1, at + 60, "ncclDevKernel_AllReduce", stream=20, **nccl)
        yield from (launch(number + 70, at + 90, name="cudaMemcpyAsync"), memcpy(number + 70, at + 95, 2.5, 4096))
        yield from (launch(number + 80, at + 98, name="cudaMemsetAsync"), memset(number + 80, at + 99, 1.25, 64))
        yield {**op("train.py(3): step", at + 1, 700, cat="python_function"), "args": {"Python id": number}}
        args = {"Bytes": 512, "Total Allocated": 512, "Total Reserved": 2048, "Device Type": 1, "Device Id": 0}
        yield {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": HOST, "ts": at + 9, "args": args}


def replays() -> Iterator[Event]:
    """Launches of a CUDA graph by two ranks, in the categories and the strings of PyTorch 1.8."""
    for pid in (HOST, HOST + 1):
        yield {"ph": "M", "name": "process_labels", "pid": pid, "args": {"labels": f"rank {pid - HOST}"}}
        for number in (1, 2):
            call = launch(number, 100.0 * number, name="cudaGraphLaunch")
            yield {**call, "pid": pid, "cat": "Runtime", "ts": str(call["ts"])}
            for index in range(3):
                each = kernel(f"k{index}", number, 100.0 * number + 9 + 8 * index, 6, device=pid - HOST)
                yield {**each, "cat": "Kernel"}


DEVICES = [{"id": 0, "name": "NVIDIA H200", "numSms": 132, "totalGlobalMem": 10**11}]
RANKS = {"backend": "nccl", "rank": 0, "world_size": 2}
SOUND: list[dict[str, Any]] = [
    {"deviceProperties": DEVICES, "baseTimeNanoseconds": 1_790_857_026_000_000_000, "traceEvents": list(steps())},
    {"deviceProperties": DEVICES, "distributedInfo": RANKS, "traceEvents": list(replays())},
]
TEXTS = [
    *("", "7", "1e5", "nan", "x" * 3000, "ProfilerStep#2", "ProfilerStep#99999999999999999999", "cudaGraphLaunch"),
    *(*GPU, "cpu_op", "Runtime", "python_function", "cpu_instant_event", "X", "i", "M", "aten::mm", "<b>evil"),
    *("\x1b[31m", "\0", "\u202eevil", "\ud800"),
]
NUMBERS = [0, -1, 2**31, 2**63, 2**64, 10**30, 10**400, 1e-320, 1e15, 1e18, -1e18, 1e300, float("inf"), float("nan")]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from([*TEXTS, *NUMBERS]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "name", "rank"]), inner),
    max_leaves=6,
)

INSERTED = [b"", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\0", b"\xff", b"null", b"NaN", b"},{", b"]}", b"01"]
INSERTED += [b'{"traceEvents":[', b"\xef\xbb\xbf", b"9" * 5000, b"[" * 5000, b'{"a":' * 2000]
WRITTEN: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": lambda text: gzip.compress(text, 1),
    "cut gzip": lambda text: gzip.compress(text, 1)[:-9],
    "damaged gzip": lambda text: gzip.compress(text, 1).replace(b"a", b"b"),
    "utf-16": lambda text: text.decode("utf-8", "replace").encode("utf-16"),
    "twice": lambda text: text * 2,
}


def places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """The path of every value in JSON, `("traceEvents", 3, "args", "stream")`."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(inner, *path, key)


def damage(content: Any, path: tuple[Any, ...], how: str, value: Any) -> None:
    """Remove, repeat or replace what is at a path, if earlier damage left it there."""
    *parents, last = path
    for key in [*parents, None]:
        own = range(len(content)) if isinstance(content, list) else content if isinstance(content, dict) else ()
        if (last if key is None else key) not in own:
            return
        content = content if key is None else content[key]
    if how == "remove":
        del content[last]
    elif how == "repeat" and isinstance(content, list):
        content.insert(last, content[last])
    else:
        content[last] = value


def use(trace: Trace) -> None:
    """Ask everything of a trace, then count, check, diagnose and report it, as the commands do."""
    exercise(trace)
    counted = [*(each for step in trace.steps for each in step.activities), *(trace.unattributed)]
    assert sorted(map(id, counted)) == sorted(map(id, trace.activities))
    texts = [checks_text(check_trace(trace), "")]
    if trace.steps:
        summary = summarize(trace)
        diagnosed = DiagnosedTrace("it", diagnose(trace), summary)
        html, data = report_html(diagnosed), document_text(trace_report(diagnosed), "brief")
        texts += [summary_text(summary), document_text(summary_document(summary, "train.json")), html, data]
        assert len(data) <= BRIEF_CHARACTERS
        msgspec.json.decode(data, type=TraceReport)  # strict: neither NaN nor another type
        assert "<b>evil" not in html
    assert not any("\x1b" in text for text in texts)


HOW = st.sampled_from(("replace", "replace", "replace", "repeat", "remove"))
DAMAGED = st.sampled_from(SOUND).flatmap(
    lambda sound: st.tuples(
        st.just(sound), st.lists(st.tuples(st.sampled_from([*places(sound)]), HOW, VALUES), min_size=4, max_size=8)
    )
)


@given(DAMAGED)
def test_any_value_in_any_field(damaged: tuple[dict[str, Any], list[tuple[tuple[Any, ...], str, Any]]]) -> None:
    """Damage in some events costs no GPU work of the others."""
    sound, damages = damaged
    content = copy.deepcopy(sound)
    for each in damages:
        damage(content, *each)
    paths = [path for path, _, _ in damages]
    is_in_events = all(len(path) > 1 and path[0] == "traceEvents" for path in paths)
    try:
        trace = read_trace(json.dumps(content).encode())
    except TraceError:
        assert not is_in_events
        return
    use(trace)
    if is_in_events and not any(path[-1] == "ts" for path in paths):
        whole = [event for event in content["traceEvents"] if event in sound["traceEvents"] and event.get("cat") in GPU]
        assert Counter(event["dur"] for event in whole) <= Counter(each.duration_us for each in trace.activities)


@given(
    st.sampled_from(SOUND),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), st.sampled_from(INSERTED)), max_size=3),
    st.sampled_from(list(WRITTEN)),
)
def test_any_text(sound: dict[str, Any], edits: list[tuple[float, int, bytes]], how: str) -> None:
    text = json.dumps(sound).encode()
    for share, removed, inserted in edits:
        at = int(share * len(text))
        text = text[:at] + inserted + text[at + (removed if removed < 40 else len(text)) :]
    try:
        trace = read_trace(WRITTEN[how](text))
    except TraceError:
        return
    use(trace)


@given(VALUES, st.binary(max_size=200))
def test_what_is_no_trace(value: Any, content: bytes) -> None:
    around = {"traceEvents": value, "deviceProperties": value}
    for data in (json.dumps(value).encode(), json.dumps(around).encode(), content, b"\x1f\x8b" + content):
        try:
            trace = read_trace(data)
        except TraceError:
            continue
        use(trace)
