"""The sections to which a rule of the diagnosis sends its reader."""

from __future__ import annotations

import re
from functools import cache

import markdown
import pytest

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.diagnosis.pages import PAGES
from kinetoscope.diagnosis.rule import Rule
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.diagnosis.symptoms import symptoms
from kinetoscope.report.rank_late import STRAGGLERS
from snippets.lab.finding import Run, compare_ranks
from snippets.lab.finding.book import chapters_with_findings, figure
from snippets.lab.page.glossary import section_title
from snippets.lab.page.nav import chapter_pages
from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.page_text import prose
from tests.book.test_docs import PAGES as TEXTS
from tests.lab.samples import BOOK

WITHOUT_A_TRACE = {
    "gpu-slowed": "devices.small_interleaved_when_shared",
    "profiler-overhead": "matmul_add.buffer_request",
}
"""Faults that a page shows by a number: rule -> figure on that page."""


def test_only_rules_have_pages() -> None:
    assert PAGES.keys() <= {rule.name for rule in RULES}
    assert PAGES.keys() >= WITHOUT_A_TRACE.keys()
    assert list(PAGES) == sorted(PAGES)


SECTIONS = {
    **PAGES,
    **{symptom.name: symptom.section for _, symptom in symptoms()},
    **{f"{symptom.name}, too: {section}": section for _, symptom in symptoms() for section in symptom.also},
}
"""Rule or symptom -> the section that shows it."""


@cache
def anchors(page: str) -> set[str]:
    """The anchors of a page's headings."""
    html = markdown.markdown(prose(f"{page}.md", TEXTS[f"{page}.md"]), extensions=["toc", "attr_list"])
    given = re.findall(r"#+ .*\{ *#([\w-]+) *\}", TEXTS[f"{page}.md"])
    return {*re.findall(r'<h[1-6] id="([^"]+)"', html), *given}


def test_the_section_exists_in_the_built_page() -> None:
    problems = []
    for name, section in SECTIONS.items():
        match = re.fullmatch(r"(\w+)/#([\w-]+)", section)
        assert match is not None, name
        page, anchor = match.groups()
        if anchor not in anchors(page) or not section_title(PROJECT / "docs", page, anchor):
            problems.append(f"{name}: no section {section}")
    assert problems == []


@pytest.mark.slow
def test_the_rule_finds_its_fault_in_a_recording_of_that_page() -> None:
    problems = []
    for rule in (each for each in RULES if each.name in PAGES and each.name not in WITHOUT_A_TRACE):
        page = PAGES[rule.name].partition("/")[0]
        (chapter,) = (each for each in chapters_with_findings() if page in chapter_pages(each))
        runs = (BOOK[f"{chapter}/{name}"] for name in BOOK.recorded_names(chapter))
        if not any(has_fault(rule, run) for run in runs if run.recording.has_trace):
            problems.append(f"{rule.name}: no recording of {chapter} has this fault")
    assert problems == []


def has_fault(rule: Rule, run: Run) -> bool:
    """Whether a rule finds its fault in a trace; the rule for late ranks compares all ranks."""
    if rule.name == STRAGGLERS:
        return run.environment.gpus > 1 and compare_ranks(run).straggler is not None
    return bool(run.trace.steps and diagnose(run.trace, [rule]).findings)


@pytest.mark.parametrize("rule", WITHOUT_A_TRACE)
def test_the_number_that_shows_the_fault_is_in_that_section(rule: str) -> None:
    page, _, anchor = PAGES[rule].partition("/#")
    title = section_title(PROJECT / "docs", page, anchor)
    section = re.sub("`", "", TEXTS[f"{page}.md"]).partition(f"## {title}")[2].partition("\n## ")[0]
    assert WITHOUT_A_TRACE[rule] in section
    assert figure(WITHOUT_A_TRACE[rule], BOOK).number > 0
