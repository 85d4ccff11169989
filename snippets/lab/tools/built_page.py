"""A built page as the gate reads it: links, loads, ids, fences, policies, scripts, faults of its markup and text.

Text that was computed from recordings, or that a lab printed, may be a stranger's: of it only the markup is judged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from snippets.lab.tools.policy import POLICY, is_script, policy_problems
from snippets.lab.tools.set_aside import FILE

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
REFERRING = {"clip-path", "fill", "filter", "marker-end", "marker-mid", "marker-start", "mask", "stroke", "style"}
"""Attributes in which `url(#id)` refers to an element; in any other it is text."""
REPORTS = "reports/"
"""The folder of the site with reports on recorded traces: in them, all text is a recording's."""
OUTPUT = "jp-OutputArea-output"
"""The class of a lab's outputs."""
VOID = set(["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"])

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
    reads_traces: bool = False
    """Whether it runs Pyodide."""
    problems: list[str] = field(default_factory=list)

    def complain(self, line: int, text: str) -> None:
        """Add a problem of a line."""
        self.problems.append(f"{self.path}:{line}: {text}")


def shows_recordings(attributes: Mapping[str, str]) -> bool:
    """Whether the text of an element is computed from recordings, or is the output of a lab."""
    return (
        not attributes.keys().isdisjoint(("data-fence", "data-figure")) or OUTPUT in attributes.get("class", "").split()
    )


class Reader(HTMLParser):
    """Fills a Page."""

    def __init__(self, path: str) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page(path)
        self.open: list[str] = []
        self.script: list[str] | None = None
        """The text of the open script, if a browser runs it."""
        self.recorded_from: int | None = -1 if path.startswith(REPORTS) or path.endswith(FILE) else None
        """How many tags were open around the outermost open element that shows recordings; None outside of such."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Read the ids, links, loads and scripts of a tag."""
        line, page = self.getpos()[0], self.page
        given = {name: value or "" for name, value in attrs}
        if tag not in VOID:
            if self.recorded_from is None and shows_recordings(given):
                self.recorded_from = len(self.open)
            self.open.append(tag)
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
            if name in REFERRING:
                page.id_references += [(line, one) for one in LOCAL_REFERENCE.findall(value)]
            if name == "style":
                page.loads += [(line, url) for url in CSS_URL.findall(value)]
            if self.recorded_from is None and name not in {"href", "src"} and (found := MACHINE_PATH.search(value)):
                page.complain(line, f"path of a machine in {name}=: {found[0]}")
        if tag == "script" and is_script(attrs):
            self.page.has_script = True
            self.script = [] if "src" not in given else None
        if given.get("http-equiv", "").lower() == POLICY.lower() and not page.has_script:
            page.policies.append(given.get("content", ""))
        page.reads_traces |= given.get("id") == "trace-reader" and "data-files" in given
        if "lab-sample" in given.get("class", "").split():
            page.complain(line, "a sample's numbers, which nobody measured")
        page.anchors.update(given[name] for name in ("id", "name") if name in given)

    def handle_endtag(self, tag: str) -> None:
        """Close a tag, which must be the last one opened."""
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
        if self.recorded_from is not None and len(self.open) <= self.recorded_from:
            self.recorded_from = None

    def handle_data(self, text: str) -> None:
        """Read text, where a traceback, a path or an unexecuted fence would stand."""
        line, page = self.getpos()[0], self.page
        if "script" in self.open:
            if self.script is not None:
                self.script.append(text)
            return
        if "style" in self.open:
            page.loads += [(line, url) for url in CSS_URL.findall(text)]
            return
        if self.recorded_from is not None:
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


def read_page(site: Path, path: Path) -> Page:
    """One built page."""
    text = path.read_text(encoding="utf-8")
    reader = Reader(path.relative_to(site).as_posix())
    reader.feed(text)
    reader.close()
    if reader.open:
        reader.page.complain(text.count("\n") + 1, f"unclosed: {' '.join(f'<{tag}>' for tag in reader.open)}")
    page = reader.page
    for problem in policy_problems(page.policies, page.scripts, reads_traces=page.reads_traces):
        page.complain(1, problem)
    return page
