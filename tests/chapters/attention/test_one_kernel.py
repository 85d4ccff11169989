"""Gains and costs of one kernel: bytes and occupancy, on altered recordings and on numbers by hand."""

from __future__ import annotations

import re

import pytest

from kinetoscope.trace.events import CpuOp, TraceError
from snippets.attention.findings import speed, traffic
from snippets.attention.findings.variants import VARIANTS
from tests.chapters.altered import RECORDED, AlteredDevice, measured, replace, status
from tests.chapters.attention.bench import text_of

HEAD_TENSOR, SCORES, MASK = 2 * 128 * 1024 * 64, 2 * 128 * 1024 * 1024, 1024 * 1024
"""Bytes of q, of all scores in bf16, and of the mask."""


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        ("naive", 2 * (2 * HEAD_TENSOR + SCORES) + 3 * 2 * SCORES + 2 * SCORES + MASK + 4),
        ("in place", 2 * (2 * HEAD_TENSOR + SCORES) + 3 * 2 * SCORES + MASK + 4),
        ("compiled", 2 * (2 * HEAD_TENSOR + SCORES) + 2 * SCORES + MASK + 4),
        ("efficient", 4 * HEAD_TENSOR),
        ("flash", 4 * HEAD_TENSOR),
        ("cuDNN", 4 * HEAD_TENSOR + 4),
        ("Flex", 4 * HEAD_TENSOR),
    ],
)
def test_bytes_are_those_of_the_formula(variant: str, expected: int) -> None:
    steps = RECORDED[VARIANTS[variant]].steps
    assert [traffic.moved_bytes(step) for step in steps] == [expected] * len(steps)


def test_bytes_of_math_by_hand() -> None:
    """Scores in float32 have twice the bytes; the answers whether a score is minus infinity have half."""
    scores, head_tensor, answers, rows = 2 * SCORES, 2 * HEAD_TENSOR, SCORES // 2, 128 * 1024
    casts = 3 * (HEAD_TENSOR + head_tensor) + (scores + SCORES) + (head_tensor + HEAD_TENSOR)
    scaling, products = 2 * 2 * head_tensor, 2 * (2 * head_tensor + scores)
    building = MASK + 2 * MASK + 4 + 4 + (MASK + 4 * MASK)
    adding = 2 * scores + 4 * MASK
    softmax = 2 * scores
    checking = (scores + answers) + (answers + rows) + 4 + (rows + scores + scores)
    expected = casts + scaling + products + building + adding + softmax + checking
    assert traffic.moved_bytes(RECORDED[VARIANTS["math"]].step) == expected


def test_an_operator_of_unknown_work_is_an_error(device: AlteredDevice) -> None:
    device.ops(VARIANTS["naive"], lambda op: replace(op, name="aten::other") if op.name == "aten::masked_fill_" else op)
    with pytest.raises(TraceError, match="lacks the work of"):
        traffic.moved_bytes(device[VARIANTS["naive"]].step)


def test_a_type_of_unknown_size_is_an_error(device: AlteredDevice) -> None:
    """Not a tensor of zero bytes: the step would move less than it does."""

    def in_double(op: CpuOp) -> CpuOp:
        return replace(op, input_types=("double", *op.input_types[1:])) if op.name == "aten::_softmax" else op

    device.ops(VARIANTS["naive"], in_double)
    with pytest.raises(TraceError, match="lacks the work of"):
        traffic.moved_bytes(device[VARIANTS["naive"]].step)


def test_the_memory_that_the_scores_need(device: AlteredDevice) -> None:
    assert measured(device, "A12").value == 4096 * 4096
    device.record("attention/lengths_64", data={})
    assert status(device, "A12") == "not measured"


def test_more_registers(device: AlteredDevice) -> None:
    device.activities(VARIANTS["flash"], lambda activity: replace(activity, registers=128))
    assert measured(device, "A9").value == "pytorch_flash, 13.0 %; 128 x 128 = 16,384, 4 of them fit"
    device.activities(VARIANTS["cuDNN"], lambda activity: replace(activity, registers=80))
    assert measured(device, "O-A27").value == 2
    assert measured(device, "O-A27").text == "80 x 384 = 30,720, 2 of them fit"


def test_the_bars_of_bytes() -> None:
    bars = text_of(traffic.bytes_by_operator(RECORDED))
    assert "naive: 2.75 GB, most of it bmm 604 MB" in bars
    assert "flash: 67.1 MB, most of it attention in one kernel 67.1 MB." in bars


def test_the_rooflines() -> None:
    roofs = text_of(traffic.rooflines(RECORDED))
    assert re.search(r"naive: [\d.]+ TFLOP/s at 6.24 FLOP per byte", roofs)
    assert re.search(r"flash: [\d.]+ TFLOP/s at 256 FLOP per byte", roofs)


def test_the_table_of_footprints() -> None:
    footprints = text_of(speed.footprints(RECORDED))
    assert "naive, first product 384 " in footprints
    assert "flash 128 255 49,152 2 4 12.5 % 13.0 %" in footprints
    assert "cuDNN 384 168 134,144 1 1 18.8 % 0 %" in footprints
