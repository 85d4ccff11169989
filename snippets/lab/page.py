"""The frame of a page: where its numbers come from, what it claims, and the mark that says a fence has run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from snippets.lab import recording
from snippets.lab.claims import Verdict, all_claims, judge
from snippets.lab.figures import MISFITS, is_misfit
from snippets.lab.html import Html, code, table
from snippets.lab.recording import RecordingMissing

MARKS = {"holds": "✓", "differs": "≠", "inconclusive": "?", "not measured": "–"}


def show(fence: str, content: Callable[..., str], *arguments: object) -> str:
    """Run a fence's one call and wrap what it returns; where nothing is recorded, say so and how to record it.

    `fence` is the id of the fence: the gate on the built site compares the fences written with those that ran.
    """
    try:
        shown = content(*arguments)
    except RecordingMissing as error:
        shown = warning("Not recorded yet", escape(str(error)))
    except MISFITS as error:
        if not is_misfit(error, recording.shown_device()):
            raise
        shown = warning("Not shown for this device", f"Its trace is not shaped as the builder's: {escape(str(error))}")
    return f'<div class="lab" data-fence="{escape(fence)}">{shown}</div>'


def warning(title: str, text: str) -> Html:
    """A box that is hard to overlook; `text` is HTML."""
    return Html(f'<div class="admonition warning"><p class="admonition-title">{title}</p><p>{text}</p></div>')


def provenance(chapter: str) -> Html:
    """One line: device, versions, date, commit, and live, replayed or stale; a banner when stale."""
    device = recording.shown_device()
    names = recording.recorded(device, chapter)
    if not names:
        raise RecordingMissing(f"no recording of {chapter} for {device}; there run make record CHAPTER={chapter}")
    found = [recording.load(f"{chapter}/{name}", device) for name in names]
    newest = max(found, key=lambda one: one.circumstances.date).circumstances
    stale = [one for one in found if recording.is_stale(one)]
    mode = "stale" if stale else "live" if device == recording.this_device() else "replayed"
    installed = {name: version for name, version in newest.versions.items() if version != "not installed"}
    versions = ", ".join(f"{name} {version}" for name, version in installed.items())
    parts = [
        f"<strong>{escape(newest.device)}</strong>",
        f"driver {escape(newest.driver)}, CUDA {escape(newest.cuda)}",
        escape(versions),
        f'<time datetime="{escape(newest.date)}">{escape(newest.date[:10])}</time>',
        f"commit {code(newest.commit)}",
        f'<span class="mode mode-{mode}">{mode}</span>',
    ]
    line = f'<p class="provenance">{" · ".join(parts)}</p>'
    if not stale:
        return Html(line)
    banner = warning(
        "Recorded for an older version of this code",
        f"{len(stale)} of {len(found)} recordings were made before the code on this page changed. "
        f"On a machine with this GPU run <code>make record CHAPTER={chapter}</code>.",
    )
    return Html(line + banner)


def verdicts(*ids: str) -> Html:
    """Claims with their verdicts on the shown device: the source's value beside ours, and why where they differ."""
    device = recording.shown_device()
    judged = [judge(claim, chapter, device) for chapter, claim in (all_claims()[name] for name in ids)]
    return Html(f'<div class="verdicts">{"".join(_verdict(one) for one in judged)}</div>')


def _verdict(one: Verdict) -> str:
    claim = one.claim
    said = (
        f'<span class="said">{escape(claim.source.who)}: {escape(claim.source.value)}</span>'
        if claim.source
        else '<span class="said">ours</span>'
    )
    name = one.device.upper().replace("NVIDIA-", "").replace("-", " ")
    measured = f"{escape(name)}: {_value(one)}" if one.measured else _value(one)
    why = f'<p class="why">{escape(claim.why)}</p>' if claim.why and one.word != "holds" else ""
    return (
        f'<div class="verdict {one.word.replace(" ", "-")}" id="claim-{escape(claim.id.lower())}">'
        f'<p><span class="mark">{mark(one)}</span> {escape(claim.sentence)}</p>'
        f'<p class="values">{said} · <span class="ours">{measured}</span></p>{why}</div>'
    )


def mark(one: Verdict) -> Html:
    """The verdict as a sign and a word, told apart without color."""
    return Html(f'<span class="word {one.word.replace(" ", "-")}">{MARKS[one.word]} {one.word}</span>')


def _value(one: Verdict) -> str:
    if one.measured is None:
        return escape(one.reason)
    spread = f" ({escape(one.measured.spread_text)})" if one.measured.spread_text else ""
    return f"{escape(one.measured.text)}{spread}"


def claims_table(chapter: str = "", words: Sequence[str] = ()) -> Html:
    """The ledger of the shown device, or a chapter's part of it, or only the verdicts in `words`."""
    device = recording.shown_device()
    judged = [judge(claim, of, device) for of, claim in all_claims().values() if chapter in ("", of)]
    rows = [
        [
            Html(f'<span id="ledger-{escape(one.claim.id.lower())}" class="id">{escape(one.claim.id)}</span>'),
            mark(one),
            Html(f"{escape(one.claim.sentence)}<small>{escape(one.claim.scope)}</small>{_why(one)}"),
            one.claim.source.value if one.claim.source else None,
            Html(_value(one)),
        ]
        for one in judged
        if not words or one.word in words
    ]
    head = ["id", "verdict", "claim", "the source's value", "ours"]
    return table(f"Claims{f' of {chapter}' if chapter else ''} on {device}", head, rows, text_columns=5)


def _why(one: Verdict) -> str:
    return f"<small>{escape(one.claim.why)}</small>" if one.claim.why and one.word != "holds" else ""


def claims_summary() -> Html:
    """One line: how many claims hold, differ, are inconclusive, are not measured."""
    device = recording.shown_device()
    judged = [judge(claim, chapter, device) for chapter, claim in all_claims().values()]
    counts = [f"<strong>{sum(one.word == word for one in judged)}</strong> {word}" for word in MARKS]
    return Html(f"<p>{len(judged)} claims on {escape(device)}: {', '.join(counts)}.</p>")
