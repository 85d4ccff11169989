"""The GPU waits for slow code on the CPU."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text, share_text
from kinetoscope.diagnosis.facts import MAX_EVIDENCE, Facts
from kinetoscope.diagnosis.gaps import LONG_US, Gap
from kinetoscope.diagnosis.missing import no_gpu_work, no_operators, no_warm_step
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sites import find_sites
from kinetoscope.diagnosis.sources import NSYS_AI, STACKS
from kinetoscope.trace.events import CpuOp, CudaCall, PythonFunction, Span, starting_in
from kinetoscope.trace.marks import WHOLE
from kinetoscope.trace.queries import is_sync
from kinetoscope.trace.text import slow_steps, without_address

MIN_SHARE = 0.05


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Long gaps of the GPU while the CPU runs an operator, or Python outside operators."""
    everywhere = [gap for gap in _counted(facts) if gap.cause in ("launching", "Python")]
    gaps = [gap for gap in everywhere if facts.step.start_us <= gap.start_us < facts.step.end_us]
    steps, step_us, slow = 1, facts.median_us, ""
    saving_us = round(min(sum(gap.working_us for gap in gaps), facts.spare_us(facts.step)), 3)
    savings = _savings_us(facts, everywhere)
    mean_us = facts.periodic_us(savings)
    if mean_us > saving_us and (slow := slow_steps(savings)):
        gaps, saving_us, steps, step_us = everywhere, mean_us, len(facts.steps), facts.mean_step_us
    if not gaps or saving_us < MIN_SHARE * step_us:
        return []
    gaps.sort(key=lambda gap: -gap.duration_us)
    total_us = round(sum(gap.duration_us for gap in gaps) / steps, 3)
    python_us = round(sum(gap.duration_us for gap in gaps if gap.cause == "Python") / steps, 3)
    part = share_text(total_us, max(step_us, total_us))
    title = (
        f"The GPU waits {duration_text(total_us)} ({part} of the step) in "
        f"{count_text(len(gaps) / steps, 'long gap')}{' per step' if slow else ''}{slow}: "
        f"{duration_text(round(total_us - python_us, 3))} in operators and calls, {duration_text(python_us)} outside"
    )
    running = [_running(facts, gap) for gap in gaps[:MAX_EVIDENCE]]
    where = _where(facts, gaps[0])
    advice = "" if facts.has_stacks or not python_us else f"{STACKS} shows which functions run. {RULE.advice}"
    if not slow:
        total_us, saving_us = facts.per_step_us(total_us), facts.per_step_us(saving_us)
    measured = (
        Measured("long gaps per step", len(gaps) / steps, "gaps"),
        Measured("gaps outside operators and calls", python_us, "us"),
    )
    return [Finding(RULE, title, where, facts.evidence(running), total_us, saving_us, advice, measured=measured)]


def _savings_us(facts: Facts, gaps: Sequence[Gap]) -> list[float]:
    """What each step saves without these gaps; 0 for a step in which the GPU's runtime starts."""
    starts = [step.start_us for step in facts.steps]
    working = [0.0] * len(starts)
    for gap in gaps:
        working[max(0, bisect_right(starts, gap.start_us) - 1)] += gap.working_us
    return [
        min(us, facts.spare_us(step)) if step.start_us >= facts.cold_until_us else 0.0
        for us, step in zip(working, facts.steps, strict=True)
    ]


def _counted(facts: Facts) -> Sequence[Gap]:
    """The long gaps; where nothing marks steps, between GPU work only, else unless the recording ends there.

    An annotation that is open when the profiler stops may last until the profiler has written the trace.
    """
    if facts.trace.steps_from == WHOLE:
        return [gap for gap in facts.inner_gaps if gap.duration_us >= LONG_US]
    launched = (call for call in facts.cpu.calls if not is_sync(call.name))
    ops = (op for op in facts.cpu.ops if not op.is_annotation)
    last = max((span.start_us for span in (*ops, *launched, *facts.cpu.functions)), default=0.0)
    return [gap for gap in facts.long_gaps if gap.start_us < last]


def _running(facts: Facts, gap: Gap) -> Span:
    """The longest Python function that starts in a gap of Python; else the span that the gap is blamed on; else the
    gap."""
    functions = starting_in(facts.cpu.functions, gap.start_us, gap.end_us) if gap.cause == "Python" else ()
    blame = gap.blame or Span("GPU idle", gap.start_us, gap.duration_us)
    return max(functions, key=lambda function: function.duration_us, default=blame)


def _where(facts: Facts, gap: Gap) -> str:
    running = _running(facts, gap)
    if running is not gap.blame:
        return without_address(running.name) if isinstance(running, PythonFunction) else ""
    if gap.cause == "launching" and isinstance(running, CpuOp | CudaCall):
        return facts.sites([running])[0].text or running.name
    around = _annotation(facts, gap)
    return f"before {running.name}{f', in {around}' if around else ''}"


def _annotation(facts: Facts, gap: Gap) -> str:
    """The user's innermost annotation around the middle of a gap of Python, if it does not mark a step; else empty."""
    if gap.cause != "Python" or not isinstance(gap.blame, CpuOp | CudaCall):
        return ""
    (site,) = find_sites(facts.trace, [(gap.blame.thread, gap.start_us + gap.duration_us / 2)])
    return "" if any(step.name == site.annotation for step in facts.steps) else site.annotation


RULE = Rule(
    name="slow-cpu-code",
    title="The GPU waits for slow code on the CPU",
    looks_for=f"No GPU works for at least {LONG_US / 1000:.0f} ms while the CPU runs one slow operator or code "
    "outside operators: Python, NumPy, files, the network, or compiling that an old PyTorch doesn't annotate. If "
    "nothing marks steps, the time before the first and after the last GPU work doesn't count. The time after the "
    "last operator and launch of the trace never counts.",
    threshold=f"Such gaps take at least {MIN_SHARE:.0%} of the median step, or of the mean step if most of the time "
    "is in a few steps.",
    source=f"{NSYS_AI} (gaps above 1 ms); the share is this book's",
    advice="First measure the step without the profiler, which slows the CPU, especially with stacks. Then move "
    "logging, metrics and preprocessing out of the loop or to another process. Record after warm-up.",
    find=find,
    needs=(no_gpu_work, no_operators, no_warm_step),
    confidence="medium",
    mistaken="The profiler makes the code slow, especially with stacks, or the code is rare in the whole run.",
)
