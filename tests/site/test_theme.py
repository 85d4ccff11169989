"""Features of the theme that the book relies on: the palette's toggle, the way from page to page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from snippets.lab.page.install import WHEEL
from tests.site.conftest import Opened
from tests.site.looking import Scheme

IS_WHOLE = """() => {
  const list = document.querySelector(".md-sidebar--primary .md-sidebar__scrollwrap");
  const edge = list.querySelector(".md-nav--primary > .md-nav__title").getBoundingClientRect().bottom;
  const places = [...list.querySelectorAll(".md-nav__link")].map((link) => link.getBoundingClientRect());
  return list.scrollTop > 0 && !places.some(({ top, bottom }) => top < edge + 7 && bottom > edge + 1);
}"""
"""The list of pages is scrolled, and its first entry in sight is whole and below the fade of the site's name."""


def scheme(page: Page) -> str | None:
    return page.locator("body").get_attribute("data-md-color-scheme")


@pytest.mark.parametrize(("preferred", "shown"), [("light", "default"), ("dark", "slate")])
def test_the_scheme_is_what_the_reader_prefers(opened: Opened, preferred: Scheme, shown: str) -> None:
    expect(opened("", scheme=preferred).page.locator("body")).to_have_attribute("data-md-color-scheme", shown)


def test_the_toggle_changes_the_scheme_on_every_page(opened: Opened) -> None:
    tab = opened("")
    tab.page.get_by_title("Switch to dark mode").click()
    expect(tab.page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    tab.go("devices/")
    assert scheme(tab.page) == "slate"
    tab.page.get_by_title("Switch to light mode").click()
    expect(tab.page.locator("body")).to_have_attribute("data-md-color-scheme", "default")


def test_chapters_are_linked_in_the_order_of_learning(opened: Opened) -> None:
    footer = opened("linear/").page.get_by_role("navigation", name="Footer")
    expect(footer.get_by_role("link", name="Previous:")).to_have_attribute("href", "../matmul_add/")
    expect(footer.get_by_role("link", name="Next:")).to_have_attribute("href", "../mlp/")


def test_the_wheel_is_installed_from_where_the_site_is_served(opened: Opened) -> None:
    page = opened("your_trace/").page
    address = page.url.partition("your_trace/")[0] + WHEEL
    lines = (page.locator("[data-fence=your-trace-first-lines] code").text_content() or "").splitlines()
    assert lines[1] == f"pip install {address}"
    (uvx, pipx) = (page.locator("[data-fence=your-trace-without-installing] code").text_content() or "").splitlines()
    assert uvx == f"uvx --from {address} kinetoscope report trace.json.gz"
    assert pipx == f"pipx run --spec {address} kinetoscope report trace.json.gz"
    assert page.request.get(address).body()[:4] == b"PK\x03\x04"


@pytest.mark.parametrize("page", ["claims/", "decoder_growing/", "glossary/"])
def test_the_list_of_pages_opens_with_a_whole_entry(opened: Opened, page: str) -> None:
    opened(page).page.wait_for_function(IS_WHOLE)


def test_the_list_of_pages_keeps_a_whole_entry_when_it_grows(opened: Opened) -> None:
    page = opened("glossary/").page
    page.wait_for_function(IS_WHOLE)
    for height in (640, 700, 900):
        page.set_viewport_size({"width": 1280, "height": height})
        page.wait_for_function(f"() => innerHeight === {height} && ({IS_WHOLE})()")
