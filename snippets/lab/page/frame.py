"""The frame of a page: the panels of a fence, and the provenance of its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Concatenate, ParamSpec

from kinetoscope.html import Html, code, hold_back
from kinetoscope.trace.text import visible
from snippets.lab.experiment import Experiment, experiments
from snippets.lab.finding.device import Device
from snippets.lab.finding.mismatch import Mismatch, reading
from snippets.lab.page.disturbed import BANNER, disturbed_banner, disturbed_line
from snippets.lab.page.machine import machine_table
from snippets.lab.page.sample import chapter_of, shown_devices, with_banners
from snippets.lab.recording.device import (
    default_device,
    recordings_root,
    sample_chapter,
    this_device,
)
from snippets.lab.recording.fingerprint import measured_code
from snippets.lab.recording.loading import load_recording
from snippets.lab.recording.schema import Environment, NotRecorded, NotTimed, Recording

Options = ParamSpec("Options")
FRAME = '<div class="lab" data-fence="'
"""The start of what `show` returns."""
_FEW_ELEMENTS = 12


def show(
    fence: str, piece: Callable[Concatenate[Device, Options], str], *args: Options.args, **options: Options.kwargs
) -> str:
    """Call a page piece for each recorded device and frame it: `show("mlp-kernels", kernel_table, "mlp/eager")`.

    `fence` is the fence's id, unique on the site: a gate compares the fences in the pages with those that ran.
    If several devices are recorded and their panels differ, each device has a panel, and the switch in the page's
    header chooses one. Without a recording, the panel shows the command that records it. A panel with sample numbers
    has a banner.
    """
    root = recordings_root()
    devices = shown_devices(root, chapter_of(fence), sample_chapter())
    panels = {device: visible(_panel(fence, device, piece, *args, **options)) for device in devices}
    return f'{FRAME}{escape(fence)}">{by_device(root, panels)}</div>'


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


def by_device(root: Path, panels: Mapping[Device, str]) -> str:
    """A panel for each device, that which pages open with first; without scripts, the others are folded below their
    names. Panels that are alike are one, without a device.

    docs/assets/js/devices.js makes the switch and shows the panel of the chosen device alone.
    """
    if len(set(panels.values())) == 1:
        panels = dict([next(iter(panels.items()))])
    panels = with_banners(root, panels)
    if len(panels) == 1:
        return next(iter(panels.values()))
    opened = default_device(root)
    first = [_panel_of(device, html) for device, html in panels.items() if device.name == opened]
    return "".join([*first, *(_other(device, html) for device, html in panels.items() if device.name != opened)])


def _panel_of(device: Device, html: str, kind: str = "device") -> str:
    return f'<div class="{kind}"{_named(device)}>{html}</div>'


def _other(device: Device, html: str) -> str:
    """A panel that few readers open: a fold, and with scripts plain text until its device is chosen (devices.js).

    Half of a page's elements would be in panels of other devices. Guesses stay: their script counts their answers. They
    have no fold, since each answer is a line that names its device, and since a fold in the fold of their question
    would end there what the search leaves out.
    """
    if 'class="guess"' in html:
        return _panel_of(device, html, "device other")
    held = html if html.count("</") < _FEW_ELEMENTS else hold_back(html, device.short_name)
    summary = f"<summary>{escape(device.short_name)}</summary>"
    return f'<details class="device"{_named(device)} data-search-exclude>{summary}{held}</details>'


def _named(device: Device) -> str:
    return f' data-device="{escape(device.name)}" data-name="{escape(device.short_name)}"'


def warning(title: str, text: str) -> Html:
    """A warning box. `text` is HTML."""
    return Html(f'<div class="admonition warning"><p class="admonition-title">{title}</p><p>{text}</p></div>')


def provenance(device: Device, chapter: str) -> Html:
    """One folded line with device and date. The fold has the versions, the commit, the mode and the machine.

    Banners outside the fold name what is stale, disturbed or missing.
    """
    names = device.recorded_names(chapter)
    missing = _missing(device, [experiment for experiment in experiments(chapter) if experiment.name not in names])
    if not names:
        return missing
    recordings = [load_recording(device.root, device.name, f"{chapter}/{name}") for name in names]
    newest = max(recordings, key=lambda recording: recording.environment.date).environment
    code = measured_code(gpu=newest.device)
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
            f"On a machine with this GPU, run <code>make record CHAPTER={chapter}</code>.",
        )
    if disturbed := disturbed_banner(recordings):
        banners += f"{BANNER}{warning('Disturbed while it was recorded', disturbed)}</div>"
    return banners


def _missing(device: Device, missing: Sequence[Experiment]) -> Html:
    """A warning with the experiments not recorded on a device and the command to record them; empty if all are
    recorded.

    If none is recorded, the chapter stands for their names.
    """
    if not missing:
        return Html("")
    chapter = missing[0].chapter
    text = f"The book has no {escape(device.short_name)} recording of "
    command = f"run <code>make record CHAPTER={escape(chapter)}</code>."
    if device.recorded_names(chapter):
        text += (
            f"{', '.join(map(_name, missing))}. On a machine with that GPU, {command} On a machine with another CUDA "
            "GPU, the same command records for the other GPU. Without a GPU, you can do everything except record."
        )
    else:
        text += f"this chapter: {command}"
    return warning("Not recorded yet", text)


def _name(experiment: Experiment) -> str:
    """Its id, and how many GPUs it needs beyond one."""
    return code(experiment.id) + (f" (needs {experiment.gpus} GPUs)" if experiment.gpus > 1 else "")
