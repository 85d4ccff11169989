"""Figures and the table of ranks, on traces written by hand: rank 1 works 60 us longer, the transfer takes 20 us."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kinetoscope.html import note
from snippets.lab.experiment import UnknownName
from snippets.lab.finding.device import Device
from snippets.lab.page.ranks import MOST_TIES, rank_bars, rank_lanes, rank_table
from tests.lab.rank_samples import merged_trace
from tests.lab.samples import EVIL, assert_only_text, cells, environment, sample, save_all, text_of

LATE, EVEN = "mlp/eager", "mlp/compiled"


@pytest.fixture
def device(tmp_path: Path) -> Device:
    on_two = environment(gpus=2)
    save_all(tmp_path, sample(EVEN, environment=on_two), trace=merged_trace((70.0, 70.0)))
    return save_all(tmp_path, sample(LATE, environment=on_two), trace=merged_trace((40.0, 100.0)))


def rects(content: str, kind: str) -> list[tuple[float, float]]:
    """Position and width of the drawn rectangles of a kind, in percent, without the legend's."""
    body = content.partition('<ul class="legend">')[0]
    found = re.findall(rf'<rect class="{kind}" x="([\d.]+)%" y="[\d.]+" width="([\d.]+)%"', body)
    return [(float(x), float(width)) for x, width in found]


def test_bars_of_variants_share_a_scale(device: Device) -> None:
    content = rank_bars(device, {"late": LATE, "even": EVEN}, "Where the step goes")
    own = [width for _, width in rects(content, "own")]
    us = own[1] / 100  # percent of the drawing
    assert own == pytest.approx([40 * us, 100 * us, 70 * us, 70 * us], abs=0.01)
    assert [width for _, width in rects(content, "transfer")] == pytest.approx([20 * us] * 4, abs=0.01)
    assert rects(content, "waiting") == [(pytest.approx(60 * us, abs=0.01), pytest.approx(60 * us, abs=0.01))]
    ends = [at + width for at, width in rects(content, "idle")]
    assert max(ends) == pytest.approx(100, abs=0.01), "the longest step takes the whole width"
    assert content.count('<strong class="tag">late</strong>') == 1
    assert "rank 1: 100 µs own work, 20.0 µs transfer, 0 µs waiting" in content


def test_what_the_report_says_stands_below_each_heading(device: Device) -> None:
    content = rank_bars(device, {"late": LATE, "even": EVEN}, "Where the step goes")
    late, even = re.findall(r'<p class="group"><strong>(.*?)</strong><small>(.*?)</small></p>', content)
    assert late[0] == "late"
    assert late[1].startswith("Rank 1 is late: if it were not, a step would be about 60.0 µs shorter, of ")
    assert late[1].endswith(" Rank 1 arrives last at 3 of 3 collectives.")
    assert even[1].startswith("The GPU of rank 0 waits for launches")
    assert "arrives last at" not in even[1], "nobody waits"


def test_the_rank_that_arrives_last_is_named_once(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "Nobody is late: rank 1 arrives last at 3 of 3 collectives, but that costs little."
    monkeypatch.setattr("snippets.lab.page.ranks.ranks_headline", lambda _: told)
    content = rank_bars(device, {"late": LATE}, "Where the step goes")
    assert re.findall(r"<small>(.*?)</small>", content) == [told]


def test_the_table_has_the_parts_of_each_rank(device: Device) -> None:
    head, first, second = cells(rank_table(device, {"late": LATE}, "Parts"))
    assert head[-1] == "arrives last"
    assert first[:2] + first[3:] == ["late", "0", "40.0 µs", "0 µs", "20.0 µs", "60.0 µs", first[7], "0 of 3"]
    assert second[:2] + second[3:] == ["", "1", "100 µs", "0 µs", "20.0 µs", "0 µs", second[7], "3 of 3"]


def test_nobody_arrives_last_where_nobody_waits(device: Device) -> None:
    _, first, second = cells(rank_table(device, {"even": EVEN}, "Parts"))
    assert (first[-1], second[-1]) == ("0 of 3", "0 of 3")
    assert rank_lanes(device, EVEN, "One step") == note(
        "No rank waits for another in this trace, so there is no step to draw. The bars and the table of the ranks "
        "show where the time of their steps goes."
    )


def test_lanes_of_a_step(device: Device) -> None:
    content = rank_lanes(device, LATE, "One step")
    assert "<figcaption>One step</figcaption>" in content
    names = re.findall(r'<text class="lane"[^>]*>(.*?)</text>', content)
    assert [text_of(name) for name in names] == [
        "rank 0: 40.0 µs own work, waits 60.0 µs",
        "rank 1, late: 100 µs own work, waits 0 µs",
    ]
    ((begin, _),), ((arrived, waits),) = rects(content, "waiting"), [rects(content, "transfer")[0]]
    assert waits > 0
    # a tie from begin to begin, one from end to end, and a dot where rank 1 begins
    lines = re.findall(r'<line class="tie" x1="([\d.]+)%" y1="51" x2="([\d.]+)%" y2="100"/>', content)
    (first_begin, second_begin), (first_end, second_end) = [tuple(map(float, line)) for line in lines]
    assert (first_begin, second_begin) == (pytest.approx(begin, abs=0.01), pytest.approx(arrived, abs=0.01))
    assert first_end == second_end > second_begin
    (dot,) = re.findall(r'<circle class="last" cx="([\d.]+)%"', content)
    assert float(dot) == second_begin


def test_ties_are_few(tmp_path: Path) -> None:
    trace = merged_trace((1.0, 2.0), collectives=MOST_TIES + 3)
    device = save_all(tmp_path, sample(environment=environment(gpus=2)), trace=trace)
    assert rank_lanes(device, LATE, "One step").count('class="last"') == MOST_TIES


def test_one_gpu_has_no_ranks(tmp_path: Path) -> None:
    device = save_all(tmp_path, sample())
    for draw in (lambda: rank_lanes(device, LATE, "x"), lambda: rank_bars(device, {"a": LATE}, "x")):
        with pytest.raises(UnknownName, match=r"^mlp/eager was recorded on one GPU; give an experiment with gpus=2"):
            draw()


def test_headings_and_captions_are_text(device: Device) -> None:
    for text in EVIL:
        assert_only_text(rank_bars(device, {text: LATE}, text) + rank_lanes(device, LATE, text), text)
