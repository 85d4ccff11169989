"""The ledger: every claim with its verdict on every recorded device, as tables, lines and data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from snippets.lab.finding.accepted import readable_statuses
from snippets.lab.finding.book import Verdict, all_claims, judge, verdicts
from snippets.lab.finding.claim import STATUSES, Source, Status
from snippets.lab.finding.device import Device, all_devices
from snippets.lab.html import Cell, Html, table
from snippets.lab.page.frame import claim_anchor, measured_html, status_badge, why_text
from snippets.lab.page.kernel_name import with_kernel_names
from snippets.lab.page.nav import claim_page

HEAD = ("id", "verdict", "claim", "the source's value", "ours")
COUNTED: dict[Status, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "differs": ("differs", "differ"),
    "inconclusive": ("is inconclusive", "are inconclusive"),
    "not measured": ("is not measured", "are not measured"),
}
"""Status -> text for one claim, and for any other number of claims."""


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON: id, chapter, sentence, scope, source, device, measured, verdict, why."""
    claim, measured = verdict.claim, verdict.measured
    source = claim.source and {
        "who": claim.source.who,
        "address": claim.source.address,
        "device": claim.source.device,
        "value": claim.source.value,
    }
    return {
        "id": claim.id,
        "chapter": verdict.chapter,
        "sentence": claim.sentence,
        "scope": claim.scope,
        "source": source,
        "device": verdict.device.name,
        "measured": measured
        and {"value": measured.value, "unit": measured.unit, "spread": measured.spread, "text": measured.text},
        "verdict": verdict.status,
        "reason": verdict.reason,
        "accepted": (readable_statuses(verdict.device) or {}).get(claim.id),
        "why": why_text(verdict) if verdict.status == "differs" else "",
    }


def ledger_table(device: Device) -> Html:
    """Every claim on every recorded device, one row each, a claim's devices together and the default one first.

    `ledger.js` filters the rows by the data attributes of the id's cell. Links to the claims are relative: the page
    must be one folder below the site's root, as all pages are.
    """
    devices = all_devices(device.root)
    judged = [judge(claim, of, each) for of, claim in all_claims().values() for each in devices]
    head = [*HEAD, "device"] if len(devices) > 1 else list(HEAD)
    rows = [
        [*_row(verdict, whole=True), *([verdict.device.short_name] if len(devices) > 1 else [])] for verdict in judged
    ]
    caption = f"Claims on {_listed(each.short_name for each in devices)}"
    return Html(f'<div class="ledger">{table(caption, head, rows, text_columns=len(head), has_own_layout=True)}</div>')


def claims_table(device: Device, chapter: str = "", *, statuses: Sequence[str] = ()) -> Html:
    """The ledger of one device, or a chapter's part of it, or only the verdicts with one of `statuses`.

    Omits the reasons, which are on the chapter's page beside the verdicts.
    """
    judged = [judge(claim, of, device) for of, claim in all_claims().values() if chapter in ("", of)]
    rows = [_row(verdict, whole=False) for verdict in judged if not statuses or verdict.status in statuses]
    caption = f"Claims{f' of {chapter}' if chapter else ''} on {device.short_name}"
    return table(caption, HEAD, rows, text_columns=len(HEAD), has_own_layout=True)


def status_counts(device: Device) -> Html:
    """One line for each recorded device: how many claims hold, differ, are inconclusive, are not measured."""
    lines = []
    for each in all_devices(device.root):
        counts = Counter(verdict.status for verdict in verdicts(each))
        parts = [f"<strong>{counts[status]}</strong> {COUNTED[status][counts[status] != 1]}" for status in STATUSES]
        lines.append(f"<p>On the {escape(each.short_name)}, of {counts.total()} claims {_listed(parts)}.</p>")
    return Html("".join(lines))


def _row(verdict: Verdict, *, whole: bool) -> list[Cell]:
    """The row of a claim on a device; `whole` adds the reason why it differs and a link to its page."""
    claim, page = verdict.claim, claim_page(verdict.chapter, verdict.claim.id)
    link = f"../{page}/#{claim_anchor('claim', claim.id, verdict.device)}"
    where = f' · <a href="{escape(link)}">{escape(verdict.chapter)}</a>' if whole else ""
    why = f"<small>{escape(why_text(verdict))}</small>" if whole and why_text(verdict) else ""
    return [
        _id(verdict),
        status_badge(verdict),
        Html(f"{escape(claim.sentence)}<small>{escape(claim.scope)}{where}</small>{why}"),
        _source(claim.source) if claim.source else None,
        measured_html(verdict),
    ]


def _source(source: Source) -> Html:
    """The source's value above its name, a link where its address is known."""
    name = escape(source.who)
    link = f'<a href="{escape(source.address)}">{name}</a>' if source.address else name
    return Html(f"{with_kernel_names(source.value)}<small>{link}</small>")


def _id(verdict: Verdict) -> Html:
    """The claim's id, with the data attributes that filter the row."""
    filters = {
        "chapter": verdict.chapter,
        "scope": verdict.claim.scope,
        "verdict": verdict.status,
        "device": verdict.device.name,
    }
    data = "".join(f' data-{name}="{escape(text)}"' for name, text in filters.items())
    ident = escape(claim_anchor("ledger", verdict.claim.id, verdict.device))
    return Html(f'<span id="{ident}" class="id"{data}>{escape(verdict.claim.id)}</span>')


def _listed(parts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last
