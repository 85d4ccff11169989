"""What the rules about time find in all our recordings: what is in them, and nothing else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from snippets.lab.diagnosis.diagnose import diagnose
from snippets.lab.diagnosis.rules import RULES
from snippets.lab.recording.device import PROJECT
from snippets.lab.trace import kineto
from snippets.lab.trace.queries import busy_us

ABOUT_TIME = (
    "allocator-in-step",
    "device-to-host-copies",
    "exposed-communication",
    "first-step",
    "garbage-collection",
    "gpu-slowed",
    "graph-breaks",
    "launch-bound",
    "loader-stall",
    "pageable-copies",
    "profiler-overhead",
    "recompiles",
    "slow-cpu-code",
    "stragglers",
    "sync-in-step",
)
PLANTED = {"item": "sync-in-step", "unscheduled": "first-step"}
"""Recordings whose name begins so -> the fault that they show."""


@pytest.mark.parametrize("path", sorted(PROJECT.glob("docs/recordings/*/*/item_4096.trace.json.gz")), ids=str)
def test_the_ceiling_of_a_recorded_wait(path: Path) -> None:
    """Within a tenth of what the step without `.item()` gains if its kernels, recorded apart, follow without gaps."""
    faulty, mended = kineto.read_trace(path), kineto.read_trace(path.with_name("eager_4096.trace.json.gz"))
    result = diagnose(faulty, [rule for rule in RULES if rule.name == "sync-in-step"])
    gained_us = result.facts.step_us - median(busy_us(step.activities) for step in mended.steps)
    assert [finding.ceiling_us_per_step for finding in result.findings] == [pytest.approx(gained_us, rel=0.1)]


def test_findings_in_our_recordings() -> None:
    rules = [rule for rule in RULES if rule.name in ABOUT_TIME]
    assert len(rules) == len(ABOUT_TIME)
    seen: Counter[str] = Counter()
    for path in sorted(PROJECT.glob("docs/recordings/*/*/*.trace.json.gz")):
        result = diagnose(kineto.read_trace(path), rules)
        planted = {fault for name, fault in PLANTED.items() if path.name.startswith(name)}
        names = {finding.rule.name for finding in result.findings}
        # Many recordings are of small inputs, and under the profiler the GPU waits for launches in most of them.
        assert names - {"launch-bound"} == planted, path
        if "launch-bound" in names:
            assert result.facts.waits.gpu_idle_us >= 0.15 * result.facts.step_us
        seen.update(names)
    assert all(seen[fault] for fault in PLANTED.values())
