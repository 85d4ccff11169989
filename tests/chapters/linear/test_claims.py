"""The chapter linear's claims on the book's recordings, and on copies of them in which each is made false."""

from __future__ import annotations

import pytest

from snippets.lab.finding import Figure
from snippets.lab.finding.book import Verdict, findings, judge
from snippets.linear.findings.costs import rows_bound
from snippets.linear.findings.layer import new_strides
from tests.chapters.linear.copies import Copies, Event, always

CLAIMS = {claim.id: claim for claim in findings("linear").claims}


def verdict(copies: Copies, name: str) -> Verdict:
    return judge(CLAIMS[name], "linear", copies.device)


def measured(copies: Copies, name: str) -> Figure:
    figure = verdict(copies, name).measured
    assert figure is not None
    return figure


def test_a_trace_without_strides(copies: Copies) -> None:
    def older(events: list[Event]) -> list[Event]:
        for one in events:
            one.get("args", {}).pop("Input Strides", None)
        return events

    copies.edit("linear/eager", older)
    assert verdict(copies, "L10").status == "not measured"
    assert "no strides" in verdict(copies, "L10").reason


def test_an_error_on_new_strides(copies: Copies) -> None:
    data = copies.device["linear/new_strides"].data
    copies.replace("linear/new_strides", data=data | {"raised": "RuntimeError", "graphs": [1, 1]})
    assert verdict(copies, "L11").status == "holds"
    assert measured(copies, "L11").text.startswith("RuntimeError, 0 more graph compiled")
    assert new_strides(copies.device).value == "an error"


@pytest.mark.parametrize(("difference", "outcome"), [(0.0, "neither"), (0.01, "neither"), (1.0, "a wrong result")])
def test_a_result_is_wrong_by_more_than_rounding(difference: float, outcome: str, copies: Copies) -> None:
    data = copies.device["linear/new_strides"].data
    copies.replace("linear/new_strides", data=data | {"largest_difference": difference})
    assert new_strides(copies.device).value == outcome
    assert verdict(copies, "L11").status == "differs"


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
    assert (verdict(copies, "O-L7").status, measured(copies, "O-L7").text) == (
        "differs",
        "7 of 7 products, 7 of them with a transposed view",
    )


def test_the_gpu_may_set_the_pace_at_all_rows_or_at_none(copies: Copies) -> None:
    copies.retime("linear/sweep_eager", enqueue=always(1.0, 21))
    assert rows_bound(copies.device["linear/sweep_eager"]) == 0
    copies.retime("linear/sweep_eager", enqueue=always(1e6, 21))
    assert rows_bound(copies.device["linear/sweep_eager"]) == 16384
