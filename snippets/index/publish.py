"""Publish files next to the home page: the printable sheet, and the picture of a shared link.

The printable sheet is text of the rules; the picture of a shared link needs the recording of the MLP.
"""

from __future__ import annotations

from pathlib import Path

from snippets.index.findings.card import card_png
from snippets.index.findings.cards import title_of_section
from snippets.index.findings.sheet import sheet_svg
from snippets.lab.finding import NotRecorded
from snippets.lab.finding.device import Device
from snippets.lab.page.kept import keep, kept, look
from snippets.lab.recording.device import default_device

BOOK = "Profiling PyTorch"
SHEET, CARD = "what_do_you_see.svg", "assets/card.png"
"""Paths below the site; the theme's main.html names the second."""


def publish(site: Path, root: Path) -> list[Path]:
    """Write both files below the site; where the MLP is not recorded, only the sheet."""
    sheet, card = site / SHEET, site / CARD
    sheet.write_text(sheet_svg(BOOK, title_of_section), encoding="utf-8")
    look(root)
    try:
        picture = kept(
            ("card",),
            lambda: card_png(Device(root, default_device(root)), BOOK).hex(),
        )
    except NotRecorded:
        return [sheet]
    keep()
    card.parent.mkdir(exist_ok=True)
    card.write_bytes(bytes.fromhex(picture))
    return [sheet, card]
