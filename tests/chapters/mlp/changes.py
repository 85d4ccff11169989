"""Changes to the recordings of the chapter mlp, and its figures and claims by name."""

from __future__ import annotations

from collections.abc import Callable

from kinetoscope.trace.events import GpuActivity
from snippets.lab.finding.book import findings
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from tests.chapters.altered import replace

FINDINGS = findings("mlp")
CLAIMS = {claim.id: claim for claim in FINDINGS.claims}
HIDDEN_BYTES = 50_331_648


def figure(name: str, device: Device) -> Figure:
    return FINDINGS.figures[name](device)


def renamed(old: str, new: str) -> Callable[[GpuActivity], GpuActivity]:
    return lambda kernel: replace(kernel, name=kernel.name.replace(old, new))


def lasting(name: str, us: float) -> Callable[[GpuActivity], GpuActivity]:
    return lambda kernel: replace(kernel, duration_us=us) if name in kernel.name else kernel
