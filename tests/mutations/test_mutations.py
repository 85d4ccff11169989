"""Every claim can fail: altered recordings flip its verdict. mutations.py alters them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from snippets.lab.finding.book import all_claims, judge
from snippets.lab.finding.claim import Band, Claim, Scope, at_least, between, equals
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import Measure
from tests.chapters.altered import AlteredDevice
from tests.lab import samples
from tests.mutations import trace_changes
from tests.mutations.mutations import Mutant, directed, flips, generic, reads, status, swapped


def anywhere(claim: Claim) -> Claim:
    """The claim as a GPU would judge it that its source's value is for."""
    return replace(claim, source=claim.source and replace(claim.source, only_there=False))


CLAIMS = {claim_id: (chapter, anywhere(claim)) for claim_id, (chapter, claim) in all_claims().items()}
IMMUNE: dict[str, str] = {}
"""Claim that no mutant flips -> why it cannot fail."""
SEVERAL_CHANGES: Mapping[str, Mutant] = {
    "M2": Mutant("mlp/eager", "the products have the names of an A100's", "structure", trace_changes.as_on_a100),
}
"""Claim that flips only if several things change at once -> these."""
FEW = 4
"""Of so many recordings, to exchange two is the quickest change."""
VARIANTS = {
    r"eager": r"eager|naive|bare",
    r"[Cc]ompiled (?:form|forward|step|layer|function|call)": r"compiled|generated|sweep|tuned|lengths|new_",
    r"max-autotune": r"max_autotune|generated|chosen|bfloat16_|few_tokens",
    r"Liger": r"liger|new_shapes",
    r"[Oo]urs?": r"fused|kernelized|resources|chosen|steps|new_shapes|launches|enqueued|quack|few_tokens",
    r"QuACK": r"quack",
    r"cuDNN": r"cudnn|lengths",
    r"[Ff]lash": r"flash|lengths",
    r"[Ee]fficient": r"efficient|lengths",
    r"Flex(?:Attention)?": r"flex|lengths",
    r"[Nn]aive": r"naive|in_place|lengths",
}
"""A variant, as sentences name it -> the recordings that show it."""
UNREAD: dict[str, str] = {
    "K2": "compiled calls: which rows they add is a claim of its own, L7, and the names are in the measure",
    "O-P38": "Liger's forward is timed in the probe mlp/tuned, in turns with the compiled ones",
    **dict.fromkeys(
        ("RG31", "RG33", "RG34", "RG41", "RG63", "RG64"),
        "eager and the compiler's modes are timed in the probe regimes/modes_stack, in turns",
    ),
    "RG60": "eager is timed in the probe regimes/modes_geglu, in turns with the modes",
    **dict.fromkeys(("RG61", "RG62"), "eager is timed in the probe regimes/modes_geglu, steady, as the modes are"),
    "F93": "eager's error is in the probe fused_mlp/ampere_code, at the same sizes",
    "RG48": "eager is timed in the probe regimes/biases, in turns with the compiled forms",
    "RG55": "eager's GELU is timed in the probe regimes/in_cache",
}
"""Claim -> the variant that it names and does not read, and why."""


def measured(claim_id: str) -> tuple[str, Claim]:
    """A claim and its chapter; the test is skipped where there is nothing to alter."""
    chapter, claim = CLAIMS[claim_id]
    verdict = judge(claim, chapter, AlteredDevice())
    if verdict.status == "not measured":
        pytest.skip(verdict.reason)
    return chapter, claim


def candidates(claim: Claim, chapter: str) -> Iterator[Mutant]:
    """The mutants that alter what claims of this scope are about, the quickest to try first."""
    if claim.id in SEVERAL_CHANGES:
        yield SEVERAL_CHANGES[claim.id]
    experiments = reads(claim, chapter)
    if len(experiments) <= FEW:
        yield from (mutant for mutant in swapped(experiments) if mutant.fits(claim))
    yield from (mutant for mutant in generic(claim, experiments) if mutant.fits(claim))
    yield from (mutant for mutant in directed(claim, experiments) if mutant.fits(claim))


def flipping(claim: Claim, chapter: str) -> Mutant | None:
    """The first mutant that flips a claim."""
    before = status(claim, chapter, AlteredDevice())
    return next((mutant for mutant in candidates(claim, chapter) if flips(claim, chapter, mutant, before)), None)


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_a_claim_can_fail(claim_id: str) -> None:
    chapter, claim = measured(claim_id)
    if claim_id in IMMUNE:
        assert flipping(claim, chapter) is None, "it can fail: remove it from IMMUNE"
        assert len(IMMUNE[claim_id]) > 20, "say why"
    else:
        assert flipping(claim, chapter) is not None, f"no altered recording flips {claim_id}: {claim.sentence}"


@pytest.mark.parametrize("claim_id", SEVERAL_CHANGES)
def test_a_composed_mutant_is_needed_and_flips(claim_id: str) -> None:
    chapter, claim = CLAIMS[claim_id]
    before = status(claim, chapter, AlteredDevice())
    assert flips(claim, chapter, SEVERAL_CHANGES[claim_id], before)
    simple = (mutant for mutant in candidates(claim, chapter) if mutant is not SEVERAL_CHANGES[claim_id])
    assert not any(flips(claim, chapter, mutant, before) for mutant in simple), "one change is enough"


def test_tables_name_claims() -> None:
    assert {*IMMUNE, *SEVERAL_CHANGES, *UNREAD} <= CLAIMS.keys()


def unread(claim: Claim, chapter: str) -> list[str]:
    """Variants that a claim's sentence names, of which it reads no recording."""
    names = [experiment.partition("/")[2] for experiment in reads(claim, chapter)]
    named = [variant for variant in VARIANTS if re.search(rf"(?<!without )\b(?:{variant})\b", claim.sentence)]
    return [variant for variant in named if not any(re.search(VARIANTS[variant], name) for name in names)]


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_a_claim_reads_the_variants_that_it_names(claim_id: str) -> None:
    chapter, claim = measured(claim_id)
    missing = unread(claim, chapter)
    if claim_id in UNREAD:
        assert missing, "it reads what it names: remove it from UNREAD"
    else:
        assert missing == [], f"{claim.sentence} reads only {', '.join(reads(claim, chapter))}"


# -- the mutants themselves, and claims made for the purpose


def test_mutants_alter_only_their_recording() -> None:
    for mutant in generic(CLAIMS["L1"][1], {"linear/eager": True}):
        device = mutant.device
        assert {*device.recordings, *device.traces} == {"linear/eager"}, mutant.name


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
    assert judge(made, "linear", AlteredDevice()).status == "holds"
    assert reads(made, "linear") == read
    assert (flipping(made, "linear") is not None) is can_fail


def test_a_claim_that_does_not_read_what_it_names() -> None:
    made = samples.claim(measure=kernels, sentence="The eager layer has a kernel less than Liger's.")
    assert unread(made, "linear") == ["Liger"]
