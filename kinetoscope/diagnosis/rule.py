"""The types of a diagnosis: a rule, its findings, and a question that a trace cannot answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from kinetoscope.trace.events import Span

if TYPE_CHECKING:
    from kinetoscope.diagnosis.facts import Facts

Severity = Literal["high", "medium", "low"]
HIGH, MEDIUM = 0.20, 0.05
"""Shares of the step's time from which the saving of a finding makes it high or medium."""
SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high")
Confidence = Literal["high", "medium", "low"]
CONFIDENCE: dict[Confidence, str] = {
    "high": "events of the trace are the fault: a call that waits, a copy, a gap with its cause",
    "medium": "names, shapes or the order of events tell the fault",
    "low": "a model tells it: a datasheet's rate, a mean of other steps, the absence of events; or the trace is of one "
    "rank, and only all ranks tell",
}
"""Confidence of a rule -> how its findings are known. It is about the fault: a ceiling is a bound in any case."""


@dataclass(frozen=True)
class Rule:
    """Looks for one fault."""

    name: str
    """`sync-in-step`: in JSON, in links and on the page that explains the rules."""
    title: str
    """The fault in a phrase: `The CPU waits for the GPU inside a step`."""
    looks_for: str
    """The events, and their meaning, in a sentence or two."""
    threshold: str
    """The condition for a finding, in words, with the constants of the rule's file."""
    source: str
    """The rule's origin: name and, if there is one, address; a new rule says so."""
    advice: str
    """The fix, in a sentence or two."""
    find: Callable[[Facts], Sequence[Finding] | CannotTell]
    needs: tuple[Callable[[Rule, Facts], CannotTell | None], ...] = ()
    """What a trace must have: functions of missing.py."""
    is_once: bool = False
    """Whether it costs its time once: fixing it does not shorten the steps that follow."""
    confidence: Confidence = "medium"
    """How a finding is known: see `CONFIDENCE`."""
    mistaken: str = ""
    """When a finding is no fault, in a sentence."""

    def check(self, facts: Facts) -> Sequence[Finding] | CannotTell:
        """The findings, none without the fault; or why the trace cannot tell."""
        return next(filter(None, (need(self, facts) for need in self.needs)), None) or self.find(facts)


class Measured(NamedTuple):
    """A value that a rule measured: `("calls that wait per step", 3.0, "calls")`."""

    metric: str
    value: float
    unit: str
    """`us`, `bytes`, `%`, or what is counted, in the plural."""


@dataclass(frozen=True)
class Finding:
    """A fault in a trace."""

    rule: Rule
    title: str
    """The fault with its measured values, in plain text."""
    where: str
    """The operator, module or source line that it comes from; empty if the trace does not say."""
    evidence: tuple[Span, ...]
    """The events that show it, in the median step where it has them; the longest first, at most 100."""
    evidence_us_per_step: float
    """Time that these events take in a step."""
    saving_us_per_step: float
    """The most that a step can get shorter by fixing it, never a promise: the `ceiling` in reports and JSON."""
    advice: str = ""
    """The fix in this case; the rule's own advice if empty."""
    measured: tuple[Measured, ...] = ()
    """The values in the title, for programs."""
    doubt: str = ""
    """Why this trace alone cannot tell that it is a fault, and what can; the confidence is then low."""
    beside_us: float = 0.0
    """Time per step outside of the steps of the mean that the fault is about: a pause after each step, or the time that
    is lost once."""

    @property
    def confidence(self) -> Confidence:
        """How it is known: the confidence of the rule, but low in doubt."""
        return "low" if self.doubt else self.rule.confidence

    @property
    def what_to_do(self) -> str:
        """The doubt, if any, and the fix."""
        return " ".join(filter(None, (self.doubt, self.advice or self.rule.advice)))

    def whole_us(self, step_us: float) -> float:
        """The time of which the saving is a part: that of the mean step, and the time beside it."""
        return step_us + self.beside_us

    def severity(self, step_us: float) -> Severity:
        """The severity by the share of a step that the finding may save."""
        return severity_of(self.saving_us_per_step, self.whole_us(step_us))


def severity_of(saving_us: float, step_us: float) -> Severity:
    """The severity of a saving by its share of a step."""
    share = saving_us / step_us if step_us else 0.0
    return "high" if share >= HIGH else "medium" if share >= MEDIUM else "low"


@dataclass(frozen=True)
class CannotTell:
    """A question that a trace cannot answer, and the option of `torch.profiler.profile` that records the answer."""

    rule: Rule
    reason: str
    option: str
    """`record_shapes=True`; empty if no option records it."""
