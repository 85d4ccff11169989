"""Sharded weights: bytes and memory derived and measured, and what hides the transfers."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.lab.charts.line_charts import line_chart
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    Run,
    at_least,
    at_most,
    between,
    claim,
    compare_ranks,
    format_value,
    paired_ratio,
    percent,
    unpaired_ratio,
)
from snippets.lab.finding.probed import entry, rate, ratio, time
from snippets.lab.page import Computation, prediction as prediction, rank_bars, show as show, timeline
from snippets.several_gpus.findings.measured import BF16_BYTES, changed, parameter, sent_bytes, without_operators, world

MEMORY, TOKENS, RATES = "several_gpus/fsdp_memory", "several_gpus/fsdp_tokens", "several_gpus/tensor_rows_on_2"
VARIANTS = {
    "per_block": "each block",
    "ahead": "each block, explicit prefetch",
    "kept": "each block, gathered weights kept",
    "root_only": "only the root",
}
"""Experiment -> heading, in the order of the page."""
PASSES = {"per_block": 3, "ahead": 3, "kept": 2, "root_only": 2}
"""How often a step sends all weights or gradients."""
STATE_BYTES = 12
"""Of a weight in float32 and its two moments."""


def run_of(device: Device, variant: str) -> Run:
    """The training of a variant."""
    return device[f"several_gpus/fsdp_{variant}"]


def weights(run: Run) -> int:
    """All weights of a run's stack."""
    layers, dim, hidden = (parameter(run, name) for name in ("layers", "dim", "hidden"))
    return layers * (4 * dim * dim + 3 * dim * hidden + 2 * dim)


def all_bytes(device: Device) -> Figure:
    """The bytes of all weights in bf16."""
    return Figure(BF16_BYTES * weights(run_of(device, "per_block")), "bytes", origin="the sizes of the model")


def derived_bytes(device: Device, variant: str = "per_block") -> Figure:
    """What one GPU has to send in a step."""
    run = run_of(device, variant)
    sent = PASSES[variant] * BF16_BYTES * weights(run) * (1 - 1 / world(run))
    return Figure(sent, "bytes", origin=f"{PASSES[variant]} passes of all weights")


def measured_bytes(device: Device, variant: str = "per_block") -> Figure:
    """What the collectives in the trace of one GPU send in a step."""
    return run_of(device, variant).per_step(sent_bytes, "bytes")


@claim("SG40", between(0.95, 1.05))
def bytes_per_block(device: Device) -> Figure:
    """With each block sharded, a GPU sends within 5 % of (n - 1) / n times three times the bytes of all weights in a
    step."""
    return unpaired_ratio(measured_bytes(device), derived_bytes(device))


@claim("SG41", between(0.64, 0.7))
def bytes_kept(device: Device) -> Figure:
    """A sharded step that keeps the gathered weights until backward sends about two thirds of the bytes of a step that
    gathers the weights again."""
    return unpaired_ratio(measured_bytes(device, "kept"), measured_bytes(device))


PASSING = Computation(
    "How many bytes does a GPU send in a step, if each block is sharded?",
    "several_gpus.fsdp_derived_bytes",
    "A step has three passes, and in each pass a GPU sends half of {several_gpus.fsdp_all_bytes}.",
    "Multiply the bytes of all weights by the passes, and by (n - 1) / n.",
    {
        "several_gpus.fsdp_kept_bytes": "your result counts two passes, but backward gathers the weights, too.",
        "several_gpus.fsdp_three_wholes": "a GPU has its own part already, so it sends (n - 1) / n of the bytes.",
        "several_gpus.fsdp_half_of_all": "your result counts one pass.",
    },
)


def held(device: Device, way: str, moment: str) -> Figure:
    """What a GPU holds: `state` between two steps, `forward` at the end of a forward, `peak` at most."""
    return Figure(entry(device, MEMORY, way, f"{moment}_bytes"), "bytes", origin=f"{device[MEMORY].origin}, {way}")


def derived_state(device: Device, way: str = "per_block") -> Figure:
    """Weights and two moments in float32; of one GPU, unless it is alone."""
    count = entry(device, MEMORY, way, "weights") / (1 if way == "whole" else world(device[MEMORY]))
    return Figure(STATE_BYTES * count, "bytes", origin="the sizes of the model")


def whole_weights(device: Device) -> Figure:
    """All weights in bf16, as products use them."""
    return Figure(BF16_BYTES * entry(device, MEMORY, "per_block", "weights"), "bytes", origin="the sizes of the model")


def more_held(device: Device, way: str, moment: str) -> Figure:
    """What a way holds beyond `per_block` at a moment."""
    above, below = held(device, way, moment), held(device, "per_block", moment)
    return Figure(above.number - below.number, "bytes", origin=above.origin)


@claim("SG42", between(0.95, 1.05))
def state_as_derived(device: Device) -> Figure:
    """Between two sharded steps, a GPU holds within 5 % of 12 bytes for each weight of the GPU's part."""
    return unpaired_ratio(held(device, "per_block", "state"), derived_state(device))


@claim("SG43", between(0.95, 1.05))
def kept_weights(device: Device) -> Figure:
    """At the end of a forward, each gathered weight that a GPU keeps takes within 5 % of two bytes."""
    return unpaired_ratio(more_held(device, "kept", "forward"), whole_weights(device))


@claim("SG44", at_least(1))
def root_peak(device: Device) -> Figure:
    """A step's peak memory is higher with only the root sharded than with each block sharded, by at least the bytes of
    all weights in bf16."""
    return unpaired_ratio(more_held(device, "root_only", "peak"), whole_weights(device))


def over(device: Device, upper: str, lower: str = "per_block") -> Figure:
    """The ratio of two variants' steps, in pairs of blocks."""
    return paired_ratio(run_of(device, upper), run_of(device, lower), "iteration")


@claim("SG45", at_least(0.95), scope="timing")
def root_only_slower(device: Device) -> Figure:
    """A step with only the root sharded takes at least 0.95 times as long as a step with each block sharded."""
    return over(device, "root_only")


@claim("SG46", between(0.95, 1.05), scope="timing")
def ahead_is_as_fast(device: Device) -> Figure:
    """An explicit prefetch of the next block's weights changes the time of a sharded step by at most 5 %."""
    return over(device, "ahead")


@claim("SG47", at_most(1.02), scope="timing")
def kept_is_as_fast(device: Device) -> Figure:
    """A sharded step that keeps the gathered weights until backward takes at most 2 % longer than a step that gathers
    the weights again."""
    return over(device, "kept")


def exposed_share(device: Device, variant: str = "per_block") -> Figure:
    """The largest share of a rank's step in which only communication runs, in percent."""
    run = run_of(device, variant)
    shares = [(each.transfer_us + each.waiting_us) / each.step_us for each in compare_ranks(run).parts]
    return percent(Figure(max(shares), "x", origin=f"{run.origin}, in its trace"))


@claim("SG48", at_most(20), scope="timing")
def blocks_hide(device: Device) -> Figure:
    """With each block sharded and 4,096 tokens on each GPU, communication is exposed for at most 20 % of a step."""
    return exposed_share(device)


def over_alone(device: Device, tokens: str, way: str = "per_block") -> Figure:
    """Forward and backward of a sharded stack over those of a stack that sends nothing."""
    return ratio(device, TOKENS, (tokens, way), (tokens, "alone"))


@claim("SG49", at_most(1.25), scope="timing")
def many_tokens_hide(device: Device) -> Figure:
    """With 8,192 tokens on each GPU, sharding each block makes forward and backward take at most 25 % longer."""
    return over_alone(device, "8192")


@claim("SG50", at_least(1.5), scope="timing")
def few_tokens_do_not(device: Device) -> Figure:
    """With 512 tokens on each GPU, sharding each block makes forward and backward take at least 1.5 times as long."""
    return over_alone(device, "512")


def product_rate(device: Device, probe: str = RATES) -> Figure:
    """FLOP/s of a large product of bf16."""
    return rate(entry(device, probe, "rates", "flops"), time(device, probe, "rates", "us", "matmul"), "flop/s")


def bus_rate(device: Device, probe: str = RATES) -> Figure:
    """Bus bandwidth of a large all-reduce: what a GPU sends, divided by the time."""
    sent = 2 * (1 - 1 / world(device[probe])) * entry(device, probe, "rates", "bytes")
    return rate(sent, time(device, probe, "rates", "us", "all_reduce"), "bytes/s")


def hidden_from(device: Device) -> Figure:
    """Tokens of a GPU whose products take as long as their weights' transfers: C (n - 1) / (n B).

    In the forward, an all-gather sends 2 P (n - 1) / n bytes beside 2 T P FLOPs; in the backward, twice both.
    """
    flops, sent = product_rate(device), bus_rate(device)
    share = 1 - 1 / world(device[TOKENS])
    return Figure(round(share * flops.number / sent.number), origin=f"{flops.origin}; {sent.origin}")


def traffic_table(device: Device) -> Html:
    """Bytes of a step, derived and in the trace, and the time."""
    rows: list[list[Cell]] = []
    for variant, heading in VARIANTS.items():
        derived, measured = derived_bytes(device, variant), measured_bytes(device, variant)
        figures = [derived, measured, run_of(device, variant).time("iteration"), exposed_share(device, variant)]
        rows.append([heading, str(PASSES[variant]), *map(figure_cell, figures)])
    head = ["sharded", "passes", "predicted bytes", "bytes in the trace", "time of a step", "exposed communication"]
    run = run_of(device, "per_block")
    tokens = parameter(run, "batch") * parameter(run, "tokens")
    caption = f"Bytes that a GPU sends in a sharded step with {tokens:,} tokens on each GPU, and the time of the step"
    return table(caption, head, rows)


def memory_table(device: Device) -> Html:
    """What a GPU holds at three moments."""
    rows: list[list[Cell]] = []
    for way in ("whole", "per_block", "kept", "root_only"):
        moments = [held(device, way, moment) for moment in ("state", "forward", "peak")]
        figures = [derived_state(device, way), *moments]
        rows.append([VARIANTS.get(way, "nothing"), *map(figure_cell, figures)])
    head = ["sharded", "between steps, predicted", "between steps, measured", "end of a forward", "peak of a step"]
    return table("Memory that one GPU uses at three moments of a step", head, rows)


def lanes(device: Device) -> Html:
    """One step per block and one at the root only, on one GPU."""
    shown = {VARIANTS[name]: f"several_gpus/fsdp_{name}" for name in ("per_block", "root_only")}
    caption = "A sharded step on one of two GPUs: each block sharded, or only the root"
    return timeline(device, shown, caption, reduce=without_operators)


def token_lines(device: Device) -> Html:
    """Sharded over unsharded, by tokens of a GPU."""
    counts = sorted(device[TOKENS].data, key=int)
    lines = {
        VARIANTS[way]: {float(tokens): over_alone(device, tokens, way) for tokens in counts}
        for way in ("per_block", "kept", "root_only")
    }
    return line_chart(
        device,
        lines,
        "Time of forward and backward with sharding over the time without sharding",
        axis="tokens of each GPU",
        size_text=lambda tokens: f"{tokens:,.0f}",
        limits={"without sharding": Figure(1.0, "x")},
    )


def ranks(device: Device) -> Html:
    """What each GPU does in a step, per block and at the root only."""
    shown = {VARIANTS[name]: f"several_gpus/fsdp_{name}" for name in ("per_block", "root_only")}
    return rank_bars(device, shown, "A sharded step of each rank: each block sharded, or only the root")


def given(device: Device) -> Html:
    """The sizes of the stack, and the rates of this machine."""
    run = run_of(device, "per_block")
    count = weights(run)
    rows = [
        ["number of weights", f"{parameter(run, 'layers')} blocks", f"{count:,}"],
        ["bytes of all weights", "bf16, two bytes for each weight", format_value(BF16_BYTES * count, "bytes")],
        ["number of GPUs, n", "", str(world(run))],
        ["rate of a product, C", "measured: a large product", figure_cell(product_rate(device))],
        ["bus bandwidth, B", "measured: an all-reduce of 64 MiB", figure_cell(bus_rate(device))],
    ]
    return table("Given: a stack of blocks, and rates of two GPUs", ["", "from", "amount"], rows, text_columns=2)


FIGURES: Mapping[str, Measure] = {
    "fsdp_derived_bytes": derived_bytes,
    "fsdp_kept_bytes": lambda device: derived_bytes(device, "kept"),
    "fsdp_all_bytes": lambda device: all_bytes(device),
    "fsdp_half_of_all": lambda device: changed(all_bytes(device), 0.5),
    "fsdp_three_wholes": lambda device: changed(all_bytes(device), 3),
    "fsdp_measured_bytes": measured_bytes,
    "fsdp_state": lambda device: held(device, "per_block", "state"),
    "fsdp_whole_state": lambda device: held(device, "whole", "state"),
    "fsdp_whole_weights": whole_weights,
    "fsdp_exposed": exposed_share,
    "fsdp_root_exposed": lambda device: exposed_share(device, "root_only"),
    "fsdp_hidden_from": hidden_from,
    "fsdp_512_over_alone": lambda device: over_alone(device, "512"),
    "fsdp_8192_over_alone": lambda device: over_alone(device, "8192"),
    "product_rate": product_rate,
    "bus_rate": bus_rate,
}
