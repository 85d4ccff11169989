"""The chapter matmul_add's claims in the world of the post, where its own hold, and in worlds where each is false."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from snippets.lab.finding.book import Verdict, findings, judge
from snippets.lab.recording.schema import Recording
from snippets.matmul_add.findings.overhead import LARGE, SMALL
from snippets.matmul_add.findings.steps import COLD, WARMED
from tests.chapters.matmul_add.world import (
    CODE,
    HOPPER,
    LONG,
    QUERY,
    World,
    compiled,
    eager,
    edited,
    first_gaps,
    point,
    recorded,
)

CLAIMS = {claim.id: claim for claim in findings("matmul_add").claims}


def verdict(world: World, name: str) -> Verdict:
    return judge(CLAIMS[name], "matmul_add", world.device)


POST = [name for name in CLAIMS if name.startswith("P")]
OURS = [name for name in CLAIMS if name.startswith("O-")]


def test_every_claim_of_the_post_has_its_source_and_ours_have_none() -> None:
    assert [f"P{number}" for number in range(1, 48)] == POST
    assert sorted(OURS, key=lambda name: int(name[3:])) == [f"O-M{number}" for number in range(1, 29) if number != 18]
    assert all(CLAIMS[name].source is not None for name in POST)
    assert all(CLAIMS[name].source is None for name in OURS)


def test_no_reason_has_a_number_with_a_unit_typed_into_it() -> None:
    for claim in CLAIMS.values():
        assert not re.search(r"\d\s?(µs|us|ms|MB|GB|TB|%)", claim.why), claim.id


@pytest.mark.parametrize("name", [name for name in POST if name not in ("P27", "P36")])
def test_in_the_world_of_the_post_its_claims_hold(world: World, name: str) -> None:
    assert verdict(world, name).status == "holds", verdict(world, name)


def test_a_product_that_varies_has_no_single_time(world: World) -> None:
    assert verdict(world, "P27").status == "inconclusive", "580 us usually, once 1084"
    for us, status in ((580, "holds"), (170, "differs")):
        world.trace("eager_4096", eager(gemm_us=(us, us, us)))
        assert verdict(world, "P27").status == status


def test_even_there_the_kernels_are_fused(world: World) -> None:
    fused = verdict(world, "P36")
    assert (fused.status, fused.measured and fused.measured.value) == ("differs", "2 → 1")
    world.trace("compiled_4096", compiled(bias="kernel"))
    assert verdict(world, "P36").status == "holds"


UNSCHEDULED = ("unscheduled", "unscheduled_20")
TRACES: dict[str, tuple[str | tuple[str, ...], Callable[[], bytes]]] = {
    "P1": ("eager_4096", lambda: eager(extra_kernel=True)),
    "P2": ("eager_64", lambda: eager(product="aten::addmm")),
    "P3": (SMALL, lambda: eager(gemm_us=(100, 100, 100), wait_us=100)),
    "P4": (LARGE, eager),
    "P5": ("eager_64_cold", lambda: eager((0, 1, 2))),
    "P6": (COLD, lambda: eager(gaps=(14, 6, 5))),
    "P7": (WARMED, lambda: eager(gaps=(5, 5, 5), widths=(640, 400, 400))),
    "P8": ("eager_64_cold", lambda: eager(delay=500)),
    "P9": ("unscheduled", lambda: eager(requests=(9000.0,))),
    "P10": ("unscheduled_20", lambda: eager(requests=(1.0, 9000.0))),
    "P11": (UNSCHEDULED, lambda: eager(holes=(50, 40, 1))),
    "P12": ("unscheduled", lambda: eager(holes=(1, 60, 1), requests=(1.0,))),
    "P13": ("eager_64", lambda: eager(product="aten::bmm")),
    "P15": ("stacked", lambda: eager(product="aten::mm")),
    "P16": ("stacked", lambda: eager(product="aten::bmm", queries=1)),
    "P17": ("eager_64", lambda: eager(**HOPPER)),
    "P18": ("eager_64", lambda: eager(**HOPPER)),
    "P19": ("eager_64", lambda: eager(**HOPPER)),
    "P21": ("row_bias_4096", lambda: compiled(bias="row", queries=0)),
    "P22": ("eager_64", lambda: eager(registers=34)),
    "P24": (SMALL, lambda: eager(delay=200, gemm_us=(5, 5, 1000))),
    "P25": (SMALL, lambda: eager(wait_us=17)),
    "P26": ("eager_4096", lambda: eager(**HOPPER)),
    "P28": (LARGE, lambda: eager(gemm_us=(174, 177, 170))),
    "P29": ("compiled_4096", lambda: compiled(product="aten::mm")),
    "P30": ("compiled_4096", lambda: compiled(rows=("AOTDispatcher Runtime Wrapper Prologue",))),
    "P32": ("compiled_4096", lambda: compiled(rows=("TorchDynamo Cache Lookup",))),
    "P34": ("compiled_4096", lambda: compiled(hashes=("abc", "abc", "def"))),
    "P35": ("compiled_4096", lambda: compiled(gemm="nvjet_sm90_badd")),
    "P37": ("compiled_64", lambda: compiled(memset=True)),
    "P38": ("compiled_4096", lambda: compiled(memset=True)),
    "P39": ("compiled_4096", lambda: compiled(copy_call="cuMemcpyAsync")),
    "P40": ("compiled_4096", lambda: compiled(bias="kernel")),
    "P41": ("compiled_4096", lambda: compiled(bias="row")),
    "P42": ("compiled_4096", lambda: compiled(moved=4096)),
    "P43": ("compiled_4096", lambda: compiled(copy_us=15.3)),
    "P44": ("compiled_4096", lambda: compiled(copy_us=60)),
    "O-M9": ("eager_64_cold", lambda: eager(requests=(1.0,))),
    "O-M6": (LARGE, lambda: eager(wait_us=10)),
    "O-M10": ("stacked_input", lambda: eager(product="aten::bmm")),
    "O-M13": (LARGE, eager),
    "O-M16": ("matrix_bias_64", lambda: compiled(bias="row")),
    "O-M17": ("row_bias_64", compiled),
    "O-M26": ("eager_4096", lambda: eager(call="cudaDeviceSynchronize")),
    "O-M27": ("item_4096", lambda: edited(eager(item=True), lambda event: event["name"] != "cudaStreamSynchronize")),
    "O-M28": ("item_4096", lambda: eager(gemm_us=(580, 580, 580), item=True, apart=650)),
    "O-M21": ("compiled_4096", lambda: compiled(memset=True)),
    "O-M22": ("compiled_4096", lambda: compiled(size=4096, moved=4096)),
}


@pytest.mark.parametrize("name", TRACES)
def test_a_claim_fails_on_a_trace_in_which_it_is_false(world: World, name: str) -> None:
    before = verdict(world, name).status
    experiments, make = TRACES[name]
    for experiment in [experiments] if isinstance(experiments, str) else experiments:
        world.trace(experiment, make())
    assert (before, verdict(world, name).status) == ("holds", "differs")


TIMES: dict[str, Callable[[], Recording]] = {
    "P45": lambda: recorded("compiled_4096", point(4096, 606, 84, 615)),
    "O-M1": lambda: recorded("eager_64", point(64, 10, 20, 42)),
    "O-M2": lambda: recorded("eager_4096", point(4096, 600, 400, 610)),
    "O-M3": lambda: recorded("eager_4096", point(4096, 800, 70, 810)),
    "O-M4": lambda: recorded("sweep_eager", point(64, 5, 30, 40), point(512, 20, 30, 40)),
    "O-M5": lambda: recorded("sweep_compiled", point(64, 61, 60, 70)),
    "O-M14": lambda: recorded("compiled_4096", point(4096, 500, 140, 615)),
    "O-M15": lambda: recorded("compiled_64", point(64, 10, 40, 45)),
    "O-M19": lambda: recorded("matrix_bias_4096", point(4096, 500, 40, 615)),
    "O-M20": lambda: recorded("row_bias_4096", point(4096, 600, 40, 615)),
    "P46": lambda: recorded("generated_code", data={**CODE, "default_folder_is_torchinductor_user": False}),
    "O-M23": lambda: recorded("first_gap", data=first_gaps(12, 5)),
    "O-M24": lambda: recorded("first_gap", data=first_gaps(left_out=28)),
    "O-M25": lambda: recorded("long_trace", data={**LONG, "after_us": [-500.0, -400.0, -300.0]}),
    "P47": lambda: recorded("generated_code", data={**CODE, "calls": ["extern_kernels.addmm(1)"]}),
}


@pytest.mark.parametrize("name", TIMES)
def test_a_claim_fails_on_a_recording_in_which_it_is_false(world: World, name: str) -> None:
    before = verdict(world, name).status
    world.recording(TIMES[name]())
    assert (before, verdict(world, name).status) == ("holds", "differs")


def test_this_gpus_habits_are_claims_of_their_own(world: World) -> None:
    for name in WARMED:
        world.trace(name, eager(gaps=(8, 7, 6)))
    assert verdict(world, "O-M7").status == "differs", "the post's warm-up cured the first step"
    for name in WARMED:
        world.trace(name, eager(gaps=(60, 8, 7)))
    assert verdict(world, "O-M7").status == "holds"
    assert verdict(world, "O-M12").status == "differs", "the post's product has no memset"
    world.trace("eager_4096", eager(memset=True, **HOPPER))
    assert verdict(world, "O-M12").status == "holds"


def test_queries_count_where_only_the_first_step_has_them(world: World) -> None:
    asks_always = verdict(world, "O-M11")
    assert (asks_always.status, asks_always.measured and asks_always.measured.value) == ("differs", 0)
    asking = eager(queries=2)
    world.trace("unscheduled", edited(asking, lambda event: event["name"] != QUERY or event["ts"] < 10_000))
    asks_once = verdict(world, "O-M11")
    assert asks_once.status == "holds"
    assert asks_once.measured is not None
    assert (asks_once.measured.value, asks_once.measured.text) == (
        2,
        f"2 {QUERY} in step #0, 0 in the 2 steps after it",
    )


def test_a_cuda_call_in_the_gap_is_seen(world: World) -> None:
    assert verdict(world, "O-M8").status == "holds"

    def early(event: dict[str, Any]) -> bool:
        if event["name"] == QUERY and event["ts"] < 10_000:
            event["ts"] = 15.0
        return True

    world.trace("eager_64_cold", edited(eager(), early))
    assert verdict(world, "O-M8").status == "inconclusive", "one step has a call, the others have none"


def test_steps_that_disagree_are_inconclusive(world: World) -> None:
    lost = edited(eager(), lambda event: event["name"] != "elementwise add" or event["ts"] > 10_000)
    world.trace("eager_64", lost)
    assert [verdict(world, name).status for name in ("P1", "P2")] == ["inconclusive", "inconclusive"]


def test_what_is_missing_is_not_measured(world: World) -> None:
    world.remove("stacked", "eager_64")
    untimed = msgspec.structs.replace(point(4096, 1, 1, 1), timings=None)
    world.recording(recorded("eager_4096", untimed))
    world.trace("eager_64_cold", compiled())
    world.trace("compiled_4096", compiled(bias="kernel"))
    names = ("P15", "O-M1", "O-M2", "P6", "P24", "O-M22")
    assert [verdict(world, name).status for name in names] == ["not measured"] * 6


def test_a_machine_that_never_compiled_has_no_graphs_to_find(world: World) -> None:
    world.recording(recorded("generated_code", data={**CODE, "fxgraph_exists": False}))
    found = verdict(world, "P46")
    assert found.status == "not measured"
    assert found.reason.startswith("Inductor had not kept a graph yet on ")


def test_generated_code_without_its_calls_counts_no_copies(world: World) -> None:
    """Nothing found is not the same as nothing recorded: without the list there is no verdict."""
    world.recording(recorded("generated_code", data={name: found for name, found in CODE.items() if name != "calls"}))
    with pytest.raises(KeyError, match="calls"):
        verdict(world, "P47")
