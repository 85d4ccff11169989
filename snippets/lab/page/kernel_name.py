"""Decoded kernel names in HTML: the short form, and a button that opens the raw name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from html import escape

from kinetoscope.html import Html
from kinetoscope.trace.kernel_names import decode_kernel_name


def kernel_name_html(name: str) -> Html:
    """A decoded kernel name for a sentence or a cell: a button with the short form, which opens the raw name.

    The id comes from the name; `page.last` makes it unique on its page.
    """
    kernel = decode_kernel_name(name)
    mark = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    ident = f"kernel-{mark}"
    facts = [kernel.library, kernel.operation, kernel.arch, kernel.dtype, kernel.tile, kernel.layout]
    facts += [f"with {', '.join(kernel.fused)}"] if kernel.fused else []
    line = " · ".join(fact for fact in facts if fact)
    return Html(
        f'<button type="button" class="kernel-name {escape(kernel.library)}" popovertarget="{ident}">'
        f"{escape(kernel.short)}</button>"
        f'<span popover id="{ident}" class="kernel-raw"><code>{escape(name)}</code> <span>{escape(line)}</span></span>'
    )


_BRACKET_OR_SEPARATOR = re.compile(
    r"(?P<open>[<({\[])|->|(?P<close>[>)}\]])"
    r"|(?P<separator> → |,(?: then| and)? | \+ |; |: | then | against | in both | and | or | with )"
)


def with_kernel_names(text: str) -> Html:
    """Text as HTML, in which every kernel name is decoded and all other text is escaped."""
    return Html("".join(kernel_name_html(word) if _is_kernel(word) else escape(word) for word in _words(text)))


def short_kernel_names(text: str) -> str:
    """Plain text, in which every kernel name that is a part or a word is short: where no button may be."""
    return "".join(decode_kernel_name(word).short if _is_kernel(word) else word for word in _words(text))


def _words(text: str) -> Iterator[str]:
    """The parts and separators of a text; a part that is no kernel's name, by words and spaces."""
    for part, separator in _parts(text):
        yield from [part] if _is_kernel(part) else re.split("( )", part)
        yield separator


def _is_kernel(text: str) -> bool:
    return decode_kernel_name(text).library != "unknown"


def _parts(text: str) -> list[tuple[str, str]]:
    """Split into parts and the separators after them, but not inside brackets: a C++ name has commas."""
    parts, depth, begin = [], 0, 0
    for match in _BRACKET_OR_SEPARATOR.finditer(text):
        if match["open"]:
            depth += 1
        elif match["close"]:
            depth = max(0, depth - 1)
        elif match["separator"] and depth == 0:
            parts.append((text[begin : match.start()], match[0]))
            begin = match.end()
    return [*parts, (text[begin:], "")]
