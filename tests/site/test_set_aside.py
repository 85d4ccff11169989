"""Content that pages set aside in their own files: loaded once when a reader opens it, and a link without scripts."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from snippets.lab.finding.device import all_devices
from snippets.lab.tools.set_aside import FILE
from tests.lab.samples import BOOK
from tests.site.conftest import Opened

OTHERS = [device for device in all_devices(BOOK.root) if device.name != BOOK.name and device.recorded_names("mlp")]
FIRST = "mlp-opening"
"""The page's first fence with a panel for each device."""
needs_another_device = pytest.mark.skipif(not OTHERS, reason="one device has recorded this chapter")


def choose_other(page: Page) -> None:
    page.get_by_role("banner").get_by_label("GPU of all figures").select_option(OTHERS[0].short_name)


def panel(page: Page, fence: str) -> Locator:
    """The panel of another device."""
    return page.locator(f'.lab[data-fence="{fence}"] > .device').nth(1)


@needs_another_device
def test_the_panels_of_a_device_come_with_one_request(opened: Opened) -> None:
    tab = opened("mlp/")
    held = tab.page.locator(".device > noscript")
    assert held.count() > 5
    with tab.page.expect_response(lambda response: response.url.endswith(FILE)):
        choose_other(tab.page)
    expect(held).to_have_count(0)
    expect(panel(tab.page, FIRST).locator("figure").first).to_be_visible()
    assert [response.url.endswith(FILE) for response in tab.responses].count(True) == 1


@needs_another_device
def test_a_part_that_is_lost_leaves_its_link(opened: Opened) -> None:
    page = opened("mlp/").page
    page.route(f"**/{FILE}", lambda route: route.fulfill(body="<!doctype html><p>something else</p>"))
    try:
        choose_other(page)
        link = panel(page, FIRST).get_by_role("link")
        expect(link).to_have_attribute("href", re.compile(rf"^{FILE}#part-\d+$"))
    finally:
        page.unroute_all()


@needs_another_device
def test_without_scripts_a_link_leads_to_the_panel(opened: Opened) -> None:
    page = opened("mlp/", scripts=False).page
    panel(page, FIRST).locator("> summary").click()
    link = panel(page, FIRST).get_by_role("link")
    name = link.inner_text()
    assert name.startswith(f"{OTHERS[0].short_name}: ")
    link.click()
    section = page.locator(f"section:has(> h2:text-is('{name}'))").first
    expect(section.locator("figure").first).to_be_visible()


def test_the_tables_of_a_timeline_come_with_its_details(opened: Opened) -> None:
    tab = opened("attention/")
    figure = tab.page.locator(".lab-timeline").filter(visible=True).first
    assert not [response for response in tab.responses if response.url.endswith(FILE)]
    figure.locator(".slice.gemm, .slice.pointwise, .slice.other").first.dispatch_event("click")
    expect(figure.locator(".selected dd").first).to_be_visible()
    expect(figure.locator(".selected")).to_contain_text("registers")
    figure.locator("details.lab-details > summary").first.press("Enter")
    expect(figure.locator("details.lab-details tbody tr").first).to_be_visible()
    expect(figure.locator("noscript")).to_have_count(0)
