"""Markup of built pages that a browser could read in another way than Python's parser, or that could run a script.

`form_problems` accepts a small part of HTML only: every `<` begins a tag, a comment or the doctype, written so plainly
that all parsers agree. For such pages `html.parser`, which knows no tree, sees the tags and attributes a browser sees;
tests/site/test_policy.py compares both on every page.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from urllib.parse import urlsplit

SPACE = r"[ \t\n\f\r]"
"""As browsers have it; `\\s` is more, and a parser that skips more is led to another place."""
ATTRIBUTE = rf"""{SPACE}+(?:(?!["'<>/=])[!-~])+(?:{SPACE}*={SPACE}*(?:"[^"<]*"|'[^'<]*'|(?:(?!["'=<>`])[!-~])+))?"""
RAW = "script|style|textarea|title|xmp|iframe|noembed|noframes|plaintext"
TOKEN = re.compile(
    rf"""<!--(?!-?>)(?:(?!--!?>|<!--).)*?-->|<!doctype html>|</[a-z][-\w:]*{SPACE}*>|"""
    rf"<(?P<raw>{RAW})\b(?:{ATTRIBUTE})*{SPACE}*>(?P<text>.*?)</(?P=raw){SPACE}*>|"
    rf"<(?!(?:{RAW})\b)[a-z][-\w:]*(?:{ATTRIBUTE})*{SPACE}*/?>|"
    r"(?P<other><.{0,40})",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)
IN_SCRIPT = re.compile(r"<!--|</?script|</?noscript", re.IGNORECASE)
NO_PLACE = {"base", "frame", "frameset", "plaintext", "portal", "xmp"}
HOLDING = {"details", "div"}
"""In these a page may hold back content in a <noscript>: text where scripts run, elements where they do not. Both end
at the same `</noscript>`, since neither an attribute, a comment nor a script may hold a second one."""
FRAMES = {"embed", "iframe", "object"}
PICTURES = {"image", "img", "link", "source"}
NOT_SEEN = re.compile(r"[\x00-\x20\x7f-\x9f]+")
RUNS = re.compile(r"(?:^|[;=,])(?:javascript|vbscript|livescript):", re.IGNORECASE)
SCRIPT_TYPES = {"", "module", "text/javascript", "application/javascript", "text/ecmascript", "application/ecmascript"}
TRUSTED = re.compile(r"'self'|'none'|'sha256-[\w+/]{43}='")
POLICY = "Content-Security-Policy"

Attributes = list[tuple[str, str | None]]


def form_problems(text: str) -> Iterator[tuple[int, str]]:
    """Line and problem of everything that parsers might read in different ways."""
    for match in TOKEN.finditer(text):
        inside = match["text"] or ""
        if match["other"]:
            wrong = match["other"]
        elif _ends_elsewhere(match, inside):
            wrong = match[0][:40]
        else:
            continue
        yield text.count("\n", 0, match.start()) + 1, f"not read alike by all parsers: {wrong!r}"


def _ends_elsewhere(match: re.Match[str], inside: str) -> bool:
    """Whether a parser could see the end of a comment, of raw text or of a <noscript> around it in another place."""
    if match[0].startswith("<!--"):
        return "noscript" in match[0].lower()
    if not match["raw"]:
        return False
    return bool(IN_SCRIPT.search(inside)) if match["raw"].lower() == "script" else "<" in inside


def tag_problems(tag: str, attributes: Attributes, around: list[str]) -> Iterator[str]:
    """What could run a script or load a page in a start tag below the elements `around`."""
    names = [name for name, _ in attributes]
    if tag in NO_PLACE:
        yield f"<{tag}> has no place here"
    if tag == "noscript" and (names or not HOLDING & {*around[-1:]} or "noscript" in around):
        yield "<noscript> holds nothing back here"
    if tag in {"script", "style"} and "noscript" in around:
        yield f"<{tag}> inside <noscript>"
    if tag in {"script", "style"} and {"svg", "math"} & {*around}:
        yield f"<{tag}> inside a picture"
    yield from (f"attribute {name} stands twice" for name in sorted({name for name in names if names.count(name) > 1}))
    for name, value in attributes:
        plain = NOT_SEEN.sub("", value or "")
        if name.startswith("on"):
            yield f"a script in {name}="
        elif name == "srcdoc":
            yield "a page in srcdoc="
        elif RUNS.search(plain):
            yield f"a script in {name}=: {plain[:40]}"
        elif plain.lower().startswith("data:") and not (tag in PICTURES and plain.lower().startswith("data:image/")):
            yield f"data in {name}=, and it is not a picture: {plain[:40]}"
        elif (tag in FRAMES or name in {"action", "formaction"}) and urlsplit(plain).netloc:
            yield f"a page of another host in {name}=: {plain[:60]}"
        elif name == "http-equiv" and plain.lower() == "refresh":
            yield "leads to another page by itself"


def is_script(attributes: Attributes) -> bool:
    """Whether a browser runs the content of a <script> with these attributes."""
    return (dict(attributes).get("type") or "").strip().lower() in SCRIPT_TYPES


def hash_source(script: str) -> str:
    """A script as a policy names it."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def script_sources(policy: str) -> list[str]:
    """What a policy lets run, `script-src` or in its place `default-src`."""
    rules = {name.lower(): sources for name, *sources in map(str.split, filter(str.strip, policy.split(";")))}
    return rules.get("script-src", rules.get("default-src", ["*"]))


def policy_problems(policies: list[str], scripts: list[str]) -> Iterator[str]:
    """What is wrong with the policy of a page that has these inline scripts."""
    if len(policies) != 1:
        yield f"{len(policies)} times a {POLICY}, not once, and before all scripts"
        return
    sources = script_sources(policies[0])
    yield from (f"its {POLICY} lets {source} run" for source in sources if not TRUSTED.fullmatch(source))
    for script in scripts:
        if hash_source(script) not in sources:
            begin = " ".join(script.split())[:60]
            yield f"its {POLICY} does not name the inline script {hash_source(script)}: {begin!r}"
