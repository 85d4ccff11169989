"""Other shapes: where our kernels gain most and least, on the GPU and from Python."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from kinetoscope.html import Html, bold, details, note, table
from snippets.fused_mlp.findings.ideas import tuned
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    Run,
    at_least,
    at_most,
    claim,
    equals,
    format_value,
    matches,
)
from snippets.lab.finding.measure import (
    largest,
    paired_ratio,
    quantity_ratio,
    share_of_ceiling,
    unpaired_ratio,
)
from snippets.lab.page import figure_cell, roofline, show as show
from snippets.lab.recording.ceilings import COPY

PEERS = {
    "eager": "eager",
    "compiled": "compiled",
    "max-autotune": "max_autotune",
    "Liger": "liger",
    "our forward": "fused",
}
"""Heading of a column -> suffix of its experiments' names."""
PEERS_OF = {
    "bfloat16": PEERS,
    "float16": {heading: PEERS[heading] for heading in ("eager", "compiled", "Liger", "our forward")},
}
"""Type -> its columns: in float16 max-autotune, the slowest to build, is not recorded."""
DTYPES = tuple(PEERS_OF)
PORTABLE = "portable"
"""Our forward without the kernels for Hopper: in bf16 only, and no rival of our forward."""
TALL_AND_THIN, WIDER, WIDEST = (65536, 256, 1024), (4096, 2048, 8192), (1024, 4096, 14336)
ONE_TOKEN, SIXTEEN_TOKENS = (1, 4096, 14336), (16, 4096, 14336)
FEW_TOKENS, ROOFLINE_TOKENS = (1, 128), (1, 128, 1024)
SERIES, ODD_WIDTH = (8192, 768, 3072), (8192, 768, 3080)
WIDE = (4096, 14336)
"""dim and hidden of the block whose rows go from one token to many."""

Shape = tuple[int, int, int]


def shapes_in(device: Device, dtype: str) -> list[Shape]:
    """(tokens, dim, hidden) of each row of the table, in its order."""
    parameters = [point.parameters for point in device[f"fused_mlp/{dtype}_fused"].points]
    return [(int(each["tokens"]), int(each["dim"]), int(each["hidden"])) for each in parameters]


def shape_name(shape: Shape) -> str:
    """`8192x768x3072`: tokens, dim, hidden."""
    return "x".join(map(str, shape))


def row_run(device: Device, dtype: str, variant: str, shape: Shape) -> Run:
    """A variant in a row of the table."""
    tokens, dim, hidden = shape
    return device[f"fused_mlp/{dtype}_{variant}"].at(tokens=tokens, dim=dim, hidden=hidden)


def medians_us(device: Device, dtype: str, shape: Shape, kind: str = "interleaved") -> dict[str, float]:
    """Median of each variant in a row of the table."""
    return {name: row_run(device, dtype, name, shape).timing(kind).median_us for name in PEERS_OF[dtype].values()}


def over_fastest_other(device: Device, dtype: str, shape: Shape, kind: str = "interleaved") -> Figure:
    """The package's time in a row / the fastest other variant's."""
    medians = medians_us(device, dtype, shape, kind)
    others = [name for name in medians if name != "fused"]
    return over(device, dtype, min(others, key=medians.__getitem__), shape, kind)


def over(device: Device, dtype: str, other: str, shape: Shape, kind: str) -> Figure:
    """The package's time in a row / another variant's."""
    return paired_ratio(row_run(device, dtype, "fused", shape), row_run(device, dtype, other, shape), kind)


def by_gain(device: Device, dtype: str = "bfloat16") -> list[Shape]:
    """The rows, the row with the package's largest gain first."""
    return sorted(shapes_in(device, dtype), key=lambda row: over_fastest_other(device, dtype, row).number)


def at_the_least_gain(device: Device, dtype: str) -> Figure:
    """The package's time / the fastest other's in the row of its least gain."""
    return over_fastest_other(device, dtype, by_gain(device, dtype)[-1])


@claim("F50", at_most(1.0), scope="timing")
def slowest_in_bfloat16(device: Device) -> Figure:
    """In interleaved timing with bf16, none of the four other forwards is faster than our forward at any shape of the
    table."""
    return at_the_least_gain(device, "bfloat16")


@claim("F51", at_most(1.0), scope="timing")
def slowest_in_float16(device: Device) -> Figure:
    """In interleaved timing with float16, none of the three other forwards is faster than our forward at any shape of
    the table."""
    return at_the_least_gain(device, "float16")


@claim("F53", matches(r"1: few.*; 128: ping-pong"), scope="timing")
def fastest_for_few_tokens(device: Device) -> Figure:
    """Among tuning's candidates for gate and up, a kernel for few tokens is the fastest for one token, and the
    ping-pong kernel is the fastest for 128 tokens."""
    fastest = {tokens: next(iter(tuned(device, "gate_up", shape_name((tokens, *WIDE))))) for tokens in FEW_TOKENS}
    kinds = (f"{tokens}: {kind_of(name)}" for tokens, name in fastest.items())
    return Figure("; ".join(kinds), origin="fused_mlp/chosen")


def kind_of(way: str) -> str:
    """`ping-pong 128x64, 6 slots, group 8` -> `ping-pong`."""
    return re.split(r" (?=\d)", way, maxsplit=1)[0]


@claim("F54", at_least(95), scope="timing")
def copy_share_at_one_token(device: Device) -> Figure:
    """In interleaved timing for one token, our forward moves its weights at 95 % of a large copy's rate or more."""
    return share_of_ceiling(row_run(device, "bfloat16", "fused", ONE_TOKEN), COPY)


@claim("F57", equals(shape_name(TALL_AND_THIN)), scope="timing")
def greatest_gain(device: Device) -> Figure:
    """In interleaved timing with bf16, our forward gains most over the fastest other forward for narrow weights, at
    65536x256x1024."""
    return Figure(shape_name(by_gain(device)[0]), origin="medians, interleaved")


@claim("F112", equals(shape_name(WIDEST)), scope="timing")
def least_gain(device: Device) -> Figure:
    """In interleaved timing with bf16, our forward gains least over the fastest other forward for the widest weights
    and 1,024 tokens, at 1024x4096x14336."""
    return Figure(shape_name(by_gain(device)[-1]), origin="medians, interleaved")


@claim("F114", at_most(1.0), scope="timing")
def slowest_steady(device: Device) -> Figure:
    """In steady timing with bf16, none of the four other forwards is faster than our forward at any shape of the
    table."""
    shapes = shapes_in(device, "bfloat16")
    return largest(*(over_fastest_other(device, "bfloat16", shape, "steady") for shape in shapes))


def clock_over_compiled(device: Device, dtype: str, shape: Shape) -> Figure:
    """The clock of the package's steady forward in a row / the compiled forward's."""
    ours, compiled = (row_run(device, dtype, name, shape) for name in ("fused", "compiled"))
    return quantity_ratio(ours, compiled, "steady_clock_mhz")


def energy_over_compiled(device: Device, dtype: str, shape: Shape) -> Figure:
    """The energy of the package's steady forward in a row / the compiled forward's."""
    ours, compiled = (row_run(device, dtype, name, shape) for name in ("fused", "compiled"))
    return quantity_ratio(ours, compiled, "joules")


def _energy_text(device: Device, dtype: str, shape: Shape) -> str | None:
    with suppress(NotTimed):
        return energy_over_compiled(device, dtype, shape).text
    return None


def odd_width(device: Device, variant: str) -> Figure:
    """The time of a variant at the width that no tile divides over that at the series' width."""
    return unpaired_ratio(*(row_run(device, "bfloat16", variant, shape).time() for shape in (ODD_WIDTH, SERIES)))


def shape_table(device: Device, kind: str) -> Html:
    """Medians of one kind of timing in every row, ours over the fastest other, the fastest in bold; float16 folded.

    Interleaved times also get the ratio with a cold cache, steady times the ratio of the energy to the compiled
    forward's, times from Python the CPU time of a call of our forward.
    """
    return both_types(device, lambda dtype: _times(device, dtype, kind))


def has_shapes(device: Device, name: str) -> bool:
    """Whether a variant of the table is recorded, by its file: a table must not read what it can do without."""
    return name in device.recorded_names("fused_mlp")


def both_types(device: Device, table_of: Callable[[str], Html]) -> Html:
    """The table in bfloat16, with the float16 table folded below it; that alone, where bfloat16 is not recorded yet."""
    bfloat16, float16 = DTYPES
    if has_shapes(device, f"{float16}_fused") and not has_shapes(device, f"{bfloat16}_fused"):
        return Html(table_of(float16) + note("The same in bfloat16 is not recorded yet."))
    return Html(table_of(bfloat16) + details("The same in float16", table_of(float16)))


def _times(device: Device, dtype: str, kind: str) -> Html:
    rows = []
    peers = PEERS_OF[dtype]
    others = [name for name in peers.values() if name != "fused"]
    has_portable = dtype == "bfloat16" and has_shapes(device, f"{dtype}_{PORTABLE}")
    for shape in shapes_in(device, dtype):
        medians = medians_us(device, dtype, shape, kind)
        best = min(medians, key=medians.__getitem__)
        ours, *times = (bold(format_value(medians[name], "us"), name == best) for name in ("fused", *others))
        more: list[str | None]
        if kind == "from_python":
            more = [row_run(device, dtype, "fused", shape).time("enqueue").text]
        elif kind == "steady":
            more = [_energy_text(device, dtype, shape)]
        else:
            more = [f"{over_fastest_other(device, dtype, shape, 'cold').number:.3f}x"]
        ratio = over_fastest_other(device, dtype, shape, kind)
        precise = replace(ratio, display=f"{ratio.value:.3f}x")  # 2 % decide the winner
        also = [row_run(device, dtype, PORTABLE, shape).time(kind).text] if has_portable else []
        rows.append([shape_name(shape), ours, figure_cell(precise), *more, *also, *times])
    headings = [heading for heading, name in peers.items() if name in others]
    when, column = {
        "interleaved": ("on the GPU, interleaved", "our forward / the fastest other forward, cold cache"),
        "steady": ("on the GPU, steady", "our energy / the compiled forward's energy"),
        "from_python": ("from Python, until the GPU is done", "our forward's CPU time"),
    }[kind]
    also = ["our forward, portable"] if has_portable else []
    head = ["tokens x dim x hidden", "our forward", "our forward / the fastest other forward", column, *also, *headings]
    rivals = note("The portable kernels are ours, too, so they don't count as another forward.") if has_portable else ""
    return Html(table(f"One forward in {dtype}, {when}", head, rows) + rivals)


def shape_roofline(device: Device) -> Html:
    """The package's forward of one wide block, from one token to many, below this GPU's roofs."""
    dim, hidden = WIDE
    variants = {
        f"{tokens:,} token{'s' * (tokens != 1)}": f"fused_mlp/bfloat16_fused[{tokens=},{dim=},{hidden=}]"
        for tokens in ROOFLINE_TOKENS
    }
    return roofline(device, variants, "Our forward with weights of 4096x14336, from one token to many")


FIGURES: Mapping[str, Measure] = {
    "one_token_from_python": lambda device: over(device, "bfloat16", "eager", ONE_TOKEN, "from_python"),
    "one_token": lambda device: over_fastest_other(device, "bfloat16", ONE_TOKEN),
    "one_token_cold": lambda device: over_fastest_other(device, "bfloat16", ONE_TOKEN, "cold"),
    "widest_steady": lambda device: over_fastest_other(device, "bfloat16", WIDEST, "steady"),
    "series_steady": lambda device: over_fastest_other(device, "bfloat16", SERIES, "steady"),
    "wide_steady": lambda device: over_fastest_other(device, "bfloat16", WIDER, "steady"),
    "few_tokens_steady": lambda device: over_fastest_other(device, "bfloat16", (128, *WIDE), "steady"),
    "sixteen_tokens_steady": lambda device: over_fastest_other(device, "bfloat16", SIXTEEN_TOKENS, "steady"),
    "one_token_steady": lambda device: over_fastest_other(device, "bfloat16", ONE_TOKEN, "steady"),
    "widest_clock": lambda device: clock_over_compiled(device, "bfloat16", WIDEST),
    "tall_and_thin_steady": lambda device: over_fastest_other(device, "bfloat16", TALL_AND_THIN, "steady"),
    "one_token_of_compiled": lambda device: over(device, "bfloat16", "compiled", ONE_TOKEN, "from_python"),
    "one_token_energy_in_table": lambda device: energy_over_compiled(device, "bfloat16", ONE_TOKEN),
    "sixteen_tokens_energy_in_table": lambda device: energy_over_compiled(device, "bfloat16", SIXTEEN_TOKENS),
    "odd_width_ours": lambda device: odd_width(device, "fused"),
    "odd_width_eager": lambda device: odd_width(device, "eager"),
}
