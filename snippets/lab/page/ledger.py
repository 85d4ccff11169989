"""The ledger: every claim with its verdict on every recorded device, as tables and as one line."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from snippets.lab.finding.book import Verdict, all_claims, judge, verdicts
from snippets.lab.finding.claim import STATUSES, Status
from snippets.lab.html import Cell, Html, table
from snippets.lab.page.frame import measured_html, status_badge
from snippets.lab.page.kernel_name import with_kernel_names
from snippets.lab.recording.device import DEFAULT_DEVICE, recorded_devices, short_name, shown_device
from snippets.lab.recording.schema import NotRecorded


def ledger_row(claim_id: str, device: str) -> str:
    """The id of a claim's row in the ledger: `ledger-m1` on the first recorded device, else `ledger-m1-<device>`."""
    devices = recorded_devices()
    return f"ledger-{claim_id.lower()}" + (f"-{device}" if device in devices[1:] else "")


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """A verdict for machines: id, chapter, sentence, scope, source, device, measured, verdict, expected."""
    claim, measured = verdict.claim, verdict.measured
    source = claim.source and {"who": claim.source.who, "device": claim.source.device, "value": claim.source.value}
    return {
        "id": claim.id,
        "chapter": verdict.chapter,
        "sentence": claim.sentence,
        "scope": claim.scope,
        "source": source,
        "device": verdict.device,
        "measured": measured
        and {"value": measured.value, "unit": measured.unit, "spread": measured.spread, "text": measured.text},
        "verdict": verdict.word,
        "expected": claim.expected_on(verdict.device),
        "why": claim.why if verdict.word == "differs" else "",
    }


def print_claims(device: str | None, as_json: bool, check: bool) -> int:
    """Print the ledger; with `check`, 1 when a verdict is not the one the prose was written for."""
    known = recorded_devices() or (DEFAULT_DEVICE,)
    if device and device not in known:
        raise NotRecorded(f"{device} is not recorded; recorded are {', '.join(known)}")
    wanted = (device,) if device else known
    ledger = [verdict for name in wanted for verdict in verdicts(name)]
    if as_json:
        print(json.dumps([verdict_data(verdict) for verdict in ledger], indent=1, ensure_ascii=False))
    else:
        for verdict in ledger:
            measured = verdict.measured.text if verdict.measured else verdict.reason
            shown = "".join(letter if letter.isprintable() else "?" for letter in measured)  # names are untrusted
            print(f"{verdict.device:14} {verdict.claim.id:5} {verdict.word:13} {shown:24}  {verdict.claim.sentence}")
        counts = Counter(verdict.word for verdict in ledger)
        print(", ".join(f"{counts[word]} {word}" for word in STATUSES))
    flipped = [verdict for verdict in ledger if not verdict.is_expected]
    for verdict in flipped if check else ():
        print(
            f"{verdict.claim.id} on {verdict.device}: {verdict.word}, but the prose was written for "
            f"{verdict.claim.expected_on(verdict.device)}; read {verdict.chapter}'s page and findings.py again",
            file=sys.stderr,
        )
    return 1 if check and flipped else 0


HEAD = ("id", "verdict", "claim", "the source's value", "ours")
COUNTED: dict[Status, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "differs": ("differs", "differ"),
    "inconclusive": ("is inconclusive", "are inconclusive"),
    "not measured": ("is not measured", "are not measured"),
}
"""A verdict said of one claim, and of any other number of them."""
PAGES = {"devices": "measuring"}
"""Where the claims of a chapter stand when it has no page of its own."""


def ledger_table() -> Html:
    """Every claim on every recorded device, one row each, a claim's devices together and the builder first.

    `ledger.js` filters the rows by what the id's cell says of them. Meant for a page one folder below the site's root,
    as all pages are, since it links each claim to where it is discussed.
    """
    devices = _devices()
    judged = [judge(claim, of, device) for of, claim in all_claims().values() for device in devices]
    head = [*HEAD, "device"] if len(devices) > 1 else list(HEAD)
    rows = [[*_row(one, whole=True), *([short_name(one.device)] if len(devices) > 1 else [])] for one in judged]
    caption = f"Claims on {_listed(map(short_name, devices))}"
    return Html(f'<div class="ledger">{table(caption, head, rows, text_columns=len(head))}</div>')


def claims_table(chapter: str = "", words: Sequence[str] = ()) -> Html:
    """The ledger of the shown device, or a chapter's part of it, or only the verdicts in `words`.

    Without the reasons: those stand on the chapter's page, beside the verdicts.
    """
    device = shown_device()
    judged = [judge(claim, of, device) for of, claim in all_claims().values() if chapter in ("", of)]
    rows = [_row(one, whole=False) for one in judged if not words or one.word in words]
    caption = f"Claims{f' of {chapter}' if chapter else ''} on {short_name(device)}"
    return table(caption, HEAD, rows, text_columns=len(HEAD))


def status_counts() -> Html:
    """One line for each recorded device: how many claims hold, differ, are inconclusive, are not measured."""
    lines = []
    for device in _devices():
        counts = Counter(judge(claim, of, device).word for of, claim in all_claims().values())
        parts = [f"<strong>{counts[word]}</strong> {COUNTED[word][counts[word] != 1]}" for word in STATUSES]
        lines.append(f"<p>On the {escape(short_name(device))}, of {counts.total()} claims {_listed(parts)}.</p>")
    return Html("".join(lines))


def _devices() -> tuple[str, ...]:
    """The recorded devices; where there is none the builder, on which nothing is measured then."""
    return recorded_devices() or (DEFAULT_DEVICE,)


def _row(one: Verdict, *, whole: bool) -> list[Cell]:
    """A claim on a device; `whole`: with why it differs, and a link to its page, where that stands otherwise."""
    claim = one.claim
    place = f"../{PAGES.get(one.chapter, one.chapter)}/#claim-{claim.id.lower()}"
    where = f' · <a href="{escape(place)}">{escape(one.chapter)}</a>' if whole else ""
    why = f"<small>{escape(claim.why)}</small>" if whole and claim.why and one.word != "holds" else ""
    return [
        _id(one),
        status_badge(one),
        Html(f"{escape(claim.sentence)}<small>{escape(claim.scope)}{where}</small>{why}"),
        with_kernel_names(claim.source.value) if claim.source else None,
        measured_html(one),
    ]


def _id(one: Verdict) -> Html:
    """The claim's id, with what the row can be filtered by."""
    said = {"chapter": one.chapter, "scope": one.claim.scope, "verdict": one.word, "device": one.device}
    data = "".join(f' data-{name}="{escape(text)}"' for name, text in said.items())
    place = escape(ledger_row(one.claim.id, one.device))
    return Html(f'<span id="{place}" class="id"{data}>{escape(one.claim.id)}</span>')


def _listed(parts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last
