"""Disturbed measurements: marked below every piece that reads them, on their page, and in sentences."""

from __future__ import annotations

from pathlib import Path

import markdown
import pytest

from kinetoscope.html import Html
from snippets.lab.finding.band import at_least, equals
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.page.disturbed import BANNER, disturbed_banner, with_banners_of_shown
from snippets.lab.page.frame import provenance, show, warning
from snippets.lab.page.inline import fig_formatter
from snippets.lab.page.ledger import ledger_list
from snippets.lab.page.race import race_table
from snippets.lab.page.tables import kernel_table
from snippets.lab.page.verdict import section_claims
from snippets.lab.recording.schema import Recording
from tests.lab import samples
from tests.lab.conftest import Book
from tests.lab.samples import EVIL, Markup, assert_only_text, claim, environment, point, sample, save_all, timings

REASON = "interleaved 513 us, but cold 270 us"
EAGER, OTHERS = sample(points=(point(timed=timings(), disturbed=REASON),)), environment(other_processes=("python3",))


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setattr("snippets.lab.recording.device.this_device", lambda: None)
    samples.recordings(monkeypatch, tmp_path)
    liger = sample("mlp/liger", environment=OTHERS)
    return save_all(tmp_path, EAGER, sample("mlp/compiled"), liger)


def _disturbed(name: str, reason: str) -> Recording:
    return sample(name, points=(point(timed=timings(), disturbed=reason),))


def lines(content: str) -> list[str]:
    return [Markup(part).text for part in content.split('<p class="lab-disturbed">')[1:]]


@pytest.mark.usefixtures("device")
def test_a_line_below_a_piece_that_reads_a_disturbed_recording() -> None:
    content = show("a", kernel_table, "mlp/eager")
    assert lines(content) == [f"Disturbed: don't trust the times of mlp/eager ({REASON})."]
    assert content.endswith("</p></div>")
    variants = {"a": "mlp/eager", "b": "mlp/compiled", "c": "mlp/liger"}
    assert lines(show("b", race_table, variants, "c")) == [
        f"Disturbed: don't trust the times of mlp/eager ({REASON}) and of mlp/liger (python3 used the GPU too)."
    ]


@pytest.mark.usefixtures("device")
def test_no_line_where_nothing_was_disturbed() -> None:
    assert lines(show("a", kernel_table, "mlp/compiled")) == []
    assert lines(show("b", lambda device: Html(device["mlp/eager"].id))) == []  # reads nothing


def test_only_the_point_that_is_read(device: Device) -> None:
    points = (point({"size": 1}, timings()), point({"size": 2}, timings(), disturbed=REASON))
    save_all(device.root, sample("mlp/sweep_eager", points=points, has_trace=False))
    calm, disturbed = ({"a": f"mlp/sweep_eager[size={size}]"} for size in (1, 2))
    assert lines(show("a", race_table, calm, "c")) == []
    assert "mlp/sweep_eager[size=2]" in lines(show("b", race_table, disturbed, "c"))[0]


def test_only_the_device_that_was_disturbed(device: Device) -> None:
    save_all(device.root, sample(), device="nvidia-t100")
    content = show("a", kernel_table, "mlp/eager")
    assert len(lines(content)) == 1
    assert content.index("nvidia-sample") < content.index("lab-disturbed")


def test_a_banner_on_the_page(device: Device) -> None:
    text = Markup(provenance(device, "mlp")).text
    assert "Disturbed while it was recorded" in text
    assert f"Don't trust the times of mlp/eager ({REASON}) and of mlp/liger (python3 used the GPU too)." in text
    assert lines(show("a", provenance, "mlp")) == []
    calm = save_all(device.root, sample(), device="nvidia-t100")
    assert "Disturbed" not in provenance(calm, "mlp")


@pytest.mark.parametrize("experiment", ["eager", "compiled"])
def test_no_banner_on_a_page_that_shows_nothing_disturbed(device: Device, experiment: str) -> None:
    fences = (show("a", provenance, "mlp"), show("b", kernel_table, f"mlp/{experiment}"))
    page = markdown.markdown("\n\n".join(fences), extensions=["md_in_html", "snippets.lab.page.last"])
    assert ("Disturbed while it was recorded" in page) is (experiment == "eager")
    assert "Don't trust the times of mlp/liger" not in page
    assert page.count("<div") == page.count("</div")


@pytest.mark.parametrize("point", ["mlp/sweep_eager[size=2]", "mlp/sweep_eager"])
def test_a_banner_keeps_what_its_page_shows(point: str) -> None:
    names = {"mlp/sweep_eager": "a (b) and of c", "mlp/sweep": "a (b) and of c", "mlp/liger": "<d>"}
    banner = f"{BANNER}{warning('Disturbed', disturbed_banner([_disturbed(*each) for each in names.items()]))}</div>"
    kept = Markup(with_banners_of_shown(f"{banner}<p>{point} was disturbed: x</p>")).text
    assert "the times of mlp/sweep_eager (a (b) and of c). Claims" in kept
    assert with_banners_of_shown(f"{banner}<p>calm</p>") == "<p>calm</p>"


@pytest.mark.usefixtures("device")
def test_a_time_in_a_sentence_keeps_the_banner() -> None:
    page = show("a", provenance, "mlp") + fig_formatter("mlp.eager.interleaved_us", "", "", None)
    assert f"the times of mlp/eager ({REASON}). Claims" in Markup(with_banners_of_shown(page)).text
    assert "Disturbed" not in with_banners_of_shown(show("a", provenance, "mlp"))


@pytest.mark.usefixtures("device")
def test_verdicts_say_it_themselves(book: Book) -> None:
    time = claim(id="M1", scope="timing", measure=lambda device: device["mlp/eager"].time(), band=at_least(1.0))
    count = claim(id="M2", measure=lambda device: Figure(len(device["mlp/eager"].step.kernels)), band=equals(2))
    book(mlp=samples.findings(time, count))
    content = section_claims("a", ["M1", "M2"])
    assert f"mlp/eager was disturbed: {REASON}" in Markup(content).text
    assert lines(content) == lines(show("b", ledger_list)) == []


@pytest.mark.usefixtures("device")
def test_a_time_in_a_sentence_is_marked_and_a_count_is_not() -> None:
    time = fig_formatter("mlp.eager.interleaved_us", "", "", None)
    assert '<data class="fig inconclusive"' in time
    assert f"mlp/eager was disturbed: {REASON}" in time
    for calm in ("mlp.eager.kernels_per_step", "mlp.eager.peak_memory_bytes", "mlp.compiled.interleaved_us"):
        assert "disturbed" not in fig_formatter(calm, "", "", None)


@pytest.mark.parametrize("name", EVIL)
def test_reasons_stay_text(device: Device, name: str) -> None:
    save_all(device.root, sample(environment=environment(other_processes=(name,))))
    assert_only_text(show("a", kernel_table, "mlp/eager"), name)
    assert_only_text(provenance(device, "mlp"), name)
