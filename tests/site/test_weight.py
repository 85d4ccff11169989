"""What a reader's first view of a page costs, compressed as a host would send it, and in elements."""

from __future__ import annotations

import gzip
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Response

from snippets.lab.recording.device import recorded_devices
from tests.lab.samples import BOOK
from tests.site.looking import Tab
from tests.site.serving import CHAPTERS, PAGES, ROOT, Site

PAGE_LIMIT_BYTES = 180_000
PUBLISHED_DEVICES = 2
DEVICE_LIMIT_BYTES = 10_000
"""On top for each device beyond those that are published: their large panels are in a file of their own."""
CHAPTER_LIMIT_ELEMENTS = 6_000
"""Panels of other devices are text until they are opened."""
SCRIPTS_LIMIT_BYTES = 24_000
TIMELINE_LIMIT_BYTES = 12_000
AT_ONCE = 4
"""Pages that are loaded side by side: each is waited for until nothing more comes."""
PACKED_ALREADY = ("image/png", "image/jpeg", "image/webp", "font/", "application/gzip")


def packed(content: bytes) -> int:
    return len(gzip.compress(content, compresslevel=6, mtime=0))


def sent(response: Response) -> int:
    """Bytes of a response's body on its way."""
    kind = response.headers.get("content-type", "")
    return len(response.body()) if kind.startswith(PACKED_ALREADY) else packed(response.body())


@pytest.fixture(scope="module", autouse=True)
def largest_page(site: Site, weights: list[str]) -> None:
    """Told, not judged: what is loaded is weighed below."""
    sizes = {path.relative_to(site.folder): path.stat().st_size for path in site.folder.rglob("*.html")}
    largest = max(sizes, key=lambda path: sizes[path])
    weights.append(f"largest page: {largest}, {sizes[largest]:,} bytes of HTML")


@dataclass(frozen=True)
class FirstView:
    """What a browser that has seen nothing yet loads and keeps for a page."""

    sizes: dict[str, int]
    """Address below the site's -> bytes on their way."""
    elements: int


@pytest.fixture(scope="module")
def views(browser: Browser, site: Site) -> dict[str, FirstView]:
    """Page -> its first view."""
    context = browser.new_context()
    tabs = [Tab(context.new_page(), site.url) for _ in range(AT_ONCE)]
    for tab in tabs:
        session = context.new_cdp_session(tab.page)
        session.send("Network.enable")
        session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    found, weighed = {}, dict[str, int]()
    names = [*PAGES]
    while names:
        together = dict(zip(names, tabs, strict=False))
        del names[:AT_ONCE]
        for name, tab in together.items():
            tab.go(PAGES[name])
        for name, tab in together.items():
            tab.settle()
            weighed |= {response.url: sent(response) for response in tab.responses if response.url not in weighed}
            sizes = {response.url.removeprefix(site.url): weighed[response.url] for response in tab.responses}
            found[name] = FirstView(sizes, tab.page.evaluate("() => document.querySelectorAll('*').length"))
            tab.page.evaluate("() => localStorage.clear()")
    context.close()
    return found


@pytest.mark.parametrize("name", PAGES)
def test_first_view_of_a_page(views: dict[str, FirstView], weights: list[str], name: str) -> None:
    sizes = views[name].sizes
    assert {PAGES[name], "assets/css/book.css"} <= sizes.keys()
    more_devices = max(0, len(recorded_devices(BOOK.root)) - PUBLISHED_DEVICES)
    total, limit = sum(sizes.values()), PAGE_LIMIT_BYTES + DEVICE_LIMIT_BYTES * more_devices
    heaviest = ", ".join(f"{url} {size:,}" for url, size in sorted(sizes.items(), key=lambda item: -item[1])[:4])
    weights.append(f"{name}: {total:,} of {limit:,} bytes, gzip, {len(sizes)} files ({heaviest})")
    assert total <= limit, weights[-1]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_elements_of_a_chapter(views: dict[str, FirstView], weights: list[str], chapter: str) -> None:
    weights.append(f"{chapter}: {views[chapter].elements:,} of {CHAPTER_LIMIT_ELEMENTS:,} elements")
    assert views[chapter].elements <= CHAPTER_LIMIT_ELEMENTS, weights[-1]


def test_scripts_of_our_own(weights: list[str]) -> None:
    scripts = {path.name: path.read_bytes() for path in sorted(ROOT.glob("docs/assets/js/*.js"))}
    sizes = {name: packed(content) for name, content in scripts.items()}
    each = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
    weights.append(f"our scripts: {sum(sizes.values()):,} of {SCRIPTS_LIMIT_BYTES:,} bytes, gzip ({each})")
    assert sum(sizes.values()) <= SCRIPTS_LIMIT_BYTES, weights[-1]
    assert sizes["timeline.js"] <= TIMELINE_LIMIT_BYTES
