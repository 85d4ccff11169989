"""The articles' claims about less traffic: a faster forward, faster training, and a bottleneck of memory."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.trace.queries import kernel_time_us
from snippets.fact_check.findings.sources import deep_dive, digest, news
from snippets.fact_check.findings.structure import ANYWHERE
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
    """Much of the speedup comes from the round trip that is gone: of the time that compiling saves in the MLP's
    forward, interleaved, at least half is what the pointwise part takes less in the trace."""
    eager, compiled = device["mlp/eager"], device["mlp/compiled"]
    shorter = _pointwise_us(eager).number - _pointwise_us(compiled).number
    saved = paired_difference(eager, compiled)
    shares = sorted(100 * shorter / us for us in saved.bounds)
    return Figure(100 * shorter / saved.number, "%", (shares[0], shares[-1]), saved.origin)


@claim("FC46", at_least(1.02), scope="timing", source=news("Fewer trips means faster training", ANYWHERE))
def faster_training(device: Device) -> Figure:
    """Fewer trips to memory make training faster: compiled, a training step of the MLP takes less time, under autocast
    and with bf16 weights."""
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


@claim(
    "FC48", at_least(50), scope="timing", source=deep_dive("Memory bandwidth is often the bottleneck there", ANYWHERE)
)
def bottleneck_under_autocast(device: Device) -> Figure:
    """In mixed-precision training, memory bandwidth is often the bottleneck; here: under autocast and without the
    compiler, kernels that multiply no matrices take at least half of the GPU's time of a step."""
    return other_than_products(device, "autocast")


FIGURES: Mapping[str, Measure] = {
    "bottleneck_compiled": lambda device: other_than_products(device, "autocast_compiled")
}
