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


def choose(page: Page, device: str) -> None:
    """By the first tab of that name."""
    page.locator(".tabbed-labels").first.get_by_text(short_name(device), exact=True).click()


def sentence(page: Page) -> Locator:
    """The computed value in a sentence."""
    return page.locator(f"[data-figure='{CLOCK}']").filter(visible=True)


def expect_everything_of(page: Page, device: str) -> None:
    other = OTHER if device == DEFAULT_DEVICE else DEFAULT_DEVICE
    sets = page.locator(".tabbed-set").count()
    assert sets > 0
    expect(page.locator(f"input[data-device={device}]:checked")).to_have_count(sets)
    expect(page.locator(f"input[data-device={other}]:checked")).to_have_count(0)
    lines = page.evaluate(
        "() => [...document.querySelectorAll('.devices > .tabbed-labels > label')]"
        ".filter(label => getComputedStyle(label).boxShadow !== 'none').map(label => label.textContent)"
    )
    assert lines == [short_name(device)] * sets
    expect(sentence(page)).to_have_text(MHZ[device])
    name = "NVIDIA H200" if device == DEFAULT_DEVICE else "NVIDIA T100"
    expect(page.locator(".provenance").filter(visible=True)).to_contain_text(name)


def test_the_default_device_comes_first(on_trial: Opened) -> None:
    page = on_trial().page
    assert page.locator(".tabbed-labels").first.inner_text().split() == [short_name(DEFAULT_DEVICE), short_name(OTHER)]
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
    page.locator(f"input[data-device={DEFAULT_DEVICE}]").first.focus()
    page.keyboard.press("ArrowRight")
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


def test_without_scripts_a_tab_is_opened_all_the_same(on_trial: Opened) -> None:
    page = on_trial(scripts=False).page
    expect(sentence(page)).to_have_text(MHZ[DEFAULT_DEVICE])
    choose(page, OTHER)
    expect(page.locator(".provenance").filter(visible=True)).to_contain_text("NVIDIA T100")
