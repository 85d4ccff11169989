"""Predictions: a computed value is checked at once, a prediction is committed and drawn to scale."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from snippets.lab.finding.book import figure
from tests.lab.samples import BOOK
from tests.site.conftest import Opened
from tests.site.test_curtain import expect_lifted, expect_veiled, fence
from tests.site.test_guesses import answer, question

FLOOR = figure("attention.decode_floor_us", BOOK)
NAIVE = figure("attention.decode_naive_us", BOOK)
PREDICT = "naive attention"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (FLOOR.number * 1.01, f"✓ {FLOOR.text}. 268 MB at "),
        (FLOOR.number / 1000, "The digits are right, but the unit is wrong."),
        (FLOOR.number * 1.2, "Not yet. Divide the bytes"),
    ],
)
def test_a_computed_value_is_checked_while_it_is_written(on_trial: Opened, value: float, said: str) -> None:
    page = on_trial().page
    field = page.get_by_role("spinbutton", name="How long must reading keys and values take?")
    output = page.locator(".compute output")
    expect(output).to_have_text("Divide the bytes of keys and values by a copy's rate.")
    field.fill(f"{value:.4f}")
    expect(output).to_contain_text(said)
    field.press("Enter")
    expect(question(page, PREDICT)).not_to_have_attribute("open", "")
    expect_veiled(page, "trial-bars")


def bars(page: Page) -> dict[str, float]:
    """Name -> width of its bar in pixels."""
    rows = fence(page, "trial-bars").locator(".floor-bars li").filter(visible=True)
    widths: dict[str, float] = rows.evaluate_all(
        """(rows) => Object.fromEntries(rows.map((row) => [
          row.querySelector(".name").firstChild.textContent.trim(),
          row.querySelector("i").getBoundingClientRect().width,
        ]))"""
    )
    return widths


@pytest.mark.parametrize("width", [360, 1280])
def test_a_prediction_is_a_bar_to_scale(on_trial: Opened, width: int) -> None:
    page = on_trial(width=width).page
    page.locator("#trial-predict-guess").fill(f"{FLOOR.number * 1.5:.1f}")
    page.locator("#trial-predict-guess").press("Enter")
    expect_lifted(page, "trial-bars")
    expect(answer(page, PREDICT)).to_contain_text(f"You said {FLOOR.number * 1.5:.1f} µs.")
    expect(answer(page, PREDICT)).to_contain_text(f"Computed: {FLOOR.text}.")
    expect(answer(page, PREDICT)).to_contain_text(f"Measured: {NAIVE.text}")
    drawn = bars(page)
    assert drawn["your prediction"] / drawn["the floor"] == pytest.approx(1.5, rel=0.02)
    assert drawn["naive"] / drawn["the floor"] == pytest.approx(NAIVE.number / FLOOR.number, rel=0.02)


def test_a_prediction_far_off_widens_the_scale_up_to_four_times(on_trial: Opened) -> None:
    page = on_trial().page
    page.get_by_label("Show every answer").check()
    before = bars(page)
    page.get_by_label("Show every answer").uncheck()
    page.locator("#trial-predict-guess").fill("99999")
    page.locator("#trial-predict-guess").press("Enter")
    expect(fence(page, "trial-bars").locator(".you .amount")).to_have_text("99999 µs →")
    drawn = bars(page)
    assert before["the floor"] / drawn["the floor"] == pytest.approx(4, rel=0.05)
    assert drawn["your prediction"] == pytest.approx(max(before.values()), abs=2)


def test_without_scripts_the_answer_has_the_computed_value(on_trial: Opened) -> None:
    page = on_trial(scripts=False).page
    expect_lifted(page, "trial-bars")
    question(page, PREDICT).locator("> summary").press("Enter")
    expect(answer(page, PREDICT)).to_contain_text(
        f"How long must reading keys and values take? Computed: {FLOOR.text}."
    )
