"""Whether the steps get longer and longer, and what grows with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from statistics import correlation, median

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.trace.events import Step
from kinetoscope.trace.marks import ITERATIONS
from kinetoscope.trace.step_kinds import work_us
from kinetoscope.trace.units import format_value

MIN_STEPS, MANY_STEPS = 10, 20
MIN_CORRELATION, MIN_CORRELATION_OF_FEW = 0.8, 0.9
"""Least rank correlation of a step's time with its number, from `MANY_STEPS` on, and below."""
MIN_GROWTH = 1.1
"""Least ratio of the median times of the last and the first third of the steps. The profiler alone makes less."""


def drift_text(facts: Facts) -> str:
    """That the steps get longer and longer, by how much and with what, in two sentences; empty if they do not.

    Steps of several kinds, and of several processes in one file, take other times for other reasons.
    """
    steps = facts.steps
    if len(steps) < MIN_STEPS or facts.kinds or facts.trace.processes:
        return ""
    times = list(map(facts.long_run_of, steps))
    least = MIN_CORRELATION if len(steps) >= MANY_STEPS else MIN_CORRELATION_OF_FEW
    first, last = _thirds(times)
    if last < MIN_GROWTH * first or _rank_correlation(times) < least:
        return ""
    unit = "token" if facts.is_token_loop else "iteration" if facts.trace.steps_from == ITERATIONS else "step"
    grows = f"{format_value(first, 'us')} in the first third of the {unit}s, {format_value(last, 'us')} in the last"
    return f"{'An' if unit[0] == 'i' else 'A'} {unit} takes longer and longer: {grows}. {_cause(facts, last - first)}"


def _cause(facts: Facts, growth_us: float) -> str:
    """What grows with the steps, in a sentence."""
    steps, has_gpu = facts.steps, facts.has_gpu
    few, many = _thirds(list(map(_count, steps)))
    if many >= MIN_GROWTH * few > 0:
        what = "kernels" if has_gpu else "operators"
        return f"They run more {what}: {few:,.0f} in the first third, {many:,.0f} in the last."
    less_us, more_us = _thirds(list(map(work_us, steps)))
    if 2 * (more_us - less_us) < growth_us:
        return "The kernels do not: the GPU is idle longer." if has_gpu else "The operators do not: code outside does."
    if facts.is_token_loop:
        return "This is expected where a cache grows, because attention reads it for each token."
    if not has_gpu:
        return "The operators take longer."
    if _sizes(steps[0]) == _sizes(steps[-1]):
        return (
            "The same kernels take longer: lower clocks, another program on the GPU, or other data in the same grids."
        )
    return "The kernels have more to do: as many run, with other sizes."


def _thirds(values: Sequence[float]) -> tuple[float, float]:
    """The medians of the first and of the last third."""
    count = len(values) // 3
    return median(values[:count]), median(values[-count:])


def _rank_correlation(values: Sequence[float]) -> float:
    """Spearman's correlation of values, which are not all equal, with their places; equal values share their ranks."""
    ranks = [0.0] * len(values)
    order = sorted(range(len(values)), key=values.__getitem__)
    before = 0
    for _, group in groupby(order, values.__getitem__):
        places = list(group)
        for place in places:
            ranks[place] = before + (len(places) - 1) / 2
        before += len(places)
    return correlation(ranks, range(len(values)))


def _count(step: Step) -> float:
    return float(len(step.kernels) or sum(not op.is_annotation for op in step.ops))


def _sizes(step: Step) -> Counter[object]:
    return Counter((kernel.name, kernel.grid) for kernel in step.kernels)
