"""The ledger's filters, by keyboard and by address."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.site.conftest import Opened
from tests.site.serving import Site

LEAST_TEXT_PX = 14


@pytest.fixture(scope="module")
def claims(site: Site) -> list[dict[str, Any]]:
    """The claims.json of the same ledger."""
    found: list[dict[str, Any]] = json.loads((site.folder / "claims.json").read_text(encoding="utf-8"))
    return found


def shown(page: Page) -> Locator:
    """The entries that no filter hides, in chapters that may be folded."""
    return page.locator(".ledger li:not([hidden])")


def folds(page: Page) -> Locator:
    return page.locator(".ledger details:not([hidden])")


def chooser(page: Page, name: str) -> Locator:
    return page.locator(".ledger-filters").get_by_label(name)


def ids(claims: list[dict[str, Any]], **wanted: str) -> set[str]:
    """The claims with a verdict that is as wanted."""
    return {one["id"] for one in claims if wanted.items() <= one.items()}


def expect_entries(page: Page, claims: list[dict[str, Any]], **wanted: str) -> None:
    expected = ids(claims, **wanted)
    status = page.locator(".ledger [role=status]")
    expect(status).to_have_text(f"{len(expected)} of {len(ids(claims))} claims")
    expect(page.locator(".ledger details[open]:not([hidden])")).to_have_count(folds(page).count() if wanted else 0)
    assert sorted(shown(page).locator(".id").all_text_contents()) == sorted(expected)


def test_filtered_by_keyboard(opened: Opened, claims: list[dict[str, Any]]) -> None:
    tab = opened("claims/")
    page = tab.page
    expect_entries(page, claims)
    chooser(page, "verdict").focus()
    page.keyboard.type("differs")
    expect_entries(page, claims, verdict="differs")
    chooser(page, "chapter").focus()
    page.keyboard.type("mlp")
    expect_entries(page, claims, verdict="differs", chapter="mlp")
    expect(page).to_have_url(f"{tab.site}claims/#chapter=mlp&verdict=differs")
    for name in ("chapter", "verdict"):
        chooser(page, name).press("Home")
    expect_entries(page, claims)
    expect(page).to_have_url(f"{tab.site}claims/")


@pytest.mark.parametrize("wanted", [{"verdict": "differs"}, {"chapter": "mlp", "scope": "timing"}])
def test_filtered_by_address(opened: Opened, claims: list[dict[str, Any]], wanted: dict[str, str]) -> None:
    page = opened(f"claims/#{'&'.join(map('='.join, wanted.items()))}").page
    assert 0 < len(ids(claims, **wanted)) < len(claims)
    expect_entries(page, claims, **wanted)
    for name, value in wanted.items():
        expect(chooser(page, name)).to_have_value(value)


def test_a_verdict_in_a_chapter_leads_to_its_row_and_back(opened: Opened, claims: list[dict[str, Any]]) -> None:
    page = opened("linear/").page
    page.locator("#claim-l2 a.mark").evaluate("(link) => link.click()")  # it may be folded
    verdict = page.locator("#ledger-l2")
    expect(verdict).to_be_in_viewport()
    entry = shown(page).filter(has=verdict)
    expect(entry).to_have_css("outline-style", "solid")
    expect(page.locator(".ledger details[open]")).to_have_count(1)
    entry.get_by_role("link", name="linear").click()
    expect(page.locator("#claim-l2")).to_be_in_viewport()


def test_what_differs_comes_first_in_its_chapter_and_says_why(opened: Opened, claims: list[dict[str, Any]]) -> None:
    page = opened("claims/").page
    fold = page.locator(".ledger details").filter(has=page.locator("#ledger-m1"))
    fold.locator("summary").click()
    differing = ids(claims, verdict="differs", chapter="mlp")
    assert set(fold.locator(".id").all_text_contents()[: len(differing)]) == differing
    expect(fold.locator("summary")).to_have_text(re.compile(rf"^mlp: {len(differing)} differ on at least one device\b"))
    why = fold.locator(".why").first
    expect(why).to_be_visible()
    assert float(why.evaluate("(line) => parseFloat(getComputedStyle(line).fontSize)")) >= LEAST_TEXT_PX


def test_filters_stay_in_sight_and_are_kept(opened: Opened, claims: list[dict[str, Any]]) -> None:
    tab = opened("claims/")
    chooser(tab.page, "verdict").select_option("holds")
    tab.page.mouse.wheel(0, 3000)
    expect(chooser(tab.page, "verdict")).to_be_in_viewport()
    tab.go("claims/")
    expect_entries(tab.page, claims, verdict="holds")
    tab.page.get_by_role("button", name="Show all").click()
    expect_entries(tab.page, claims)
    tab.go("claims/")
    expect_entries(tab.page, claims)


def test_filtered_by_text(opened: Opened, claims: list[dict[str, Any]]) -> None:
    tab = opened("claims/")
    page = tab.page
    chooser(page, "text").press_sequentially("Vectorized  H200")
    found = {one["id"] for one in claims if "vectorized" in one["sentence"]}
    assert 0 < len(found) < 20
    assert found <= set(shown(page).locator(".id").all_text_contents())
    assert shown(page).filter(visible=True).count() == shown(page).count() < 40
    chooser(page, "chapter").select_option("mlp")
    assert set(shown(page).evaluate_all("(all) => all.map((each) => each.dataset.chapter)")) == {"mlp"}
    expect(page).to_have_url(f"{tab.site}claims/#text=Vectorized++H200&chapter=mlp")
    chooser(page, "text").fill("no such words anywhere")
    expect(page.locator(".ledger [role=status]")).to_have_text(f"0 of {len(ids(claims))} claims")
    page.get_by_role("button", name="Show all").click()
    expect_entries(page, claims)


def test_the_ledger_fits_a_phone(opened: Opened) -> None:
    page = opened("claims/", width=360).page
    assert page.locator(".ledger").evaluate("(list) => list.getBoundingClientRect().height") < 5 * 900
    assert page.evaluate("() => document.documentElement.scrollWidth") == 360


def test_the_filters_unfold_on_a_phone(opened: Opened) -> None:
    page = opened("claims/", width=360).page
    button = page.get_by_role("button", name="Filter")
    for is_open in (False, True, False):
        expect(button).to_have_attribute("aria-expanded", str(is_open).lower())
        expect(page.locator(".ledger-filters label").filter(visible=True)).to_have_count(5 if is_open else 0)
        button.click()


def test_a_wide_window_has_all_filters(opened: Opened) -> None:
    page = opened("claims/").page
    expect(page.locator(".ledger-filters label").filter(visible=True)).to_have_count(5)
    expect(page.locator(".ledger-fold")).to_be_hidden()


def test_an_address_that_means_nothing_hides_nothing(opened: Opened, claims: list[dict[str, Any]]) -> None:
    expect_entries(opened("claims/#verdict=perhaps&x=1").page, claims)


def test_without_scripts_every_claim_is_there(opened: Opened, claims: list[dict[str, Any]]) -> None:
    page = opened("claims/#verdict=differs", scripts=False).page
    assert sorted(shown(page).locator(".id").all_text_contents()) == sorted(ids(claims))
    expect(page.get_by_label("text")).to_have_count(0)
    folds(page).first.locator("summary").click()
    expect(folds(page).first.locator("li").first).to_be_visible()
