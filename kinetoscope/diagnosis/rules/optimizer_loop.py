"""An optimizer that updates one parameter after the other."""

from __future__ import annotations

from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text, share_text
from kinetoscope.diagnosis.cpu_loops import (
    busiest_place,
    called_operators,
    in_optimizer as op_in_optimizer,
    one_of_each_us,
    runs as op_runs,
)
from kinetoscope.diagnosis.cpu_times import is_cpu_only
from kinetoscope.diagnosis.facts import MIN_SHARE, Facts
from kinetoscope.diagnosis.fusing import in_optimizer
from kinetoscope.diagnosis.missing import no_gpu_work, no_operators, no_step_operators
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sites import around
from kinetoscope.diagnosis.waste import Launched, Waste, findings, launched, runs, streams
from kinetoscope.trace.events import GpuActivity, Step

MIN_KERNELS = 50
ON_CPU = (
    "Construct the optimizer with `fused=True`: Adam, AdamW, SGD and Adagrad have such an implementation for the CPU. "
    "`foreach=True` gains nothing there, since it runs the same operators."
)
_ALREADY = ("aten::_foreach_", "aten::_fused_")


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Check the work under the annotation `Optimizer.step#...` that torch.optim records."""
    if is_cpu_only(facts):
        return no_step_operators(RULE, facts) or _on_cpu(facts)
    return no_gpu_work(RULE, facts) or findings(RULE, facts, _look, _describe)


def _on_cpu(facts: Facts) -> list[Finding]:
    """The same for operators: a fused optimizer updates all parameters in one of them."""
    called = called_operators(facts)
    single = [op for op in called if op_in_optimizer(op) and not op.name.startswith(_ALREADY)]
    steps = len(facts.steps)
    if len(single) < MIN_KERNELS * steps:
        return []
    ids = set(map(id, single))
    spans = op_runs(called, lambda op: id(op) in ids)
    total_us = facts.length_us(spans)
    saving_us = round(max(0.0, total_us - one_of_each_us(single)), 3)
    if saving_us < MIN_SHARE * facts.mean_step_us:
        return []
    operators = count_text(len(single) / steps, "operator")
    title = (
        f"The optimizer runs {operators} per step, each for one tensor: {duration_text(total_us)} "
        f"({share_text(total_us, facts.mean_step_for(total_us))}) with the Python between them"
    )
    advice = "" if facts.trace.devices else ON_CPU  # with a GPU in the machine, the parameters may be on it
    measured = (Measured("operators per step", len(single) / steps, "operators"),)
    return [
        Finding(
            RULE,
            title,
            busiest_place(facts, single),
            facts.evidence(single),
            total_us,
            saving_us,
            advice,
            measured=measured,
        )
    ]


def _is_single(activity: GpuActivity) -> bool:
    """Whether it is an optimizer's kernel for a single tensor."""
    if activity.kind != "kernel" or not in_optimizer(activity):
        return False
    is_multi = "multi_tensor_apply" in activity.name or "ultiTensorApply" in activity.name
    return not is_multi and not any(op.name.startswith(_ALREADY) for op in around(activity))


def _look(step: Step) -> list[Waste]:
    if sum(map(_is_single, step.activities)) < MIN_KERNELS:
        return []
    return [_with_longest(run) for stream in streams(step) for run in runs(stream, _is_single)]


def _with_longest(run: Sequence[GpuActivity]) -> Launched:
    """The waste of a run, without the longest kernel of each parameter: a fused optimizer reads and writes each too."""
    whole = launched(run)
    longest: list[float] = []
    shape: object = None
    for activity in run:
        own = activity.op.input_shapes[:1] if activity.op else ()
        if own and own == shape:
            longest[-1] = max(longest[-1], activity.duration_us)
        elif own:
            longest.append(activity.duration_us)
            shape = own
    kept = max(sum(longest) - max(longest, default=0.0), 0.0)
    return Launched(whole.activities, max(0.0, whole.avoidable_us - kept), whole.gaps)


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    kernels = count_text(sum(len(found.activities) for found in waste), "kernel")
    takes = f"{duration_text(time_us)} per step with the gaps between them"
    return f"The optimizer runs {kernels}, each for one tensor: {takes}"


RULE = Rule(
    name="optimizer-loop",
    title="The optimizer loops over parameters",
    looks_for="Under `Optimizer.step#...`, kernels work on one tensor each, and are neither foreach nor fused "
    "kernels. In a trace without GPU work, the rule looks for operators that work on one tensor each. The ceiling "
    "includes the short gaps between these kernels. If the trace has shapes, the ceiling leaves one kernel for "
    "each parameter.",
    threshold=f"A step has at least {MIN_KERNELS} such kernels, and the ceiling is at least 1 % of the step.",
    source="PyTorch, torch.optim, for-loop, foreach and fused implementations: "
    "https://docs.pytorch.org/docs/stable/optim.html; the threshold is this book's",
    advice="Construct the optimizer with `fused=True`. If it has no fused implementation, use `foreach=True`.",
    find=find,
    needs=(no_operators,),
    confidence="medium",
    mistaken="The optimizer has neither a fused nor a foreach implementation, or its parameters are few and large.",
)
