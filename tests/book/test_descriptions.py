"""The title and the description of a page, which search engines and link previews show."""

from __future__ import annotations

import re
from collections import Counter

import yaml

from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.page_text import pages, prose

PAGES = pages(PROJECT / "docs")


def description(page: str) -> str:
    match = re.match(r"---\n(.*?)\n---\n", PAGES[page], re.DOTALL)
    return str(yaml.safe_load(match[1]).get("description", "")) if match else ""


def test_a_page_has_a_description_of_a_sentence_or_two() -> None:
    found = {page: description(page) for page in PAGES}
    assert {page: text for page, text in found.items() if not (50 <= len(text) <= 160 and text.endswith("."))} == {}


def test_no_two_pages_are_described_alike() -> None:
    assert [text for text, count in Counter(map(description, PAGES)).items() if count > 1] == []


def test_a_page_has_one_title() -> None:
    titles = {page: re.findall(r"^# .+", prose(page, text), re.MULTILINE) for page, text in PAGES.items()}
    assert {page: found for page, found in titles.items() if len(found) != 1} == {}
