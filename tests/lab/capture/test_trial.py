"""A trial runs each experiment once, names what fails and goes on in fresh processes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from snippets.lab.capture.supervisor import Event, Group
from snippets.lab.capture.trial import STARTS_S, trial_batches, try_experiments
from snippets.lab.experiment import TRIAL, Experiment, find

PACKAGE = "tests.lab.broken"
RANKS = {one.name: one for one in find("ranks", PACKAGE)}
FIRST, WRONG, PROBE = (RANKS[name] for name in ("first", "wrong", "probe"))


def test_what_fails_is_named_and_the_rest_goes_on() -> None:
    started: list[list[tuple[str, int]]] = []
    seconds = iter(range(100))

    def run(batch: list[Group], folder: Path, number: int) -> Iterator[Event]:
        assert number == TRIAL
        assert folder.is_dir()
        started.append([(one.name, one.time_limit_s) for (one,) in batch])
        for (one,) in batch:
            yield {"experiment": one.id, "doing": "checking"}
            if one.name == "wrong":
                yield {"experiment": one.id, "failed": "WrongAnswer: off (rank 1)"}
                return
            yield {"finished": [one.id]}

    tried = list(try_experiments([FIRST, WRONG, RANKS["second"]], "cpu", 20, PACKAGE, run, lambda: next(seconds)))
    assert [(each.experiment.name, each.failed, each.seconds) for each in tried] == [
        ("first", "", 1),
        ("wrong", "WrongAnswer: off (rank 1)", 1),
        ("second", "", 1),
    ]
    assert started == [
        [("first", 20 + STARTS_S), ("wrong", 20), ("second", 20)],
        [("second", 20 + STARTS_S)],
    ]


def test_probes_and_loops_share_processes() -> None:
    cold = replace(FIRST, name="cold", first_steps=0)
    on_four = replace(WRONG, name="four", gpus=4)
    plain = replace(PROBE, environment={})
    assert trial_batches([FIRST, cold, plain, PROBE, on_four]) == [[FIRST, plain], [cold], [on_four], [PROBE]]


@pytest.mark.slow
def test_ranks_are_tried_on_a_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A loop, one that dies, and a probe with its trial's parameters."""
    monkeypatch.setattr(tempfile, "tempdir", tempfile.mkdtemp(prefix="pp-", dir="/tmp"))
    chosen: list[Experiment] = [FIRST, RANKS["dies"], PROBE]
    tried = {each.experiment.name: each.failed for each in try_experiments(chosen, "cpu", 60, PACKAGE)}
    assert tried == {"first": "", "dies": "killed by SIGKILL; last output: the last words (rank 1)", "probe": ""}
