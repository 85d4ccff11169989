"""The gate after `mkdocs build --strict`, which lets much pass: python -m tests.site.check_site site

    what a reader would stumble over   dead links, images and anchors; duplicate ids; requests to other hosts
    what failed without a word         tracebacks, fences and figures that were not executed, fences that did not run
    what should not leave this machine absolute paths
    what a trace could smuggle in      reports without a strict content security policy
    what could run                     scripts that the page's policy does not name, in tags, attributes or addresses
    what machines read                 claims.json

A fence has run when the built page contains an element with data-fence="<its id>".
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from snippets.lab.cache import code_key, load, store
from snippets.lab.tools.page_text import executed_fences
from snippets.lab.tools.page_text import pages as page_texts
from tests.site.markup import POLICY, form_problems, is_script, policy_problems, tag_problems

ROOT = Path(__file__).resolve().parents[2]
CLAIM_KEYS = {"id", "chapter", "sentence", "scope", "source", "device", "measured", "verdict", "accepted", "reason"}

LINKING = {("a", "href"), ("area", "href")}
LOADING = {
    *((tag, "src") for tag in ("audio", "embed", "iframe", "img", "input", "script", "source", "track", "video")),
    *((tag, "srcset") for tag in ("img", "source")),
    ("image", "href"),
    ("image", "xlink:href"),
    ("link", "href"),
    ("object", "data"),
    ("use", "href"),
    ("use", "xlink:href"),
    ("video", "poster"),
}
LOADING_RELS = {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "preconnect", "dns-prefetch", "manifest"}
ID_LISTS = {"aria-labelledby", "aria-describedby", "aria-controls", "for"}
VOID = set(["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"])

PICTURES = {"math", "svg"}
"""Below these `<path/>` is closed."""

CSS_URL = re.compile(r"""(?:@import\s+(?:url\()?|url\()\s*["']?([^"')\s]+)""")
LOCAL_REFERENCE = re.compile(r"url\(\s*[\"']?#([^\"')]+)")
TRACEBACK = "Traceback (most recent call last)"
NOT_EXECUTED = re.compile(r"\b(?:python|py|pycon|bash|sh|console)\b[^\n]*\bexec=")
NOT_COMPUTED = re.compile(r"(?<!`)#!(?:fig|src)\b|(?<!;)--8<--")
MACHINE_PATH = re.compile(r"(?<![\w./:])/(?:home|root|tmp|Users|work|workspace|opt|mnt|var)/[\w.-]+")


@dataclass
class Page:
    """The data of one built page that the checks need."""

    path: str
    ids: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    links: list[tuple[int, str]] = field(default_factory=list)
    loads: list[tuple[int, str]] = field(default_factory=list)
    id_references: list[tuple[int, str]] = field(default_factory=list)
    fences: list[str] = field(default_factory=list)
    has_script: bool = False
    policies: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    """Inline, and run by a browser."""
    problems: list[str] = field(default_factory=list)

    def complain(self, line: int, text: str) -> None:
        self.problems.append(f"{self.path}:{line}: {text}")


class Reader(HTMLParser):
    """Fills a Page."""

    def __init__(self, path: str) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page(path)
        self.open: list[str] = []
        self.script: list[str] | None = None
        """The text of the open script, if a browser runs it."""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID and not PICTURES & {*self.open}:
            self.page.complain(self.getpos()[0], f"<{tag}/> stays open in a browser")
        self.handle_endtag(tag)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        line, page = self.getpos()[0], self.page
        unsafe = [*tag_problems(tag, attrs, self.open)]
        for problem in unsafe:
            page.complain(line, problem)
        if tag not in VOID:
            self.open.append(tag)
        if unsafe:
            return
        given = {name: value or "" for name, value in attrs}
        rels = set(given.get("rel", "").split())
        for name, value in given.items():
            if name == "id":
                page.ids.append(value)
            elif name == "data-fence":
                page.fences.append(value)
            elif name in ID_LISTS:
                page.id_references += [(line, one) for one in value.split()]
            elif (tag, name) in LINKING:
                page.links.append((line, value))
            elif (tag, name) in LOADING:
                urls = [part.split()[0] for part in value.split(",") if part.split()] if name == "srcset" else [value]
                heavy = tag != "link" or rels & LOADING_RELS
                (page.loads if heavy else page.links).extend((line, url) for url in urls)
            page.id_references += [(line, one) for one in LOCAL_REFERENCE.findall(value)]
            if name == "style":
                page.loads += [(line, url) for url in CSS_URL.findall(value)]
            if MACHINE_PATH.search(value) and name not in {"href", "src"}:
                page.complain(line, f"path of a machine in {name}=: {MACHINE_PATH.search(value)[0]}")
        if tag == "script" and is_script(attrs):
            self.page.has_script = True
            self.script = [] if "src" not in given else None
        if given.get("http-equiv", "").lower() == POLICY.lower() and not page.has_script:
            page.policies.append(given.get("content", ""))
        if "lab-sample" in given.get("class", "").split():
            page.complain(line, "a sample's numbers, which nobody measured")
        page.anchors.update(given[name] for name in ("id", "name") if name in given)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if self.script is not None and tag == "script":
            self.page.scripts.append("".join(self.script))
            self.script = None
        if self.open[-1:] != [tag]:
            opened = f"<{self.open[-1]}>" if self.open else "nothing"
            self.page.complain(self.getpos()[0], f"</{tag}> ends {opened}")
        while tag in self.open and self.open.pop() != tag:
            pass

    def handle_data(self, text: str) -> None:
        line, page = self.getpos()[0], self.page
        if "script" in self.open:
            if self.script is not None:
                self.script.append(text)
            return
        if "style" in self.open:
            page.loads += [(line, url) for url in CSS_URL.findall(text)]
            return
        if TRACEBACK in text:
            page.complain(line, "a traceback")
        for match in MACHINE_PATH.finditer(text):
            page.complain(line, f"path of a machine: {match[0]}")
        if "pre" not in self.open:
            for match in NOT_EXECUTED.finditer(text):
                page.complain(line, f"a fence that was not executed: {match[0]}")
            for match in NOT_COMPUTED.finditer(text):
                page.complain(line, f"not computed: {text[match.start() :][:60]}")


def read(site: Path) -> dict[str, Page]:
    """Path below site/ -> page, for every built page; parsed in two processes unless a page was read before."""
    paths = sorted(site.rglob("*.html"))
    code = code_key(Path(__file__), Path(policy_problems.__code__.co_filename))
    keys = {path: (code, path.relative_to(site).as_posix(), sys.version, path.read_bytes()) for path in paths}
    texts = {path: load(key) for path, key in keys.items()}
    largest_first = sorted((path for path in paths if texts[path] is None), key=lambda path: -path.stat().st_size)
    if largest_first:
        with ProcessPoolExecutor(2) as pool:
            for path, page in zip(largest_first, pool.map(partial(read_page, site), largest_first), strict=True):
                texts[path] = msgspec.json.encode(page).decode()
                store(keys[path], texts[path])
    return {path.relative_to(site).as_posix(): msgspec.json.decode(texts[path], type=Page) for path in paths}


def read_page(site: Path, path: Path) -> Page:
    """One built page."""
    text = path.read_text(encoding="utf-8")
    reader = Reader(path.relative_to(site).as_posix())
    for line, problem in form_problems(text):
        reader.page.complain(line, problem)
    reader.feed(text)
    reader.close()
    if reader.open:
        reader.page.complain(text.count("\n") + 1, f"unclosed: {' '.join(f'<{tag}>' for tag in reader.open)}")
    for problem in policy_problems(reader.page.policies, reader.page.scripts):
        reader.page.complain(1, problem)
    return reader.page


def target(page: str, url: str) -> tuple[str, str]:
    """(file below site/, fragment) that `url` on `page` leads to; the file is `..` when it leaves the site."""
    root = urlsplit(os.environ.get("SITE_URL", "")).path.rstrip("/")  # mkdocs.yml's site_url, in the links of 404.html
    parts = urlsplit(urljoin(f"http://site/{page}", url.removeprefix(root) if url.startswith(f"{root}/") else url))
    path = unquote(parts.path).lstrip("/")
    climbs = url.count("../") > page.count("/") and not url.startswith("/")
    return (
        ("..", "")
        if climbs
        else (path + "index.html" if not path or path.endswith("/") else path, unquote(parts.fragment))
    )


def is_external(url: str) -> bool:
    """Whether the URL names a scheme or a host."""
    parts = urlsplit(url)
    return bool(parts.scheme or parts.netloc)


def link_problems(site: Path, pages: dict[str, Page]) -> Iterator[str]:
    """Dead links, images and anchors; requests to other hosts."""
    for page in pages.values():
        for line, url in page.loads:
            if is_external(url) and urlsplit(url).scheme != "data":
                yield f"{page.path}:{line}: loads from another host: {url}"
        for line, url in [*page.links, *page.loads]:
            if is_external(url):
                if urlsplit(url).scheme not in {"", "http", "https", "mailto", "data"}:
                    yield f"{page.path}:{line}: neither a web nor a mail address: {url}"
                continue
            if url.startswith("/") and page.path != "404.html":
                yield f"{page.path}:{line}: absolute, breaks where the site is not at the root: {url}"
                continue
            file, fragment = target(page.path, url)
            if not (site / file).is_file():
                yield f"{page.path}:{line}: dead: {url}"
            elif fragment and file in pages and fragment not in pages[file].anchors:
                yield f"{page.path}:{line}: no such anchor: {url}"


def id_problems(pages: dict[str, Page]) -> Iterator[str]:
    """Duplicate ids, and references within a page to ids that it lacks."""
    for page in pages.values():
        for name, count in Counter(page.ids).items():
            if count > 1:
                yield f"{page.path}: id {name!r} stands {count} times"
        for line, name in page.id_references:
            if name not in page.anchors:
                yield f"{page.path}:{line}: refers to id {name!r}, which is not on the page"


def style_problems(site: Path, pages: dict[str, Page]) -> Iterator[str]:
    """Style sheets of the pages that load from other hosts, or what is not there."""
    files = {target(page.path, url)[0] for page in pages.values() for _, url in page.loads if not is_external(url)}
    for file in sorted(name for name in files if name.endswith(".css") and (site / name).is_file()):
        for url in CSS_URL.findall((site / file).read_text(encoding="utf-8")):
            if urlsplit(url).scheme == "data" or url.startswith("#"):
                continue
            if is_external(url):
                yield f"{file}: loads from another host: {url}"
            elif not (site / target(file, url)[0]).is_file():
                yield f"{file}: dead: {url}"


def fence_problems(docs: Path, pages: dict[str, Page]) -> Iterator[str]:
    """Executed fences of the sources against fences that ran, both ways."""
    for source, text in page_texts(docs).items():
        stem = source.removesuffix(".md").removesuffix("index").strip("/")
        built = pages.get(f"{stem}/index.html".lstrip("/"))
        if built is None:
            yield f"{source}: not in the site"
            continue
        written = Counter(name for fence in executed_fences(source, text) for name in fence.ids)
        ran = Counter(built.fences)
        yield from (f"{source}: fence {name!r} did not run (nothing on {built.path})" for name in written - ran)
        yield from (f"{built.path}: fence {name!r} ran but is not in {source}" for name in ran - written)


def report_problems(pages: dict[str, Page]) -> Iterator[str]:
    """Published reports, in which names from traces stand, forbid every request."""
    for page in pages.values():
        rules = [rule.split() for policy in page.policies for rule in policy.split(";")]
        if page.path.startswith("reports/") and ["default-src", "'none'"] not in rules:
            yield f"{page.path}: its {POLICY} lacks default-src 'none'"


def claims_problems(site: Path) -> Iterator[str]:
    """claims.json is a list of claims with the promised fields."""
    path = site / "claims.json"
    try:
        claims = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        yield f"claims.json: {error}"
        return
    if not isinstance(claims, list) or not all(isinstance(claim, dict) for claim in claims):
        yield "claims.json: not a list of claims"
        return
    for index, claim in enumerate(claims):
        if missing := CLAIM_KEYS - claim.keys():
            yield f"claims.json: claim {claim.get('id', index)!r} lacks {', '.join(sorted(missing))}"


def problems(site: Path, docs: Path, pages: dict[str, Page] | None = None) -> list[str]:
    """All problems of the built site, one line each."""
    pages = read(site) if pages is None else pages
    return [
        *([] if pages else [f"{site}: no page"]),
        *(problem for page in pages.values() for problem in page.problems),
        *link_problems(site, pages),
        *id_problems(pages),
        *style_problems(site, pages),
        *fence_problems(docs, pages),
        *report_problems(pages),
        *claims_problems(site),
    ]


def main(argv: list[str] | None = None) -> int:
    """Print the problems; 1 when there are any."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.site.check_site", description=(__doc__ or "").partition(":")[0]
    )
    parser.add_argument("site", type=Path)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="the sources it was built from")
    arguments = parser.parse_args(argv)
    pages = read(arguments.site)
    found = problems(arguments.site, arguments.docs, pages)
    for problem in found:
        print(f"check_site: {problem}", file=sys.stderr)
    if not found:
        ran, links = sum(len(page.fences) for page in pages.values()), sum(len(page.links) for page in pages.values())
        print(f"check_site: {len(pages)} pages, {ran} executed fences, {links} links: sound")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
