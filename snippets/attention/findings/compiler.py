"""Whether a compiler finds attention in the written-out function, and what it launches where it does not."""

from __future__ import annotations

from collections.abc import Mapping

from snippets.attention.findings.traffic import attention_bytes
from snippets.attention.findings.variants import count_and_names, kernels_and_copies, op_name, per_variant
from snippets.attention.findings.written_out import operations
from snippets.lab.finding import Device, Figure, Measure, at_least, claim, equals, matches, paired_ratio, unpaired_ratio
from snippets.lab.html import Html
from snippets.lab.page import diff_table
from snippets.lab.page import show as show
from snippets.lab.trace.events import Step

NAIVE, COMPILED = "attention/naive", "attention/compiled"
NAIVE_AND_COMPILED = {"naive": NAIVE, "compiled": COMPILED}


@claim("O-A16", equals(0), scope="this-gpu")
def patterns_met(device: Device) -> Figure:
    """Inductor does not find out that the masked function is attention."""
    count = int(device["attention/compiled_code"].data["fused_attention"])
    text = f"{count} pattern{'s' * (count != 1)} of attention met"
    return Figure(count, display=text, origin="Inductor's counter fuse_attention")


@claim("O-A17", matches(r"product, triton_per_fused\w*softmax\w*, product"))
def compiled_operations(device: Device) -> Figure:
    """The compiled function runs a product, one Triton kernel for all that is between, and a product."""
    return device[COMPILED].per_step(operations)


def are_two_in_both(figure: Figure) -> bool:
    """Whether naive and compiled have two kernels, the same."""
    naive, compiled = str(figure.value).removeprefix("naive ").split("; compiled ")
    return naive == compiled and naive.count(", ") == 1


@claim("O-A18", are_two_in_both, scope="this-gpu")
def compiled_product_kernels(device: Device) -> Figure:
    """The compiled function multiplies with the same two kernels as the naive one."""

    def products(step: Step) -> str:
        return ", ".join(kernel.name for kernel in step.kernels if op_name(kernel) == "aten::bmm")

    return per_variant(device, NAIVE_AND_COMPILED, products)


@claim("O-A19", at_least(4), scope="timing")
def between_products(device: Device) -> Figure:
    """The four activities in whose place the compiler's kernel stands took at least four times as long as it does."""

    def between_us(step: Step) -> float:
        return sum(activity.duration_us for activity in kernels_and_copies(step) if op_name(activity) != "aten::bmm")

    return unpaired_ratio(device[NAIVE].per_step(between_us, "us"), device[COMPILED].per_step(between_us, "us"))


@claim("O-A20", at_least(2.5), scope="timing")
def compiled_speedup(device: Device) -> Figure:
    """Compiling makes the naive forward at least two and a half times as fast."""
    return paired_ratio(device[NAIVE], device[COMPILED])


@claim("O-A21", lambda figure: figure.value != "none", scope="this-gpu")
def attention_without_mask(device: Device) -> Figure:
    """Without a mask, Inductor finds attention in the same function and calls PyTorch's own in its place."""

    def own_attention(step: Step) -> str:
        return next((op.name for op in step.ops if op.name.startswith("aten::_scaled_dot_product")), "none")

    return device["attention/decode_compiled"].per_step(own_attention)


@claim("O-A22", matches(r"1 kernel: triton_tem_fused_flex_attention.*"))
def flex_kernel(device: Device) -> Figure:
    """FlexAttention is one kernel, generated from Inductor's template for it."""
    return device["attention/flex"].per_step(count_and_names)


def compiled_diff(device: Device) -> Html:
    """What compiling changes in a naive step, kernel by kernel."""
    caption = "From the naive forward to the compiled one"
    return diff_table(device, NAIVE_AND_COMPILED, caption, work=(attention_bytes, attention_bytes))


FIGURES: Mapping[str, Measure] = {"compiled_speedup": compiled_speedup}
