"""Every page, wide and narrow, light and dark: nothing goes wrong, nothing is out of reach."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, expect

from snippets.lab.finding.device import all_devices
from snippets.lab.tools.set_aside import FILE
from snippets.your_trace.reports import EXAMPLES, report_address
from tests.lab.samples import BOOK
from tests.site.first_views import FirstViews
from tests.site.looking import Scheme, Tab
from tests.site.serving import PAGES, Site

REPORTS = [report_address(device, each) for device in all_devices(BOOK.root) for each in EXAMPLES.values()]
LOADED_IN: dict[int, Scheme] = {1280: "light", 360: "dark"}
"""Window width -> the scheme in which a page is loaded there.

Each page is judged by all rules of axe-core once, wide and light; narrow and dark by its colors, and at both widths by
what is too wide. Colors that one page has judged are not judged again in the next one at that width. The trial page,
which has every component, is judged by all rules at both widths, and then toggled, so that it is seen in all four
combinations."""

ALSO_PX = {1280: (1920,), 360: (768,)}
"""Window width -> further ones, at which nothing may be cut or lie over something else."""

Tabs = dict[int, Tab]


@contextmanager
def opened_on(browser: Browser, site: Site) -> Iterator[Tabs]:
    """One tab for each width, used for all pages of a site."""
    found = {}
    for width, scheme in LOADED_IN.items():
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        found[width] = Tab(context.new_page(), site.url, once=True)
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


def problems(
    tabs: Tabs,
    visit: Callable[[Tab], None],
    first: Callable[[Tab], None] = lambda tab: None,
    *,
    unfold: bool = True,
    every_look: bool = False,
) -> str:
    """What is wrong with a page, and where.

    Args:
        tabs: by width.
        visit: goes to the page.
        first: what is done with the page in a tab before it is looked at.
        unfold: open first all that is folded.
        every_look: judge both tabs by all rules, and once more in the other scheme.
    """
    places = defaultdict[str, list[str]](list)
    for width, tab in tabs.items():
        visit(tab)
        first(tab)
        in_full = every_look or LOADED_IN[width] == "light"
        tab.inspect(unfold=unfold, in_full=in_full, also_px=ALSO_PX[width])
        tab.settle()
        for problem in tab.problems():
            places[problem].append(f"{width} px {LOADED_IN[width]}")
        if every_look:
            tab.inspect_toggled()
            for problem in tab.problems():
                places[problem].append(f"{width} px toggled from {LOADED_IN[width]}")
        tab.forget()
    return "".join(f"\n{', '.join(seen)}: {problem}" for problem, seen in places.items())


@pytest.mark.parametrize("name", PAGES)
def test_page(tabs: Tabs, first_views: FirstViews, name: str) -> None:
    def first(tab: Tab) -> None:
        if tab is tabs[1280]:
            first_views.take(name, tab)

    assert problems(tabs, lambda tab: tab.go(PAGES[name]), first) == ""


@pytest.mark.parametrize("address", [each for each in REPORTS if BOOK.name in each])
def test_published_report(tabs: Tabs, address: str) -> None:
    assert problems(tabs, lambda tab: tab.go(address)) == ""


def test_page_that_is_not_there(tabs: Tabs) -> None:
    assert problems(tabs, lambda tab: tab.go("no/such/page/", status=404)) == ""


def test_every_component_on_two_devices(trial_tabs: Tabs) -> None:
    assert problems(trial_tabs, lambda tab: tab.go("trial/"), every_look=True) == ""


def test_every_component_in_use(trial_tabs: Tabs) -> None:
    """A guess committed and others waiting, a slice selected, a raw name opened; no pointer that brings up tooltips."""

    def use(tab: Tab) -> None:
        tab.go("trial/")
        tab.page.get_by_role("spinbutton").first.fill("7")
        tab.page.get_by_role("spinbutton").first.press("Enter")
        tab.page.get_by_role("button", name="Zoom in").press("Enter")
        tab.page.locator(".slice.gemm").filter(visible=True).first.dispatch_event("click")
        tab.page.locator(".kernel-name").filter(visible=True).first.dispatch_event("click")
        used = tab.page.locator(".guess.guessed, .slice[aria-selected=true], .kernel-raw").filter(visible=True)
        expect(used).to_have_count(3)

    assert problems(trial_tabs, use, unfold=False, every_look=True) == ""


def test_every_page_of_the_site_was_looked_at(site: Site) -> None:
    built = {path.relative_to(site.folder).as_posix() for path in site.folder.rglob("*.html") if path.name != FILE}
    assert built == {f"{path}index.html" for path in PAGES.values()} | {"404.html", *REPORTS}


@pytest.mark.parametrize("chapter", ["mlp"])
def test_what_a_page_sets_aside(tabs: Tabs, chapter: str) -> None:
    assert problems(tabs, lambda tab: tab.go(f"{chapter}/{FILE}"), unfold=False) == ""
