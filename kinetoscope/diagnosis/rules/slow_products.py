"""Products that take several times the time that their shape needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import MIN_SHARE, Facts
from kinetoscope.diagnosis.missing import no_gpu_work, unseen
from kinetoscope.diagnosis.peaks import find_peaks
from kinetoscope.diagnosis.products import is_product, least_us, runs_on_ordinary_units
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.sources import TRACELENS
from kinetoscope.diagnosis.waste import Waste, findings
from kinetoscope.trace.communication import collectives
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.intervals import intersect, interval, union_of
from kinetoscope.trace.work import step_work

LATENCY_US = 10.0
"""Added to the roof: a short product waits for its first and last blocks, and no fix removes that."""
MAX_TIMES_ROOF = 3


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Compare times with shapes and the device's datasheet."""
    trace = facts.trace
    peaks = find_peaks(trace.device)
    if peaks is None:
        product_us = sum(a.duration_us for step in facts.steps for a in step.activities if is_product(a))
        if product_us >= MIN_SHARE * facts.long_run_us * len(facts.steps) > 0:
            return CannotTell(RULE, f"the peaks of {trace.device or 'the device'} are not known here", "")
        return []

    def look(step: Step) -> list[Waste]:
        found = []
        for activity, work in zip(step.activities, step_work(step, of=is_product), strict=True):
            least = least_us(activity, work, peaks)
            if least is None or runs_on_ordinary_units(activity):
                continue
            if activity.duration_us > MAX_TIMES_ROOF * (least + LATENCY_US) and not _is_beside(activity, step):
                found.append(Waste((activity,), activity.duration_us - least))
        return found

    return findings(RULE, facts, look, _describe)


def _is_beside(product: GpuActivity, step: Step) -> bool:
    """Whether a collective runs on the same GPU at the same time: both share the SMs and the memory."""
    others = union_of(each for each in collectives(step) if each.device == product.device)
    return bool(intersect([interval(product)], others))


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    least_us = sum(found.activities[0].duration_us - found.avoidable_us for found in waste)
    return (
        f"{count_text(len(waste), 'product')} far below the roof of their shape: {duration_text(time_us)} per step, "
        f"where the datasheet's rates need {duration_text(least_us)}"
    )


RULE = Rule(
    name="slow-products",
    title="Products far below the ceiling for their shape",
    looks_for="A matrix product takes several times as long as the GPU needs for its operations and bytes, by the "
    "datasheet. The library has no good kernel for such a shape or layout. A product next to a collective doesn't "
    "count, because both share the GPU. Products without Tensor Cores have a separate rule.",
    threshold="By the datasheet, a product has a time for its operations at the dense peak of its type, and a time "
    f"for its bytes at the peak bandwidth. The kernel takes more than {MAX_TIMES_ROOF} times the longer time, plus "
    f"{LATENCY_US:.0f} µs for latency. The ceiling is at least 1 % of a step.",
    source=f"{TRACELENS} (efficiency against the roofline); the threshold is this book's",
    advice="Pad sides to multiples of 64 elements, batch or stack small products, and store factors contiguously "
    "along the summed side. Also compare with `mode='max-autotune'`.",
    find=find,
    needs=(no_gpu_work, partial(unseen, concerns=is_product, needs_shapes=True)),
    confidence="low",
    mistaken="The GPU's clocks are lowered, or the model gives the sizes and no library has a faster kernel.",
)
