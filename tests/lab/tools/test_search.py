"""The search index after a build: notebooks without code and buttons, chapters first, tags at a page's head only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.tools.search import (
    CHAPTER_BOOST,
    INDEX,
    NOTEBOOK_BOOST,
    WORDS_BOOST,
    asked,
    improve_index,
    require_sections,
    section_words,
)

HEAD = {"location": "mlp/", "title": "MLP", "text": "<p>Three.</p>", "tags": ["GELU"]}
SECTION = {**HEAD, "location": "mlp/#why", "title": "Why?"}
OTHER = {"location": "glossary/#gelu", "title": "GELU", "text": "<p>A curve.</p>", "boost": 0.5}
NOTEBOOK = {
    "location": "labs/mlp/#run-it",
    "title": "Run it¶",
    "text": "<p>First <code>x</code>.</p> Copied! <pre>import torch\nrun()</pre>  <p>Then.</p>",
}


def improved(site: Path, *entries: dict[str, Any], words: Mapping[str, list[str]] = {}) -> list[dict[str, Any]]:
    """The index of a site that had these entries."""
    path = site / INDEX
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"config": {"lang": ["en"]}, "docs": entries}), encoding="utf-8")
    assert improve_index(site, {"mlp"}, words) == len(entries)
    index = json.loads(path.read_text(encoding="utf-8"))
    assert index["config"] == {"lang": ["en"]}
    found: list[dict[str, Any]] = index["docs"]
    return found


def test_an_index(tmp_path: Path) -> None:
    head, section, other, notebook = improved(tmp_path, HEAD, SECTION, OTHER, NOTEBOOK)
    assert head == {**HEAD, "boost": CHAPTER_BOOST}
    assert section == {"location": "mlp/#why", "title": "Why?", "text": "<p>Three.</p>", "boost": CHAPTER_BOOST}
    assert other == OTHER
    assert notebook == {
        "location": "labs/mlp/#run-it",
        "title": "Run it",
        "text": "<p>First <code>x</code>.</p> <p>Then.</p>",
        "boost": NOTEBOOK_BOOST,
    }


def test_a_page_of_a_chapter_keeps_its_own_boost(tmp_path: Path) -> None:
    (second,) = improved(tmp_path, {**HEAD, "boost": 0.5})
    assert second == {**HEAD, "boost": 0.5 * CHAPTER_BOOST}


def test_questions_lead_to_their_section(tmp_path: Path) -> None:
    text = "<p>People ask: Why is <code>a::b</code>\nslow? Is x &lt; y? And why?</p> <p>Why? Here.</p>"
    section = {"location": "rows/#b", "title": "B", "text": text, "tags": ["of the page"]}
    assert improved(tmp_path, section) == [{**section, "tags": ["Why is a::b slow?", "Is x < y?", "And why?"]}]
    assert asked("<p>Other people ask: Why?</p>") == []


def test_words_lead_to_their_section(tmp_path: Path) -> None:
    text = "<p>People ask: Why?</p>"
    head, section = improved(tmp_path, HEAD, {**SECTION, "text": text}, words={"mlp/#why": ["GELU slow"]})
    assert head == {**HEAD, "boost": CHAPTER_BOOST}
    assert section == {**SECTION, "text": text, "tags": ["GELU slow", "Why?"], "boost": WORDS_BOOST}


@pytest.mark.parametrize(("location", "page"), [("mlp/#gone", "mlp"), ("#gone", "index")])
def test_words_of_a_section_that_is_gone(tmp_path: Path, location: str, page: str) -> None:
    improved(tmp_path, HEAD, SECTION)
    require_sections(tmp_path, {"mlp/#why": ["a"]})
    with pytest.raises(ValueError, match=rf"^docs/{page}\.md: `words` names #gone, which is no section of this page$"):
        require_sections(tmp_path, {location: ["a"]})


def test_words_are_read_from_the_front_matter(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("---\nwords:\n  see: [slow, .item()]\n---\n# Home\n")
    (tmp_path / "mlp.md").write_text("---\ntags: [GELU]\nwords: # comment\n  why: [4]\n---\n# MLP\n")
    (tmp_path / "plain.md").write_text("# Plain\n\n---\nwords: none\n---\n")
    (tmp_path / "tagged.md").write_text("---\ntags: [a]\n---\n# Tagged\n")
    assert section_words(tmp_path) == {"#see": ["slow", ".item()"], "mlp/#why": ["4"]}


@pytest.mark.parametrize("text", ["[]", "{}", '{"docs": [{"location": "mlp/"}]}'])
def test_another_format(tmp_path: Path, text: str) -> None:
    (tmp_path / "search").mkdir()
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(ValueError, match=r"search_index\.json is not an index of Material's search$"):
        improve_index(tmp_path, (), {})
