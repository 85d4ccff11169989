"""Claims with their verdicts: a line where a claim differs, the folded list at a section's end, marks at figures.

A fence of `verdicts` shows what a reader should know at that place: the claims that differ, except those about the GPU
of the series (`is_open`). `section_claims` lists the other claims of a section below one folded line, with the source's
value and the measured value. Ids, articles and scopes are in the ledger, to which each verdict leads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from kinetoscope.html import Html, with_code
from kinetoscope.trace.text import visible
from snippets.lab.finding.accepted import status_of_text
from snippets.lab.finding.book import Verdict, find_claim, judge
from snippets.lab.finding.claim import SERIES, STATUSES, Claim, Status
from snippets.lab.finding.device import Device, all_devices
from snippets.lab.page.frame import by_device
from snippets.lab.page.kernel_name import short_kernel_names, with_kernel_names
from snippets.lab.page.sample import shown_devices
from snippets.lab.recording.device import DEFAULT_DEVICE, default_device, recordings_root, sample_chapter, short_name

SIGNS = {"holds": "✓", "differs": "≠", "inconclusive": "?", "cannot be tested": "⊘", "not measured": "–"}
COUNTED: dict[Status, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "differs": ("differs", "differ"),
    "inconclusive": ("is inconclusive", "are inconclusive"),
    "cannot be tested": ("cannot be tested", "cannot be tested"),
    "not measured": ("is not measured", "are not measured"),
}
"""Status -> text for one claim, and for any other number of claims."""


def verdicts(device: Device, *claim_ids: str) -> Html:
    """A line for each claim that differs or is inconclusive (`is_open`). Raises `UnknownName`.

    The other claims are in the list at the section's end, which `data-claims` names. A search finds the prose that says
    the same, and not them.
    """
    lines = "".join(verdict_line(verdict) for verdict in _judged(device, claim_ids) if is_open(verdict))
    claims = escape(" ".join(claim_ids))
    return Html(f'<div class="verdicts" data-claims="{claims}" data-search-exclude>{lines}</div>')


def _judged(device: Device, claim_ids: Iterable[str]) -> list[Verdict]:
    return [judge(claim, of, device) for of, claim in map(find_claim, claim_ids)]


def is_open(verdict: Verdict) -> bool:
    """Whether a reader would act differently: a claim differs, or the text says another thing than this device.

    A value of the series' GPU does not count where it differs here as it does in the text: such a claim is in its
    section's list, and in the page's table of what is different from the series. A claim that is inconclusive here and
    decided in the text counts, the reverse does not.
    """
    text = _status_of_text(verdict)
    if verdict.status == "differs":
        return text is not None or not is_of_the_series_gpu(verdict.claim)
    return text == "differs" if verdict.status == "holds" else verdict.status == "inconclusive" and text is not None


def is_of_the_series_gpu(claim: Claim) -> bool:
    """Whether a claim says only what the series saw on its GPU: a name, a call, a time, and no advice."""
    is_of_the_series = claim.source is not None and claim.source.who in SERIES
    return is_of_the_series and claim.scope != "every-gpu" and not claim.is_advice


def _status_of_text(verdict: Verdict) -> Status | None:
    """The decided status that the text describes, if it is another: that accepted for the default device."""
    status = status_of_text(verdict.claim.id, verdict.device.root)
    is_other = status != verdict.status and not verdict.device.is_default and not verdict.device.is_sample
    return status if is_other and status in ("holds", "differs") else None


def verdict_line(verdict: Verdict, panel: Device | None = None, why: str | None = None) -> str:
    """A claim in one line: verdict, sentence, measured value; folded below it the source's value and why.

    Args:
        verdict: of the claim.
        panel: the device in whose panel it is; without one, the device of the verdict.
        why: the reason; without one, that of a claim which does not hold.
    """
    text = _status_of_text(verdict)
    other = (
        f" On the {escape(short_name(DEFAULT_DEVICE))}, for which this page was written, the claim {text}."
        if text
        else ""
    )
    short = escape(short_kernel_names(verdict.measured.text) if verdict.measured else verdict.reason)
    measured = f'<span class="ours">{escape(verdict.device.short_name)}: {short}.</span>'
    rest = (
        f'<p class="values">{_values(verdict, " said: ")}</p>'
        + _why(why_text(verdict) if why is None else why)
        + f"<p>{_ledger_link(verdict)}</p>"
    )
    return (
        f"<details {_attributes(verdict, panel or verdict.device)}><summary>"
        f'<span class="mark">{status_badge(verdict)}</span> '
        f"{with_code(verdict.claim.sentence)} {measured}{other}</summary>{rest}</details>"
    )


def verdict_box(verdict: Verdict) -> str:
    """A claim with its verdict, the source's value, the measured value, and why; the verdict leads to the ledger."""
    return (
        f"<div {_attributes(verdict, verdict.device)}><p>{_ledger_link(verdict, status_badge(verdict))} "
        f"{with_code(verdict.claim.sentence)}</p>"
        f'<p class="values">{_values(verdict, ": ")}</p>{_why(why_text(verdict))}</div>'
    )


def _attributes(verdict: Verdict, panel: Device) -> str:
    ident = claim_anchor("claim", verdict.claim.id, panel)
    return f'class="verdict {verdict.status.replace(" ", "-")}" id="{escape(ident)}"'


def _values(verdict: Verdict, verb: str) -> str:
    """The source's value and the measured value."""
    source, where = verdict.claim.source, f"{escape(verdict.device.short_name)}: " if verdict.measured else ""
    said = f'<span class="said">{escape(source.who)}{verb}{with_kernel_names(source.value)}</span> · ' if source else ""
    return f'{said}<span class="ours">{where}{measured_html(verdict)}</span>'


def _why(why: str) -> str:
    return why and f'<p class="why">{with_code(why)}</p>'


def _ledger_link(verdict: Verdict, text: str = "This claim in the ledger") -> str:
    row = claim_anchor("ledger", verdict.claim.id, verdict.device)
    title = f"claim {escape(verdict.claim.id)} in the ledger"
    return f'<a class="mark" href="../claims/#{escape(row)}" title="{title}">{text}</a>'


def section_claims(section: str, claim_ids: Sequence[str]) -> Html:
    """A folded list of a section's claims that are not open at their figures; empty if all of them are open.

    Marks at figures lead to `#tested-SECTION`, where `section` is the id of the section's heading.
    """
    root = recordings_root()
    chapter, _ = find_claim(claim_ids[0])
    listed = {
        device: [verdict for verdict in _judged(device, claim_ids) if not is_open(verdict)]
        for device in shown_devices(root, chapter, sample_chapter())
    }
    if not any(listed.values()):
        return Html("")
    lists = {device: visible("".join(map(verdict_box, judged))) for device, judged in listed.items()}
    return Html(
        f'<details class="held" data-search-exclude><summary>{_summary(listed)}</summary>'
        f'<div id="tested-{escape(section)}">{by_device(root, lists)}</div></details>'
    )


def _summary(listed: Mapping[Device, Sequence[Verdict]]) -> str:
    """`✓ 8 claims hold`: on each device, if not on all alike."""
    texts = {device: _counts(judged) for device, judged in listed.items()}
    first, *others = set(texts.values())
    if not others:
        return first
    opened = default_device(recordings_root())
    hidden = {device: "" if device.name == opened else " hidden" for device in texts}
    return "".join(
        f'<span class="device" data-device="{escape(device.name)}"{hidden[device]}>{text}</span>'
        for device, text in texts.items()
    )


def _counts(judged: Iterable[Verdict]) -> str:
    counts = Counter(verdict.status for verdict in judged)
    parts = [
        f"{SIGNS[status]} {count} claim{'' if count == 1 else 's'} {COUNTED[status][count != 1]}"
        for status in STATUSES
        if (count := counts[status])
    ]
    return ", ".join(parts) or "no other claim"


def claims_mark(section: str, claim_ids: Sequence[str]) -> Html:
    """A mark at a figure whose claims are in its section's list, with a sign if all hold on all devices.

    Empty if none is in the list.
    """
    chapter, _ = find_claim(claim_ids[0])
    devices = shown_devices(recordings_root(), chapter, sample_chapter())
    judged = [verdict for device in devices for verdict in _judged(device, claim_ids)]
    if all(map(is_open, judged)):
        return Html("")
    sign = "✓ " if all(verdict.status == "holds" and not is_open(verdict) for verdict in judged) else ""
    title = f"{len(claim_ids)} tested claim{'' if len(claim_ids) == 1 else 's'} at the end of this section"
    return Html(
        f' <a class="tested" href="#tested-{escape(section)}" title="{title}" data-search-exclude>{sign}tested</a>'
    )


def why_text(verdict: Verdict) -> str:
    """Why a claim differs on the default device, named if another device is shown; empty if the claim holds.

    For a value that only its own device can test, why it differs there.
    """
    why = "" if verdict.status == "holds" else verdict.claim.why
    is_of_the_default = not (verdict.claim.source and verdict.claim.source.only_there)
    named = why and is_of_the_default and not verdict.device.is_default
    return f"On the {short_name(DEFAULT_DEVICE)}: {why}" if named else why


def claim_anchor(kind: str, claim_id: str, device: Device) -> str:
    """The id of a claim's box or row: `ledger-m1` on the device that pages open with, else `ledger-m1-<device>`.

    Links lead to the first: panels of other devices may be in a file of their own.
    """
    return f"{kind}-{claim_id.lower()}" + ("" if device.name == opened_device(device).name else f"-{device.name}")


def opened_device(device: Device) -> Device:
    """The device that pages open with, among the recorded devices; the first device if it is not recorded."""
    first, *others = all_devices(device.root)
    name = default_device(device.root)
    return next((other for other in others if other.name == name), first)


def status_badge(verdict: Verdict) -> Html:
    """The status as a sign and a word, readable without color."""
    return Html(
        f'<span class="word {verdict.status.replace(" ", "-")}">{SIGNS[verdict.status]} {verdict.status}</span>'
    )


def measured_html(verdict: Verdict) -> Html:
    """The measured figure with its spread, or the reason why there is no figure or no verdict."""
    if verdict.measured is None:
        return Html(escape(verdict.reason))
    spread = f" <small>({escape(verdict.measured.spread_text)})</small>" if verdict.measured.spread_text else ""
    reason = f"<small>: {escape(verdict.reason)}</small>" if verdict.reason else ""
    return Html(f"{with_kernel_names(verdict.measured.text)}{spread}{reason}")
