"""Marks for the long lines of shown code: where a narrow screen wraps a line, the rest stands right of its indentation.

The style sheet reads the column at which a line continues from `--hang`. Each mark is an element, so short lines have
none.
"""

from __future__ import annotations

import re
from html import unescape

LONGEST = 31
"""Characters of a line that fit a window of 360 px, in a fold as well."""
INDENT = 2
"""Columns from a line's own indentation to its continuation."""
_CODE = re.compile(
    r'(<div class="[^"]*\bhighlight"[^>]*><pre>)(?:<span></span>)?(<code>)(.*?)(?=</code></pre>)', re.DOTALL
)
"""Pygments starts each block with an empty element, which nothing needs."""
_LINE = re.compile(r'(<span class="g[di]")?(?(1)>)([^\n]*)\n?(?(1)</span>)')
"""A line of code; a line that a diff removes or adds is an element already."""
_TAG = re.compile("<[^>]*>")


def with_hanging_lines(page: str) -> str:
    """The HTML of a page whose long lines of code have the column at which they continue, in `--hang`."""
    return _CODE.sub(lambda match: f"{match[1]}{match[2]}{_LINE.sub(_marked, match[3])}", page)


def _marked(line: re.Match[str]) -> str:
    text = unescape(_TAG.sub("", line[2]))
    if len(text.rstrip()) <= LONGEST:
        return line[0]
    sign = 1 if line[1] else 0
    rest = text[sign:].lstrip()
    indentation = len(text) - len(rest)
    # A first word that does not fit would leave its indentation alone in a row of the screen.
    anywhere = ";word-break:break-all" if indentation + len(rest.split()[0]) > LONGEST else ""
    return f'{line[1] or "<span"} style="--hang:{indentation + INDENT}{anywhere}">{line[2]}\n</span>'
