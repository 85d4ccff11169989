"""Sample numbers in a preview: the fences that show them, and the banner above each.

`make serve SAMPLE=rmsnorm` shows a chapter with made-up recordings from its tests, so that all of its code runs before
any measurement. Every other chapter shows measured numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from snippets.lab.cache import once
from snippets.lab.experiment import chapters
from snippets.lab.finding.device import Device, all_devices
from snippets.lab.recording.device import DEFAULT_DEVICE, SAMPLE_DEVICE, recorded_devices

SAMPLE_TEXT = "Sample numbers, made up for a preview"


def shown_devices(root: Path, chapter: str, sampled: str) -> tuple[Device, ...]:
    """The devices whose numbers a chapter shows: every recorded device.

    In a preview of `sampled`, that chapter shows only the sample device; every other chapter omits it.
    """
    devices = all_devices(root)
    if not sampled or SAMPLE_DEVICE not in (device.name for device in devices):
        return devices
    measured = tuple(device for device in devices if not device.is_sample)
    return (Device(root, SAMPLE_DEVICE),) if chapter == sampled else measured or (Device(root, DEFAULT_DEVICE),)


@once
def chapter_of(fence: str) -> str:
    """The chapter of a fence, from the start of its id: `fused-mlp-steps` -> `fused_mlp`; else empty."""
    starts = {chapter.replace("_", "-") + "-": chapter for chapter in chapters()}
    return starts[max(near, key=len)] if (near := [start for start in starts if fence.startswith(start)]) else ""


def with_banners(root: Path, panels: Mapping[Device, str]) -> dict[Device, str]:
    """The panels, with the banner above sample numbers: where a sample is recorded, also in panels that name it."""
    has_sample = SAMPLE_DEVICE in recorded_devices(root)  # without one, the name in a panel is a stranger's text
    banner = f'<p class="lab-sample">{SAMPLE_TEXT}</p>'
    return {
        device: f"{banner}{panel}" if device.is_sample or (has_sample and SAMPLE_DEVICE in panel) else panel
        for device, panel in panels.items()
    }
