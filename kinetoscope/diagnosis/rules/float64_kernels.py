"""Float64 among work in other types."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.cpu_times import is_cpu_only, own_times
from kinetoscope.diagnosis.facts import MIN_SHARE, Facts
from kinetoscope.diagnosis.missing import no_gpu_work, no_step_operators
from kinetoscope.diagnosis.peaks import find_peaks
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sites import around
from kinetoscope.diagnosis.sources import OWN, SHAPES
from kinetoscope.diagnosis.waste import Waste, findings
from kinetoscope.trace.events import CpuOp, GpuActivity, Step
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.work import FLOAT_TYPES, step_work

MAX_SHARE = 0.9
_DOUBLE = re.compile(r"[<,] *double *[,>]|(?<![A-Za-z])dge(?:mm|mv)|d884gemm|df64|(?<![A-Za-z])f64")
_OTHER_TYPE = re.compile(
    r"(?<![A-Za-z])(?:float|half|__half|c10::\w+|__nv_bfloat16|f32|bf16|f16|fp8|[sh]gemm)(?![A-Za-z])"
)
"""Types in names that the grammar does not know, in template arguments or as letters of BLAS."""


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Check the names of kernels, and the types of inputs where a name does not tell."""
    if is_cpu_only(facts):
        return no_step_operators(RULE, facts) or _on_cpu(facts)
    if unable := no_gpu_work(RULE, facts):
        return unable
    kernels = [a for step in facts.steps for a in step.activities if a.kind == "kernel"]
    doubles = {id(kernel): kernel for kernel in _in_float64(kernels)}
    if _time_us(doubles.values()) > MAX_SHARE * _time_us(kernels):
        return []
    peaks = find_peaks(facts.trace.device)

    def look(step: Step) -> list[Waste]:
        found = []
        for activity, work in zip(step.activities, step_work(step, of=lambda a: id(a) in doubles), strict=True):
            if id(activity) in doubles:
                least_us = peaks.memory_us(work.bytes // 2) if work and peaks else 0.0
                found.append(Waste((activity,), max(0.0, activity.duration_us - least_us)))
        return found

    return findings(RULE, facts, look, _describe)


def _on_cpu(facts: Facts) -> list[Finding] | CannotTell:
    """The same for operators, each by its own time, so that an operator around others counts for its own work alone."""
    if not any(op.input_types for op in facts.step_operators):
        return CannotTell(RULE, "operators have no types", SHAPES)
    times = [(op, own_ns / 1000) for op, own_ns in own_times(facts.step_operators)]
    typed_us = math.fsum(us for op, us in times if any(op.input_types))
    if not typed_us:
        return CannotTell(RULE, "operators have no types", SHAPES)
    found = [(op, us) for op, us in times if us > 0 and has_float64(op)]
    total_us = round(math.fsum(us for _, us in found) / len(facts.steps), 3)
    if total_us < MIN_SHARE * facts.mean_step_us or total_us * len(facts.steps) > MAX_SHARE * typed_us:
        return []
    longest = max(found, key=lambda each: each[1])[0]
    operators = count_text(len(found) / len(facts.steps), "operator")
    title = f"{operators} in float64: {duration_text(total_us)} per step, the longest {longest.name}"
    ops = [op for op, _ in found]
    measured = (Measured("float64 operators per step", len(found) / len(facts.steps), "operators"),)
    return [
        Finding(RULE, title, facts.sites([longest])[0].text, facts.evidence(ops), total_us, total_us, measured=measured)
    ]


def has_float64(op: CpuOp) -> bool:
    """Whether a float64 tensor is among an operator's inputs; a Python float does not count."""
    return any(kind == "double" and shape for kind, shape in zip(op.input_types, op.input_shapes, strict=False))


def _in_float64(kernels: Sequence[GpuActivity]) -> list[GpuActivity]:
    """The kernels whose names say float64, or say no type and whose operators read only float64.

    An operator that launches several kernels, itself or through other operators, does not tell the type of each.
    """
    types = [_named_type(kernel.name) for kernel in kernels]
    if any(name is None and _reads_float64(kernel.op) for kernel, name in zip(kernels, types, strict=True)):
        counts = Counter(id(op) for kernel in kernels for op in around(kernel))
    return [
        kernel
        for kernel, name in zip(kernels, types, strict=True)
        if (name == "f64" if name else _reads_float64(kernel.op) and counts[id(kernel.op)] == 1)
    ]


@cache
def _named_type(name: str) -> str | None:
    """The type in a kernel's name: `f64`, another one, or None if the name has none."""
    if dtype := decode_kernel_name(name).dtype:
        return dtype
    if _OTHER_TYPE.search(name):
        return "other"
    return "f64" if _DOUBLE.search(name) else None


def _reads_float64(op: CpuOp | None) -> bool:
    """Whether all floating-point tensors among an operator's inputs are float64; a Python float is no tensor."""
    if op is None or "double" not in op.input_types or len(op.input_types) != len(op.input_shapes):
        return False
    tensors = {kind for kind, shape in zip(op.input_types, op.input_shapes, strict=True) if shape}
    return tensors & FLOAT_TYPES.keys() == {"double"}


def _time_us(kernels: Iterable[GpuActivity]) -> float:
    return math.fsum(kernel.duration_us for kernel in kernels)


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    return f"{count_text(len(waste), 'kernel')} in float64: {duration_text(time_us)} per step"


RULE = Rule(
    name="float64-kernels",
    title="Float64 by accident",
    looks_for="In a step that mostly computes in other types, a kernel has float64 in its name. If the name has no "
    "type, the kernel's operator launches no other kernel, and its only floating-point inputs are float64. In a "
    "trace without GPU work, the rule looks for operators with such inputs. The cause is often a NumPy array or a "
    "Python list that became a tensor.",
    threshold=f"The float64 work takes at least 1 % of a step, and at most {MAX_SHARE:.0%} of the step's kernel time, "
    "or of its operators' time. A larger share is probably on purpose.",
    source=OWN,
    advice="Give the type where your code creates the tensor: `torch.as_tensor(array, dtype=torch.float32)`.",
    find=find,
    confidence="medium",
    mistaken="The computation needs float64, for example to sum very many values.",
)
