"""The cost of a reader's first view of a page, compressed as a host would send it, and in elements."""

from __future__ import annotations

from collections.abc import Callable

from snippets.lab.recording.device import recorded_devices
from tests.lab.samples import BOOK
from tests.site.first_views import FirstViews, packed
from tests.site.serving import CHAPTERS, PAGES, ROOT, Site

PAGE_LIMIT_BYTES = 182_000
PUBLISHED_DEVICES = 2
DEVICE_LIMIT_BYTES = 10_000
"""On top for each device beyond those that are published: their large panels are in a file of their own."""
CHAPTER_LIMIT_ELEMENTS = 6_000
"""Panels of other devices are text until they are opened."""
SCRIPTS_LIMIT_BYTES = 32_000
TIMELINE_LIMIT_BYTES = 12_000


Weigh = Callable[[str], None]


def test_first_view_of_a_page(site: Site, first_views: FirstViews, weigh: Weigh) -> None:
    html = {path.relative_to(site.folder): path.stat().st_size for path in site.folder.rglob("*.html")}
    largest = max(html, key=lambda path: html[path])
    weigh(f"largest page: {largest}, {html[largest]:,} bytes of HTML")
    more_devices = max(0, len(recorded_devices(BOOK.root)) - PUBLISHED_DEVICES)
    limit = PAGE_LIMIT_BYTES + DEVICE_LIMIT_BYTES * more_devices
    too_heavy = []
    for name, address in PAGES.items():
        sizes = first_views.of(name).sizes
        assert {address, "assets/css/book.css"} <= sizes.keys(), name
        heaviest = ", ".join(f"{url} {size:,}" for url, size in sorted(sizes.items(), key=lambda item: -item[1])[:4])
        line = f"{name}: {sum(sizes.values()):,} of {limit:,} bytes, gzip, {len(sizes)} files ({heaviest})"
        weigh(line)
        too_heavy += [line] if sum(sizes.values()) > limit else []
    assert too_heavy == []


def test_elements_of_a_chapter(first_views: FirstViews, weigh: Weigh) -> None:
    elements = {chapter: first_views.of(chapter).elements for chapter in CHAPTERS}
    for chapter, count in elements.items():
        weigh(f"{chapter}: {count:,} of {CHAPTER_LIMIT_ELEMENTS:,} elements")
    assert {chapter: count for chapter, count in elements.items() if count > CHAPTER_LIMIT_ELEMENTS} == {}


def test_scripts_of_our_own(weigh: Weigh) -> None:
    scripts = {path.name: path.read_bytes() for path in sorted(ROOT.glob("docs/assets/js/*.js"))}
    sizes = {name: packed(content) for name, content in scripts.items()}
    each = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
    weigh(f"our scripts: {sum(sizes.values()):,} of {SCRIPTS_LIMIT_BYTES:,} bytes, gzip ({each})")
    assert sum(sizes.values()) <= SCRIPTS_LIMIT_BYTES
    assert sizes["timeline.js"] <= TIMELINE_LIMIT_BYTES
