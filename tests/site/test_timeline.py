"""The timeline by keyboard and pointer, and without scripts; what it says of a slice is what its table says."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from kinetoscope.timeline.draw import TracedStep, draw_steps
from kinetoscope.trace.kineto import read_trace
from snippets.lab.recording.device import DEFAULT_DEVICE, short_name
from tests.lab.samples import BOOK
from tests.second_device import NAME as OTHER
from tests.site.conftest import Opened
from tests.site.looking import box_of
from tests.site.serving import ROOT, Site
from tests.tool.events import kernel as kernel_event, launch, op, step, trace_bytes

ON_GPU = ("gemm", "pointwise", "fill")
TOO_LONG = """(drawing) => [...drawing.querySelectorAll("rect[data-said]")].flatMap((slice) => {
  const next = [slice.nextElementSibling, slice.nextElementSibling?.nextElementSibling];
  const name = next.slice(0, next[0]?.matches(".overlap") ? 2 : 1).find((each) => each?.matches("text"));
  const { width } = slice.getBoundingClientRect(), length = name ? name.getBoundingClientRect().width : 0;
  return length > width + 1 ? [`${name.textContent}: ${length} in ${width}`] : [];
})"""
DETAILS = """(panel) => Object.fromEntries([...panel.querySelectorAll("dt")].map((term) =>
  [term.textContent, term.nextElementSibling.textContent]).filter(([term]) => term !== "chain"))"""
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
    """Of the tables below, in the order of the slices; they are there once their fold is open."""
    fold = figure.locator("details").first
    if not fold.evaluate("(fold) => fold.open"):
        fold.locator("summary").press("Enter")
    expect(figure.locator(".lab-table tbody tr").first).to_be_visible()
    return figure.locator(".lab-table tbody tr")


def row_of(figure: Locator, one: Locator) -> Locator:
    place = one.evaluate("(slice) => [...slice.closest('svg.drawing').querySelectorAll('.slice')].indexOf(slice)")
    return rows(figure).nth(place)


def readout(figure: Locator) -> Locator:
    return figure.locator(".readout")


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
    row = row_of(figure, chosen).evaluate(ROW)
    assert said == row
    assert {"name", "what", "operator", "call", "launch delay", "grid", "block", "registers"} <= said.keys()
    pair = chosen.get_attribute("data-pair")
    expect(figure.locator(f'.slice.call.lit[data-pair="{pair}"]')).to_have_count(1)
    expect(figure.locator(f'.arrows .lit[data-pair="{pair}"]')).to_have_count(1)
    chain = panel.get_by_text("cuLaunchKernelEx ›").inner_text().split(" › ")
    assert chain[:-2] == ["aten::linear", "aten::matmul", "aten::mm"], "operators from the outermost"
    assert chain[-1] == said["what"]
    expect(figure.locator(".slice.op.lit")).to_have_count(3)
    expect(figure.locator(".lit")).to_have_count(3 + 3)
    kernel(figure).focus()
    figure.page.keyboard.press("Escape")
    expect(panel).to_be_empty()
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
    kernel(figure).focus()
    expect(readout(figure)).to_contain_text(whole)
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


def width(figure: Locator) -> float:
    return figure.locator("svg.drawing").evaluate("(drawing) => drawing.getBoundingClientRect().width")


def test_keys_zoom_and_names_follow(figure: Locator) -> None:
    whole, frame = width(figure), figure.locator(".frame")
    names = """(figure) => [...figure.querySelectorAll(".slice")].map((slice) =>
      slice.nextElementSibling?.matches("text") ? slice.nextElementSibling.textContent.length : 0)"""
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
    box = box_of(frame)
    figure.page.mouse.move(box["x"] + 5, box["y"] + 40, steps=4)
    figure.page.mouse.up()
    assert frame.evaluate("(frame) => frame.scrollLeft") > left
    expect(figure.locator("[aria-selected=true]")).to_have_count(0)


@pytest.mark.parametrize(("device", "width"), [(DEFAULT_DEVICE, 360), (OTHER, 1280)])
def test_no_name_is_longer_than_its_slice(on_trial: Opened, device: str, width: int) -> None:
    """Whether the drawing was in sight from the beginning, or behind a tab."""
    page = on_trial(width=width).page
    page.get_by_label("GPU of all figures").select_option(short_name(device))
    for _ in range(2):
        page.evaluate("() => new Promise(requestAnimationFrame)")
    assert timeline(page).locator("svg.drawing").evaluate(TOO_LONG) == []


def test_without_scripts_the_picture_and_the_tables_are_complete(on_trial: Opened) -> None:
    tab = on_trial(scripts=False)
    figure = timeline(tab.page)
    expect(figure.get_by_role("img", name="Two ways")).to_be_visible()
    expect(figure.get_by_role("button")).to_have_count(0)
    expect(figure.get_by_role("radio")).to_have_count(0)
    expect(figure.locator(".gap").first).to_be_visible()
    expect(figure.locator("text").filter(has_text=re.compile("µs idle$")).first).to_be_visible()
    drawn = {kind: figure.locator(f".slice.{kind}").count() for kind in ("gemm", "pointwise", "fill", "call", "op")}
    assert drawn["gemm"] == 6
    assert rows(figure).count() == figure.locator(".slice").count() > sum(drawn.values())
    expect(rows(figure).first).to_be_visible()
    link = figure.get_by_role("link", name="Download .json.gz").first
    downloaded = tab.page.request.get(tab.page.evaluate("(link) => link.href", link.element_handle())).body()
    assert downloaded == (BOOK.root / BOOK["mlp/eager"].trace_path).read_bytes()
    assert gzip.decompress(downloaded).startswith(b"{")
    assert str(ROOT).encode() not in downloaded


def touch(page: Page, *moments: list[tuple[float, float]]) -> None:
    """Fingers that come down at the first of these places, move to the others and leave."""
    session = page.context.new_cdp_session(page)
    for index, places in enumerate((*moments, [])):
        kind = "touchEnd" if not places else "touchMove" if index else "touchStart"
        points = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(places)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


def test_a_second_pinch_goes_on_where_the_first_one_ended(figure: Locator) -> None:
    whole = width(figure)
    kernel(figure).scroll_into_view_if_needed()
    box = box_of(figure.locator(".frame"))
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for most in (3.5, 12):
        touch(figure.page, *([(x - apart / 2, y), (x + apart / 2, y)] for apart in range(60, 241, 15)))
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


def test_steps_align_by_launch_or_by_the_start_of_their_gpu_work(figure: Locator) -> None:
    starts = """(figure) => [...figure.querySelectorAll(".step")].map((step) =>
      step.querySelector(".gpu .slice").getBoundingClientRect().left)"""
    eager, compiled = figure.evaluate(starts)
    assert abs(eager - compiled) > 5
    ends = "(figure) => [...figure.querySelectorAll('.slice')].map((one) => one.getBoundingClientRect().right)"
    figure.get_by_role("radio", name="by GPU start").check()
    eager, compiled = figure.evaluate(starts)
    assert eager == pytest.approx(compiled, abs=0.2)
    box = box_of(figure.locator(".frame"))
    assert max(figure.evaluate(ends)) <= box["x"] + box["width"] + 1, "all of it is in sight"
    zero = (
        figure.locator(".axis text")
        .filter(has_text=re.compile("^0 "))
        .evaluate("(text) => text.previousElementSibling.getBoundingClientRect().left")
    )
    assert zero == pytest.approx(eager, abs=1)
    figure.get_by_role("radio", name="by launch").check()
    assert figure.evaluate(starts)[0] != pytest.approx(figure.evaluate(starts)[1], abs=5)


def drag_ruler(figure: Locator, first: float, last: float) -> None:
    """From one share of the frame's width to another."""
    figure.locator(".frame").scroll_into_view_if_needed()
    box, mouse, y = box_of(figure.locator(".frame")), figure.page.mouse, box_of(figure.locator(".ruler"))["y"] + 10
    mouse.move(box["x"] + first * box["width"], y)
    mouse.down()
    mouse.move(box["x"] + last * box["width"], y, steps=4)
    mouse.up()


def test_the_ruler_measures_time_and_how_long_the_gpu_worked_in_it(figure: Locator) -> None:
    drag_ruler(figure, 0.5, 0.75)
    said = readout(figure).inner_text()
    measured = re.fullmatch(r"([\d.]+) µs measured\. GPU busy: (.*)", said)
    assert measured, said
    span = float(figure.locator(".drawing").get_attribute("data-span") or 0)
    assert float(measured[1]) == pytest.approx(span / 4, rel=0.02)
    shares = re.findall(r"(eager|compiled) ([\d.]+) µs \(([\d.]+) %\)", measured[2])
    assert shares, said
    assert all(0 < float(busy) <= float(measured[1]) * 1.01 and float(share) <= 100 for _, busy, share in shares)
    expect(figure.locator(".range")).to_be_visible()
    assert figure.locator(".frame").evaluate("(frame) => frame.scrollLeft") == 0, "the ruler does not move the lanes"
    kernel(figure).focus()
    figure.page.keyboard.press("Escape")
    assert figure.locator(".range").get_attribute("width") == "0"


def test_a_finger_on_the_ruler_measures_and_moves_nothing(figure: Locator) -> None:
    figure.locator(".ruler").scroll_into_view_if_needed()
    box, page = box_of(figure.locator(".frame")), figure.page
    top = page.evaluate("() => scrollY")
    path = enumerate((0.3, 0.35, 0.5, 0.7))
    touch(page, *([(box["x"] + part * box["width"], box["y"] + 10 + 20 * index)] for index, part in path))
    assert float((figure.locator(".range").get_attribute("width") or "0").rstrip("%")) == pytest.approx(40, abs=0.5)
    assert page.evaluate("() => scrollY") == top


def test_m_measures_between_two_slices(figure: Locator) -> None:
    """From the beginning of the first to the end of the second: the same numbers as in the tables."""
    products = figure.locator(".step").first.locator(".slice.gemm")
    cells = [row_of(figure, products.nth(index)).evaluate(ROW) for index in (0, 1)]
    products.nth(0).focus()
    figure.page.keyboard.press("m")
    products.nth(1).focus()
    figure.page.keyboard.press("M")
    begins, lasts = ([float(cell[key].split(" ")[0]) for cell in cells] for key in ("begins after", "lasts"))
    expect(readout(figure)).to_contain_text(f"{begins[1] + lasts[1] - begins[0]:.0f} µs measured")
    assert readout(figure).get_attribute("aria-live") == "polite"


def test_hover_says_what_is_under_the_pointer(figure: Locator) -> None:
    kernel(figure).hover()
    expect(readout(figure)).to_contain_text("cuBLAS GEMM")
    expect(readout(figure)).to_contain_text("begins after")
    figure.locator(".gap").first.hover()
    expect(readout(figure)).to_contain_text("µs idle")
    assert figure.locator(".slice title").count() == 0, "one pop-up is enough"


def test_wasd_zoom_and_move(figure: Locator) -> None:
    whole, frame = width(figure), figure.locator(".frame")
    slices(figure).first.focus()
    figure.page.keyboard.press("w")
    assert width(figure) == pytest.approx(1.5 * whole, rel=0.01)
    left = frame.evaluate("(frame) => frame.scrollLeft")
    figure.page.keyboard.press("d")
    right = frame.evaluate("(frame) => frame.scrollLeft")
    assert right > left
    figure.page.keyboard.press("A")
    assert frame.evaluate("(frame) => frame.scrollLeft") < right
    figure.page.keyboard.press("s")
    assert width(figure) == pytest.approx(whole, rel=0.01)


def test_a_strip_of_the_whole_step_is_there_while_a_part_is_seen(figure: Locator) -> None:
    strip, frame = figure.locator(".minimap"), figure.locator(".frame")
    expect(strip).to_have_count(0)
    for _ in range(3):
        figure.get_by_role("button", name="Zoom in").press("Enter")
    expect(strip).to_be_visible()
    assert strip.locator(".gemm").count() == figure.locator(".frame .gemm").count()
    strip.scroll_into_view_if_needed()
    box = box_of(strip)
    figure.page.mouse.click(box["x"] + 0.9 * box["width"], box["y"] + 10)
    seen = frame.evaluate("(frame) => (frame.scrollLeft + frame.clientWidth) / frame.scrollWidth")
    assert seen == pytest.approx(1, abs=0.01)
    figure.get_by_role("button", name="Whole step").press("Enter")
    expect(strip).to_be_hidden()


def test_a_kernels_name_is_one_step_from_its_decoder(on_trial: Opened, opened: Opened) -> None:
    figure = timeline(on_trial().page)
    kernel(figure).click()
    expect(kernel(figure)).to_have_attribute("aria-selected", "true")
    expect(kernel(figure)).to_be_focused()
    href = figure.get_by_role("link", name="Decode this name").get_attribute("href") or ""
    name = row_of(figure, kernel(figure)).locator("td").nth(1).inner_text()
    assert href == f"../kernel_names/#decode={name}"
    page = opened(href.removeprefix("../")).page
    expect(page.get_by_role("textbox", name="A kernel's name")).to_have_value(name)
    expect(page.locator("#kernel-decoder .short")).to_contain_text("cuBLAS GEMM")


def test_controls_are_large_enough_to_hit(figure: Locator) -> None:
    controls = figure.locator(".tools button, .tools label, .perfetto")
    sizes = controls.evaluate_all("""(all) => all.map((one) => one.getBoundingClientRect())
      .map(({ width, height }) => [width, height])""")
    assert len(sizes) == 3 + 2 + 2
    assert min(min(size) for size in sizes) >= 28


def test_the_buttons_are_level_with_the_caption(opened: Opened) -> None:
    figure = opened("trace_rows/").page.locator("figure.lab-timeline").first
    whole, caption, tools = (box_of(part) for part in (figure, figure.locator("figcaption"), figure.locator(".tools")))
    assert tools["y"] - whole["y"] >= 12
    assert abs(tools["y"] + tools["height"] / 2 - caption["y"] - caption["height"] / 2) <= 2


@pytest.mark.parametrize("has_touch", [True, False])
def test_the_hint_fits_the_device(browser: Browser, trial: Site, has_touch: bool) -> None:
    context = browser.new_context(has_touch=has_touch, is_mobile=has_touch, viewport={"width": 360, "height": 740})
    page = context.new_page()
    page.goto(f"{trial.url}trial/")
    hint = timeline(page).locator(".hint")
    shown = [part for part in ("pinch to zoom", "and the wheel zoom") if hint.get_by_text(part).is_visible()]
    assert shown == ["pinch to zoom" if has_touch else "and the wheel zoom"]
    context.close()


def test_no_time_of_the_axis_is_cut(on_trial: Opened) -> None:
    figure = timeline(on_trial(width=360).page)
    ends = "(figure) => [...figure.querySelectorAll('.axis text')].map((text) => text.getBoundingClientRect().right)"
    for _ in range(4):
        box = box_of(figure.locator(".frame"))
        assert max(figure.evaluate(ends)) <= box["x"] + box["width"] + 1
        figure.get_by_role("button", name="Zoom in").press("Enter")
        for _ in range(2):
            figure.page.evaluate("() => new Promise(requestAnimationFrame)")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step of 5,000 kernels, each with an operator and a call, as a page with the book's script and style."""
    events = [step(1, 0, 50_000)]
    for index in range(5_000):
        at = index * 10.0
        events += [
            op("aten::mul", at, 8, external=index + 1),
            launch(index + 1, at + 1, 3, external=index + 1),
            kernel_event("k", index + 1, at + 6, 2.5 + index % 5),
        ]
    trace = read_trace(trace_bytes(*events))
    drawing = draw_steps({"large": TracedStep(trace, trace.steps[0])}, "A large step", ident="large")
    names = ("css/drawing.css", "css/timeline.css", "js/timeline.js")
    *styles, script = ((ROOT / "docs/assets" / name).read_text(encoding="utf-8") for name in names)
    page = f"<!doctype html><meta charset=utf-8><style>{''.join(styles)}</style>{drawing}<script>{script}</script>"
    path = tmp_path_factory.mktemp("large") / "large.html"
    path.write_text(page, encoding="utf-8")
    return path


def test_a_step_of_5000_kernels_opens_in_two_seconds(
    browser: Browser, large: Path, weigh: Callable[[str], None]
) -> None:
    """Of the page's own thread: whatever else this machine does meanwhile."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def worked_ms() -> float:
        """CPU time of all tasks until two more frames are drawn."""
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        metrics = session.send("Performance.getMetrics")["metrics"]
        return 1000 * float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    page.goto(large.as_uri(), wait_until="load")
    opened_ms = worked_ms()
    elements = page.evaluate("() => document.querySelectorAll('*').length")
    weigh(f"a step of 5,000 kernels: {opened_ms:.0f} ms of CPU until drawn, {elements:,} elements")
    assert opened_ms < 2_000
    assert elements < 3_000
    expect(page.locator(".lab-note")).to_contain_text("slices too short to see are drawn as")
    page.locator(".slice").last.focus()
    before_ms = worked_ms()
    page.keyboard.press("w")
    assert worked_ms() - before_ms < 500
    page.close()
