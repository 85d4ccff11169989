"""The chapter's claims on a device, and the text of its pieces."""

from __future__ import annotations

import re
from html import unescape

from kinetoscope.html import Html
from snippets.lab.finding.book import Verdict, findings, judge
from snippets.lab.finding.claim import Claim, Status
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import Measure

FIGURES: dict[str, Measure] = dict(findings("attention").figures)
CLAIMS: dict[str, Claim] = {claim.id: claim for claim in findings("attention").claims}


def judged(device: Device, claim_id: str) -> Verdict:
    return judge(CLAIMS[claim_id], "attention", device)


def verdict(device: Device, claim_id: str) -> Status:
    return judged(device, claim_id).status


def measured(device: Device, claim_id: str) -> Figure:
    figure = judged(device, claim_id).measured
    assert figure is not None
    return figure


def text_of(piece: Html) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", piece)))
