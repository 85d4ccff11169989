"""The recorded GPU that a source's value is for. Its recordings judge the value, whichever tab of the page is open."""

from __future__ import annotations

from kinetoscope.html import Html
from snippets.fact_check.findings.sources import H100
from snippets.lab.finding import Device, Figure, Measure, NotRecorded, Source
from snippets.lab.finding.book import Verdict, find_claim, judge
from snippets.lab.finding.device import all_devices
from snippets.lab.finding.mismatch import reading
from snippets.lab.page import show as show, verdicts
from snippets.lab.page.verdict import opened_device, verdict_line

H200 = "NVIDIA H200"


def recorded(device: Device, model: str) -> Device:
    """The device itself if it is of this model or a preview's sample, else the first recorded device of the model.

    Raises `NotRecorded` if there is none.
    """
    found = device if device.is_sample else _tester(device, Source("", "", model, only_there=True))
    if found is None:
        raise NotRecorded(f"no {model} is recorded; on a machine with one run make record CHAPTER=fact_check")
    return found


def _tester(device: Device, source: Source) -> Device | None:
    """The device itself if it can test the source's value, else the first other device that can, in the same part."""
    beside = (device.beside(each.name) for each in all_devices(device.root))
    return next((each for each in (device, *beside) if source.can_be_tested_on(each.name)), None)


def measured_on(model: str, of: Measure) -> Measure:
    """A figure of the recorded device of a model. A mismatch leaves the figure out, and never ends a build."""

    def measured(device: Device) -> Figure:
        with reading(recorded(device, model)) as there:
            return of(there)

    return measured


def source_verdict(verdict: Verdict) -> Verdict:
    """The verdict of the recorded device that the source's value is for; without one, the verdict unchanged."""
    source = verdict.claim.source
    if source is None or verdict.status != "cannot be tested":
        return verdict
    tester = _tester(verdict.device, source)
    return judge(verdict.claim, verdict.chapter, tester) if tester else verdict


def verdicts_of_the_h100(device: Device, *claim_ids: str) -> Html:
    """Claims about values for an H100, with the recorded H100's verdicts and their reasons.

    The same on every tab. Without an H100 it shows that this device cannot test them.
    """
    try:
        there = recorded(device, H100)
    except NotRecorded:
        return verdicts(device, *claim_ids)
    judged = (judge(claim, of, there) for of, claim in map(find_claim, claim_ids))
    lines = (verdict_line(verdict, opened_device(there), verdict.claim.why) for verdict in judged)
    return Html(f'<div class="verdicts" data-search-exclude>{"".join(lines)}</div>')
