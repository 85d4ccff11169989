"""Operators of CUDA graph replays, from their capture or from a run without a graph."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.queries import op_name
from kinetoscope.trace.replays import with_captured_operators
from tests.tool.diagnosis.gpu_work import ADD, MUL
from tests.tool.events import Event, kernel, launch, memcpy, op, trace_bytes

GEMV = "gemvx::kernel<int, __nv_bfloat16>"
PAIRS = [("aten::mm", GEMV), ("aten::mul", MUL), ("aten::add", ADD), ("aten::copy_", "Memcpy DtoD (Device -> Device)")]
CHAIN = PAIRS * 3
"""Operator and its work."""


def launching(name: str) -> str:
    return "cudaMemcpyAsync" if name.startswith("Memcpy") else "cudaLaunchKernel"


def captured(
    chain: Sequence[tuple[str, str]] = CHAIN, *, rows: int = 1, at: float = 0.0, driver: bool = False
) -> list[Event]:
    """The capture of a graph: launches without work."""
    made = [launch(None, at, name="cudaStreamBeginCapture")]
    for index, (name, work) in enumerate(chain):
        begin = at + 10.0 * (index + 1)
        made.append(op(name, begin, 8.0, dims=[[rows, 64], [64, 64]], strides=[[64, 1], [64, 1]], types=["float"] * 2))
        made.append(launch(1000 + index, begin + 2.0, 3.0, name=launching(work)))
        if driver:
            made.append(launch(2000 + index, begin + 3.0, 1.0, name="cuLaunchKernel"))
    return [*made, launch(None, at + 500.0, name="cudaStreamEndCapture")]


def work_of(name: str, correlation: int, at: float, *, stream: int, grid: int) -> Event:
    if name.startswith("Memcpy"):
        return memcpy(correlation, at, 2.0, 64, stream=stream)
    return kernel(name, correlation, at, 2.0, stream=stream, grid=[grid, 1, 1])


def replayed(chain: Sequence[tuple[str, str]] = CHAIN, *, at: float = 1000.0, streams: int = 1) -> list[Event]:
    """Two replays."""
    made = []
    for number in (1, 2):
        made.append(launch(number, at, name="cudaGraphLaunch"))
        for index, (_, name) in enumerate(chain):
            begin = at + 10.0 + 3.0 * index
            made.append(work_of(name, number, begin, stream=7 + index % streams, grid=4))
        at += 200.0
    return made


def eager(chain: Sequence[tuple[str, str]] = CHAIN, *, grid: int = 4, rows: int = 1, at: float = 5000.0) -> list[Event]:
    """The same work, launched one by one."""
    made = []
    for index, (name, work) in enumerate(chain):
        begin, correlation = at + 10.0 * index, int(at) + index
        made += [
            op(name, begin, 8.0, dims=[[rows, 64], [64, 64]]),
            launch(correlation, begin + 2.0, name=launching(work)),
        ]
        made.append(work_of(work, correlation, begin + 5.0, stream=7, grid=grid))
    return made


def read(*events: Event) -> Trace:
    return read_trace(trace_bytes(*events))


def names(trace: Trace) -> list[str]:
    """The operators of the replays' work, in GPU order."""
    return [
        op_name(each) for step in trace.steps for each in step.activities if each.launch and "Graph" in each.launch.name
    ]


EXPECTED = [name for name, _ in CHAIN] * 2


@pytest.mark.parametrize("source", [captured(), captured(driver=True), eager(), [*eager(), *eager(at=6000.0)]])
def test_operators_by_order(source: list[Event]) -> None:
    for trace, capture in ((read(*replayed(), *source), None), (read(*replayed()), read(*source))):
        assert set(names(trace)) == {""}
        linked, count = with_captured_operators(trace, capture)
        assert (count, names(linked)) == (2 * len(CHAIN), EXPECTED)
        first = next(activity for step in linked.steps for activity in step.activities if activity.op is not None)
        assert first.op is not None
        assert first.op.input_shapes == ((1, 64), (64, 64))
        assert any(first is activity for activity in linked.activities)


OTHER = [*CHAIN[:-1], ("aten::mul", MUL)]


@pytest.mark.parametrize(
    "events",
    [
        [*captured(CHAIN[:-1]), *replayed()],
        [*captured(OTHER), *replayed()],
        [*captured([("aten::mm", name) for _, name in CHAIN]), *replayed()],
        [*captured(), *captured(rows=8, at=2000.0), *replayed(at=4000.0)],
        [*captured(), *replayed(streams=2)],
        [*captured(PAIRS), *replayed(PAIRS)],
        [*replayed(), *eager(grid=8)],
        [*replayed(), *eager(), *eager(rows=8, at=6000.0)],
        [*captured()[:-1], *replayed()],
    ],
    ids=[
        "one launch less",
        "a kernel for a copy",
        "a product for a pointwise kernel",
        "two captures with different shapes",
        "two streams",
        "a short graph",
        "other grids",
        "two runs with different shapes",
        "no end of the capture",
    ],
)
def test_no_operators_without_certainty(events: list[Event]) -> None:
    trace = read(*events)
    same, count = with_captured_operators(trace)
    assert count == 0
    assert same is trace
