"""The articles' claims about one block, Linear, GELU, Linear: two times on an A100, and a table of an H100."""

from __future__ import annotations

from collections.abc import Mapping

from snippets.fact_check.findings.sources import A100, about, deep_dive, tutorial
from snippets.fact_check.findings.sweep import PRECISIONS, gain, gain_at, sizes, time_at, tokens_taking
from snippets.lab.finding import Device, Figure, Measure, NotTimed, at_most, between, claim, derived, largest, smallest
from snippets.lab.finding.other_device import H100, H200, measured_on

LINEAR_US, GELU_US, BLOCK_US, FUSED_US = 120.0, 40.0, 280.0, 210.0
"""The table of the H100."""
PLAIN_US, AFTER_US = 2100.0, 1500.0
"""The kernel time of a 1024x4096x1024 MLP before and after fusing, on an A100."""

# -- 2.1 ms to 1.5 ms


def tokens_at(device: Device, arithmetic: str) -> Figure:
    """The number of tokens at which the eager block takes 2.1 ms."""
    return rounded_tokens(tokens_taking(device, arithmetic, "block", PLAIN_US))


def rounded_tokens(tokens: float, origin: str = "fact_check/block, between two sizes") -> Figure:
    """A number of tokens, in hundreds."""
    return Figure(round(tokens, -2), origin=origin, display=f"{round(tokens, -2):,.0f}")


@claim(
    "FC26",
    between(*about(PLAIN_US / AFTER_US)),
    scope="timing",
    source=deep_dive(
        "for a 1024×4096×1024 MLP, the fused version reduces total kernel time from 2.1 ms to 1.5 ms",
        A100,
        only_there=True,
    ),
)
def from_2100_to_1500(device: Device) -> Figure:
    """Where a 1024x4096x1024 MLP takes 2.1 ms, fusing makes it about 1.4 times as fast, in the arithmetic that gains
    the most.

    The article gives neither batch nor arithmetic, and Part 2 has no such figure. So we look for the size, and the
    table has one size for each arithmetic. At these sizes, two products take most of the time, and fusing GELU into one
    product leaves both products. When you read a time, ask for its batch."""
    gains = []
    for arithmetic in PRECISIONS:
        try:
            gains.append(gain_at(device, arithmetic, tokens_taking(device, arithmetic, "block", PLAIN_US)))
        except NotTimed:
            continue
    if not gains:
        raise NotTimed("no arithmetic reaches that time")
    return largest(*gains)


# -- the table of the H100


@claim(
    "FC27",
    between(GELU_US - 5, GELU_US + 5),
    scope="timing",
    source=tutorial("Linear (1024x4096) 0.12 ms, GeLU 0.04 ms", H100, only_there=True),
)
def gelu_alone_us(device: Device) -> Figure:
    """Where a Linear from 1024 to 4096 takes 0.12 ms in bf16, a GELU of its result takes a time that rounds to 0.04 ms.
    Timed here: each alone, and in turns.

    When GELU is timed alone, it reads its input from memory. In a trace, GELU follows its Linear and takes less time,
    which rounds to the table's value. Our guess: a part of the Linear's result is still in the L2 cache. Say whether a
    kernel's time comes from a trace or from timing the kernel alone."""
    return time_at(device, "bfloat16", table_tokens(device), "gelu")


@claim(
    "FC28", between(GELU_US - 5, GELU_US + 5), scope="timing", source=tutorial("GeLU 0.04 ms", H100, only_there=True)
)
def gelu_us(device: Device) -> Figure:
    """In the trace of a Linear from 1024 to 4096 and its GELU at 8192 tokens, GELU runs right after the Linear and
    takes a time that rounds to 0.04 ms.

    GELU moves two tensors and computes little, so its time depends on their bytes. These bytes fit the size at which
    the Linear takes the table's time. When GELU is timed alone, it takes longer."""
    return device["fused_mlp/linear_8192_eager"].per_step(lambda step: step.kernels[1].duration_us, "us")


@claim(
    "FC29",
    between(*about(LINEAR_US)),
    scope="timing",
    source=tutorial("Linear with GeLU fused: 0.12 ms", H100, only_there=True),
)
def fused_linear_us(device: Device) -> Figure:
    """With GELU in its epilogue, a Linear from 1024 to 4096 at 8192 tokens still takes 0.12 ms, give or take a tenth.
    Timed here: the faster of cuBLAS's epilogue and a hand-written kernel.

    The epilogue works on numbers that are still in registers. So GELU no longer reads or writes a tensor in memory, and
    most of its time is saved."""
    runs = (device[f"fused_mlp/linear_8192_{name}"] for name in ("addmm", "fused"))
    return smallest(*(run.time() for run in runs))


def table_tokens(device: Device, arithmetic: str = "bfloat16") -> float:
    """The number of tokens at which the Linear takes the table's 0.12 ms."""
    return tokens_taking(device, arithmetic, "linear", LINEAR_US)


def gelu_over_the_table(device: Device, arithmetic: str) -> Figure:
    """GELU's time over the table's 0.04 ms, at the number of tokens at which the Linear takes the table's 0.12 ms."""
    gelu = time_at(device, arithmetic, table_tokens(device, arithmetic), "gelu")
    return derived(gelu.number / GELU_US, gelu, unit="x")


@claim("FC30", between(*about(BLOCK_US)), scope="timing", source=tutorial("MLP block: 0.28 ms", H100, only_there=True))
def block_us(device: Device) -> Figure:
    """Where a Linear from 1024 to 4096 takes 0.12 ms in bf16, the block of two Linears takes 0.28 ms, give or take a
    tenth.

    Two such Linears and the GELU of the table add up to the same time, so the block's row follows from the rows above
    it."""
    return time_at(device, "bfloat16", table_tokens(device), "block")


@claim(
    "FC31",
    between(1.25, 1.42),
    scope="timing",
    source=tutorial("MLP block: 0.28 to 0.21 ms, 1.33x", H100, only_there=True),
)
def block_gain(device: Device) -> Figure:
    """Where a Linear from 1024 to 4096 takes 0.12 ms in bf16, the fused block is about 1.33 times as fast: at least
    1.25 times.

    Fusing removes GELU's kernel and leaves two products. By the table's own rows, two products take 0.24, not 0.21.
    Only faster products can save more. On the H100, the product isn't faster: a product with GELU in it takes longer
    than a product without GELU, which costs a part of what fusing saves."""
    return gain_at(device, "bfloat16", table_tokens(device))


def latency_saved(device: Device, arithmetic: str, tokens: int) -> Figure:
    """The saving of the fastest fused block, in percent of the eager block's time."""
    return _saved(gain(device, arithmetic, tokens))


def _saved(speedup: Figure) -> Figure:
    """Percent of the time that a speedup saves."""
    low, high = speedup.bounds
    return Figure(100 - 100 / speedup.number, "%", (100 - 100 / low, 100 - 100 / high), speedup.origin)


def most_saved(device: Device) -> Figure:
    """The most that fusing saves at any size in any arithmetic."""
    return latency_saved(device, *_where_most_is_saved(device))


def _where_most_is_saved(device: Device) -> tuple[str, int]:
    points = ((arithmetic, tokens) for arithmetic in PRECISIONS for tokens in sizes(device, arithmetic))
    return max(points, key=lambda point: latency_saved(device, *point).number)


def gelu_share(device: Device, arithmetic: str, tokens: float) -> Figure:
    """GELU's own percentage of the eager block's time: what fusing saves if the products stay as they are."""
    gelu, block = (time_at(device, arithmetic, tokens, variant) for variant in ("gelu", "block"))
    return derived(100 * gelu.number / block.number, gelu, block, unit="%")


@claim(
    "FC32",
    between(15, 25),
    scope="timing",
    source=tutorial("reduce latency by 15-25% for the MLP block", H100, only_there=True),
)
def saved_where_the_table_is(device: Device) -> Figure:
    """Where a Linear from 1024 to 4096 takes 0.12 ms in bf16, fusing saves 15 to 25 % of the block's time.

    The sentence before the article's table gives this range, but no size. At the size that fits the table, our measured
    spread contains the lower end of the range. So the recording neither confirms nor refutes the range."""
    return _saved(gain_at(device, "bfloat16", table_tokens(device)))


def largest_gain(device: Device, arithmetic: str) -> Figure:
    """The largest gain of fusing over the sizes, in one arithmetic."""
    return largest(*(gain(device, arithmetic, tokens) for tokens in sizes(device, arithmetic)))


@claim("FC36", at_most(1.02), scope="timing")
def gain_in_tf32(device: Device) -> Figure:
    """In TF32, GELU in cuBLAS's epilogue makes a block of Linear, GELU and Linear at most 2 % faster, at any size."""
    return largest_gain(device, "tf32")


def gelu_where_most_is_saved(device: Device) -> Figure:
    """GELU's own percentage of the eager block's time where fusing saves the most."""
    return gelu_share(device, *_where_most_is_saved(device))


FIGURES: Mapping[str, Measure] = {
    "tokens_bfloat16": lambda device: tokens_at(device, "bfloat16"),
    "tokens_tf32": lambda device: tokens_at(device, "tf32"),
    "tokens_float32": lambda device: tokens_at(device, "float32"),
    "gain_in_float32": lambda device: largest_gain(device, "float32"),
    "gain_in_bfloat16": lambda device: largest_gain(device, "bfloat16"),
    "h100_tokens": measured_on(H100, lambda device: rounded_tokens(table_tokens(device))),
    "h100_gelu_over_the_table": measured_on(H100, lambda device: gelu_over_the_table(device, "bfloat16")),
    "h100_gelu_share": measured_on(H100, lambda device: gelu_share(device, "bfloat16", table_tokens(device))),
    "h100_saved": measured_on(H100, lambda device: _saved(gain_at(device, "bfloat16", table_tokens(device)))),
    "h200_most_saved": measured_on(H200, most_saved),
    "h200_gelu_where_most_is_saved": measured_on(H200, gelu_where_most_is_saved),
}
