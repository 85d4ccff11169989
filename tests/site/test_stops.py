"""Stops of the Tab key: few enough to cross a chapter, and all that can be done by pointer can be reached."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.site.conftest import Opened
from tests.site.first_views import STOPS, FirstViews
from tests.site.serving import CHAPTERS

MOST_STOPS = 150
IS_NEW = """() => {
  const at = document.activeElement;
  if (!at || at === document.body || at.counted) return false;
  at.counted = true;
  return true;
}"""


def count_stops(page: Page) -> int:
    """How often Tab leads to something new, from the top of the page to its end."""
    stops = 0
    while stops <= 2 * MOST_STOPS:
        page.keyboard.press("Tab")
        if not page.evaluate(IS_NEW):
            break
        stops += 1
    return stops


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_is_crossed_in_few_stops(first_views: FirstViews, weigh: Callable[[str], None], chapter: str) -> None:
    stops = first_views.of(chapter).stops
    weigh(line := f"{chapter}: {stops} of {MOST_STOPS} stops of the Tab key")
    assert 20 < stops < MOST_STOPS, line


def test_what_is_counted_are_the_stops(opened: Opened) -> None:
    page = opened("training_step/").page
    counted = page.evaluate(STOPS)
    assert 0 <= counted - count_stops(page) <= 5


def test_arrow_keys_lead_through_a_table(on_trial: Opened) -> None:
    page = on_trial().page
    body = page.locator(".lab-kernels tbody").filter(visible=True).first
    stops, focused = body.locator("button.kernel-name, summary"), body.locator(":focus")
    stops.first.focus()
    for stop in (1, 2):
        page.keyboard.press("ArrowDown")
        expect(stops.nth(stop)).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(stops.nth(1)).to_be_focused()
    page.keyboard.press("Tab")
    expect(focused).to_have_count(0)
    page.keyboard.press("Shift+Tab")
    expect(stops.nth(1)).to_be_focused()


def test_contents_and_zoom_are_one_stop_each(opened: Opened) -> None:
    page = opened("mlp/").page
    for group in (".md-nav--secondary", ".md-sidebar--primary .md-nav--primary"):
        links = page.locator(f"{group} a[href]").filter(visible=True)
        assert links.evaluate_all("(all) => all.filter((link) => link.tabIndex === 0).length") == 1
        links.first.focus()
        page.keyboard.press("ArrowDown")
        expect(links.nth(1)).to_be_focused()
    buttons = page.locator(".lab-timeline .zoom").first.locator("button")
    assert buttons.evaluate_all("(all) => all.map((button) => button.tabIndex)") == [0, -1, -1]


def test_the_choice_of_the_device_is_one_stop(opened: Opened) -> None:
    page = opened("mlp/").page
    expect(page.locator(".device-switch select")).to_have_count(1)
