"""Times and rates out of what probes returned: samples in microseconds, below the keys of nested data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import difference_of_pairs, ratio_of_pairs
from snippets.lab.finding.part import timing_of_samples
from snippets.lab.recording.schema import NotTimed, Timing

Keys = Sequence[str]


def entry(device: Device, experiment: str, *keys: str) -> Any:
    """What a probe returned below these keys. Raises `NotTimed` with its reason where a variant did not run."""
    found: Any = device[experiment].data
    for key in keys:
        for reason in ("stopped", "missing", "left_out"):
            if reason in found:
                raise NotTimed(f"{experiment} on {device.name}: {found[reason]}")
        if key not in found:
            raise NotTimed(f"{experiment} on {device.name} has no {key}; {_cure(experiment)}")
        found = found[key]
    return found


def _cure(experiment: str) -> str:
    return f"make record CHAPTER={experiment.partition('/')[0]} FRESH=1"


def timing_of(device: Device, experiment: str, *keys: str) -> Timing:
    """The samples below these keys as a timing."""
    return timing_of_samples(entry(device, experiment, *keys))


def time(device: Device, experiment: str, *keys: str) -> Figure:
    """The time below these keys: median and quartiles of the probe's samples."""
    return Figure.from_timing(timing_of(device, experiment, *keys), f"{device[experiment].origin}, {', '.join(keys)}")


def ratio(device: Device, experiment: str, upper: Keys, lower: Keys) -> Figure:
    """The ratio of two times of one probe, in pairs of samples: they were timed interleaved."""
    return ratio_of_pairs(*_pair(device, experiment, upper, lower), _origin(device, experiment, upper, "over", lower))


def difference(device: Device, experiment: str, upper: Keys, lower: Keys) -> Figure:
    """The difference of two times of one probe, in pairs of samples: they were timed interleaved."""
    pair = _pair(device, experiment, upper, lower)
    return difference_of_pairs(*pair, _origin(device, experiment, upper, "less", lower))


def _pair(device: Device, experiment: str, upper: Keys, lower: Keys) -> tuple[Timing, Timing]:
    return timing_of(device, experiment, *upper), timing_of(device, experiment, *lower)


def _origin(device: Device, experiment: str, upper: Keys, word: str, lower: Keys) -> str:
    return f"{device[experiment].origin}, {', '.join(upper)} {word} {', '.join(lower)}"


def rate(amount: float, time: Figure, unit: str) -> Figure:
    """An amount divided by a time, with the time's spread."""
    fast_us, slow_us = time.bounds
    return Figure(1e6 * amount / time.number, unit, (1e6 * amount / slow_us, 1e6 * amount / fast_us), time.origin)
