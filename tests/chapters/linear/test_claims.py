"""The chapter linear's claims on the book's recordings, and on copies of them in which each is made false."""

import pytest

from snippets.linear.findings.costs import rows_bound
from snippets.linear.findings.layer import new_strides
from tests.chapters.altered import measured, verdict
from tests.chapters.linear.copies import Copies, Event, always


def test_a_trace_without_strides(copies: Copies) -> None:
    def older(events: list[Event]) -> list[Event]:
        for one in events:
            one.get("args", {}).pop("Input Strides", None)
        return events

    copies.edit("linear/eager", older)
    assert verdict(copies.device, "L10").status == "not measured"
    assert "no strides" in verdict(copies.device, "L10").reason


def test_an_error_on_new_strides(copies: Copies) -> None:
    data = copies.device["linear/new_strides"].data
    copies.replace("linear/new_strides", data=data | {"raised": "RuntimeError", "graphs": [1, 1]})
    assert verdict(copies.device, "L11").status == "holds"
    assert measured(copies.device, "L11").text.startswith("RuntimeError, 0 more graph compiled")
    assert new_strides(copies.device).value == "an error"


@pytest.mark.parametrize(("difference", "outcome"), [(0.0, "neither"), (0.01, "neither"), (1.0, "a wrong result")])
def test_a_result_is_wrong_by_more_than_rounding(difference: float, outcome: str, copies: Copies) -> None:
    data = copies.device["linear/new_strides"].data
    copies.replace("linear/new_strides", data=data | {"largest_difference": difference})
    assert new_strides(copies.device).value == outcome
    assert verdict(copies.device, "L11").status == "differs"


def test_letters_show_nothing_when_every_weight_is_a_view(copies: Copies) -> None:
    def transposed(events: list[Event]) -> list[Event]:
        for one in events:
            if one.get("name") == "aten::mm":
                one["args"]["Input Strides"][1].reverse()
            if one.get("cat") == "kernel" and one["name"].startswith("nvjet"):
                one["name"] = f"{one['name'][:-3]}TNN"
        return events

    for size in (64, 4096):
        copies.edit(f"matmul_add/eager_{size}", transposed)
    assert (verdict(copies.device, "O-L7").status, measured(copies.device, "O-L7").text) == (
        "differs",
        "7 of 7 products, 7 of them with a transposed view",
    )


def test_the_gpu_may_set_the_pace_at_all_rows_or_at_none(copies: Copies) -> None:
    copies.retime("linear/sweep_eager", enqueue=always(1.0, 21))
    assert rows_bound(copies.device["linear/sweep_eager"]) == 0
    copies.retime("linear/sweep_eager", enqueue=always(1e6, 21))
    assert rows_bound(copies.device["linear/sweep_eager"]) == 16384
