"""A claim in its decorated form."""

from __future__ import annotations

import pytest

from snippets.lab.experiment import UnknownName
from snippets.lab.finding.band import between, equals
from snippets.lab.finding.claim import Claim, Source, claim
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from tests.lab import samples

DEVICE = samples.BOOK


def test_a_function_becomes_a_claim() -> None:
    source = Source("Part 2", "0.19 ms")

    @claim("M7", between(4, 17), scope="timing", source=source)
    def down_is_faster(device: Device) -> Figure:
        """Down is about a tenth faster
        than gate and up.
        """
        return Figure(10.0, "%", origin=device.name)

    assert isinstance(down_is_faster, Claim)
    assert (down_is_faster.id, down_is_faster.sentence) == ("M7", "Down is about a tenth faster than gate and up.")
    assert (down_is_faster.scope, down_is_faster.source, down_is_faster.why) == ("timing", source, "")
    assert down_is_faster(DEVICE) == Figure(10.0, "%", origin=DEVICE.name)
    assert down_is_faster.band(down_is_faster(DEVICE))


def test_a_second_paragraph_is_why_it_differs() -> None:
    @claim("M8", equals(5))
    def five_kernels(device: Device) -> Figure:
        """Five kernels.

        Here it is four: one is
        fused.

        And another paragraph.
        """
        return Figure(4)

    assert five_kernels.sentence == "Five kernels."
    assert five_kernels.why == "Here it is four: one is fused. And another paragraph."
    assert (five_kernels.scope, five_kernels.source) == ("every-gpu", None)


def test_a_claim_needs_a_sentence() -> None:
    def measure(device: Device) -> Figure:
        return Figure(5)

    with pytest.raises(ValueError, match=r"^claim M9: its function needs a docstring, which is the sentence$"):
        claim("M9", equals(5))(measure)


def test_a_scope_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(UnknownName, match="claim M1: no scope 'timings'; did you mean timing"):
        claim("M1", equals(5), scope="timings")  # type: ignore[arg-type]
