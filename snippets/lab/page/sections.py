"""The claims of a page's sections: one folded list at the end of each section, and a mark at each tested figure.

Works on the HTML of a whole page, in which a fence of verdicts names its claims in `data-claims`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import partial
from html import unescape

from snippets.lab.page.frame import FRAME
from snippets.lab.page.kept import kept
from snippets.lab.page.verdict import claims_mark, section_claims

_SECTION = re.compile(r'(?=<h2 id="([^"]*)")')
_CLAIMS = re.compile(r'<div class="verdicts" data-claims="([^"]*)"')
_FENCE = re.compile(f"(?={re.escape(FRAME)})")
_PANEL = re.compile(r'(?=<(?:div|details) class="device")')
_CAPTION_END = re.compile("(?=</(?:figcaption|caption)>)")


def with_claims(page: str) -> str:
    """The HTML of a page, with the list of claims at the end of each section and marks in the captions of figures."""
    before, *sections = _SECTION.split(page)
    parts = [_with_claims("top", before)]
    parts += [_with_claims(name, html) for name, html in zip(sections[::2], sections[1::2], strict=True)]
    return "".join(parts)


def _with_claims(section: str, html: str) -> str:
    if not (ids := _claim_ids(html)):
        return html
    claims = kept(("claims", section, *ids), partial(section_claims, section, ids))
    return _with_marks(section, html) + claims


def _claim_ids(html: str) -> list[str]:
    """The claims of all fences of verdicts in it, each once: each device has a panel with the same."""
    return list(dict.fromkeys(ident for ids in _CLAIMS.findall(html) for ident in unescape(ids).split()))


def _with_marks(section: str, html: str) -> str:
    """A mark in the last caption above each fence of verdicts."""
    fences = _FENCE.split(html)
    claims = defaultdict[int, list[str]](list)
    captioned = None
    for index, fence in enumerate(fences):
        if ids := _claim_ids(fence):
            if captioned is not None:
                claims[captioned] += ids
        elif _CAPTION_END.search(fence):
            captioned = index
    for index, ids in claims.items():
        mark = kept(("mark", section, *ids), partial(claims_mark, section, ids))
        panels = (_CAPTION_END.split(panel, maxsplit=1) for panel in _PANEL.split(fences[index]))
        fences[index] = "".join(map(mark.join, panels))
    return "".join(fences)
