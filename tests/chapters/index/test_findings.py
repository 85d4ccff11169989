"""The home page: one pass at two sizes, the tree with its pictures, the sheet and the card of a shared link."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from kinetoscope.diagnosis.symptoms import symptoms
from snippets.index.findings.card import COLORS, HEIGHT, WIDTH, card_png
from snippets.index.findings.cards import title_of_section
from snippets.index.findings.symptoms import PICTURES, see
from snippets.index.findings.waits import ONE, ONE_TIMED, passes, who_waits
from snippets.index.publish import BOOK as NAME, CARD, SHEET, publish
from snippets.lab.experiment import find
from snippets.lab.finding import Device, NotRecorded
from snippets.lab.finding.device import all_devices
from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.schema import Point
from tests.book.test_docs import CONFIG
from tests.lab.samples import BOOK, Markup, point, sample, save_all, timings

MANY_POINT = point({"batch": 64, "seq": 128}, timings(100.0, 100.0))


def one_point() -> Point:
    """Three microseconds of the GPU, six of the CPU."""
    return point({"batch": 1, "seq": 1}, timings(3.0, 3.0))


def half(html: str, value: str) -> str:
    """One side of the switch."""
    return html.partition(f'<div class="waits-half {value}">')[2].partition('<div class="waits-half')[0]


@pytest.fixture
def timed(tmp_path: Path) -> Device:
    """Both passes timed, only the large one traced."""
    sweep = sample(
        "mlp/sweep_eager", points=(one_point(), point({"batch": 64, "seq": 128}, timings())), has_trace=False
    )
    return save_all(tmp_path, sample(points=(MANY_POINT,)), sweep)


@pytest.fixture
def traced(tmp_path: Path) -> Device:
    return save_all(tmp_path, sample(points=(MANY_POINT,)), sample(ONE, points=(one_point(),)))


def test_the_experiment_is_the_pass_of_the_chapter_at_one_token() -> None:
    (one,), (many,) = find(ONE), find("mlp/eager")
    assert one.at(batch=64, seq=128).parameters == many.parameters
    assert (one.make, one.work, one.label) == (many.make, many.work, many.label)
    assert one.points[0] in find(ONE_TIMED.partition("[")[0])[0].points


def test_a_switch_of_two_radio_buttons(traced: Device) -> None:
    html = who_waits(traced)
    found = re.findall(r'<input type="radio" name="([^"]+)" value="(\w+)"[^>]*?( checked)?> ([\w, ]+)</label>', html)
    assert [option[1:] for option in found] == [("one", "", "1 token"), ("many", " checked", "8,192 tokens")]
    assert len({name for name, *_ in found}) == 1
    assert Markup(html).elements.count("legend") == 1


def test_each_answer_follows_from_its_times(traced: Device) -> None:
    html = who_waits(traced)
    one, many = half(html, "one"), half(html, "many")
    assert "<strong>The GPU waits for the CPU.</strong>" in one
    assert "<strong>You wait for the GPU.</strong>" in many
    assert re.findall(r"<span>(.*?)</span> <b>(.*?)</b>.*?<rect class=\"\w+\" width=\"([\d.]+)%", one) == [
        ("the CPU submits for", "6.00 µs", "7.5"),
        ("the GPU computes for", "3.00 µs", "3.8"),
        ("you wait", "80.0 µs", "100.0"),
    ]
    assert "<b>100 µs</b>" in many


def test_both_passes_are_on_one_scale(traced: Device) -> None:
    one, many = passes(traced)
    assert one.span_us == many.span_us > 0
    html = who_waits(traced)
    assert half(html, "one").count('<svg class="strip"') == half(html, "many").count('<svg class="strip"') == 1
    assert "Not recorded" not in html


def test_what_is_not_traced_says_so_in_its_half_only(timed: Device) -> None:
    html = who_waits(timed)
    one, many = half(html, "one"), half(html, "many")
    assert "Not recorded yet" in one
    assert "make record CHAPTER=index" in one
    assert "<b>3.00 µs</b>" in one
    assert "the profiler's own work" not in one
    assert "Not recorded yet" not in many
    assert '<svg class="strip"' in many


def test_without_the_large_pass_there_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(NotRecorded, match="make record CHAPTER=mlp"):
        who_waits(save_all(tmp_path, sample("mlp/compiled")))


@pytest.mark.parametrize("device", all_devices(BOOK.root), ids=lambda device: device.name)
def test_the_book_answers_both_questions(device: Device) -> None:
    one, many = passes(device)
    assert (one.is_gpu_bound, many.is_gpu_bound) == (False, True)


def test_the_tree_links_every_leaf_to_its_section() -> None:
    html = see(BOOK)
    links = re.findall(r'<h4><a href="([^"]+)">', html)
    assert links == [symptom.section for _, symptom in symptoms()]
    assert all(title_of_section(symptom.section) for _, symptom in symptoms())
    sections = [section for _, symptom in symptoms() for section in (symptom.section, *symptom.also)]
    assert re.findall(r'<p class="section"><a href="([^"]+)">', html) == sections
    assert [section for _, symptom in symptoms() for section in symptom.also] == [
        "decoder/#who-waits",
        "decoder/#ladder",
        "training_step_faults/#pageable-copies",
        "training_step_faults/#attention-written-out",
        "several_gpus_faults/#uneven",
        "training_step_faults/#graph-breaks",
        "training_memory_peak/#fragmentation",
        "training_step_faults/#allocator-in-the-step",
    ]


def test_every_picture_is_of_a_leaf_and_from_a_recording() -> None:
    assert PICTURES.keys() <= {symptom.name for _, symptom in symptoms()}
    html = see(BOOK)
    missing = {name for name in PICTURES if "<svg" not in html.partition(f'id="see-{name}"')[2].partition("</li>")[0]}
    assert missing == set()
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))


def test_all_devices_show_the_same_tree() -> None:
    assert len({see(device) for device in all_devices(BOOK.root)}) == 1


def test_a_leaf_without_a_recording_is_text(tmp_path: Path) -> None:
    html = see(save_all(tmp_path, sample()))
    assert "<svg" not in html
    assert html.count("<h4>") == len(list(symptoms()))


def test_what_is_published(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    assert publish(tmp_path, BOOK.root) == [tmp_path / SHEET, tmp_path / CARD]
    assert NAME in (tmp_path / SHEET).read_text(encoding="utf-8")
    assert (tmp_path / CARD).read_bytes() == card_png(BOOK, NAME)
    assert CONFIG["site_name"] == NAME
    assert CARD in (PROJECT / "docs/assets/theme/main.html").read_text(encoding="utf-8")


def test_without_the_recording_there_is_a_sheet(tmp_path: Path) -> None:
    assert publish(tmp_path, tmp_path / "none") == [tmp_path / SHEET]


def test_the_card_has_its_size_and_colors() -> None:
    png = card_png(BOOK, NAME)
    assert png.startswith(b"\x89PNG")
    assert struct.unpack(">II", png[16:24]) == (WIDTH, HEIGHT)
    css = (PROJECT / "docs/assets/css/drawing.css").read_text(encoding="utf-8")
    on_paper = dict(re.findall(r"--([\w-]+): light-dark\((#\w+)", css))
    assert {kind: (on_paper[f"{kind}-kind"], on_paper[f"{kind}-edge"]) for kind in COLORS} == COLORS


def lengths(tmp_path: Path, **naive: dict[str, object]) -> Device:
    data = {tokens: {"variants": {"naive": found}} for tokens, found in naive.items()}
    return save_all(tmp_path, sample("attention/lengths_64", data=data, has_trace=False))


def test_a_length_without_a_peak_has_no_room_only_where_memory_ran_out(tmp_path: Path) -> None:
    picture = PICTURES["memory-grows"]
    drawn = picture(lengths(tmp_path, **{"128": {"peak_bytes": 2**20}, "256": {"stopped": "out of memory"}}))
    assert ("1.05 MB" in drawn, drawn.count("out of memory")) == (True, 1)
    with pytest.raises(KeyError, match="peak_bytes"):
        picture(lengths(tmp_path, **{"128": {"peak_bytes": 2**20}, "256": {"error": 0.0}}))
