"""The page devices: the recorded GPUs, what the same steps take on each, and their ceilings."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from kinetoscope.html import Cell, Html, note, table
from snippets.lab.finding import Device, Figure, NotRecorded, format_value
from snippets.lab.finding.book import chapters_with_findings, findings
from snippets.lab.finding.device import all_devices
from snippets.lab.finding.mismatch import NOT_SHOWN, reading
from snippets.lab.page import devices_table, show as show
from snippets.lab.page.machine import FIELDS
from snippets.lab.recording.ceilings import COPY, LARGE_MATMUL
from snippets.lab.recording.device import recorded_devices
from snippets.lab.recording.loading import load_recordings
from snippets.lab.recording.schema import Environment

COMPARED = {
    "a copy of one gibibyte": "devices.copy.interleaved_us",
    "attention: scaling the scores, in a trace": "attention.scale_us",
    "attention of one new query, cuDNN": "attention.decode_cudnn.interleaved_us",
    "attention, compiled": "attention.compiled.interleaved_us",
    "attention in plain operators": "attention.naive.interleaved_us",
    "an MLP": "mlp.eager.interleaved_us",
    "attention: masking the scores, in a trace": "attention.mask_us",
    "matmul + add, 4096": "matmul_add.eager_4096.interleaved_us",
    "attention, cuDNN": "attention.cudnn.interleaved_us",
    "a product of 8192 x 8192 x 8192": "devices.matmul.interleaved_us",
    "attention of one new query, efficient": "attention.decode_efficient.interleaved_us",
    "a linear layer": "linear.eager.interleaved_us",
}
"""Step -> the figure with its GPU time."""
compared = partial(devices_table, figures=COMPARED, caption="GPU times of the same steps")


def capture_us(device: Device) -> Figure:
    """The total time of measuring all recordings; each group counts once."""
    recordings = load_recordings(device.root, device.name)
    groups = {(each.chapter, each.session, each.capture_s) for each in recordings}
    return Figure(math.fsum(seconds for _, _, seconds in groups) * 1e6, "us", origin=f"{device.name}, all recordings")


def sessions_of(root: Path, device: str) -> list[Environment]:
    """The environments of a device's timed recordings, oldest first: their clocks were read under load.

    Raises `NotRecorded` if there are none.
    """
    recordings = load_recordings(root, device)
    timed = [each.environment for each in recordings if any(point.timings for point in each.points)]
    if not timed:
        raise NotRecorded(f"no timed recording for {device}; run make record on that machine")
    return sorted(timed, key=lambda environment: environment.date)


def _version(name: str) -> Callable[[Environment], Cell]:
    return lambda latest: latest.versions.get(name)


def circumstances(device: Device) -> Html:
    """A column for each recorded device: chip, driver, versions, clock and power under load."""
    if not recorded_devices(device.root):
        raise NotRecorded("no device is recorded; on a machine with a GPU run make record")
    columns: list[list[Cell]] = []
    left_out = list[str]()
    for each in all_devices(device.root):
        try:
            with reading(each) as noted:
                columns.append(_column(noted))
        except NOT_SHOWN as error:
            left_out.append(str(error))
    rows = list(zip(["", *OF_LATEST, *OF_SESSIONS], *columns, strict=True))
    shown = [row for row in rows[1:] if row[0] not in OF_SEVERAL or any(row[1:])]
    return Html(table("Recorded devices, with versions and settings", rows[0], shown) + note(" ".join(left_out)))


OF_LATEST: Mapping[str, Callable[[Environment], Cell]] = {
    "compute capability": lambda latest: latest.compute_capability,
    "multiprocessors": lambda latest: latest.multiprocessors,
    "memory": lambda latest: format_value(latest.memory_bytes, "bytes"),
    "L2 cache": lambda latest: format_value(latest.l2_bytes, "bytes"),
    "driver": lambda latest: latest.driver,
    "CUDA": lambda latest: latest.cuda,
    **{name: _version(name) for name in ("python", "torch", "triton", "kernels", "liger-kernel")},
    **FIELDS,
    "last recorded": lambda latest: latest.date[:10],
    "at commit": lambda latest: latest.commit,
}
OF_SESSIONS = {
    "SM clock under load": ("sm_mhz", "MHz"),
    "power under load": ("power_w", "W"),
    "temperature": ("temperature_c", "°C"),
}


OF_SEVERAL = ("several GPUs", "NCCL")
"""Rows of devices with a recording on several GPUs: of the last one with the most GPUs."""
OF_NEWEST = ("last recorded", "at commit")
"""Rows of the last recording, also of one without a timing under load."""


def _column(device: Device) -> list[Cell]:
    """A device's name, then a cell for each row."""
    sessions = sessions_of(device.root, device.name)
    recorded = [each.environment for each in load_recordings(device.root, device.name)]
    latest, newest = sessions[-1], max(recorded, key=lambda environment: environment.date)
    most = max(recorded, key=lambda environment: (environment.gpus, environment.date))
    of = dict.fromkeys(OF_SEVERAL, most) | dict.fromkeys(OF_NEWEST, newest)
    cells = [cell(of.get(name, latest)) or None for name, cell in OF_LATEST.items()]
    return [latest.device, *cells, *(_bounds(sessions, *clock) for clock in OF_SESSIONS.values())]


def _bounds(sessions: Sequence[Environment], clock: str, unit: str) -> Cell:
    """The lowest and the highest reading: `1290 to 1980 MHz`."""
    values = [each.clocks[clock] for each in sessions if clock in each.clocks]
    bounds = [f"{bound:.0f}" for bound in (min(values), max(values))] if values else []
    return f"{' to '.join(dict.fromkeys(bounds))} {unit}" if bounds else None


def recorded_chapters(device: Device) -> Html:
    """How many experiments of each chapter every device has recorded, each chapter with a link to its page."""
    devices = all_devices(device.root)
    rows: list[list[Cell]] = []
    for chapter in chapters_with_findings():
        counts = [len(each.recorded_names(chapter)) for each in devices]
        if any(counts):
            page = findings(chapter).page
            address = "../" if page == "index" else f"../{page}/"
            rows.append([Html(f'<a href="{address}">{chapter}</a>'), *(count or None for count in counts)])
    return table(
        "Number of recorded experiments, by chapter", ["chapter", *(each.short_name for each in devices)], rows
    )


def ceilings(device: Device) -> Html:
    """Every ceiling measured on a device: the median over its sessions, and the lowest and the highest.

    A session can time a ceiling several times, at each point of its sweeps. Its rate is the median of these timings.
    """
    rates: dict[str, dict[str, list[float]]] = {}
    units: dict[str, str] = {}
    for recording in load_recordings(device.root, device.name):
        for ceiling in (ceiling for point in recording.points for ceiling in point.ceilings):
            rates.setdefault(ceiling.name, {}).setdefault(recording.session, []).append(ceiling.rate)
            units[ceiling.name] = "flop/s" if ceiling.flops else "bytes/s"
    rows: list[list[Cell]] = []
    for name in sorted(rates, key=lambda name: (name != COPY, name != LARGE_MATMUL, _sizes(name))):
        values = [statistics.median(timed) for timed in rates[name].values()]
        bounds = (statistics.median(values), min(values), max(values))
        rows.append([name, *(format_value(value, units[name]) for value in bounds), len(values)])
    head = ["ceiling", "median", "lowest session", "highest session", "sessions"]
    return table(f"Ceilings of the {sessions_of(device.root, device.name)[-1].device}", head, rows)


def _sizes(name: str) -> tuple[int, ...]:
    return tuple(int(size) for size in name.partition(",")[0].rpartition(" ")[2].split("x") if size.isdigit())
