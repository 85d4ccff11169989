"""The chapter matmul_add's claims in the world of the post, where its own hold."""

from __future__ import annotations

import msgspec
import pytest

from snippets.lab.finding.book import findings
from snippets.matmul_add.findings.overhead import LARGE, SMALL
from tests.chapters.altered import verdict
from tests.chapters.matmul_add.world import CODE, QUERY, World, compiled, eager, edited, point, recorded

POST = {claim.id: "holds" for claim in findings("matmul_add").claims if claim.id.startswith("P")}
POST |= {"P27": "inconclusive", "P36": "differs"}
"""Claim of the post -> its status there: a product took 580 us usually, once 1084; and the kernels are fused."""


def test_in_the_world_of_the_post_its_claims_hold(world: World) -> None:
    found = {name: verdict(world.device, name) for name in POST}
    assert [f"{name}: {each.status}; {each.reason}" for name, each in found.items() if each.status != POST[name]] == []


@pytest.mark.parametrize(
    ("name", "experiments", "gemm_us", "wait_us"),
    [("P3", SMALL, 100.0, 100.0), ("P25", SMALL, 5.0, 17.0), ("O-M6", LARGE, 5.0, 10.0)],
)
def test_another_wait_in_both_recordings_refutes_a_claim(
    world: World, name: str, experiments: tuple[str, ...], gemm_us: float, wait_us: float
) -> None:
    """Which tests/mutations cannot show: it alters one recording at a time."""
    before = verdict(world.device, name).status
    for experiment in experiments:
        world.trace(experiment, eager(gemm_us=(gemm_us,) * 3, wait_us=wait_us))
    assert (before, verdict(world.device, name).status) == ("holds", "differs")


def test_queries_count_where_only_the_first_step_has_them(world: World) -> None:
    asks_always = verdict(world.device, "O-M11")
    assert (asks_always.status, asks_always.measured and asks_always.measured.value) == ("differs", 0)
    asking = eager(queries=2)
    world.trace("unscheduled", edited(asking, lambda event: event["name"] != QUERY or event["ts"] < 10_000))
    asks_once = verdict(world.device, "O-M11")
    assert asks_once.status == "holds"
    assert asks_once.measured is not None
    assert (asks_once.measured.value, asks_once.measured.text) == (
        2,
        f"2 {QUERY} in step #0, 0 in the 2 steps after it",
    )


def test_what_is_missing_is_not_measured(world: World) -> None:
    world.remove("stacked", "eager_64")
    untimed = msgspec.structs.replace(point(4096, 1, 1, 1), timings=None)
    world.recording(recorded("eager_4096", untimed))
    world.trace("eager_64_cold", compiled())
    world.trace("compiled_4096", compiled(bias="kernel"))
    names = ("P15", "O-M1", "O-M2", "P6", "P24", "O-M22")
    assert [verdict(world.device, name).status for name in names] == ["not measured"] * 6


def test_a_machine_that_never_compiled_has_no_graphs_to_find(world: World) -> None:
    world.recording(recorded("generated_code", data={**CODE, "fxgraph_exists": False}))
    found = verdict(world.device, "P46")
    assert found.status == "not measured"
    assert found.reason.startswith("Inductor had not kept a graph yet on ")


def test_generated_code_without_its_calls_counts_no_copies(world: World) -> None:
    """Nothing found is not the same as nothing recorded: without the list there is no verdict."""
    world.recording(recorded("generated_code", data={name: found for name, found in CODE.items() if name != "calls"}))
    with pytest.raises(KeyError, match="calls"):
        verdict(world.device, "P47")
