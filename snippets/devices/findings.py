"""The tables of the pages devices and measuring: recorded GPUs, their ceilings, and the book's steps beside them."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from snippets.lab.finding import Device, Figure, NotRecorded, at_least, claim, format_value, paired_ratio
from snippets.lab.html import Cell, Html, table
from snippets.lab.page import cpu_gpu_bars, roofline
from snippets.lab.page import show as show
from snippets.lab.recording.ceilings import COPY, LARGE_MATMUL
from snippets.lab.recording.device import recorded_devices
from snippets.lab.recording.loading import load_recordings
from snippets.lab.recording.schema import Environment

PAGE = "measuring"
STEPS = {
    "matmul + add, 64": "matmul_add/eager_64",
    "linear": "linear/eager",
    "matmul + add, 4096": "matmul_add/eager_4096",
    "MLP": "mlp/eager",
}
"""Steps of the book, one or two of each chapter."""


@claim("D1", at_least(1.1), scope="timing")
def copy_in_graph_over_stream(device: Device) -> Figure:
    """A large device-to-device copy takes longer as a node of a CUDA graph than in the stream."""
    return paired_ratio(device["devices/copy_in_graph"], device["devices/copy"])


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


def circumstances(device: Device) -> Html:
    """A column for each recorded device: chip, driver, versions, clock and power under load."""
    names = recorded_devices(device.root)
    if not names:
        raise NotRecorded("no device is recorded; on a machine with a GPU run make record")
    columns = [sessions_of(device.root, name) for name in names]
    of_latest: Mapping[str, Callable[[Environment], Cell]] = {
        "compute capability": lambda latest: latest.compute_capability,
        "multiprocessors": lambda latest: latest.multiprocessors,
        "memory": lambda latest: format_value(latest.memory_bytes, "bytes"),
        "L2 cache": lambda latest: format_value(latest.l2_bytes, "bytes"),
        "driver": lambda latest: latest.driver,
        "CUDA": lambda latest: latest.cuda,
        **{name: _version(name) for name in ("python", "torch", "triton", "kernels", "liger-kernel")},
        "last recorded": lambda latest: latest.date[:10],
        "at commit": lambda latest: latest.commit,
    }
    of_sessions = {
        "SM clock under load": ("sm_mhz", "MHz"),
        "power under load": ("power_w", "W"),
        "temperature": ("temperature_c", "°C"),
    }
    rows: list[list[Cell]] = [[name, *(cell(sessions[-1]) for sessions in columns)] for name, cell in of_latest.items()]
    rows += [[name, *(_bounds(sessions, *clock) for sessions in columns)] for name, clock in of_sessions.items()]
    return table("Recorded devices", ["", *(sessions[-1].device for sessions in columns)], rows)


def _version(name: str) -> Callable[[Environment], Cell]:
    return lambda latest: latest.versions.get(name)


def _bounds(sessions: Sequence[Environment], clock: str, unit: str) -> Cell:
    """The lowest and the highest reading: `1290 to 1980 MHz`."""
    values = [each.clocks[clock] for each in sessions if clock in each.clocks]
    bounds = [f"{bound:.0f}" for bound in (min(values), max(values))] if values else []
    return f"{' to '.join(dict.fromkeys(bounds))} {unit}" if bounds else None


def ceilings(device: Device) -> Html:
    """Every ceiling measured on a device: the median over its sessions, and the lowest and the highest."""
    rates: dict[str, dict[str, float]] = {}
    units: dict[str, str] = {}
    for recording in load_recordings(device.root, device.name):
        for ceiling in recording.ceilings:
            rates.setdefault(ceiling.name, {})[recording.session] = ceiling.rate
            units[ceiling.name] = "flop/s" if ceiling.flops else "bytes/s"
    rows: list[list[Cell]] = []
    for name in sorted(rates, key=lambda name: (name != COPY, name != LARGE_MATMUL, _sizes(name))):
        values = list(rates[name].values())
        bounds = (statistics.median(values), min(values), max(values))
        rows.append([name, *(format_value(value, units[name]) for value in bounds), len(values)])
    head = ["ceiling", "median", "lowest session", "highest session", "sessions"]
    return table(f"Ceilings of {sessions_of(device.root, device.name)[-1].device}", head, rows)


def _sizes(name: str) -> tuple[int, ...]:
    return tuple(int(size) for size in name.rpartition(" ")[2].split("x") if size.isdigit())


steps_below_roof = partial(roofline, variants=STEPS)
gpu_and_cpu = partial(cpu_gpu_bars, variants={"a linear layer": "linear/eager", "an MLP": "mlp/eager"})
