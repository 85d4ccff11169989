"""Look at a page as a strict reader would, and list its problems."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Literal

from playwright.sync_api import ConsoleMessage, FloatRect, Locator, Page, Request, Response, ViewportSize

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
INSPECT = Path(__file__).with_name("inspect.js").read_text(encoding="utf-8")
Scheme = Literal["light", "dark"]
PATIENCE_MS = 30_000
"""For what takes milliseconds on a machine that has nothing else to do."""


def box_of(seen: Locator) -> FloatRect:
    """Where something is in the window."""
    box = seen.bounding_box()
    assert box is not None
    return box


class Tab:
    """A browser tab, and its errors since the last call."""

    def __init__(self, page: Page, site: str, once: bool = False) -> None:
        """`site` is the address that everything on a page has to come from.

        `once`: judge the colors of what looks alike on one page only, of all that this tab visits (`looks` of
        inspect.js).
        """
        self.page = page
        self.site = site
        self.responses: list[Response] = []
        """What the page at hand has been given so far."""
        self._status: dict[str, int] = {}
        self._problems: list[str] = []
        self._judged: set[int] | None = set() if once else None
        self._resized: ViewportSize | None = None
        """The window's own size while it has another."""
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self._problems.append(f"an error that nothing caught: {error}"))
        page.on("request", self._request)
        page.on("requestfailed", self._failed)
        page.on("response", self._response)

    def go(self, path: str = "", status: int = 200) -> None:
        """Visit an address below the site's, which answers with this status."""
        url = f"{self.site}{path}"
        if self._resized or self.page.url.partition("#")[0] == url.partition("#")[0]:
            self.page.goto("about:blank")  # else nothing would be loaded
        self._resize()
        self._status = {url: status}
        self.responses.clear()
        self.page.goto(url, wait_until="load")

    def inspect(self, *, unfold: bool = True, in_full: bool = True, also_px: Sequence[int] = ()) -> None:
        """Look at the page; `problems` has the result.

        The window may have another width then, until it is used again: to lay out a page takes longer than to look.

        Args:
            unfold: open first all that is folded, since what a reader can open has to be sound as well.
            in_full: judge the page by all rules of axe-core, not its colors alone.
            also_px: further widths of the window, at which nothing may be cut or lie over something else.
        """
        for script in (AXE, INSPECT):
            self.page.evaluate(script)
        self.page.evaluate("() => inspect.show()")
        self._measure()
        if unfold:
            self.page.evaluate("() => inspect.unfold()")
            self._measure("unfolded, ")
            self._measure_edges()
        self._run_axe(in_full)
        for width in also_px if unfold else ():
            self._resize(width)
            self._measure_edges()

    def inspect_toggled(self) -> None:
        """Switch an inspected page to the other scheme, and look at it again.

        There axe-core judges colors only, and only what the theme puts around the content.
        """
        self._resize()
        button = self.page.locator("[data-md-component=palette] label").filter(visible=True)
        button.evaluate("(label) => label.click()")  # a pointer would bring up its tooltip
        self.page.evaluate("() => inspect.settled()")
        self._measure("toggled, ")
        self.page.evaluate("() => inspect.removeContent()")
        self._run_axe(in_full=False)

    def settle(self) -> None:
        """Wait until nothing more is loaded."""
        self.page.wait_for_load_state("networkidle")

    def problems(self) -> list[str]:
        """Errors since the last call: errors, warnings, requests that left the site or failed."""
        found, self._problems = self._problems, []
        return found

    def forget(self) -> None:
        """Forget what pages stored here, and close what they opened."""
        self.page.evaluate("() => localStorage.clear()")
        for page in self.page.context.pages:
            if page is not self.page:
                page.close()

    def _measure(self, when: str = "") -> None:
        self._problems += [f"{when}{problem}" for problem in self.page.evaluate("() => inspect.tooWide()")]

    def _measure_edges(self) -> None:
        """Look for what an edge cuts."""
        width = self.page.evaluate("() => innerWidth")
        self._problems += [f"at {width} px, {problem}" for problem in self.page.evaluate("() => inspect.cut()")]

    def _resize(self, width: int = 0) -> None:
        """Give the window another width, or its own again."""
        size = self.page.viewport_size
        assert size is not None
        if width:
            self._resized = self._resized or size
            self.page.set_viewport_size({"width": width, "height": size["height"]})
        elif self._resized:
            self.page.set_viewport_size(self._resized)
            self._resized = None

    def _run_axe(self, in_full: bool) -> None:
        """Judge the colors that are not judged yet, and the page by all other rules where `in_full`."""
        found = self.page.evaluate("(judged) => inspect.markLooks(judged)", [*(self._judged or ())])
        if found["areNew"] or in_full:
            axe = "([ofColors, others]) => inspect.runAxe(ofColors, others)"
            self._problems += self.page.evaluate(axe, [found["areNew"], in_full])
        if self._judged is not None:
            self._judged |= {*found["looks"]}

    def _console(self, message: ConsoleMessage) -> None:
        told_anyway = message.text.startswith("Failed to load resource")
        if message.type in ("error", "warning") and not told_anyway:
            self._problems.append(f"{message.type} on the console: {message.text} ({message.location['url']})")

    def _is_ours(self, url: str) -> bool:
        return url.startswith((self.site, "data:", "blob:"))

    def _request(self, request: Request) -> None:
        if not self._is_ours(request.url):
            self._problems.append(f"a request beyond the site: {request.url}")

    def _failed(self, request: Request) -> None:
        left_meanwhile = request.failure == "net::ERR_ABORTED"
        if self._is_ours(request.url) and not left_meanwhile:
            self._problems.append(f"failed: {request.url}: {request.failure}")

    def _response(self, response: Response) -> None:
        self.responses.append(response)
        expected = self._status.get(response.url, 200)
        if self._is_ours(response.url) and response.status not in (expected, HTTPStatus.NOT_MODIFIED):
            self._problems.append(f"status {response.status}, not {expected}: {response.url}")
