"""The gate after `mkdocs build --strict`, which lets much pass.

    what a reader would stumble over   dead links, images and anchors; duplicate ids; requests to other hosts
    what failed without a word         tracebacks, fences and figures that were not executed, fences that did not run
    what should not leave this machine absolute paths, outside of what fences, figures and outputs of labs show
    what could run                     pages without a strict content security policy, and scripts that it does not name

A fence has run when the built page contains an element with data-fence="<its id>".
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from kinetoscope.trace.text import printable
from snippets.lab.cache import code_key, load, store
from snippets.lab.tools.built_page import CSS_URL, Page, read_page
from snippets.lab.tools.page_text import executed_fences, pages as page_texts


def read(site: Path) -> dict[str, Page]:
    """Path below site/ -> page, for every built page; parsed in two processes unless a page was read before."""
    paths = sorted(site.rglob("*.html"))
    code = code_key(*(Path(__file__).with_name(name) for name in ("built_page.py", "policy.py", "set_aside.py")))
    keys = {path: (code, path.relative_to(site).as_posix(), sys.version, path.read_bytes()) for path in paths}
    texts = {path: text for path, key in keys.items() if (text := load(key)) is not None}
    largest_first = sorted((path for path in paths if path not in texts), key=lambda path: -path.stat().st_size)
    if largest_first:
        with ProcessPoolExecutor(2) as pool:
            for path, page in zip(largest_first, pool.map(partial(read_page, site), largest_first), strict=True):
                texts[path] = msgspec.json.encode(page).decode()
                store(keys[path], texts[path])
    return {path.relative_to(site).as_posix(): msgspec.json.decode(texts[path], type=Page) for path in paths}


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
    ]


def check_site(site: Path, docs: Path) -> list[str]:
    """Print what is wrong with the built site, or its size; return the problems."""
    pages = read(site)
    found = problems(site, docs, pages)
    for problem in found:
        print(f"check_site: {printable(problem)}", file=sys.stderr)
    if not found:
        ran, links = sum(len(page.fences) for page in pages.values()), sum(len(page.links) for page in pages.values())
        print(f"check_site: {len(pages)} pages, {ran} executed fences, {links} links: sound")
    return found
