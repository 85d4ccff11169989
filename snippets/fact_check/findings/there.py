"""The recorded GPU that a source's value is for: its recordings judge the value, whichever tab of the page is open."""

from __future__ import annotations

from html import escape

from snippets.fact_check.findings.sources import H100, short_name
from snippets.lab.finding import Device, Figure, Measure, NotRecorded, Source
from snippets.lab.finding.book import Verdict, find_claim, judge
from snippets.lab.finding.device import all_devices
from snippets.lab.finding.mismatch import reading
from snippets.lab.html import Html, with_code
from snippets.lab.page import show as show
from snippets.lab.page import verdicts
from snippets.lab.page.frame import claim_anchor, measured_html, opened_device, status_badge

H200 = "NVIDIA H200"


def recorded(device: Device, model: str) -> Device:
    """The device itself if it is of this model or made up for a preview, else the first one recorded beside it.

    Raises `NotRecorded` if there is none.
    """
    source = Source("", "", model, only_there=True)
    if device.is_sample or source.can_be_tested_on(device.name):
        return device
    for each in all_devices(device.root):
        if source.can_be_tested_on(each.name):
            return Device(each.root, each.name, device.index)
    raise NotRecorded(f"no {model} is recorded; on a machine with one run make record CHAPTER=fact_check")


def on(model: str, of: Measure) -> Measure:
    """A figure of the recorded device of a model. What does not fit there is left out, and never ends a build."""

    def measured(device: Device) -> Figure:
        with reading(recorded(device, model)) as there:
            return of(there)

    return measured


def decided(verdict: Verdict) -> Verdict:
    """The verdict of the recorded device that the source's value is for; where none is, the verdict as it is."""
    source = verdict.claim.source
    if verdict.status == "cannot be tested" and source is not None:
        for each in all_devices(verdict.device.root):
            if source.can_be_tested_on(each.name):
                return judge(verdict.claim, verdict.chapter, each)
    return verdict


def verdicts_of_the_h100(device: Device, *claim_ids: str) -> Html:
    """Claims about values for an H100 with the verdict of the recorded one, each with its reason.

    The same on every tab. Without an H100 it shows that this device cannot test them.
    """
    try:
        there = recorded(device, H100)
    except NotRecorded:
        return verdicts(device, *claim_ids)
    boxes = (_box(judge(claim, of, Device(there.root, there.name))) for of, claim in map(find_claim, claim_ids))
    return Html(f'<div class="verdicts" data-search-exclude>{"".join(boxes)}</div>')


def _box(verdict: Verdict) -> str:
    """A verdict as in the other sections, and why, whatever it is."""
    claim, device = verdict.claim, verdict.device
    said = f"{short_name(claim.source.who)}: {claim.source.value}" if claim.source else "ours"
    ident, row = claim_anchor("claim", claim.id, opened_device(device)), claim_anchor("ledger", claim.id, device)
    return (
        f'<div class="verdict {verdict.status.replace(" ", "-")}" id="{escape(ident)}">'
        f'<p><span class="mark">{status_badge(verdict)}</span> {with_code(claim.sentence)} '
        f'<a class="id" href="../claims/#{escape(row)}" title="this claim in the ledger">{escape(claim.id)}</a></p>'
        f'<p class="values" data-search-exclude><span class="said">{escape(said)}</span> · '
        f'<span class="ours">{escape(device.short_name)}: {measured_html(verdict)}</span></p>'
        f'<p class="why">{with_code(claim.why)}</p></div>'
    )
