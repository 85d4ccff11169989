"""The chapter's claims and figures on a device, by name, and the visible text of a piece."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from snippets.lab.finding import Device, Figure
from snippets.lab.finding.book import findings, judge
from snippets.lab.finding.claim import Status

FINDINGS = findings("fused_mlp")
CLAIMS = {claim.id: claim for claim in FINDINGS.claims}


def status(device: Device, claim_id: str) -> Status:
    return judge(CLAIMS[claim_id], "fused_mlp", device).status


def statuses(device: Device, *claim_ids: str) -> list[Status]:
    return [status(device, claim_id) for claim_id in claim_ids]


def measured(device: Device, claim_id: str) -> Figure:
    figure = judge(CLAIMS[claim_id], "fused_mlp", device).measured
    assert figure is not None
    return figure


def value(device: Device, figure: str) -> Any:
    return FINDINGS.figures[figure](device).value


def text_of(piece: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", piece)))
