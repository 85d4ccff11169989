"""The chapter linear's claims on the book's recordings, altered so that each is false."""

from __future__ import annotations

import pytest

from kinetoscope.trace.events import CpuOp
from snippets.linear.findings.costs import rows_bound
from snippets.linear.findings.layer import new_strides
from tests.chapters.altered import AlteredDevice, measured, replace, verdict
from tests.chapters.linear.altering import retime


def test_a_trace_without_strides(device: AlteredDevice) -> None:
    device.ops("linear/eager", lambda op: replace(op, input_strides=()))
    assert verdict(device, "L10").status == "not measured"
    assert "no strides" in verdict(device, "L10").reason


def test_an_error_on_new_strides(device: AlteredDevice) -> None:
    device.data("linear/new_strides", raised="RuntimeError", graphs=[1, 1])
    assert verdict(device, "L11").status == "holds"
    assert measured(device, "L11").text.startswith("RuntimeError, 0 more graph compiled")
    assert new_strides(device).value == "an error"


@pytest.mark.parametrize(("difference", "outcome"), [(0.0, "neither"), (0.01, "neither"), (1.0, "a wrong result")])
def test_a_result_is_wrong_by_more_than_rounding(difference: float, outcome: str, device: AlteredDevice) -> None:
    device.data("linear/new_strides", largest_difference=difference)
    assert new_strides(device).value == outcome
    assert verdict(device, "L11").status == "differs"


def test_letters_show_nothing_when_every_weight_is_a_view(device: AlteredDevice) -> None:
    def transposed(op: CpuOp) -> CpuOp:
        if op.name != "aten::mm":
            return op
        first, second, *others = op.input_strides
        return replace(op, input_strides=(first, second[::-1], *others))

    for size in (64, 4096):
        device.ops(f"matmul_add/eager_{size}", transposed)
        device.kernels(
            f"matmul_add/eager_{size}",
            lambda kernel: replace(kernel, name=f"{kernel.name[:-3]}TNN") if kernel.name[:5] == "nvjet" else kernel,
        )
    assert (verdict(device, "O-L7").status, measured(device, "O-L7").text) == (
        "differs",
        "7 of 7 products, 7 of them with a transposed view",
    )


def test_the_gpu_may_set_the_pace_at_all_rows_or_at_none(device: AlteredDevice) -> None:
    retime(device, "linear/sweep_eager", enqueue=1.0)
    assert rows_bound(device["linear/sweep_eager"]) == 0
    retime(device, "linear/sweep_eager", enqueue=1e6)
    assert rows_bound(device["linear/sweep_eager"]) == 16384
