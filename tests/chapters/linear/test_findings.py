"""The chapter linear: its claims on the builder's recordings, and on copies of them in which each is made false."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from snippets.lab.finding.book import Verdict, judge
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure
from snippets.lab.page.frame import show
from snippets.lab.recording.device import DEFAULT_DEVICE, RECORDINGS
from snippets.lab.recording.loading import load_recording
from snippets.lab.recording.schema import Point, Timing, parse_recording
from snippets.lab.trace.events import TraceError

# KEEP recording
from snippets.linear import findings

CLAIMS = {claim.id: claim for claim in findings.CLAIMS}
Event = dict[str, Any]


class Shelf:
    """Copies of the builder's recordings, to be changed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def edit(self, experiment: str, change: Callable[[list[Event]], list[Event]]) -> None:
        """Replace the events of a trace."""
        path = self.root / DEFAULT_DEVICE / f"{experiment}.trace.json.gz"
        content = json.loads(gzip.decompress(path.read_bytes()))
        content["traceEvents"] = change(content["traceEvents"])
        path.write_bytes(gzip.compress(json.dumps(content).encode()))

    def rename(self, experiment: str, old: str, new: str) -> None:
        """Give every event of one name another."""
        self.edit(experiment, lambda events: [one | {"name": new} if one.get("name") == old else one for one in events])

    def drop(self, experiment: str, name: str) -> None:
        """Leave out the events of one name."""
        self.edit(experiment, lambda events: [one for one in events if one.get("name") != name])

    def replace(self, experiment: str, **changed: Any) -> None:
        """Replace fields of a recording."""
        path = self.root / DEFAULT_DEVICE / f"{experiment}.json"
        path.write_bytes(
            msgspec.json.encode(msgspec.structs.replace(parse_recording(path.read_bytes(), ""), **changed))
        )

    def retime(self, experiment: str, *rows: int, **changed: Timing) -> None:
        """Replace timings by `warm`, `enqueue`, ...: at all points of a recording, or at those with so many rows."""
        points = parse_recording((self.root / DEFAULT_DEVICE / f"{experiment}.json").read_bytes(), "").points
        self.replace(
            experiment,
            points=tuple(retimed(at, changed) if not rows or at.parameters["batch"] in rows else at for at in points),
        )

    def remove(self, experiment: str) -> None:
        """Forget a recording."""
        (self.root / DEFAULT_DEVICE / f"{experiment}.json").unlink()


def retimed(at: Point, changed: dict[str, Timing]) -> Point:
    return msgspec.structs.replace(at, timings=msgspec.structs.replace(at.timings, **changed))


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    shutil.copytree(RECORDINGS / DEFAULT_DEVICE, tmp_path / DEFAULT_DEVICE)
    for name in ("load", "trace", "trace_path"):
        original = getattr(recording, name)
        monkeypatch.setattr(recording, name, lambda what, device, *_, of=original: of(what, device, tmp_path))
    monkeypatch.setenv("DEVICE", DEFAULT_DEVICE)
    return Shelf(tmp_path)


def verdict(name: str) -> Verdict:
    return judge(CLAIMS[name], "linear", DEFAULT_DEVICE)


def kernel_name(experiment: str) -> str:
    return str(findings.in_steps(experiment, DEFAULT_DEVICE, findings.gpu_names).value)


def always(us: float, of: int = 41) -> Timing:
    return Timing(us, us, us, (us,) * of)


@pytest.mark.parametrize("claim", findings.CLAIMS, ids=lambda claim: claim.id)
def test_every_claim_has_on_the_builder_the_verdict_that_the_page_was_written_for(claim: Claim) -> None:
    found = judge(claim, "linear", DEFAULT_DEVICE)
    assert found.word == claim.expected_on(DEFAULT_DEVICE), found.reason
    assert (found.word == "differs") == bool(claim.why)


def test_every_item_of_the_series_is_a_claim() -> None:
    assert [name for name in CLAIMS if not name.startswith("O-")] == [f"L{i}" for i in range(1, 13)]
    assert all((claim.source is None) == name.startswith("O-") for name, claim in CLAIMS.items())


# ------------------------------------------------------------------------------------- made false, one at a time
def second_kernel(events: list[Event]) -> list[Event]:
    return events + [one | {"ts": one["ts"] + 50, "name": "reduce"} for one in events if one.get("cat") == "kernel"]


def test_a_second_kernel(shelf: Shelf) -> None:
    shelf.edit(findings.EAGER, second_kernel)
    assert (verdict("L1").word, verdict("L1").measured.text) == ("differs", "2 kernels, 0 memcpy, 0 memset")
    assert verdict("L5").word == "differs"


def test_a_second_kernel_in_both_variants_is_not_one_kernel(shelf: Shelf) -> None:
    for experiment in (findings.EAGER, findings.COMPILED):
        shelf.edit(experiment, second_kernel)
    assert verdict("L5").word == "differs"


def test_a_second_kernel_in_one_step_only_is_inconclusive(shelf: Shelf) -> None:
    def once(events: list[Event]) -> list[Event]:
        first = next(one for one in events if one.get("cat") == "kernel")
        return [*events, first | {"ts": first["ts"] + 50, "name": "reduce"}]

    shelf.edit(findings.EAGER, once)
    for name in ("L1", "L5", "L8"):
        assert verdict(name).word == "inconclusive"


def test_another_chain(shelf: Shelf) -> None:
    shelf.rename(findings.EAGER, "aten::transpose", "aten::permute")
    assert verdict("L2").word == "differs"
    assert "aten::t(aten::permute(aten::as_strided))" in verdict("L2").measured.text


def test_a_transpose_that_launches(shelf: Shelf) -> None:
    def owned_by_transpose(events: list[Event]) -> list[Event]:
        rows = {one["args"]["External id"]: one for one in events if one.get("cat") == "cpu_op"}
        starts = {row["ts"]: one for one, row in rows.items() if row["name"] == "aten::as_strided"}
        for one in events:
            if one.get("cat") == "kernel":
                before = max(start for start in starts if start < rows[one["args"]["External id"]]["ts"])
                one["args"]["External id"] = starts[before]
        return events

    shelf.edit(findings.EAGER, owned_by_transpose)
    assert verdict("L3").word == "differs"
    assert verdict("L3").measured.text.startswith("1 GPU activities, ")
    assert verdict("L10").measured.text.startswith("no view: ")
    assert verdict("L10").word == "differs"


def test_without_a_transpose_nothing_is_said_of_its_cost(shelf: Shelf) -> None:
    shelf.rename(findings.EAGER, "aten::t", "aten::mT")
    assert verdict("L3").word == "not measured"


def test_an_addition(shelf: Shelf) -> None:
    shelf.rename(findings.EAGER, "aten::as_strided", "aten::add_")
    assert verdict("L4").word == "differs"


def test_a_transpose_in_the_compiled_step(shelf: Shelf) -> None:
    shelf.rename(findings.COMPILED, "Pregraph bytecode", "aten::t")
    assert verdict("L6").word == "differs"


def test_a_row_of_the_compiler_that_is_missing(shelf: Shelf) -> None:
    shelf.drop(findings.COMPILED, "TorchDynamo Cache Lookup")
    assert verdict("L7").word == "differs"


def test_a_row_that_eager_has_too_is_no_row_of_the_compiler(shelf: Shelf) -> None:
    shelf.rename(findings.EAGER, "aten::as_strided", "TorchDynamo Cache Lookup")
    assert verdict("L7").word == "differs"


def test_the_names_of_an_a100(shelf: Shelf) -> None:
    shelf.rename(findings.EAGER, kernel_name(findings.EAGER), findings.A100_KERNEL)
    assert (verdict("L8").word, verdict("L9").word, verdict("L9").measured.text) == ("holds", "holds", "tn")
    assert verdict("L5").word == "differs"


def test_a_weight_that_was_copied(shelf: Shelf) -> None:
    def contiguous(events: list[Event]) -> list[Event]:
        for one in events:
            if one.get("name") == "aten::addmm":
                one["args"]["Input Strides"][2] = [64, 1]
        return events

    assert findings.weight_strides(DEFAULT_DEVICE).text == "(1, 32)"
    shelf.edit(findings.EAGER, contiguous)
    assert verdict("L10").word == "differs"
    assert "(32, 64) with strides (64, 1)" in verdict("L10").measured.text
    assert findings.weight_strides(DEFAULT_DEVICE).text == "(64, 1)"


def test_a_trace_without_strides(shelf: Shelf) -> None:
    def older(events: list[Event]) -> list[Event]:
        for one in events:
            one.get("args", {}).pop("Input Strides", None)
        return events

    shelf.edit(findings.EAGER, older)
    assert verdict("L10").word == "not measured"
    assert "no strides" in verdict("L10").reason


def test_an_error_on_new_strides(shelf: Shelf) -> None:
    data = load_recording("linear/new_strides", DEFAULT_DEVICE).data
    shelf.replace("linear/new_strides", data=data | {"raised": "RuntimeError", "graphs": [1, 1]})
    assert verdict("L11").word == "holds"
    assert verdict("L11").measured.text.startswith("RuntimeError, 0 more graph compiled")
    assert findings.fed_new_strides(DEFAULT_DEVICE).value == "an error"


@pytest.mark.parametrize(("difference", "outcome"), [(0.0, "neither"), (0.01, "neither"), (1.0, "a wrong result")])
def test_a_result_is_wrong_by_more_than_rounding(difference: float, outcome: str, shelf: Shelf) -> None:
    data = load_recording("linear/new_strides", DEFAULT_DEVICE).data
    shelf.replace("linear/new_strides", data=data | {"largest_difference": difference})
    assert findings.fed_new_strides(DEFAULT_DEVICE).value == outcome
    assert verdict("L11").word == "differs"


def test_a_compiled_sum_that_is_an_epilogue(shelf: Shelf) -> None:
    compiled, row = "matmul_add/compiled_64", "matmul_add/row_bias_64"
    shelf.rename(compiled, kernel_name(compiled).split(" + ")[-1], kernel_name(row))
    assert verdict("L12").word == "differs", "the copy is still there"
    shelf.edit(compiled, lambda events: [one for one in events if one.get("cat") != "gpu_memcpy"])
    assert verdict("L12").word == "holds"


def test_the_wide_layer_compiled_to_another_kernel(shelf: Shelf) -> None:
    shelf.rename(findings.COMPILED_WIDE, kernel_name(findings.COMPILED_WIDE), "triton_mm")
    assert verdict("O-L1").word == "differs"


def test_one_kernel_for_both_shapes(shelf: Shelf) -> None:
    shelf.rename(findings.WIDE, kernel_name(findings.WIDE), kernel_name(findings.EAGER))
    assert verdict("O-L2").word == "differs"


def test_an_occupancy_query(shelf: Shelf) -> None:
    def asked(events: list[Event]) -> list[Event]:
        launches = [one for one in events if one.get("name") == "cuLaunchKernelEx"]
        name = "cudaOccupancyMaxActiveBlocksPerMultiprocessor"
        return events + [
            one | {"cat": "cuda_runtime", "name": name, "ts": one["ts"] - 1, "dur": 0.5} for one in launches
        ]

    shelf.edit(findings.WIDE, asked)
    assert verdict("O-L3").word == "differs"


def test_a_compiled_call_that_is_cheap_at_one_shape(shelf: Shelf) -> None:
    eager = load_recording(findings.WIDE, DEFAULT_DEVICE).points[0].timings
    shelf.retime(findings.COMPILED_WIDE, enqueue=eager.enqueue)
    assert (verdict("O-L4").word, verdict("O-L4").measured.value) == ("differs", 1.0)


@pytest.mark.parametrize(("us", "word"), [(8.0, "differs"), (10.5, "holds"), (12.0, "differs")])
def test_gpu_time_may_differ_in_neither_direction(us: float, word: str, shelf: Shelf) -> None:
    shelf.retime(findings.EAGER, warm=always(10.0))
    shelf.retime(findings.COMPILED, warm=always(us))
    assert verdict("O-L5").word == word


def test_a_layer_that_keeps_the_gpu_busy(shelf: Shelf) -> None:
    shelf.retime(findings.WIDE, warm=always(100.0), enqueue=always(50.0, 21))
    assert (verdict("O-L6").word, verdict("O-L6").measured.value) == ("differs", 0.5)


def test_letters_that_do_not_follow_the_weight(shelf: Shelf) -> None:
    name = kernel_name(findings.WIDE)
    shelf.rename(findings.WIDE, name, f"{name[:-3]}NNN")
    assert (verdict("O-L7").word, verdict("O-L7").measured.text[:6]) == ("differs", "6 of 7")


def test_letters_show_nothing_when_every_weight_is_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "PRODUCTS", (findings.EAGER, findings.WIDE))
    assert verdict("O-L7").word == "differs"


def test_a_bias_that_costs_the_same_in_both_forms(shelf: Shelf) -> None:
    for kind in ("matrix", "row"):
        shelf.retime(f"matmul_add/{kind}_bias_64", warm=always(3.0))
    assert (verdict("O-L8").word, verdict("O-L8").measured.text) == ("differs", "1.00x")


def test_a_row_more_that_takes_the_gpu_longer(shelf: Shelf) -> None:
    shelf.retime("linear/sweep_eager", 1, warm=always(2.0))
    shelf.retime("linear/sweep_eager", 64, warm=always(128.0))
    assert (verdict("O-L9").word, verdict("O-L9").measured.text) == ("differs", "64.0x")


def test_a_compiled_layer_that_hands_over_to_the_gpu_where_the_eager_one_does(shelf: Shelf) -> None:
    shelf.retime("linear/sweep_compiled", 4096, enqueue=always(50.0, 21), warm=always(51.0))
    assert (verdict("O-L10").word, verdict("O-L10").measured.value) == ("differs", 1.0)
    assert verdict("O-L10").measured.text == "eager up to 1,024 rows, compiled up to 1,024"


def test_the_gpu_may_set_the_pace_at_all_rows_or_at_none(shelf: Shelf) -> None:
    shelf.retime("linear/sweep_eager", enqueue=always(1.0, 21))
    assert findings.rows_bound("linear/sweep_eager", DEFAULT_DEVICE) == 0
    shelf.retime("linear/sweep_eager", enqueue=always(1e6, 21))
    assert findings.rows_bound("linear/sweep_eager", DEFAULT_DEVICE) == 16384


def test_a_compiled_loop_as_fast_as_the_eager_one(shelf: Shelf) -> None:
    for variant in ("eager", "compiled"):
        shelf.retime(f"linear/sweep_{variant}", 4096, launched=always(60.0, 21))
    assert (verdict("O-L11").word, verdict("O-L11").measured.text) == ("differs", "1.00x")


def test_a_missing_recording_is_not_measured(shelf: Shelf) -> None:
    shelf.remove("linear/new_strides")
    assert verdict("L11").word == "not measured"
    assert show("x", findings.new_strides_table).count("make record CHAPTER=linear") == 1


# ------------------------------------------------------------------------------------------------ figures, tables
def flat(shown: str) -> str:
    return "".join(shown.splitlines())


def numbers(*cells: str) -> str:
    return "".join(f'<td class="number">{cell}</td>' for cell in cells)


def test_figures_are_the_arithmetic_of_the_timings(shelf: Shelf) -> None:
    shelf.retime(findings.EAGER, warm=always(4.0), enqueue=always(36.0, 21), launched=always(40.0, 21))
    shelf.retime(findings.COMPILED, enqueue=always(90.0, 21))
    assert {name: findings.FIGURES[name](DEFAULT_DEVICE).text for name in ("idle", "replay", "compiled_cpu")} == {
        "idle": "90.0 %",
        "replay": "10.0x",
        "compiled_cpu": "2.50x",
    }
    assert findings.waits(findings.EAGER, DEFAULT_DEVICE).text == "9.00x"


@pytest.mark.parametrize(
    ("warm", "enqueue", "value"),
    [(10.0, 40.0, "neither"), (8.0, 41.0, "the GPU"), (9.5, 20.0, "the CPU"), (8.0, 20.0, "both")],
)
def test_cheaper_is_what_takes_a_tenth_less(warm: float, enqueue: float, value: str, shelf: Shelf) -> None:
    shelf.retime(findings.EAGER, warm=always(10.0), enqueue=always(40.0, 21))
    shelf.retime(findings.COMPILED, warm=always(warm), enqueue=always(enqueue, 21))
    found = findings.cheaper(DEFAULT_DEVICE)
    assert found.value == value
    assert found.text == f"{warm / 10:.2f}x on the GPU, {enqueue / 40:.2f}x on the CPU"


def test_each_piece_of_gpu_work_has_an_operator(shelf: Shelf) -> None:
    assert findings.launched_by(DEFAULT_DEVICE).text == "aten::addmm"
    shelf.edit(findings.EAGER, second_kernel)
    assert findings.launched_by(DEFAULT_DEVICE).text == "aten::addmm, aten::addmm"


def test_the_share_of_the_transpose_is_that_of_the_middle_step(shelf: Shelf) -> None:
    def timed(events: list[Event]) -> list[Event]:
        us = {"aten::linear": [100.0, 80.0, 50.0], "aten::t": [10.0, 20.0, 10.0]}
        for one in sorted(events, key=lambda one: float(one.get("ts", 0))):
            if one.get("cat") == "cpu_op" and one["name"] in us:
                one["dur"] = us[one["name"]].pop(0)
        return events

    shelf.edit(findings.EAGER, timed)
    found = findings.transpose_share(DEFAULT_DEVICE)
    assert (found.value, found.spread) == (20.0, (10.0, 25.0))
    shelf.rename(findings.EAGER, "aten::t", "aten::mT")
    with pytest.raises(TraceError, match="no transpose"):
        findings.transpose_share(DEFAULT_DEVICE)


def test_all_figures_of_the_chapter_are_there() -> None:
    for compute in findings.FIGURES.values():
        found = compute(DEFAULT_DEVICE)
        assert isinstance(found, Figure)
        assert found.conclusive


def test_tables_hold_what_they_show(shelf: Shelf) -> None:
    eager, wide = kernel_name(findings.EAGER), kernel_name(findings.WIDE)
    assert findings.kernels().count(f'title="{eager}"') == 1
    chains = findings.chains()
    order = ("<p>eager:", "aten::linear<", "aten::t<", "aten::addmm<", "<p>compiled:", "TorchDynamo Cache Lookup<")
    assert sorted(order, key=chains.index) == list(order)
    biases = flat(findings.biases())
    assert "<td>addmm, a matrix of bias</td><td>64x64</td><td><button" in biases
    assert (biases.count("Memcpy DtoD"), biases.count(f'title="{eager}"')) == (4, 1), "each copy in title and popover"
    assert f"<td>(1, 1024)</td>{numbers('2')}" in flat(findings.new_strides_table())
    layouts = flat(findings.layouts())
    assert f"<td>1024x4096 transposed<small>strides (1, 1024)</small></td><td>{wide[-3:]}</td><td><button" in layouts
    assert layouts.count("as stored<small>") == 2


def test_pictures_show_the_gpu_work_of_their_steps() -> None:
    work = {"gemm": 1, "copy": 0}
    assert {kind: findings.forward().count(f'class="slice {kind}"') for kind in work} == work
    assert "3 operators that never reach the GPU" in findings.averages()
    work = {"gemm": 2, "copy": 1}
    assert {kind: findings.row_and_matrix().count(f'class="slice {kind}"') for kind in work} == work
    work = {"gemm": 2, "copy": 0}
    assert {kind: findings.eager_and_compiled().count(f'class="slice {kind}"') for kind in work} == work


def test_compiling_changes_no_kernel_unless_it_does(shelf: Shelf) -> None:
    assert findings.changed_by_compiling().count("= same") == 1
    shelf.rename(findings.COMPILED, kernel_name(findings.COMPILED), "triton_tem_fused_addmm_0")
    assert findings.changed_by_compiling().count("→ replaced") == 1


def test_charts_are_of_the_timings(shelf: Shelf) -> None:
    shelf.retime(findings.COMPILED_WIDE, warm=always(7.0), enqueue=always(70.0, 21))
    bars = flat(findings.gpu_and_cpu())
    assert f"<td>compiled, 64x1024→4096</td><td>GPU</td>{numbers('7.00 µs', '7.00 to 7.00 µs')}" in bars
    assert f"<td>compiled, 64x1024→4096</td><td>CPU</td>{numbers('70.0 µs', '70.0 to 70.0 µs')}" in bars
    flops = load_recording(findings.WIDE, DEFAULT_DEVICE).points[0].flops
    shelf.retime("linear/sweep_eager", 64, warm=always(flops / 1e6))
    roofline = flat(findings.roofline())
    assert f"<td>64 rows</td>{numbers('59.3', '1.00 TFLOP/s')}" in roofline
    assert [f"<td>{rows}</td>" in roofline for rows in ("1 row", "4,096 rows", "16,384 rows")] == [True, True, False]
    shelf.retime("linear/sweep_eager", enqueue=always(30.0, 21))
    regimes = findings.regimes()
    assert "eager: overhead-bound up to 1,024 rows" in regimes
    assert "compiled: overhead-bound up to 4,096 rows" in regimes


def test_copies_are_read_and_written(shelf: Shelf) -> None:
    def two_us(events: list[Event]) -> list[Event]:
        return [one | {"dur": 2.0} if one.get("cat") == "gpu_memcpy" else one for one in events]

    shelf.edit("matmul_add/matrix_bias_64", two_us)
    shelf.retime("matmul_add/matrix_bias_64", warm=always(6.0))
    shelf.retime("matmul_add/row_bias_64", warm=always(4.0))
    rows = re.findall(r"<tr><td>([^<]+)</td><td class=\"number\">([^<]+)", flat(findings.copies()))
    assert dict(rows) == {
        "read and written": "16.4 kB",
        "time of the copy": "2.00 µs",
        "rate": "8.19 GB/s",
        "share of the step in GPU time": "50.6 %",
        "step with a matrix over one with a row": "1.50x",
    }


def test_the_table_of_strides_says_what_it_was_given() -> None:
    given = {"m": ((3, 2), (2, 1)), "same memory": False, "m.t().flatten()": [0, 2], "<b>": "<i>"}
    shown = flat(findings.strides_table(given))
    assert "<td><code>m</code></td><td>shape (3, 2), strides (2, 1)</td>" in shown
    assert "<td><code>same memory</code></td><td>no</td>" in shown
    assert "<td>[0, 2]</td>" in shown
    assert "<td><code>&lt;b&gt;</code></td><td>&lt;i&gt;</td>" in shown
