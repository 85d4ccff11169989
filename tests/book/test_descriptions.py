"""The title and the description of a page, which search engines and link previews show."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import yaml

from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.page_text import pages, prose

PAGES = pages(PROJECT / "docs")


def description(page: str) -> str:
    match = re.match(r"---\n(.*?)\n---\n", PAGES[page], re.DOTALL)
    return str(yaml.safe_load(match[1]).get("description", "")) if match else ""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_a_description_of_a_sentence_or_two(page: str) -> None:
    assert 50 <= len(description(page)) <= 160
    assert description(page).endswith(".")


def test_no_two_pages_are_described_alike() -> None:
    assert [text for text, count in Counter(map(description, PAGES)).items() if count > 1] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_one_title(page: str) -> None:
    text = prose(page, PAGES[page])
    assert len(re.findall(r"^# \S", text, re.MULTILINE)) == 1
