"""The ranks of an experiment on several GPUs: a run on each rank, and their comparison as kinetoscope reports it."""

from __future__ import annotations

from dataclasses import replace

from kinetoscope.ranks.digest import digest
from kinetoscope.ranks.ranks import RanksReport, ranks_report
from snippets.lab.cache import once
from snippets.lab.finding.device import Device, Run


def on_ranks(run: Run) -> tuple[Run, ...]:
    """The run of each rank: the runs share their times, but each has its own `trace`, `steps` and `per_step`."""
    return tuple(replace(run, rank=rank) for rank in range(run.environment.gpus))


def compare_ranks(run: Run) -> RanksReport:
    """Which rank waits for which, and the parts of each rank's step, as `kinetoscope report` computes them.

    It reads whole traces: of a part of a device, those of the whole. Raises what `Run.trace` raises.
    """
    whole = run.whole
    assert whole.recording is not None  # a device that notes what is read has noted it
    return _compared(whole.device.unnoted, whole.id)


@once
def _compared(device: Device, experiment: str) -> RanksReport:
    return ranks_report(digest(each.trace) for each in on_ranks(device[experiment]))
