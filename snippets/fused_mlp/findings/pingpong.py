"""What the chapter fused_mlp shows of its two best kernels: two products in one, consumers in turns, the forward."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from snippets.fused_mlp.findings.measures import (
    BF16_BYTES,
    at_least,
    at_most,
    one_of,
    own_claim,
    paired,
    percent,
    timings,
    within,
)
from snippets.lab.drawing.svg import HATCHES, PAPER, SERIES, TEXT, canvas, draw
from snippets.lab.drawing.timeline import timeline
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure, figure_of_timing, format_value
from snippets.lab.finding.measure import of_steps, per_step, share_of_ceiling
from snippets.lab.finding.quantities import point
from snippets.lab.html import Cell, Html, code, table
from snippets.lab.page.tables import figure_cell, kernel_table
from snippets.lab.recording.ceilings import LARGE_MATMUL
from snippets.lab.recording.device import shown_device
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import NotRecorded, Point, Timing
from snippets.lab.trace.events import GpuActivity, Step, Trace, TraceError
from snippets.lab.trace.queries import kernel_time_us, middle_step

# KEEP timeline
# KEEP trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

HALVES = {
    "eager": "fused_mlp/gate_up_eager",
    "bare product": "fused_mlp/gate_up_bare",
    "stacked": "fused_mlp/gate_up_stacked",
    "ping-pong": "fused_mlp/gate_up_fused",
}
"""Ways to compute the hidden tensor; the bare product stops before the activation."""
FORWARDS = {
    "eager": "fused_mlp/eager",
    "compiled": "fused_mlp/compiled",
    "max-autotune": "fused_mlp/max_autotune",
    "reduce-overhead": "fused_mlp/reduce_overhead",
    "Liger": "fused_mlp/liger",
    "ours": "fused_mlp/fused",
    "ours, kernelized": "fused_mlp/kernelized",
}
FOOTPRINTS = {
    "gated_activation_kernel": "fused_mlp/pointwise_fused",
    "gate_up_kernel": "fused_mlp/gate_up_stacked",
    "pingpong_kernel": "fused_mlp/gate_up_fused",
}
"""Kernel -> the experiment whose trace shows it."""
TILES = {"gate_up_kernel": (128, 128), "pingpong_kernel": (128, 64)}
"""Rows and columns of the hidden tensor that a program computes at a time."""
DOWN_TILE = (128, 128)
ROLE_REGISTERS = (240, 240, 24)
"""Of a thread of consumer 0, of consumer 1, and of the producer."""
STEPS = {
    "gate_up": {
        "hand over early": "two consumers in turns (ours)",
        "four slots": "four slots instead of six",
        "groups of eight": "groups of eight tiles instead of one",
        "stacked": "no turns: the stacked kernel",
    },
    "forward": {
        "ours, launched early": "both products ours, the second launched early",
        "ours, one after the other": "both ours, one after the other",
        "cuBLAS down": "the second product by cuBLAS",
    },
}
"""Part of `steps` -> variant -> in words; what the others are compared with stands first."""
WARP = 32
REGISTER_UNIT, PARTITIONS = 8, 4
"""Registers of a thread are handed out by eights, and each quarter of a multiprocessor has its own stock of them."""
SHARED_UNIT_BYTES, RESERVED_SHARED_BYTES = 128, 1024
"""Shared memory is handed out in units; of each program's, the driver keeps some for itself."""


# ---- what recordings say


def quartiles(experiment: str, part: str, variant: str, device: str) -> Timing:
    """Quartiles that `measure` returned. Raises `RecordingMissing` where a package was missing on that machine."""
    data = load_recording(experiment, device).data
    if "missing" in data:
        raise NotRecorded(f"{experiment} was recorded without what it compares with: {data['missing']}")
    low, median, high = data[part][variant]
    return Timing(median, low, high, ())


def data_ratio(experiment: str, part: str, upper: str, lower: str) -> Callable[[str], Figure]:
    """A measure: median over median of what `measure` timed in turns, and the widest that the quartiles allow."""

    def measure(device: str) -> Figure:
        a, b = (quartiles(experiment, part, name, device) for name in (upper, lower))
        spread = (a.q1_us / b.q3_us, a.q3_us / b.q1_us)
        return Figure(a.median_us / b.median_us, "x", spread, f"{experiment}, {part}: {upper} over {lower}, in turns")

    return measure


def _over_quack(part: str) -> Callable[[str], Figure]:
    """A measure: ours over QuACK's, from the pairs of their turns."""

    def measure(device: str) -> Figure:
        quartiles("fused_mlp/quack", part, "quack", device)  # raises where QuACK was not there
        low, middle, high = load_recording("fused_mlp/quack", device).data[f"{part}_ratio"]
        return Figure(middle, "x", (low, high), f"fused_mlp/quack, {part}: fused over quack, in turns")

    return measure


def _step(part: str, upper: str, lower: str) -> Callable[[str], Figure]:
    return data_ratio("fused_mlp/steps", part, upper, lower)


def _parameter(experiment: str, name: str, device: str) -> int:
    return int(point(load_recording(experiment, device)).parameters[name])


def _point(experiment: str, device: str) -> Point:
    return point(load_recording(experiment, device))


def _kernels(experiment: str) -> Callable[[str], Figure]:
    def measure(device: str) -> Figure:
        return of_steps(load_trace(experiment, device), lambda step: len(step.kernels), experiment)

    return measure


def _traced_us(experiment: str, device: str) -> Figure:
    traced = load_trace(experiment, device)
    return per_step(traced, lambda step: kernel_time_us(step.kernels), "us", f"{experiment}, kernels of a step")


# ---- what a kernel takes of a multiprocessor


class Footprint(NamedTuple):
    """What a program takes of its multiprocessor."""

    registers: int
    """Of a thread."""
    shared_bytes: int
    warps: int


def residents(taken: Footprint, limits: Mapping[str, int]) -> dict[str, int]:
    """How many programs fit on a multiprocessor at a time, by each of its limits.

    `limits` are "registers", "shared_bytes" and "threads" of one multiprocessor. A program without shared memory is not
    limited by it.
    """
    of_warp = math.ceil(taken.registers / REGISTER_UNIT) * REGISTER_UNIT * WARP
    warps = limits["registers"] // PARTITIONS // of_warp * PARTITIONS
    shared = math.ceil(taken.shared_bytes / SHARED_UNIT_BYTES) * SHARED_UNIT_BYTES + RESERVED_SHARED_BYTES
    found = {"registers": warps // taken.warps, "threads": limits["threads"] // (WARP * taken.warps)}
    return found | ({"shared memory": limits["shared_bytes"] // shared} if taken.shared_bytes else {})


def occupancy_percent(taken: Footprint, limits: Mapping[str, int]) -> float:
    """Share of a multiprocessor's thread slots that such programs fill."""
    return 100 * min(residents(taken, limits).values()) * taken.warps * WARP / limits["threads"]


def _limits(device: str) -> Mapping[str, int]:
    limits: Mapping[str, int] = load_recording("fused_mlp/resources", device).data["device"]
    return limits


def _compiled(kernel: str, device: str) -> Footprint:
    found: Mapping[str, int] = load_recording("fused_mlp/resources", device).data[kernel]
    return Footprint(found["registers"], found["shared_bytes"], found["warps"])


def _launched(kernel: str, device: str) -> GpuActivity:
    """The kernel in the middle step of its trace. Raises `TraceError` when the trace does not hold it."""
    traced = load_trace(FOOTPRINTS[kernel], device)
    found = [one for one in middle_step(traced).kernels if one.name == kernel]
    if not found:
        raise TraceError(f"{FOOTPRINTS[kernel]} holds no {kernel}; make record CHAPTER=fused_mlp")
    return found[0]


def _fits(kernel: str) -> Callable[[str], Figure]:
    def measure(device: str) -> Figure:
        by = residents(_compiled(kernel, device), _limits(device))
        said = ", ".join(f"{count} by {what}" for what, count in by.items())
        return Figure(min(by.values()), said=said, origin="fused_mlp/resources")

    return measure


def _programs(device: str) -> Figure:
    return replace(_fits("pingpong_kernel")(device), said="")


def _occupancy(kernel: str) -> Callable[[str], Figure]:
    def measure(device: str) -> Figure:
        value = occupancy_percent(_compiled(kernel, device), _limits(device))
        return Figure(value, "%", origin="computed from fused_mlp/resources")

    return measure


def _role_registers(device: str) -> Figure:
    started = _compiled("pingpong_kernel", device).registers
    mean = statistics.fmean(ROLE_REGISTERS)
    return Figure(started == mean, said=f"{started} at the start, {mean:g} on average", origin="fused_mlp/resources")


def _as_compiled(device: str) -> Figure:
    """Of the three kernels, how many were launched as they were compiled, without a register spilled to memory."""
    found = load_recording("fused_mlp/resources", device).data
    same = []
    for kernel in FOOTPRINTS:
        one, taken = _launched(kernel, device), _compiled(kernel, device)
        seen = (one.registers, one.shared_memory_bytes or 0, math.prod(one.block or (0,)))
        same.append(seen == (taken.registers, taken.shared_bytes, WARP * taken.warps) and not found[kernel]["spills"])
    return Figure(sum(same), said=f"{sum(same)} of {len(same)}", origin="fused_mlp/resources and three traces")


def _estimates(device: str) -> Figure:
    kernels = ("gate_up_kernel", "pingpong_kernel")
    estimated = [_launched(kernel, device).occupancy_percent for kernel in kernels]
    computed = [_occupancy(kernel)(device).text for kernel in kernels]
    said = " and ".join("none" if one is None else format_value(one, "%") for one in estimated)
    return Figure(
        all(one == 0 for one in estimated), said=f"{said}, computed {' and '.join(computed)}", origin="two traces"
    )


def tiles_of(rows: int, columns: int, tile: tuple[int, int]) -> int:
    """Tiles that cover a matrix."""
    return math.ceil(rows / tile[0]) * math.ceil(columns / tile[1])


def rounds(tiles: int, programs: int) -> tuple[int, int]:
    """Rounds in which so many programs compute so many tiles, and how many work in the last one."""
    full, rest = divmod(tiles, programs)
    return (full, programs) if not rest else (full + 1, rest)


def _hidden_tiles(kernel: str, device: str) -> int:
    experiment = FOOTPRINTS[kernel]
    rows, columns = (_parameter(experiment, name, device) for name in ("tokens", "hidden"))
    return tiles_of(rows, columns, TILES[kernel])


def _rounds(device: str) -> Figure:
    """The tiles of both products of the forward, and the rounds that they take."""
    count = load_recording("fused_mlp/fused", device).circumstances.multiprocessors
    tokens, dim = (_parameter("fused_mlp/fused", name, device) for name in ("tokens", "dim"))
    parts = []
    for tiles in (_hidden_tiles("pingpong_kernel", device), tiles_of(tokens, dim, DOWN_TILE)):
        most, last = rounds(tiles, count)
        parts.append(f"{tiles} tiles in {most} rounds, {last} of {count} in the last")
    return Figure("; ".join(parts), origin="shapes, tiles and multiprocessors")


def _grid(device: str) -> Figure:
    count = load_recording("fused_mlp/gate_up_fused", device).circumstances.multiprocessors

    def grids(step: Step) -> str:
        return ", ".join(str(math.prod(one.grid or (0,))) for one in step.kernels)

    found = of_steps(load_trace("fused_mlp/gate_up_fused", device), grids, "fused_mlp/gate_up_fused")
    return replace(found, value=found.value == str(count), said=f"{found.value} programs, {count} multiprocessors")


def _round_us(device: str) -> Figure:
    """How long one tile of the hidden tensor takes a multiprocessor on average."""
    warm = timings("fused_mlp/gate_up_fused", device).warm
    count = load_recording("fused_mlp/gate_up_fused", device).circumstances.multiprocessors
    most, _ = rounds(_hidden_tiles("pingpong_kernel", device), count)
    return Figure(warm.median_us / most, "us", (warm.q1_us / most, warm.q3_us / most), "warm, by rounds")


# ---- tuning


def tuned(part: str, device: str) -> Mapping[str, float]:
    """Candidate -> microseconds at the series' shape, the fastest first; `part` is "gate_up" or "forward"."""
    found = load_recording("fused_mlp/chosen", device)
    shape = "x".join(str(_parameter("fused_mlp/fused", name, device)) for name in ("tokens", "dim", "hidden"))
    times: Mapping[str, float] = found.data[shape][part]
    return dict(sorted(times.items(), key=lambda item: item[1]))


def _choice(part: str) -> Callable[[str], Figure]:
    return lambda device: Figure(next(iter(tuned(part, device))), origin="fused_mlp/chosen")


def cublas_over_ours(device: str) -> Figure:
    """For the second product, cuBLAS's time over that of the best ping-pong kernel, each with the first before it."""
    times = tuned("forward", device)
    ours = min(time_us for name, time_us in times.items() if name != "cuBLAS")
    return Figure(times["cuBLAS"] / ours, "x", origin="fused_mlp/chosen, medians")


def _worst(part: str) -> Callable[[str], Figure]:
    def measure(device: str) -> Figure:
        fastest, *_, slowest = tuned(part, device).values()
        return Figure(slowest / fastest, "x", origin="fused_mlp/chosen, the slowest candidate over the fastest")

    return measure


# ---- the whole forward


def kernels_work(traced: Trace, step: Step) -> dict[int, tuple[int, int]]:
    """FLOPs and least bytes of our two kernels by their place in a step, from the shapes of the operator's inputs."""
    found: dict[int, tuple[int, int]] = {}
    for place, one in enumerate(step.activities):
        op = traced.op_of(one)
        if op is None or not op.name.endswith("::forward"):
            continue
        (tokens, dim), (hidden, _), *_ = op.input_shapes
        if found:
            work = 2 * tokens * hidden * dim, BF16_BYTES * (tokens * hidden + hidden * dim + tokens * dim)
        else:
            work = 4 * tokens * hidden * dim, BF16_BYTES * (tokens * dim + 2 * hidden * dim + tokens * hidden)
        found[place] = work
    return found


def _kernel_counts(device: str) -> Figure:
    names = ("eager", "compiled", "Liger", "ours")
    counts = [_kernels(FORWARDS[name])(device) for name in names]
    said = ", ".join(f"{name} {count.value}" for name, count in zip(names, counts, strict=True))
    return Figure(said, conclusive=all(count.conclusive for count in counts))


def _forward_kernels(device: str) -> Figure:
    """The kernels of our forward in order; a product that an operator of PyTorch launched is cuBLAS's."""
    traced = load_trace(FORWARDS["ours"], device)

    def names(step: Step) -> str:
        ops = ((one.name, traced.op_of(one)) for one in step.kernels)
        return ", ".join("cuBLAS" if op and op.name == "aten::mm" else name for name, op in ops)

    return of_steps(traced, names, FORWARDS["ours"])


def _second_product(device: str) -> Figure:
    """Whose kernel does the second product in our forward."""
    found = _forward_kernels(device)
    whose = "cuBLAS's" if str(found.value).endswith("cuBLAS") else "ours"
    return Figure(whose, origin=found.origin, conclusive=found.conclusive)


def _tensors(experiment: str, device: str) -> float:
    """Peak memory of a call in tensors of the hidden size."""
    one = _point(experiment, device)
    size = BF16_BYTES * int(one.parameters["tokens"]) * int(one.parameters["hidden"])
    return one.peak_memory_bytes / size


def _half_memory(device: str) -> Figure:
    found = {name: _tensors(HALVES[name], device) for name in ("eager", "ping-pong")}
    return Figure("; ".join(f"{name} {count:g}" for name, count in found.items()), origin="peak memory of a call")


def _forward_memory(device: str) -> Figure:
    """Whether our forward holds the hidden tensor and its result, and nothing else."""
    one = _point("fused_mlp/fused", device)
    tokens, dim, hidden = (int(one.parameters[name]) for name in ("tokens", "dim", "hidden"))
    least = BF16_BYTES * tokens * (hidden + dim)
    held = one.peak_memory_bytes
    return Figure(held == least, said=format_value(held, "bytes"), origin="peak memory of a call")


def _saved_memory(device: str) -> Figure:
    eager, ours = (_point(FORWARDS[name], device).peak_memory_bytes for name in ("eager", "ours"))
    return Figure(eager - ours, "bytes", origin="peak memory of a call, eager's less ours")


def _least_error(device: str) -> Figure:
    errors = {name: _point(experiment, device).relative_error for name, experiment in FORWARDS.items()}
    ours = errors.pop("ours")
    errors.pop("ours, kernelized")
    return Figure(min(errors.values()) / ours, "x", origin="the least error of the others over ours")


def _enqueue_over_warm(device: str) -> Figure:
    found = timings("fused_mlp/fused", device)
    return Figure(found.enqueue.median_us / found.warm.median_us, "x", origin="fused_mlp/fused, enqueue over warm")


# ---- claims


fused_over_bare = paired(HALVES["ping-pong"], HALVES["bare product"])
stacked_over_bare = paired(HALVES["stacked"], HALVES["bare product"])
quack_half = _over_quack("gate_up")
quack_forward = _over_quack("forward")


def gate_up_of_large(device: str) -> Figure:
    """The rate of the fused half, in percent of the large product's of its session."""
    found = load_recording(HALVES["ping-pong"], device)
    return share_of_ceiling(found, point(found), LARGE_MATMUL)


CLAIMS: tuple[Claim, ...] = (
    own_claim(
        "F20",
        "Both products, GELU and the multiplication in one kernel take at most 95 % of the time of cuBLAS's bare "
        "product of that size.",
        fused_over_bare,
        at_most(0.95),
    ),
    own_claim(
        "F21",
        "It keeps up at least 88 % of the rate of a large matrix product of the same session.",
        gate_up_of_large,
        at_least(88),
    ),
    own_claim(
        "F22",
        "The stacked kernel alone, without turns, takes about as long as the bare product.",
        stacked_over_bare,
        within(0.93, 1.05),
    ),
    own_claim(
        "F23",
        "The eager half holds three tensors of the hidden size at its peak, the fused one a single one.",
        _half_memory,
        one_of("eager 3; ping-pong 1"),
        "this-gpu",
    ),
    own_claim(
        "F24",
        "One program of the ping-pong kernel takes a multiprocessor for itself: by registers as by shared memory, no "
        "second one fits.",
        _fits("pingpong_kernel"),
        one_of(1),
        "this-gpu",
    ),
    own_claim(
        "F25",
        "The kernel starts with as many registers for each thread as its three roles then have on average.",
        _role_registers,
        one_of(True),
        "this-gpu",
    ),
    own_claim(
        "F26",
        "All three kernels were launched with the registers, shared memory and threads they were compiled with, and "
        "none spills.",
        _as_compiled,
        one_of(3),
        "this-gpu",
    ),
    own_claim(
        "F27",
        "The profiler estimates an occupancy of zero for the stacked and the ping-pong kernel, which cannot be.",
        _estimates,
        one_of(True),
        "this-gpu",
    ),
    own_claim(
        "F28",
        "The ping-pong kernel starts as many programs as there are multiprocessors.",
        _grid,
        one_of(True),
        "this-gpu",
    ),
    own_claim(
        "F29",
        "In neither product is the last round of tiles full: of 132 programs, 36 work in the last of the first one's "
        "24, and 120 in the last of the second one's 3.",
        _rounds,
        one_of("3072 tiles in 24 rounds, 36 of 132 in the last; 384 tiles in 3 rounds, 120 of 132 in the last"),
        "this-gpu",
    ),
    own_claim(
        "F30",
        "Taking turns makes the kernel at least 6 % faster than the stacked one.",
        _step("gate_up", "stacked", "hand over early"),
        at_least(1.06),
    ),
    own_claim(
        "F32",
        "Four slots instead of six, and another order of tiles, change the time by less than 3 %.",
        lambda device: max(
            (_step("gate_up", name, "hand over early")(device) for name in ("four slots", "groups of eight")),
            key=lambda shown: abs(float(shown.value) - 1),
        ),
        within(0.97, 1.03),
    ),
    own_claim(
        "F35",
        "The slowest candidate of the first product takes at least one and a half times as long as the fastest.",
        _worst("gate_up"),
        at_least(1.5),
    ),
    own_claim(
        "F36",
        "Launching the second product early changes the forward's time by less than 5 %.",
        _step("forward", "ours, one after the other", "ours, launched early"),
        within(0.95, 1.05),
    ),
    own_claim(
        "F37",
        "In turns, too, the forward takes as long with cuBLAS's second product as with ours, to within 6 %.",
        _step("forward", "cuBLAS down", "ours, launched early"),
        within(0.94, 1.06),
    ),
    own_claim(
        "F38",
        "For the second product, cuBLAS's kernel and the best of ours are within a tenth of each other.",
        cublas_over_ours,
        within(0.9, 1.1),
    ),
    own_claim(
        "F40",
        "Warm, our forward takes at most 0.78 of the compiled one's time.",
        paired(FORWARDS["ours"], FORWARDS["compiled"]),
        at_most(0.78),
    ),
    own_claim(
        "F49",
        "Against max-autotune it takes at most 0.78 as well.",
        paired(FORWARDS["ours"], FORWARDS["max-autotune"]),
        at_most(0.78),
    ),
    own_claim(
        "F41",
        "It takes at most 0.70 of eager's time.",
        paired(FORWARDS["ours"], FORWARDS["eager"]),
        at_most(0.70),
    ),
    own_claim(
        "F42",
        "It takes at most 0.75 of the time with Liger's layer.",
        paired(FORWARDS["ours"], FORWARDS["Liger"]),
        at_most(0.75),
    ),
    own_claim(
        "F43",
        "It takes the time of QuACK's kernel followed by cuBLAS, to within 3 %.",
        quack_forward,
        within(0.97, 1.03),
    ),
    own_claim(
        "F44",
        "Its first half takes at most the time of QuACK's kernel.",
        quack_half,
        at_most(1.0),
        differs="QuACK's kernel is a few percent faster. It shares loads between two multiprocessors and cuts tiles of "
        "128x192, which Triton cannot: its tiles are powers of two. What remains to be won is in how long the tensor "
        "cores wait.",
    ),
    own_claim(
        "F45",
        "Eager runs five kernels, the compiled forward and Liger's four, ours two.",
        _kernel_counts,
        one_of("eager 5, compiled 4, Liger 4, ours 2"),
        "this-gpu",
    ),
    own_claim(
        "F46",
        "At its peak our forward holds the hidden tensor and its result, and nothing else.",
        _forward_memory,
        one_of(True),
        "this-gpu",
    ),
    own_claim(
        "F47",
        "None of the other forwards is as near to float64 as ours.",
        _least_error,
        at_least(1.05),
        "this-gpu",
    ),
    own_claim(
        "F48",
        "From Python the CPU hardly keeps up with our forward: to submit it takes at least nine tenths of the time "
        "that the GPU takes to run it.",
        _enqueue_over_warm,
        at_least(0.9),
    ),
)


# ---- what the page shows


def halves() -> Html:
    """The first half of the forward, four ways: kernels, times, rates, and shares of two ceilings."""
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for name, experiment in HALVES.items():
        found = load_recording(experiment, device)
        at, warm = point(found), timings(experiment, device).warm
        rows.append(
            [
                name,
                _kernels(experiment)(device).text,
                figure_cell(_traced_us(experiment, device)),
                figure_cell(figure_of_timing(warm)),
                None if name == "bare product" else figure_cell(paired(experiment, HALVES["bare product"])(device)),
                format_value(at.flops / warm.median_us * 1e6, "flop/s"),
                figure_cell(share_of_ceiling(found, at, LARGE_MATMUL)),
            ]
        )
    head = ["", "kernels", "kernel time in the trace", "timed in turns, warm", "over bare", "rate", "of large"]
    listed = table("From x to the hidden tensor, four ways", head, rows)
    said = "Over bare: time over the bare product's. Of large: of the rate of 8192x8192x8192, repeated in this session."
    return Html(f'{listed}<p class="lab-note">{said}</p>')


def turns() -> Html:
    """Who works when, with one group of warps and with two that take turns. A scheme: no measured times."""
    drawing = draw(
        _HEIGHT,
        _paint_turns,
        ident="fused-mlp-turns",
        title="Who works when: one group of warps, and two consumers in turns",
        description="One group multiplies a tile, then finishes it, and meanwhile the tensor cores are idle. Two "
        "consumers take turns: while one finishes a tile, the other multiplies the next, and the tensor cores always "
        "work. The producer loads ahead of both.",
    )
    caption = "Who works when (a scheme, not measured). The numbers are tiles"
    return Html(
        f'<figure class="chart" data-search-exclude><figcaption>{escape(caption)}</figcaption>{drawing}</figure>'
    )


_LEFT, _MULTIPLY, _FINISH, _AHEAD = 100, 66, 46, 18
_ROW, _BAR = 24, 20
_HEIGHT = 12 * _ROW
LOADS, MULTIPLIES, FINISHES = 2, 0, 1
"""Places in the palette."""


def _paint_turns(figure: Drawing) -> None:
    axes = canvas(figure, 0, _HEIGHT)
    one = _AHEAD
    period = _MULTIPLY + _FINISH
    alone = [(one + period * place, place + 1) for place in range(3)]
    shared = [(one + _MULTIPLY * place, place + 1) for place in range(5)]
    lanes: list[tuple[str, list[tuple[float, float, int, int]]]] = [
        ("One group of warps", []),
        ("loads", [(one - _AHEAD + period * place, _MULTIPLY, LOADS, place + 1) for place in range(3)]),
        ("warps", [bar for at, tile in alone for bar in _tile(at, tile)]),
        ("tensor cores", [(at, _MULTIPLY, MULTIPLIES, tile) for at, tile in alone]),
        ("Two consumers in turns", []),
        ("producer", [(_MULTIPLY * place, _MULTIPLY, LOADS, place + 1) for place in range(5)]),
        ("consumer 0", [bar for at, tile in shared[::2] for bar in _tile(at, tile)]),
        ("consumer 1", [bar for at, tile in shared[1::2] for bar in _tile(at, tile)]),
        ("tensor cores", [(at, _MULTIPLY, MULTIPLIES, tile) for at, tile in shared]),
    ]
    for place, (name, bars) in enumerate(lanes):
        top = place * _ROW + 2
        axes.text(0, top + TEXT + 2, name, weight="normal" if bars else "bold")
        for left, width, kind, tile in bars:
            if _LEFT + left + width <= 460:
                _bar(axes, _LEFT + left, top, width, kind, str(tile))
    for place, (kind, text) in enumerate(
        ((LOADS, "loads blocks"), (MULTIPLIES, "multiplies"), (FINISHES, "finishes: activation, rounding, store"))
    ):
        top = (len(lanes) + place) * _ROW + 4
        _bar(axes, 0, top, 26, kind, "")
        axes.text(34, top + TEXT + 2, text)


def _tile(at: float, tile: int) -> list[tuple[float, float, int, int]]:
    return [(at, _MULTIPLY, MULTIPLIES, tile), (at + _MULTIPLY, _FINISH, FINISHES, tile)]


def _bar(axes: Axes, left: float, top: float, width: float, kind: int, text: str) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(
        Rectangle((left, top), width, _BAR, facecolor=SERIES[kind], edgecolor=PAPER, hatch=HATCHES[kind], linewidth=1.2)
    )
    if text:
        chip = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
        axes.text(left + width / 2, top + _BAR / 2, text, ha="center", va="center", bbox=chip)


def residency() -> Html:
    """What the three kernels take of a multiprocessor, what fits, and how their tiles divide among programs."""
    device = shown_device()
    limits = _limits(device)
    taken = {kernel: _compiled(kernel, device) for kernel in FOOTPRINTS}
    launched = {kernel: _launched(kernel, device) for kernel in FOOTPRINTS}
    fit = {kernel: residents(one, limits) for kernel, one in taken.items()}
    programs = {kernel: math.prod(one.grid or (0,)) for kernel, one in launched.items()}
    tiles = {kernel: _hidden_tiles(kernel, device) for kernel in TILES}
    fitting: list[list[Cell]] = [
        [f"programs that fit, by {what}", *(by.get(what) for by in fit.values())] for what in _LIMITS
    ]
    rows: list[Sequence[Cell]] = [
        ["kernel", *(code(kernel) for kernel in FOOTPRINTS)],
        ["warps in a program", *(one.warps for one in taken.values())],
        ["registers for each thread", *(one.registers for one in taken.values())],
        ["shared memory", *(format_value(one.shared_bytes, "bytes") for one in taken.values())],
        *fitting,
        ["occupancy, computed", *(_occupancy(kernel)(device).text for kernel in FOOTPRINTS)],
        ["occupancy, profiler's estimate", *(_estimate(one) for one in launched.values())],
        ["programs started", *(f"{programs[kernel]:,}" for kernel in FOOTPRINTS)],
        ["tiles", *(f"{tiles[kernel]:,}" if kernel in tiles else None for kernel in FOOTPRINTS)],
        ["rounds", *(_in_rounds(tiles.get(kernel), programs[kernel]) for kernel in FOOTPRINTS)],
    ]
    caption = "What a program takes of a multiprocessor, and how the tiles divide"
    return table(caption, ["", "pointwise", "stacked", "ping-pong"], rows)


_LIMITS = ("registers", "threads", "shared memory")


def _estimate(one: GpuActivity) -> str | None:
    return None if one.occupancy_percent is None else format_value(one.occupancy_percent, "%")


def _in_rounds(tiles: int | None, programs: int) -> str | None:
    if tiles is None:
        return None
    most, last = rounds(tiles, programs)
    return f"{most}, {last} programs in the last"


def steps_table() -> Html:
    """The same work with one idea left out each time, in turns."""
    device = shown_device()
    parts = {
        "gate_up": "From x to the hidden tensor, with one idea changed",
        "forward": "The whole forward: what follows the first product",
    }
    shown = []
    for part, caption in parts.items():
        first = next(iter(STEPS[part]))
        rows: list[Sequence[Cell]] = [
            [
                words,
                figure_cell(figure_of_timing(quartiles("fused_mlp/steps", part, name, device))),
                None if name == first else _signed(_step(part, name, first)(device)),
            ]
            for name, words in STEPS[part].items()
        ]
        shown.append(table(caption, ["", "median", "against the first row"], rows))
    return Html("".join(shown))


def _signed(shown: Figure) -> str:
    percent = 100 * (float(shown.value) - 1)
    return f"{percent:+.1f} %".replace("-", "−")


def tuned_table() -> Html:
    """Every candidate at the series' shape, the fastest first."""
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for part, what in (("gate_up", "first half"), ("forward", "forward")):
        times = tuned(part, device)
        fastest = next(iter(times.values()))
        rows += [[what, name, format_value(us, "us"), format_value(us / fastest, "x")] for name, us in times.items()]
    caption = "What tuning had to choose from at this shape; the forward's times contain the first half"
    return table(caption, ["", "candidate", "median", "of the fastest"], rows, text_columns=2)


def three_forwards() -> Html:
    """Eager, compiled and ours as pictures on one scale."""
    shown = {name: FORWARDS[name] for name in ("eager", "compiled", "ours")}
    return timeline(shown, shown_device(), "One forward: eager, compiled and ours")


def our_kernels() -> Html:
    """The GPU work of our forward."""
    device = shown_device()
    return kernel_table(FORWARDS["ours"], device, "Our forward on the GPU", work=kernels_work)


def forwards() -> Html:
    """Every variant of the whole forward: kernels, times, memory, error."""
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for name, experiment in FORWARDS.items():
        times, at = timings(experiment, device), _point(experiment, device)
        faster = None if name == "eager" else figure_cell(paired(FORWARDS["eager"], experiment)(device))
        rows.append(
            [
                name,
                _kernels(experiment)(device).text,
                figure_cell(figure_of_timing(times.warm)),
                faster,
                format_value(times.launched.median_us, "us"),
                format_value(times.enqueue.median_us, "us"),
                format_value(at.peak_memory_bytes, "bytes"),
                f"{at.relative_error:.1e}",
            ]
        )
    head = ["", "kernels", "GPU time, warm", "eager's over it", "from Python", "CPU alone", "peak memory", "error"]
    return table("The whole forward, timed in turns", head, rows)


def beside_quack() -> Html:
    """Ours beside QuACK, in turns, in a session of their own."""
    device = shown_device()
    version = load_recording("fused_mlp/quack", device).data.get("version", "")
    names = {"quack": f"QuACK {version}", "fused": "ours", "bare": "cuBLAS, bare product", "eager": "eager"}
    rows: list[Sequence[Cell]] = []
    for part, what in (("gate_up", "first half"), ("forward", "forward")):
        timed: Mapping[str, Any] = load_recording("fused_mlp/quack", device).data.get(part, {"quack": None})
        for name in timed:
            one = quartiles("fused_mlp/quack", part, name, device)
            over = data_ratio("fused_mlp/quack", part, name, "quack")(device)
            rows.append([what, names[name], figure_cell(figure_of_timing(one)), f"{float(over.value):.3f}x"])
    caption = "Beside QuACK, whose forward is its kernel and cuBLAS: timed in turns, in a session of their own"
    return table(caption, ["", "variant", "median", "over QuACK"], rows, text_columns=2)


FIGURES: Mapping[str, Callable[[str], Figure]] = {
    "gate_up_of_bare": percent(fused_over_bare),
    "stacked_of_bare": percent(stacked_over_bare),
    "programs_fit": _programs,
    "pingpong_occupancy": _occupancy("pingpong_kernel"),
    "round_us": _round_us,
    "cublas_over_ours": cublas_over_ours,
    "second_product": _second_product,
    "chosen_forward": _choice("forward"),
    "worst_half": _worst("gate_up"),
    "forward_speedup": paired(FORWARDS["eager"], FORWARDS["ours"]),
    "over_compiled": paired(FORWARDS["compiled"], FORWARDS["ours"]),
    "over_liger": paired(FORWARDS["Liger"], FORWARDS["ours"]),
    "saved_memory_bytes": _saved_memory,
}
"""The chapter's own numbers of these questions, `#!fig fused_mlp.<name>`."""
