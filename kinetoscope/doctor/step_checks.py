"""Checks of `doctor TRACE` on steps and options: what marks the steps, warm-up, overhead, stacks, shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kinetoscope.doctor.checks import Check
from kinetoscope.trace.events import Step, Trace
from kinetoscope.trace.intervals import intersect, length_us, ns, union, union_of
from kinetoscope.trace.step_kinds import has_larger_work, long_run_us, usual_us
from kinetoscope.trace.text import shortened
from kinetoscope.trace.units import format_value

WARM_UP_FACTOR = 3
"""A first step that takes this many times the median of the others warmed something up (gpuprof: >3x median)."""
SAME_WORK = 1.5
"""Up to this many times the operators of another step, a step without GPU work does the same (our limit)."""
OVERHEAD_SHARE = 0.10
"""Share of the steps' time in the profiler's own work from which times are rather its own (our limit)."""
SCHEDULE = "schedule(wait=1, warmup=1, active=3) and prof.step() after each iteration"


def check_steps(trace: Trace) -> Check | None:
    """Whether `prof.step()` marks the steps; without it, they are guessed."""
    if not trace.cpu_ops and not trace.calls:
        return None
    if trace.steps_from == "ProfilerStep" and trace.steps:
        return Check("steps", "ok", f"{len(trace.steps)}, marked by ProfilerStep")
    seen = "no ProfilerStep: steps are taken from " + trace.steps_from if trace.steps else "no ProfilerStep, no steps"
    return Check("steps", "warning", seen, f"profile with {SCHEDULE}", ("pytorch#33855",))


def check_same_work(trace: Trace) -> Check | None:
    """Whether a rank's steps run the same kernels in the same order; if not, counts per step come from one step."""
    if len(trace.steps) < 2:
        return None
    if not trace.activities:
        return _check_operators(trace)
    steps_of: dict[str, list[Step]] = {}
    for step in trace.steps:
        steps_of.setdefault(step.process, []).append(step)
    differing = [process for process, steps in steps_of.items() if _sequences(steps) > 1]
    if not differing:
        on_each = " of a rank" if len(steps_of) > 1 else ""
        return Check("same work", "ok", f"all {len(trace.steps)} steps{on_each} run the same GPU work")
    steps = steps_of[differing[0]]
    counts = sorted(len(step.activities) for step in steps)
    on = f"{shortened(differing[0])}: " if len(steps_of) > 1 else ""
    sequences = f"{_sequences(steps)} different sequences in {len(steps)} steps"
    seen = f"{on}{sequences}, of {counts[0]:,} to {counts[-1]:,} activities"
    cure = "warm up longer (compilation, autotuning, the first optimizer step), and record steps of the same shapes"
    return Check("same work", "warning", seen, cure)


def _sequences(steps: Sequence[Step]) -> int:
    """How many different sequences of GPU work the steps run."""
    return len({tuple((each.kind, each.name) for each in step.activities) for step in steps})


def _check_operators(trace: Trace) -> Check | None:
    """Whether the steps of a trace without GPU work run about as many operators."""
    counts = sorted(sum(not op.is_annotation for op in step.ops) for step in trace.steps)
    if not counts[-1]:
        return None
    if counts[-1] <= SAME_WORK * counts[0]:
        return Check("same work", "ok", f"all {len(counts)} steps run about as many operators")
    seen = f"the steps run {counts[0]:,} to {counts[-1]:,} operators"
    cure = "record steps of the same work: without a validation pass, and each a whole one of gradient accumulation"
    return Check("same work", "warning", seen, cure)


def check_warm_up(trace: Trace) -> Check | None:
    """Whether the first step took much longer (gpuprof: 3 times the median; nsys-ai: a first iteration 10-100x)."""
    sources = ("gpuprof 0.7.1", "nsys-ai")
    if len(trace.steps) < 2:
        return None
    first_us, others_us = long_run_us(trace.steps[0]), usual_us(trace.steps)
    if first_us < WARM_UP_FACTOR * others_us or not others_us:
        return Check("warm-up", "ok", "the first step is like the others", sources=sources)
    first, typical = format_value(first_us, "us"), format_value(others_us, "us")
    if has_larger_work(trace.steps[0], trace.steps[1:]):
        seen = f"the first step takes {first}, the others {typical}, but its kernels have more to do: no warm-up"
        return Check("warm-up", "ok", seen, sources=sources)
    seen = f"the first step takes {first}, the median of the others is {typical}"
    cure = f"run a few iterations before the profile, or let its schedule skip them: {SCHEDULE}"
    cure += "; if the first step alone validates or saves, record others"
    return Check("warm-up", "warning", seen, cure, sources)


def check_overhead(trace: Trace) -> Check | None:
    """The share of the profiler's own work in the steps, as Kineto records it (`overhead`)."""
    steps = union((ns(step.start_us), ns(step.end_us)) for step in trace.steps)
    if not steps:
        return None
    share = length_us(intersect(union_of(trace.overheads), steps)) / length_us(steps)
    if share < OVERHEAD_SHARE:
        return Check("overhead", "ok", f"{share:.1%} of the steps' time is the profiler's own")
    names = Counter[str]()
    for span in trace.overheads:
        names[span.name] += round(span.duration_us)
    seen = f"{share:.1%} of the steps' time is the profiler's own, most of it {names.most_common(1)[0][0]}"
    cure = "warm up (schedule's warmup), record more steps, and leave out with_stack, record_shapes and profile_memory"
    return Check("overhead", "warning", seen, cure)


def check_stacks(trace: Trace) -> Check | None:
    """The cost of `with_stack`: it records every Python call (scalene#1004, pytorch#174555)."""
    if not trace.functions:
        return None
    seen = f"with_stack recorded {len(trace.functions):,} Python calls beside {len(trace.cpu_ops):,} operators"
    cure = "read source lines from this trace, and times of the CPU from one without with_stack"
    return Check("with_stack", "warning", seen, cure, ("scalene#1004", "pytorch#174555"))


def check_shapes(trace: Trace) -> Check | None:
    """Whether operators have the shapes of their inputs, which rates need."""
    if not any(not op.is_annotation for op in trace.cpu_ops):
        return None
    if any(op.input_shapes for op in trace.cpu_ops):
        return Check("shapes", "ok", "recorded")
    return Check("shapes", "warning", "not recorded: no FLOPs, no bytes, no share of a ceiling", "record_shapes=True")
