"""Float64 among work in other types."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.cpu_times import is_cpu_only, own_times, step_operators
from kinetoscope.diagnosis.facts import MIN_SHARE, Facts
from kinetoscope.diagnosis.missing import no_gpu_work, no_step_operators
from kinetoscope.diagnosis.peaks import find_peaks
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.sources import OWN, SHAPES
from kinetoscope.diagnosis.waste import Waste, findings
from kinetoscope.trace.events import CpuOp, GpuActivity, Step
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.work import step_work

MAX_SHARE = 0.9


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Check the types of inputs and the names of kernels."""
    if is_cpu_only(facts):
        return no_step_operators(RULE, facts) or _on_cpu(facts)
    if unable := no_gpu_work(RULE, facts):
        return unable
    kernels = [a for step in facts.steps for a in step.activities if a.kind == "kernel"]
    if _time_us(filter(is_float64, kernels)) > MAX_SHARE * _time_us(kernels):
        return []
    peaks = find_peaks(facts.trace.device)

    def look(step: Step) -> list[Waste]:
        found = []
        for activity, work in zip(step.activities, step_work(step, of=is_float64), strict=True):
            if is_float64(activity):
                least_us = peaks.memory_us(work.bytes // 2) if work and peaks else 0.0
                found.append(Waste((activity,), max(0.0, activity.duration_us - least_us)))
        return found

    return findings(RULE, facts, look, _describe)


def _on_cpu(facts: Facts) -> list[Finding] | CannotTell:
    """The same for operators, each by its own time, so that an operator around others counts for its own work alone."""
    times = [(op, own_ns / 1000) for op, own_ns in own_times(step_operators(facts))]
    typed_us = math.fsum(us for op, us in times if any(op.input_types))
    if not typed_us:
        return CannotTell(RULE, "operators have no types", SHAPES)
    found = [(op, us) for op, us in times if us > 0 and has_float64(op)]
    total_us = round(math.fsum(us for _, us in found) / len(facts.steps), 3)
    if total_us < MIN_SHARE * facts.step_us or total_us * len(facts.steps) > MAX_SHARE * typed_us:
        return []
    longest = max(found, key=lambda each: each[1])[0]
    operators = count_text(len(found) / len(facts.steps), "operator")
    title = f"{operators} in float64: {duration_text(total_us)} per step, the longest {longest.name}"
    ops = [op for op, _ in found]
    return [Finding(RULE, title, facts.sites([longest])[0].text, facts.evidence(ops), total_us, total_us)]


def has_float64(op: CpuOp) -> bool:
    """Whether a float64 tensor is among an operator's inputs; a Python float does not count."""
    return any(kind == "double" and shape for kind, shape in zip(op.input_types, op.input_shapes, strict=False))


def is_float64(activity: GpuActivity) -> bool:
    """Whether it is a kernel with a float64 tensor among its inputs; a Python float does not count."""
    if activity.kind != "kernel":
        return False
    op = activity.op
    if op is not None and op.input_types and len(op.input_types) == len(op.input_shapes):
        typed = zip(op.input_types, op.input_shapes, strict=True)
        return "double" in op.input_types and any(kind == "double" and shape for kind, shape in typed)
    return decode_kernel_name(activity.name).dtype == "f64"


def _time_us(kernels: Iterable[GpuActivity]) -> float:
    return math.fsum(kernel.duration_us for kernel in kernels)


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    return f"{count_text(len(waste), 'kernel')} in float64: {duration_text(time_us)} per step"


RULE = Rule(
    name="float64-kernels",
    title="Float64 by accident",
    looks_for="Kernels with a float64 tensor among their inputs, or float64 in their names, in a step that mostly "
    "computes in other types: often a NumPy array or a Python list that became a tensor. In a trace without GPU work: "
    "operators with such a tensor.",
    threshold=f"They take at least 1 % of a step and at most {MAX_SHARE:.0%} of its kernel time, or of its operators' "
    "time: above, it is on purpose.",
    source=OWN,
    advice="Give the type where the tensor is made: `torch.as_tensor(array, dtype=torch.float32)`.",
    find=find,
)
