"""Other shapes: where our kernels win and lose, on the GPU and from Python, and the cost of a new shape."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from snippets.fused_mlp.findings.forward import tuned
from snippets.fused_mlp.findings.traffic import probed
from snippets.lab.finding import Device, Figure, Measure, Run, at_least, claim, equals, format_value
from snippets.lab.finding.measure import paired_ratio, share_of_ceiling
from snippets.lab.html import Html, bold, details, table
from snippets.lab.page import figure_cell, roofline
from snippets.lab.page import show as show
from snippets.lab.recording.ceilings import COPY

PEERS = {
    "eager": "eager",
    "compiled": "compiled",
    "max-autotune": "max_autotune",
    "reduce-overhead": "reduce_overhead",
    "Liger": "liger",
    "ours": "fused",
}
"""Heading of a column -> suffix of its experiments' names."""
OTHERS = tuple(name for name in PEERS.values() if name != "fused")
DTYPES = ("bfloat16", "float16")
TALL_AND_THIN, ONE_TOKEN = (65536, 256, 1024), (1, 4096, 14336)
FEW_TOKENS = (1, 16, 128)
ROOFLINE_TOKENS = (1, 16, 128, 1024, 16384)
WIDE = (4096, 14336)
"""dim and hidden of the block whose rows go from one token to many."""
NEAR = 1.02
"""Within 2 % of the fastest counts as won: the same kernel differs by that much between two runs."""
TWO_THIRDS = 200 / 3

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
    return {name: row_run(device, dtype, name, shape).timing(kind).median_us for name in PEERS.values()}


def over_fastest_other(device: Device, dtype: str, shape: Shape, kind: str = "interleaved") -> Figure:
    """Our time in a row over that of the fastest other variant."""
    medians = medians_us(device, dtype, shape, kind)
    return over(device, dtype, min(OTHERS, key=medians.__getitem__), shape, kind)


def over(device: Device, dtype: str, other: str, shape: Shape, kind: str) -> Figure:
    """Our time in a row over that of another variant."""
    return paired_ratio(row_run(device, dtype, "fused", shape), row_run(device, dtype, other, shape), kind)


def lost(device: Device, dtype: str) -> list[Shape]:
    """Rows in which another variant is faster by more than 2 %."""
    return [row for row in shapes_in(device, dtype) if over_fastest_other(device, dtype, row).number > NEAR]


def rows_won(device: Device, dtype: str = "bfloat16") -> Figure:
    """The number of rows in which ours is the fastest or within 2 % of it."""
    return Figure(len(shapes_in(device, dtype)) - len(lost(device, dtype)), origin="medians, interleaved")


def share_won(device: Device, *dtypes: str) -> Figure:
    """`rows_won` in percent of the rows."""
    rows = sum(len(shapes_in(device, dtype)) for dtype in dtypes)
    won = sum(int(rows_won(device, dtype).value) for dtype in dtypes)
    return Figure(100 * won / rows, "%", origin="medians, interleaved", display=f"{won} of {rows}")


@claim("F50", at_least(TWO_THIRDS), scope="timing")
def won_in_bfloat16(device: Device) -> Figure:
    """In bfloat16 ours is the fastest or within 2 % of it in at least two thirds of the rows."""
    return share_won(device, "bfloat16")


@claim("F51", at_least(TWO_THIRDS), scope="timing")
def won_in_float16(device: Device) -> Figure:
    """In float16, too."""
    return share_won(device, "float16")


@claim("F52", at_least(TWO_THIRDS), scope="timing")
def won_in_both(device: Device) -> Figure:
    """In both types together, too."""
    return share_won(device, *DTYPES)


@claim("F53", equals("1: two products; 16: two products; 128: ping-pong"), scope="timing")
def choice_for_few_tokens(device: Device) -> Figure:
    """For 1 and 16 tokens tuning takes cuBLAS's products and our pointwise kernel, for 128 the ping-pong kernel."""
    chosen = {tokens: next(iter(tuned(device, "gate_up", shape_name((tokens, *WIDE))))) for tokens in FEW_TOKENS}
    kinds = {tokens: "ping-pong" if name.startswith("ping-pong") else name for tokens, name in chosen.items()}
    return Figure("; ".join(f"{tokens}: {kind}" for tokens, kind in kinds.items()), origin="fused_mlp/chosen")


@claim("F54", at_least(75), scope="timing")
def copy_share_at_one_token(device: Device) -> Figure:
    """At one token our forward moves its weights at three quarters of a plain copy's rate or more."""
    return share_of_ceiling(row_run(device, "bfloat16", "fused", ONE_TOKEN), COPY)


@claim("F56", equals("max-autotune", "nobody"), scope="timing")
def beaten_by(device: Device) -> Figure:
    """Where ours loses, in whichever type, max-autotune is the fastest."""
    rows = [medians_us(device, dtype, row) for dtype in DTYPES for row in lost(device, dtype)]
    winners = {heading for heading, name in PEERS.items() for medians in rows if medians[name] == min(medians.values())}
    return Figure(", ".join(sorted(winners)) or "nobody", origin="medians, interleaved")


@claim("F57", equals(shape_name(TALL_AND_THIN)), scope="timing")
def greatest_gain(device: Device) -> Figure:
    """Of the rows in bfloat16 the tall and thin one is where ours gains the most."""
    rows = shapes_in(device, "bfloat16")
    best = min(rows, key=lambda row: over_fastest_other(device, "bfloat16", row).number)
    return Figure(shape_name(best), origin="medians, interleaved")


@claim("F55", at_least(1.5), scope="timing")
def cpu_over_eager(device: Device) -> Figure:
    """At the series' shape a call of ours keeps the CPU busy at least one and a half times as long as eager's."""
    return paired_ratio(device["fused_mlp/fused"], device["fused_mlp/eager"], "enqueue")


def rows_lost(device: Device, dtype: str) -> Figure:
    """The rows in which ours loses."""
    return Figure(", ".join(map(shape_name, lost(device, dtype))) or "none", origin=f"medians in {dtype}, interleaved")


def shape_table(device: Device, kind: str) -> Html:
    """Medians of one kind of timing in every row, ours over the fastest other, the fastest in bold; float16 folded.

    For `from_python`, also the CPU time of each of our calls.
    """
    return both_types(lambda dtype: _times(device, dtype, kind))


def both_types(table_of: Callable[[str], Html]) -> Html:
    """The table in bfloat16, with the float16 table folded below it."""
    first, second = map(table_of, DTYPES)
    return Html(first + details("The same in float16", second))


def _times(device: Device, dtype: str, kind: str) -> Html:
    is_python = kind == "from_python"
    rows = []
    for shape in shapes_in(device, dtype):
        medians = medians_us(device, dtype, shape, kind)
        best = min(medians, key=medians.__getitem__)
        ours, *others = (bold(format_value(medians[name], "us"), name == best) for name in ("fused", *OTHERS))
        ratio = over_fastest_other(device, dtype, shape, kind)
        precise = replace(ratio, display=f"{ratio.value:.3f}x")  # 2 % decide the winner
        enqueue = [row_run(device, dtype, "fused", shape).time("enqueue").text] if is_python else []
        rows.append([shape_name(shape), ours, figure_cell(precise), *others, *enqueue])
    headings = [heading for heading, name in PEERS.items() if name in OTHERS]
    head = ["tokens x dim x hidden", "ours", "over the fastest other", *headings, *(["ours, CPU"] if is_python else [])]
    when = "from Python, until the GPU is done" if is_python else "on the GPU, warm"
    return table(f"One forward in {dtype}, {when}", head, rows)


def shape_roofline(device: Device) -> Html:
    """Our forward of one wide block, from one token to many, below this GPU's roofs."""
    dim, hidden = WIDE
    variants = {
        f"{tokens:,} token{'s' * (tokens != 1)}": f"fused_mlp/bfloat16_fused[{tokens=},{dim=},{hidden=}]"
        for tokens in ROOFLINE_TOKENS
    }
    return roofline(device, variants, "Our forward at 4096x14336, from one token to many")


LONG = 20
"""A first call that takes at least this many times as long as the second has compiled or tuned."""


def pauses(device: Device, variant: str) -> list[int]:
    """Numbers of tokens whose first call took at least `LONG` times as long as their second, in order."""
    run = device["fused_mlp/new_shapes"]
    times = probed(run, variant)
    calls = zip(run.data["tokens"], times["first_call_ms"], times["second_call_ms"], strict=True)
    return [tokens for tokens, first, second in calls if first >= LONG * second]


def pauses_at(device: Device, variant: str) -> Figure:
    """The numbers of tokens at which a variant pauses."""
    return Figure(", ".join(map(str, pauses(device, variant))), origin="fused_mlp/new_shapes")


def first_call_us(device: Device, variant: str, index: int) -> Figure:
    """The first call at one of the numbers of tokens."""
    times_ms = probed(device["fused_mlp/new_shapes"], variant, "first_call_ms")
    return Figure(1e3 * times_ms[index], "us", origin=f"fused_mlp/new_shapes, {variant}")


@claim("F60", equals("8192, 8184, 6144, 4096, 3996"), scope="timing")
def static_pauses(device: Device) -> Figure:
    """With dynamic=False each of the five numbers of tokens compiles."""
    return pauses_at(device, "static")


@claim("F61", equals("8192, 8184"), scope="timing")
def automatic_pauses(device: Device) -> Figure:
    """By default torch.compile compiles twice, at the first number of tokens and at the second."""
    return pauses_at(device, "automatic")


@claim("F62", equals("8192, 4096"), scope="timing")
def our_pauses(device: Device) -> Figure:
    """Ours pauses twice: at the first call, and at the first of another power of two."""
    return pauses_at(device, "fused")


@claim("F63", lambda figure: figure.number > 1, scope="timing")
def first_call_over_compiled(device: Device) -> Figure:
    """The very first call of ours takes longer than that of a compiled forward."""
    ours, static = (first_call_us(device, variant, 0).number for variant in ("fused", "static"))
    return Figure(ours / static, "x", origin="fused_mlp/new_shapes, the first call of each")


def first_calls(device: Device) -> Html:
    """Time of the first call at five numbers of tokens in turn, and of the call after it."""
    data = device["fused_mlp/new_shapes"].data
    titles = {"static": "dynamic=False", "automatic": "default", "fused": "ours"}
    columns = [data[name][calls] for name in titles for calls in ("first_call_ms", "second_call_ms")]
    calls = zip(data["tokens"], *columns, strict=True)
    rows = [[tokens, *(format_value(1e3 * ms, "us") for ms in times_ms)] for tokens, *times_ms in calls]
    head = ["tokens", *(heading for title in titles.values() for heading in (f"{title}, first call", "second"))]
    return table("Five numbers of tokens in turn", head, rows)


FIGURES: Mapping[str, Measure] = {
    "rows_won": rows_won,
    "rows_lost": lambda device: rows_lost(device, "bfloat16"),
    "rows_lost_float16": lambda device: rows_lost(device, "float16"),
    "tall_and_thin": lambda device: over_fastest_other(device, "bfloat16", TALL_AND_THIN),
    "one_token_from_python": lambda device: over(device, "bfloat16", "eager", ONE_TOKEN, "from_python"),
    "pauses": lambda device: Figure(len(pauses(device, "fused")), origin="fused_mlp/new_shapes"),
    "new_bucket_us": lambda device: first_call_us(device, "fused", 3),
    "very_first_us": lambda device: first_call_us(device, "fused", 0),
}
