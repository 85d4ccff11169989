"""The conditions of a chapter's measurements: machine, settings, throttling, other programs on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from kinetoscope.html import Html, table
from snippets.lab.recording.schema import Environment, Recording, timings_of


def _cores(place: Environment) -> str:
    return f"{place.cpu_affinity} of {place.cpu_cores}" if place.cpu_cores else ""


def _watts(value: float) -> str:
    return f"{value:.0f} W" if value else ""


def _clocks(prefix: str) -> Callable[[Environment], str]:
    """`1980 MHz, memory 2619 MHz`; empty if a recording has neither."""

    def text(place: Environment) -> str:
        named = {"": f"{prefix}_sm_mhz", "memory ": f"{prefix}_memory_mhz"}
        return ", ".join(f"{name}{place.clocks[key]:.0f} MHz" for name, key in named.items() if key in place.clocks)

    return text


FIELDS: Mapping[str, Callable[[Environment], str]] = {
    "CPU": lambda place: place.cpu,
    "cores that the process may use": _cores,
    "CPU frequency governor": lambda place: place.cpu_governor,
    "virtual machine": lambda place: place.virtualized,
    "several GPUs": lambda place: f"{place.gpus} GPUs, {place.link}" if place.link else "",
    "NCCL": lambda place: place.versions.get("nccl", ""),
    "GPU power limit": lambda place: _watts(place.power_limit_w),
    "maximum clock": _clocks("max"),
    "application clock": _clocks("application"),
    "MIG": lambda place: place.mig,
    "ECC": lambda place: place.ecc,
    "persistence mode": lambda place: place.persistence,
}
"""Row -> its text; empty if the recording does not have it."""


def machine_table(recordings: Sequence[Recording]) -> Html:
    """A table of these recordings' data about their machines; empty without data."""
    newest_first = sorted((each.environment for each in recordings), key=lambda place: place.date, reverse=True)
    rows = {name: _distinct(map(text, newest_first)) for name, text in FIELDS.items()}
    asked: dict[str, list[tuple[str, ...]]] = {"before": [], "during": [], "after": []}
    for recording in recordings:
        for when, reasons in recording.environment.throttle.items():
            asked[when].append(reasons)
        asked["during"] += [timing.throttle for _, timing in timings_of(recording) if timing.clock_mhz]
    for when, answers in asked.items():
        rows[f"GPU clock lowered {when} timing"] = _reasons(answers)
    rows["other programs on the GPU"] = _distinct(name for place in newest_first for name in place.other_processes)
    said = [[name, text] for name, text in rows.items() if text]
    caption = "The machine, its settings, and what lowered the GPU's clock"
    return table(caption, ["setting", "recorded value"], said, text_columns=2) if said else Html("")


def _distinct(texts: Iterable[str]) -> str:
    """The recordings' values, the newest first, each once: they may come from several machines."""
    return "; ".join(dict.fromkeys(filter(None, texts)))


def _reasons(asked: Sequence[tuple[str, ...]]) -> str:
    """Every reason; `no` if all answers are empty, and an empty text without any answer."""
    return ", ".join(sorted({reason for reasons in asked for reason in reasons})) or ("no" if asked else "")
