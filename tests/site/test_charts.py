"""One drawing serves both schemes: what is drawn follows the page's colors, on paper as well."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.site.conftest import Opened

FILLS = """(chart) => [...chart.querySelectorAll("path, text")].map((part) => {
  const { fill, stroke } = getComputedStyle(part);
  return [part.tagName, fill.startsWith("url") ? stroke : fill];
})"""
SERIES = """(chart) => {
  const probe = chart.appendChild(document.createElementNS(chart.namespaceURI, "g"));
  probe.style.color = "var(--gemm-kind)";
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}"""


@pytest.fixture
def page(on_trial: Opened) -> Page:
    return on_trial().page


def drawn(page: Page) -> Locator:
    return page.locator("figure.chart > svg").first


def as_written(color: str) -> str:
    """`rgb(43, 108, 196)` -> `#2b6cc4`."""
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", color)[:3])


def colors(page: Page, tag: str) -> list[str]:
    """Of all parts of a kind that have one, in the order in which they are drawn."""
    found = drawn(page).evaluate(FILLS)
    return [as_written(color) for name, color in found if name == tag and color != "none"]


def test_the_palettes_toggle_recolors_a_chart(page: Page) -> None:
    before = {tag: colors(page, tag) for tag in ("path", "text")}
    series = drawn(page).evaluate(SERIES)
    assert as_written(series) in before["path"]
    page.get_by_title("Switch to dark mode").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    after = {tag: colors(page, tag) for tag in ("path", "text")}
    assert drawn(page).evaluate(SERIES) != series
    assert as_written(drawn(page).evaluate(SERIES)) in after["path"]
    for tag in ("path", "text"):
        assert len(before[tag]) == len(after[tag]) > 5
        assert not any(map(str.__eq__, before[tag], after[tag]))


def test_paper_is_white_in_the_dark(page: Page) -> None:
    series = drawn(page).evaluate(SERIES)
    page.get_by_title("Switch to dark mode").click()
    page.emulate_media(media="print")
    assert drawn(page).evaluate(SERIES) == series


def test_a_chart_says_what_it_shows(page: Page) -> None:
    expect(drawn(page)).to_have_role("img")
    expect(drawn(page)).to_have_accessible_name(re.compile(r"^Time eager: \d+ µs, .+ compiled: \d+ µs, "))


def test_the_numbers_stand_below_without_scripts(on_trial: Opened) -> None:
    page = on_trial(scripts=False).page
    figure = page.locator("figure.chart").filter(visible=True).first
    figure.locator("summary").press("Enter")
    assert figure.get_by_role("row").count() > 8
    expect(figure.get_by_role("row").nth(1)).to_be_visible()
