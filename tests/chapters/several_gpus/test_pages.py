"""Each fence and figure of the pages, on sample recordings."""

from __future__ import annotations

import pytest

from snippets.several_gpus.experiments import EXPERIMENTS
from tests.chapters.several_gpus.samples import recordings
from tests.lab.sample_recordings import page_on_samples, save_samples


def test_each_experiment_has_a_sample() -> None:
    assert {recording.experiment for recording, _ in recordings()} == {each.name for each in EXPERIMENTS}


@pytest.mark.parametrize("page", ["several_gpus", "several_gpus_sharding", "several_gpus_faults"])
def test_every_fence_and_figure_of_a_page_shows_the_samples(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    device = save_samples(tmp_path_factory.mktemp("samples"), recordings())
    assert "Not recorded yet" not in page_on_samples("several_gpus", device, monkeypatch, page)
