"""What a reader's first view of a chapter costs, compressed as a host would send it."""

from __future__ import annotations

import gzip

import pytest
from playwright.sync_api import Browser, Response

from snippets.lab.recording.device import recorded_devices
from tests.lab.samples import BOOK
from tests.site.looking import Tab
from tests.site.serving import CHAPTERS, PAGES, ROOT, Site

PAGE_LIMIT_BYTES = 260_000
DEVICE_LIMIT_BYTES = 60_000
"""On top for each further device: a page holds the tabs of all of them."""
SCRIPTS_LIMIT_BYTES = 24_000
TIMELINE_LIMIT_BYTES = 12_000
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


@pytest.fixture(scope="module")
def loaded(browser: Browser, site: Site) -> dict[str, dict[str, int]]:
    """Chapter -> address below the site's -> bytes on their way: all that a browser loads that has seen nothing yet."""
    tabs = {chapter: Tab(browser.new_context().new_page(), site.url) for chapter in CHAPTERS}
    for chapter, tab in tabs.items():
        tab.go(PAGES[chapter])
    found = {}
    for chapter, tab in tabs.items():
        tab.settle()
        found[chapter] = {response.url.removeprefix(site.url): sent(response) for response in tab.responses}
        tab.page.context.close()
    return found


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_first_view_of_a_chapter(loaded: dict[str, dict[str, int]], weights: list[str], chapter: str) -> None:
    sizes = loaded[chapter]
    assert {PAGES[chapter], "assets/css/book.css", "search/search_index.json"} <= sizes.keys()
    total, limit = sum(sizes.values()), PAGE_LIMIT_BYTES + DEVICE_LIMIT_BYTES * (len(recorded_devices(BOOK.root)) - 1)
    heaviest = ", ".join(f"{url} {size:,}" for url, size in sorted(sizes.items(), key=lambda item: -item[1])[:4])
    weights.append(f"{chapter}: {total:,} of {limit:,} bytes, gzip, {len(sizes)} files ({heaviest})")
    assert total <= limit, weights[-1]


def test_scripts_of_our_own(weights: list[str]) -> None:
    scripts = {path.name: path.read_bytes() for path in sorted(ROOT.glob("docs/assets/js/*.js"))}
    sizes = {name: packed(content) for name, content in scripts.items()}
    each = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
    weights.append(f"our scripts: {sum(sizes.values()):,} of {SCRIPTS_LIMIT_BYTES:,} bytes, gzip ({each})")
    assert sum(sizes.values()) <= SCRIPTS_LIMIT_BYTES, weights[-1]
    assert sizes["timeline.js"] <= TIMELINE_LIMIT_BYTES
