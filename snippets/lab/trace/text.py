"""Make text from a trace, which is untrusted, printable and short."""

from __future__ import annotations


def shortened(text: str, width: int = 60) -> str:
    """At most `width` characters, cut in the middle."""
    return text if len(text) <= width else f"{text[: width * 2 // 3]}…{text[-(width - width * 2 // 3 - 1) :]}"


def printable(name: str) -> str:
    """Escape control characters, direction marks and lone surrogates, which could hold terminal commands."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in name
    )
