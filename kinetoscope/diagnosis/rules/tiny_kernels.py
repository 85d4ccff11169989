"""Hundreds of kernels that are shorter than their launches."""

from __future__ import annotations

from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_gpu_work
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.sources import CPU_AND_GPU, NSYS_AI
from kinetoscope.diagnosis.waste import Waste, findings, launched, runs, streams
from kinetoscope.trace.events import GpuActivity, Step

TINY_US = 10.0
MIN_KERNELS = 200
MIN_SHARE_OF_LAUNCHES = 0.5
MIN_SHARE_OF_TIME = 0.1


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Find steps with many tiny kernels that take enough of the step."""
    steps = facts.steps
    kernels = [a for step in steps for a in step.activities if a.kind == "kernel"]
    unlaunched = sum(kernel.launch is None for kernel in kernels)
    if unlaunched * 2 > len(kernels) and len(kernels) >= MIN_KERNELS * len(steps):
        return CannotTell(RULE, "the trace does not say which kernels were launched one by one", CPU_AND_GPU)
    found = findings(RULE, facts, _look, _describe)
    return [each for each in found if each.evidence_us_per_step >= MIN_SHARE_OF_TIME * facts.long_run_us]


def _is_tiny(activity: GpuActivity) -> bool:
    """Whether it is a short kernel with a launch of its own: a CUDA graph launches its kernels on the GPU."""
    return (
        activity.kind == "kernel"
        and activity.duration_us < TINY_US
        and activity.launch is not None
        and "Graph" not in activity.launch.name
    )


def _look(step: Step) -> list[Waste]:
    tiny = sum(map(_is_tiny, step.activities))
    if tiny < max(MIN_KERNELS, MIN_SHARE_OF_LAUNCHES * len(step.kernels)):
        return []
    return [launched(run) for stream in streams(step) for run in runs(stream, _is_tiny)]


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    kernels = count_text(sum(len(found.activities) for found in waste), "kernel")
    return f"{kernels} shorter than {TINY_US:.0f} µs in a step: {duration_text(time_us)} with the gaps between them"


RULE = Rule(
    name="tiny-kernels",
    title="Many tiny kernels",
    looks_for="Kernels are so short that launching a kernel takes about as long as running the kernel. Kernels from "
    "a CUDA graph don't count. The ceiling replaces each series of tiny kernels, with the short gaps between them, "
    "by one kernel.",
    threshold=f"At least {MIN_KERNELS} kernels of a step are shorter than {TINY_US:.0f} µs. These kernels are at "
    f"least {MIN_SHARE_OF_LAUNCHES:.0%} of the step's kernels. With the gaps between them, they take at least "
    f"{MIN_SHARE_OF_TIME:.0%} of the step.",
    source=f"{NSYS_AI} (thousands of kernels below 10 µs); count and shares are this book's",
    advice="Compile the code (`torch.compile`; `mode='reduce-overhead'` replays the kernels as a CUDA graph), give "
    "the GPU more work at once with a larger batch, and replace loops over tensors by foreach or batched operators.",
    find=find,
    needs=(no_gpu_work,),
    confidence="medium",
    mistaken="The profiler makes the gaps between launches longer. Without the profiler, the kernels may follow each "
    "other without gaps.",
)
