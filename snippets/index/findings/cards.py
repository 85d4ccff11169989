"""The tree *What do you see?* as cards: each leaf with a picture, what to look for, what to do, and its section."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from kinetoscope.diagnosis.symptoms import HOW_TO_RECORD, RECORD, ROOT, TREE, Branch, Symptom
from kinetoscope.html import Html, with_code
from snippets.lab.page.glossary import section_title
from snippets.lab.recording.device import PROJECT


def symptom_cards(pictures: Mapping[str, Html]) -> Html:
    """The tree as HTML for the home page; a symptom without a picture, by its name, is text only.

    Raises `ValueError` if a section does not exist.
    """
    branches = "".join(_branch(branch, pictures) for branch in TREE)
    record = f'<a href="{escape(HOW_TO_RECORD)}">{escape(RECORD)}</a>'
    root = f"{record}{escape(ROOT.removeprefix(RECORD))}"
    return Html(f'<div class="symptoms"><p class="root">{root}</p>{branches}</div>')


def _branch(branch: Branch, pictures: Mapping[str, Html]) -> str:
    cards = "".join(_card(symptom, pictures.get(symptom.name, Html(""))) for symptom in branch.symptoms)
    return (
        f'<div class="branch"><h3>{escape(branch.title)}</h3><p class="question">{escape(branch.question)}</p>'
        f'<ul class="leaves">{cards}</ul></div>'
    )


def _card(symptom: Symptom, picture: Html) -> str:
    sections = "".join(map(_section, (symptom.section, *symptom.also)))
    return (
        f'<li id="see-{symptom.name}">{picture}'
        f'<h4><a href="{escape(symptom.section)}">{escape(symptom.title)}</a></h4>'
        f"<p>{with_code(symptom.look_for)}</p><p><strong>Do:</strong> {with_code(symptom.do)}</p>"
        f"{sections}</li>"
    )


def _section(section: str) -> str:
    """A link to a section of a leaf."""
    return f'<p class="section"><a href="{escape(section)}">{escape(title_of_section(section))}</a></p>'


def title_of_section(section: str) -> str:
    """The heading of a section that a leaf leads to, as plain text. Raises `ValueError` if it does not exist."""
    page, _, anchor = section.partition("/#")
    title = section_title(PROJECT / "docs", page, anchor)
    if not title:
        raise ValueError(f"diagnosis/symptoms.py: a leaf leads to {section}, which does not exist")
    return title
