"""The chapter's figures and claims, and the text of its pieces."""

from __future__ import annotations

import re
from html import unescape

from kinetoscope.html import Html
from snippets.lab.finding.book import findings
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.measure import Measure

FIGURES: dict[str, Measure] = dict(findings("attention").figures)
CLAIMS: dict[str, Claim] = {claim.id: claim for claim in findings("attention").claims}


def text_of(piece: Html) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", piece)))
