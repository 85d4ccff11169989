"""Text out of a trace, which is untrusted: made printable, and short."""

from __future__ import annotations


def shortened(text: str, width: int = 60) -> str:
    """At most `width` characters, cut in the middle."""
    return text if len(text) <= width else f"{text[: width * 2 // 3]}…{text[-(width - width * 2 // 3 - 1) :]}"


def printable(name: str) -> str:
    """A name for a terminal, without control characters, direction marks or lone surrogates: it could hold commands."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in name)
