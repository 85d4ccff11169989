"""Long times outside operators in a step on the CPU."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from kinetoscope.diagnosis.amounts import count_text, duration_text, share_text
from kinetoscope.diagnosis.cpu_loops import is_called, is_node
from kinetoscope.diagnosis.cpu_times import is_cpu_only, slowest_own_code
from kinetoscope.diagnosis.facts import MAX_EVIDENCE, Facts
from kinetoscope.diagnosis.gaps import LONG_US
from kinetoscope.diagnosis.missing import no_step_operators
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import OWN, STACKS
from kinetoscope.trace.events import Span, starting_in
from kinetoscope.trace.intervals import Interval, length_us, lengths_in, ns, subtract, union_of
from kinetoscope.trace.text import without_address

MIN_SHARE = 0.05
MIN_LONG_PASSES = 0.05
"""Share of the passes between two operators that take long, at least two: less is by chance."""


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Find long times in which the steps' threads run no operator; a trace of a GPU has slow-cpu-code."""
    if facts.has_gpu:
        return []
    if unable := no_step_operators(RULE, facts):
        return unable
    if not is_cpu_only(facts):
        return []
    pauses = _pauses(facts)
    total_us = round(length_us(pauses) / len(facts.steps), 3)
    windows = [(ns(step.start_us), ns(step.end_us)) for step in facts.steps]
    paused = sum(map(bool, lengths_in(windows, pauses)))
    if total_us < MIN_SHARE * facts.mean_step_us or paused < min(2, len(windows)):
        return []
    where = slowest_own_code(facts, pauses)
    pauses.sort(key=lambda pause: pause[0] - pause[1])
    count = count_text(len(pauses) / len(facts.steps), "time")
    title = (
        f"Code outside operators takes {duration_text(total_us)} per step "
        f"({share_text(total_us, facts.mean_step_for(total_us))}), {count} of at least {LONG_US / 1000:.0f} ms"
    )
    running = facts.evidence([_running(facts, pause) for pause in pauses[:MAX_EVIDENCE]])
    advice = RULE.advice if facts.has_stacks else f"{STACKS} shows which functions run. {RULE.advice}"
    measured = (Measured("long times per step", len(pauses) / len(facts.steps), "times"),)
    return [Finding(RULE, title, where, running, total_us, total_us, advice, measured=measured)]


def _pauses(facts: Facts) -> list[Interval]:
    """Long times in which no thread works, between two operators where the loop takes long again and again.

    Where the loop takes long once in many passes, the system may have given the core to another program. Before a node
    of the backward pass, autograd orders the graph.
    """
    others = union_of(op for op in facts.trace.cpu_ops if op.thread not in facts.cpu.threads)
    idle = subtract(facts.cpu_parts["Python"], others)
    long = [(start, end) for start, end in idle if end - start >= LONG_US * 1000]
    if not long:
        return []
    ops = [op for op in facts.in_steps(facts.cpu.ops) if is_called(op)]
    starts, places = [ns(op.start_us) for op in ops], list(pairwise(["", *(op.name for op in ops), ""]))
    long_at = [places[bisect_right(starts, start)] for start, _ in long]
    passes, counts = Counter(places), Counter(long_at)

    def is_usual(place: tuple[str, str]) -> bool:
        return passes[place] == 1 or counts[place] >= max(2, MIN_LONG_PASSES * passes[place])

    return [pause for pause, at in zip(long, long_at, strict=True) if is_usual(at) and not is_node(at[1])]


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
    looks_for=f"In a trace without GPU work, a step has a time of at least {LONG_US / 1000:.0f} ms in which no thread "
    "runs an operator, or code that has an annotation of its own. In this time, the loop doesn't fetch a batch, "
    "compile or collect garbage. It runs Python or NumPy, or waits for files, the network or a sleep.",
    threshold=f"Such time takes at least {MIN_SHARE:.0%} of a step, in two or more steps. A time between two "
    f"operators doesn't count if it is long only once, or in less than {MIN_LONG_PASSES:.0%} of the loop's passes, "
    "because then another program may have used the core.",
    source=OWN,
    advice="Move logging, metrics, files and preprocessing out of the loop, to every hundredth step or to another "
    "process. Compute on tensors instead of Python numbers. Also time the step without the profiler, which slows "
    "Python, especially with stacks.",
    find=find,
    confidence="medium",
    mistaken="The profiler slows Python, especially with stacks, or another program used the core.",
)
