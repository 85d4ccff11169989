"""Remedies for launch overhead: the claims of sample recordings, and that each can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from snippets.lab.finding import Device
from snippets.lab.finding.book import find_claim, judge
from snippets.lab.recording.ceilings import COPY
from snippets.regimes.findings import launches
from tests.chapters.regimes import samples
from tests.lab.sample_recordings import sample_of, save_samples

HOLD = {f"RG{number}": "holds" for number in range(15, 28)}
VERDICTS = HOLD | {"RG18": "differs", "RG19": "differs", "RG20": "differs"}


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_samples(tmp_path, samples.launches())


def status(device: Device, claim_id: str) -> str:
    chapter, claim = find_claim(claim_id)
    return judge(claim, chapter, device).status


def retime(device: Device, variant: str, cpu_us: float, gpu_us: Callable[[int], float]) -> None:
    """Replace the times of a variant."""
    made = sample_of(f"regimes/launch_{variant}", lambda at: gpu_us(int(at["tokens"])))
    save_samples(device.root, [samples.with_cpu(made, cpu_us)])


@pytest.mark.parametrize("claim_id", VERDICTS)
def test_the_claims_of_the_samples(device: Device, claim_id: str) -> None:
    assert status(device, claim_id) == VERDICTS[claim_id]


def test_what_a_variant_saves(device: Device) -> None:
    """302 us of 362 with the fused kernel at 64 tokens; 2,140 of 1,740.4 at 8,192, so it loses."""
    assert launches.launches_saved(device, "fused").number == pytest.approx(100 / 3)
    assert launches.launches_saved(device, "graphed").number == pytest.approx(100 * 22 / 24)
    assert launches.wall_saved(device, "fused", "small").number == pytest.approx(100 * 60 / 362)
    assert launches.wall_saved(device, "fused", "large").number == pytest.approx(100 * (1 - 2140 / 1740.4))
    assert launches.per_token(device).number == pytest.approx(1740.4 / 8192 / (362 / 64))
    assert launches.cpu_of_a_launch(device).number == pytest.approx(15)
    assert launches.copy_of_x(device, "graphed").number == pytest.approx(2)


@pytest.mark.parametrize(
    ("claim_id", "variant", "cpu_us", "gpu_us", "verdict"),
    [
        ("RG19", "fused", 270.0, lambda tokens: 90.0, "holds"),
        ("RG20", "fused", 270.0, lambda tokens: 0.16 * tokens, "holds"),
        ("RG21", "graphed", 250.0, lambda tokens: 100.0, "differs"),
        ("RG22", "graphed", 12.0, lambda tokens: 0.1 * tokens, "differs"),
        ("RG23", "eager", 150.0, lambda tokens: 140.0, "differs"),
        ("RG24", "graphed", 150.0, lambda tokens: 100.0, "differs"),
        ("RG26", "fused_graphed", 12.0, lambda tokens: 112.0, "differs"),
        ("RG27", "graphed", 12.0, lambda tokens: 40.0, "differs"),
        ("RG25", "eager", 100.0, lambda tokens: 2.0 * tokens, "differs"),
    ],
)
def test_each_claim_about_times_can_turn(
    device: Device, claim_id: str, variant: str, cpu_us: float, gpu_us: Callable[[int], float], verdict: str
) -> None:
    retime(device, variant, cpu_us, gpu_us)
    assert status(device, claim_id) == verdict


@pytest.mark.parametrize(
    ("claim_id", "variant", "operators", "verdict"),
    [
        ("RG15", "eager", samples.BLOCK * 7, "differs"),
        ("RG16", "compiled", samples.FUSED_BLOCK * 8, "differs"),
        ("RG17", "reduce_overhead", samples.BLOCK * 8, "differs"),
        ("RG18", "fused", samples.BLOCK * 3, "holds"),
    ],
)
def test_each_claim_about_launches_can_turn(
    device: Device, claim_id: str, variant: str, operators: tuple[samples.Operator, ...], verdict: str
) -> None:
    save_samples(device.root, [sample_of(f"regimes/small_{variant}", 100.0, operators)])
    assert status(device, claim_id) == verdict


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
