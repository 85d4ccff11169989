"""The figures and claims of the second page, on made-up recordings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from snippets.lab.finding.book import findings, judge
from snippets.lab.finding.device import Device
from snippets.training_memory.findings import allocator, instruments, keeping, memory
from snippets.training_memory.findings.held import held_step
from tests.chapters.training_memory.memory_samples import memory_recordings
from tests.chapters.training_memory.samples import recordings
from tests.lab.sample_recordings import page_on_samples, save_samples
from tests.lab.samples import Markup, cells

ELSEWHERE = ("TM61",)
"""Claims that read the trace of the first page, too: test_recomputing.py."""
CLAIMS = {
    claim.id: claim
    for claim in findings("training_memory").claims
    if int(claim.id.removeprefix("TM")) >= 30 and claim.id not in ELSEWHERE
}


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return save_samples(tmp_path_factory.mktemp("samples"), memory_recordings())


def test_the_claims_of_the_samples(device: Device) -> None:
    verdicts = {claim_id: judge(claim, "training_memory", device) for claim_id, claim in CLAIMS.items()}
    found = {claim_id: (verdict.status, verdict.reason) for claim_id, verdict in verdicts.items()}
    assert found == {claim_id: ("holds", "") for claim_id in CLAIMS}


def altered(root: Path, experiment: str, change: Callable[[Any], None]) -> Device:
    """The samples, the data of one of them changed."""
    recordings = []
    for recording, trace in memory_recordings():
        data = msgspec.json.decode(msgspec.json.encode(recording.data))
        if recording.experiment == experiment:
            change(data)
        recordings.append((msgspec.structs.replace(recording, data=data), trace))
    return save_samples(root, recordings)


def put(*path: Any, value: Any) -> Callable[[Any], None]:
    """Replace something within the data."""

    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


def test_a_high_total_is_no_sign_where_free_parts_are_small(tmp_path: Path) -> None:
    statistics = ("variants", "fp32", "statistics")
    device = altered(tmp_path, "holds", put(*statistics, "inactive_split_bytes.all.current", value=10**10))
    assert judge(CLAIMS["TM58"], "training_memory", device).status == "differs"
    device = altered(tmp_path, "holds", put("variants", "fp32", "parameters", value=10**11))
    verdict = judge(CLAIMS["TM58"], "training_memory", device)
    assert (verdict.status, "cannot test the sign" in verdict.reason) == ("not measured", True)


def test_a_step_is_back_where_it_began(device: Device) -> None:
    for name in ("fp32", "compiled", "gradients zeroed"):
        first, *_, last = held_step(device, name).levels()
        assert first == last


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1, "1 byte"),
        (512, "512 bytes"),
        (100_352, "100,352 bytes"),
        (1 << 20, "1 MiB"),
        ((1 << 20) + 1, "1 MiB + 1"),
        ((1 << 20) + 512, "1 MiB + 512"),
        (39 << 19, "19.5 MiB"),
    ],
)
def test_sizes_in_mebibytes(size: int, text: str) -> None:
    assert allocator.in_mib(size) == text


def test_the_opening_adds_up_to_what_is_in_use(device: Device) -> None:
    text = Markup(memory.opening(device)).text
    used = (100 << 30) - device["training_memory/holds"].data["variants"]["fp32"]["free_of_all"][0]
    assert f"float32: {used / 1e9:.2f} GB" in text


def test_the_page_on_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = save_samples(tmp_path, recordings())
    page = page_on_samples("training_memory", device, monkeypatch, page="training_memory_peak")
    assert page.count("<table>") > 10
    assert "Not recorded" not in page


def test_the_kept_tensors_are_counted(device: Device) -> None:
    rows = cells(keeping.kept_tensors(device))
    listed = device["training_memory/holds"].data["variants"]["autocast"]["kept"]
    assert sum(int(row[3]) for row in rows[1:] if row[3].isdigit()) == len(listed)


def test_lines_for_a_pool_name_their_metric() -> None:
    """What stands above the head, such as the number of OOMs, has fewer columns."""
    text = """|====|
|        CUDA OOMs: 0  |  cudaMalloc retries: 0  |
| Metric           | Cur Usage | Peak Usage | Tot Alloc | Tot Freed |
|----|
| Allocations      |  13 |  26 |  28 |  15 |
|  from large pool |  12 |  25 |  27 |  14 |
|===="""
    assert cells(instruments.all_printed(text)) == [
        ["Metric", "Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed"],
        ["Allocations", "13", "26", "28", "15"],
        ["Allocations, from large pool", "12", "25", "27", "14"],
    ]
