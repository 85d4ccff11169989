"""Measures that more than one part of the chapter needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from snippets.lab.finding.claim import Claim, Scope, Status
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import paired_samples_ratio
from snippets.lab.finding.quantities import point
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.loading import load_recording
from snippets.lab.recording.schema import RecordingError, Timings

BF16_BYTES = 2


def timings(experiment: str, device: str) -> Timings:
    """How long the one step of an experiment took. Raises `RecordingError` where it was not timed."""
    found = point(load_recording(experiment, device)).timings
    if found is None:
        raise RecordingError(f"{experiment} was not timed; make record CHAPTER=fused_mlp")
    return found


def paired(upper: str, lower: str, kind: str = "warm") -> Callable[[str], Figure]:
    """A measure: ratio of the paired timings of two experiments of one session; `kind` is a field of `Timings`."""

    def measure(device: str) -> Figure:
        if len({load_recording(name, device).session for name in (upper, lower)}) > 1:
            raise RecordingError(f"{upper} and {lower} were recorded apart; make record CHAPTER=fused_mlp FRESH=1")
        a, b = (getattr(timings(name, device), kind) for name in (upper, lower))
        return paired_samples_ratio(a, b, f"{upper} over {lower}, {kind}, in turns")

    return measure


def percent(of: Callable[[str], Figure]) -> Callable[[str], Figure]:
    """A measure: a ratio in percent."""

    def measure(device: str) -> Figure:
        shown = of(device)
        low, high = shown.spread or (float(shown.value), float(shown.value))
        return replace(shown, value=100 * float(shown.value), unit="%", spread=(100 * low, 100 * high))

    return measure


def at_least(least: float) -> Callable[[Figure], bool]:
    """A predicate: not below a number."""
    return lambda shown: float(shown.value) >= least


def at_most(most: float) -> Callable[[Figure], bool]:
    """A predicate: not above a number."""
    return lambda shown: float(shown.value) <= most


def within(low: float, high: float) -> Callable[[Figure], bool]:
    """A predicate: neither below one number nor above another."""
    return lambda shown: low <= float(shown.value) <= high


def one_of(*values: object) -> Callable[[Figure], bool]:
    """A predicate: exactly one of these."""
    return lambda shown: shown.value in values


def own_claim(
    identity: str,
    sentence: str,
    measure: Callable[[str], Figure],
    holds: Callable[[Figure], bool],
    scope: Scope = "timing",
    differs: str = "",
) -> Claim:
    """A claim of ours; `differs` says why it does not hold on the builder."""
    expected: Mapping[str, Status] = {DEFAULT_DEVICE: "differs"} if differs else {}
    return Claim(identity, sentence, scope, measure, holds, None, expected, differs)
