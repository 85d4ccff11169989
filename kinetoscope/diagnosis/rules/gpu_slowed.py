"""The same kernels take much longer in some steps that do the same work: the GPU is throttled or shared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import median, median_low

from kinetoscope.diagnosis.amounts import duration_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_gpu_work
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import GPUPROF, STEPS
from kinetoscope.diagnosis.step_facts import MIN_STEPS
from kinetoscope.trace.communication import is_collective
from kinetoscope.trace.events import CpuOp, GpuActivity, Step
from kinetoscope.trace.queries import copy_direction
from kinetoscope.trace.step_kinds import MIN_RATIO_OF_EQUAL, has_shapes
from kinetoscope.trace.text import without_numbers

MIN_RATIO = 1.5
MIN_KERNEL_US = 5.0
MIN_SHARE = 0.05
SHAPES = "record_shapes=True, and record_function around each kind of step"


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Compare each kernel with the same kernel of the other steps that do the same work."""
    alike = [steps for steps in _by_work(facts.steps) if len(steps) >= MIN_STEPS]
    if 2 * sum(map(len, alike)) < len(facts.steps) or not alike:
        reason = f"the trace lacks {MIN_STEPS} steps that run the same kernels with the same grids and shapes"
        return CannotTell(RULE, reason, STEPS)
    slow: list[GpuActivity] = []
    extra_us = 0.0
    worst: tuple[float, str] = (0.0, "")
    unsure: tuple[float, str] = (0.0, "")
    for steps in alike:
        is_known = has_shapes(steps[0])
        for step, ratio, pairs in _compared(steps):
            if ratio >= MIN_RATIO_OF_EQUAL and not is_known:
                unsure = max(unsure, (ratio, step.name))
            elif ratio >= MIN_RATIO:
                slow += [kernel for kernel, usual in pairs if kernel.duration_us >= MIN_RATIO * usual]
                extra_us += sum(max(0.0, kernel.duration_us - usual) for kernel, usual in pairs)
                worst = max(worst, (ratio, step.name))
    extra_us = round(extra_us / len(facts.steps), 3)
    if extra_us < MIN_SHARE * facts.step_us:
        return _unsure(*unsure) if unsure[0] else []
    title = (
        f"In {worst[1]} the same kernels take {worst[0]:.1f} times as long as in other steps; "
        f"{duration_text(extra_us)} per step in all"
    )
    measured = (Measured("time against most steps", worst[0], "times"),)
    return [Finding(RULE, title, worst[1], facts.evidence(slow), extra_us, extra_us, measured=measured)]


def _unsure(ratio: float, name: str) -> CannotTell:
    """A slower clock seldom makes a kernel so slow, and without shapes, the step may do other work."""
    reason = f"in {name} the same kernels take {ratio:.1f} times as long, and without shapes it may do other work"
    return CannotTell(RULE, reason, SHAPES)


def _compared(steps: Sequence[Step]) -> Iterator[tuple[Step, float, list[tuple[GpuActivity, float]]]]:
    """Each step with the median ratio of its kernels' times to the usual ones, and the kernels with these."""
    kernels = list(map(_kernels, steps))
    typical = [median_low(kernel.duration_us for kernel in same) for same in zip(*kernels, strict=True)]
    for step, each in zip(steps, kernels, strict=True):
        pairs = [(kernel, usual) for kernel, usual in zip(each, typical, strict=True) if usual >= MIN_KERNEL_US]
        yield step, median(kernel.duration_us / usual for kernel, usual in pairs) if pairs else 0.0, pairs


def _kernels(step: Step) -> list[GpuActivity]:
    return [kernel for kernel in step.kernels if not is_collective(kernel)]


def _by_work(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps with kernels in groups that do the same work, as far as the trace tells.

    They launch the same kernels with the same grids, shapes and CUDA graphs, in the same annotations, and upload as
    much. Numbers in names of annotations count if several steps have them: `batch 12` is only a number.
    """
    annotations: dict[int, tuple[str, ...]] = {}
    for op in {id(a.op): a.op for step in steps for a in step.kernels if a.op is not None}.values():
        annotations[id(op)] = tuple(each.name for each in op.chain if each.is_annotation)
    counts = Counter(step.name for step in steps)
    for step in steps:
        counts.update({name for a in step.kernels if a.op is not None for name in annotations[id(a.op)]} - {step.name})
    names = {name: name if count > 1 else without_numbers(name) for name, count in counts.items()}
    named = {key: tuple(names.get(name, name) for name in each) for key, each in annotations.items()}
    groups: dict[object, list[Step]] = defaultdict(list)
    for step in steps:
        if kernels := _kernels(step):
            launched = tuple(_launched(kernel, named) for kernel in kernels)
            groups[names[step.name], launched, _uploaded(step)].append(step)
    return list(groups.values())


def _launched(kernel: GpuActivity, annotations: dict[int, tuple[str, ...]]) -> object:
    op: CpuOp | None = kernel.op
    around = ((), ()) if op is None else (op.input_shapes, annotations[id(op)])
    return kernel.name, kernel.grid, kernel.block, kernel.graph_id, around


def _uploaded(step: Step) -> tuple[int, ...]:
    """The sizes of a step's copies to the GPU."""
    uploads = (copy for copy in step.memcpys if copy_direction(copy.name) == "HtoD")
    return tuple(sorted(copy.moved_bytes or 0 for copy in uploads))


RULE = Rule(
    name="gpu-slowed",
    title="The GPU is throttled or shared",
    looks_for="Steps do the same work: they run the same kernels with the same grids in the same order, with the same "
    "shapes and annotations where the trace has them, and upload as many bytes. But in some of these steps, most "
    f"kernels of at least {MIN_KERNEL_US:.0f} µs take much longer. Lower clocks or another program on the GPU is the "
    "likely cause, not the kernels' data.",
    threshold=f"Half of a step's kernels take {MIN_RATIO} times as long as their (low) median over the steps, and the "
    f"additional time is at least {MIN_SHARE:.0%} of the median step (mean over the steps). Without shapes, a step "
    f"from {MIN_RATIO_OF_EQUAL:.0f} times on may do other work, and the rule cannot tell.",
    source=f"after {GPUPROF} (p99 of the steps above twice p50); to compare kernels is this book's",
    advice="The command nvidia-smi -q -d PERFORMANCE says what lowers the clocks, and nvidia-smi pmon lists the "
    "programs on the GPU. Let no other program use the GPU. To compare runs, lock the clocks.",
    find=find,
    needs=(no_gpu_work,),
    confidence="medium",
    mistaken="The time of some kernels depends on their data, as in sparse or routed work, and these steps had other "
    "data.",
)
