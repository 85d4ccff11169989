"""Less traffic: a faster forward, faster training, and the kernels of training that the bandwidth limits."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.queries import kernel_time_us
from kinetoscope.trace.work import ActivityWork, step_work
from snippets.fact_check.findings.datasheet import peaks_of
from snippets.fact_check.findings.sources import ANYWHERE, digest, news
from snippets.lab.finding import Device, Figure, Measure, Run, at_least, claim
from snippets.lab.finding.measure import paired_difference, paired_ratio, smallest
from snippets.mlp.findings.steps import pointwise
from snippets.training_memory.findings.steps import is_matmul, run_of, share_of_gpu_time

WITH_BF16 = ("autocast", "bfloat16")
"""Training steps that are recorded eager and compiled."""


def _pointwise_us(run: Run) -> Figure:
    return run.per_step(lambda step: kernel_time_us(pointwise(step)), "us")


@claim("FC45", at_least(50), scope="timing", source=digest("which is where much of the speedup comes from", ANYWHERE))
def saved_by_the_round_trip(device: Device) -> Figure:
    """Much of the speedup comes from the tensor that is no longer written and read: of the GPU time that compiling
    saves in the MLP's forward, at least half is time that the pointwise kernels save in the trace."""
    eager, compiled = device["mlp/eager"], device["mlp/compiled"]
    shorter = _pointwise_us(eager).number - _pointwise_us(compiled).number
    saved = paired_difference(eager, compiled)
    shares = sorted(100 * shorter / us for us in saved.bounds)
    return Figure(100 * shorter / saved.number, "%", (shares[0], shares[-1]), saved.origin)


@claim("FC46", at_least(1.02), scope="timing", source=news("Fewer trips means faster training", ANYWHERE))
def faster_training(device: Device) -> Figure:
    """Fewer trips to memory make training faster: an eager training step of the MLP takes at least 2 % longer than a
    compiled step, both under autocast and with bf16 weights."""
    return smallest(
        *(
            paired_ratio(run_of(device, variant), run_of(device, f"{variant}_compiled"), "iteration")
            for variant in WITH_BF16
        )
    )


def other_than_products(device: Device, variant: str) -> Figure:
    """The share of the GPU's time of a training step in kernels that multiply no matrices."""
    products = share_of_gpu_time(run_of(device, variant), lambda step: filter(is_matmul, step.activities))
    low, high = products.bounds
    return Figure(100 - products.number, "%", (100 - high, 100 - low), products.origin)


@claim("FC48", at_least(20), scope="timing")
def near_the_bandwidth(device: Device) -> Figure:
    """In an eager training step under autocast, kernels that move the bytes of their shapes at half of the datasheet's
    bandwidth or more take at least a fifth of the GPU's time."""
    run = run_of(device, "autocast")
    peaks = peaks_of(run.environment.device)

    def is_near(activity: GpuActivity, work: ActivityWork | None) -> bool:
        return work is not None and not is_matmul(activity) and 2 * peaks.memory_us(work.bytes) >= activity.duration_us

    def near(step: Step) -> list[GpuActivity]:
        works = zip(step.activities, step_work(step), strict=True)
        return [activity for activity, work in works if is_near(activity, work)]

    return share_of_gpu_time(run, near)


FIGURES: Mapping[str, Measure] = {
    "others_under_autocast": lambda device: other_than_products(device, "autocast"),
    "others_compiled": lambda device: other_than_products(device, "autocast_compiled"),
}
