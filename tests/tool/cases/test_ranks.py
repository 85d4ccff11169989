"""Ranks and communication on traces with planted faults, which lie beside the checkout.

The jobs were also timed without the profiler, with and without the fault.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kinetoscope.report.diagnosed import read_diagnosed
from kinetoscope.report.headline import headline
from kinetoscope.report.several import MultiReport, report_several
from kinetoscope.report.trace_report import report_data
from tests.tool.trace.public import PROJECT

SHARED = PROJECT.parent / "shared" / "traces"
CASES, JOBS = SHARED / "cases", SHARED / "ranks"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="no traces in ../shared/traces/cases")


def expected(name: str) -> Any:
    return json.loads((CASES / f"{name}.expected.json").read_text("utf-8"))["right"]


def ranks(*names: str) -> dict[str, Any]:
    return report_several([CASES / f"{name}.json" for name in names]).data


def test_a_collective_is_what_its_annotation_says() -> None:
    right, data = expected("k1_collective_named_by_annotation"), ranks("mix_r0", "mix_r1", "mix_r2")
    late = data["straggler"]
    assert data["collectives_compared"] == right["collectives_compared"]
    assert (late["rank"], late["share"]) == (right["straggler_rank"], right["share_of_waiting"])
    assert late["wait_us_per_step"] == right["wait_us_per_step_for_each_other_rank"]
    assert {str(rank["rank"]): rank["last_at"] for rank in data["ranks"]} == right["last_at"]


def test_a_broadcast_makes_no_rank_late() -> None:
    right, data = expected("k1_broadcast_named_allreduce"), ranks("bcast_r0", "bcast_r1")
    assert (data["straggler"], data["collectives_compared"]) == (
        right["straggler_rank"],
        right["collectives_compared"],
    )


def test_groups_of_one_name() -> None:
    right = expected("k2_groups_of_one_name")
    two = ranks("tp_r0", "tp_r2")
    assert (two["straggler"], two["collectives_compared"]) == (None, 0)
    groups = ranks("tp_r0", "tp_r1", "tp_r2", "tp_r3")["groups"]
    assert [
        {
            "group": group["ranks"],
            "straggler_rank": group["straggler_rank"],
            "wait_us_per_step_for_each_other_rank": group["wait_us_per_step"],
        }
        for group in groups
    ] == right["all four"]


def test_groups_in_a_merged_file() -> None:
    data = report_data(read_diagnosed(CASES / "tp_merged.json"))
    found = [each for each in data["findings"] if each["rule"] == "stragglers"]
    assert [(each["where"], each["ceiling_us_per_step"]) for each in found] == [
        ("rank 3, GPU 3", 2800.0),
        ("rank 0, GPU 0", 2400.0),
    ]


@pytest.mark.parametrize("name", ["quick", "moea2a", "mnnvl", "mori2"])
def test_kernels_of_engines_communicate(name: str) -> None:
    right, data = expected(f"k14_comm_{name}"), report_data(read_diagnosed(CASES / f"comm_{name}.json"))
    assert data["collectives_us_per_step"] == right["collectives_us_per_step"]
    assert data["exposed_collectives_us_per_step"] == right["exposed_us_per_step"]
    assert data["findings"][0]["rule"] == right["first_finding"]


def job(name: str) -> MultiReport:
    return report_several(sorted(JOBS.glob(f"{name}.rank*.json.gz")))


@pytest.mark.parametrize("name", ["ddp_uneven_batch", "mesh_late_rank3"])
def test_the_cost_of_a_late_rank_is_what_mending_saves(name: str) -> None:
    truth = json.loads((JOBS / "truth.json").read_text("utf-8"))[name]
    late = job(name).data["straggler"]
    assert late["rank"] == truth["late_rank"]
    assert late["wait_us_per_step"] == pytest.approx(truth["step_us"] - truth["mended_us"], rel=0.3)


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        ("ddp_healthy", "No rank delays the others by much. The ranks' own work hides all communication except 334 µs"),
        ("ddp_one_bucket", "No rank delays the others by much. Communication takes 5.05 ms"),
        ("ddp_launch_bound", "The GPU of rank 1 waits for launches"),
        ("tp_mlp_8192", "No rank delays the others by much. Communication takes 1.03 ms"),
        ("mesh_healthy", "No rank delays the others by much. Communication takes 1.71 ms"),
        ("pipeline", "A pipeline of 4 stages: the bubble is 10 %"),
    ],
)
def test_jobs_without_a_late_rank(name: str, headline: str) -> None:
    report = job(name)
    assert report.data["straggler"] is None
    assert report.headline.startswith(headline)


def test_the_late_rank_is_mended_before_the_buckets() -> None:
    """Rank 1 waits 6.23 of the 8.01 ms of its collectives for rank 3, and transfers for a tenth of its step."""
    report = job("mesh_late_rank3")
    first = report.data["findings"][0]
    assert (first["rule"], first["severity"]) == ("exposed-communication", "medium")
    assert first["advice"].startswith("Most of it is waiting: fix rank 3 first. Overlap communication")
    assert report.severities == {"high", "medium", "low"}  # high: rank 3 is late
    even = job("mesh_healthy").data["findings"][0]
    assert even["advice"].startswith("Most of it is waiting for other ranks. Overlap communication")
    transfers = job("tp_mlp_8192").data["findings"][0]
    assert (transfers["severity"], transfers["advice"].partition(" with")[0]) == ("medium", "Overlap communication")


def test_the_launches_of_a_rank_are_mended_before_the_waiting_for_it() -> None:
    """Rank 0 waits 14.3 of the 15.4 ms of its collectives for rank 1, which is short of launches, not of a network."""
    first, second, *_ = job("ddp_launch_bound").data["findings"]
    assert (first["rule"], first["severity"]) == ("launch-bound", "high")
    assert (second["rule"], second["severity"]) == ("exposed-communication", "low")
    assert second["advice"].startswith("Most of it is waiting for rank 1, whose GPU waits for launches. Overlap")


def test_one_rank_of_a_job_may_be_waiting() -> None:
    diagnosed = read_diagnosed(JOBS / "ddp_uneven_batch.rank1.json.gz")
    doubt = "Rank 1 of 2: this may be waiting for another rank; give all ranks."
    assert headline(diagnosed).endswith(f"a fix saves at most 39.5 ms per step (28 %). {doubt}")
    first, second, _ = report_data(diagnosed)["findings"]
    assert (first["rule"], first["confidence"]) == ("exposed-communication", "low")
    assert first["advice"].startswith(f"{doubt} Overlap communication")
    assert (second["rule"], second["confidence"]) == ("needless-copies", "medium")


def test_a_job_of_which_a_rank_is_missing() -> None:
    """Rank 0 waits for rank 2, which is not given, and rank 1 for rank 3."""
    report = report_several([JOBS / f"mesh_late_rank3.rank{rank}.json.gz" for rank in (0, 1, 3)])
    assert report.headline == (
        "Rank 1 waits 6.23 ms of 13.9 ms per step for rank 3. On rank 0, transfer, or waiting for a missing rank, "
        "takes 7.89 ms of 13.9 ms per step (57 %) while the GPU does nothing else. Only 3 of 4 ranks are given: the "
        "rank that arrives last may be missing."
    )
    assert "rank 0: 5.78 ms own work, 7.89 ms transfer, or waiting for a missing rank, " in report.parts[0].html
    assert "7.89 ms transfer, or waiting</text>" in report.parts[0].html
    assert "waits least. Transfer includes waiting for ranks that are not given.</p>" in report.parts[0].html
    assert "<strong>unknown</strong><small>48 collectives compared; missing ranks: 1</small>" in report.lead


def test_communication_by_copies() -> None:
    """`fused_all_gather_matmul` copies between the GPUs; no NCCL kernel runs."""
    data = report_data(read_diagnosed(JOBS / "async_tp.rank0.json.gz"))
    first = data["findings"][0]
    assert first["rule"] == "exposed-communication"
    assert first["evidence_us_per_step"] > data["collectives_us_per_step"]
