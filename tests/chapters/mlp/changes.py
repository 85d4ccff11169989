"""Changes to the recordings of the chapter mlp, and their effect on its claims."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kinetoscope.trace.events import GpuActivity
from snippets.lab.finding.book import Verdict, findings, judge
from snippets.lab.finding.claim import Status
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure

FINDINGS = findings("mlp")
CLAIMS = {claim.id: claim for claim in FINDINGS.claims}
HIDDEN_BYTES = 50_331_648
replace = msgspec.structs.replace


def verdict(name: str, device: Device) -> Verdict:
    return judge(CLAIMS[name], "mlp", device)


def status(name: str, device: Device) -> Status:
    return verdict(name, device).status


def measured(name: str, device: Device) -> Figure:
    figure = verdict(name, device).measured
    assert figure is not None
    return figure


def figure(name: str, device: Device) -> Figure:
    return FINDINGS.figures[name](device)


def renamed(old: str, new: str) -> Callable[[GpuActivity], GpuActivity]:
    return lambda kernel: replace(kernel, name=kernel.name.replace(old, new))


def lasting(name: str, us: float) -> Callable[[GpuActivity], GpuActivity]:
    return lambda kernel: replace(kernel, duration_us=us) if name in kernel.name else kernel
