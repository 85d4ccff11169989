"""The search index after a build: notebooks without code and buttons, chapters first, tags at a page's head only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.tools.search import CHAPTER_BOOST, INDEX, NOTEBOOK_BOOST, asked, improve_index

HEAD = {"location": "mlp/", "title": "MLP", "text": "<p>Three.</p>", "tags": ["GELU"]}
SECTION = {**HEAD, "location": "mlp/#why", "title": "Why?"}
OTHER = {"location": "glossary/#gelu", "title": "GELU", "text": "<p>A curve.</p>", "boost": 0.5}
NOTEBOOK = {
    "location": "labs/mlp/#run-it",
    "title": "Run it¶",
    "text": "<p>First <code>x</code>.</p> Copied! <pre>import torch\nrun()</pre>  <p>Then.</p>",
}


def improved(site: Path, *entries: dict[str, Any]) -> list[dict[str, Any]]:
    """The index of a site that had these entries."""
    path = site / INDEX
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"config": {"lang": ["en"]}, "docs": entries}), encoding="utf-8")
    assert improve_index(site, {"mlp"}) == len(entries)
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


@pytest.mark.parametrize("text", ["[]", "{}", '{"docs": [{"location": "mlp/"}]}'])
def test_another_format(tmp_path: Path, text: str) -> None:
    (tmp_path / "search").mkdir()
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(ValueError, match=r"search_index\.json is not an index of Material's search$"):
        improve_index(tmp_path, ())
