"""The figures and claims of the second page, on made-up recordings: each holds, and each can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets.lab.finding.book import findings, judge
from snippets.lab.finding.device import Device
from tests.chapters.training_memory.memory_samples import memory_recordings
from tests.lab.sample_recordings import save_samples

CLAIMS = {claim.id: claim for claim in findings("training_memory").claims if int(claim.id.removeprefix("TM")) >= 30}


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_samples(tmp_path, memory_recordings())


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_a_claim_holds_on_samples(claim_id: str, device: Device) -> None:
    verdict = judge(CLAIMS[claim_id], "training_memory", device)
    assert (verdict.status, verdict.reason) == ("holds", "")
