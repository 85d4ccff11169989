"""The ledger against the series and against the pages."""

import json
import re

import pytest

from snippets.lab.finding.book import all_claims, judge
from snippets.lab.page.ledger import print_claims
from snippets.lab.recording.device import DEFAULT_DEVICE, PROJECT

DOCS = PROJECT / "docs"
SERIES = [f"L{i}" for i in range(1, 13)] + [f"M{i}" for i in range(1, 14)] + [f"K{i}" for i in range(1, 6)]
BUILDER = [judge(claim, chapter, DEFAULT_DEVICE) for chapter, claim in all_claims().values()]


def test_every_claim_of_the_series_is_there_with_its_source():
    for name in SERIES:
        _, claim = all_claims()[name]
        assert claim.source is not None, name
        assert claim.source.who == "Part 2"
    part_1 = [claim for _, claim in all_claims().values() if re.fullmatch(r"P\d+", claim.id)]
    assert len(part_1) >= 20
    assert all(claim.source and claim.source.who == "Part 1" for claim in part_1)


@pytest.mark.parametrize("one", BUILDER, ids=lambda one: one.claim.id)
def test_a_verdict_on_the_builder_is_the_expected_one(one):
    if one.is_pending:
        pytest.skip(one.reason)
    assert one.word == one.claim.expected_on(DEFAULT_DEVICE)
    assert one.word in ("holds", "differs"), one.reason
    assert one.measured is not None
    assert one.measured.text
    if one.word == "differs":
        assert len(one.claim.why) > 40, "a finding is explained"


def test_no_explanation_has_a_measured_number_typed_into_it():
    unit = re.compile(r"\d[\d.,]*\s?(?:µs|us|ms|ns|TB/s|GB/s|TFLOP/s|GFLOP/s|%)(?!\w)")
    for _, claim in all_claims().values():
        assert not unit.search(claim.why), claim.id


def test_every_claim_stands_on_its_chapters_page():
    for chapter, claim in all_claims().values():
        page = "measuring" if chapter == "devices" else chapter
        assert f'"{claim.id}"' in (DOCS / f"{page}.md").read_text("utf-8"), f"{claim.id} is not shown in docs/{page}.md"


def test_the_ledger_for_machines(capsys):
    assert print_claims(DEFAULT_DEVICE, as_json=True, check=True) == 0
    ledger = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in ledger] == list(all_claims())
    keys = {"id", "chapter", "sentence", "scope", "source", "device", "measured", "verdict", "expected"}
    assert all(keys <= set(one) for one in ledger)
    assert {one["scope"] for one in ledger} <= {"every-gpu", "this-gpu", "timing"}
