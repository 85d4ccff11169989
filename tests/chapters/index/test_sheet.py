"""The sheet to print, and bars in rows."""

from __future__ import annotations

import re
from dataclasses import replace as replaced
from xml.etree import ElementTree

import pytest

from kinetoscope.diagnosis.symptoms import symptoms
from snippets.index.findings import sheet
from snippets.index.findings.bar_rows import bar_rows
from snippets.index.findings.sheet import sheet_svg
from tests.lab.samples import EVIL


def test_bars_are_shares_of_the_largest() -> None:
    svg = bar_rows([("a", 2.0, "2 s"), ("b", 1.0, "1 s"), (EVIL[0], 0.0, "none")], described="d", kind="op")
    assert re.findall(r'<rect x="26%" y="\d+" width="(.*?)%"', svg) == ["54.00", "27.00"]
    ElementTree.fromstring(svg)
    assert "<script" not in svg


def sheet_of(name: str) -> str:
    return sheet_svg(name, lambda section: f"Section of {section}?")


def test_the_sheet_has_every_leaf_with_its_section_and_rules() -> None:
    root = ElementTree.fromstring(sheet_of("A & B"))
    text = " ".join("".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text"))
    for _, symptom in symptoms():
        assert symptom.title in text
        assert symptom.look_for.replace("`", "") in text
        assert symptom.do.replace("`", "") in text
        assert f"Section of {symptom.section}?" in text
        assert all(rule in text for rule in symptom.rules)
    links = [element.get("href") for element in root.iter("{http://www.w3.org/2000/svg}a")]
    assert links == [symptom.section for _, symptom in symptoms()]


def test_text_stays_within_its_leaf(monkeypatch: pytest.MonkeyPatch) -> None:
    for element in ElementTree.fromstring(sheet_of("A")).iter("{http://www.w3.org/2000/svg}text"):
        assert 0 < float(element.get("y", "")) < sheet.HEIGHT
    branch = sheet.TREE[0]
    leaf = replaced(branch.symptoms[0], look_for="word " * 800)
    monkeypatch.setattr(sheet, "TREE", (replaced(branch, symptoms=(leaf,)),))
    with pytest.raises(ValueError, match=r"the sheet has no room for .* lines of gap-in-operators"):
        sheet_of("A")
