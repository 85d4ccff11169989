"""One drawing serves both schemes: what is drawn follows the page's colors, on paper as well."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.site.conftest import Opened

COLORS = """(chart, tag) => [...chart.querySelectorAll(tag)].map((part) => {
  const { fill, stroke } = getComputedStyle(part);
  return fill.startsWith("url") ? stroke : fill;
}).filter((color) => color !== "none")"""


@pytest.fixture
def page(on_trial: Opened) -> Page:
    return on_trial().page


def drawn(page: Page) -> Locator:
    return page.locator("figure.chart > svg").first


def colors(page: Page, tag: str) -> list[str]:
    """Of all parts of a kind that have one, in the order in which they are drawn."""
    found: list[str] = drawn(page).evaluate(COLORS, tag)
    return found


def test_the_palettes_toggle_recolors_a_chart(page: Page) -> None:
    before = {tag: colors(page, tag) for tag in ("path", "text")}
    page.get_by_title("Switch to dark mode").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    after = {tag: colors(page, tag) for tag in ("path", "text")}
    for tag in ("path", "text"):
        assert len(before[tag]) == len(after[tag]) > 5
        assert not any(map(str.__eq__, before[tag], after[tag]))


def test_paper_is_white_in_the_dark(page: Page) -> None:
    before = colors(page, "path")
    page.get_by_title("Switch to dark mode").click()
    page.emulate_media(media="print")
    assert colors(page, "path") == before


def test_a_chart_says_what_it_shows(page: Page) -> None:
    expect(drawn(page)).to_have_role("img")
    expect(drawn(page)).to_have_accessible_name(re.compile(r"^Time eager: \d+ µs, .+ compiled: \d+ µs, "))


def test_the_numbers_stand_below_without_scripts(on_trial: Opened) -> None:
    page = on_trial(scripts=False).page
    figure = page.locator("figure.chart").filter(visible=True).first
    figure.locator("summary").press("Enter")
    assert figure.get_by_role("row").count() > 8
    expect(figure.get_by_role("row").nth(1)).to_be_visible()
