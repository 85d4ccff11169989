"""A sample's numbers: under a banner wherever they are shown, and beside nothing that was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets.lab.finding.device import Device
from snippets.lab.page.frame import show
from snippets.lab.page.inline import fig_formatter
from snippets.lab.page.sample import SAMPLE_TEXT, chapter_of
from snippets.lab.recording.device import DEFAULT_DEVICE, PROJECT, SAMPLE_DEVICE
from tests.lab import samples

BANNER = f'<p class="lab-sample">{SAMPLE_TEXT}</p>'


def name_of(device: Device) -> str:
    return f"<b>{device.short_name}</b>"


@pytest.fixture
def preview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A preview of the chapter linear: its sample beside what was measured of the chapter mlp."""
    samples.save_all(tmp_path, samples.sample("mlp/eager"), device=DEFAULT_DEVICE)
    samples.save_all(tmp_path, samples.sample("linear/eager"), device=SAMPLE_DEVICE)
    samples.recordings(monkeypatch, tmp_path)
    monkeypatch.setenv("SAMPLE", "linear")
    return tmp_path


def test_the_chapter_shows_its_sample_alone_under_a_banner(preview: Path) -> None:
    assert show("linear-a", name_of) == f'<div class="lab" data-fence="linear-a">{BANNER}<b>SAMPLE</b></div>'
    inline = fig_formatter("linear.eager.kernels_per_step", "", "", None)
    assert inline.startswith(f'<span class="lab-sample" title="{SAMPLE_TEXT}"><data class="fig" value="2"')
    assert inline.endswith("<small>(sample)</small></span>")
    assert "hidden" not in inline


@pytest.mark.parametrize("fence", ["mlp-a", "claims-a", "linears-a"])
def test_every_other_page_shows_what_was_measured(preview: Path, fence: str) -> None:
    assert show(fence, name_of) == f'<div class="lab" data-fence="{fence}"><b>H200</b></div>'
    assert "sample" not in fig_formatter("mlp.eager.kernels_per_step", "", "", None)


def test_a_table_of_all_devices_has_the_banner_where_it_names_the_sample(preview: Path) -> None:
    shown = show("claims-a", lambda device: f'<td data-device="{SAMPLE_DEVICE}"></td>')
    assert shown.startswith(f'<div class="lab" data-fence="claims-a">{BANNER}')


def test_the_name_of_the_sample_in_a_recording_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel may have it."""
    samples.save_all(tmp_path, samples.sample("mlp/eager"), device=DEFAULT_DEVICE)
    samples.recordings(monkeypatch, tmp_path)
    assert BANNER not in show("mlp-a", lambda device: SAMPLE_DEVICE)


def test_without_a_preview_a_sample_is_a_device_among_others_with_a_banner(
    preview: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SAMPLE")
    shown = show("linear-a", name_of)
    assert shown.count(BANNER) == 1
    assert f"{BANNER}<b>SAMPLE</b>" in shown
    assert "<b>H200</b>" in shown
    assert show("linear-b", lambda device: "the same") == '<div class="lab" data-fence="linear-b">the same</div>'


def test_a_mistake_ends_the_build_of_a_sample(preview: Path) -> None:
    """On another device than the default one it would only be left out."""

    def mistaken(device: Device) -> str:
        raise IndexError("no such kernel")

    with pytest.raises(IndexError):
        show("linear-a", mistaken)


def test_a_preview_without_its_sample_shows_what_was_measured(preview: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (preview / SAMPLE_DEVICE / "linear").iterdir():
        path.unlink()
    assert show("linear-a", name_of) == '<div class="lab" data-fence="linear-a"><b>H200</b></div>'


def test_the_chapter_of_a_fence() -> None:
    fences = ("mlp-a", "fused-mlp-a", "matmul-add-a-b", "mlp", "your-trace-a")
    assert [chapter_of(fence) for fence in fences] == ["mlp", "fused_mlp", "matmul_add", "", ""]


def test_the_published_book_has_no_sample() -> None:
    assert not (PROJECT / "docs/recordings" / SAMPLE_DEVICE).exists()
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    docs = makefile.split("\ndocs:")[1].split("\n\n")[0]
    assert "SAMPLE" not in docs
    assert "RECORDINGS" not in makefile
