"""The first page on sample recordings: its claims and figures, and every fence runs."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from snippets.lab.finding import Claim, Device, NotTimed
from snippets.lab.finding.book import judge
from snippets.training_memory.findings import casts, kinds, learning, optimizers, precision, steps
from tests.chapters.training_memory.samples import LAYERS, precision_recordings, recordings
from tests.chapters.training_memory.steps import F32, SQUARES, WEIGHT, Phases, cast, phases
from tests.lab.sample_recordings import page_on_samples, sample_of, save_samples

CLAIMS = [
    one
    for part in (steps, optimizers, casts, precision, learning)
    for one in vars(part).values()
    if isinstance(one, Claim)
]
WIDE = [64, 128, 3072]


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return save_samples(tmp_path_factory.mktemp("samples"), precision_recordings())


AUTOCAST = phases(layers=LAYERS, casts="eager")


def test_the_claims_of_the_samples(device: Device) -> None:
    found = {claim.id: judge(claim, "training_memory", device).status for claim in CLAIMS}
    assert found == dict.fromkeys(found, "holds")


def test_the_cpu_launches_the_loop_op_by_op(device: Device) -> None:
    """12 operators of 5 us in the phase of foreach, 60 in that of the loop."""
    assert optimizers.FIGURES["foreach_over_loop_cpu"](device).number == pytest.approx(12 * 5 / (60 * 5))


def test_what_the_kernels_of_an_iteration_fill(tmp_path: Path) -> None:
    device = save_samples(tmp_path, precision_recordings(iterations={"optimizer_loop": 5_000.0}))
    gpu_us = sum(us for ops in phases(layers=LAYERS, casts="eager", optimizer=[5.0] * 60).values() for *_, us in ops)
    assert optimizers.FIGURES["loop_busy"](device).number == pytest.approx(100 * gpu_us / 5_000)


def test_the_rate_of_the_squares_counts_their_kernels_alone(tmp_path: Path) -> None:
    """Twelve bytes a number of a matrix: a gradient is read, a second moment read and written."""
    work = phases(layers=LAYERS, casts="eager", optimizer=[5.0] * 60)
    squares = [*[(SQUARES, [WEIGHT], [F32], 20.0)] * 2, (SQUARES, [[768]], [F32], 7.0)]
    changed: dict[str, Phases] = {"optimizer_loop": {**work, "optimizer": [*work["optimizer"], *squares]}}
    device = save_samples(tmp_path, [*precision_recordings(changed=changed), sample_of("devices/copy", 100.0)])
    moved = 12 * LAYERS * 3 * 768 * 3072
    copied = device["devices/copy"].ceiling("copy").rate
    assert optimizers.loop_squares_share(device).number == pytest.approx(100 * moved / 40e-6 / copied)
    with pytest.raises(NotTimed, match="addcmul_"):
        optimizers.foreach_squares_share(device)


def test_casts_by_subject_and_type(device: Device) -> None:
    run = steps.run_of(device, "autocast")
    found = casts.casts(run, run.step)
    counted = {(cast.phase, cast.subject, cast.to) for cast in found}
    assert counted == {
        ("forward", "weights", "bf16"),
        ("forward", "activations", "bf16"),
        ("backward", "activations", "float32"),
        ("backward", "weights", "float32"),
    }
    assert casts.FIGURES["cast_kernels"](device).value == LAYERS * (3 + 2 + 2 + 3)
    assert casts.cast_time(device).number == LAYERS * (3 * 5 + 2 * 15 + 2 * 15 + 3 * 5)
    assert casts.FIGURES["merged_kernels"](device).value == LAYERS


def test_the_casts_of_the_loss_are_not_autocasts(device: Device, tmp_path: Path) -> None:
    """80 us in each of two layers are autocast's, of 160 us; a cast of 30 us in both steps changes nothing."""
    spent, gap = LAYERS * (3 * 5 + 2 * 15 + 2 * 15 + 3 * 5), casts_gap()
    assert casts.casts_of_the_gap(device).number == pytest.approx(100 * spent / gap)
    both = {
        "autocast": {**AUTOCAST, "loss": [*AUTOCAST["loss"], cast(WIDE, "float", 30.0)]},
        "bfloat16": {**phases(layers=LAYERS), "loss": [*AUTOCAST["loss"], cast(WIDE, "float", 30.0)]},
    }
    with_cast = save_samples(tmp_path, precision_recordings(changed=both))
    assert casts.casts_of_the_gap(with_cast).number == pytest.approx(100 * spent / gap)


def casts_gap() -> float:
    """The extra time of a sample's step under autocast, compared with bf16 weights."""
    autocast, bfloat16 = (
        sum(us for ops in work.values() for *_, us in ops) for work in (AUTOCAST, phases(layers=LAYERS))
    )
    return autocast - bfloat16


def test_kernels_by_kind_and_phase(device: Device) -> None:
    found = kinds.kinds_by_phase(device)
    counted = {kind: {phase: len(work) for phase, work in phases.items()} for kind, phases in found.items()}
    assert counted[kinds.PRODUCTS] == {"forward": LAYERS * 3, "backward": LAYERS * 6}
    assert counted[kinds.CASTS] == {"forward": LAYERS * 5, "backward": LAYERS * 5}
    assert counted[kinds.OTHERS] == {"forward": LAYERS * 3, "loss": 2, "backward": LAYERS * 2, "optimizer": 1}
    shown = kinds.kinds_table(device)
    for text in ("6: 600 µs", "12: 1.20 ms", "10: 90.0 µs", "1: 90.0 µs"):
        assert text in shown


@pytest.mark.parametrize(
    ("operator", "kind"), [("aten::add_", "sums"), ("aten::gelu_backward", "GELU"), ("aten::fill_", "other kernels")]
)
def test_what_a_kernel_is_for(device: Device, operator: str, kind: str) -> None:
    step = steps.run_of(device, "autocast").step
    activity = next(each for each in steps.in_phase(step, "loss") if each.op is not None)
    assert activity.op is not None
    named = msgspec.structs.replace(activity, op=msgspec.structs.replace(activity.op, name=operator))
    assert kinds.kind_of(named) == kind


def test_every_fence_and_figure_of_the_page_shows_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_on_samples("training_memory", save_samples(tmp_path, recordings()), monkeypatch)
    assert not re.search("no recording of (?!<code>training_memory/(holds|recompute|allocators))", page)
    assert "5.00x" in page
