"""The ledger: every claim with its verdict on every recorded device, as a list, tables, lines and data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from kinetoscope.html import Cell, Html, table, with_code
from snippets.lab.finding.accepted import readable_statuses
from snippets.lab.finding.book import Verdict, all_claims, judge, judge_all
from snippets.lab.finding.claim import STATUSES, Source, Status
from snippets.lab.finding.device import Device, all_devices
from snippets.lab.page.kernel_name import with_kernel_names
from snippets.lab.page.nav import claim_page
from snippets.lab.page.verdict import COUNTED, claim_anchor, measured_html, opened_device, status_badge, why_text

HEAD = ("id", "verdict", "claim", "the source's value", "ours")
_URGENCY: Sequence[Status] = ("differs", "inconclusive", "not measured", "cannot be tested", "holds")
"""The order of the ledger: findings first."""


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON: id, chapter, sentence, scope, source, device, measured, verdict, why."""
    claim, measured = verdict.claim, verdict.measured
    source = claim.source and {
        "who": claim.source.who,
        "address": claim.source.address,
        "device": claim.source.device,
        "only_there": claim.source.only_there,
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


def ledger_list(device: Device) -> Html:
    """Every claim with its verdicts, in a fold for each chapter. Claims that differ come first, with the reason.

    `ledger.js` filters the entries by their text and by the data attributes of an entry and of its verdicts. Links to
    the claims are relative: the page must be one folder below the site's root, as all pages are.
    """
    devices = all_devices(device.root)
    chapters: dict[str, list[list[Verdict]]] = {}
    for of, claim in all_claims().values():
        chapters.setdefault(of, []).append([judge(claim, of, each) for each in devices])
    folds = "".join(_chapter(chapter, judged, several=len(devices) > 1) for chapter, judged in chapters.items())
    return Html(f'<div class="ledger" data-search-exclude>{folds}</div>')


def _chapter(chapter: str, judged: Sequence[Sequence[Verdict]], *, several: bool) -> str:
    """The entries of a chapter, below one folded line that counts them."""
    counts = Counter(map(_most_urgent, judged))
    parts = [f"{counts[status]} {COUNTED[status][counts[status] != 1]}" for status in _URGENCY if counts[status]]
    if several and counts["differs"]:
        parts[0] += " on at least one device"
    entries = "".join(map(_entry, sorted(judged, key=lambda of_claim: _URGENCY.index(_most_urgent(of_claim)))))
    return (
        f"<details><summary><strong>{escape(chapter)}</strong>: {_listed(parts)}</summary><ul>{entries}</ul></details>"
    )


def _most_urgent(judged: Sequence[Verdict]) -> Status:
    """The most urgent status among a claim's verdicts on several devices."""
    return min((verdict.status for verdict in judged), key=_URGENCY.index)


def _entry(judged: Sequence[Verdict]) -> str:
    """A claim with its verdicts: its sentence, why it differs, the source's value and the measured value, and its
    page."""
    first, claim = judged[0], judged[0].claim
    why = next(filter(None, map(why_text, judged)), "")
    reason = f'<p class="why">{with_code(why)}</p>' if why else ""
    said = ""
    if claim.source:
        said = f'<span class="said">{_source_name(claim.source)}: {with_kernel_names(claim.source.value)}</span>'
    anchor = claim_anchor("claim", claim.id, opened_device(first.device))
    link = f"../{claim_page(first.chapter, claim.id)}/#{anchor}"
    where = f'{escape(claim.scope)} · <a href="{escape(link)}">{escape(first.chapter)}</a>'
    return (
        f'<li data-chapter="{escape(first.chapter)}" data-scope="{escape(claim.scope)}">'
        f'<p><span class="id">{escape(claim.id)}</span> {with_code(claim.sentence)}</p>{reason}'
        f'<p class="values">{"".join(map(_measured_on, judged))}{said}<span class="where">{where}</span></p></li>'
    )


def _measured_on(verdict: Verdict) -> str:
    """A verdict and its measured figure, with the id that links use."""
    ident = escape(claim_anchor("ledger", verdict.claim.id, verdict.device))
    data = f'data-device="{escape(verdict.device.name)}" data-verdict="{escape(verdict.status)}"'
    return (
        f'<span class="ours" id="{ident}" {data}>{status_badge(verdict)} '
        f"{escape(verdict.device.short_name)}: {measured_html(verdict)}</span>"
    )


def claims_table(device: Device, chapter: str = "", *, statuses: Sequence[Status] = ()) -> Html:
    """The ledger of one device, of one chapter, or only the verdicts with one of `statuses`; a sentence if it is empty.

    Omits the reasons, which are on the chapter's page beside the verdicts.
    """
    judged = [judge(claim, of, device) for of, claim in all_claims().values() if chapter in ("", of)]
    rows = [_row(verdict) for verdict in judged if not statuses or verdict.status in statuses]
    of_chapter = f" of {chapter}" if chapter else ""
    if not rows:
        verb = " or ".join(COUNTED[status][0] for status in statuses) or "is made"
        return Html(f"<p>{escape(f'On the {device.short_name}, no claim{of_chapter} {verb}.')}</p>")
    caption = f"Claims{of_chapter} on {device.short_name}"
    return table(caption, HEAD, rows, text_columns=len(HEAD), has_own_layout=True)


def status_counts(device: Device) -> Html:
    """One line for each recorded device: how many claims hold, differ, are inconclusive or are not measured."""
    lines = []
    for each in all_devices(device.root):
        counts = Counter(verdict.status for verdict in judge_all(each))
        shown = [status for status in STATUSES if counts[status] or status != "cannot be tested"]
        parts = [f"<strong>{counts[status]}</strong> {COUNTED[status][counts[status] != 1]}" for status in shown]
        lines.append(f"<p>On the {escape(each.short_name)}, of {counts.total()} claims {_listed(parts)}.</p>")
    return Html("".join(lines))


def _row(verdict: Verdict) -> list[Cell]:
    """The row of a claim on a device."""
    claim = verdict.claim
    ident = escape(claim_anchor("ledger", claim.id, verdict.device))
    return [
        Html(f'<span id="{ident}" class="id">{escape(claim.id)}</span>'),
        status_badge(verdict),
        Html(f"{with_code(claim.sentence)}<small>{escape(claim.scope)}</small>"),
        _source(claim.source) if claim.source else "none, the claim is ours",
        measured_html(verdict),
    ]


def _source(source: Source) -> Html:
    """The source's value above its name."""
    return Html(f"{with_kernel_names(source.value)}<small>{_source_name(source)}</small>")


def _source_name(source: Source) -> str:
    """The source's name, a link if the address is known."""
    name = escape(source.who)
    return f'<a href="{escape(source.address)}">{name}</a>' if source.address else name


def _listed(parts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last
