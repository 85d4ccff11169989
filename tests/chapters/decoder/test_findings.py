"""What decoder says about sample recordings: each claim can fail, and each fence of the page runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets.decoder import findings
from snippets.lab.finding.book import judge
from tests.chapters.decoder.samples import recordings
from tests.lab.sample_recordings import page_on_samples, save_samples


@pytest.mark.parametrize(("kernels", "status"), [(1, "holds"), (2, "differs")])
def test_the_claim_is_about_the_fused_forward(tmp_path: Path, kernels: int, status: str) -> None:
    device = save_samples(tmp_path, recordings(fused_kernels=kernels))
    assert judge(findings.fused_is_one_kernel, "decoder", device).status == status


def test_the_figure_is_of_pairs(tmp_path: Path) -> None:
    figure = findings.speedup(save_samples(tmp_path, recordings()))
    assert (figure.text, figure.conclusive) == ("4.37x", True)


def test_every_fence_and_figure_of_the_page_shows_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_on_samples("decoder", save_samples(tmp_path, recordings()), monkeypatch)
    assert "Not recorded yet" not in page
    assert "4.37x" in page
