"""A claim is a sentence and a band for a measured figure, written as one function.

    @claim("M7", between(4, 17), scope="timing", source=Source("Part 2", "0.19 ms, 0.19 ms and 0.17 ms"))
    def down_is_faster(device: Device) -> Figure:
        \"\"\"Down is about a tenth faster than gate and up, which do the same amount of work.\"\"\"
        return device["mlp/eager"].per_step(percent_faster, "%")

The docstring is the sentence. A second paragraph explains why the claim differs on the default device; only a claim
that differs there has one. Statuses on a device:

holds          the band contains the figure
differs        the band does not contain it: a finding, shown beside the source's value
inconclusive   the active steps of a trace disagree, so a count has no single value
not measured   this device lacks a recording that the claim needs
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
"""Whether a claim holds for a figure."""


@dataclass(frozen=True)
class Source:
    """A source, the value it gives, and for which device."""

    who: str
    value: str
    device: str = "NVIDIA A100-SXM4-80GB"


@dataclass(frozen=True)
class Claim:
    """A checkable sentence of the book. Calling it with a device returns the measured figure."""

    id: str
    sentence: str
    scope: Scope
    """every-gpu: counts, orders, equal names; this-gpu: a name, an API, a tile; timing: a ratio or a band."""
    measure: Measure
    band: Band
    source: Source | None = None
    """None if the sentence is ours."""
    expected: Mapping[str, Status] = field(default_factory=dict)
    """Device, or `*` for all, -> status. Without an entry, `every-gpu` claims should hold and others may differ."""
    why: str = ""
    """How the claim differs on the default device and why it matters."""

    def __call__(self, device: Device) -> Figure:
        """Measure the figure on a device."""
        return self.measure(device)

    def expected_on(self, device: str) -> Status | None:
        """The status that the prose assumes; None if any status fits."""
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
    """Make a claim from the decorated function; its docstring is the sentence.

    Raises `ValueError` without a docstring, `UnknownName` for a scope that does not exist.

    Args:
        identity: `M7`; unique in the book.
        band: the figures for which the claim holds.
        scope: `every-gpu`: it should hold on all; `this-gpu`: a name, a launch API or a tile; `timing`: a ratio or band
            of times. The last two may differ on another GPU.
        source: the source and its value; None if the sentence is ours.
        differs_on: the device on which a claim with a second paragraph should differ; `*` for every device.
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
    """The figure equals one of these values."""
    return lambda figure: figure.value in values


def at_least(limit: float) -> Band:
    """The figure is at or above a limit."""
    return lambda figure: figure.number >= limit


def at_most(limit: float) -> Band:
    """The figure is at or below a limit."""
    return lambda figure: figure.number <= limit


def between(low: float, high: float) -> Band:
    """The figure is between two limits, inclusive."""
    return lambda figure: low <= figure.number <= high


def matches(expression: str) -> Band:
    """The figure is a name that fully matches a regular expression."""
    return lambda figure: re.fullmatch(expression, str(figure.value)) is not None
