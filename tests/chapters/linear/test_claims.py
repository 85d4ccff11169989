"""The chapter linear's claims on the book's recordings, and on copies of them in which each is made false."""

from __future__ import annotations

import pytest

from snippets.lab.finding import Figure
from snippets.lab.finding.book import Verdict, findings, judge
from snippets.linear.findings.costs import rows_bound
from snippets.linear.findings.layer import A100_KERNEL, new_strides, new_strides_table, show, weight_strides
from tests.chapters.linear.copies import Copies, Event, always, second_kernel
from tests.lab import samples

CLAIMS = {claim.id: claim for claim in findings("linear").claims}


def verdict(copies: Copies, name: str) -> Verdict:
    return judge(CLAIMS[name], "linear", copies.device)


def measured(copies: Copies, name: str) -> Figure:
    figure = verdict(copies, name).measured
    assert figure is not None
    return figure


@pytest.mark.parametrize("name", CLAIMS)
def test_on_the_default_device_each_claim_is_as_the_page_was_written(name: str) -> None:
    claim = CLAIMS[name]
    assert judge(claim, "linear", samples.BOOK).status == ("differs" if claim.why else "holds")


def test_every_item_of_the_series_is_a_claim() -> None:
    assert [name for name in CLAIMS if not name.startswith("O-")] == [f"L{i}" for i in range(1, 13)]
    assert all((claim.source is None) == name.startswith("O-") for name, claim in CLAIMS.items())


def test_a_second_kernel(copies: Copies) -> None:
    copies.edit("linear/eager", second_kernel)
    assert (verdict(copies, "L1").status, measured(copies, "L1").text) == ("differs", "2 kernels, 0 memcpy, 0 memset")
    assert verdict(copies, "L5").status == "differs"


def test_a_second_kernel_in_both_variants_is_not_one_kernel(copies: Copies) -> None:
    for experiment in ("linear/eager", "linear/compiled"):
        copies.edit(experiment, second_kernel)
    assert verdict(copies, "L5").status == "differs"


def test_a_second_kernel_in_one_step_only_is_inconclusive(copies: Copies) -> None:
    def once(events: list[Event]) -> list[Event]:
        first = next(one for one in events if one.get("cat") == "kernel")
        return [*events, first | {"ts": first["ts"] + 50, "name": "reduce"}]

    copies.edit("linear/eager", once)
    for name in ("L1", "L5", "L8"):
        assert verdict(copies, name).status == "inconclusive"


def test_another_chain(copies: Copies) -> None:
    copies.rename("linear/eager", "aten::transpose", "aten::permute")
    assert verdict(copies, "L2").status == "differs"
    assert "aten::t(aten::permute(aten::as_strided))" in measured(copies, "L2").text


def test_a_transpose_that_launches(copies: Copies) -> None:
    def owned_by_transpose(events: list[Event]) -> list[Event]:
        rows = {one["args"]["External id"]: one for one in events if one.get("cat") == "cpu_op"}
        starts = {row["ts"]: one for one, row in rows.items() if row["name"] == "aten::as_strided"}
        for one in events:
            if one.get("cat") == "kernel":
                before = max(start for start in starts if start < rows[one["args"]["External id"]]["ts"])
                one["args"]["External id"] = starts[before]
        return events

    copies.edit("linear/eager", owned_by_transpose)
    assert verdict(copies, "L3").status == "differs"
    assert measured(copies, "L3").text.startswith("1 GPU activities, ")
    assert measured(copies, "L10").text.startswith("no view: ")
    assert verdict(copies, "L10").status == "differs"


def test_without_a_transpose_nothing_is_said_of_its_cost(copies: Copies) -> None:
    copies.rename("linear/eager", "aten::t", "aten::mT")
    assert verdict(copies, "L3").status == "not measured"


def test_an_addition(copies: Copies) -> None:
    copies.rename("linear/eager", "aten::as_strided", "aten::add_")
    assert verdict(copies, "L4").status == "differs"


def test_a_transpose_in_the_compiled_step(copies: Copies) -> None:
    copies.rename("linear/compiled", "Pregraph bytecode", "aten::t")
    assert verdict(copies, "L6").status == "differs"


def test_a_row_of_the_compiler_that_is_missing(copies: Copies) -> None:
    copies.drop("linear/compiled", "TorchDynamo Cache Lookup")
    assert verdict(copies, "L7").status == "differs"


def test_a_row_that_eager_has_too_is_no_row_of_the_compiler(copies: Copies) -> None:
    copies.rename("linear/eager", "aten::as_strided", "TorchDynamo Cache Lookup")
    assert verdict(copies, "L7").status == "differs"


def test_the_names_of_an_a100(copies: Copies) -> None:
    copies.rename("linear/eager", copies.kernels("linear/eager"), A100_KERNEL)
    assert (verdict(copies, "L8").status, verdict(copies, "L9").status, measured(copies, "L9").text) == (
        "holds",
        "holds",
        "tn",
    )
    assert verdict(copies, "L5").status == "differs"


def test_a_weight_that_was_copied(copies: Copies) -> None:
    def contiguous(events: list[Event]) -> list[Event]:
        for one in events:
            if one.get("name") == "aten::addmm":
                one["args"]["Input Strides"][2] = [64, 1]
        return events

    assert weight_strides(copies.device).text == "(1, 32)"
    copies.edit("linear/eager", contiguous)
    assert verdict(copies, "L10").status == "differs"
    assert "(32, 64) with strides (64, 1)" in measured(copies, "L10").text
    assert weight_strides(copies.device).text == "(64, 1)"


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


def test_a_compiled_sum_that_is_an_epilogue(copies: Copies) -> None:
    assert verdict(copies, "L12").status == "differs", "the function copies"
    copies.edit("matmul_add/compiled_64", lambda events: [one for one in events if one.get("cat") != "gpu_memcpy"])
    assert verdict(copies, "L12").status == "holds"
    copies.edit("linear/eager", second_kernel)
    assert verdict(copies, "L12").status == "differs"


def test_the_wide_layer_compiled_to_another_kernel(copies: Copies) -> None:
    copies.rename("linear/compiled_wide", copies.kernels("linear/compiled_wide"), "triton_mm")
    assert verdict(copies, "O-L1").status == "differs"


def test_one_kernel_for_both_shapes(copies: Copies) -> None:
    copies.rename("linear/eager_wide", copies.kernels("linear/eager_wide"), copies.kernels("linear/eager"))
    assert verdict(copies, "O-L2").status == "differs"


def test_an_occupancy_query(copies: Copies) -> None:
    def asked(events: list[Event]) -> list[Event]:
        launches = [one for one in events if one.get("name") == "cuLaunchKernelEx"]
        name = "cudaOccupancyMaxActiveBlocksPerMultiprocessor"
        return events + [
            one | {"cat": "cuda_runtime", "name": name, "ts": one["ts"] - 1, "dur": 0.5} for one in launches
        ]

    copies.edit("linear/eager_wide", asked)
    assert verdict(copies, "O-L3").status == "differs"


def test_a_compiled_call_that_is_cheap_at_one_shape(copies: Copies) -> None:
    eager = copies.device["linear/eager_wide"].points[0].timings
    copies.retime("linear/compiled_wide", enqueue=eager.enqueue)
    assert (verdict(copies, "O-L4").status, measured(copies, "O-L4").value) == ("differs", 1.0)


@pytest.mark.parametrize(("us", "word"), [(8.0, "differs"), (10.5, "holds"), (12.0, "differs")])
def test_gpu_time_may_differ_in_neither_direction(us: float, word: str, copies: Copies) -> None:
    copies.retime("linear/eager", interleaved=always(10.0))
    copies.retime("linear/compiled", interleaved=always(us))
    assert verdict(copies, "O-L5").status == word


def test_a_layer_that_keeps_the_gpu_busy(copies: Copies) -> None:
    copies.retime("linear/eager_wide", interleaved=always(100.0), enqueue=always(50.0, 21))
    assert (verdict(copies, "O-L6").status, measured(copies, "O-L6").value) == ("differs", 0.5)


def test_letters_that_do_not_follow_the_weight(copies: Copies) -> None:
    name = copies.kernels("linear/eager_wide")
    copies.rename("linear/eager_wide", name, f"{name[:-3]}NNN")
    assert (verdict(copies, "O-L7").status, measured(copies, "O-L7").text[:6]) == ("differs", "6 of 7")


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


def test_a_bias_that_costs_the_same_in_both_forms(copies: Copies) -> None:
    for kind in ("matrix", "row"):
        copies.retime(f"matmul_add/{kind}_bias_64", interleaved=always(3.0))
    assert (verdict(copies, "O-L8").status, measured(copies, "O-L8").text) == ("differs", "1.00x")


def test_a_row_more_that_takes_the_gpu_longer(copies: Copies) -> None:
    copies.retime("linear/sweep_eager", 1, interleaved=always(2.0))
    copies.retime("linear/sweep_eager", 64, interleaved=always(128.0))
    assert (verdict(copies, "O-L9").status, measured(copies, "O-L9").text) == ("differs", "64.0x")


def test_a_compiled_layer_that_hands_over_to_the_gpu_where_the_eager_one_does(copies: Copies) -> None:
    copies.retime("linear/sweep_compiled", 4096, enqueue=always(50.0, 21), interleaved=always(51.0))
    assert (verdict(copies, "O-L10").status, measured(copies, "O-L10").value) == ("differs", 1.0)
    assert measured(copies, "O-L10").text == "eager up to 1,024 rows, compiled up to 1,024"


def test_the_gpu_may_set_the_pace_at_all_rows_or_at_none(copies: Copies) -> None:
    copies.retime("linear/sweep_eager", enqueue=always(1.0, 21))
    assert rows_bound(copies.device["linear/sweep_eager"]) == 0
    copies.retime("linear/sweep_eager", enqueue=always(1e6, 21))
    assert rows_bound(copies.device["linear/sweep_eager"]) == 16384


def test_a_compiled_loop_as_fast_as_the_eager_one(copies: Copies) -> None:
    for variant in ("eager", "compiled"):
        copies.retime(f"linear/sweep_{variant}", 4096, from_python=always(60.0, 21))
    assert (verdict(copies, "O-L11").status, measured(copies, "O-L11").text) == ("differs", "1.00x")


def test_a_missing_recording_is_not_measured(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    copies.remove("linear/new_strides")
    assert verdict(copies, "L11").status == "not measured"
    samples.recordings(monkeypatch, copies.device.root)
    assert show("x", new_strides_table).count("make record CHAPTER=linear") == 1
