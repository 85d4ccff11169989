"""What the chapter decoder says about sample recordings: each claim can fail, and each fence of the page runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets.decoder import findings
from snippets.decoder.experiments import EXPERIMENTS
from snippets.lab.finding.book import judge
from tests.chapters.decoder.samples import recordings
from tests.lab.sample_recordings import page_on_samples, save_samples


def test_each_experiment_has_a_sample() -> None:
    assert {recording.experiment for recording, _ in recordings()} == {one.name for one in EXPERIMENTS}


@pytest.mark.parametrize(("launches", "status"), [(1, "holds"), (2, "differs")])
def test_the_claim_is_about_the_graph(tmp_path: Path, launches: int, status: str) -> None:
    device = save_samples(tmp_path, recordings(launches))
    assert judge(findings.a_graph_is_one_launch, "decoder", device).status == status


def test_every_fence_and_figure_of_the_page_shows_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_on_samples("decoder", save_samples(tmp_path, recordings()), monkeypatch)
    assert "Not recorded yet" not in page
    assert "flash_fwd_splitkv_kernel" in page
