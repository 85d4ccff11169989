"""Changes to the recordings of the chapter mlp, and their effect on its claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kinetoscope.trace.events import GpuActivity
from snippets.lab.finding.book import Verdict, findings, judge
from snippets.lab.finding.claim import Status
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.recording.schema import Timing
from tests.chapters.altered import AlteredDevice

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


def change_kernels(device: AlteredDevice, experiment: str, change: Callable[[GpuActivity], GpuActivity]) -> None:
    device.activities(experiment, lambda activity: change(activity) if activity.kind == "kernel" else activity)


def change_data(device: AlteredDevice, experiment: str, **changed: Any) -> None:
    device.record(experiment, data={**device[experiment].data, **changed})


def scale_timings(device: AlteredDevice, experiment: str, kind: str, factor: float) -> None:
    """Make one kind of timing of every point longer or shorter."""

    def scaled(point: Any) -> Any:
        old: Timing = getattr(point.timings, kind)
        samples = tuple(factor * sample for sample in old.samples_us)
        timing = Timing(factor * old.median_us, factor * old.q1_us, factor * old.q3_us, samples)
        return replace(point, timings=replace(point.timings, **{kind: timing}))

    device.record(experiment, points=tuple(map(scaled, device[experiment].points)))
