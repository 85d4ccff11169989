"""What removes launch overhead: the claims and figures of sample recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets.lab.finding import Device
from snippets.lab.recording.ceilings import COPY
from snippets.regimes.findings import launches
from tests.chapters.altered import status
from tests.chapters.regimes import samples
from tests.lab.sample_recordings import save_samples

CLAIMS = [f"RG{number}" for number in range(15, 28)]


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_samples(tmp_path, samples.launches())


def test_the_claims_of_the_samples(device: Device) -> None:
    found = {claim_id: status(device, claim_id) for claim_id in CLAIMS}
    assert found == dict.fromkeys(CLAIMS, "holds") | dict.fromkeys(("RG18", "RG19", "RG20"), "differs")


def test_what_a_variant_saves(device: Device) -> None:
    """302 us of 362 with the fused kernel at 64 tokens; 2,140 of 1,740.4 at 8,192, so it loses."""
    assert launches.launches_saved(device, "fused").number == pytest.approx(100 / 3)
    assert launches.launches_saved(device, "graphed").number == pytest.approx(100 * 22 / 24)
    assert launches.wall_saved(device, "fused", "small").number == pytest.approx(100 * 60 / 362)
    assert launches.wall_saved(device, "fused", "large").number == pytest.approx(100 * (1 - 2140 / 1740.4))
    assert launches.per_token(device).number == pytest.approx(1740.4 / 8192 / (362 / 64))
    assert launches.cpu_of_a_launch(device).number == pytest.approx(15)
    assert launches.copy_of_x(device, "graphed").number == pytest.approx(2)


def test_the_rate_of_a_graph(device: Device) -> None:
    """Its bytes at the sample's copy rate over 112.8 us."""
    run = launches.timed(device, "graphed", "small")
    copied_us = 1e6 * run.point.bytes / run.ceiling(COPY).rate
    assert launches.graph_of_copy(device).number == pytest.approx(100 * copied_us / 112.8)


def test_a_larger_batch_is_a_remedy(device: Device) -> None:
    """24 launches of 8,192 tokens are 0.19 for each 64; 1,740.4 us from Python are 13.6 of them, of 362."""
    assert "for each 64" not in launches.remedies(device, "large")
    shown = launches.remedies(device, "small")
    row = shown[shown.index("eager, 8,192 tokens, for each 64") :]
    for text in ("0.19", "2.81 µs", "13.6 µs", "0.11 %", "96.2 %"):
        assert text in row


def test_the_table_against_the_article(device: Device) -> None:
    shown = launches.against_article(device)
    for saved in ("33.3 %", "91.7 %", "-23.0 %"):
        assert saved in shown
