"""The ledger against the series and against the pages."""

from __future__ import annotations

import re
from functools import cache

import pytest

from snippets.lab.finding.accepted import accepted_statuses
from snippets.lab.finding.book import Verdict, all_claims, find_claim, judge
from snippets.lab.page.ledger import verdict_data
from snippets.lab.page.nav import claim_page
from snippets.lab.recording.device import PROJECT
from tests.lab.samples import BOOK

DOCS = PROJECT / "docs"
ACCEPTED = accepted_statuses(BOOK) or {}
SERIES = [f"L{i}" for i in range(1, 13)] + [f"M{i}" for i in range(1, 14)] + [f"K{i}" for i in range(1, 6)]
CLAIMS = list(all_claims())
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


@cache
def verdict_on(claim_id: str) -> Verdict:
    chapter, claim = find_claim(claim_id)
    return judge(claim, chapter, BOOK)


def test_every_claim_of_the_series_is_there_with_its_source() -> None:
    for name in SERIES:
        _, claim = find_claim(name)
        assert claim.source is not None, name
        assert claim.source.who == "Part 2"
    part_1 = [claim for _, claim in all_claims().values() if re.fullmatch(r"P\d+", claim.id)]
    assert len(part_1) >= 20
    assert all(claim.source and claim.source.who == "Part 1" for claim in part_1)


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_a_verdict_on_the_default_device_is_the_accepted_one(claim_id: str) -> None:
    verdict = verdict_on(claim_id)
    assert verdict.status == ACCEPTED.get(claim_id, "not measured"), verdict.reason
    assert bool(verdict.measured and verdict.measured.text) == (verdict.status != "not measured")
    assert bool(verdict.reason) == (verdict.status in ("inconclusive", "cannot be tested", "not measured"))


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_a_claim_says_why_it_differs_and_only_then(claim_id: str) -> None:
    """A text that explains a difference is wrong where the claim holds."""
    _, claim = find_claim(claim_id)
    if ACCEPTED.get(claim_id) == "differs":
        assert len(claim.why) > 40, "a finding is explained"
    elif ACCEPTED.get(claim_id) == "holds":
        assert claim.why == ""


def test_every_timing_has_a_spread() -> None:
    """Of its processes, its samples or its steps; what has none is named here with the reason."""
    verdicts = map(verdict_on, CLAIMS)
    timed = [verdict for verdict in verdicts if verdict.claim.scope == "timing" and verdict.measured is not None]
    assert {verdict.claim.id for verdict in timed if not verdict.has_spread} == set(WITHOUT_SPREAD)


def test_no_explanation_has_a_measured_number_typed_into_it() -> None:
    unit = re.compile(r"\d[\d.,]*\s?(?:µs|us|ms|ns|TB/s|GB/s|TFLOP/s|GFLOP/s|%)(?!\w)")
    for _, claim in all_claims().values():
        assert not unit.search(claim.why), claim.id


def test_every_claim_has_its_verdict_on_its_page() -> None:
    for chapter, claim in all_claims().values():
        page = claim_page(chapter, claim.id)
        assert f'"{claim.id}"' in (DOCS / f"{page}.md").read_text("utf-8"), f"{claim.id} is not shown in docs/{page}.md"


def test_the_ledger_as_data() -> None:
    ledger = [verdict_data(verdict_on(claim_id)) for claim_id in CLAIMS]
    assert [data["id"] for data in ledger] == CLAIMS
    keys = {"id", "chapter", "sentence", "scope", "source", "device", "measured", "verdict", "accepted", "reason"}
    assert all(keys <= set(data) for data in ledger)
    assert {data["scope"] for data in ledger} <= {"every-gpu", "this-gpu", "timing"}
