"""Shell lines that install kinetoscope from the wheel that the site serves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from kinetoscope import __version__
from kinetoscope.html import Html

WHEEL = f"wheel/kinetoscope-{__version__}-py3-none-any.whl"
"""The wheel below the root of the site; `finish` builds it."""
ADDRESS = "WHEEL"
"""Stands in a line for the address of the wheel."""
_SITE = "<span data-site></span>"
"""The root of the site: theme/main.html writes `site_url` into it, theme.js the address of the page's own site."""
_COMMENT = re.compile(r"#.*$")


def shell_lines(lines: Sequence[str]) -> Html:
    """A block of shell lines. `WHEEL` in a line becomes the address of the wheel on the site that shows the page."""
    html = "\n".join(_COMMENT.sub(r'<span class="c1">\g<0></span>', escape(line, quote=False)) for line in lines)
    return Html(
        f'<div class="language-bash highlight"><pre><code>{html.replace(ADDRESS, f"{_SITE}{WHEEL}")}</code></pre></div>'
    )


def wheel_link(site_root: str = "..") -> Html:
    """A link to the wheel, by its name."""
    return Html(f'<a href="{escape(site_root)}/{WHEEL}" download>{WHEEL.partition("/")[2]}</a>')
