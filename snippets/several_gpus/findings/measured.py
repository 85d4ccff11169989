"""Times, rates and bytes of what is split over GPUs: from the data of probes, and from the collectives of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kinetoscope.trace.communication import collective_kind, collectives
from kinetoscope.trace.events import GpuActivity, Step
from snippets.lab.finding import Device, Figure, NotTimed, Run, ratio_of_pairs, timing_of_samples
from snippets.lab.recording.schema import Timing

BF16_BYTES = 2
ITEM_BYTES = {"bfloat16": 2, "float": 4}
"""Bytes of a number, by the name that a trace has for its type."""
Keys = Sequence[str]


def entry(device: Device, experiment: str, *keys: str) -> Any:
    """What a probe returned below these keys. Raises `NotTimed` with its reason where a variant did not run."""
    found: Any = device[experiment].data
    for key in keys:
        if "stopped" in found:
            raise NotTimed(f"{experiment} on {device.name}: {found['stopped']}")
        if key not in found:
            raise NotTimed(f"{experiment} on {device.name} has no {key}; make record CHAPTER=several_gpus FRESH=1")
        found = found[key]
    return found


def timing(device: Device, experiment: str, *keys: str) -> Timing:
    """The samples below these keys as a timing."""
    return timing_of_samples(entry(device, experiment, *keys))


def time(device: Device, experiment: str, *keys: str) -> Figure:
    """The time below these keys: median and quartiles of the slowest rank's samples."""
    return Figure.from_timing(timing(device, experiment, *keys), f"{device[experiment].origin}, {', '.join(keys)}")


def ratio(device: Device, experiment: str, upper: Keys, lower: Keys) -> Figure:
    """The ratio of two times of one probe, in pairs of samples: they were timed in turns."""
    above, below = (timing(device, experiment, *keys) for keys in (upper, lower))
    return ratio_of_pairs(above, below, f"{device[experiment].origin}, {', '.join(upper)} over {', '.join(lower)}")


def rate(amount: float, us: Figure, unit: str) -> Figure:
    """An amount divided by a time, with the time's spread."""
    fast_us, slow_us = us.bounds
    return Figure(1e6 * amount / us.number, unit, (1e6 * amount / slow_us, 1e6 * amount / fast_us), us.origin)


def changed(figure: Figure, factor: float = 1.0, plus: float = 0.0, unit: str | None = None) -> Figure:
    """A figure times `factor`, plus a number, with its spread."""
    low, high = sorted(factor * bound + plus for bound in figure.bounds)
    return Figure(factor * figure.number + plus, figure.unit if unit is None else unit, (low, high), figure.origin)


def world(run: Run) -> int:
    """The number of GPUs of an experiment."""
    return run.environment.gpus


def parameter(run: Run, name: str) -> int:
    """A parameter of a run's only point."""
    return int(run.point.parameters[name])


def sent_bytes(step: Step) -> float:
    """What a rank sends in its collectives of a step, if each sends as little as it can.

    Raises `NotTimed` if the trace does not tell the size of a collective.
    """
    return sum(map(_sent_bytes, collectives(step)))


def _sent_bytes(kernel: GpuActivity) -> float:
    kind, told = collective_kind(kernel), kernel.collective
    if told is None or not told.elements_in or not told.elements_out or told.type.lower() not in ITEM_BYTES:
        raise NotTimed(f"the trace does not tell the size of {kernel.name}")
    whole = max(told.elements_in, told.elements_out) * ITEM_BYTES[told.type.lower()]
    share = 1 - 1 / (told.group_size or 1)
    return whole * {"allreduce": 2 * share, "allgather": share, "reducescatter": share, "send": 1.0}.get(kind, 0.0)
