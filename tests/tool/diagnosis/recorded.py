"""What all rules find in our recordings and in the public traces, each diagnosed once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from kinetoscope.diagnosis.diagnose import Diagnosis, diagnose
from kinetoscope.ranks.digest import digest
from kinetoscope.ranks.joined import is_merged, read_ranks
from kinetoscope.ranks.ranks import ranks_report
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.queries import busy_us
from tests.tool.recorded import RECORDINGS, recorded
from tests.tool.trace.public import PUBLIC

DEVICES: Sequence[str] = sorted(folder.name for folder in RECORDINGS.iterdir() if folder.is_dir())
STRAGGLERS = "stragglers"


class Found(NamedTuple):
    """A diagnosis in brief."""

    step_us: float
    gpu_us: float
    """GPU work of a step; of several ranks, of the busiest rank, without its waiting for others."""
    savings: dict[str, float]
    """Rule -> its largest saving per step, on any rank."""
    unknown: dict[str, str]
    """Rule that cannot tell -> the option that records what it lacks."""


@cache
def found_in(device: str, experiment: str) -> Found:
    """What is found in a recording; `device` is `public` for a public trace.

    In a recording of several ranks, what a report finds: each rank's findings, and who is late.
    """
    if device == "public":
        return _found(diagnose(read_trace(PUBLIC / f"{experiment}.json.gz")))
    path = RECORDINGS / device / f"{experiment}.trace.json.gz"
    if not is_merged(path):
        return _found(diagnose(recorded(experiment, device)))
    ranks = list(read_ranks(path))
    each = [_found(diagnose(rank)) for rank in ranks]
    report = ranks_report(map(digest, ranks))
    savings = {STRAGGLERS: report.stragglers[0].saving_us} if report.stragglers else {}
    for found in each:
        savings |= {rule: max(us, savings.get(rule, 0.0)) for rule, us in found.savings.items()}
    gpu_us = max((part.own_us + part.transfer_us for part in report.parts), default=0.0)
    unknown = {rule: option for found in each for rule, option in found.unknown.items()}
    return Found(max(found.step_us for found in each), gpu_us, savings, unknown)


def _found(diagnosis: Diagnosis) -> Found:
    facts = diagnosis.facts
    savings: dict[str, float] = {}
    for each in diagnosis.findings:
        savings[each.rule.name] = max(each.saving_us_per_step, savings.get(each.rule.name, 0.0))
    gpu_us = sum(busy_us(step.activities) for step in facts.steps) / len(facts.steps)
    unknown = {each.rule.name: each.option for each in diagnosis.cannot_tell}
    return Found(facts.step_us, gpu_us, savings, unknown)
