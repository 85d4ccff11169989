"""A run on each rank, and the ranks compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets.lab.finding.device import Device
from snippets.lab.finding.ranks import compare_ranks, on_ranks
from snippets.lab.finding.views import NoPart, noted, part
from tests.lab.rank_samples import merged_trace
from tests.lab.samples import environment, sample, save_all

RUN = "mlp/eager"


@pytest.fixture
def device(tmp_path: Path) -> Device:
    """Rank 1 works 60 us longer than rank 0."""
    return save_all(tmp_path, sample(environment=environment(gpus=2)), trace=merged_trace((40.0, 100.0)))


def work_us(run: object) -> list[float]:
    steps = run.steps  # type: ignore[attr-defined]
    return [step.kernels[0].duration_us for step in steps]


def test_a_run_on_each_rank(device: Device) -> None:
    first, second = on_ranks(device[RUN])
    assert (first.rank, second.rank, second.id) == (0, 1, RUN)
    assert (first.trace.rank, second.trace.rank) == (0, 1)
    assert (work_us(first), work_us(second)) == ([40.0] * 3, [100.0] * 3)
    assert device[RUN].steps == first.steps, "without a rank, rank 0"
    assert second.per_step(lambda step: step.kernels[1].duration_us, "us").value == 20.0
    assert (second.whole.rank, second.at(size=64).rank) == (1, 1)


def test_a_part_has_steps_of_each_rank(device: Device) -> None:
    _, second = on_ranks(part(device, 1)[RUN])
    assert (len(second.steps), work_us(second)) == (1, [100.0])
    with pytest.raises(NoPart):
        _ = second.trace


def test_ranks_compared(device: Device) -> None:
    report = compare_ranks(device[RUN])
    assert [(each.rank, each.own_us, each.waiting_us, each.transfer_us) for each in report.parts] == [
        (0, 40.0, 60.0, 20.0),
        (1, 100.0, 0.0, 20.0),
    ]
    assert report.straggler is not None
    assert (report.straggler.rank, report.straggler.saving_us) == (1, 60.0)


def test_what_is_compared_is_noted(device: Device) -> None:
    notes = noted(device)
    assert compare_ranks(notes[RUN]) == compare_ranks(device[RUN])
    assert list(notes.runs) == [RUN]
    assert compare_ranks(part(notes, 0)[RUN]) == compare_ranks(device[RUN]), "a part has no ranks of its own"


def test_one_gpu_is_one_rank(tmp_path: Path) -> None:
    run = save_all(tmp_path, sample())[RUN]
    assert on_ranks(run) == (run,)
