"""Measures of a step that rules ask for: waits, copies, collectives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kinetoscope.trace.communication import collectives, exposed_collectives_us
from kinetoscope.trace.documents import document_text
from kinetoscope.trace.events import Step
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.queries import copies, copy_direction, is_sync, recorded_step_us, syncs
from kinetoscope.trace.summaries import summary_document
from kinetoscope.trace.summary import summary_text
from kinetoscope.trace.totals import summarize
from tests.tool.events import Event, kernel, launch, memcpy, step, trace_bytes


def events() -> list[Event]:
    return [
        step(2, 0, 100), *(launch(n, n) for n in range(1, 7)),
        launch(None, 50, 20, name="cudaStreamSynchronize"), launch(None, 80, 1, name="cudaEventQuery"),
        launch(None, 150, 9, name="cudaDeviceSynchronize"),
        {**memcpy(1, 10, 3, 64), "name": "Memcpy HtoD (Pageable -> Device)"},
        {**memcpy(2, 14, 2, 64), "name": "Memcpy DtoH (Device -> Pinned)"},
        kernel("gemm", 3, 20, 10), kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 4, 25, 10, stream=13),
        kernel("add", 5, 32, 1), kernel("gemm", 6, 33, 5, device=1),
    ]  # fmt: skip


def only_step(*given: Any) -> Step:
    (only,) = read_trace(trace_bytes(*given)).steps
    return only


class TestMeasures:
    def test_of_a_step(self) -> None:
        found = only_step(*events())
        assert [call.name for call in syncs(found)] == ["cudaStreamSynchronize"]
        assert [copy.duration_us for copy in copies(found, "HtoD")] == [3.0]
        assert [copy.duration_us for copy in copies(found, "DtoH")] == [2.0]
        assert copies(found, "DtoD") == ()
        assert [each.duration_us for each in collectives(found)] == [10.0]
        assert exposed_collectives_us(found) == 4.0, (
            "25 to 35, but for gemm to 30 and add; gemm of another GPU hides none"
        )

    def test_in_the_summary(self) -> None:
        found = summarize(read_trace(trace_bytes(*events())))
        data = json.loads(document_text(summary_document(found, "train.json")))
        assert {key: data[key] for key in data if key.endswith(("step_us", "syncs_per_step")) or "h_us" in key} == {
            "step_us": 100.0, "syncs_per_step": 1, "d2h_us_per_step": 2.0,
        }  # fmt: skip
        assert (data["h2d_us_per_step"], data["collectives_us_per_step"]) == (3.0, 10.0)
        assert data["exposed_collectives_us_per_step"] == 4.0
        assert summary_text(found).splitlines()[4:9] == [
            "CPU time per step  100.000 us (median), 1 calls wait for the GPU",
            "copies per step    host to device 3.000 us, device to host 2.000 us",
            "collectives        10.000 us per step, 4.000 us of it while no other kernel ran",
            "GPU 0              3 kernels, busy 20.000 us per step (unknown)",
            "GPU 1              1 kernels, busy 5.000 us per step (unknown)",
        ]


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("cudaDeviceSynchronize", True), ("cudaStreamSynchronize_ptsz", True), ("hipEventSynchronize", True),
        ("cuCtxSynchronize", True), ("cudaMemcpy", True), ("hipMemcpyWithStream", True), ("urQueueFinish", True),
        ("synchronizeStream", True), ("cudaMemcpyAsync", False), ("cudaEventQuery", False), ("cudaLaunchKernel", False),
        ("cudaStreamWaitEvent", False),
    ],
)  # fmt: skip
def test_calls_that_wait(name: str, waits: bool) -> None:
    assert is_sync(name) is waits


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "HtoD"), ("Memcpy DtoH (Device -> Host)", "DtoH"),
        ("Memcpy DtoD (Device -> Device)", "DtoD"), ("Memcpy PtoP (Device -> Device)", "DtoD"),
        ("Memcpy M2D(Memory -> Device)", "HtoD"), ("zeCommandListAppendMemoryCopy(D2M)", "DtoH"), ("Memcpy", None),
    ],
)  # fmt: skip
def test_direction_of_a_copy(name: str, direction: str | None) -> None:
    assert copy_direction(name) == direction


@pytest.mark.parametrize(("gpu_us", "longer_us"), [(60.0, 100.0), (150.0, 150.0)])
def test_a_recorded_step_is_as_long_as_the_longer_of_both(gpu_us: float, longer_us: float) -> None:
    """Three steps of 90, 100 and 300 us on the CPU; the second does twice the GPU's work of the others."""
    spans = [(0, 90), (100, 100), (200, 300)]
    given: list[Event] = []
    for number, (start, length) in enumerate(spans, 1):
        work_us = gpu_us if number != 2 else 2 * gpu_us
        given += [step(number, start, length), launch(number, start + 1), kernel("k", number, 1000 * number, work_us)]
    assert recorded_step_us(read_trace(trace_bytes(*given)).steps) == longer_us
