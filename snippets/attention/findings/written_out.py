"""What a written-out forward launches, and the questions that one asks of its steps."""

from __future__ import annotations

import re
from collections.abc import Mapping

from snippets.attention.findings.measures import (
    WAYS,
    Measure,
    amount,
    at_least,
    in_steps,
    one_of,
    over,
    own_claim,
    paired,
    series_claim,
)
from snippets.lab.drawing.timeline import timeline
from snippets.lab.finding.claim import Claim
from snippets.lab.html import Html
from snippets.lab.recording.device import shown_device
from snippets.lab.trace.events import GpuActivity, Step, Trace, TraceError

# KEEP timeline

NAIVE, IN_PLACE = WAYS["naive"], WAYS["in place"]
STEPS = {
    "aten::bmm": "product",
    "aten::mul": "scaling",
    "aten::copy_": "copy",
    "aten::masked_fill_": "masking",
    "aten::_softmax": "softmax",
}
"""Operator that launches -> what it does in the formula of attention."""


# ---- operators and kernels of a step


def op_name(traced: Trace, activity: GpuActivity) -> str:
    """Name of the operator that launched an activity, empty where the trace ties it to none."""
    op = traced.op_of(activity)
    return op.name if op else ""


def launched(step: Step) -> tuple[GpuActivity, ...]:
    """Kernels and copies of a step, without its fills."""
    return tuple(one for one in step.activities if one.kind != "memset")


def of_operator(traced: Trace, step: Step, name: str, place: int = 0) -> GpuActivity:
    """The activity that an operator launched, the first one or that at `place`. Raises `TraceError` without one."""
    found = [one for one in launched(step) if op_name(traced, one) == name]
    if place >= len(found):
        raise TraceError(f"{step.name} has {len(found)} activities of {name}, not {place + 1}")
    return found[place]


def order(traced: Trace, step: Step) -> str:
    """What the kernels and copies of a step do, in their order; an operator that is not in `STEPS` by its name."""
    names = (op_name(traced, one) for one in launched(step))
    return ", ".join(STEPS.get(name, name) for name in names)


def kernel_names_of(_: Trace, step: Step) -> str:
    """Names of the kernels of a step, in their order."""
    return ", ".join(one.name for one in step.kernels)


def op_us(experiment: str, name: str, place: int = 0) -> Measure:
    """A measure: time of one activity in the trace, by the operator that launched it."""
    return amount(experiment, "us", lambda traced, step: of_operator(traced, step, name, place).duration_us)


def kernels_in_short(_: Trace, step: Step) -> str:
    """How many kernels a step runs and their names, without what stands in parentheses or angle brackets."""
    names = ", ".join(re.split(r"[(<]", one.name)[0].removeprefix("void ") for one in step.kernels)
    return f"{len(step.kernels)} kernel{'s' * (len(step.kernels) != 1)}: {names}"


# ---- what the written-out forward launches


def _copy_chain(traced: Trace, step: Step) -> str:
    """Operators from the one you write to the one that copies. Raises `TraceError` when the step copies nothing."""
    op = traced.op_of(of_operator(traced, step, "aten::copy_"))
    chain = traced.dispatch_chain(op) if op else ()
    return " > ".join(one.name for one in chain if not one.is_annotation)


def _fills(traced: Trace, step: Step) -> str:
    return ", ".join(f"{op_name(traced, one)} {one.moved_bytes} bytes" for one in step.memsets) or "none"


def _rest_percent(traced: Trace, step: Step) -> float:
    """Share of the time of kernels and copies that is no product's."""
    whole = sum(one.duration_us for one in launched(step))
    products = sum(one.duration_us for one in launched(step) if op_name(traced, one) == "aten::bmm")
    return 100 * (1 - products / whole)


def _templates(traced: Trace, step: Step) -> str:
    found = []
    for name in ("aten::mul", "aten::masked_fill_"):
        match = re.match(r"void at::native::(\w+)<", of_operator(traced, step, name).name)
        found.append(f"{STEPS[name]} {match[1] if match else 'another'}")
    return ", ".join(found)


CLAIMS: tuple[Claim, ...] = (
    series_claim(
        "A1",
        "A naive forward runs six kernels and copies: product, scaling, copy, masking, softmax, product.",
        in_steps(NAIVE, order),
        one_of("product, scaling, copy, masking, softmax, product"),
        "6: matmul, mul, memory copy, masking, softmax, matmul",
    ),
    series_claim(
        "A2",
        "Masking in place removes the copy, and five kernels are left.",
        in_steps(IN_PLACE, order),
        one_of("product, scaling, masking, softmax, product"),
        "5",
    ),
    own_claim(
        "O-A1",
        "The copy is the first thing that masked_fill does: it clones its input, then masks the clone in place.",
        in_steps(NAIVE, _copy_chain),
        one_of("aten::masked_fill > aten::clone > aten::copy_"),
    ),
    own_claim(
        "O-A2",
        "One fill of four bytes goes before the first product, and no other.",
        in_steps(NAIVE, _fills),
        one_of("aten::bmm 4 bytes"),
        scope="this-gpu",
    ),
    own_claim(
        "O-A3",
        "What is not a product takes three quarters of the forward's time on the GPU, or more.",
        amount(NAIVE, "%", _rest_percent),
        at_least(75),
        scope="timing",
    ),
    own_claim(
        "O-A4",
        "The masking kernel takes at least twice as long as the scaling kernel, which moves as many bytes.",
        over(op_us(NAIVE, "aten::masked_fill_"), op_us(NAIVE, "aten::mul")),
        at_least(2),
        scope="timing",
    ),
    own_claim(
        "O-A5",
        "Scaling runs a vectorized kernel, masking one that is not.",
        in_steps(NAIVE, _templates),
        one_of("scaling vectorized_elementwise_kernel, masking elementwise_kernel"),
        scope="this-gpu",
    ),
    own_claim(
        "O-A6",
        "Masking in place makes the forward faster by a tenth or more.",
        paired(NAIVE, IN_PLACE),
        at_least(1.1),
        scope="timing",
    ),
)


def three_forwards() -> Html:
    """Naive, in place and flash as pictures on one scale."""
    shown = {name: WAYS[name] for name in ("naive", "in place", "flash")}
    return timeline(shown, shown_device(), "One causal forward, three ways")


FIGURES: Mapping[str, Measure] = {
    "launched": in_steps(NAIVE, lambda _, step: len(launched(step))),
    "not_products": amount(NAIVE, "%", _rest_percent),
    "mask_us": op_us(NAIVE, "aten::masked_fill_"),
    "scale_us": op_us(NAIVE, "aten::mul"),
    "copy_us": op_us(NAIVE, "aten::copy_"),
}
"""The numbers of this part, `#!fig attention.<name>`."""
