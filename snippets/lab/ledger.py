"""The ledger: every claim with its verdict on every recorded device, as tables and as one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from snippets.lab import recording
from snippets.lab.claims import WORDS, Verdict, Word, all_claims, judge, ledger_row
from snippets.lab.html import Cell, Html, table
from snippets.lab.kernel_names import decorated
from snippets.lab.page import mark, value
from snippets.lab.recording import short_name

HEAD = ("id", "verdict", "claim", "the source's value", "ours")
COUNTED: dict[Word, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "differs": ("differs", "differ"),
    "inconclusive": ("is inconclusive", "are inconclusive"),
    "not measured": ("is not measured", "are not measured"),
}
"""A verdict said of one claim, and of any other number of them."""
PAGES = {"devices": "measuring"}
"""Where the claims of a chapter stand when it has no page of its own."""


def filterable() -> Html:
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
    device = recording.shown_device()
    judged = [judge(claim, of, device) for of, claim in all_claims().values() if chapter in ("", of)]
    rows = [_row(one, whole=False) for one in judged if not words or one.word in words]
    caption = f"Claims{f' of {chapter}' if chapter else ''} on {short_name(device)}"
    return table(caption, HEAD, rows, text_columns=len(HEAD))


def summary() -> Html:
    """One line for each recorded device: how many claims hold, differ, are inconclusive, are not measured."""
    lines = []
    for device in _devices():
        counts = Counter(judge(claim, of, device).word for of, claim in all_claims().values())
        parts = [f"<strong>{counts[word]}</strong> {COUNTED[word][counts[word] != 1]}" for word in WORDS]
        lines.append(f"<p>On the {escape(short_name(device))}, of {counts.total()} claims {_listed(parts)}.</p>")
    return Html("".join(lines))


def _devices() -> tuple[str, ...]:
    """The recorded devices; where there is none the builder, on which nothing is measured then."""
    return recording.devices() or (recording.BUILDER,)


def _row(one: Verdict, *, whole: bool) -> list[Cell]:
    """A claim on a device; `whole`: with why it differs, and a link to its page, where that stands otherwise."""
    claim = one.claim
    place = f"../{PAGES.get(one.chapter, one.chapter)}/#claim-{claim.id.lower()}"
    where = f' · <a href="{escape(place)}">{escape(one.chapter)}</a>' if whole else ""
    why = f"<small>{escape(claim.why)}</small>" if whole and claim.why and one.word != "holds" else ""
    return [
        _id(one),
        mark(one),
        Html(f"{escape(claim.sentence)}<small>{escape(claim.scope)}{where}</small>{why}"),
        decorated(claim.source.value) if claim.source else None,
        value(one),
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
