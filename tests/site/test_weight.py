"""The cost of a reader's first view of a page, compressed as a host would send it, and in elements."""

from __future__ import annotations

import pytest

from snippets.lab.recording.device import recorded_devices
from tests.lab.samples import BOOK
from tests.site.first_views import FirstViews, packed
from tests.site.serving import CHAPTERS, PAGES, ROOT, Site

PAGE_LIMIT_BYTES = 180_000
PUBLISHED_DEVICES = 2
DEVICE_LIMIT_BYTES = 10_000
"""On top for each device beyond those that are published: their large panels are in a file of their own."""
CHAPTER_LIMIT_ELEMENTS = 6_000
"""Panels of other devices are text until they are opened."""
SCRIPTS_LIMIT_BYTES = 24_000
TIMELINE_LIMIT_BYTES = 12_000


@pytest.fixture(scope="module", autouse=True)
def largest_page(site: Site, weights: list[str]) -> None:
    """Told, not judged: what is loaded is weighed below."""
    sizes = {path.relative_to(site.folder): path.stat().st_size for path in site.folder.rglob("*.html")}
    largest = max(sizes, key=lambda path: sizes[path])
    weights.append(f"largest page: {largest}, {sizes[largest]:,} bytes of HTML")


@pytest.mark.parametrize("name", PAGES)
def test_first_view_of_a_page(first_views: FirstViews, weights: list[str], name: str) -> None:
    sizes = first_views.of(name).sizes
    assert {PAGES[name], "assets/css/book.css"} <= sizes.keys()
    more_devices = max(0, len(recorded_devices(BOOK.root)) - PUBLISHED_DEVICES)
    total, limit = sum(sizes.values()), PAGE_LIMIT_BYTES + DEVICE_LIMIT_BYTES * more_devices
    heaviest = ", ".join(f"{url} {size:,}" for url, size in sorted(sizes.items(), key=lambda item: -item[1])[:4])
    weights.append(f"{name}: {total:,} of {limit:,} bytes, gzip, {len(sizes)} files ({heaviest})")
    assert total <= limit, weights[-1]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_elements_of_a_chapter(first_views: FirstViews, weights: list[str], chapter: str) -> None:
    elements = first_views.of(chapter).elements
    weights.append(f"{chapter}: {elements:,} of {CHAPTER_LIMIT_ELEMENTS:,} elements")
    assert elements <= CHAPTER_LIMIT_ELEMENTS, weights[-1]


def test_scripts_of_our_own(weights: list[str]) -> None:
    scripts = {path.name: path.read_bytes() for path in sorted(ROOT.glob("docs/assets/js/*.js"))}
    sizes = {name: packed(content) for name, content in scripts.items()}
    each = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
    weights.append(f"our scripts: {sum(sizes.values()):,} of {SCRIPTS_LIMIT_BYTES:,} bytes, gzip ({each})")
    assert sum(sizes.values()) <= SCRIPTS_LIMIT_BYTES, weights[-1]
    assert sizes["timeline.js"] <= TIMELINE_LIMIT_BYTES
