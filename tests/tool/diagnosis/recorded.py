"""What all rules find in our recordings and in the public traces, each diagnosed once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.queries import busy_us
from tests.tool.recorded import RECORDINGS, recorded
from tests.tool.trace.public import PUBLIC

DEVICES: Sequence[str] = sorted(folder.name for folder in RECORDINGS.iterdir() if folder.is_dir())


class Found(NamedTuple):
    """A diagnosis in brief."""

    step_us: float
    gpu_us: float
    """GPU work of a step."""
    savings: dict[str, float]
    """Rule -> its largest saving per step."""
    unknown: dict[str, str]
    """Rule that cannot tell -> the option that records what it lacks."""


@cache
def found_in(device: str, experiment: str) -> Found:
    """What is found in a recording; `device` is `public` for a public trace."""
    is_public = device == "public"
    diagnosis = diagnose(read_trace(PUBLIC / f"{experiment}.json.gz") if is_public else recorded(experiment, device))
    facts = diagnosis.facts
    savings: dict[str, float] = {}
    for each in diagnosis.findings:
        savings[each.rule.name] = max(each.saving_us_per_step, savings.get(each.rule.name, 0.0))
    gpu_us = sum(busy_us(step.activities) for step in facts.steps) / len(facts.steps)
    unknown = {each.rule.name: each.option for each in diagnosis.cannot_tell}
    return Found(facts.step_us, gpu_us, savings, unknown)
