"""A site that has just been built, and a Chromium to look at it. Everything is gone when these tests are done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock  # comes with torch
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.site import serving, two_devices
from tests.site.first_views import FirstViews
from tests.site.looking import PATIENCE_MS, Scheme, Tab
from tests.site.serving import Site

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NO_CHROMIUM = (
    "no Chromium: sudo apt install chromium, or name one: CHROMIUM=/path/to/chrome make test "
    f"(looked for {', '.join(CHROMIUMS)})"
)

ARGUMENTS = [
    "--no-sandbox",
    # Nobody sees what is drawn: a seventh of the CPU time.
    "--disable-gpu",
    "--disable-software-rasterizer",
    # No name is looked up: a request that should not be there fails at once, and is not made.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    # In place of Playwright's list, of which the first three are. The others start a process for each new page, for
    # the list below a window's address bar and for what may come next.
    "--disable-features=HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,PaintHolding,"
    "WebUIOmniboxPopup,WebUIOmniboxAimPopup,SpareRendererForSitePerProcess",
]
Opened = Callable[..., Tab]


def chromium() -> str:
    """The Chromium of this machine. Where there is none, tests are skipped; in continuous integration they fail."""
    named = os.environ.get("CHROMIUM")
    path = next(filter(None, map(shutil.which, [named] if named else CHROMIUMS)), None)
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(NO_CHROMIUM)
    return path


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = chromium()
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """A page for whatever a file of tests looks at."""
    page = browser.new_page()
    yield page
    page.close()


def build_once(folder: Path, build: Callable[[Path], Path]) -> Path:
    """Where a site is once it is built, by whichever process of the tests comes first."""
    done = folder.with_suffix(".done")
    with FileLock(folder.with_suffix(".lock")):
        if not done.exists():
            folder.mkdir()
            done.write_text(str(build(folder)), encoding="utf-8")
    return Path(done.read_text(encoding="utf-8"))


@pytest.fixture(scope="package")
def builds(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Path]]]:
    """Both sites while they are built. Needs `browser`: where nothing can be looked at, nothing is built."""
    own = tmp_path_factory.getbasetemp()
    root = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with ThreadPoolExecutor() as pool:
        yield {
            "trial": pool.submit(build_once, root / "trial", two_devices.build),
            "site": pool.submit(build_once, root / "site", serving.build),
        }


@pytest.fixture(scope="package")
def site(builds: dict[str, Future[Path]]) -> Iterator[Site]:
    """The book as a reader gets it."""
    with serving.served(builds["site"].result()) as served:
        yield served


@pytest.fixture(scope="package")
def trial(builds: dict[str, Future[Path]]) -> Iterator[Site]:
    """A site with two devices, and a page `trial/` that holds every component."""
    with serving.served(builds["trial"].result()) as served:
        yield served


@pytest.fixture(scope="package")
def first_views(browser: Browser, site: Site) -> FirstViews:
    """What was seen of the book's pages when they were visited first."""
    return FirstViews(lambda: Tab(browser.new_context(color_scheme="light").new_page(), site.url))


@pytest.fixture(scope="package")
def shared(browser: Browser) -> Iterator[dict[tuple[str, Scheme, bool], Tab]]:
    """Tabs by site, scheme and whether scripts run.

    They serve one test after another: a new one takes twice the time. Not of both schemes: on a busy machine a page
    once came up dark in a light tab that had just been dark. Why, is not known: 1,000 more visits all came up right.
    """
    tabs: dict[tuple[str, Scheme, bool], Tab] = {}
    yield tabs
    for tab in tabs.values():
        tab.page.context.close()


@pytest.fixture
def opened(
    browser: Browser, shared: dict[tuple[str, Scheme, bool], Tab], request: pytest.FixtureRequest
) -> Iterator[Opened]:
    """A function that opens a page in a tab that remembers nothing; in the end nothing may have gone wrong in it."""
    used: list[Tab] = []

    def opened(
        path: str, *, on: str = "site", width: int = 1280, scheme: Scheme = "light", scripts: bool = True
    ) -> Tab:
        if (on, scheme, scripts) not in shared:
            site: Site = request.getfixturevalue(on)
            context = browser.new_context(color_scheme=scheme, java_script_enabled=scripts)
            shared[on, scheme, scripts] = Tab(context.new_page(), site.url)
        used.append(shared[on, scheme, scripts])
        used[-1].page.goto("about:blank")  # a page that is still there would be laid out anew
        used[-1].page.set_viewport_size({"width": width, "height": 900})
        used[-1].page.emulate_media(media="null", color_scheme=scheme)
        used[-1].problems()  # what came late is not this test's
        used[-1].go(path)
        return used[-1]

    yield opened
    problems = [problem for tab in used for problem in tab.problems()]
    for tab in used:
        tab.forget()
    assert not problems, "\n".join(problems)


@pytest.fixture
def on_trial(opened: Opened) -> Opened:
    """A function that opens the page of every component in a new tab."""
    return partial(opened, "trial/", on="trial")
