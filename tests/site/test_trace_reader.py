"""The box that reads traces: the command line's reports, in a worker that is gone afterwards, from this site alone."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from html import unescape
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Locator, Page, Request, expect

from kinetoscope.__main__ import main
from snippets.lab.tools.policy import WASM, rules_of
from snippets.lab.tools.trace_reader import BELOW
from tests.site.conftest import Opened
from tests.site.first_views import FirstViews
from tests.site.looking import AXE, Tab
from tests.site.serving import PAGES, ROOT, Site, listening
from tests.site.test_policy import POLICY

PAGE = "your_trace/"
TRACES = ROOT / "tests" / "traces"
START_MS = 120_000
"""For Python's start and a report on a machine with other work: a quiet one takes a twentieth."""
ASK = """async (url) => {
  const source = `fetch(${JSON.stringify(url)}).then(() => postMessage("reached"), () => postMessage("stopped"))`;
  const from = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const worker = new Worker(from, { type: "module" });
  return new Promise((done) => { worker.onmessage = ({ data }) => done(data); });
}"""
NO_RUNTIME = "this site was built without Pyodide, which comes from npm; `make docs` said why"


@pytest.fixture
def tab(opened: Opened, site: Site) -> Tab:
    if "data-files" not in (site.folder / PAGE / "index.html").read_text(encoding="utf-8"):
        pytest.skip(NO_RUNTIME)
    return opened(PAGE)


def box(page: Page) -> Locator:
    return page.locator("#trace-reader")


def give(page: Page, files: Sequence[Path], state: str = "result") -> None:
    """Choose files, and wait for the end."""
    page.locator("#trace-files").set_input_files(files)
    expect(box(page)).to_have_class(re.compile(r"\b(result|failed)\b"), timeout=START_MS)
    expect(box(page)).to_have_class(f"trace-reader {state}")


def workers(page: Page) -> list[str]:
    """The box's workers: the theme's search has one, too."""
    return [worker.url for worker in page.workers if worker.url.startswith("blob:")]


def assert_sound(page: Page) -> None:
    """The box for axe, without the report, which has a test of its own."""
    page.evaluate(AXE)
    violations = page.evaluate("() => axe.run('#trace-reader', { iframes: false })")["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in violations] == []


def assert_no_worker(page: Page) -> None:
    """A worker that is ended goes with all of its memory; Playwright hears of it a little later."""
    for _ in range(600):
        if not workers(page):
            return
        page.wait_for_timeout(50)
    raise AssertionError(workers(page))


def on_the_command_line(files: Sequence[Path], site: str, monkeypatch: pytest.MonkeyPatch) -> bytes | None:
    """The report of these files, which lie in one folder."""
    output = files[0].parent / "report.html"
    monkeypatch.chdir(files[0].parent)
    monkeypatch.setenv("KINETOSCOPE_SITE", site)
    failed = main(["report", "-o", str(output), "--", *(file.name for file in files)])
    return None if failed else output.read_bytes()


def ranks(folder: Path, count: int) -> list[Path]:
    """The same trace as that of each rank of a job."""
    trace = json.loads(gzip.decompress((TRACES / "mlp_eager.json.gz").read_bytes()))
    paths = [folder / f"rank{rank}.json.gz" for rank in range(count)]
    for rank, path in enumerate(paths):
        trace["distributedInfo"] = {"rank": rank, "world_size": count, "backend": "nccl"}
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return paths


@pytest.fixture
def requests(tab: Tab) -> Iterator[list[tuple[str, str]]]:
    """Method and address of each request from now on. Afterwards the network is there again."""
    tab.settle()
    seen: list[tuple[str, str]] = []

    def note(request: Request) -> None:
        seen.append((request.method, request.url))

    tab.page.on("request", note)
    yield seen
    tab.page.remove_listener("request", note)
    tab.page.context.set_offline(False)


def test_reports_are_those_of_the_command_line(
    tab: Tab, requests: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One trace, two compared, the ranks of a job. After the first, no network is needed."""
    page = tab.page
    one, before, after = (tmp_path / name for name in ("it's one.json.gz", "before.json.gz", "after.json"))
    one.write_bytes((TRACES / "linear_eager.json.gz").read_bytes())
    before.write_bytes((TRACES / "mlp_eager.json.gz").read_bytes())
    after.write_bytes(gzip.decompress((TRACES / "mlp_compile.json.gz").read_bytes()))
    for files in ([one], [before, after], ranks(tmp_path, 3)):
        give(page, files)
        with page.expect_download() as saved:
            box(page).get_by_role("link", name="Save").click()
        assert saved.value.suggested_filename == ("it's one.report.html" if files == [one] else "traces.report.html")
        report = saved.value.path().read_bytes()
        assert report == on_the_command_line(files, tab.site, monkeypatch)
        title = re.search(r"<h1>(.*)</h1>", report.decode())
        assert title is not None
        frame = page.frame_locator("#trace-reader iframe")
        frame.locator("nav a").last.click()  # within the frame
        expect(frame.locator("h1")).to_have_text(unescape(title[1]))
        if files == [one]:
            assert_sound(page)
            expect(frame.get_by_role("button", name="Zoom in").first).to_be_visible()  # the report's script runs
        assert box(page).get_by_role("button", name="Swap before and after").count() == (files == [before, after])
        assert_no_worker(page)
        box(page).get_by_role("button", name="Another trace").click()
        expect(box(page).locator("iframe")).to_have_count(0)
        page.context.set_offline(True)
    needed = json.loads(box(page).get_attribute("data-files") or "")
    asked = sorted(request for request in requests if not request[1].startswith("blob:"))
    assert asked == sorted(("GET", urljoin(page.url, url)) for url in needed)


def test_a_damaged_trace_has_the_command_lines_words(
    tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray((TRACES / "mlp_eager.json.gz").read_bytes())
    content[200:260] = bytes(60)
    file = tmp_path / "train step.json.gz"
    file.write_bytes(content)
    give(tab.page, [file], "failed")
    assert on_the_command_line([file], tab.site, monkeypatch) is None
    alert = box(tab.page).get_by_role("alert")
    expect(alert.locator("p")).to_have_text(capsys.readouterr().err.strip().removeprefix("error: "))
    expect(box(tab.page).locator(".line code")).to_have_text("kinetoscope report 'train step.json.gz'")
    assert_sound(tab.page)
    box(tab.page).get_by_role("button", name="Try another file").click()
    expect(box(tab.page)).to_have_class("trace-reader idle")


def test_reading_can_be_canceled(tab: Tab) -> None:
    with tab.page.expect_worker(lambda worker: worker.url.startswith("blob:")):
        tab.page.locator("#trace-files").set_input_files(TRACES / "mlp_eager.json.gz")
    box(tab.page).get_by_role("button", name="Cancel").click()
    expect(box(tab.page)).to_have_class("trace-reader idle")
    assert_no_worker(tab.page)


def test_what_need_not_be_read_is_refused_at_once(tab: Tab, tmp_path: Path) -> None:
    """Without a request: a trace beyond the limit, by the length that gzip notes, and two files of one name."""
    large, twin = tmp_path / "large.json.gz", tmp_path / "twin" / "large.json.gz"
    large.write_bytes(gzip.compress(b"{}" * 100)[:-4] + (3_000_000_000).to_bytes(4, "little"))
    twin.parent.mkdir()
    twin.write_bytes(b"{}")
    tab.settle()
    count = len(tab.responses)
    for files, words in (([large], "Too large for a browser: 3 GB unpacked."), ([large, twin], "Rename one")):
        give(tab.page, files, "failed")
        expect(box(tab.page).get_by_role("alert")).to_contain_text(words)
        box(tab.page).get_by_role("button", name="Try another file").click()
    assert len(tab.responses) == count


def test_nothing_is_loaded_before_a_file_is_chosen(first_views: FirstViews) -> None:
    loaded = [url for url in first_views.of("your_trace").sizes if url.startswith((BELOW, "wheel/"))]
    assert loaded == []


def test_files_that_cannot_be_loaded_are_named(tab: Tab) -> None:
    tab.page.route("**/*.wasm", lambda route: route.fulfill(body=b"something else"))
    try:
        give(tab.page, [TRACES / "mlp_eager.json.gz"], "failed")
    finally:
        tab.page.unroute("**/*.wasm")
    expect(box(tab.page).get_by_role("alert")).to_contain_text("Python cannot be loaded from this site.")
    assert {problem for problem in tab.problems() if "integrity" not in problem} == set()


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str]]]:
    """Another site that lets everybody read it, and what it was asked for."""
    asked: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with listening(Elsewhere) as origin:
        yield origin, asked


def test_the_worker_reaches_no_other_site(tab: Tab, elsewhere: tuple[str, list[str]]) -> None:
    origin, asked = elsewhere
    assert tab.page.evaluate(ASK, f"{tab.site}claims.json") == "reached"
    assert tab.page.evaluate(ASK, f"{origin}/trace") == "stopped"
    assert asked == []
    assert all("Content Security Policy" in problem for problem in tab.problems())


def test_webassembly_runs_on_this_page_alone(tab: Tab, site: Site) -> None:
    having = []
    for name, address in PAGES.items():
        (policy,) = POLICY.findall((site.folder / address / "index.html").read_text(encoding="utf-8"))
        rules = rules_of(policy)
        assert rules["connect-src"] == ["'self'"]
        if WASM in rules["script-src"] or "blob:" in rules["worker-src"]:
            having.append(name)
    assert having == ["your_trace"]


def test_a_site_without_python_says_so(opened: Opened, site: Site) -> None:
    tab = opened("")
    html = (site.folder / PAGE / "index.html").read_text(encoding="utf-8")
    bare = re.sub(r' data-files="[^"]*"', "", html)
    tab.page.route(f"**/{PAGE}", lambda route: route.fulfill(body=bare, content_type="text/html"))
    tab.go(PAGE)
    tab.page.unroute(f"**/{PAGE}")
    expect(box(tab.page)).to_contain_text("This copy of the site was built without Python for browsers")
    expect(box(tab.page)).to_contain_text("kinetoscope report trace.json.gz")
    expect(tab.page.locator("#trace-files")).to_have_count(0)


def test_without_scripts_the_box_has_the_command(opened: Opened) -> None:
    page = opened(PAGE, scripts=False).page
    expect(box(page)).to_contain_text("needs JavaScript")
    expect(box(page)).to_contain_text("kinetoscope report trace.json.gz")


def test_the_first_screen_leads_to_the_box(opened: Opened) -> None:
    page = opened("").page
    link = page.get_by_role("link", name="drop the file into your browser")
    expect(link).to_be_in_viewport()
    link.click()
    expect(page).to_have_url(re.compile(rf"/{PAGE}#read-here$"))
    expect(box(page)).to_be_in_viewport()
