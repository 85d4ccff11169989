"""Times and rates out of what the chapter's probes returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from snippets.lab.finding import Device, Figure, NotTimed, ratio_of_pairs, timing_of_samples
from snippets.lab.recording.schema import Timing

Keys = Sequence[str]


def entry(device: Device, experiment: str, *keys: str) -> Any:
    """What a probe returned below these keys. Raises `NotTimed` with its reason where a variant did not run."""
    found: Any = device[experiment].data
    for key in keys:
        for reason in ("stopped", "missing", "left_out"):
            if reason in found:
                raise NotTimed(f"{experiment} on {device.name}: {found[reason]}")
        if key not in found:
            raise NotTimed(f"{experiment} on {device.name} has no {key}; make record CHAPTER=decoder FRESH=1")
        found = found[key]
    return found


def timing(device: Device, experiment: str, *keys: str) -> Timing:
    """The samples below these keys as a timing."""
    return timing_of_samples(entry(device, experiment, *keys))


def time(device: Device, experiment: str, *keys: str) -> Figure:
    """The time below these keys: median and quartiles of the probe's samples."""
    return Figure.from_timing(timing(device, experiment, *keys), f"{device[experiment].origin}, {', '.join(keys)}")


def ratio(device: Device, experiment: str, upper: Keys, lower: Keys) -> Figure:
    """The ratio of two times of one probe, in pairs of samples: they were timed in turns."""
    above, below = (timing(device, experiment, *keys) for keys in (upper, lower))
    return ratio_of_pairs(above, below, f"{device[experiment].origin}, {', '.join(upper)} over {', '.join(lower)}")


def rate(amount: int, time: Figure, unit: str) -> Figure:
    """An amount divided by a time, with the time's spread."""
    fast_us, slow_us = time.bounds
    return Figure(1e6 * amount / time.number, unit, (1e6 * amount / slow_us, 1e6 * amount / fast_us), time.origin)
