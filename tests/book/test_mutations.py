"""Every claim can fail: altered recordings flip its verdict. tests/book/mutations.py alters them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from snippets.lab.finding.book import all_claims
from snippets.lab.finding.claim import Claim
from tests.book import trace_changes
from tests.book.mutations import Mutant, directed, flips, generic, reads, status
from tests.chapters.altered import AlteredDevice

replace = msgspec.structs.replace


def _fastest_choices(data: Mapping[str, Any]) -> dict[str, Any]:
    """Of `mlp/tuned`: all compilations launch as the one with the fastest kernel."""
    fastest = min(range(len(data["fused_us"])), key=data["fused_us"].__getitem__)
    return {name: [data[name][fastest]] * len(data[name]) for name in ("grid", "block")}


CLAIMS = {claim_id: (chapter, claim) for claim_id, (chapter, claim) in all_claims().items()}
IMMUNE: dict[str, str] = {
    "O-M25": "it counts the times in its probe's data, and mutants that alter times are for claims about times",
}
"""Claim that no mutant flips -> why it cannot fail."""
SEVERAL_CHANGES: Mapping[str, Mutant] = {
    "M2": Mutant(
        "mlp/eager",
        "the kernels of an A100",
        "structure",
        trace_changes.renamed_work(
            {
                "nvjet_sm90_tst_256x128": "ampere_bf16_s16816gemm_bf16_128x128_ldg8_relu_f2f_stages_32x5_tn",
                "nvjet_sm90_tst_192x128": "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
            }
        ),
    ),
    "O-P19": Mutant(
        "mlp/tuned",
        "the same choice by every compilation",
        "structure",
        of_recording=lambda recording: replace(recording, data=recording.data | _fastest_choices(recording.data)),
    ),
}
"""Claim that flips only if several things change at once -> these."""
VARIANTS = {
    r"eager": r"eager|naive|bare",
    r"[Cc]ompiled (?:form|forward|step|layer|function|call)": r"compiled|generated|sweep|tuned|lengths|new_",
    r"max-autotune": r"max_autotune|generated|chosen|bfloat16_",
    r"Liger": r"liger|new_shapes",
    r"[Oo]urs?": r"fused|kernelized|resources|chosen|steps|new_shapes|launches|enqueued|quack",
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
}
"""Claim -> the variant that it names and does not read, and why."""


def candidates(claim: Claim, chapter: str) -> Iterator[Mutant]:
    """The mutants that alter what claims of this scope are about, the quickest to try first."""
    if claim.id in SEVERAL_CHANGES:
        yield SEVERAL_CHANGES[claim.id]
    experiments = reads(claim, chapter)
    yield from (mutant for mutant in generic(claim, experiments) if mutant.fits(claim))
    yield from (mutant for mutant in directed(claim, experiments) if mutant.fits(claim))


def flipping(claim_id: str) -> Mutant | None:
    """The first mutant that flips a claim."""
    chapter, claim = CLAIMS[claim_id]
    before = status(claim, chapter, AlteredDevice())
    return next((mutant for mutant in candidates(claim, chapter) if flips(claim, chapter, mutant, before)), None)


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_a_claim_can_fail(claim_id: str) -> None:
    chapter, claim = CLAIMS[claim_id]
    if status(claim, chapter, AlteredDevice()) == "not measured":
        pytest.skip("not recorded yet")
    if claim_id in IMMUNE:
        assert flipping(claim_id) is None, "it can fail: remove it from IMMUNE"
        assert len(IMMUNE[claim_id]) > 20, "say why"
    else:
        assert flipping(claim_id) is not None, f"no altered recording flips {claim_id}: {claim.sentence}"


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
    named = [variant for variant in VARIANTS if re.search(rf"\b(?:{variant})\b", claim.sentence)]
    return [variant for variant in named if not any(re.search(VARIANTS[variant], name) for name in names)]


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_a_claim_reads_the_variants_that_it_names(claim_id: str) -> None:
    chapter, claim = CLAIMS[claim_id]
    if status(claim, chapter, AlteredDevice()) == "not measured":
        pytest.skip("not recorded yet")
    missing = unread(claim, chapter)
    if claim_id in UNREAD:
        assert missing, "it reads what it names: remove it from UNREAD"
    else:
        assert missing == [], f"{claim.sentence} reads only {', '.join(reads(claim, chapter))}"


# -- the mutants themselves: claims made for the purpose


def test_mutants_alter_only_their_recording() -> None:
    for mutant in generic(CLAIMS["L1"][1], {"linear/eager": True}):
        device = mutant.device
        assert {*device.recordings, *device.traces} == {"linear/eager"}, mutant.name
