"""Measures that both parts of the chapter need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from snippets.lab.finding.claim import Claim, Scope, Source, Status
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import of_steps, paired_samples_ratio, per_step
from snippets.lab.finding.quantities import point
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import RecordingError, Timings
from snippets.lab.trace.events import Step, Trace

Measure = Callable[[str], Figure]
Holds = Callable[[Figure], bool]
BF16_BYTES = 2
WAYS = {
    "naive": "attention/naive",
    "in place": "attention/in_place",
    "math": "attention/math",
    "efficient": "attention/efficient",
    "flash": "attention/flash",
    "cuDNN": "attention/cudnn",
    "auto": "attention/auto",
    "compiled": "attention/compiled",
    "Flex": "attention/flex",
}
"""Every way to compute one forward, as the page calls it -> experiment."""
ONE_KERNEL = ("efficient", "flash", "cuDNN", "Flex")
"""The ways that never write the scores to memory."""


def in_steps(experiment: str, of: Callable[[Trace, Step], int | str | bool]) -> Measure:
    """A measure: what the steps of a trace show; inconclusive when they disagree."""

    def measure(device: str) -> Figure:
        traced = load_trace(experiment, device)
        return of_steps(traced, lambda step: of(traced, step), experiment)

    return measure


def in_each(names: Sequence[str], of: Callable[[Trace, Step], int | str]) -> Measure:
    """A measure: what the steps of several ways' traces show, as `math X; naive Y`; names are those of `WAYS`."""

    def measure(device: str) -> Figure:
        found = {name: in_steps(WAYS[name], of)(device) for name in names}
        said = "; ".join(f"{name} {one.value}" for name, one in found.items())
        return Figure(said, origin="their traces", conclusive=all(one.conclusive for one in found.values()))

    return measure


def amount(experiment: str, unit: str, of: Callable[[Trace, Step], float]) -> Measure:
    """A measure: a quantity with a unit, the median step and the range of all."""

    def measure(device: str) -> Figure:
        traced = load_trace(experiment, device)
        return per_step(traced, lambda step: of(traced, step), unit, f"{experiment}, per step of its trace")

    return measure


def timings(experiment: str, device: str) -> Timings:
    """How long the one step of an experiment took. Raises `RecordingError` where it was not timed."""
    found = point(load_recording(experiment, device)).timings
    if found is None:
        raise RecordingError(f"{experiment} was not timed; make record CHAPTER=attention")
    return found


def paired(upper: str, lower: str, kind: str = "warm") -> Measure:
    """A measure: ratio of the paired timings of two experiments of one session; `kind` is a field of `Timings`."""

    def measure(device: str) -> Figure:
        if len({load_recording(name, device).session for name in (upper, lower)}) > 1:
            raise RecordingError(f"{upper} and {lower} were recorded apart; make record CHAPTER=attention FRESH=1")
        a, b = (getattr(timings(name, device), kind) for name in (upper, lower))
        return paired_samples_ratio(a, b, f"{upper} over {lower}, {kind}, in turns")

    return measure


def over(upper: Measure, lower: Measure) -> Measure:
    """A measure: how many times one time in a trace fits into another, from the extremes of their steps."""

    def measure(device: str) -> Figure:
        a, b = upper(device), lower(device)
        (a_low, a_high), (b_low, b_high) = (one.spread or (float(one.value),) * 2 for one in (a, b))
        spread = (float(a_low) / float(b_high), float(a_high) / float(b_low))
        return Figure(float(a.value) / float(b.value), "x", spread, "two times in traces of one session")

    return measure


def percent(of: Measure) -> Measure:
    """A measure: a ratio in percent."""

    def measure(device: str) -> Figure:
        shown = of(device)
        low, high = shown.spread or (float(shown.value), float(shown.value))
        return replace(shown, value=100 * float(shown.value), unit="%", spread=(100 * low, 100 * high))

    return measure


def at_least(least: float) -> Holds:
    """A predicate: not below a number."""
    return lambda shown: float(shown.value) >= least


def at_most(most: float) -> Holds:
    """A predicate: not above a number."""
    return lambda shown: float(shown.value) <= most


def within(low: float, high: float) -> Holds:
    """A predicate: neither below one number nor above another."""
    return lambda shown: low <= float(shown.value) <= high


def one_of(*values: object) -> Holds:
    """A predicate: exactly one of these."""
    return lambda shown: shown.value in values


def series_claim(
    identity: str,
    sentence: str,
    measure: Measure,
    holds: Holds,
    said: str,
    *,
    scope: Scope = "every-gpu",
    differs: str = "",
) -> Claim:
    """A claim of the series' third part; `said` is its value, `differs` why it does not hold on the builder."""
    return Claim(identity, sentence, scope, measure, holds, Source("Part 3", said), _expected(differs), differs)


def own_claim(
    identity: str, sentence: str, measure: Measure, holds: Holds, *, scope: Scope = "every-gpu", differs: str = ""
) -> Claim:
    """A claim of ours; `differs` says why it does not hold on the builder."""
    return Claim(identity, sentence, scope, measure, holds, None, _expected(differs), differs)


def _expected(differs: str) -> Mapping[str, Status]:
    return {DEFAULT_DEVICE: "differs"} if differs else {}
