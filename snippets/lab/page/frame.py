"""The frame of a page: the tabs of a fence, the provenance of its numbers, the verdicts of its claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Concatenate, ParamSpec

from kinetoscope.html import Html, code, hold_back, with_code
from kinetoscope.trace.text import visible
from snippets.lab.experiment import Experiment, experiments
from snippets.lab.finding.accepted import status_of_text
from snippets.lab.finding.book import Verdict, find_claim, judge
from snippets.lab.finding.claim import Status
from snippets.lab.finding.device import Device, all_devices
from snippets.lab.finding.mismatch import Mismatch, reading
from snippets.lab.page.disturbed import disturbed_banner, disturbed_line
from snippets.lab.page.kernel_name import with_kernel_names
from snippets.lab.page.machine import machine_table
from snippets.lab.page.sample import chapter_of, shown_devices, with_banners
from snippets.lab.recording.device import (
    DEFAULT_DEVICE,
    default_device,
    recordings_root,
    sample_chapter,
    short_name,
    this_device,
)
from snippets.lab.recording.fingerprint import measured_code
from snippets.lab.recording.loading import load_recording
from snippets.lab.recording.schema import Environment, NotRecorded, NotTimed, Recording

SIGNS = {"holds": "✓", "differs": "≠", "inconclusive": "?", "cannot be tested": "⊘", "not measured": "–"}
Options = ParamSpec("Options")
FRAME = '<div class="lab" data-fence="'
"""The start of what `show` returns."""
_FEW_ELEMENTS = 12


def show(
    fence: str, piece: Callable[Concatenate[Device, Options], str], *args: Options.args, **options: Options.kwargs
) -> str:
    """Call a page piece for each recorded device and frame it: `show("mlp-kernels", kernel_table, "mlp/eager")`.

    `fence` is the fence's id, unique on the site: a gate compares the fences in the pages with those that ran.
    If several devices are recorded and their panels differ, each device has a tab; the theme links tabs with the same
    name over the whole site. Without a recording, the panel shows the command that records it. A panel with sample
    numbers has a banner.
    """
    root = recordings_root()
    devices = shown_devices(root, chapter_of(fence), sample_chapter())
    panels = {device: visible(_panel(fence, device, piece, *args, **options)) for device in devices}
    if len(devices) > 1 and len(set(panels.values())) == 1:
        panels = {devices[0]: panels[devices[0]]}
    panels = with_banners(root, panels)
    inner = next(iter(panels.values())) if len(panels) == 1 else _tabs(fence, panels, default_device(root))
    return f'{FRAME}{escape(fence)}">{inner}</div>'


def _panel(
    fence: str,
    device: Device,
    piece: Callable[Concatenate[Device, Options], str],
    *args: Options.args,
    **options: Options.kwargs,
) -> str:
    try:
        with reading(device, f"fence {fence}") as noted:
            panel = piece(noted, *args, **options)
            return panel + disturbed_line(noted)
    except NotRecorded as error:
        if (chapter := chapter_of(fence)) and not device.recorded_names(chapter):
            return Html(f"<p>Not recorded on the {escape(device.short_name)}.</p>")  # provenance has the command
        return warning("Not recorded yet", escape(str(error)))
    except NotTimed as error:
        return warning("Not timed", escape(str(error)))
    except Mismatch as error:
        return warning("Not shown for this device", escape(str(error)))


def _tabs(fence: str, panels: Mapping[Device, str], opened: str) -> str:
    """A panel for each device in the HTML of the theme's tabs, which work without JavaScript."""
    ids = {device: f"tab-{fence}--{device.name}" for device in panels}  # neither has two dashes: no two ids are equal
    inputs = "".join(
        f'<input type="radio" id="{escape(ids[device])}" name="tab-{escape(fence)}" data-device="{escape(device.name)}"'
        f"{' checked' if device.name == opened else ''}>"
        for device in panels
    )
    labels = "".join(f'<label for="{escape(ids[device])}">{escape(device.short_name)}</label>' for device in panels)
    blocks = "".join(
        f'<div class="tabbed-block">{panel}</div>'
        if device.name == opened
        else f'<div class="tabbed-block" data-search-exclude>{_held_back(panel, device)}</div>'
        for device, panel in panels.items()
    )
    return (
        f'<div class="tabbed-set tabbed-alternate devices" data-tabs="{escape(fence)}">{inputs}'
        f'<div class="tabbed-labels" data-search-exclude>{labels}</div><div class="tabbed-content">{blocks}</div></div>'
    )


def _held_back(panel: str, device: Device) -> str:
    """A panel that few readers open: with scripts, plain text until its tab is chosen (docs/assets/js/devices.js).

    Half of a page's elements would be in panels of other devices. Guesses stay: their script counts their answers.
    """
    is_small = panel.count("</") < _FEW_ELEMENTS
    return panel if is_small or 'class="guess"' in panel else hold_back(panel, device.short_name)


def warning(title: str, text: str) -> Html:
    """A box that is hard to overlook; `text` is HTML."""
    return Html(f'<div class="admonition warning"><p class="admonition-title">{title}</p><p>{text}</p></div>')


def provenance(device: Device, chapter: str) -> Html:
    """One folded line, device and date; in the fold the versions, the commit, the mode and the machine.

    Banners outside the fold name what is stale, disturbed or missing.
    """
    names = device.recorded_names(chapter)
    missing = _missing(device, [experiment for experiment in experiments(chapter) if experiment.name not in names])
    if not names:
        return missing
    recordings = [load_recording(device.root, device.name, f"{chapter}/{name}") for name in names]
    newest = max(recordings, key=lambda recording: recording.environment.date).environment
    code = measured_code()
    now = {experiment.name: experiment for experiment in experiments(chapter)}
    current = {name: code.fingerprint(each) for name, each in now.items()}
    stale = [one for one in recordings if current.get(one.experiment, one.fingerprint) != one.fingerprint]
    mode = "stale" if stale else "live" if device.name == this_device() else "replayed"
    article = "an" if newest.device[:1] in "AEIONaeio" else "a"  # an NVIDIA H200, a Tesla T4
    summary = (
        f"Measured on {article} <strong>{escape(newest.device)}</strong>, "
        f'<time datetime="{escape(newest.date)}">{escape(newest.date[:10])}</time>'
    )
    content = _versions(newest, mode) + machine_table(recordings)
    fold = f'<details class="provenance" data-search-exclude><summary>{summary}</summary>{content}</details>'
    return Html(fold + _banners(chapter, recordings, len(stale)) + missing)


def _versions(environment: Environment, mode: str) -> str:
    """A line with the installed versions, the commit, and live, replayed or stale."""
    installed = {name: version for name, version in environment.versions.items() if version != "not installed"}
    parts = [
        f"driver {escape(environment.driver)}, CUDA {escape(environment.cuda)}",
        escape(", ".join(f"{name} {version}" for name, version in installed.items())),
        f"commit {code(environment.commit)}",
        f'<span class="mode mode-{mode}">{mode}</span>',
    ]
    return f"<p>{' · '.join(parts)}</p>"


def _banners(chapter: str, recordings: Sequence[Recording], stale: int) -> str:
    """Warnings that recordings are older than the code, or disturbed; empty if none is."""
    banners = ""
    if stale:
        banners += warning(
            "Recorded for an older version of this code",
            f"{stale} of {len(recordings)} recordings were made before the code on this page changed. "
            f"On a machine with this GPU run <code>make record CHAPTER={chapter}</code>.",
        )
    if disturbed := disturbed_banner(recordings):
        banners += warning("Disturbed while it was recorded", disturbed)
    return banners


def _missing(device: Device, missing: Sequence[Experiment]) -> Html:
    """A warning with the experiments not recorded on a device and the command to record them; empty if all are
    recorded.

    If none is recorded, the chapter stands for their names.
    """
    if not missing:
        return Html("")
    chapter = missing[0].chapter
    text = f"For the {escape(device.short_name)} there is no recording of "
    command = f"run <code>make record CHAPTER={escape(chapter)}</code>."
    if device.recorded_names(chapter):
        text += (
            f"{', '.join(map(_name, missing))}. On a machine with that GPU {command} On one with another CUDA GPU the "
            "same command records for that one. Without a GPU no recording can be made; all else can be done."
        )
    else:
        text += f"this chapter: {command}"
    return warning("Not recorded yet", text)


def _name(experiment: Experiment) -> str:
    """Its id, and how many GPUs it needs beyond one."""
    return code(experiment.id) + (f" (needs {experiment.gpus} GPUs)" if experiment.gpus > 1 else "")


def verdicts(device: Device, *claim_ids: str) -> Html:
    """Claims with their verdicts: the source's value beside ours, and why where they differ. Raises `UnknownName`.

    Claims in a row that hold, as the text says, are folded into one line, `8 claims hold`, and so are those that are
    not measured. A search finds the prose that says the same, and not them.
    """
    judged = [judge(claim, of, device) for of, claim in map(find_claim, claim_ids)]
    boxes = "".join(_run(list(run), folded) for folded, run in groupby(judged, key=_folded_status))
    return Html(f'<div class="verdicts" data-search-exclude>{boxes}</div>')


def _folded_status(verdict: Verdict) -> Status | None:
    """The status under which a claim is folded, because it adds nothing to the text; None if it stays open."""
    if verdict.status == "holds" and not _other_text(verdict):
        return "holds"
    return "not measured" if verdict.status == "not measured" else None


def _run(judged: Sequence[Verdict], folded: Status | None) -> str:
    """Consecutive claims: open, or folded below their number."""
    boxes = "".join(map(_verdict, judged))
    if folded is None:
        return boxes
    one, several = ("holds", "hold") if folded == "holds" else ("is not measured", "are not measured")
    number = f"1 claim {one}" if len(judged) == 1 else f"{len(judged)} claims {several}"
    sign = f'<span class="sign" aria-hidden="true">{SIGNS[folded]}</span>'
    return f'<details class="held"><summary>{sign} {number}</summary>{boxes}</details>'


def _verdict(verdict: Verdict) -> str:
    return verdict_box(verdict, verdict.device, why_text(verdict), _other_text(verdict))


def verdict_box(verdict: Verdict, panel: Device, why: str, other: str = "") -> str:
    """A claim with its verdict, in the panel of a device: the source's value, the measured value, and why."""
    claim, device = verdict.claim, verdict.device
    source = (
        f'<span class="said">{escape(claim.source.who)}: {with_kernel_names(claim.source.value)}</span>'
        if claim.source
        else '<span class="said">ours</span>'
    )
    where = f"{escape(device.short_name)}: " if verdict.measured else ""
    reason = f'<p class="why">{with_code(why)}</p>' if why else ""
    ident, row = claim_anchor("claim", claim.id, panel), claim_anchor("ledger", claim.id, device)
    return (
        f'<div class="verdict {verdict.status.replace(" ", "-")}" id="{escape(ident)}">'
        f'<p><span class="mark">{status_badge(verdict)}</span> {with_code(claim.sentence)} '
        f'<a class="id" href="../claims/#{escape(row)}" title="this claim in the ledger">{escape(claim.id)}</a></p>'
        f'<p class="values" data-search-exclude>{source} · '
        f'<span class="ours">{where}{measured_html(verdict)}</span></p>'
        f"{other}{reason}</div>"
    )


def why_text(verdict: Verdict) -> str:
    """Why a claim differs on the default device, named if another device is shown; empty if the claim holds.

    For a value that only its own device can test, why it differs there.
    """
    why = "" if verdict.status == "holds" else verdict.claim.why
    is_of_the_default = not (verdict.claim.source and verdict.claim.source.only_there)
    named = why and is_of_the_default and not verdict.device.is_default
    return f"On the {short_name(DEFAULT_DEVICE)}: {why}" if named else why


def _other_text(verdict: Verdict) -> str:
    """A line if the text describes another status: the status accepted for the default device."""
    status = status_of_text(verdict.claim.id, verdict.device.root)
    if status in (None, verdict.status) or verdict.device.is_default or verdict.device.is_sample:
        return ""
    described = status if status in ("holds", "differs", "cannot be tested") else f"is {status}"
    return (
        f'<p class="elsewhere" data-search-exclude>{escape(verdict.device.short_name)}: {verdict.status}. On the '
        f"{escape(short_name(DEFAULT_DEVICE))}, for which this text was written, it {described}.</p>"
    )


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
