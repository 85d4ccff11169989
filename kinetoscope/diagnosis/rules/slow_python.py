"""Long times outside operators in a step on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text, share_text
from kinetoscope.diagnosis.cpu_times import is_cpu_only, slowest_own_code
from kinetoscope.diagnosis.facts import MAX_EVIDENCE, Facts
from kinetoscope.diagnosis.gaps import LONG_US
from kinetoscope.diagnosis.missing import no_operators
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.sources import OWN, STACKS
from kinetoscope.trace.events import Span, starting_in
from kinetoscope.trace.intervals import Interval, length_us
from kinetoscope.trace.text import without_address

MIN_SHARE = 0.05


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Find long times in which the steps' threads run no operator; a trace of a GPU has slow-cpu-code."""
    if not is_cpu_only(facts):
        return []
    pauses = [each for each in facts.cpu.partition(facts.windows)["Python"] if length_us([each]) >= LONG_US]
    total_us = round(length_us(pauses) / len(facts.steps), 3)
    if total_us < MIN_SHARE * facts.step_us or not pauses:
        return []
    pauses.sort(key=lambda pause: pause[0] - pause[1])
    count = count_text(len(pauses) / len(facts.steps), "time")
    title = (
        f"Code outside operators takes {duration_text(total_us)} per step ({share_text(total_us, facts.step_us)}), "
        f"{count} of at least {LONG_US / 1000:.0f} ms"
    )
    running = facts.evidence([_running(facts, pause) for pause in pauses[:MAX_EVIDENCE]])
    where = slowest_own_code(facts, sorted(pauses))
    advice = RULE.advice if facts.has_stacks else f"{STACKS} shows which functions run. {RULE.advice}"
    return [Finding(RULE, title, where, running, total_us, total_us, advice)]


def _running(facts: Facts, pause: Interval) -> Span:
    """The longest Python function that starts in a pause, else the pause itself."""
    start_us, end_us = pause[0] / 1000, pause[1] / 1000
    functions = starting_in(facts.cpu.functions, start_us, end_us)
    longest = max(functions, key=lambda function: function.duration_us, default=None)
    if longest is None:
        return Span("outside operators", start_us, round(end_us - start_us, 3))
    return Span(without_address(longest.name), longest.start_us, longest.duration_us)


RULE = Rule(
    name="slow-python",
    title="Slow code outside operators",
    looks_for=f"In a trace without GPU work: times of at least {LONG_US / 1000:.0f} ms in a step in which its threads "
    "run no operator, and neither fetch a batch, compile nor collect garbage: Python, NumPy, files, the network, "
    "sleeping.",
    threshold=f"from {MIN_SHARE:.0%} of the median step on",
    source=OWN,
    advice="Move logging, metrics, files and preprocessing out of the loop, to every hundredth step or to another "
    "process; compute on tensors in place of Python numbers. The profiler slows Python, most of all with stacks, so "
    "time the step without it, too.",
    find=find,
    needs=(no_operators,),
)
