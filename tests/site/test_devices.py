"""Two recorded devices: one choice for the whole site, in tables, pictures and sentences, kept from page to page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from snippets.lab.finding.book import figure
from snippets.lab.recording.device import DEFAULT_DEVICE, short_name
from tests.lab.samples import BOOK
from tests.second_device import MHZ as OTHER_MHZ, NAME as OTHER
from tests.site.conftest import Opened

CLOCK = "mlp.eager.interleaved_clock_mhz"
MHZ = {DEFAULT_DEVICE: figure(CLOCK, BOOK).text, OTHER: f"{OTHER_MHZ:,.0f} MHz"}


def switch(page: Page) -> Locator:
    return page.get_by_role("banner").get_by_label("GPU of all figures")


def choose(page: Page, device: str) -> None:
    switch(page).select_option(short_name(device))


def sentence(page: Page) -> Locator:
    """The computed value in a sentence."""
    return page.locator(f"[data-figure='{CLOCK}']").filter(visible=True)


def expect_everything_of(page: Page, device: str) -> None:
    other = OTHER if device == DEFAULT_DEVICE else DEFAULT_DEVICE
    panels = page.locator(f".device[data-device={device}]")
    assert panels.count() > 0
    expect(page.locator(f".device[data-device={device}][hidden]")).to_have_count(0)
    expect(page.locator(f".device[data-device={other}]:not([hidden])")).to_have_count(0)
    expect(page.locator(".device-switch select")).to_have_value(device)
    expect(sentence(page)).to_have_text(MHZ[device])
    name = "NVIDIA H200" if device == DEFAULT_DEVICE else "NVIDIA T100"
    expect(page.locator(".provenance").filter(visible=True)).to_contain_text(name)


def test_the_default_device_comes_first(on_trial: Opened) -> None:
    page = on_trial().page
    assert switch(page).locator("option").all_text_contents() == [short_name(DEFAULT_DEVICE), short_name(OTHER)]
    expect_everything_of(page, DEFAULT_DEVICE)


def test_one_choice_is_for_all_and_is_kept(on_trial: Opened) -> None:
    tab = on_trial()
    choose(tab.page, OTHER)
    expect_everything_of(tab.page, OTHER)
    tab.go("next/")
    expect_everything_of(tab.page, OTHER)
    choose(tab.page, DEFAULT_DEVICE)
    expect_everything_of(tab.page, DEFAULT_DEVICE)
    tab.go("trial/")
    expect_everything_of(tab.page, DEFAULT_DEVICE)


def test_the_choice_by_keyboard(on_trial: Opened) -> None:
    page = on_trial().page
    switch(page).focus()
    page.keyboard.press("ArrowDown")
    expect_everything_of(page, OTHER)


@pytest.mark.parametrize("device", [DEFAULT_DEVICE, OTHER])
def test_a_guess_is_judged_by_the_device_at_hand(on_trial: Opened, device: str) -> None:
    page = on_trial().page
    choose(page, device)
    page.get_by_role("spinbutton").first.fill("5")
    page.get_by_role("spinbutton").first.press("Enter")
    line = page.locator(".guess p").filter(visible=True)
    expect(line).to_contain_text(f"Measured: 5 on the {short_name(device)}.")
    expect(line).to_be_focused()


@pytest.mark.parametrize("width", [1280, 360])
def test_a_page_has_one_switch_always_in_sight(on_trial: Opened, width: int) -> None:
    page = on_trial(width=width).page
    expect(page.locator(".device-switch")).to_have_count(1)
    page.mouse.wheel(0, 3000)
    expect(switch(page)).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("radio", name=short_name(OTHER))).to_have_count(0)


def test_paper_shows_the_chosen_device(on_trial: Opened) -> None:
    page = on_trial().page
    choose(page, OTHER)
    page.emulate_media(media="print")
    expect_everything_of(page, OTHER)


@pytest.mark.parametrize("fragment", ["claim-m4-nvidia-t100", "claim-m1-nvidia-t100"])
def test_a_link_to_a_figure_of_a_device_chooses_it_for_this_visit(on_trial: Opened, fragment: str) -> None:
    tab = on_trial()
    tab.go("next/")
    tab.go(f"trial/#{fragment}")
    expect(tab.page.locator(f"#{fragment}")).to_be_in_viewport()
    expect_everything_of(tab.page, OTHER)
    tab.go("next/")
    expect_everything_of(tab.page, DEFAULT_DEVICE)


def test_without_scripts_another_device_is_a_fold(on_trial: Opened) -> None:
    page = on_trial(scripts=False).page
    expect(sentence(page)).to_have_text(MHZ[DEFAULT_DEVICE])
    expect(page.locator(".device-switch")).to_have_count(0)
    expect(page.locator(".provenance").filter(visible=True)).to_contain_text("NVIDIA H200")
    fold = page.locator("[data-fence=trial-provenance] > details.device")
    fold.locator("summary").first.click()
    expect(fold.locator(".provenance")).to_contain_text("NVIDIA T100")
    expect(fold.locator(".provenance")).to_be_visible()
