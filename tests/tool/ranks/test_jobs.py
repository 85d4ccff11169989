"""What a late rank costs, against what mending its fault saved: digests of jobs that were also timed unprofiled."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.report.several import MultiReport, report_several

JOBS = Path(__file__).with_name("jobs")
TRUTH: dict[str, dict[str, Any]] = json.loads((JOBS / "truth.json").read_text("utf-8"))
SLOWED = "hidden_sidestream"
"""Rank 1 waits beside its own kernels, which the waiting collective slows: no trace of a step tells by how much."""
LATE = sorted(name for name, truth in TRUTH.items() if truth["late_rank"] is not None and name != SLOWED)
NOBODY = "No rank delays the others by much"
OTHERS = {
    "accumulate": "The GPU of rank 1 waits for launches, 50.0 ms of 132 ms",
    "after_backward": f"{NOBODY}. Communication takes 5.07 ms of 56.9 ms",
    "cpu_sleep_hidden": f"{NOBODY}. The ranks' own work hides all communication except 172 µs",
    "find_unused": f"{NOBODY}: rank 0 arrives last at 57 of 60 collectives, but the others do",
    "fsdp": f"{NOBODY}. Communication takes 2.37 ms of 29.7 ms",
    SLOWED: f"{NOBODY}: rank 0 arrives last at 54 of 57 collectives, but the others do",
    "random_lengths": "The rank that arrives last changes, and each rank waits 8.28 ms to",
    "tp_decode": "The GPU of rank 1 waits for launches, 1.28 ms of 1.71 ms per step",
    "tp_prefill": f"{NOBODY}. Communication takes 553 µs of 3.48 ms",
}


def job(name: str, folder: Path) -> MultiReport:
    path = folder / f"{name}.digest.json"
    path.write_bytes(gzip.decompress((JOBS / f"{name}.digest.json.gz").read_bytes()))
    return report_several([path])


def test_every_job_is_judged() -> None:
    assert sorted([*LATE, *OTHERS]) == sorted(TRUTH)


@pytest.mark.parametrize("name", LATE)
def test_the_cost_of_a_late_rank_is_what_mending_saves(name: str, tmp_path: Path) -> None:
    truth, late = TRUTH[name], job(name, tmp_path).data["straggler"]
    gain_us = truth["step_us"] - truth["mended_us"]
    assert late["rank"] == truth["late_rank"]
    assert 0.7 * gain_us <= late["wait_us_per_step"] <= 1.5 * gain_us


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_a_job_without_a_late_rank(name: str, tmp_path: Path) -> None:
    report = job(name, tmp_path)
    assert report.data["straggler"] is None
    assert report.headline.startswith(OTHERS[name])
