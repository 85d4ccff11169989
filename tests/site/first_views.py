"""The first view of each page in a browser: taken once, by the test that visits the page first."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass, field

from playwright.sync_api import Response

from tests.site.looking import Tab
from tests.site.serving import PAGES

PACKED_ALREADY = ("image/png", "image/jpeg", "image/webp", "font/", "application/gzip")
STOPS = """() => {
  const isStop = (element) => {
    if (element.tabIndex < 0 || element.disabled || element.closest("[inert]")) return false;
    if (!element.checkVisibility({ visibilityProperty: true })) return false;
    if (element.type !== "radio" || !element.name) return true;
    return [null, element].includes(document.querySelector(`[name="${CSS.escape(element.name)}"]:checked`));
  };
  const all = document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]");
  return [...all].filter(isStop).length;
}"""
"""What Tab should reach, without pressing it; a little more than what it does."""


@dataclass(frozen=True)
class FirstView:
    """A page as it is loaded, before anybody touches it, at 1280 px and in the light scheme."""

    sizes: dict[str, int]
    """Address below the site's -> bytes on their way."""
    elements: int
    stops: int
    """Of the Tab key."""


@dataclass
class FirstViews:
    """The first views of a site's pages."""

    new_tab: Callable[[], Tab]
    """A tab of its own, for pages that no test has visited."""
    _found: dict[str, FirstView] = field(default_factory=dict)
    _weighed: dict[str, int] = field(default_factory=dict)
    """Address -> bytes: most of what a page loads is that of all pages."""
    _tab: Tab | None = None

    def of(self, name: str) -> FirstView:
        """The first view of a page; visits it if no test has."""
        if name not in self._found:
            self._tab = self._tab or self.new_tab()
            self._tab.go(PAGES[name])
            self.take(name, self._tab)
            self._tab.forget()
        return self._found[name]

    def take(self, name: str, tab: Tab) -> None:
        """Of the page that has just been loaded in this tab."""
        tab.settle()
        for response in tab.responses:
            if response.url not in self._weighed:
                self._weighed[response.url] = sent(response)
        self._found[name] = FirstView(
            {response.url.removeprefix(tab.site): self._weighed[response.url] for response in tab.responses},
            tab.page.evaluate("() => document.querySelectorAll('*').length"),
            tab.page.evaluate(STOPS),
        )


def packed(content: bytes) -> int:
    """Bytes of what a host compresses."""
    return len(gzip.compress(content, compresslevel=6, mtime=0))


def sent(response: Response) -> int:
    """Bytes of a response's body on its way."""
    kind = response.headers.get("content-type", "")
    return len(response.body()) if kind.startswith(PACKED_ALREADY) else packed(response.body())
