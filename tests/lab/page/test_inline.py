"""Figures and source values inside a sentence: exact HTML, and what ends a build."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pymdownx.inlinehilite import InlineHiliteException

from snippets.lab.experiment import UnknownName
from snippets.lab.finding.band import at_least
from snippets.lab.finding.claim import Source
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import Measure
from snippets.lab.page.inline import LONG, fig_formatter, figure_html, src_formatter
from snippets.lab.recording.device import DEFAULT_DEVICE
from tests.lab import samples
from tests.lab.conftest import Book
from tests.lab.samples import EVIL, Markup, assert_only_text, claim, point, sample, save_all

DEVICE = "nvidia-t100"
MISMATCH = ValueError("ProfilerStep#2 has 6 matmuls instead of three")
ERRORS = (
    ZeroDivisionError("float division by zero"),
    IndexError("list index out of range"),
    MISMATCH,
    AttributeError("typo"),
)


def raising(error: Exception) -> Measure:
    def measure(device: Device) -> Figure:
        raise error

    return measure


def fig(name: str) -> str:
    return fig_formatter(name, "fig", "fig", None)


def src(name: str) -> str:
    return src_formatter(name, "src", "src", None)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_all(tmp_path, sample(), device=DEVICE)
    return samples.recordings(monkeypatch, tmp_path)


@pytest.mark.usefixtures("root")
def test_a_figure_in_a_sentence() -> None:
    assert fig(" mlp.eager.interleaved_us ") == (
        '<data class="fig" value="20.0" data-figure="mlp.eager.interleaved_us" '
        'title="NVIDIA Sample, mlp/eager; 15.0 to 25.0 µs">20.0 µs</data>'
    )


def test_an_inconclusive_figure_says_so(root: Path) -> None:
    save_all(root, sample(), trace=samples.trace_json(kernels=(1, 2, 2)), device=DEVICE)
    content = fig("mlp.eager.kernels_per_step")
    assert 'class="fig inconclusive"' in content
    assert "1 to 2" in content


def test_the_figure_of_an_inconclusive_claim_says_why_on_hover(book: Book, root: Path) -> None:
    timed = claim(measure=lambda device: device["mlp/eager"].time(), band=at_least(20), scope="timing")
    module = samples.findings(timed)
    vars(module).update(eager_us=vars(module).pop("_0"))
    book(mlp=module)
    seen = Markup(fig("mlp.eager_us"))
    assert seen.text == "20.0 µs"
    assert dict(seen.attributes)["title"] == (
        "NVIDIA Sample, mlp/eager; 10.0 to 30.0 µs; the claim is inconclusive: "
        "only a part of the spread is in the band (at least 20.0 µs)"
    )


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("mlp.compiled.interleaved_us", "not recorded", "make record CHAPTER=mlp"),
        ("linear.eager.interleaved_us", "not timed", "linear/eager was recorded without timings"),
    ],
)
def test_a_figure_that_is_not_there_yet(root: Path, name: str, text: str, reason: str) -> None:
    save_all(root, sample("linear/eager", points=(point(),)), device=DEVICE)
    seen = Markup(fig(name))
    assert (seen.elements, seen.text) == (["data"], text)
    attributes = dict(seen.attributes)
    assert (attributes["class"], attributes["data-figure"]) == ("fig missing", name)
    assert reason in str(attributes["title"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mlp.eagr.interleaved_us", "UnknownName: no experiment 'mlp/eagr'; did you mean mlp/eager"),
        ("mlp.eager.kernels", "UnknownName: no quantity 'kernels'; did you mean"),
        ("mlp.gat", "UnknownName: no figure 'mlp.gat'; did you mean mlp.gate?"),
        ("nowhere.x", "UnknownName: no findings of 'nowhere'"),
        ("", "UnknownName: no findings of ''"),
        (EVIL[0], "UnknownName: no findings of"),
    ],
)
@pytest.mark.parametrize("device", [DEVICE, DEFAULT_DEVICE])
def test_an_unknown_figure_ends_the_build(book: Book, root: Path, device: str, name: str, message: str) -> None:
    book(mlp=samples.findings(gate=lambda device: Figure(5)))
    save_all(root, sample(), device=device)
    with pytest.raises(InlineHiliteException) as raised:
        fig(name)
    assert str(raised.value).startswith(f"#!fig {name}: {message}")


def test_a_damaged_recording_or_trace_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = samples.recordings(monkeypatch, tmp_path)
    save_all(root, sample(), device=DEFAULT_DEVICE)
    path = root / DEFAULT_DEVICE / "mlp" / "eager.trace.json.gz"
    path.write_bytes(b"\x1f\x8b\x08")
    samples.untie(path)
    with pytest.raises(
        InlineHiliteException, match=r"^#!fig mlp\.eager\.busy_us: TraceError: .*gzip stream is cut off"
    ):
        fig("mlp.eager.busy_us")
    (root / DEFAULT_DEVICE / "mlp" / "eager.json").write_text("{")
    with pytest.raises(InlineHiliteException, match=r"^#!fig mlp\.eager\.flops: RecordingError: eager\.json is not a"):
        fig("mlp.eager.flops")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_mismatch_is_left_out_elsewhere_and_ends_the_build_on_the_default_device(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """inlinehilite catches anything but its own exception and shows the source instead."""
    book(mlp=samples.findings(gate=raising(error)))
    save_all(tmp_path / "default", sample(), device=DEFAULT_DEVICE)
    samples.recordings(monkeypatch, tmp_path / "default")
    message = f"#!fig mlp.gate: {type(error).__name__}: {error} (on {DEFAULT_DEVICE})"
    with pytest.raises(InlineHiliteException, match=rf"^{re.escape(message)}$"):
        fig("mlp.gate")
    save_all(tmp_path / "other", sample(), device=DEVICE)
    samples.recordings(monkeypatch, tmp_path / "other")
    seen = Markup(fig("mlp.gate"))
    assert seen.text == "not measured here"
    assert str(dict(seen.attributes)["title"]).startswith("What is recorded for the T100 does not fit")


def test_a_sentence_holds_the_value_of_each_device(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "nvidia-a100-sxm4-80gb"
    save_all(root, sample(points=(point(flops=3_000_000),)), device=other)
    for opened in (DEVICE, other):
        monkeypatch.setenv("DEVICE", opened)
        seen = Markup(fig("mlp.eager.flops"))
        assert seen.text == "3.00 MFLOP2.00 MFLOP"
        devices = [value for key, value in seen.attributes if key == "data-device"]
        assert devices == [other, DEVICE]
        hidden = [" hidden data-search-exclude>" in part for part in fig("mlp.eager.flops").split("</data>")[:2]]
        assert hidden == [opened == DEVICE, opened == other]


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_figures(name: str) -> None:
    content = figure_html(Figure(name, origin=name, display=name), name)
    assert_only_text(content, name)
    seen = Markup(content)
    assert (seen.elements, seen.text) == (["data"], name)
    kind = "fig long" if len(name) > LONG else "fig"
    assert dict(seen.attributes) == {"class": kind, "value": name, "data-figure": name, "title": name}


def test_the_value_of_a_source(book: Book) -> None:
    articles = claim(id="M4", source=Source("An article", "6 kernels", device=""))
    book(mlp=samples.findings(claim(source=Source("Part 2", "5 kernels")), claim(id="M2"), articles))
    assert src("M4") == '<data class="src" value="6 kernels" title="An article">6 kernels</data>'
    assert src(" M1 ") == (
        '<data class="src" value="5 kernels" title="Part 2, on an NVIDIA A100-SXM4-80GB">5 kernels</data>'
    )
    with pytest.raises(InlineHiliteException, match=r"^#!src M2: this claim is ours and has no source$"):
        src("M2")
    with pytest.raises(InlineHiliteException, match=r"^#!src M3: no claim 'M3'; did you mean M4 or M2") as raised:
        src("M3")
    assert isinstance(raised.value.__cause__, UnknownName)


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_sources(book: Book, name: str) -> None:
    book(mlp=samples.findings(claim(source=Source(name, name, name))))
    content = src("M1")
    assert_only_text(content, name)
    assert Markup(content).text == name


def test_a_long_figure_may_break_into_lines() -> None:
    assert 'class="fig"' in figure_html(Figure("x" * 24), "mlp.name")
    assert 'class="fig long"' in figure_html(Figure("x" * 25), "mlp.name")


def test_characters_that_hide_or_reorder_text_are_escaped(book: Book, root: Path) -> None:
    odd, text = "a\u202eb\x1b[31mc\ud800", "a\\u202eb\\x1b[31mc\\ud800"
    book(mlp=samples.findings(gate=lambda device: Figure(odd, origin=odd), gone=raising(ValueError(odd))))
    seen = Markup(fig("mlp.gate"))
    assert (seen.text, dict(seen.attributes)["title"], dict(seen.attributes)["value"]) == (text, text, text)
    assert text in str(dict(Markup(fig("mlp.gone")).attributes)["title"])
