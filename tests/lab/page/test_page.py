"""The frame of a page: where its numbers come from, in which mode, and what is said where there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from snippets.lab.experiment import experiments
from snippets.lab.finding.claim import Claim, Source
from snippets.lab.finding.figure import Figure
from snippets.lab.page.frame import provenance, show, verdicts
from snippets.lab.page.inline import fig_formatter
from snippets.lab.recording.device import _showing, shown_device
from snippets.lab.recording.loading import load_recording
from snippets.lab.recording.schema import NotRecorded, RecordingError

# KEEP page
# KEEP recording
from tests.lab import samples
from tests.lab.samples import DEVICE, EVIL, Markup, assert_only_text, claim, put, sample


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = samples.shelf(monkeypatch, tmp_path)
    put(root, sample())
    return root


@pytest.fixture
def only_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chapters of which every experiment is recorded, whatever the book's have."""
    monkeypatch.setattr(page, "experiments", lambda chapter: ())


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Any:
    def fill(*mine: Claim) -> None:
        monkeypatch.setattr(page, "all_claims", lambda: {one.id: ("mlp", one) for one in mine})

    return fill


def test_a_fence_is_marked_as_run() -> None:
    assert show("a-b", lambda x, y: f"<i>{x}{y}</i>", 1, 2) == '<div class="lab" data-fence="a-b"><i>12</i></div>'


def test_a_fence_without_its_recording_says_so(shelf: Path) -> None:
    shown = show("a", lambda: str(load_recording("mlp/compiled", DEVICE)))
    assert 'class="admonition warning"' in shown
    assert 'data-fence="a"' in shown
    assert "Not recorded yet" in Markup(shown).text
    assert f"no recording 'mlp/compiled' for {DEVICE}" in Markup(shown).text
    assert "run make record CHAPTER=mlp" in Markup(shown).text


@pytest.mark.parametrize("error", [RecordingError("damaged"), ValueError("a mistake")])
def test_any_other_error_ends_the_build(error: Exception) -> None:
    def content() -> str:
        raise error

    with pytest.raises(type(error)):
        show("a", content)


@pytest.mark.usefixtures("only_recorded")
def test_provenance(shelf: Path) -> None:
    assert provenance("mlp") == (
        '<p class="provenance"><strong>NVIDIA Sample</strong> · driver 580.1, CUDA 13.0 · '
        "python 3.12.3, torch 2.11.0 · "
        '<time datetime="2026-10-01T12:00:00Z">2026-10-01</time> · commit <code>0123abc</code> · '
        '<span class="mode mode-replayed">replayed</span></p>'
    )


def test_provenance_is_of_the_newest(shelf: Path) -> None:
    put(shelf, sample("mlp/new", circumstances=samples.circumstances(date="2026-11-01T00:00:00Z", commit="new")))
    assert "<code>new</code>" in provenance("mlp")


@pytest.mark.parametrize(
    ("here", "digest", "mode"),
    [
        (None, None, "replayed"),
        ("nvidia-other", None, "replayed"),
        (DEVICE, None, "live"),
        (None, "0" * 16, "stale"),
        (DEVICE, "0" * 16, "stale"),
    ],
)
def test_the_three_modes(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, here: str | None, digest: str | None, mode: str
) -> None:
    monkeypatch.setattr(recording, "this_device", lambda: here)
    put(shelf, sample("mlp/second"), sample("mlp/third"))
    if digest:
        put(shelf, sample(digest=digest))
    shown = provenance("mlp")
    assert f'<span class="mode mode-{mode}">{mode}</span>' in shown
    assert ("Recorded for an older version of this code" in shown) is (mode == "stale")
    if mode == "stale":
        text = Markup(shown).text
        assert "1 of 3 recordings were made before the code on this page changed." in text
        assert "run make record CHAPTER=mlp." in text


def test_provenance_of_what_is_not_recorded(shelf: Path) -> None:
    """What is missing, which command makes it, and on which kind of machine."""
    ids = ", ".join(one.id for one in experiments("linear"))
    assert Markup(provenance("linear")).text == (
        f"Not recorded yetFor the SAMPLE there is no recording of {ids}. On a machine with that GPU run make record "
        "CHAPTER=linear. On one with another CUDA GPU the same command records for that one. "
        "Without a GPU no recording can be made; all else can be done."
    )


def test_provenance_of_what_is_recorded_in_part(shelf: Path) -> None:
    ids = ", ".join(one.id for one in experiments("mlp") if one.id != "mlp/eager")
    shown = provenance("mlp")
    assert shown.startswith('<p class="provenance"><strong>NVIDIA Sample</strong>')
    assert f"For the SAMPLE there is no recording of {ids}. On a machine" in Markup(shown).text
    put(shelf, *(sample(one.id) for one in experiments("mlp")))
    assert "Not recorded yet" not in provenance("mlp")


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_provenance(shelf: Path, name: str) -> None:
    fields = dict.fromkeys(("device", "driver", "cuda", "commit", "date"), name)
    put(shelf, sample(digest="stale", circumstances=samples.circumstances(versions={name: name}, **fields)))
    shown = provenance("mlp")
    assert_only_text(shown, name)
    assert Markup(shown).text.count(name) >= 4
    assert dict(Markup(shown).attributes)["datetime"] == name


def test_a_verdict_that_holds_and_one_that_differs(ledger: Any, shelf: Path) -> None:
    ledger(
        claim(source=Source("Part 2", "5 kernels"), why="Unneeded."),
        claim(4, id="M2", sentence="Not four.", why="Because of fusion."),
    )
    shown = verdicts("M2", "M1")
    text = Markup(shown).text
    assert shown.index('id="claim-m2"') < shown.index('id="claim-m1"')
    assert text == (
        "≠ differs Not four. M2ours · SAMPLE: 4Because of fusion.✓ holds Five kernels. M1Part 2: 5 kernels · SAMPLE: 5"
    )
    assert 'class="verdict differs"' in shown
    with pytest.raises(KeyError):
        verdicts("M9")


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (Figure(5, conclusive=False), "? inconclusive Five kernels. M1ours · SAMPLE: 5"),
        (Figure(21.5, "us", (21.0, 22.0)), "≠ differs Five kernels. M1ours · SAMPLE: 21.5 µs (21.0 to 22.0 µs)"),
        (None, "– not measured Five kernels. M1ours · nothing there"),
    ],
)
def test_what_a_verdict_shows(ledger: Any, shelf: Path, figure: Figure | None, text: str) -> None:
    def measure(device: str) -> Figure:
        if figure is None:
            raise NotRecorded("nothing there")
        return figure

    ledger(claim(measure=measure))
    assert Markup(verdicts("M1")).text == text


def test_a_verdict_leads_to_the_ledger(ledger: Any, shelf: Path) -> None:
    ledger(claim())
    assert '<a class="id" href="../claims/#ledger-m1" title="this claim in the ledger">M1</a>' in verdicts("M1")


class TestDevices:
    """What a page shows where more than one device is recorded."""

    OTHER = "nvidia-a100-sxm4-80gb"

    @pytest.fixture
    def two(self, shelf: Path) -> Path:
        put(shelf, sample(), device=self.OTHER)
        return shelf

    def test_a_tab_for_each_the_builder_first(self, two: Path) -> None:
        shown = show("a-b", lambda: f'<b id="x">{shown_device()}</b><a href="#x">x</a><a href="#y">y</a>')
        seen = Markup(shown)
        assert seen.text == f"SAMPLEA100 SXM4 80GB{DEVICE}xy{self.OTHER}xy"
        assert shown.startswith('<div class="lab" data-fence="a-b"><div class="tabbed-set tabbed-alternate devices"')
        assert f'<input type="radio" id="tab-a-b-{DEVICE}" name="tab-a-b" data-device="{DEVICE}" checked>' in shown
        assert f'<input type="radio" id="tab-a-b-{self.OTHER}" name="tab-a-b" data-device="{self.OTHER}">' in shown
        assert f'<b id="x">{DEVICE}</b><a href="#x">' in shown
        assert f'<b id="{self.OTHER}--x">{self.OTHER}</b><a href="#{self.OTHER}--x">x</a><a href="#y">' in shown
        ids = [value for name, value in seen.attributes if name == "id"]
        assert len(ids) == len(set(ids)) == 4

    def test_the_tab_of_this_machine_is_open(self, two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recording, "this_device", lambda: self.OTHER)
        shown = show("a", shown_device)
        assert f'data-device="{self.OTHER}" checked>' in shown
        assert shown.count("checked") == 1

    def test_what_is_the_same_everywhere_needs_no_tabs(self, two: Path) -> None:
        assert show("a", lambda: "one") == '<div class="lab" data-fence="a">one</div>'

    def test_what_one_device_lacks_is_said_in_its_tab(self, two: Path) -> None:
        put(two, sample("mlp/compiled"))
        shown = show("a", lambda: load_recording("mlp/compiled", shown_device()).id)
        assert shown.index(">mlp/compiled<") < shown.index(f"no recording &#x27;mlp/compiled&#x27; for {self.OTHER}")

    def test_after_a_fence_the_device_is_what_it_was(self, two: Path) -> None:
        def mistaken() -> str:
            raise OSError("a mistake")

        with pytest.raises(OSError, match="a mistake"):
            show("a", mistaken)
        assert not _showing.get()

    def test_a_sentence_holds_the_value_of_each(self, two: Path) -> None:
        put(two, sample(points=(samples.point(flops=3_000_000),)), device=self.OTHER)
        shown = fig_formatter("mlp.eager.flops", "", "", None)
        assert Markup(shown).text == "2.00 MFLOP3.00 MFLOP"
        assert [part.split(">")[0].split(" data-device=")[1] for part in shown.split("<data ")[1:]] == [
            f'"{DEVICE}"',
            f'"{self.OTHER}" hidden',
        ]


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_claims(ledger: Any, shelf: Path, name: str) -> None:
    ledger(
        claim(name, sentence=name, why=name, id="M1", source=Source(name, name, name)),
        claim(id=name, measure=lambda device: Figure(1.0, said=name)),
    )
    for shown in (verdicts("M1"), verdicts(name), show(name, verdicts, "M1")):
        assert_only_text(shown, name)

    def missing(device: str) -> Any:
        raise NotRecorded(name)

    ledger(claim(measure=missing))
    for shown in (verdicts("M1"), show("a", missing, DEVICE)):
        assert_only_text(shown, name)
