"""Eight thousand damaged traces: no traceback, no hang, no memory above a bound, no wrong sum.

Two processes read them (fuzzing.py says how, mutants.py what). One mutant again, in a debugger:
`read_mutant(make_mutant(NUMBER, bases()).content)`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kinetoscope.trace.kineto import read_trace
from snippets.lab.recording.device import PROJECT
from tests.processes.fuzzing import HANG_S, Total, adds_up, is_same, read_mutant, simple_sum
from tests.processes.mutants import EVENT_MUTATIONS, FILE_MUTATIONS, TEXT_MUTATIONS, bases, make_mutant

MUTANTS, PROCESSES = 8_000, 2
PEAK_BYTES = 150_000_000
"""Of each process, with all that it imports; the largest mutants have 1 MB. Measured: 30 MB."""
TIMEOUT_S = 200


def start(first: int, count: int, current: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.processes.fuzzing", str(first), str(count), str(current)]
    return subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_mutants(tmp_path: Path) -> None:
    share = MUTANTS // PROCESSES
    running = [start(index * share, share, tmp_path / str(index)) for index in range(PROCESSES)]
    reports = []
    for index, process in enumerate(running):
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, f"mutant {(tmp_path / str(index)).read_text()} ended its process: {err[-3000:]}"
        reports.append(json.loads(out))
    faults = [fault for report in reports for fault in report["faults"]]
    assert faults == []
    results = sum((Counter(report["results"]) for report in reports), Counter[str]())
    assert results.total() == MUTANTS
    assert min(results[kind] for kind in ("refused", "read", "summed")) > MUTANTS // 10
    assert max(report["slowest"][0] for report in reports) < HANG_S
    assert max(report["peak_bytes"] for report in reports) < PEAK_BYTES


def test_a_mutant_is_made_from_its_number_alone() -> None:
    sound = bases()
    before = json.dumps(sound)
    mutants = [make_mutant(number, sound) for number in range(300)]
    assert mutants == [make_mutant(number, bases()) for number in range(300)]
    assert json.dumps(sound) == before
    assert len({mutant.content for mutant in mutants}) > 290
    made = {name for mutant in mutants for name in mutant.how}
    every = {mutate.__name__ for mutate in (*EVENT_MUTATIONS, *FILE_MUTATIONS, *TEXT_MUTATIONS)}
    assert every <= made


def test_sound_traces_are_summed() -> None:
    sums = []
    for sound in bases():
        content = json.dumps(sound).encode()
        assert read_mutant(content) == "summed"
        sums.append(simple_sum(content))
    assert sums[2:] == [
        Total(13, 4 * 5.125 + 3 * (5.125 + 2.5 + 1.25), 0),
        Total(4, 20.5, 0),
        Total(15, 90.0, 0),
        Total(2, 10.25, 0),
        Total(3, 13.25, 0),
    ]


def test_a_lost_activity_is_a_fault() -> None:
    content = json.dumps(bases()[2]).encode()
    trace, expected = read_trace(content), simple_sum(content)
    assert expected is not None
    lost = msgspec.structs.replace(trace, activities=trace.activities[1:])
    for check in (lambda: adds_up(lost), lambda: is_same(lost, expected)):
        with pytest.raises(AssertionError):
            check()
    with pytest.raises(AssertionError, match="expected"):
        is_same(trace, expected._replace(sum_us=expected.sum_us + 0.01))
    with pytest.raises(AssertionError, match="expected"):
        is_same(trace, expected._replace(without_start=1))


@pytest.mark.parametrize("first", [{"steps": ()}, {"uncounted": ()}, {"unattributed": ()}])
def test_an_activity_that_is_counted_nowhere_is_a_fault(first: dict[str, Any]) -> None:
    trace = read_trace(json.dumps(bases()[2]).encode())
    adds_up(trace)
    with pytest.raises(AssertionError):
        adds_up(msgspec.structs.replace(trace, **first))
