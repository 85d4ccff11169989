"""What the pages devices and measuring show: recorded GPUs, their ceilings, and the book's steps beside them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from snippets.lab.drawing.charts import cpu_gpu_bars, roofline
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure, format_value
from snippets.lab.finding.measure import paired_samples_ratio
from snippets.lab.html import Cell, Html, table
from snippets.lab.recording.device import recorded_devices, shown_device
from snippets.lab.recording.loading import load_recording, load_recordings
from snippets.lab.recording.schema import Ceiling, Environment, NotRecorded, Recording, Timings

# KEEP recording

LARGE = 8192
"""Side of the large matrix product, as in lab/hardware.py."""


STEPS = {
    "matmul + add, 64": "matmul_add/eager_64",
    "linear": "linear/eager",
    "matmul + add, 4096": "matmul_add/eager_4096",
    "MLP": "mlp/eager",
}
"""Steps of the book, one or two of each chapter."""


def sessions_of(device: str) -> list[Environment]:
    """The circumstances of a device's timed recordings, oldest first: their clocks are those of a GPU at work.

    Raises `RecordingMissing` when there is none.
    """
    found = [one.circumstances for one in load_recordings(device) if any(at.timings for at in one.points)]
    if not found:
        raise NotRecorded(f"no timed recording for {device}; there run make record")
    return sorted(found, key=lambda one: one.date)


def known_devices() -> tuple[str, ...]:
    """Recorded devices, the builder first. Raises `RecordingMissing` when there is none."""
    found = recorded_devices()
    if not found:
        raise NotRecorded("no device is recorded; on a machine with a GPU run make record")
    return found


def circumstances() -> Html:
    """One column for each recorded device: chip, driver, versions; over its sessions, clock and power under load."""
    of = [sessions_of(device) for device in known_devices()]
    rows: Mapping[str, Callable[[Environment], Cell]] = {
        "compute capability": lambda c: c.compute_capability,
        "multiprocessors": lambda c: c.multiprocessors,
        "memory": lambda c: format_value(c.memory_bytes, "bytes"),
        "L2 cache": lambda c: format_value(c.l2_bytes, "bytes"),
        "driver": lambda c: c.driver,
        "CUDA": lambda c: c.cuda,
        **{name: _version(name) for name in ("python", "torch", "triton", "kernels", "liger-kernel")},
        "last recorded": lambda c: c.date[:10],
        "at commit": lambda c: c.commit,
    }
    loads = {
        "SM clock under load": ("sm_mhz", "MHz"),
        "power under load": ("power_w", "W"),
        "temperature": ("temperature_c", "°C"),
    }
    body: list[list[Cell]] = [[name, *(cell(all_of[-1]) for all_of in of)] for name, cell in rows.items()]
    body += [[name, *(_over_sessions(all_of, *which) for all_of in of)] for name, which in loads.items()]
    return table("Recorded devices", ["", *(all_of[-1].device for all_of in of)], body)


def _version(name: str) -> Callable[[Environment], Cell]:
    return lambda c: c.versions.get(name)


def _over_sessions(sessions: Sequence[Environment], clock: str, unit: str) -> Cell:
    """From the lowest to the highest reading: `1290 to 1980 MHz`."""
    read = [one.clocks[clock] for one in sessions if clock in one.clocks]
    bounds = [f"{bound:.0f}" for bound in (min(read), max(read))] if read else []
    return f"{' to '.join(dict.fromkeys(bounds))} {unit}" if bounds else None


def rate(ceiling: Ceiling) -> tuple[float, str]:
    """What a ceiling limits: FLOP/s of a product, bytes/s of a copy."""
    amount, unit = (ceiling.flops, "flop/s") if ceiling.flops else (ceiling.bytes, "bytes/s")
    return amount / ceiling.timing.median_us * 1e6, unit


def ceilings() -> Html:
    """Every ceiling measured on the shown device: the median over its sessions and the range."""
    device = shown_device()
    sessions: dict[str, dict[str, tuple[float, str]]] = {}
    for one in load_recordings(device):
        for ceiling in one.ceilings:
            sessions.setdefault(ceiling.what, {})[one.session] = rate(ceiling)
    large = f"matmul {LARGE}x{LARGE}x{LARGE}"
    order = sorted(sessions, key=lambda what: (what != "copy", what != large, _sizes(what)))
    rows = [[what, *_range(list(sessions[what].values()))] for what in order]
    head = ["ceiling", "median", "lowest session", "highest session", "sessions"]
    return table(f"Ceilings of {sessions_of(device)[-1].device}", head, rows)


def _sizes(what: str) -> tuple[int, ...]:
    return tuple(int(size) for size in what.rpartition(" ")[2].split("x") if size.isdigit())


def _range(rates: list[tuple[float, str]]) -> list[Cell]:
    values, unit = [value for value, _ in rates], rates[0][1]
    bounds = (statistics.median(values), min(values), max(values))
    return [*(format_value(value, unit) for value in bounds), len(values)]


def roofline() -> Html:
    """Steps of the book below the shown device's roof."""
    return roofline(STEPS, shown_device(), "Steps of this book below their roof")


def gpu_and_cpu() -> Html:
    """A step that waits for the CPU and one that does not."""
    shown = {"a linear layer": STEPS["linear"], "an MLP": STEPS["MLP"]}
    return cpu_gpu_bars(shown, shown_device(), "Who waits for whom")


def _timed(name: str, device: str) -> tuple[Recording, Timings]:
    found = load_recording(f"devices/{name}", device)
    timings = found.points[0].timings
    if timings is None:
        raise NotRecorded(f"devices/{name} was not timed; make record CHAPTER=devices")
    return found, timings


def copy_in_graph_over_stream(device: str) -> Figure:
    """How many times longer the copy takes as a graph node, paired."""
    found, in_graph = _timed("copy_in_graph", device)
    return paired_samples_ratio(
        in_graph.warm, _timed("copy", device)[1].warm, f"{found.circumstances.device}, devices/copy_in_graph"
    )


def capture_us(device: str) -> Figure:
    """Time spent measuring everything that is recorded, a group counted once."""
    groups = {(one.chapter, one.session, one.capture_s) for one in load_recordings(device)}
    return Figure(sum(seconds for _, _, seconds in groups) * 1e6, "us", origin=f"{device}, all recordings")


FIGURES: Mapping[str, Callable[[str], Figure]] = {
    "copy_in_graph_over_stream": copy_in_graph_over_stream,
    "capture_us": capture_us,
}

CLAIMS = (
    Claim(
        id="D1",
        sentence="A large device-to-device copy takes longer as a node of a CUDA graph than in the stream.",
        scope="timing",
        measure=copy_in_graph_over_stream,
        holds=lambda measured: isinstance(measured.value, float) and measured.value > 1.1,
    ),
)
