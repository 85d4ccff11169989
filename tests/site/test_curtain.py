"""The curtain: the figure that answers a guess is veiled, lifted, marked; the switch; the count; folded claims."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Locator, Page, expect

from snippets.lab.charts.svg import WIDTH
from snippets.lab.finding.book import figure
from tests.lab.samples import BOOK
from tests.site.conftest import Opened
from tests.site.looking import Tab, box_of
from tests.site.serving import Site
from tests.site.test_guesses import commit, question

GATE_US = float(figure("mlp.gate_us", BOOK).value)
VEILED = ("trial-veiled", "trial-veiled-table", "trial-veiled-verdicts")
EVERY = "Show every answer"
TALLEST_PX = 240
"""12rem of the theme."""
LINE_PX = 24
"""Less than the height of any fold's content."""


def fence(page: Page, name: str) -> Locator:
    return page.locator(f'.lab[data-fence="{name}"]')


def veiled(page: Page, name: str) -> Locator:
    return page.locator(f'.veiled[data-fence="{name}"]')


def expect_veiled(page: Page, *names: str) -> None:
    for name in names:
        expect(veiled(page, name).locator("> .veil")).to_be_visible()
        expect(fence(page, name).locator("*").first).to_be_hidden()
        expect(veiled(page, name).locator("> :not([inert], .veil)")).to_have_count(0)


def expect_lifted(page: Page, *names: str) -> None:
    for name in names:
        expect(veiled(page, name)).to_have_count(0)
        expect(page.locator(f'[inert] [data-fence="{name}"], [inert][data-fence="{name}"]')).to_have_count(0)
        expect(fence(page, name).locator("figcaption, caption, .verdicts").filter(visible=True).first).to_be_visible()


def unfold(page: Page, text: str) -> None:
    """By a key: two frames after a scroll, what lies above is laid out and moves the question by up to 100 px, so a
    pointer may press it and release elsewhere."""
    question(page, text).locator("> summary").press("Enter")


@pytest.mark.parametrize("width", [360, 1280])
def test_a_veil_is_as_tall_as_what_it_hides_up_to_a_third_of_a_screen(on_trial: Opened, width: int) -> None:
    page = on_trial(width=width).page
    figures = VEILED[:2]
    expect_veiled(page, *VEILED)
    heights = [box_of(veiled(page, name))["height"] for name in figures]
    unfold(page, "How long")
    expect_lifted(page, "trial-veiled")
    expect_veiled(page, *VEILED[1:])
    unfold(page, "Are they")
    lifted = [box_of(fence(page, name))["height"] for name in figures]
    assert heights == pytest.approx([min(each, TALLEST_PX) for each in lifted], abs=1)
    assert max(lifted) > TALLEST_PX, "no veiled figure is taller than its veil"


def test_only_the_figure_and_its_verdicts_are_veiled(on_trial: Opened) -> None:
    page = on_trial().page
    expect_veiled(page, "trial-first-veiled", *VEILED)
    expect(page.locator(".veiled")).to_have_count(5)
    expect(page.get_by_role("button", name="Just show me").filter(visible=True)).to_have_count(4 + 5)
    expect(veiled(page, "trial-veiled-verdicts").get_by_role("button")).to_have_count(0)
    expect(page.get_by_text("The verdicts appear together with the answer.")).to_be_visible()
    for text in (
        "A lead to what is veiled.",
        "Text below a veiled figure.",
        "A text that explains them.",
        "look for a veil",
    ):
        expect(page.get_by_text(text)).to_be_visible()
    expect(page.locator(".veiled").locator("h1, h2, h3, .in-your-trace, :scope > p")).to_have_count(0)
    expect_lifted(page, "trial-in-sight")


@pytest.mark.parametrize("address", ["trial/#trial", "trial/?h=gelu"])
def test_who_comes_by_a_link_or_from_the_search_finds_nothing_veiled(on_trial: Opened, address: str) -> None:
    tab: Tab = on_trial()
    tab.go(address)
    expect(tab.page.locator(".guess-form").first).to_be_visible()
    expect(tab.page.locator(".veiled, .veil")).to_have_count(0)


def test_a_guess_lifts_its_veils_and_guessing_again_drops_them(on_trial: Opened) -> None:
    tab: Tab = on_trial()
    commit(tab.page, "How long", *f"{GATE_US * 2:.1f}")
    expect_lifted(tab.page, "trial-veiled")
    tab.go("trial/")
    expect_lifted(tab.page, "trial-veiled")
    question(tab.page, "How long").get_by_role("button", name="Guess again").filter(visible=True).press("Enter")
    expect_veiled(tab.page, *VEILED)
    expect(tab.page.locator(".you")).to_have_count(0)


def test_a_reader_may_lift_a_veil_from_the_veil_itself(on_trial: Opened) -> None:
    tab = on_trial()
    page = tab.page
    lab = fence(page, "trial-veiled")
    lab.scroll_into_view_if_needed()
    lab.get_by_role("button", name="Guess first").press("Enter")
    expect(page.locator("#trial-time-guess")).to_be_focused()
    expect_veiled(page, *VEILED)
    button = lab.get_by_role("button", name="Just show me")
    button.scroll_into_view_if_needed()
    tab.settle()  # what is scrolled into sight takes its true height
    top = box_of(lab)["y"]
    button.press("Enter")
    expect_lifted(page, "trial-veiled")
    expect(lab).to_be_focused()
    moved = box_of(lab)["y"] - top  # by a few pixels if a part above takes its true height only now
    assert abs(moved) < LINE_PX, "the opened fold above pushed it away"


def test_a_guess_is_a_line_across_the_bars_to_scale(on_trial: Opened) -> None:
    page = on_trial().page
    commit(page, "How long", *f"{GATE_US * 2:.1f}")
    drawing = fence(page, "trial-veiled").locator("svg[data-axis]").filter(visible=True)
    axis = json.loads(drawing.get_attribute("data-axis") or "")
    line = drawing.locator(".you line")
    expected = axis["zero"] + float(f"{GATE_US * 2:.1f}") * axis["length"] / axis["amount"]
    assert float(line.get_attribute("x1") or "") == pytest.approx(expected, abs=0.01)
    expect(drawing.locator(".you text")).to_have_text(f"you: {GATE_US * 2:.1f} µs")
    commit(page, "Are they", "Space")
    expect(fence(page, "trial-veiled-table").locator("caption .you").filter(visible=True)).to_have_text(
        " you: It is so"
    )


def test_a_guess_is_a_bar_in_the_slice_that_it_is_about(opened: Opened) -> None:
    page = opened("mlp/").page
    page.locator("#mlp-guess-gelu-guess").fill("10")
    page.locator("#mlp-guess-gelu-guess").press("Enter")
    chart = fence(page, "mlp-forward")
    bar, kernel = chart.locator("rect.you").filter(visible=True), chart.locator('[data-short="GELU"]')
    begin, width = (float((bar.get_attribute(key) or "").rstrip("%")) for key in ("x", "width"))
    span = float(chart.locator(".drawing").filter(visible=True).get_attribute("data-span") or "")
    assert begin == float((kernel.first.get_attribute("x") or "").rstrip("%"))
    assert width * span / 100 == pytest.approx(10, rel=1e-3)
    expect(chart.locator("figcaption .you").filter(visible=True)).to_have_text(" you: 10 µs")


def test_a_guess_beyond_the_axis_ends_at_its_edge(on_trial: Opened) -> None:
    page = on_trial().page
    commit(page, "How long", *"99999")
    drawing = fence(page, "trial-veiled").locator("svg[data-axis]").filter(visible=True)
    expect(drawing.locator(".you text")).to_have_text("you: 99999 µs →")
    assert float(drawing.locator(".you line").get_attribute("x1") or "") == WIDTH


def test_another_devices_panel_is_marked_when_it_is_opened(on_trial: Opened) -> None:
    page = on_trial().page
    commit(page, "How long", *"60")
    chart = fence(page, "trial-veiled")
    page.get_by_label("GPU of all figures").select_option("T100")
    expect(chart.locator(".you text").filter(visible=True)).to_have_text("you: 60 µs")


def test_the_switch_shows_every_answer_on_every_page_until_it_is_turned_off(on_trial: Opened) -> None:
    tab: Tab = on_trial()
    commit(tab.page, "How many", "9")
    tab.page.get_by_label(EVERY).check()
    expect_lifted(tab.page, *VEILED)
    expect(question(tab.page, "In which order")).to_have_attribute("open", "")
    tab.go("trial/")
    expect(tab.page.get_by_label(EVERY)).to_be_checked()
    expect_lifted(tab.page, *VEILED)
    tab.page.get_by_label(EVERY).uncheck()
    expect_veiled(tab.page, *VEILED)
    expect(question(tab.page, "How many")).to_have_attribute("open", "")


@pytest.mark.parametrize("fragment", ["claim-m10", "claim-k3", "claim-m10-nvidia-t100"])
def test_a_link_within_the_page_lifts_the_veil_of_its_target_alone(on_trial: Opened, fragment: str) -> None:
    page = on_trial().page
    page.evaluate("(to) => { location.hash = to; }", fragment)
    expect(page.locator(f"#{fragment}")).to_be_visible()
    expect(page.locator(f"#{fragment}")).to_be_in_viewport()
    expect_veiled(page, "trial-veiled")


def test_the_switch_is_in_every_veil_of_a_figure(on_trial: Opened) -> None:
    page = on_trial().page
    veiled(page, "trial-veiled").get_by_role("button", name=EVERY).press("Enter")
    expect(page.get_by_label(EVERY)).to_be_checked()
    expect(page.locator(".veiled")).to_have_count(0)


def test_without_scripts_and_on_paper_nothing_is_veiled(on_trial: Opened) -> None:
    expect_lifted(on_trial(scripts=False).page, *VEILED)
    page = on_trial().page
    page.emulate_media(media="print")
    for name in VEILED[:2]:
        expect(fence(page, name).locator("figcaption, caption").filter(visible=True).first).to_be_visible()
        expect(fence(page, name).locator(".veil")).to_be_hidden()


def test_nothing_is_seen_before_the_script_comes_and_all_if_it_never_does(on_trial: Opened) -> None:
    tab: Tab = on_trial()
    tab.page.route("**/curtain.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
    tab.go("trial/")
    table = fence(tab.page, "trial-veiled-table").locator("caption").first
    expect(table).to_be_hidden()
    tab.page.evaluate("() => document.getAnimations().forEach((animation) => animation.finish())")
    expect(table).to_be_visible()
    tab.page.unroute("**/curtain.js")


def test_guesses_and_close_ones_are_counted_and_can_be_forgotten(on_trial: Opened) -> None:
    tab: Tab = on_trial()
    bars = tab.page.locator(".guess-bar > span")
    expect(bars).to_have_text(["5 questions to guess on this page."] * 2)
    commit(tab.page, "How long", *f"{GATE_US * 1.1:.1f}")
    commit(tab.page, "How many", *"99")
    expect(bars).to_have_text(["You guessed 2 of 5 answers. Close guesses: 1."] * 2)
    tab.go("next/")
    count = tab.page.locator(".md-nav--primary .guess-count")
    expect(count).to_have_text(["2 of 5"])
    expect(tab.page.locator(".guess-bar")).to_have_count(0)
    tab.go("trial/")
    expect(bars).to_have_text(["You guessed 2 of 5 answers. Close guesses: 1."] * 2)
    tab.page.get_by_role("button", name="Forget my guesses on this page").press("Enter")
    expect(bars).to_have_text(["5 questions to guess on this page."] * 2)
    expect(count).to_have_count(0)
    expect_veiled(tab.page, *VEILED)


@pytest.mark.parametrize("scripts", [True, False])
def test_a_mark_at_a_figure_leads_to_the_folded_claims_of_its_section(on_trial: Opened, scripts: bool) -> None:
    page = on_trial(scripts=scripts).page
    expect(fence(page, "trial-verdicts").locator(".verdict").filter(visible=True)).to_have_count(1)
    expect(page.locator("#claim-m1, #claim-m3")).to_have_count(2)
    expect(page.locator("#claim-m1")).to_be_hidden()
    fence(page, "trial-roofline").locator("a.tested").filter(visible=True).click()
    expect(page.locator("#claim-m1")).to_be_visible()
    expect(page.locator("#claim-m1")).to_be_in_viewport()


def test_a_search_does_not_tell_what_a_page_asks(trial: Site, site: Site) -> None:
    indices = [(each.folder / "search/search_index.json").read_text(encoding="utf-8") for each in (site, trial)]
    assert not any("Measured: " in index for index in indices)
    texts = " ".join(entry["text"] for entry in json.loads(indices[1])["docs"])
    assert "look for a veil" in texts
    for answer in ("One for each operator", "Veiled", "Five kernels", "How many kernels?"):
        assert answer not in texts
