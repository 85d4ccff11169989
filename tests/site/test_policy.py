"""Nothing hostile runs: each of two walls by itself, against markup that runs where there is no wall.

The walls: the sanitizer that outputs of labs pass, and the Content-Security-Policy of every page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page

from snippets.lab.notebooks.outputs import clean_html
from snippets.lab.tools.policy import WASM, hash_source, script_sources
from tests.lab.notebooks.hostile import VECTORS
from tests.site.conftest import Opened
from tests.site.serving import ROOT, Site, listening

POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
INLINE = re.compile(r"""<script(?: type="module")?>(.*?)</script>""", re.DOTALL)
WAIT_MS = 400
LIVE_VECTORS = 60
"""At least so many run where there is no wall, or the tests below would show nothing."""
FRAMES = """async ([wall, count, wait]) => {
  const ran = new Set();
  window.ran = (number) => ran.add(number);
  const pause = () => new Promise((done) => setTimeout(done, wait));
  const frames = await Promise.all([...Array(count).keys()].map((number) => new Promise((done) => {
    const frame = Object.assign(document.createElement("iframe"), { src: `/${wall}/${number}` });
    frame.addEventListener("load", () => done(frame), { once: true });
    document.body.append(frame);
  })));
  await pause();
  const within = (root) => [...root.querySelectorAll("*")].flatMap((one) =>
    [one, ...(one.shadowRoot ? within(one.shadowRoot) : [])]);
  for (const { contentDocument } of frames) {
    for (const element of contentDocument ? within(contentDocument) : []) {
      element.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
      element.focus?.();
      element.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
    }
  }
  await pause();
  return [...ran].sort((a, b) => a - b);
}"""


# ---- vectors against each wall


@pytest.fixture(scope="module")
def vectors(site: Site) -> Iterator[str]:
    """An address below which each vector has a page: /none/3 as it is, /policy/3 with the site's policy, /clean/3."""
    (policy,) = POLICY.finditer((site.folder / "labs/mlp/index.html").read_text(encoding="utf-8"))
    rules = {"policy": policy[0]}
    ran = b"window.ran = () => top.ran(Number(location.pathname.split('/').pop()))"

    class Vectors(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wall, _, number = urlsplit(self.path).path.strip("/").partition("/")
            vector = VECTORS[int(number)] if number.isdigit() else ""
            inside = clean_html(vector) if wall == "clean" else vector
            page = f'<!doctype html>{rules.get(wall, "")}<script src="/ran.js"></script><body><div>{inside}'
            content = ran if wall == "ran.js" else page.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/javascript" if wall == "ran.js" else "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with listening(Vectors) as origin:
        yield origin


def run_vectors(page: Page, origin: str, wall: str) -> list[int]:
    """The vectors that ran behind this wall."""
    page.goto(f"{origin}/top/")
    found: list[int] = page.evaluate(FRAMES, [wall, len(VECTORS), WAIT_MS])
    return found


def test_vectors_run_where_there_is_no_wall(page: Page, vectors: str, weigh: Callable[[str], None]) -> None:
    ran = run_vectors(page, vectors, "none")
    weigh(f"vectors: {len(ran)} of {len(VECTORS)} run without a wall, 0 behind each")
    assert len(ran) >= LIVE_VECTORS, sorted(set(VECTORS) - {VECTORS[number] for number in ran})


@pytest.mark.parametrize("wall", ["clean", "policy"])
def test_no_vector_runs_behind_a_wall(page: Page, vectors: str, wall: str) -> None:
    assert [VECTORS[number] for number in run_vectors(page, vectors, wall)] == []


# ---- the policy of the site


def test_the_site_lets_run_what_it_has_and_nothing_else(site: Site) -> None:
    allowed: set[str] = set()
    inline: set[str] = set()
    for path in site.folder.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        allowed |= {*script_sources("".join(POLICY.findall(html)))}
        inline |= {*map(hash_source, INLINE.findall(html))}
    assert allowed - {"'self'", WASM} == inline, "docs/assets/theme/main.html names scripts that no page has"


def test_an_injected_script_does_not_run(opened: Opened, site: Site) -> None:
    tab = opened("")
    injected = "<script>hacked = 1</script><img src='data:,' onerror='hacked = 2'><p onclick='hacked = 3'>x</p></main>"
    html = (site.folder / "glossary/index.html").read_text(encoding="utf-8").replace("</main>", injected)
    tab.page.route("**/glossary/", lambda route: route.fulfill(body=html, content_type="text/html"))
    tab.go("glossary/")
    tab.page.locator("main > p").click()
    assert tab.page.evaluate("() => typeof hacked") == "undefined"
    tab.page.unroute("**/glossary/")
    problems = tab.problems()
    assert len(problems) == 3
    assert all("Content Security Policy directive" in problem for problem in problems)


def test_the_theme_still_defines_what_scope_js_does() -> None:
    theme = files("material").joinpath("templates/partials/javascripts/base.html").read_text(encoding="utf-8")
    own = (ROOT / "docs/assets/js/scope.js").read_text(encoding="utf-8").splitlines()[-1]
    (script,) = re.findall(r"<script>(.*)</script>", theme)
    parts = [re.split(r"new URL\(.*?\)(?=,__md_hash)", text) for text in (script, own)]
    assert parts[0] == parts[1], 'copy it, and keep new URL("../..", document.currentScript.src)'
