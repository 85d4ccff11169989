"""The forward and its first half against QuACK's, with its default tiles and with its tuned tiles."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kinetoscope.html import Cell, Html, bold, note, table
from snippets.fused_mlp.findings.probes import on_hopper, probe_ratio, probe_timing, probed, require_packages
from snippets.fused_mlp.findings.shapes import (
    ONE_TOKEN,
    SERIES,
    SIXTEEN_TOKENS,
    TALL_AND_THIN,
    WIDE,
    WIDER,
    WIDEST,
    Shape,
    shape_name,
    shapes_in,
)
from snippets.lab.finding import Device, Figure, Measure, NotTimed, Run, at_least, at_most, between, claim, format_value
from snippets.lab.finding.measure import largest, smallest, unpaired_ratio
from snippets.lab.page import figure_cell, show as show

UNTUNED, TUNED, OURS = "quack", "quack tuned", "fused"
STEADY, TILES = "steady", "tiles"
OUR_TILES, WIDER_TILES, QUACKS_TILES = "128x128", "128x192", "128x192, shared"
"""Rows and columns of the products of gate and up that one tile of the first half has; QuACK's are its default ones."""
OURS_AHEAD = (TALL_AND_THIN, SIXTEEN_TOKENS, ONE_TOKEN)
"""Shapes at which our forward is the faster one."""


def quack(device: Device) -> Run:
    """The timings of one process with QuACK's kernel."""
    return on_hopper(device["fused_mlp/quack"])


def steady(device: Device, variant: str, *part: str) -> Figure:
    """The steady time of a forward; below `TILES`, in the process of the pinned tiles."""
    timing = probe_timing(quack(device), *part, STEADY, variant, "samples_us")
    return Figure.from_timing(timing, f"fused_mlp/quack, {', '.join((*part, STEADY))}: {variant}")


def steady_clock(device: Device, variant: str, *part: str) -> Figure:
    """The clock at which the GPU runs it steady. Raises `NotTimed` where none was read."""
    mhz = probed(quack(device), *part, STEADY, variant).get("clock_mhz")
    if not mhz:
        raise NotTimed(f"fused_mlp/quack has no clock of {variant}")
    return Figure(float(mhz), "MHz", origin=f"fused_mlp/quack, {', '.join((*part, STEADY))}: {variant}")


@claim("F43", at_most(1.0), scope="timing")
def forward_over_quack(device: Device) -> Figure:
    """In interleaved timing, our forward takes no longer than a forward of QuACK's kernel, tuned or untuned, and
    cuBLAS's product for down.

    QuACK's kernel takes less time for gate, up and the activation than our kernel. The whole forwards differ by less
    than these kernels.
    """
    return largest(*(probe_ratio(quack(device), "forward", OURS, name) for name in (UNTUNED, TUNED)))


@claim("F110", at_most(1.0), scope="timing")
def steady_over_quack(device: Device) -> Figure:
    """In steady timing, our forward takes no longer than a forward of QuACK's kernel, tuned or untuned, and cuBLAS's
    product for down.

    Both forwards run at the power limit. On the H200, QuACK's forward has a higher clock at this limit than our
    forward. On the H100, QuACK's forward needs fewer cycles than our forward.
    """
    ours = steady(device, OURS)
    return largest(*(unpaired_ratio(ours, steady(device, name)) for name in (UNTUNED, TUNED)))


@claim("F44", at_least(1.02), scope="timing")
def half_over_quack(device: Device) -> Figure:
    """For gate, up and the activation, our kernel takes at least 2 % longer than QuACK's untuned kernel."""
    return probe_ratio(quack(device), "gate_up", OURS, UNTUNED)


@claim("F118", at_least(1.02), scope="timing")
def quack_clock_over_ours(device: Device) -> Figure:
    """In steady timing at the series' shape, the clock of QuACK's tuned forward is at least 2 % above the clock of our
    forward."""
    return unpaired_ratio(steady_clock(device, TUNED), steady_clock(device, OURS))


@claim("F119", between(0.98, 1.02), scope="timing")
def ours_over_same_tiles(device: Device) -> Figure:
    """In steady timing, our forward takes as long as QuACK's forward with tiles of 128x128 and no shared loads, within
    2 %."""
    return unpaired_ratio(steady(device, OURS, TILES), steady(device, OUR_TILES, TILES))


@claim("F120", at_most(1.0), scope="timing")
def wider_tiles(device: Device) -> Figure:
    """In steady timing without shared loads, QuACK's forward is faster with tiles of 128x192 than with tiles of
    128x128."""
    return unpaired_ratio(steady(device, WIDER_TILES, TILES), steady(device, OUR_TILES, TILES))


@claim("F121", at_least(1.01), scope="timing")
def clock_of_tiles(device: Device) -> Figure:
    """In steady timing, the clock of QuACK's forward is at least 1 % higher with tiles of 128x192 and shared loads than
    with tiles of 128x128 and no shared loads."""
    return unpaired_ratio(steady_clock(device, QUACKS_TILES, TILES), steady_clock(device, OUR_TILES, TILES))


@claim("F123", at_most(1.0), scope="timing")
def shared_tiles(device: Device) -> Figure:
    """In steady timing with tiles of 128x128, QuACK's forward is faster with shared loads than without shared loads."""
    return unpaired_ratio(steady(device, f"{OUR_TILES}, shared", TILES), steady(device, OUR_TILES, TILES))


def cycles_with(device: Device, tiles: str) -> Figure:
    """The cycles of a steady forward: its time at its clock."""
    time, clock = steady(device, tiles, TILES), steady_clock(device, tiles, TILES)
    low, high = time.bounds
    origin = f"{time.origin}, at its clock"
    return Figure(time.number * clock.number, "", (low * clock.number, high * clock.number), origin)


@claim("F122", between(0.98, 1.02), scope="timing")
def cycles_over_quack(device: Device) -> Figure:
    """In steady timing, our forward takes as many cycles as QuACK's forward with tiles of 128x192 and shared loads,
    within 2 %."""
    return unpaired_ratio(cycles_with(device, OURS), cycles_with(device, QUACKS_TILES))


def tiles_table(device: Device) -> Html:
    """QuACK's forward with pinned tiles, by single multiprocessors and by two that share loads, and the package's."""
    run = quack(device)
    rows: list[Sequence[Cell]] = []
    for name in (OURS, OUR_TILES, f"{OUR_TILES}, shared", WIDER_TILES, QUACKS_TILES):
        time = Figure.from_timing(probe_timing(run, TILES, "forward", name))
        heading = f"our forward, {OUR_TILES}" if name == OURS else f"QuACK, {name}"
        times = (figure_cell(each) for each in (time, steady(device, name, TILES)))
        cycles = f"{round(cycles_with(device, name).number, -3):,.0f}"
        rows.append([heading, *times, steady_clock(device, name, TILES).text, cycles])
    head = ["forward, tiles", "interleaved", "steady", "steady clock", "steady cycles"]
    return table("Our forward, and QuACK's forward with and without wider tiles and shared loads", head, rows)


def quack_shapes(device: Device) -> Run:
    """The timings with QuACK's kernel at every shape of the table."""
    run = on_hopper(device["fused_mlp/quack_shapes"])
    require_packages(run)
    return run


def taken_shapes(run: Run, *, ahead: bool) -> list[Shape]:
    """The shapes that QuACK accepted, among those where the package is `ahead`, or among the others. Raises `NotTimed`
    without any."""
    shapes = [shape for shape in shapes_in(run.device, "bfloat16") if (shape in OURS_AHEAD) is ahead]
    taken = [shape for shape in shapes if "failed" not in probed(run, shape_name(shape))]
    if not taken:
        raise NotTimed(f"{run.id}: QuACK rejects {', '.join(map(shape_name, shapes))}")
    return taken


def over_faster_quack(run: Run, shape: Shape) -> Figure:
    """The package's forward / the faster of QuACK's two at one shape, interleaved."""
    return largest(*(probe_ratio(run, shape_name(shape), "forward", OURS, name) for name in (UNTUNED, TUNED)))


def steady_over_faster_quack(run: Run, shape: Shape) -> Figure:
    """The package's forward / the faster of QuACK's two at one shape, steady."""
    name = shape_name(shape)
    timings = (probe_timing(run, name, STEADY, each, "samples_us") for each in (OURS, UNTUNED, TUNED))
    ours, *others = (Figure.from_timing(timing, f"{run.id}, {name}, steady") for timing in timings)
    return largest(*(unpaired_ratio(ours, other) for other in others))


def over_quack_by_recording(device: Device) -> Figure:
    """The least and the greatest of three recordings' steady ratios at the series' shape: `1.03x to 1.05x`."""
    tiles = unpaired_ratio(*(steady(device, name, TILES) for name in (OURS, QUACKS_TILES)))
    ratios = (steady_over_faster_quack(quack_shapes(device), SERIES), steady_over_quack(device), tiles)
    low, high = smallest(*ratios), largest(*ratios)
    return Figure(f"{low.text} to {high.text}", origin="fused_mlp/quack, fused_mlp/quack_shapes")


def steady_at(shape: Shape) -> Measure:
    """The package's steady forward / the faster of QuACK's two at one shape."""
    return lambda device: steady_over_faster_quack(quack_shapes(device), shape)


@claim("F116", at_most(1.0), scope="timing")
def where_ours_is_faster(device: Device) -> Figure:
    """In interleaved timing, our forward is faster than QuACK's forward for one token, for 16 tokens and for narrow
    weights (65536x256x1024)."""
    run = quack_shapes(device)
    return largest(*(over_faster_quack(run, shape) for shape in taken_shapes(run, ahead=True)))


def _behind(device: Device) -> list[Figure]:
    """The steady ratios at the shapes where QuACK's is ahead."""
    run = quack_shapes(device)
    return [steady_over_faster_quack(run, shape) for shape in taken_shapes(run, ahead=False)]


@claim("F117", at_least(1.0), scope="timing")
def where_quack_is_faster(device: Device) -> Figure:
    """In steady timing with 128 tokens or more, QuACK's forward is faster than our forward, except for narrow weights
    (65536x256x1024)."""
    return smallest(*_behind(device))


def quack_shape_table(device: Device) -> Html:
    """Our forward and QuACK's at every shape of the table: interleaved, and both ratios."""
    run = quack_shapes(device)
    rows: list[Sequence[Cell]] = []
    for shape in shapes_in(device, "bfloat16"):
        name = shape_name(shape)
        if why := probed(run, name).get("failed"):
            rows.append([name, None, None, why, None, None])
            continue
        medians_us = [probe_timing(run, name, "forward", each).median_us for each in (OURS, UNTUNED, TUNED)]
        times = (bold(format_value(median_us, "us"), median_us == min(medians_us)) for median_us in medians_us)
        ratios = (over_faster_quack(run, shape), steady_over_faster_quack(run, shape))
        rows.append([name, *times, *(figure_cell(replace(ratio, display=f"{ratio.value:.3f}x")) for ratio in ratios)])
    caption = f"Our forward and the forward with QuACK {run.data['version']} in bf16, interleaved"
    ratios_of = ["our forward / QuACK's faster forward, interleaved", "our forward / QuACK's faster forward, steady"]
    head = ["tokens x dim x hidden", "our forward", "QuACK, untuned", "QuACK, tuned", *ratios_of]
    return Html(
        table(caption, head, rows)
        + note("Interleaved times form pairs, and each interleaved ratio is the median ratio of all pairs.")
    )


def beside_quack(device: Device) -> Html:
    """Our forward and QuACK's in a process of their own: interleaved, and the whole forward steady."""
    run = quack(device)
    name = f"QuACK {run.data.get('version', '')}"
    headings = {
        UNTUNED: f"{name}, untuned",
        TUNED: f"{name}, tuned",
        OURS: "our kernels",
        "bare": "cuBLAS, without activation",
        "eager": "eager",
    }
    has_steady = STEADY in run.data
    rows: list[Sequence[Cell]] = []
    for part, half in (("gate_up", "gate and up"), ("forward", "forward")):
        for variant in run.data.get(part, (UNTUNED,)):
            time = Figure.from_timing(probe_timing(run, part, variant))
            over = probe_ratio(run, part, variant, UNTUNED)
            alone = figure_cell(steady(device, variant)) if has_steady and variant in probed(run, STEADY) else None
            steadily = alone if part == "forward" else None
            rows.append([half, headings[variant], figure_cell(time), f"{over.number:.3f}x", steadily])
    caption = "QuACK's kernel against our kernels: for gate and up, and for the whole forward"
    head = ["part", "variant", "interleaved", "time / QuACK's untuned time", "steady"]
    return table(caption, head, rows, text_columns=2)


FIGURES: Mapping[str, Measure] = {
    "over_quack_by_recording": over_quack_by_recording,
    "over_quack_steady": steady_at(SERIES),
    "tall_and_thin_over_quack": steady_at(TALL_AND_THIN),
    "wide_over_quack": steady_at(WIDER),
    "widest_over_quack": steady_at(WIDEST),
    "few_tokens_over_quack": steady_at((128, *WIDE)),
    "sixteen_tokens_over_quack": steady_at(SIXTEEN_TOKENS),
    "one_token_over_quack": steady_at(ONE_TOKEN),
    "most_over_quack_steady": lambda device: largest(*_behind(device)),
    "over_same_tiles": ours_over_same_tiles,
    "wider_tiles": wider_tiles,
    "shared_tiles": shared_tiles,
    "cycles_over_quack": cycles_over_quack,
}
