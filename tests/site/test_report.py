"""A report in a browser: sound for axe, wide and narrow, light and dark, without a request, and evidence is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from kinetoscope.report.document import report_html
from tests.site.looking import AXE, Scheme
from tests.tool.report.samples import SHAPES, SMALL, SYNC, diagnosed, traced


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "train.report.html"
    path.write_text(report_html(diagnosed(traced(), SYNC, SMALL, SHAPES)), encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_it_is_sound(page: Page, report: Path, width: int, scheme: Scheme) -> None:
    problems: list[str] = []
    requests: list[str] = []
    page.goto("about:blank")
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    page.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
    assert (problems, requests) == ([], [report.as_uri()])
    page.evaluate(AXE)
    violations = page.evaluate("() => axe.run()")["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in violations] == []


def test_evidence_is_shown_in_the_timeline(page: Page, report: Path) -> None:
    page.goto("about:blank")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(report.as_uri())
    page.get_by_text("Evidence: 1 event").first.click()
    page.get_by_role("link", name="show").first.click()
    expect(page.locator(".slice[aria-selected=true]")).to_have_count(1)  # after `hashchange`, which comes later
    expect(page.locator(".selected")).to_contain_text("cudaStreamSynchronize")


def test_it_can_be_read_without_script(browser: Browser, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.get_by_role("heading", name="Diagnosis").is_visible()
    assert not page.get_by_role("button", name="Zoom in").is_visible()
    assert page.locator(".slice").count() == 6
    context.close()
