"""A section of a report: its heading and its HTML."""

from __future__ import annotations

from dataclasses import dataclass

from kinetoscope.html import Html


@dataclass(frozen=True)
class Part:
    """A section of a report."""

    heading: str
    """Plain text."""
    html: Html
