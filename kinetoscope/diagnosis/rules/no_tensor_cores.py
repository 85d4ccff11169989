"""Products on the ordinary units of a GPU that has Tensor Cores."""

from __future__ import annotations

from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_gpu_work
from kinetoscope.diagnosis.peaks import find_peaks
from kinetoscope.diagnosis.products import (
    TENSOR_CORES_SINCE,
    compute_capability,
    is_amd,
    is_product,
    least_half_us,
    runs_on_ordinary_units,
    tile_sides,
)
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.sources import TENSORBOARD
from kinetoscope.diagnosis.waste import Waste, findings
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.work import ActivityWork, step_work

MIN_SIDE = 16
MIN_TILE = 64


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Check the names of kernels, and the shapes if the trace has them."""
    trace = facts.trace
    if is_amd(trace.device) and any(is_product(a) for step in facts.steps for a in step.activities):
        return CannotTell(RULE, "the names of AMD's kernels do not say whether they use Matrix Cores", "")
    if not any(runs_on_ordinary_units(a) for step in facts.steps for a in step.activities):
        return []
    capability = compute_capability(trace.device_properties, trace.device)
    if capability is None:
        return CannotTell(RULE, "the trace does not say whether its GPU has Tensor Cores", "")
    if capability < TENSOR_CORES_SINCE:
        return []
    peaks = find_peaks(trace.device)

    def look(step: Step) -> list[Waste]:
        return [
            Waste((activity,), max(0.0, activity.duration_us - least_half_us(activity, work, peaks)))
            for activity, work in zip(step.activities, step_work(step, of=runs_on_ordinary_units), strict=True)
            if runs_on_ordinary_units(activity) and _is_eligible(activity, work)
        ]

    return findings(RULE, facts, look, _describe)


def _is_eligible(activity: GpuActivity, work: ActivityWork | None) -> bool:
    """Whether no side is so short that Tensor Cores would idle. Without shapes, a large tile shows two long sides."""
    if work is not None and work.matmul is not None:
        return min(work.matmul) >= MIN_SIDE
    sides = tile_sides(activity)
    return len(sides) == 2 and min(sides) >= MIN_TILE


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    return f"{count_text(len(waste), 'product')} without Tensor Cores: {duration_text(time_us)} per step"


RULE = Rule(
    name="no-tensor-cores",
    title="Products do not use Tensor Cores",
    looks_for="On a GPU with Tensor Cores, a kernel of a matrix product or convolution has a name that says that it "
    "doesn't use them (sgemm, simt, ffma). Most such products are in float32, with TF32 off. Float64 doesn't count.",
    threshold=f"Every side of the product is at least {MIN_SIDE} long. If the trace has no shapes, the kernel's tile "
    f"is at least {MIN_TILE}x{MIN_TILE}. The ceiling, at the peak of 16-bit products, is at least 1 % of a step.",
    source=f"{TENSORBOARD} (eligible operators, none on Tensor Cores); sides, tiles and the share are this book's",
    advice="Multiply in bfloat16 (`torch.autocast`), or allow TF32 for float32 products on Ampere and newer: "
    "`torch.set_float32_matmul_precision('high')`.",
    find=find,
    needs=(no_gpu_work,),
    confidence="medium",
    mistaken="The products need the full precision of float32.",
)
