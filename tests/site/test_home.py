"""The home page: a switch between two passes, the tree, the ways out of the book."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from kinetoscope.diagnosis.symptoms import symptoms
from snippets.lab.finding.claim import SERIES
from tests.site.conftest import Opened
from tests.site.looking import box_of


def half(page: Page, value: str) -> None:
    """Only this side of the switch can be seen, on the chosen device."""
    other = {"one": "many", "many": "one"}[value]
    expect(page.locator(f".waits-half.{value}").filter(visible=True)).to_have_count(1)
    expect(page.locator(f".waits-half.{other}").filter(visible=True)).to_have_count(0)


@pytest.mark.parametrize("scripts", [True, False])
def test_the_switch_works_by_pointer_and_keyboard_with_and_without_script(opened: Opened, scripts: bool) -> None:
    page = opened("", scripts=scripts).page
    half(page, "many")
    switch = page.locator(".waits").filter(visible=True)
    switch.locator("label", has_text="1 token").click()
    half(page, "one")
    expect(switch.get_by_role("radio", name="1 token", exact=True)).to_be_focused()
    page.keyboard.press("ArrowRight")
    half(page, "many")


def test_paper_shows_both_sides_in_a_panel_as_high_as_its_content(opened: Opened) -> None:
    page = opened("").page
    page.emulate_media(media="print")
    expect(page.locator(".waits-half").filter(visible=True)).to_have_count(2)
    content, whole = (box_of(page.locator(part).first) for part in (".waits", ".device"))
    assert whole["height"] < content["height"] + 60


@pytest.mark.parametrize("width", [1280, 360])
def test_a_whole_card_leads_to_its_section(opened: Opened, width: int) -> None:
    page = opened("", width=width).page
    cards = page.locator(".symptoms li")
    expect(cards).to_have_count(len(list(symptoms())))
    cards.first.click(position={"x": 5, "y": 5})
    expect(page).to_have_url(re.compile(f"{re.escape(next(symptoms())[1].section)}$"))


def test_the_tree_is_one_screen(opened: Opened) -> None:
    assert box_of(opened("").page.locator(".symptoms"))["height"] <= 900


def test_header_and_footer_lead_to_the_series(opened: Opened) -> None:
    page = opened("mlp/").page
    expect(page.get_by_role("banner").get_by_role("link", name="The series")).to_have_count(1)
    footer = page.get_by_role("navigation", name="Elsewhere")
    for part, address in SERIES.items():
        expect(footer.get_by_role("link", name=part)).to_have_attribute("href", address)
    expect(page.locator(".chapter-links").get_by_role("link")).to_have_attribute("href", SERIES["Part 2"])


def test_a_page_that_is_not_there_offers_the_tree_and_the_chapters(opened: Opened) -> None:
    tab = opened("")
    tab.go("no/such/page/", status=404)
    page = tab.page
    page.get_by_role("article").get_by_role("link", name="What do you see?").click()
    expect(page.get_by_role("heading", name="What do you see?")).to_be_in_viewport()
