"""An article's two times for a block on an A100, compared with the A100's datasheet: derived, not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kinetoscope.diagnosis.peaks import Peaks, find_peaks
from kinetoscope.html import Cell, Html, table
from snippets.fact_check.findings.block import AFTER_US, PLAIN_US, rounded_tokens
from snippets.fact_check.findings.sources import A100
from snippets.fact_check.findings.sweep import EXPERIMENT, PRECISIONS, time_at, tokens_taking
from snippets.lab.finding import Device, Figure, Measure, NotTimed, at_least, claim, format_value, smallest
from snippets.lab.page import figure_cell, show as show

DIM, HIDDEN = 1024, 4096
FLOPS = 2 * 2 * DIM * HIDDEN
"""Of both products, for each token."""
GELU_BYTES: Mapping[str, int] = {"bfloat16": 2 * 2 * HIDDEN, "tf32": 2 * 4 * HIDDEN, "float32": 2 * 4 * HIDDEN}
"""What GELU reads and writes for each token, by the arithmetic of the products."""


def peaks_of(name: str) -> Peaks:
    """The peaks of a GPU, by its datasheet; for an A100 of unknown size, those with the slower memory.

    Raises `NotTimed` for a GPU whose datasheet is not listed.
    """
    peaks = find_peaks(name)
    if peaks is None:
        raise NotTimed(f"no datasheet of an {name} is listed")
    return peaks


def a_token_us(name: str, arithmetic: str) -> float:
    """The least time of a GPU for both products of a token. Raises `NotTimed`."""
    us = peaks_of(name).product_us(FLOPS, arithmetic)
    if us is None:
        raise NotTimed(f"the datasheet of an {name} has no peak of {PRECISIONS[arithmetic]}")
    return us


def a100_tokens(arithmetic: str, us: float, share: float = 1.0) -> Figure:
    """The number of tokens whose products alone take this long on an A100, at a share of its peak."""
    return rounded_tokens(share * us / a_token_us(A100, arithmetic), f"{peaks_of(A100).source}, derived")


def share_of_peak(device: Device, arithmetic: str) -> Figure:
    """How near the whole block comes to the datasheet's peak of products on this GPU, where it takes 2.1 ms.

    Raises `NotTimed`.
    """
    tokens = tokens_taking(device, arithmetic, "block", PLAIN_US)
    us = tokens * a_token_us(device[EXPERIMENT].environment.device, arithmetic)
    return Figure(100 * us / PLAIN_US, "%", origin=f"{EXPERIMENT}, {PRECISIONS[arithmetic]}, over the datasheet's peak")


def a100_tokens_at_share(device: Device, arithmetic: str) -> Figure:
    """The number of tokens at which the block takes 2.1 ms on an A100 that reaches the same share of its peak."""
    return a100_tokens(arithmetic, PLAIN_US, share_of_peak(device, arithmetic).number / 100)


def left_for_gelu() -> Figure:
    """The time that fusing saves, by the article."""
    return Figure(PLAIN_US - AFTER_US, "us", origin="the article's two times")


def a100_gelu_rate(arithmetic: str = "bfloat16") -> Figure:
    """The share of an A100's bandwidth at which GELU takes the time that fusing saves, at the most tokens whose
    products still fit into the fused time. With fewer tokens, the share is smaller."""
    tokens = AFTER_US / a_token_us(A100, arithmetic)
    us = peaks_of(A100).memory_us(tokens * GELU_BYTES[arithmetic])
    return Figure(100 * us / left_for_gelu().number, "%", origin=f"{peaks_of(A100).source}, derived")


def gelu_rate(device: Device, arithmetic: str) -> Figure:
    """The share of this GPU's bandwidth at which GELU moves its tensors, where the block takes 2.1 ms.

    Raises `NotTimed`.
    """
    tokens = tokens_taking(device, arithmetic, "block", PLAIN_US)
    least_us = peaks_of(device[EXPERIMENT].environment.device).memory_us(tokens * GELU_BYTES[arithmetic])
    gelu = time_at(device, arithmetic, tokens, "gelu")
    low, high = gelu.bounds
    return Figure(100 * least_us / gelu.number, "%", (100 * least_us / high, 100 * least_us / low), gelu.origin)


@claim("FC42", at_least(50), scope="timing")
def least_gelu_rate(device: Device) -> Figure:
    """Where a block of Linear, GELU and Linear takes 2.1 ms, GELU alone moves its two tensors at half of the
    datasheet's bandwidth or more, in each arithmetic."""
    return smallest(*(gelu_rate(device, arithmetic) for arithmetic in PRECISIONS))


def by_datasheet(device: Device) -> Html:
    """An A100's tokens by its datasheet: the most for each of the article's times, and those at this GPU's share."""
    rows: list[Sequence[Cell]] = []
    for arithmetic, name in PRECISIONS.items():
        peak = format_value(1e6 * FLOPS / a_token_us(A100, arithmetic), "flop/s")
        most, after = (a100_tokens(arithmetic, us).text for us in (PLAIN_US, AFTER_US))
        rows.append([name, peak, most, *_at_share(device, arithmetic), after])
    before_us, after_us = (format_value(us, "us") for us in (PLAIN_US, AFTER_US))
    short = device.short_name
    head = ["type of the products", "peak of an A100", f"tokens that take {before_us} at the peak"]
    head += [
        f"{short}'s share of its peak",
        f"tokens that take {before_us} at that share",
        f"tokens that take {after_us} at the peak",
    ]
    return table(
        "How many tokens fit the article's times on an A100: derived from its datasheet, not measured", head, rows
    )


def _at_share(device: Device, arithmetic: str) -> tuple[Cell, Cell]:
    """This GPU's share of its peak and an A100's tokens at that share; None if either is unknown."""
    try:
        return figure_cell(share_of_peak(device, arithmetic)), a100_tokens_at_share(device, arithmetic).text
    except NotTimed:
        return None, None


FIGURES: Mapping[str, Measure] = {
    "a100_tokens": lambda _: a100_tokens("bfloat16", PLAIN_US),
    "a100_tokens_after": lambda _: a100_tokens("bfloat16", AFTER_US),
    "left_for_gelu": lambda _: left_for_gelu(),
    "a100_gelu_rate": lambda _: a100_gelu_rate(),
}
