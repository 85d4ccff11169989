"""Whether a compiler finds attention in the written-out function, and what it launches where it does not."""

from __future__ import annotations

import re
from collections.abc import Mapping

from snippets.attention.findings.measures import (
    WAYS,
    Measure,
    amount,
    at_least,
    in_each,
    in_steps,
    one_of,
    over,
    own_claim,
    paired,
)
from snippets.attention.findings.traffic import attention_bytes
from snippets.attention.findings.written_out import NAIVE, kernels_in_short, launched, op_name, order
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure
from snippets.lab.html import Html
from snippets.lab.page.diff import diff_table
from snippets.lab.recording.device import shown_device
from snippets.lab.recording.loading import load_recording
from snippets.lab.trace.events import Step, Trace

COMPILED = WAYS["compiled"]


def _fused_attention(device: str) -> Figure:
    found = int(load_recording("attention/compiled_code", device).data["fused_attention"])
    said = f"{found} pattern{'s' * (found != 1)} of attention met"
    return Figure(found, said=said, origin="Inductor's counter fuse_attention")


def _own_attention(_: Trace, step: Step) -> str:
    """The call of PyTorch's own attention in a step; none where it makes none."""
    return next((op.name for op in step.ops if op.name.startswith("aten::_scaled_dot_product")), "none")


def _is_compiled_order(shown: Figure) -> bool:
    return re.fullmatch(r"product, triton_per_fused\w*softmax\w*, product", str(shown.value)) is not None


def _products(traced: Trace, step: Step) -> str:
    return ", ".join(one.name for one in step.kernels if op_name(traced, one) == "aten::bmm")


def _are_the_same(shown: Figure) -> bool:
    naive, compiled = str(shown.value).removeprefix("naive ").split("; compiled ")
    return naive == compiled and naive.count(", ") == 1


def _between_us(traced: Trace, step: Step) -> float:
    """Time of the kernels and copies that are no product."""
    return sum(one.duration_us for one in launched(step) if op_name(traced, one) != "aten::bmm")


CLAIMS: tuple[Claim, ...] = (
    own_claim(
        "O-A16",
        "Inductor does not find out that the masked function is attention.",
        _fused_attention,
        one_of(0),
        scope="this-gpu",
    ),
    own_claim(
        "O-A17",
        "The compiled function runs a product, one Triton kernel for all that is between, and a product.",
        in_steps(COMPILED, order),
        _is_compiled_order,
    ),
    own_claim(
        "O-A18",
        "The compiled function multiplies with the same two kernels as the naive one.",
        in_each(("naive", "compiled"), _products),
        _are_the_same,
        scope="this-gpu",
    ),
    own_claim(
        "O-A19",
        "The four activities in whose place the compiler's kernel stands took at least four times as long as it does.",
        over(amount(NAIVE, "us", _between_us), amount(COMPILED, "us", _between_us)),
        at_least(4),
        scope="timing",
    ),
    own_claim(
        "O-A20",
        "Compiling makes the naive forward at least two and a half times as fast.",
        paired(NAIVE, COMPILED),
        at_least(2.5),
        scope="timing",
    ),
    own_claim(
        "O-A21",
        "Without a mask, Inductor finds attention in the same function and calls PyTorch's own in its place.",
        in_steps("attention/decode_compiled", _own_attention),
        lambda shown: shown.value != "none",
        scope="this-gpu",
    ),
    own_claim(
        "O-A22",
        "FlexAttention is one kernel, generated from Inductor's template for it.",
        in_steps(WAYS["Flex"], kernels_in_short),
        lambda shown: str(shown.value).startswith("1 kernel: triton_tem_fused_flex_attention"),
    ),
)


def compiled_diff() -> Html:
    """What compiling changes in a naive step, kernel by kernel."""
    caption, names = "From the naive forward to the compiled one", ("naive", "compiled")
    known = (attention_bytes, attention_bytes)
    return diff_table(NAIVE, COMPILED, shown_device(), names, caption, work=known)


FIGURES: Mapping[str, Measure] = {"compiled_speedup": paired(NAIVE, COMPILED)}
"""The numbers of this part, `#!fig attention.<name>`."""
