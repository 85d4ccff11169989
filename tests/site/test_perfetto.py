"""A whole trace is handed to Perfetto's page in another window. Here a page of our own stands in for Perfetto's."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.lab.samples import BOOK
from tests.site.conftest import Opened
from tests.site.serving import listening

STAND_IN = b"""<!doctype html><title>Stand-in</title><script>
  let deaf = Number(new URLSearchParams(location.search).get("deaf")), pings = 0;
  addEventListener("message", ({ data, source, origin }) => {
    if (data === "PING" && ++pings > deaf) source.postMessage("PONG", origin);
    if (data.perfetto) window.given = { ...data.perfetto, bytes: [...new Uint8Array(data.perfetto.buffer)], origin };
  });
</script>"""


class StandIn(BaseHTTPRequestHandler):
    """The page that answers PING with PONG; below /moved/ it sends the visitor on to the address that follows."""

    def do_GET(self) -> None:
        _, moved, elsewhere = self.path.partition("/moved/")
        self.send_response(302 if moved else 200)
        if moved:
            self.send_header("Location", elsewhere)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(STAND_IN)))
        self.end_headers()
        self.wfile.write(STAND_IN)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def perfetto() -> Iterator[str]:
    with listening(StandIn) as origin:
        yield origin


def button(page: Page, perfetto: str = "") -> Locator:
    """The button of the first variant; with an address, it leads there."""
    found = page.get_by_role("button", name="Open the whole trace in Perfetto").first
    if perfetto:
        found.evaluate("(button, url) => { button.dataset.perfetto = url }", perfetto)
    return found


def status(page: Page) -> Locator:
    return page.locator(".traces [role=status]").first


def test_it_leads_to_perfetto(on_trial: Opened) -> None:
    expect(button(on_trial().page)).to_have_attribute("data-perfetto", "https://ui.perfetto.dev")


@pytest.mark.parametrize("deaf", [0, 3])
def test_a_trace_is_handed_over_whole(on_trial: Opened, perfetto: str, deaf: int) -> None:
    """However late the other page begins to listen."""
    tab = on_trial()
    page = tab.page
    with page.expect_popup() as popup:
        button(page, f"{perfetto}/?deaf={deaf}").press("Enter")
    popup.value.wait_for_function("() => window.given")
    given = popup.value.evaluate("() => window.given")
    assert bytes(given["bytes"]) == (BOOK.root / BOOK["mlp/eager"].trace_path).read_bytes()
    assert "traceEvents" in json.loads(gzip.decompress(bytes(given["bytes"])))
    assert (given["title"], given["fileName"]) == ("mlp/eager on NVIDIA H200", "eager.trace.json.gz")
    assert tab.site.startswith(given["origin"])
    expect(status(page)).to_have_text("Handed over to Perfetto.")


def test_no_other_page_can_answer(on_trial: Opened, perfetto: str) -> None:
    page = on_trial().page
    with page.expect_popup() as popup:
        button(page, f"{perfetto}/?deaf=1000").press("Enter")
    page.evaluate("() => postMessage('PONG', '*')")
    popup.value.wait_for_function("() => pings > 5")
    assert popup.value.evaluate("() => window.given") is None
    popup.value.evaluate("() => { deaf = 0 }")
    popup.value.wait_for_function("() => window.given")


def test_a_page_that_the_window_was_led_to_is_given_nothing(on_trial: Opened, perfetto: str) -> None:
    page = on_trial().page
    with listening(StandIn) as elsewhere, page.expect_popup() as popup:
        button(page, f"{perfetto}/moved/{elsewhere}/").press("Enter")
        popup.value.wait_for_url(f"{elsewhere}/")
        popup.value.wait_for_function("() => pings > 5")
        assert popup.value.evaluate("() => window.given") is None


def test_a_blocked_window_is_told(on_trial: Opened) -> None:
    page = on_trial().page
    page.evaluate("() => { window.open = () => null }")
    button(page).press("Enter")
    expect(status(page)).to_contain_text("The browser blocked the new window.")


def test_a_trace_that_cannot_be_loaded_is_told(on_trial: Opened, perfetto: str) -> None:
    tab = on_trial()
    here = button(tab.page, perfetto)
    here.evaluate("(button) => { button.dataset.trace = 'lost.trace.json.gz' }")
    here.press("Enter")
    expect(status(tab.page)).to_contain_text("The trace could not be loaded.")
    assert tab.problems() == [f"status 404, not 200: {tab.site}trial/lost.trace.json.gz"]
