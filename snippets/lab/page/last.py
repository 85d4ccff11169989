"""A Markdown extension for the last changes to every page's HTML.

It excludes Python code from the search index, which every page loads completely: code would be a fifth of the index,
and the prose explains it. It excludes guesses with their answers, and the fences that they veil: a search must not tell
what the page asks. It adds the list of claims to each section, and gives the last line of a section its class. The
links of headings to themselves, which the contents of a page repeat, are no stops of the Tab key. It takes the marks of
names and signs off shown code, since they were three of four elements of it, and have the color of its text, and marks
the lines of code that a narrow screen wraps. It numbers the popovers of kernel names, whose ids come from the names.
Figures of ranks share patterns, which stand once at the top of their page. The banner of disturbed recordings
keeps those that the page shows.
"""

from __future__ import annotations

import re
from collections import Counter

from markdown import Extension, Markdown
from markdown.postprocessors import Postprocessor

from kinetoscope.report.rank_drawing import PATTERNS
from snippets.lab.page.disturbed import with_banners_of_shown
from snippets.lab.page.hanging import with_hanging_lines
from snippets.lab.page.kept import keep, look
from snippets.lab.page.sections import with_claims
from snippets.lab.recording.device import recordings_root

CODE = '<div class="language-python highlight"'
PRIORITY = 5
"""Below every other postprocessor: stashed HTML, such as code blocks, must be restored before."""
RANKS = '<figure class="ranks"'
QUESTION = '<details class="question"'
IN_YOUR_TRACE = "<p><strong>In your trace:</strong>"
_PLAIN = re.compile(r'<span class="(?:[nopw]|fm|kc)">([^<]*)</span>')
"""Names, operators, punctuation, white space, names such as `__init__` and constants such as `None`, as Pygments marks
them."""
_VEILS = re.compile(r'<div class="guess" [^>]*?data-veils="([^"]+)"')
_FENCE = re.compile(r'(<div class="lab" data-fence="([^"]+)")>')
_TERM = re.compile(r'<h2\b|<abbr title="([^"]*)">([^<]*)</abbr>')
_EXCLUDED = re.compile(r" data-search-exclude(?=[ >])")
_POPOVER = re.compile(r'popovertarget="(kernel-[0-9a-f]{8})"([^>]*>[^<]*</button><span popover id=")\1"')


class _Last(Postprocessor):  # type: ignore[misc]
    """Excludes code, guesses and the fences that they veil from the search; marks last lines; numbers the popovers of a
    page."""

    def run(self, text: str) -> str:
        times = Counter[str]()

        def numbered(match: re.Match[str]) -> str:
            times[match[1]] += 1
            ident = f"{match[1]}-{times[match[1]]}"
            return f'popovertarget="{ident}"{match[2]}{ident}"'

        text = text.replace('class="headerlink"', 'class="headerlink" tabindex="-1"')
        for start in (CODE, QUESTION):
            text = text.replace(f"{start}>", f"{start} data-search-exclude>")
        text = text.replace(IN_YOUR_TRACE, IN_YOUR_TRACE.replace("<p>", '<p class="in-your-trace">'))
        text = with_claims(_explained_once(with_banners_of_shown(text)))
        if RANKS in text:
            text = f"{PATTERNS}{text}"
        keep()
        text = _POPOVER.sub(numbered, _without_answers(with_hanging_lines(_PLAIN.sub(r"\1", text))))
        return _EXCLUDED.sub(r'\g<0>="yes"', text)  # with a value, the theme takes it off the page again


def _without_answers(text: str) -> str:
    """Exclude veiled fences from the search, and mark them: a style hides them until the script veils them."""
    veiled = {fence for names in _VEILS.findall(text) for fence in names.split()}

    def marked(match: re.Match[str]) -> str:
        return f"{match[1]}{' data-veiled data-search-exclude' if match[2] in veiled else ''}>"

    return _FENCE.sub(marked, text)


def _explained_once(text: str) -> str:
    """Keep the tooltip of a term only at its first place in a section: dots under every second word distract."""
    seen = set[str]()

    def first(match: re.Match[str]) -> str:
        if match[1] is None:
            seen.clear()
        elif match[1] in seen:
            return match[2]
        else:
            seen.add(match[1])
        return match[0]

    return _TERM.sub(first, text)


class Last(Extension):  # type: ignore[misc]
    """Registers `_Last`."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register the postprocessor; Markdown calls this for each page."""
        look(recordings_root())
        md.postprocessors.register(_Last(md), "last", PRIORITY)


def makeExtension() -> Last:
    """Return the extension; Markdown calls this function of the module."""
    return Last()
