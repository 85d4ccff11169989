"""The ledger: a row for each claim and device, what a row can be filtered by, and the counts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from snippets.lab.finding.claim import Claim, Source
from snippets.lab.finding.figure import Figure
from snippets.lab.page.frame import show
from snippets.lab.page.ledger import claims_table, ledger_table, status_counts
from snippets.lab.recording.device import PROJECT, showing
from snippets.lab.recording.schema import NotRecorded

# KEEP ledger
from tests.lab import samples
from tests.lab.samples import DEVICE, EVIL, Markup, assert_only_text, claim, put, sample

OTHER = "nvidia-other-8gb"


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = samples.shelf(monkeypatch, tmp_path)
    put(root, sample())
    return root


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes these the claims of the chapter mlp, and all there are."""

    def fill(*mine: Claim) -> None:
        monkeypatch.setattr(ledger, "all_claims", lambda: {one.id: ("mlp", one) for one in mine})

    return fill


def missing(device: str) -> Figure:
    raise NotRecorded("nothing there")


def on_each(device: str) -> Figure:
    """Five on the first device, four on the other."""
    return Figure(5 if device == DEVICE else 4)


def rows(table: str) -> list[list[str]]:
    """The text of each cell of the body."""
    body = table.split("<tbody>")[1]
    lines = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    return [[Markup(cell).text for cell in re.findall(r"<td>(.*?)</td>", line, re.DOTALL)] for line in lines]


def test_a_row_says_what_the_source_said_and_what_was_measured(claims: Callable[..., None], shelf: Path) -> None:
    claims(
        claim(source=Source("Part 2", "5 kernels"), why="Unneeded."),
        claim(21.5, id="M2", sentence="Not five.", why="Because of fusion.", scope="timing"),
        claim(id="M3", measure=lambda device: Figure(21.5, "us", (21.0, 22.0)), holds=lambda shown: True),
        claim(id="M4", measure=missing),
        claim(id="M5", measure=lambda device: Figure(5, conclusive=False)),
    )
    shown = ledger_table()
    assert "<caption>Claims on SAMPLE</caption>" in shown
    assert rows(shown) == [
        ["M1", "✓ holds", "Five kernels.every-gpu · mlp", "5 kernels", "5"],
        ["M2", "≠ differs", "Not five.timing · mlpBecause of fusion.", "–", "21.5"],
        ["M3", "✓ holds", "Five kernels.every-gpu · mlp", "–", "21.5 µs (21.0 to 22.0 µs)"],
        ["M4", "– not measured", "Five kernels.every-gpu · mlp", "–", "nothing there"],
        ["M5", "? inconclusive", "Five kernels.every-gpu · mlp", "–", "5"],
    ]


def test_what_a_row_is_filtered_by(claims: Callable[..., None], shelf: Path) -> None:
    claims(claim(), claim(id="O-M4", scope="timing", measure=missing))
    shown = ledger_table()
    assert shown.startswith('<div class="ledger"><div class="lab-table" role="region" tabindex="0"')
    assert (
        f'<span id="ledger-m1" class="id" data-chapter="mlp" data-scope="every-gpu" data-verdict="holds" '
        f'data-device="{DEVICE}">M1</span>'
    ) in shown
    assert 'id="ledger-o-m4" class="id" data-chapter="mlp" data-scope="timing" data-verdict="not measured"' in shown
    assert '<a href="../mlp/#claim-o-m4">mlp</a>' in shown


def test_every_device_has_a_row_and_the_builder_is_first(claims: Callable[..., None], shelf: Path) -> None:
    put(shelf, sample(), device=OTHER)
    put(shelf, sample(), device="nvidia-a-first-by-name")
    claims(claim(measure=on_each), claim(id="M2"))
    shown = ledger_table()
    assert "<caption>Claims on SAMPLE, A FIRST BY NAME and OTHER 8GB</caption>" in shown
    assert [(row[0], row[1], row[4], row[5]) for row in rows(shown)] == [
        ("M1", "✓ holds", "5", "SAMPLE"),
        ("M1", "≠ differs", "4", "A FIRST BY NAME"),
        ("M1", "≠ differs", "4", "OTHER 8GB"),
        ("M2", "✓ holds", "5", "SAMPLE"),
        ("M2", "✓ holds", "5", "A FIRST BY NAME"),
        ("M2", "✓ holds", "5", "OTHER 8GB"),
    ]
    ids = [value for name, value in Markup(shown).attributes if name == "id"]
    assert ids[:3] == ["ledger-m1", "ledger-m1-nvidia-a-first-by-name", f"ledger-m1-{OTHER}"]
    assert len(set(ids)) == len(ids) == 6
    with showing(OTHER):
        assert ledger_table() == shown


def test_the_part_of_a_chapter(claims: Callable[..., None], shelf: Path) -> None:
    claims(claim(), claim(4, id="M2", why="Because."), claim(3, id="M3", why="So."))
    shown = claims_table()
    assert "<caption>Claims on SAMPLE</caption>" in shown
    assert len(rows(shown)) == 3
    assert rows(claims_table("linear")) == []
    assert "<caption>Claims of mlp on SAMPLE</caption>" in claims_table("mlp")
    assert rows(claims_table("mlp", ["differs"])) == [
        ["M2", "≠ differs", "Five kernels.every-gpu", "–", "4"],
        ["M3", "≠ differs", "Five kernels.every-gpu", "–", "3"],
    ]


def test_the_part_of_a_chapter_on_another_device(claims: Callable[..., None], shelf: Path) -> None:
    put(shelf, sample(), device=OTHER)
    claims(claim(measure=on_each))
    with showing(OTHER):
        shown = claims_table("mlp")
    assert f'id="ledger-m1-{OTHER}"' in shown
    assert rows(shown) == [["M1", "≠ differs", "Five kernels.every-gpu", "–", "4"]]


def test_the_counts(claims: Callable[..., None], shelf: Path) -> None:
    claims(claim(measure=on_each), claim(id="M2"), claim(4, id="M3"), claim(id="M4", measure=missing))
    one = "On the SAMPLE, of 4 claims 2 hold, 1 differs, 0 are inconclusive and 1 is not measured."
    assert Markup(status_counts()).text == one
    put(shelf, sample(), device=OTHER)
    other = "On the OTHER 8GB, of 4 claims 1 holds, 2 differ, 0 are inconclusive and 1 is not measured."
    assert Markup(status_counts()).text == one + other
    assert status_counts().count("<p>") == 2


def test_where_nothing_is_recorded_nothing_is_measured(
    claims: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples.shelf(monkeypatch, tmp_path / "empty")
    claims(claim(measure=missing))
    text = "On the SAMPLE, of 1 claims 0 hold, 0 differ, 0 are inconclusive and 1 is not measured."
    assert Markup(status_counts()).text == text
    assert rows(ledger_table()) == [["M1", "– not measured", "Five kernels.every-gpu · mlp", "–", "nothing there"]]


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_claims(claims: Callable[..., None], shelf: Path, name: str) -> None:
    claims(
        claim(name, sentence=name, why=name, id="M1", source=Source(name, name, name)),
        claim(id=name, measure=lambda device: Figure(1.0, said=name)),
    )
    for shown in (ledger_table(), claims_table(), show(name, claims_table)):
        assert_only_text(shown, name)

    def without(device: str) -> Figure:
        raise NotRecorded(name)

    claims(claim(measure=without))
    for shown in (ledger_table(), claims_table()):
        assert_only_text(shown, name)


def test_the_real_ledger() -> None:
    shown = ledger_table()
    found = {row[0]: row for row in reversed(rows(shown))}  # the builder's
    assert found["M4"][1] == "≠ differs"
    assert found["M1"][3:] == ["5 kernels: GEMM, GEMM, GELU, mul, GEMM", "mm, mm, gelu, mul, mm"]
    assert 'href="../measuring/#claim-d1"' in shown
    counted = Markup(status_counts()).text
    assert counted.startswith("On the H200, of ")


def test_the_script_is_small() -> None:
    assert len((PROJECT / "docs/assets/js/ledger.js").read_bytes()) <= 3 * 1024
