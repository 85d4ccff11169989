"""Every claim can fail: altered recordings flip its verdict. mutations.py alters them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from snippets.lab.finding.band import Band, at_least, between, equals
from snippets.lab.finding.book import all_claims, judge
from snippets.lab.finding.claim import Claim, Scope, Status
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import Measure
from tests.lab import samples
from tests.mutations import trace_changes
from tests.mutations.mutations import CalmDevice, Mutant, directed, flips, generic, reads, status, swapped


def anywhere(claim: Claim) -> Claim:
    """The claim as a GPU would judge it that its source's value is for."""
    return replace(claim, source=claim.source and replace(claim.source, only_there=False))


CLAIMS = {claim_id: (chapter, anywhere(claim)) for claim_id, (chapter, claim) in all_claims().items()}
IMMUNE: dict[str, str] = {}
"""Claim that no mutant flips -> why it cannot fail."""
DOUBTED = {
    **dict.fromkeys(("P3", "P25", "O-M6"), "both recordings have to change: tests/chapters/matmul_add/test_claims.py"),
    "O-P18": "the slower configuration is slower by definition, and a mutant alters the samples of both",
    "F106": "its spread begins at 1, which holds",
    "DE75": "its ceiling exceeds the unprofiled iteration, so a larger saving contradicts the trace first",
    "TS23": "to search all mutants for one that decides takes minutes",
}
"""Claim for which it is enough that a mutant makes it inconclusive -> why."""
SEVERAL_CHANGES: Mapping[str, Mutant] = {
    "FC50": Mutant("mlp/eager", "each Linear reads the one before it", "structure", trace_changes.as_a_stack),
    "FC52": Mutant("mlp/eager", "every operator has GPU work", "structure", trace_changes.without_idle_ops),
    "M2": Mutant("mlp/eager", "the products have the names of an A100's", "structure", trace_changes.as_on_a100),
}
"""Claim that flips only if several things change at once -> these."""
FEW = 4
"""Of so many recordings, to exchange two is the quickest change."""


def candidates(claim: Claim, chapter: str) -> Iterator[Mutant]:
    """The mutants that alter what claims of this scope are about, the quickest to try first."""
    if claim.id in SEVERAL_CHANGES:
        yield SEVERAL_CHANGES[claim.id]
    experiments = reads(claim, chapter)
    if len(experiments) <= FEW:
        yield from (mutant for mutant in swapped(experiments) if mutant.fits(claim))
    yield from (mutant for mutant in generic(claim, experiments) if mutant.fits(claim))
    yield from (mutant for mutant in directed(claim, experiments) if mutant.fits(claim))


def flipping(claim: Claim, chapter: str, to: Sequence[Status] = ("holds", "differs")) -> Mutant | None:
    """The first mutant that flips a claim."""
    before = status(claim, chapter, CalmDevice())
    return next((mutant for mutant in candidates(claim, chapter) if flips(claim, chapter, mutant, before, to)), None)


@pytest.mark.parametrize("chapter", sorted({chapter for chapter, _ in CLAIMS.values()}))
def test_each_measured_claim_can_fail(chapter: str) -> None:
    """No altered recording flips those that are listed."""
    own = [claim for of, claim in CLAIMS.values() if of == chapter]
    measured = [claim for claim in own if judge(claim, chapter, CalmDevice()).status != "not measured"]
    to: dict[str, tuple[Status, ...]] = dict.fromkeys(DOUBTED, ("holds", "differs", "inconclusive"))
    found = {claim.id: flipping(claim, chapter, to.get(claim.id, ("holds", "differs"))) for claim in measured}
    stuck = {claim.id: claim.sentence for claim in measured if found[claim.id] is None}
    assert stuck == {claim.id: claim.sentence for claim in measured if claim.id in IMMUNE}


@pytest.mark.parametrize("claim_id", SEVERAL_CHANGES)
def test_a_composed_mutant_is_needed_and_flips(claim_id: str) -> None:
    chapter, claim = CLAIMS[claim_id]
    before = status(claim, chapter, CalmDevice())
    assert flips(claim, chapter, SEVERAL_CHANGES[claim_id], before)
    simple = (mutant for mutant in candidates(claim, chapter) if mutant is not SEVERAL_CHANGES[claim_id])
    assert not any(flips(claim, chapter, mutant, before) for mutant in simple), "one change is enough"


def test_tables_name_claims() -> None:
    assert {*IMMUNE, *DOUBTED, *SEVERAL_CHANGES} <= CLAIMS.keys()
    assert [claim_id for claim_id, why in IMMUNE.items() if len(why) <= 20] == []


# -- claims made for the purpose


def kernels(device: Device) -> Figure:
    return device["linear/eager"].per_step(lambda step: len(step.kernels))


def time(device: Device) -> Figure:
    return device["linear/eager"].time()


def nothing(device: Device) -> Figure:
    return Figure(1)


def unheeded(device: Device) -> Figure:
    return Figure(1 + 0 * device["linear/eager"].time().number + 0 * len(device["linear/compiled"].step.kernels))


@pytest.mark.parametrize(
    ("measure", "band", "scope", "read", "can_fail"),
    [
        (kernels, equals(1), "every-gpu", {"linear/eager": True}, True),
        (kernels, equals(1), "timing", {"linear/eager": True}, False),
        (kernels, at_least(0), "every-gpu", {"linear/eager": True}, False),
        (time, between(1, 9), "timing", {"linear/eager": False}, True),
        (time, between(1, 9), "every-gpu", {"linear/eager": False}, False),
        (time, at_least(0.001), "timing", {"linear/eager": False}, False),
        (nothing, equals(1), "every-gpu", {}, False),
        (unheeded, equals(1), "timing", {"linear/eager": False, "linear/compiled": True}, False),
    ],
)
def test_claims_that_can_and_cannot_fail(
    measure: Measure, band: Band, scope: Scope, read: dict[str, bool], can_fail: bool
) -> None:
    made = samples.claim(measure=measure, band=band, scope=scope)
    assert judge(made, "linear", CalmDevice()).status == "holds"
    assert reads(made, "linear") == read
    assert (flipping(made, "linear") is not None) is can_fail
