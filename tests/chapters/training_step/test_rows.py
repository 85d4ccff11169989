"""The rows that give a fault away: which events they count, and that each mend removes them."""

from __future__ import annotations

from typing import Any

import pytest

from kinetoscope.trace.events import Step
from kinetoscope.trace.kineto import read_trace
from snippets.training_step.findings.rows import ROWS, Row, found_rows, row_of, rows
from tests.chapters.altered import RECORDED
from tests.tool.events import kernel, launch, memcpy, op, step, trace_bytes


def written_step(*events: Any) -> Step:
    (only,) = read_trace(trace_bytes(step(1, 0, 1000), *events)).steps
    return only


STEP = written_step(
    op("aten::reshape", 10, 40),
    op("aten::clone", 15, 30),
    op("aten::copy_", 20, 20),
    launch(1, 25, 4),
    kernel("copy_kernel", 1, 100, 7),
    op("aten::clone", 60, 20),
    launch(2, 65, 3, name="cudaMemcpyAsync"),
    memcpy(2, 110, 5, 64),
    op("aten::softmax", 200, 50),
    op("aten::softmax", 210, 30),
    launch(3, 220, 6),
    kernel("softmax_kernel", 3, 300, 11),
)


@pytest.mark.parametrize(
    ("row", "names", "us"),
    [
        (row_of("aten::clone"), ["aten::clone"] * 2, 50),
        (Row("", "aten::clone", below="aten::reshape"), ["aten::clone"], 30),
        (Row("", "aten::copy_", below="aten::reshape"), [], 0),
        (row_of("aten::softmax"), ["aten::softmax"], 50),
        (Row("", ".*_kernel"), ["copy_kernel", "softmax_kernel"], 18),
        (Row("", ".*", launched_by="aten::reshape"), ["copy_kernel"], 7),
        (Row("", ".*", launched_by="aten::clone"), ["copy_kernel"], 7),
        (row_of("cudaLaunchKernel"), ["cudaLaunchKernel"] * 2, 10),
        (row_of("Memcpy DtoD (Device -> Device)"), ["Memcpy DtoD (Device -> Device)"], 5),
        (row_of("aten::"), [], 0),
    ],
)
def test_events_of_a_row(row: Row, names: list[str], us: float) -> None:
    events = row.events(STEP)
    assert [event.name for event in events] == names
    assert sum(event.duration_us for event in events) == us


@pytest.mark.parametrize("fault", ROWS)
def test_a_mend_removes_or_shortens_the_first_row(fault: str) -> None:
    (_, (before, after)), *_ = found_rows(RECORDED, fault)
    assert before[0] >= after[0]
    assert before[1] > 5 * after[1]


@pytest.mark.parametrize(
    ("fault", "counts"),
    [
        ("item", [(3, 0)]),
        ("layout", [(7, 1), (9, 1)]),
        ("attention", [(12, 0), (2, 0)]),
        ("tiny", [(295, 24), (0, 2)]),
        ("vocabulary", [(3, 0), (24, 27)]),
    ],
)
def test_recorded_counts(fault: str, counts: list[tuple[int, int]]) -> None:
    assert [(before[0], after[0]) for _, (before, after) in found_rows(RECORDED, fault)] == counts


def test_the_table_of_a_fault() -> None:
    html = rows(RECORDED, "item")
    assert "Rows of one recorded step, before and after the fix: cudaStreamSynchronize" in html
    assert "Reading values" not in html  # the reader finds the fault in the rows
    assert "<code>cudaStreamSynchronize</code>" in html
    assert "3 in 572 µs" in html
    assert "none" in html


def test_code_in_a_shown_name() -> None:
    html = rows(RECORDED, "layout")
    assert "<code>aten::clone</code> below <code>aten::reshape</code>" in html
