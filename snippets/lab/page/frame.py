"""The frame of a page: where its numbers come from, what it claims, and the mark that says a fence has run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape

from snippets.lab.experiment import experiments
from snippets.lab.finding.book import Verdict, all_claims, judge
from snippets.lab.finding.figure import MISMATCHES, is_mismatch
from snippets.lab.html import Html, code, prefix_ids
from snippets.lab.page.kernel_name import with_kernel_names
from snippets.lab.page.ledger import ledger_row
from snippets.lab.recording.device import (
    DEFAULT_DEVICE,
    recorded_devices,
    recorded_names,
    short_name,
    showing,
    shown_device,
    this_device,
)
from snippets.lab.recording.digest import is_stale
from snippets.lab.recording.loading import load_recording
from snippets.lab.recording.schema import NotRecorded

MARKS = {"holds": "✓", "differs": "≠", "inconclusive": "?", "not measured": "–"}
_RUNNING_NUMBER = re.compile(r"(kernel-[0-9a-f]{8})-\d+")
"""The id of a kernel's name on a page ends in how often it was shown before; tabs do not differ by that alone."""


def show(fence: str, content: Callable[..., str], *arguments: object) -> str:
    """Run a fence's one call and wrap what it returns; where nothing is recorded, say so and how to record it.

    Where several devices are recorded and do not show the same, each has a tab; the theme links tabs of one name over
    the whole site. `fence` is the fence's id: the gate on the built site compares fences written with those that ran.
    """
    shown = {device: _on(device, content, *arguments) for device in recorded_devices() or (DEFAULT_DEVICE,)}
    different = {_RUNNING_NUMBER.sub(r"\1", panel) for panel in shown.values()}
    inner = next(iter(shown.values())) if len(different) == 1 else _tabs(fence, shown)
    return f'<div class="lab" data-fence="{escape(fence)}">{inner}</div>'


def _on(device: str, content: Callable[..., str], *arguments: object) -> str:
    with showing(device):
        try:
            return content(*arguments)
        except NotRecorded as error:
            return warning("Not recorded yet", escape(str(error)))
        except MISMATCHES as error:
            if not is_mismatch(error, device):
                raise
            return warning(
                "Not shown for this device", f"Its trace is not shaped as the builder's: {escape(str(error))}"
            )


def _tabs(fence: str, panels: Mapping[str, str]) -> str:
    """A panel for each device in the form that the theme expects of its tabs, which work without JavaScript."""
    ids = {device: f"tab-{fence}-{device}" for device in panels}
    opened = shown_device()
    inputs = "".join(
        f'<input type="radio" id="{escape(ids[device])}" name="tab-{escape(fence)}" data-device="{escape(device)}"'
        f"{' checked' if device == opened else ''}>"
        for device in panels
    )
    labels = "".join(f'<label for="{escape(ids[device])}">{escape(short_name(device))}</label>' for device in panels)
    first = next(iter(panels))
    blocks = "".join(
        f'<div class="tabbed-block">{panel if device == first else prefix_ids(f"{device}--", panel)}</div>'
        for device, panel in panels.items()
    )
    return (
        f'<div class="tabbed-set tabbed-alternate devices" data-tabs="{escape(fence)}">{inputs}'
        f'<div class="tabbed-labels">{labels}</div><div class="tabbed-content">{blocks}</div></div>'
    )


def warning(title: str, text: str) -> Html:
    """A box that is hard to overlook; `text` is HTML."""
    return Html(f'<div class="admonition warning"><p class="admonition-title">{title}</p><p>{text}</p></div>')


def provenance(chapter: str) -> Html:
    """One line: device, versions, date, commit, and live, replayed or stale; banners for what is stale or missing."""
    device = shown_device()
    names = recorded_names(device, chapter)
    missing = _missing([one.id for one in experiments(chapter) if one.name not in names], device)
    if not names:
        return missing
    found = [load_recording(f"{chapter}/{name}", device) for name in names]
    newest = max(found, key=lambda one: one.circumstances.date).circumstances
    stale = [one for one in found if is_stale(one)]
    mode = "stale" if stale else "live" if device == this_device() else "replayed"
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
        return Html(line + missing)
    banner = warning(
        "Recorded for an older version of this code",
        f"{len(stale)} of {len(found)} recordings were made before the code on this page changed. "
        f"On a machine with this GPU run <code>make record CHAPTER={chapter}</code>.",
    )
    return Html(line + banner + missing)


def _missing(ids: Sequence[str], device: str) -> Html:
    """What was never recorded on a device, and on which kind of machine which command does; empty for nothing."""
    if not ids:
        return Html("")
    chapter = ids[0].partition("/")[0]
    return warning(
        "Not recorded yet",
        f"For the {escape(short_name(device))} there is no recording of {', '.join(map(code, ids))}. "
        f"On a machine with that GPU run <code>make record CHAPTER={escape(chapter)}</code>. On one with another CUDA "
        "GPU the same command records for that one. Without a GPU no recording can be made; all else can be done.",
    )


def verdicts(*ids: str) -> Html:
    """Claims with their verdicts on the shown device: the source's value beside ours, and why where they differ."""
    device = shown_device()
    judged = [judge(claim, chapter, device) for chapter, claim in (all_claims()[name] for name in ids)]
    return Html(f'<div class="verdicts">{"".join(_verdict(one) for one in judged)}</div>')


def _verdict(one: Verdict) -> str:
    claim = one.claim
    said = (
        f'<span class="said">{escape(claim.source.who)}: {with_kernel_names(claim.source.value)}</span>'
        if claim.source
        else '<span class="said">ours</span>'
    )
    device = f"{escape(short_name(one.device))}: " if one.measured else ""
    why = f'<p class="why">{escape(claim.why)}</p>' if claim.why and one.word != "holds" else ""
    name, row = escape(claim.id.lower()), escape(ledger_row(claim.id, one.device))
    return (
        f'<div class="verdict {one.word.replace(" ", "-")}" id="claim-{name}">'
        f'<p><span class="mark">{status_badge(one)}</span> {escape(claim.sentence)} '
        f'<a class="id" href="../claims/#{row}" title="this claim in the ledger">{escape(claim.id)}</a></p>'
        f'<p class="values">{said} · <span class="ours">{device}{measured_html(one)}</span></p>{why}</div>'
    )


def status_badge(one: Verdict) -> Html:
    """The verdict as a sign and a word, told apart without color."""
    return Html(f'<span class="word {one.word.replace(" ", "-")}">{MARKS[one.word]} {one.word}</span>')


def measured_html(one: Verdict) -> Html:
    """What was measured, with its spread; where nothing was, the reason."""
    if one.measured is None:
        return Html(escape(one.reason))
    spread = f" <small>({escape(one.measured.spread_text)})</small>" if one.measured.spread_text else ""
    return Html(f"{with_kernel_names(one.measured.text)}{spread}")
