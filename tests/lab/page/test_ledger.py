"""The ledger: an entry for each claim with its verdicts, what it can be filtered by, the counts, and the data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from snippets.lab.finding.accepted import accept_statuses
from snippets.lab.finding.band import at_least
from snippets.lab.finding.book import judge
from snippets.lab.finding.claim import SERIES, Source
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.page.frame import show
from snippets.lab.page.ledger import claims_table, ledger_list, status_counts, verdict_data
from snippets.lab.page.verdict import section_claims
from snippets.lab.recording.schema import NotRecorded
from tests.lab import samples
from tests.lab.conftest import Book
from tests.lab.samples import DEVICE, EVIL, Markup, assert_only_text, claim, sample, save_all

OTHER = "nvidia-z100-8gb"


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_all(tmp_path, sample())


def missing(device: Device) -> Figure:
    raise NotRecorded("nothing there")


def on_each(device: Device) -> Figure:
    """Five on one device, four on any other."""
    return Figure(5 if device.name == DEVICE else 4)


def rows(table: str) -> list[list[str]]:
    """The text of each cell of the body."""
    body = table.split("<tbody>")[1]
    lines = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    return [[Markup(cell).text for cell in re.findall(r"<td>(.*?)</td>", line, re.DOTALL)] for line in lines]


def chapters(content: str) -> list[str]:
    """The line of each fold."""
    return [Markup(line).text for line in re.findall(r"<details><summary>(.*?)</summary>", content)]


def entries(content: str) -> list[list[str]]:
    """The text of each part of the ledger's entries."""
    lines = re.findall(r"<li [^>]*>(.*?)</li>", content, re.DOTALL)
    piece = '<span class="(?:ours|said|where)"'
    parts = rf'<p>.*?</p>|<p class="why">.*?</p>|{piece}.*?(?={piece}|</p>)'
    return [[Markup(part).text for part in re.findall(parts, line, re.DOTALL)] for line in lines]


def test_an_entry_has_the_value_of_the_source_and_what_was_measured(book: Book, device: Device) -> None:
    book(
        mlp=samples.findings(
            claim(source=Source("Part 2", "5 kernels"), why="Unneeded."),
            claim(21.5, id="M2", sentence="Not five.", why="Because of fusion.", scope="timing"),
            claim(id="M3", measure=lambda device: Figure(21.5, "us", (21.0, 22.0)), band=lambda figure: True),
            claim(id="M4", measure=missing),
            claim(id="M5", measure=lambda device: Figure(5, conclusive=False)),
            claim(id="M6", measure=lambda device: device["mlp/eager"].time(), band=at_least(20), scope="timing"),
        )
    )
    content = ledger_list(device)
    assert chapters(content) == ["mlp: 1 differs, 2 are inconclusive, 1 is not measured and 2 hold"]
    assert entries(content) == [
        ["M2 Not five.", "On the H200: Because of fusion.", "≠ differs SAMPLE: 21.5", "timing · mlp"],
        ["M5 Five kernels.", "? inconclusive SAMPLE: 5: the active steps of its trace disagree", "every-gpu · mlp"],
        [
            "M6 Five kernels.",
            "? inconclusive SAMPLE: 20.0 µs (10.0 to 30.0 µs): "
            "only a part of the spread is in the band (at least 20.0 µs)",
            "timing · mlp",
        ],
        ["M4 Five kernels.", "– not measured SAMPLE: nothing there", "every-gpu · mlp"],
        ["M1 Five kernels.", "✓ holds SAMPLE: 5", "Part 2: 5 kernels", "every-gpu · mlp"],
        ["M3 Five kernels.", "✓ holds SAMPLE: 21.5 µs (21.0 to 22.0 µs)", "every-gpu · mlp"],
    ]


def test_what_an_entry_is_filtered_by(book: Book, device: Device) -> None:
    book(mlp=samples.findings(claim(), claim(id="O-M4", scope="timing", measure=missing)))
    content = ledger_list(device)
    assert '<li data-chapter="mlp" data-scope="every-gpu"><p><span class="id">M1</span>' in content
    assert f'<span class="ours" id="ledger-m1" data-device="{DEVICE}" data-verdict="holds">' in content
    assert f'id="ledger-o-m4" data-device="{DEVICE}" data-verdict="not measured"' in content
    assert '<a href="../mlp/#claim-o-m4">mlp</a>' in content


def test_each_chapter_is_a_fold(book: Book, device: Device) -> None:
    book(mlp=samples.findings(claim(), claim(id="M2")), linear=samples.findings(claim(4, id="L1")))
    assert sorted(chapters(ledger_list(device))) == ["linear: 1 differs", "mlp: 2 hold"]


def test_an_entry_leads_to_the_page_that_shows_its_claim(book: Book, device: Device) -> None:
    module = samples.findings(claim())
    vars(module).update(PAGE="measuring")
    book(devices=module)
    assert '<a href="../measuring/#claim-m1">devices</a>' in ledger_list(device)


def test_an_entry_has_every_device(book: Book, device: Device) -> None:
    """The one that pages open with has the short ids. A claim that differs on one makes a finding."""
    other = save_all(device.root, sample(), device=OTHER)
    book(mlp=samples.findings(claim(id="M2"), claim(measure=on_each)))
    content = ledger_list(device)
    assert chapters(content) == ["mlp: 1 differs on at least one device and 1 holds"]
    assert entries(content) == [
        ["M1 Five kernels.", "✓ holds SAMPLE: 5", "≠ differs Z100 8GB: 4", "every-gpu · mlp"],
        ["M2 Five kernels.", "✓ holds SAMPLE: 5", "✓ holds Z100 8GB: 5", "every-gpu · mlp"],
    ]
    ids = [value for name, value in Markup(content).attributes if name == "id"]
    assert ids == ["ledger-m1", f"ledger-m1-{OTHER}", "ledger-m2", f"ledger-m2-{OTHER}"]
    assert ledger_list(other) == content


def test_an_entry_leads_to_the_panel_that_is_open(book: Book, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other devices may be in a file of their own."""
    save_all(device.root, sample(), device=OTHER)
    book(mlp=samples.findings(claim()))
    samples.recordings(monkeypatch, device.root)
    monkeypatch.setenv("DEVICE", OTHER)
    content = ledger_list(device)
    assert '<a href="../mlp/#claim-m1">mlp</a>' in content
    ids = [value for name, value in Markup(content).attributes if name == "id"]
    assert ids == [f"ledger-m1-{DEVICE}", "ledger-m1"]
    assert re.findall(r'id="(claim-[^"]+)"', section_claims("a", ["M1"])) == ["claim-m1", f"claim-m1-{DEVICE}"]


def test_the_part_of_a_chapter(book: Book, device: Device) -> None:
    mine = samples.findings(claim(), claim(4, id="M2", why="Because."), claim(3, id="M3", why="So."))
    book(mlp=mine, linear=samples.findings())
    content = claims_table(device)
    assert "<caption>Claims on SAMPLE</caption>" in content
    assert len(rows(content)) == 3
    assert claims_table(device, "linear") == "<p>On the SAMPLE, no claim of linear is made.</p>"
    assert "no claim of mlp is inconclusive." in claims_table(device, "mlp", statuses=["inconclusive"])
    assert "<caption>Claims of mlp on SAMPLE</caption>" in claims_table(device, "mlp")
    assert rows(claims_table(device, "mlp", statuses=["differs"])) == [
        ["M2", "≠ differs", "Five kernels.every-gpu", "none, the claim is ours", "4"],
        ["M3", "≠ differs", "Five kernels.every-gpu", "none, the claim is ours", "3"],
    ]


def test_the_part_of_a_chapter_on_another_device(book: Book, device: Device) -> None:
    other = save_all(device.root, sample(), device=OTHER)
    book(mlp=samples.findings(claim(measure=on_each)))
    content = claims_table(other, "mlp")
    assert f'id="ledger-m1-{OTHER}"' in content
    assert rows(content) == [["M1", "≠ differs", "Five kernels.every-gpu", "none, the claim is ours", "4"]]


def test_the_counts(book: Book, device: Device) -> None:
    book(
        mlp=samples.findings(claim(measure=on_each), claim(id="M2"), claim(4, id="M3"), claim(id="M4", measure=missing))
    )
    first = "On the SAMPLE, of 4 claims 2 hold, 1 differs, 0 are inconclusive and 1 is not measured."
    assert Markup(status_counts(device)).text == first
    save_all(device.root, sample(), device=OTHER)
    second = "On the Z100 8GB, of 4 claims 1 holds, 2 differ, 0 are inconclusive and 1 is not measured."
    assert Markup(status_counts(device)).text == first + second
    assert status_counts(device).count("<p>") == 2


def test_a_status_that_is_rare_is_counted_where_it_occurs(book: Book, device: Device) -> None:
    source = Source("An article", "6", "NVIDIA H100", only_there=True)
    book(mlp=samples.findings(claim(), claim(id="M2", source=source)))
    counts = (
        "On the SAMPLE, of 2 claims 1 holds, 0 differ, 0 are inconclusive, 1 cannot be tested and 0 are not measured."
    )
    assert Markup(status_counts(device)).text == counts
    assert "⊘ cannot be tested SAMPLE: 5: the source's value is for an NVIDIA H100" in Markup(ledger_list(device)).text
    assert verdict_data(judge(claim(source=source), "mlp", device))["verdict"] == "cannot be tested"


def test_why_a_value_differs_on_the_only_device_that_can_test_it(book: Book, device: Device) -> None:
    """The H200 does not judge it, so the reason is not the H200's."""
    there = Source("An article", "6", "NVIDIA Z100 8GB", only_there=True)
    book(mlp=samples.findings(claim(6, source=there, why="Because.")))
    other = save_all(device.root, sample(), device=OTHER)
    data = verdict_data(judge(claim(6, source=there, why="Because."), "mlp", other))
    assert (data["verdict"], data["why"]) == ("differs", "Because.")


def test_where_nothing_is_recorded_nothing_is_measured(book: Book, tmp_path: Path) -> None:
    book(mlp=samples.findings(claim(measure=missing)))
    nothing = samples.device(tmp_path)
    text = "On the H200, of 1 claims 0 hold, 0 differ, 0 are inconclusive and 1 is not measured."
    assert Markup(status_counts(nothing)).text == text
    assert entries(ledger_list(nothing)) == [
        ["M1 Five kernels.", "– not measured H200: nothing there", "every-gpu · mlp"]
    ]


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_claims(book: Book, device: Device, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    samples.recordings(monkeypatch, device.root)
    evil = claim(name, sentence=name, why=name, id="M1", source=Source(name, name, name))
    book(mlp=samples.findings(evil, claim(id=name, measure=lambda device: Figure(1.0, display=name))))
    for content in (ledger_list(device), claims_table(device), show(name, claims_table)):
        assert_only_text(content, name)

    def without(device: Device) -> Figure:
        raise NotRecorded(name)

    book(mlp=samples.findings(claim(measure=without)))
    for content in (ledger_list(device), claims_table(device)):
        assert_only_text(content, name)


def test_a_source_is_a_link_where_its_address_is_known(book: Book, device: Device) -> None:
    book(mlp=samples.findings(claim(source=Source("Part 2", "5")), claim(id="M2", source=Source("An article", "6"))))
    content = ledger_list(device)
    assert f'<a href="{SERIES["Part 2"]}">Part 2</a>: 5</span>' in content
    assert ">An article: 6</span>" in content
    assert f'5<small><a href="{SERIES["Part 2"]}">Part 2</a></small>' in claims_table(device)


def test_a_verdict_as_data(device: Device) -> None:
    source = Source("Part 2", "5 kernels", "NVIDIA A100")
    measured = Figure(21.5, "us", (21.0, 22.0), "origin")
    book_claim = claim(source=source, why="Because.", measure=lambda device: measured)
    data = verdict_data(judge(book_claim, "mlp", device))
    assert list(data.items()) == [
        ("id", "M1"),
        ("chapter", "mlp"),
        ("sentence", "Five kernels."),
        ("scope", "every-gpu"),
        (
            "source",
            {
                "who": "Part 2",
                "address": SERIES["Part 2"],
                "device": "NVIDIA A100",
                "only_there": False,
                "value": "5 kernels",
            },
        ),
        ("device", DEVICE),
        ("measured", {"value": 21.5, "unit": "us", "spread": (21.0, 22.0), "text": "21.5 µs"}),
        ("verdict", "differs"),
        ("reason", ""),
        ("accepted", None),
        ("why", "On the H200: Because."),
    ]
    plain = verdict_data(judge(claim(measure=missing, scope="timing", why="Because."), "mlp", device))
    assert (plain["source"], plain["measured"], plain["verdict"]) == (None, None, "not measured")
    assert (plain["reason"], plain["accepted"], plain["why"]) == ("nothing there", None, "")
    accept_statuses(device, {"M1": "holds"})
    timed = claim(measure=lambda device: device["mlp/eager"].time(), band=at_least(20), scope="timing")
    doubtful = verdict_data(judge(timed, "mlp", device))
    assert doubtful["measured"] == {"value": 20.0, "unit": "us", "spread": (10.0, 30.0), "text": "20.0 µs"}
    assert (doubtful["verdict"], doubtful["accepted"]) == ("inconclusive", "holds")
    assert doubtful["reason"] == "only a part of the spread is in the band (at least 20.0 µs)"
