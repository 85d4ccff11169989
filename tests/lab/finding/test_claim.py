"""A claim in its decorated form, its bands, and which status is expected where."""

from __future__ import annotations

import pytest

from snippets.lab.experiment import UnknownName
from snippets.lab.finding.claim import Band, Claim, Source, at_least, at_most, between, claim, equals, matches
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.recording.device import DEFAULT_DEVICE
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
    assert down_is_faster.expected == {}
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
    assert five_kernels.expected == {DEFAULT_DEVICE: "differs"}
    assert (five_kernels.scope, five_kernels.source) == ("every-gpu", None)


def test_a_claim_needs_a_sentence() -> None:
    def measure(device: Device) -> Figure:
        return Figure(5)

    with pytest.raises(ValueError, match=r"^claim M9: its function needs a docstring, which is the sentence$"):
        claim("M9", equals(5))(measure)


@pytest.mark.parametrize(
    ("band", "inside", "outside"),
    [
        (equals(5), [5, 5.0], [4, "5"]),
        (equals("a", "b"), ["a", "b"], ["c", "ab"]),
        (equals(True), [True], [False]),
        (at_least(2.0), [2.0, 3], [1.99]),
        (at_most(2.0), [2.0, -1], [2.01]),
        (between(1.0, 2.0), [1.0, 1.5, 2.0], [0.99, 2.01]),
        (matches("nvjet_.*"), ["nvjet_x"], ["a nvjet_x", "nvjet", 5]),
    ],
)
def test_bands(band: Band, inside: list[float | str], outside: list[float | str]) -> None:
    assert [value for value in inside if not band(Figure(value))] == []
    assert [value for value in outside if band(Figure(value))] == []


@pytest.mark.parametrize(
    ("scope", "expected", "device", "status"),
    [
        ("every-gpu", {}, "nvidia-h200", "holds"),
        ("every-gpu", {}, "nvidia-t4", "holds"),
        ("this-gpu", {}, "nvidia-h200", "holds"),
        ("this-gpu", {}, "nvidia-t4", None),
        ("timing", {}, "nvidia-t4", None),
        ("timing", {"nvidia-h200": "differs"}, "nvidia-h200", "differs"),
        ("every-gpu", {"nvidia-h200": "differs"}, "nvidia-t4", "holds"),
        ("this-gpu", {"nvidia-h200": "differs"}, "nvidia-t4", None),
        ("this-gpu", {"nvidia-t4": "holds"}, "nvidia-t4", "holds"),
    ],
)
def test_what_is_expected_where(scope: str, expected: dict[str, str], device: str, status: str | None) -> None:
    assert samples.claim(scope=scope, expected=expected).expected_on(device) == status


def test_a_scope_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(UnknownName, match="claim M1: no scope 'timings'; did you mean timing"):
        claim("M1", equals(5), scope="timings")  # type: ignore[arg-type]
