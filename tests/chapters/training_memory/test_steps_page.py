"""The first page on sample recordings: every fence runs, and each claim can fail."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from snippets.lab.finding import Claim, NotTimed
from snippets.lab.finding.book import judge
from snippets.training_memory.findings import casts, kinds, learning, optimizers, precision, steps
from tests.chapters.training_memory.samples import LAYERS, accuracy, precision_recordings, recordings
from tests.chapters.training_memory.steps import F32, SQUARES, WEIGHT, Phases, cast, phases
from tests.lab.sample_recordings import page_on_samples, sample_of, save_samples

CLAIMS = [
    one
    for part in (steps, optimizers, casts, precision, learning)
    for one in vars(part).values()
    if isinstance(one, Claim)
]
WIDE = [64, 128, 3072]


def status(tmp_path: Path, claim: Claim, **changed: Any) -> str:
    return judge(claim, "training_memory", save_samples(tmp_path, precision_recordings(**changed))).status


def without(work: Phases, phase: str, kernel: str, count: int) -> Phases:
    """The phases without the first kernels of one phase whose names contain a word."""
    kept, left = [], count
    for op in work[phase]:
        if kernel in op[0] and left:
            left -= 1
        else:
            kept.append(op)
    return {**work, phase: kept}


def eager(**changed: Any) -> dict[str, Phases]:
    return {"autocast": phases(layers=LAYERS, casts="eager", **changed)}


AUTOCAST = phases(layers=LAYERS, casts="eager")
COMPILED = phases(layers=LAYERS, casts="compiled")
EXACT = accuracy()["1e-3"]["fp32"]["evaluated"]
EXTRA = cast(WIDE, "float", 10.0, compiled=True)
SLOW_BACKWARD = phases("f32", 1000.0, LAYERS)
SLOW_BACKWARD["backward"] *= 2
CHANGES: dict[str, dict[str, Any]] = {
    "TM1": {"changed": {"autocast": without(AUTOCAST, "backward", "nvjet", 1)}},
    "TM2": {"changed": {"fp32": SLOW_BACKWARD}},
    "TM3": {"changed": eager(optimizer=(400.0,))},
    "TM4": {"changed": eager(optimizer=(5.0,) * 12)},
    "TM5": {"changed": eager(optimizer=(300.0,))},
    "TM6": {"iterations": {"optimizer_loop": 4_000.0}},
    "TM7": {"iterations": {"optimizer_foreach": 4_000.0}},
    "TM27": {"changed": {"optimizer_foreach": phases(layers=LAYERS, casts="eager", optimizer=[10.0] * 12)}},
    "TM8": {"changed": eager(weight_casts=4)},
    "TM9": {"changed": eager(input_casts=1)},
    "TM10": {"changed": {"autocast": without(AUTOCAST, "backward", "direct_copy", 3)}},
    "TM11": {"changed": {"autocast": {**AUTOCAST, "loss": [cast(WIDE, "float", 4000.0)]}}},
    "TM12": {"changed": {"autocast_compiled": {**COMPILED, "forward": [*COMPILED["forward"], EXTRA]}}},
    "TM13": {"changed": {"autocast_compiled": without(COMPILED, "forward", "triton_poi", 2)}},
    "TM14": {"changed": {"autocast_compiled": {**COMPILED, "loss": [cast(WIDE, "float", 90.0, compiled=True)]}}},
    "TM15": {"iterations": {"tf32": 20_000.0}},
    "TM16": {"iterations": {"tf32": 4_000.0}},
    "TM17": {"iterations": {"bfloat16": 4_000.0}},
    "TM18": {"iterations": {"autocast_compiled": 4_000.0}},
    "TM19": {"iterations": {"autocast_compiled": 4_000.0}},
    "TM20": {"changed": {"tf32": phases("f32", 250.0, LAYERS)}},
    "TM21": {"data": {**accuracy(), "1e-3": {**accuracy()["1e-3"], "autocast": accuracy()["1e-3"]["bfloat16"]}}},
    "TM22": {"data": {**accuracy(), "1e-3": {**accuracy()["1e-3"], "tf32": accuracy()["1e-3"]["bfloat16"]}}},
    "TM23": {"data": accuracy("1e-4", evaluated=EXACT)},
    "TM24": {"data": accuracy("1e-4", matrices=[0.1, 0.1, 0.1])},
    "TM25": {"data": accuracy("1e-3", norms_moved=0.01)},
    "TM28": {"clocks": {"bfloat16_compiled": 1900.0}},
    "TM29": {"data": accuracy("1e-3", evaluated=EXACT)},
}
"""Claim -> a change of the samples that refutes it."""


@pytest.mark.parametrize("claim", [each for each in CLAIMS if each.id in CHANGES], ids=lambda claim: claim.id)
def test_a_claim_holds_until_its_subject_changes(tmp_path: Path, claim: Claim) -> None:
    assert status(tmp_path / "as it is", claim) == "holds"
    assert status(tmp_path / "changed", claim, **CHANGES[claim.id]) == "differs"


def test_that_fusion_does_not_help_is_refuted_by_a_faster_step(tmp_path: Path) -> None:
    assert status(tmp_path / "as it is", precision.fusion_does_not_help) == "differs"
    slow = {"autocast_compiled": 4_000.0}
    assert status(tmp_path / "changed", precision.fusion_does_not_help, iterations=slow) == "holds"


def test_every_claim_is_tested() -> None:
    assert {claim.id for claim in CLAIMS} == {*CHANGES, "TM26"}


def test_the_cpu_launches_the_loop_op_by_op(tmp_path: Path) -> None:
    """12 operators of 5 us in the phase of foreach, 60 in that of the loop."""
    device = save_samples(tmp_path, precision_recordings())
    assert optimizers.foreach_over_loop_cpu(device).number == pytest.approx(12 * 5 / (60 * 5))


def test_what_the_kernels_of_an_iteration_fill(tmp_path: Path) -> None:
    device = save_samples(tmp_path, precision_recordings(iterations={"optimizer_loop": 5_000.0}))
    gpu_us = sum(us for ops in phases(layers=LAYERS, casts="eager", optimizer=[5.0] * 60).values() for *_, us in ops)
    assert optimizers.loop_busy(device).number == pytest.approx(100 * gpu_us / 5_000)


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


def test_casts_by_subject_and_type(tmp_path: Path) -> None:
    device = save_samples(tmp_path, precision_recordings())
    run = steps.run_of(device, "autocast")
    found = casts.casts(run, run.step)
    counted = {(cast.phase, cast.subject, cast.to) for cast in found}
    assert counted == {
        ("forward", "weights", "bf16"),
        ("forward", "activations", "bf16"),
        ("backward", "activations", "float32"),
        ("backward", "weights", "float32"),
    }
    assert casts.cast_kernels(device).value == LAYERS * (3 + 2 + 2 + 3)
    assert casts.cast_time(device).number == LAYERS * (3 * 5 + 2 * 15 + 2 * 15 + 3 * 5)
    assert casts.merged_kernels(device).value == LAYERS


def test_the_casts_of_the_loss_are_not_autocasts(tmp_path: Path) -> None:
    """80 us in each of two layers are autocast's, of 160 us; a cast of 30 us in both steps changes nothing."""
    device = save_samples(tmp_path / "as it is", precision_recordings())
    spent, gap = LAYERS * (3 * 5 + 2 * 15 + 2 * 15 + 3 * 5), casts_gap()
    assert casts.casts_of_the_gap(device).number == pytest.approx(100 * spent / gap)
    both = {
        "autocast": {**AUTOCAST, "loss": [*AUTOCAST["loss"], cast(WIDE, "float", 30.0)]},
        "bfloat16": {**phases(layers=LAYERS), "loss": [*AUTOCAST["loss"], cast(WIDE, "float", 30.0)]},
    }
    device = save_samples(tmp_path / "both", precision_recordings(changed=both))
    assert casts.casts_of_the_gap(device).number == pytest.approx(100 * spent / gap)


def casts_gap() -> float:
    """The extra time of a sample's step under autocast, compared with bf16 weights."""
    autocast, bfloat16 = (
        sum(us for ops in work.values() for *_, us in ops) for work in (AUTOCAST, phases(layers=LAYERS))
    )
    return autocast - bfloat16


def test_kernels_by_kind_and_phase(tmp_path: Path) -> None:
    device = save_samples(tmp_path, precision_recordings())
    found = kinds.kinds_by_phase(device)
    counted = {kind: {phase: len(work) for phase, work in phases.items()} for kind, phases in found.items()}
    assert counted[kinds.PRODUCTS] == {"forward": LAYERS * 3, "backward": LAYERS * 6}
    assert counted[kinds.CASTS] == {"forward": LAYERS * 5, "backward": LAYERS * 5}
    assert counted[kinds.OTHERS] == {"forward": LAYERS * 3, "loss": 2, "backward": LAYERS * 2, "optimizer": 1}
    shown = kinds.kinds_table(device)
    for text in ("6: 600 µs", "12: 1.20 ms", "10: 90.0 µs", "1: 90.0 µs"):
        assert text in shown


@pytest.mark.parametrize(
    ("operator", "kind"), [("aten::add_", "sums"), ("aten::gelu_backward", "GELU"), ("aten::fill_", "others")]
)
def test_what_a_kernel_is_for(tmp_path: Path, operator: str, kind: str) -> None:
    step = steps.run_of(save_samples(tmp_path, precision_recordings()), "autocast").step
    activity = next(each for each in steps.in_phase(step, "loss") if each.op is not None)
    assert activity.op is not None
    named = msgspec.structs.replace(activity, op=msgspec.structs.replace(activity.op, name=operator))
    assert kinds.kind_of(named) == kind


def test_every_fence_and_figure_of_the_page_shows_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_on_samples("training_memory", save_samples(tmp_path, recordings()), monkeypatch)
    assert not re.search("no recording of (?!<code>training_memory/(holds|recompute|allocators))", page)
    assert "5.00x" in page
