"""A claim is a sentence plus a band for what was measured, written as one function.

    @claim("M7", between(4, 17), scope="timing", source=Source("Part 2", "0.19 ms, 0.19 ms and 0.17 ms"))
    def down_is_faster(device: Device) -> Figure:
        \"\"\"Down is about a tenth faster than gate and up, which do the same amount of work.\"\"\"
        return device["mlp/eager"].per_step(percent_faster, "%")

The docstring is the sentence. A second paragraph says why it differs on the default device, and only a claim that
differs there has one. Statuses on a device:

holds          the band contains what was measured
differs        it does not: a finding, shown beside what the source gave
inconclusive   the active steps of a trace disagree, so nothing may be counted
not measured   a recording it needs is missing on this device
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from snippets.lab.experiment import UnknownName, nearest
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import Measure
from snippets.lab.recording.device import DEFAULT_DEVICE

Scope = Literal["every-gpu", "this-gpu", "timing"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
Status = Literal["holds", "differs", "inconclusive", "not measured"]
STATUSES: tuple[Status, ...] = ("holds", "differs", "inconclusive", "not measured")
Band = Callable[[Figure], bool]
"""For which figures a claim holds."""


@dataclass(frozen=True)
class Source:
    """Who gave which value, of which device."""

    who: str
    value: str
    device: str = "NVIDIA A100-SXM4-80GB"


@dataclass(frozen=True)
class Claim:
    """One sentence of the book that can be checked. Called with a device, it measures."""

    id: str
    sentence: str
    scope: Scope
    """every-gpu: counts, orders, equal names; this-gpu: a name, an API, a tile; timing: a ratio or a band."""
    measure: Measure
    band: Band
    source: Source | None = None
    """None when the sentence is ours."""
    expected: Mapping[str, Status] = field(default_factory=dict)
    """By device, or `*` for every one. Elsewhere `every-gpu` claims are expected to hold and the others are open."""
    why: str = ""
    """What is different on the default device and why it matters."""

    def __call__(self, device: Device) -> Figure:
        """What is measured on a device."""
        return self.measure(device)

    def expected_on(self, device: str) -> Status | None:
        """The status that the prose was written for; None where nothing is expected."""
        if expected := self.expected.get(device) or self.expected.get("*"):
            return expected
        return "holds" if self.scope == "every-gpu" or device == DEFAULT_DEVICE else None


def claim(
    identity: str,
    band: Band,
    *,
    scope: Scope = "every-gpu",
    source: Source | None = None,
    differs_on: str = DEFAULT_DEVICE,
) -> Callable[[Measure], Claim]:
    """Make a claim of the function below, whose docstring is the sentence.

    Raises `ValueError` without a docstring, `UnknownName` for a scope that does not exist.

    Args:
        identity: `M7`; no other claim of the book has it.
        band: for which figures it holds.
        scope: `every-gpu`: it has to hold on all; `this-gpu`: a name, a launch API or a tile; `timing`: a ratio or a band
            of times. The last two may differ on another GPU.
        source: who gave which value; None when the sentence is ours.
        differs_on: where a claim with a second paragraph is expected to differ; `*` for every device.
    """

    if scope not in SCOPES:
        raise UnknownName(f"claim {identity}: no scope {scope!r}{nearest(scope, SCOPES)}")

    def decorate(measure: Measure) -> Claim:
        sentence, _, why = inspect.cleandoc(measure.__doc__ or "").partition("\n\n")
        if not sentence:
            raise ValueError(f"claim {identity}: its function needs a docstring, which is the sentence")
        expected: Mapping[str, Status] = {differs_on: "differs"} if why else {}
        return Claim(identity, _one_line(sentence), scope, measure, band, source, expected, _one_line(why))

    return decorate


def _one_line(text: str) -> str:
    return " ".join(text.split())


def equals(*values: object) -> Band:
    """Exactly one of these values."""
    return lambda figure: figure.value in values


def at_least(limit: float) -> Band:
    """Not below a number."""
    return lambda figure: figure.number >= limit


def at_most(limit: float) -> Band:
    """Not above a number."""
    return lambda figure: figure.number <= limit


def between(low: float, high: float) -> Band:
    """Neither below one number nor above another."""
    return lambda figure: low <= figure.number <= high


def matches(expression: str) -> Band:
    """A name that a regular expression matches as a whole."""
    return lambda figure: re.fullmatch(expression, str(figure.value)) is not None
