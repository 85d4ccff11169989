"""Every page, wide and narrow, light and dark: nothing goes wrong, nothing is left out of reach."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser

from tests.browser.looking import SCHEMES, WIDTHS, Allowed, Scheme, Tab
from tests.browser.serving import PAGES, Site

ALLOWED = (
    Allowed("aria-dialog-name", ".md-search", "", "the theme's search is a dialog without a name"),
    Allowed("landmark-unique", ".md-code__nav", "mlp/", "the theme's copy buttons stand in a nav each, all unnamed"),
)
MISSING = "no/such/page/"

Tabs = dict[tuple[int, Scheme], Tab]


@contextmanager
def opened_on(browser: Browser, site: Site) -> Iterator[Tabs]:
    """One tab for each width and scheme, used for all pages of a site."""
    found = {}
    for width in WIDTHS:
        for scheme in SCHEMES:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            found[width, scheme] = Tab(context.new_page(), site.url)
    yield found
    for tab in found.values():
        tab.page.context.close()


@pytest.fixture(scope="module")
def tabs(browser: Browser, site: Site) -> Iterator[Tabs]:
    with opened_on(browser, site) as found:
        yield found


@pytest.fixture(scope="module")
def trial_tabs(browser: Browser, trial: Site) -> Iterator[Tabs]:
    with opened_on(browser, trial) as found:
        yield found


def problems(tabs: Tabs, path: str, status: int = 200) -> list[str]:
    """What is wrong with a page, and where. All tabs work at once: most of the time goes into axe-core."""
    for tab in tabs.values():
        tab.go(path, status)
        tab.inspect(ALLOWED)
    places = defaultdict[str, list[str]](list)
    for (width, scheme), tab in tabs.items():
        for problem in tab.inspected():
            places[problem].append(f"{width} px {scheme}")
    return [f"{path or 'home'} ({', '.join(seen)}): {problem}" for problem, seen in places.items()]


@pytest.mark.parametrize("name", PAGES)
def test_page(tabs: Tabs, name: str) -> None:
    found = problems(tabs, PAGES[name])
    assert not found, "\n" + "\n".join(found)


def test_page_of_every_component_on_two_devices(trial_tabs: Tabs) -> None:
    found = problems(trial_tabs, "trial/")
    assert not found, "\n" + "\n".join(found)


def test_page_that_is_not_there(tabs: Tabs) -> None:
    found = problems(tabs, MISSING, status=404)
    assert not found, "\n" + "\n".join(found)


def test_every_page_of_the_site_was_looked_at(site: Site) -> None:
    built = {path.relative_to(site.folder).as_posix() for path in site.folder.rglob("*.html")}
    assert built == {f"{path}index.html" for path in PAGES.values()} | {"404.html"}


@pytest.mark.parametrize("allowed", ALLOWED, ids=lambda allowed: f"{allowed.rule} {allowed.selector}")
def test_exceptions_are_needed(tabs: Tabs, allowed: Allowed) -> None:
    tab = tabs[1280, "light"]
    tab.go(allowed.page)
    tab.inspect([one for one in ALLOWED if one != allowed])
    assert any(problem.startswith(f"{allowed.rule}: ") for problem in tab.inspected()), "no longer violated"
