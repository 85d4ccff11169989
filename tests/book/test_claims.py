"""The ledger against the series and against the pages. `make check` compares its verdicts with the accepted ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from snippets.lab.finding.accepted import accepted_statuses
from snippets.lab.finding.book import Verdict, all_claims, chapters_with_findings, judge_all
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.device import Device
from snippets.lab.page.ledger import verdict_data
from snippets.lab.page.verdict import is_of_the_series_gpu
from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.page_text import executed_fences, pages
from tests.chapters.altered import poor_figures
from tests.lab.samples import BOOK

ACCEPTED = accepted_statuses(BOOK) or {}
SERIES = {"Part 1": {"P": 47}, "Part 2": {"L": 12, "M": 13, "K": 5}, "Part 3": {"A": 12}}
"""Part of the series -> prefix of its claims -> how many there are."""
WITHOUT_SPREAD = {
    "F53": "the tuner's choice, by name",
    "F118": "the median clock of seconds, one number for each kernel",
    "F121": "likewise",
    "R5": "one launch waits in the step",
    "R6": "the same launch",
    "RG62": "the mean power of a second, one number for each mode",
    "R17": "a process has one first step",
    "TS30": "likewise",
}
"""Claims about times that one number decides, and why."""


@pytest.fixture(scope="module")
def ledger() -> list[Verdict]:
    """Each claim, judged once."""
    return list(judge_all(BOOK))


def test_every_claim_of_the_series_is_there_with_its_source() -> None:
    for who, counts in SERIES.items():
        named = {f"{prefix}{number}" for prefix, count in counts.items() for number in range(1, count + 1)}
        assert {claim.id for _, claim in all_claims().values() if claim.source and claim.source.who == who} == named


def test_a_verdict_has_a_value_or_a_reason(ledger: list[Verdict]) -> None:
    without_value = {each.claim.id for each in ledger if not (each.measured and each.measured.text)}
    assert without_value == {each.claim.id for each in ledger if each.status == "not measured"}
    undecided = ("inconclusive", "cannot be tested", "not measured")
    with_reason = {each.claim.id for each in ledger if each.reason}
    assert with_reason == {each.claim.id for each in ledger if each.status in undecided}


def test_a_claim_says_why_it_differs_and_only_then() -> None:
    """A text that explains a difference is wrong where the claim holds."""
    why = {claim_id: claim.why for claim_id, (_, claim) in all_claims().items()}
    assert [name for name in why if ACCEPTED.get(name) == "differs" and len(why[name]) <= 40] == []
    assert [name for name in why if ACCEPTED.get(name) == "holds" and why[name]] == []


def test_a_page_lists_what_is_different_from_the_series() -> None:
    """What differs from the GPU of the series is folded in its section, so the page has a table of it."""
    missing = []
    for page, text in pages(PROJECT / "docs").items():
        bodies = [fence.body for fence in executed_fences(page, text)]
        shown = {name for body in bodies if "verdicts" in body for name in re.findall(r'"([^"]*)"', body)}
        chapters = {chapter for name, (chapter, claim) in all_claims().items() if name in shown and is_folded(claim)}
        tables = (f'claims_table, "{chapter}", statuses=("differs",)' for chapter in sorted(chapters))
        missing += [f"{page}: {table}" for table in tables if not any(table in body for body in bodies)]
    assert missing == []


def is_folded(claim: Claim) -> bool:
    return is_of_the_series_gpu(claim) and ACCEPTED.get(claim.id) == "differs"


def test_every_timing_has_a_spread(ledger: list[Verdict]) -> None:
    """Of its processes, its samples or its steps; what has none is named here with the reason."""
    timed = [each for each in ledger if each.claim.scope == "timing" and each.measured is not None]
    assert {each.claim.id for each in timed if not each.has_spread} == set(WITHOUT_SPREAD)


def test_no_explanation_has_a_measured_number_typed_into_it() -> None:
    unit = re.compile(r"\d[\d.,]*\s?(?:[mµun]s|[GT]B/s|[kMGT]B|T?FLOP|GFLOP/s|%)(?!\w)")
    assert [claim.id for _, claim in all_claims().values() if unit.search(claim.why)] == []


def test_every_figure_is_conclusive_and_has_a_text() -> None:
    """On the default device, where it is recorded."""
    found = {chapter: poor_figures(chapter, BOOK, may_be_missing=True) for chapter in chapters_with_findings()}
    assert {chapter: figures for chapter, figures in found.items() if figures} == {}


def test_without_recordings_nothing_is_measured(tmp_path: Path) -> None:
    judged = judge_all(Device(tmp_path, BOOK.name))
    assert [each.claim.id for each in judged if (each.status, each.is_pending) != ("not measured", True)] == []


def test_the_ledger_as_data(ledger: list[Verdict]) -> None:
    rows = [verdict_data(verdict) for verdict in ledger]
    assert [data["id"] for data in rows] == list(all_claims())
    keys = {"id", "chapter", "sentence", "scope", "source", "device", "measured", "verdict", "accepted", "reason"}
    assert all(keys <= set(data) for data in rows)
    assert {data["scope"] for data in rows} <= {"every-gpu", "this-gpu", "timing"}
