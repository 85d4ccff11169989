"""The variants of the chapter, and the kernels of the written-out ones: plain, and with the mask in place."""

import re
from collections.abc import Callable, Iterable, Mapping

from kinetoscope.html import Html
from kinetoscope.trace.events import GpuActivity, Step, TraceError
from kinetoscope.trace.queries import op_name
from snippets.lab.finding import Device, Figure, Measure, Run, Source, at_least, claim, equals, listed
from snippets.lab.finding.measure import paired_ratio, unpaired_ratio
from snippets.lab.page import show as show, timeline, waiting as waiting

VARIANTS = {
    "naive": "attention/naive",
    "in place": "attention/in_place",
    "math": "attention/math",
    "efficient": "attention/efficient",
    "flash": "attention/flash",
    "cuDNN": "attention/cudnn",
    "auto": "attention/auto",
    "compiled": "attention/compiled",
    "Flex": "attention/flex",
}
"""Every variant of one forward: name on the page -> experiment."""
EIGHT = {heading: experiment for heading, experiment in VARIANTS.items() if heading != "auto"}
"""All variants but `auto`, which runs one of the others."""
ONE_KERNEL = ("efficient", "flash", "cuDNN", "Flex")
"""The variants that do not write the scores to memory."""
OPENING = {
    "forward": {"naive": "attention/naive", "flash": "attention/flash", "cuDNN": "attention/cudnn"},
    "forward and backward": {
        "naive": "attention/training_naive",
        "flash": "attention/training_flash",
        "cuDNN": "attention/training_cudnn",
    },
}
"""The panels of the chapter's first figure, each with its rows."""
NAIVE, IN_PLACE = VARIANTS["naive"], VARIANTS["in place"]
OPERATIONS = {
    "aten::bmm": "product",
    "aten::mul": "scaling",
    "aten::copy_": "copy",
    "aten::masked_fill_": "masking",
    "aten::_softmax": "softmax",
}
"""Launching operator -> its part in the formula of attention."""


def kernels_and_copies(step: Step) -> tuple[GpuActivity, ...]:
    """The activities of a step without its memsets."""
    return tuple(activity for activity in step.activities if activity.kind != "memset")


def first_of(step: Step, operator: str) -> GpuActivity:
    """The first kernel or memcpy that an operator launched. Raises `TraceError` if there is none."""
    for activity in kernels_and_copies(step):
        if op_name(activity) == operator:
            return activity
    raise TraceError(f"{step.name} has no kernel or copy of {operator}")


def first_us(run: Run, operator: str) -> Figure:
    """Time of the first kernel or memcpy of an operator."""
    return run.per_step(lambda step: first_of(step, operator).duration_us, "us")


def count_and_names(step: Step) -> str:
    """The number of a step's kernels and their names, without text in parentheses or angle brackets."""
    names = ", ".join(re.split(r"[(<]", kernel.name)[0].removeprefix("void ") for kernel in step.kernels)
    return f"{len(step.kernels)} kernel{'s' * (len(step.kernels) != 1)}: {names}"


def per_variant(device: Device, headings: Iterable[str], of: Callable[[Step], int | str]) -> Figure:
    """A value of the steps of several variants, as `math X; naive Y`."""
    return listed({heading: device[VARIANTS[heading]].per_step(of) for heading in headings}, "; ")


def operations(step: Step) -> str:
    """The operations of a step's kernels and memcpys, in order; an operator outside `OPERATIONS` by its name."""
    names = map(op_name, kernels_and_copies(step))
    return ", ".join(OPERATIONS.get(name, name) for name in names)


@claim(
    "A1",
    equals("product, scaling, copy, masking, softmax, product"),
    source=Source("Part 3", "6: matmul, mul, memory copy, masking, softmax, matmul"),
)
def naive_operations(device: Device) -> Figure:
    """A naive forward runs six kernels and copies: product, scaling, copy, masking, softmax, product."""
    return device[NAIVE].per_step(operations)


@claim("A2", equals("product, scaling, masking, softmax, product"), source=Source("Part 3", "5"))
def in_place_operations(device: Device) -> Figure:
    """Masking in place removes the copy of naive attention and leaves five kernels."""
    return device[IN_PLACE].per_step(operations)


@claim("O-A1", equals("aten::masked_fill > aten::clone > aten::copy_"))
def copy_chain(device: Device) -> Figure:
    """In a naive forward, masked_fill first clones its input, then masks the clone in place."""

    def chain(step: Step) -> str:
        op = first_of(step, "aten::copy_").op
        return " > ".join(caller.name for caller in (op.chain if op else ()) if not caller.is_annotation)

    return device[NAIVE].per_step(chain)


@claim("O-A2", equals("aten::bmm 4 bytes"), scope="this-gpu")
def one_fill(device: Device) -> Figure:
    """The only fill of a naive forward writes four bytes, before the first product."""
    return device[NAIVE].per_step(
        lambda step: ", ".join(f"{op_name(fill)} {fill.moved_bytes} bytes" for fill in step.memsets) or "none"
    )


@claim("O-A3", at_least(75), scope="timing")
def not_products(device: Device) -> Figure:
    """In a naive forward, all kernels and copies except the two products take at least 75 % of the kernel time."""

    def percent(step: Step) -> float:
        activities = kernels_and_copies(step)
        products = sum(activity.duration_us for activity in activities if op_name(activity) == "aten::bmm")
        return 100 * (1 - products / sum(activity.duration_us for activity in activities))

    return device[NAIVE].per_step(percent, "%")


@claim("O-A4", at_least(2), scope="timing")
def masking_over_scaling(device: Device) -> Figure:
    """In the trace of naive attention, the masking kernel takes at least twice as long as the scaling kernel."""
    return unpaired_ratio(first_us(device[NAIVE], "aten::masked_fill_"), first_us(device[NAIVE], "aten::mul"))


@claim("O-A5", equals("scaling vectorized_elementwise_kernel, masking elementwise_kernel"), scope="this-gpu")
def templates(device: Device) -> Figure:
    """Naive attention scales with a vectorized kernel, and masks with a kernel that isn't vectorized."""

    def template(step: Step, operator: str) -> str:
        match = re.match(r"void at::native::(\w+)<", first_of(step, operator).name)
        return f"{OPERATIONS[operator]} {match[1] if match else 'another'}"

    return device[NAIVE].per_step(lambda step: f"{template(step, 'aten::mul')}, {template(step, 'aten::masked_fill_')}")


@claim("O-A6", at_least(1.1), scope="timing")
def in_place_speedup(device: Device) -> Figure:
    """The naive forward takes at least 1.1 times as long as the forward that masks in place."""
    return paired_ratio(device[NAIVE], device[IN_PLACE])


def three_forwards(device: Device) -> Html:
    """Naive, in place and flash as pictures on one scale."""
    variants = {heading: VARIANTS[heading] for heading in ("naive", "in place", "flash")}
    return timeline(device, variants, "One causal forward of three variants")


FIGURES: Mapping[str, Measure] = {
    "launched": lambda device: device[NAIVE].per_step(lambda step: len(kernels_and_copies(step))),
    "mask_us": lambda device: first_us(device[NAIVE], "aten::masked_fill_"),
    "scale_us": lambda device: first_us(device[NAIVE], "aten::mul"),
}
