"""Guess boxes: committed by keyboard, judged, kept, taken back; without scripts, questions with folded answers."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from snippets.lab.finding.book import figure
from tests.lab.samples import BOOK
from tests.site.conftest import Opened
from tests.site.looking import Tab

KERNELS = int(figure("mlp.eager.kernels_per_step", BOOK).value)
GATE = figure("mlp.gate_us", BOOK)
GATE_US = float(GATE.value)
ORDER = figure("mlp.order", BOOK).text


@pytest.fixture
def page(on_trial: Opened) -> Page:
    return on_trial().page


def question(page: Page, text: str) -> Locator:
    """By its own summary, not by the folds of devices within it."""
    return page.locator("details", has=page.locator(":scope > summary", has_text=text))


def answer(page: Page, text: str) -> Locator:
    """The line that the reader sees: of the chosen device."""
    return question(page, text).locator(".guess p").filter(visible=True)


def commit(page: Page, text: str, *keys: str) -> None:
    """Go from the question into its form, and answer by keyboard alone."""
    question(page, text).locator("> summary").focus()
    page.keyboard.press("Tab")
    for key in keys:
        page.keyboard.press(key)
    page.keyboard.press("Enter")


@pytest.mark.parametrize(
    ("text", "keys", "said", "judged"),
    [
        ("How many", [str(KERNELS)], f"You said {KERNELS}. Measured: {KERNELS} on the H200.", "Exactly."),
        ("How many", [str(KERNELS - 2)], f"You said {KERNELS - 2}. Measured: {KERNELS} on the", "2 too few."),
        ("How many", [str(KERNELS + 3)], f"You said {KERNELS + 3}. Measured: {KERNELS} on the", "3 too many."),
        (
            "How long",
            [*f"{GATE_US * 1.1:.1f}"],
            f"You said {GATE_US * 1.1:.1f} µs. Measured: {GATE.text} (",
            "Close.",
        ),
        ("How long", [*f"{GATE_US * 4:.1f}"], f"You said {GATE_US * 4:.1f} µs. ", "4 times too high."),
        ("Are they", ["Space"], "You said It is so. Measured: It is not", "Wrong."),
        ("Are they", ["Space", "ArrowDown"], "You said It is not. Measured: It is not", "Right."),
    ],
)
def test_a_guess_is_judged(page: Page, text: str, keys: list[str], said: str, judged: str) -> None:
    expect(question(page, text)).not_to_have_attribute("open", "")
    commit(page, text, *keys)
    expect(answer(page, text)).to_contain_text(said)
    expect(answer(page, text)).to_contain_text(judged)
    expect(answer(page, text)).to_be_focused()


def test_an_order_is_judged(page: Page) -> None:
    question(page, "In which order").locator("> summary").focus()
    for item in ORDER.split(", "):
        page.keyboard.press("Tab")
        page.keyboard.type(item)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(answer(page, "In which order")).to_contain_text(f"You said {ORDER}. Measured: {ORDER} on the")
    expect(answer(page, "In which order")).to_contain_text("Right.")


def test_an_order_with_two_in_each_others_place(page: Page) -> None:
    items = ORDER.split(", ")
    swapped = [items[-2], *items[1:-2], items[0], items[-1]]
    form = page.locator("form", has=page.get_by_role("combobox"))
    for place, item in enumerate(swapped):
        form.get_by_role("combobox").nth(place).select_option(item)
    form.get_by_role("button", name="Commit").press("Enter")
    expect(answer(page, "In which order")).to_contain_text(f"{len(items) - 2} of {len(items)} are in the right place.")


def test_a_guess_is_kept_until_it_is_taken_back(on_trial: Opened) -> None:
    tab: Tab = on_trial()
    commit(tab.page, "How many", "9")
    expect(answer(tab.page, "How many")).to_contain_text("You said 9.")
    tab.go("trial/")
    expect(answer(tab.page, "How many")).to_contain_text("You said 9.")
    again = question(tab.page, "How many").get_by_role("button", name="Guess again")
    again.press("Enter")
    expect(question(tab.page, "How many")).not_to_have_attribute("open", "")
    expect(tab.page.get_by_role("spinbutton", name="How many kernels? Your guess kernels")).to_be_focused()
    tab.go("trial/")
    expect(question(tab.page, "How many")).not_to_have_attribute("open", "")
    expect(question(tab.page, "How many").locator(".guess-said").first).to_be_empty()


def test_a_reader_may_just_look(page: Page) -> None:
    page.get_by_role("button", name="Just show me").first.press("Enter")
    expect(answer(page, "How many")).to_have_text(f"Measured: {KERNELS} on the H200.")


def test_nothing_is_committed_before_something_is_said(page: Page) -> None:
    commit(page, "How many")
    expect(question(page, "How many")).not_to_have_attribute("open", "")


def test_without_scripts_a_guess_is_a_question_with_a_folded_answer(on_trial: Opened) -> None:
    page = on_trial(scripts=False).page
    expect(page.get_by_role("button", name="Commit")).to_have_count(0)
    for text, said in (("How many", str(KERNELS)), ("How long", GATE.text), ("In which order", ORDER)):
        expect(answer(page, text)).to_have_count(0)
        question(page, text).locator("> summary").press("Enter")
        expect(answer(page, text).first).to_contain_text(f"Measured: {said}")
        expect(answer(page, text).first).to_contain_text("on the H200.")
        expect(answer(page, text).nth(1)).to_contain_text("on the T100.")


def test_what_no_form_has_kept_is_passed_over(on_trial: Opened) -> None:
    tab: Tab = on_trial()
    forms = tab.page.locator(".guess-form").count()
    commit(tab.page, "How many", "9")
    tab.page.evaluate("""() => {
      const kept = Object.keys(localStorage).find((key) => key.startsWith("guess "));
      const order = kept.replace(/#.*/, "#trial-order");
      localStorage.setItem(kept, "not JSON");
      localStorage.setItem(order, JSON.stringify({ kind: "order", value: null, text: "<b>" }));
    }""")
    tab.go("trial/")
    expect(tab.page.locator(".guess-form")).to_have_count(forms)
    expect(tab.page.locator(".guess.guessed")).to_have_count(0)
