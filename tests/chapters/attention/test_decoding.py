"""Decoding, training and errors: figures and tables on recordings, some of them altered."""

from __future__ import annotations

import copy
import re

import pytest

from snippets.attention.findings import decoding, live, steps
from snippets.attention.findings.decoding import DECODE
from snippets.attention.findings.steps import TRAINING
from snippets.lab.finding.quantities import quantity
from tests.chapters.altered import RECORDED, AlteredDevice, measured, replace
from tests.chapters.attention.bench import FIGURES


def test_bytes_and_share_by_hand(device: AlteredDevice) -> None:
    """All keys, values and 128 queries and results in bf16, in twice the time that a copy takes for them."""
    run = RECORDED[DECODE["flash"]]
    assert quantity(RECORDED[DECODE["cuDNN"]], "bytes").value == run.point.bytes == 2 * 2 * 128 * (8192 + 1) * 64
    device.time(run.id, 2 * run.point.bytes / run.ceilings["copy"] * 1e6)
    device.time(DECODE["cuDNN"], 20.0)
    assert measured(device, "O-A43").value == pytest.approx(50)


def test_shared_memory_of_a_block() -> None:
    shared = {name: FIGURES[f"decode_{name}_shared"](RECORDED).value for name in ("efficient", "cudnn")}
    assert shared == {"efficient": 18944, "cudnn": 45376}


def test_the_table_of_decoding() -> None:
    table = decoding.decode_table(RECORDED)
    assert table.count("<tr>") == 1 + len(DECODE)
    assert "in place" not in table
    assert "65,536" in table


def test_a_single_query_by_is_causal_returns_the_first_value() -> None:
    rows = re.findall(r"<tr>(.*?)</tr>", live.alignments(RECORDED), re.DOTALL)[1:]
    cells = [[re.sub(r"<[^>]+>", "", cell) for cell in row.split("\n")] for row in rows]
    assert cells == [["aligned_top_left", "yes", "no"], ["aligned_lower_right", "no", "yes"]]


def test_backward_over_forward_by_hand(device: AlteredDevice) -> None:
    """Forward one kernel, backward five, two of them copies: with 10 us each."""
    device.activities(TRAINING["flash"], lambda activity: replace(activity, duration_us=10.0))
    assert measured(device, "O-A54").value == pytest.approx(5)
    assert FIGURES["training_copies"](device).value == pytest.approx(100 * 2 / 6)


def test_only_copies_of_the_backward_pass_count() -> None:
    step = RECORDED[TRAINING["flash"]].steps[1]
    assert [steps.is_backward(activity) for activity in step.activities] == [False, True, True, True, True, True]
    assert steps.layout_copies(step) == step.kernels[1:3]


def test_errors_of_forwards_by_hand(device: AlteredDevice) -> None:
    device.point("attention/naive", relative_error=3e-3)
    device.point("attention/flash", relative_error=2e-3)
    assert measured(device, "O-A58").value == pytest.approx(1.5)


def test_errors_of_wider_heads(device: AlteredDevice) -> None:
    narrow = RECORDED["attention/lengths_64"].data["1024"]["variants"]["naive"]["error"]
    data = copy.deepcopy(RECORDED["attention/lengths_128"].data)
    data["1024"]["variants"]["naive"]["error"] = 2 * narrow
    device.record("attention/lengths_128", data=data)
    assert FIGURES["error_wide_naive"](device).value == pytest.approx(2)


def test_tables_of_training_and_errors() -> None:
    errors = steps.errors_table(RECORDED)
    for table in (steps.training_table(RECORDED), errors):
        assert table.count("<tr>") == 1 + len(TRAINING)
    assert errors.count('title="none"') == 1  # decoding masks nothing, so nothing in place
    assert steps.wide_errors(RECORDED).count("<tr>") == 4


def test_a_way_without_memory_has_no_error(device: AlteredDevice) -> None:
    """As on a GPU with less memory, where math stops at 8192 tokens."""
    data = copy.deepcopy(RECORDED["attention/lengths_64"].data)
    data["8192"]["variants"]["math"] = {"stopped": "out of memory for 32.00 GiB more at 8192 tokens"}
    device.record("attention/lengths_64", data=data)
    assert steps.errors_table(device).count("out of memory") == 1


def test_the_hubs_kernel_or_why_it_is_missing(device: AlteredDevice) -> None:
    assert "cannot be reached" in steps.hub(RECORDED)
    samples_us = {"hub": [1, 2, 3], "flash": [4, 5, 6]}
    measured = {"version": 1, "samples_us": samples_us, "errors": {"hub": 2e-3, "flash": 1e-3}}
    device.record("attention/hub_flash", data=measured)
    table = steps.hub(device)
    assert table.count("<tr>") == 3
    assert "2.00 µs" in table
    assert "2.00e-03" in table
