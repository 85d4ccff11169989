"""The same kernels take much longer in some steps: the GPU is throttled or shared."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, median_low

from kinetoscope.diagnosis.amounts import duration_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_gpu_work
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import GPUPROF, STEPS
from kinetoscope.diagnosis.step_facts import MIN_STEPS
from kinetoscope.trace.communication import is_collective
from kinetoscope.trace.events import GpuActivity

MIN_RATIO = 1.5
MIN_KERNEL_US = 5.0
MIN_SHARE = 0.05


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Compare each kernel with the same kernel of the other steps, if all steps run the same kernels."""
    kernels = [[a for a in step.kernels if not is_collective(a)] for step in facts.steps]
    if len(kernels) < MIN_STEPS or not kernels[0] or any(_shape(each) != _shape(kernels[0]) for each in kernels):
        reason = f"the trace lacks {MIN_STEPS} steps that run the same kernels with the same grids"
        return CannotTell(RULE, reason, STEPS)
    typical = [median_low(kernel.duration_us for kernel in same) for same in zip(*kernels, strict=True)]
    slow: list[GpuActivity] = []
    extra_us = 0.0
    worst: tuple[float, str] = (0.0, "")
    for step, each in zip(facts.steps, kernels, strict=True):
        pairs = [(kernel, usual) for kernel, usual in zip(each, typical, strict=True) if usual >= MIN_KERNEL_US]
        ratio = median(kernel.duration_us / usual for kernel, usual in pairs) if pairs else 0.0
        if ratio >= MIN_RATIO:
            slow += [kernel for kernel, usual in pairs if kernel.duration_us >= MIN_RATIO * usual]
            extra_us += sum(max(0.0, kernel.duration_us - usual) for kernel, usual in pairs)
            worst = max(worst, (ratio, step.name))
    extra_us = round(extra_us / len(facts.steps), 3)
    if extra_us < MIN_SHARE * facts.step_us:
        return []
    title = (
        f"In {worst[1]} the same kernels take {worst[0]:.1f} times as long as in other steps; "
        f"{duration_text(extra_us)} per step in all"
    )
    measured = (Measured("time against most steps", worst[0], "times"),)
    return [Finding(RULE, title, worst[1], facts.evidence(slow), extra_us, extra_us, measured=measured)]


def _shape(kernels: Sequence[GpuActivity]) -> list[object]:
    return [(kernel.name, kernel.grid) for kernel in kernels]


RULE = Rule(
    name="gpu-slowed",
    title="The GPU is throttled or shared",
    looks_for="All steps run the same kernels with the same grids in the same order, but in some steps, most kernels "
    f"of at least {MIN_KERNEL_US:.0f} µs take much longer. Lower clocks or another program on the GPU is the "
    "likely cause, not the kernels' data.",
    threshold=f"Half of a step's kernels take {MIN_RATIO} times as long as their (low) median over the steps, and the "
    f"additional time is at least {MIN_SHARE:.0%} of the median step (mean over the steps).",
    source=f"after {GPUPROF} (p99 of the steps above twice p50); to compare kernels is this book's",
    advice="The command nvidia-smi -q -d PERFORMANCE says what lowers the clocks, and nvidia-smi pmon lists the "
    "programs on the GPU. Let no other program use the GPU. To compare runs, lock the clocks.",
    find=find,
    needs=(no_gpu_work,),
    confidence="medium",
    mistaken="The time of some kernels depends on their data, as in sparse or routed work, and these steps had other "
    "data.",
)
