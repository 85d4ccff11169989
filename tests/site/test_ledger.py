"""The ledger's filters, by keyboard and by address."""

from __future__ import annotations

import json
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
    return page.locator(".ledger li").filter(visible=True)


def chooser(page: Page, name: str) -> Locator:
    return page.locator(".ledger-filters").get_by_label(name)


def ids(claims: list[dict[str, Any]], **wanted: str) -> set[str]:
    """The claims with a verdict that is as wanted."""
    return {one["id"] for one in claims if wanted.items() <= one.items()}


def expect_entries(page: Page, claims: list[dict[str, Any]], **wanted: str) -> None:
    expected = ids(claims, **wanted)
    status = page.locator(".ledger [role=status]")
    expect(status).to_have_text(f"{len(expected)} of {len(ids(claims))} claims")
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
    expect_entries(page, claims)
    entry.get_by_role("link", name="linear").click()
    expect(page.locator("#claim-l2")).to_be_in_viewport()


def test_what_differs_comes_first_and_says_why(opened: Opened, claims: list[dict[str, Any]]) -> None:
    page = opened("claims/").page
    differing = page.locator(".ledger section").first
    expect(differing.get_by_role("heading")).to_contain_text("differ")
    assert set(differing.locator(".id").all_text_contents()) == ids(claims, verdict="differs")
    why = differing.locator(".why").first
    assert float(why.evaluate("(line) => parseFloat(getComputedStyle(line).fontSize)")) >= LEAST_TEXT_PX


def test_filters_stay_in_sight_and_are_kept(opened: Opened, claims: list[dict[str, Any]]) -> None:
    tab = opened("claims/")
    chooser(tab.page, "verdict").select_option("holds")
    tab.page.mouse.wheel(0, 5000)
    expect(chooser(tab.page, "verdict")).to_be_in_viewport()
    tab.go("claims/")
    expect_entries(tab.page, claims, verdict="holds")
    tab.page.get_by_role("button", name="Show all").click()
    expect_entries(tab.page, claims)
    tab.go("claims/")
    expect_entries(tab.page, claims)


def test_an_address_that_means_nothing_hides_nothing(opened: Opened, claims: list[dict[str, Any]]) -> None:
    expect_entries(opened("claims/#verdict=perhaps&x=1").page, claims)


def test_without_scripts_every_claim_is_there(opened: Opened, claims: list[dict[str, Any]]) -> None:
    page = opened("claims/#verdict=differs", scripts=False).page
    assert sorted(shown(page).locator(".id").all_text_contents()) == sorted(ids(claims))
