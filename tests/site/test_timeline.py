"""The timeline by keyboard and pointer, and without scripts; what it says of a slice is what its table says."""

from __future__ import annotations

import gzip

import pytest
from playwright.sync_api import Locator, Page, expect

from snippets.lab.recording.device import DEFAULT_DEVICE, short_name
from tests.lab.samples import BOOK
from tests.second_device import NAME as OTHER
from tests.site.conftest import Opened
from tests.site.serving import ROOT

ON_GPU = ("gemm", "pointwise", "fill")
TOO_LONG = """(drawing) => [...drawing.querySelectorAll(".slice")].flatMap((slice) => {
  const name = slice.querySelector("text"), { width } = slice.querySelector("rect").getBoundingClientRect();
  const length = name ? name.getBoundingClientRect().width : 0;
  return length > 1.25 * width ? [`${name.textContent}: ${length} in ${width}`] : [];
})"""
DETAILS = """(panel) => Object.fromEntries([...panel.querySelectorAll("dt")].map((term) =>
  [term.textContent, term.nextElementSibling.textContent]))"""
ROW = """(row) => Object.fromEntries([...row.closest("table").tHead.rows[0].cells]
  .map((head, place) => [head.textContent, row.cells[place].textContent]).filter(([, text]) => text !== "–"))"""


@pytest.fixture
def figure(on_trial: Opened) -> Locator:
    return timeline(on_trial().page)


def timeline(page: Page) -> Locator:
    """The one of the device whose tab is open."""
    return page.locator(".lab-timeline").filter(visible=True)


def slices(figure: Locator) -> Locator:
    return figure.get_by_role("option")


def kernel(figure: Locator) -> Locator:
    """The first matrix product of the first variant."""
    return figure.locator(".slice.gemm").first


def kind(figure: Locator) -> str:
    """Of the slice that has the focus."""
    return figure.locator(".slice:focus").evaluate("(slice) => slice.classList[1]")


def walk_to_kernel(figure: Locator) -> None:
    """From the first slice down into the lane of the GPU, and along it to the first matrix product."""
    slices(figure).first.focus()
    for _ in range(30):
        if kind(figure) not in ON_GPU:
            figure.page.keyboard.press("ArrowDown")
    for _ in range(30):
        if kind(figure) != "gemm":
            figure.page.keyboard.press("ArrowRight")
    expect(kernel(figure)).to_be_focused()


def rows(figure: Locator) -> Locator:
    """Of the tables below, in the order of the slices."""
    return figure.locator(".lab-table tbody tr")


def row_of(figure: Locator, one: Locator) -> Locator:
    place = one.evaluate("(slice) => [...slice.closest('svg.drawing').querySelectorAll('.slice')].indexOf(slice)")
    return rows(figure).nth(place)


def test_the_drawing_is_one_stop_of_the_tab_key(figure: Locator) -> None:
    page = figure.page
    figure.get_by_role("button", name="Whole step").focus()
    page.keyboard.press("Tab")
    expect(slices(figure).first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(slices(figure).first).not_to_be_focused()
    expect(figure.locator(".slice:focus")).to_have_count(1)
    page.keyboard.press("Tab")
    expect(figure.locator(".slice:focus")).to_have_count(0)
    page.keyboard.press("Shift+Tab")
    expect(figure.locator(".slice:focus")).to_have_count(1)
    expect(slices(figure).first).not_to_be_focused()


def test_arrows_lead_through_rows_and_lanes_and_back(figure: Locator) -> None:
    walk_to_kernel(figure)
    figure.page.keyboard.press("ArrowRight")
    expect(kernel(figure)).not_to_be_focused()
    assert kind(figure) in ON_GPU
    figure.page.keyboard.press("ArrowLeft")
    expect(kernel(figure)).to_be_focused()
    for _ in range(60):
        figure.page.keyboard.press("ArrowUp")
    expect(slices(figure).first).to_be_focused()


def test_enter_shows_what_the_table_says_and_lights_the_pair(figure: Locator) -> None:
    walk_to_kernel(figure)
    figure.page.keyboard.press("Enter")
    chosen = kernel(figure)
    expect(chosen).to_have_attribute("aria-selected", "true")
    panel = figure.locator(".selected")
    said = panel.evaluate(DETAILS)
    assert said == row_of(figure, chosen).evaluate(ROW)
    assert {"name", "what", "operator", "call", "launch delay", "grid", "block", "registers"} <= said.keys()
    pair = chosen.get_attribute("data-pair")
    expect(figure.locator(f'.slice.call.lit[data-pair="{pair}"]')).to_have_count(1)
    expect(figure.locator(f'.arrows .lit[data-pair="{pair}"]')).to_have_count(1)
    expect(figure.locator(".lit")).to_have_count(3)
    figure.page.keyboard.press("Escape")
    expect(panel).not_to_contain_text(said["name"])
    expect(figure.locator(".lit, [aria-selected=true]")).to_have_count(0)


def test_every_slice_says_what_its_row_says(figure: Locator) -> None:
    assert slices(figure).count() == rows(figure).count() > 50
    said = figure.evaluate(f"""(figure) => [...figure.querySelectorAll(".slice")].map((slice) => {{
      slice.dispatchEvent(new MouseEvent("click", {{ bubbles: true }}));
      return ({DETAILS})(figure.querySelector(".selected"));
    }})""")
    assert said == rows(figure).evaluate_all(f"(rows) => rows.map({ROW})")


def test_the_focus_shows_the_whole_name(figure: Locator) -> None:
    walk_to_kernel(figure)
    whole = row_of(figure, kernel(figure)).locator("td").first.text_content() or "no name"
    expect(figure.locator(".selected")).to_have_text(whole)
    figure.page.keyboard.press("Enter")
    expect(figure.locator(".selected dl")).to_have_count(1)
    figure.page.keyboard.press("ArrowLeft")
    expect(figure.locator(".selected dl, .lit")).to_have_count(0)


def test_what_has_the_focus_is_what_enter_selects(figure: Locator) -> None:
    """A screen reader may put the focus anywhere, without a key."""
    one = kernel(figure)
    one.evaluate("(slice) => slice.focus()")
    figure.page.keyboard.press("Enter")
    expect(one).to_have_attribute("aria-selected", "true")
    expect(figure.locator(".slice[aria-selected=true]")).to_have_count(1)
    expect(figure.locator(".slice[tabindex='0']")).to_have_count(1)


def test_a_click_selects(figure: Locator) -> None:
    kernel(figure).click()
    expect(kernel(figure)).to_have_attribute("aria-selected", "true")
    expect(kernel(figure)).to_be_focused()


def width(figure: Locator) -> float:
    return figure.locator("svg.drawing").evaluate("(drawing) => drawing.getBoundingClientRect().width")


def test_keys_zoom_and_names_follow(figure: Locator) -> None:
    whole, frame = width(figure), figure.locator(".frame")
    names = "(figure) => [...figure.querySelectorAll('.slice text')].map((text) => text.textContent.length)"
    before = figure.evaluate(names)
    slices(figure).first.focus()
    for key, factor in (("+", 1.5), ("+", 2.25), ("-", 1.5), ("0", 1)):
        figure.page.keyboard.press(key)
        assert width(figure) == pytest.approx(whole * factor, rel=0.01)
        assert figure.evaluate("(figure) => figure.scrollWidth <= figure.clientWidth")
    for _ in range(6):
        figure.page.keyboard.press("+")
    figure.page.wait_for_function(
        f"([figure, before]) => ({names})(figure).some((letters, place) => letters > before[place])",
        arg=[figure.element_handle(), before],
    )
    assert frame.evaluate("(frame) => frame.scrollWidth > 5 * frame.clientWidth")
    figure.get_by_role("button", name="Whole step").press("Enter")
    assert width(figure) == pytest.approx(whole, rel=0.01)
    figure.get_by_role("button", name="Zoom in").press("Enter")
    assert width(figure) == pytest.approx(whole * 1.5, rel=0.01)


def test_the_wheel_zooms_with_control_alone(figure: Locator) -> None:
    page, whole = figure.page, width(figure)
    kernel(figure).hover()
    top = page.evaluate("() => scrollY")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_function(
        "([figure, whole]) => figure.querySelector('.drawing').getBoundingClientRect().width > whole",
        arg=[figure.element_handle(), 1.2 * whole],
    )
    assert page.evaluate("() => scrollY") == top
    zoomed = width(figure)
    page.mouse.wheel(0, 200)
    page.wait_for_function("(top) => scrollY > top", arg=top)
    assert width(figure) == zoomed


def test_a_drag_pans_and_selects_nothing(figure: Locator) -> None:
    figure.get_by_role("button", name="Zoom in").press("Enter")
    frame = figure.locator(".frame")
    left = frame.evaluate("(frame) => frame.scrollLeft")
    kernel(figure).hover()
    figure.page.mouse.down()
    box = frame.bounding_box()
    assert box is not None
    figure.page.mouse.move(box["x"] + 5, box["y"] + 40, steps=4)
    figure.page.mouse.up()
    assert frame.evaluate("(frame) => frame.scrollLeft") > left
    expect(figure.locator("[aria-selected=true]")).to_have_count(0)


@pytest.mark.parametrize(("device", "width"), [(DEFAULT_DEVICE, 360), (OTHER, 1280)])
def test_no_name_is_longer_than_its_slice(on_trial: Opened, device: str, width: int) -> None:
    """Whether the drawing was in sight from the beginning, or behind a tab."""
    page = on_trial(width=width).page
    page.get_by_text(short_name(device), exact=True).first.click()
    for _ in range(2):
        page.evaluate("() => new Promise(requestAnimationFrame)")
    assert timeline(page).locator("svg.drawing").evaluate(TOO_LONG) == []


def test_without_scripts_the_picture_and_the_tables_are_complete(on_trial: Opened) -> None:
    tab = on_trial(scripts=False)
    figure = timeline(tab.page)
    expect(figure.get_by_role("img", name="Two ways")).to_be_visible()
    expect(figure.get_by_role("button")).to_have_count(0)
    figure.get_by_text("The same as tables").click()
    drawn = {kind: figure.locator(f".slice.{kind}").count() for kind in ("gemm", "pointwise", "fill", "call", "op")}
    assert drawn["gemm"] == 6
    assert rows(figure).count() == figure.locator(".slice").count() > sum(drawn.values())
    expect(rows(figure).first).to_be_visible()
    link = figure.get_by_role("link", name="Download .json.gz").first
    downloaded = tab.page.request.get(tab.page.evaluate("(link) => link.href", link.element_handle())).body()
    assert downloaded == (BOOK.root / BOOK["mlp/eager"].trace_path).read_bytes()
    assert gzip.decompress(downloaded).startswith(b"{")
    assert str(ROOT).encode() not in downloaded


def pinch(page: Page, figure: Locator, apart: range) -> None:
    """Two fingers on the drawing, so many pixels apart from first to last."""
    box = figure.locator(".frame").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    session = page.context.new_cdp_session(page)
    for place, each in enumerate(apart):
        points = [{"x": x + side * each / 2, "y": y, "id": side} for side in (-1, 1)]
        session.send(
            "Input.dispatchTouchEvent", {"type": "touchMove" if place else "touchStart", "touchPoints": points}
        )
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_a_second_pinch_goes_on_where_the_first_one_ended(figure: Locator) -> None:
    page, whole = figure.page, width(figure)
    kernel(figure).scroll_into_view_if_needed()
    for most in (3.5, 12):
        pinch(page, figure, range(60, 241, 15))
        assert width(figure) > 0.6 * most * whole
        assert width(figure) < most * whole


def test_paper_shows_the_whole_step(figure: Locator) -> None:
    seen = """(figure) => [".axis", ".names"].map((part) => figure.querySelector(part))
      .map((part) => part.getAttribute("transform") ?? part.textContent)"""
    before = figure.evaluate(seen)
    for _ in range(6):
        figure.get_by_role("button", name="Zoom in").press("Enter")
    figure.page.wait_for_function(
        f"([figure, before]) => ({seen})(figure)[0] !== before", arg=[figure.element_handle(), before[0]]
    )
    printed = figure.evaluate(f"(figure) => {{ dispatchEvent(new Event('beforeprint')); return ({seen})(figure); }}")
    assert printed == [before[0], "translate(0)"]
