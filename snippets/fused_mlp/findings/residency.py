"""The schedule of the kernels' warps; their use of a multiprocessor, the programs that fit, and the tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.occupancy import Footprint, Stocks, fits_by, footprint_of, occupancy_percent
from snippets.fused_mlp.findings.ideas import tuned
from snippets.fused_mlp.findings.probes import on_hopper
from snippets.lab.cache import code_key
from snippets.lab.charts.svg import EDGES, FILLS, PAPER, TEXT, WIDTH, canvas, draw
from snippets.lab.finding import Device, Figure, Measure, TraceError, claim, equals, format_value
from snippets.lab.page import show as show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

_LEFT, _MULTIPLY, _FINISH, _AHEAD = 102, 46, 33, 14
_ROW, _BAR = 24, 20
_HEIGHT = 12 * _ROW
LOADS, MULTIPLIES, FINISHES = "copy", "gemm", "pointwise"
"""Kinds in the palette."""
_KEYS = ((LOADS, "loads blocks"), (MULTIPLIES, "multiplies"), (FINISHES, "finishes: activation, rounding, store"))
FOOTPRINTS = {
    "gated_activation_kernel": "fused_mlp/pointwise_fused",
    "gate_up_kernel": "fused_mlp/gate_up_stacked",
    "pingpong_kernel": "fused_mlp/gate_up_fused",
}
"""Kernel -> the experiment whose trace shows it."""
TILES = {"gate_up_kernel": (128, 128), "pingpong_kernel": (128, 64)}
"""Rows and columns of the hidden tensor that a program computes in one tile."""
LIMITS = ("registers", "threads", "shared memory")


class Bar(NamedTuple):
    """One role at one tile."""

    left: float
    width: float
    kind: str
    tile: int


def turns(_: Device) -> Html:
    """The picture of the schedule, the same for every device."""
    drawing = draw(
        _HEIGHT,
        _paint,
        ident="fused-mlp-turns",
        title="Which warps work when: one group of warps, and two consumers that take turns",
        description="One group multiplies a tile, then finishes it, and meanwhile the tensor cores are idle. Two "
        "consumers take turns: while one finishes a tile, the other multiplies the next, and the tensor cores always "
        "work. The producer loads ahead of both.",
        data=code_key(Path(__file__)),
    )
    caption = "Which warps work at which time (a drawing, not measured). The numbers count tiles"
    heading = f"<figcaption>{escape(caption)}</figcaption>"
    return Html(f'<figure class="chart" data-search-exclude>{heading}{drawing}</figure>')


def _lanes() -> list[tuple[str, list[Bar]]]:
    """Heading and bars of each row; a row without bars is a title."""
    alone = [Bar(_AHEAD + (_MULTIPLY + _FINISH) * index, _MULTIPLY, MULTIPLIES, index + 1) for index in range(3)]
    shared = [Bar(_AHEAD + _MULTIPLY * index, _MULTIPLY, MULTIPLIES, index + 1) for index in range(5)]
    return [
        ("Stacked kernel: one group of warps", []),
        ("loads", [Bar(bar.left - _AHEAD, _MULTIPLY, LOADS, bar.tile) for bar in alone]),
        ("warps", _with_finish(alone)),
        ("tensor cores", alone),
        ("Ping-pong kernel: two consumers that take turns", []),
        ("producer", [Bar(bar.left - _AHEAD, _MULTIPLY, LOADS, bar.tile) for bar in shared]),
        ("consumer 0", _with_finish(shared[::2])),
        ("consumer 1", _with_finish(shared[1::2])),
        ("tensor cores", shared),
    ]


def _with_finish(multiplied: list[Bar]) -> list[Bar]:
    """The schedule of warps that multiply each tile and then finish it."""
    return [part for bar in multiplied for part in (bar, Bar(bar.left + bar.width, _FINISH, FINISHES, bar.tile))]


def _paint(picture: Picture) -> None:
    axes = canvas(picture, 0, _HEIGHT)
    lanes = _lanes()
    for index, (name, bars) in enumerate(lanes):
        top = index * _ROW + 2
        axes.text(0, top + TEXT + 2, name, weight="normal" if bars else "bold")
        for bar in bars:
            if _LEFT + bar.left + bar.width <= WIDTH:
                _draw_bar(axes, _LEFT + bar.left, top, bar.width, bar.kind, str(bar.tile))
    for index, (kind, text) in enumerate(_KEYS, len(lanes)):
        top = index * _ROW + 4
        _draw_bar(axes, 0, top, 26, kind, "")
        axes.text(34, top + TEXT + 2, text)


def _draw_bar(axes: Axes, left: float, top: float, width: float, kind: str, text: str) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((left, top), width, _BAR, facecolor=FILLS[kind], edgecolor=EDGES[kind], linewidth=1))
    if text:
        chip = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
        axes.text(left + width / 2, top + _BAR / 2, text, ha="center", va="center", bbox=chip)


def footprint(device: Device, kernel: str) -> Footprint:
    """The resources of a kernel's program as launched, with the tiles that tuning chose."""
    return footprint_of(launched(device, kernel))


def programs_by(device: Device, kernel: str) -> dict[str, int]:
    """The number of a kernel's programs that fit on a multiprocessor at once, by each of its resources."""
    return fits_by(footprint(device, kernel), stocks(device))


def stocks(device: Device) -> Stocks:
    """Registers, shared memory and threads of one multiprocessor."""
    data = on_hopper(device["fused_mlp/resources"]).data["device"]
    return Stocks(data["registers"], data["shared_bytes"], data["threads"])


def launched(device: Device, kernel: str) -> GpuActivity:
    """The kernel in the middle step of its trace. Raises `TraceError` when the trace lacks it."""
    run = device[FOOTPRINTS[kernel]]
    for activity in (on_hopper(run) if kernel in TILES else run).step.kernels:
        if activity.name == kernel:
            return activity
    raise TraceError(f"{FOOTPRINTS[kernel]} has no kernel {kernel}; make record CHAPTER=fused_mlp")


def occupancy(device: Device, kernel: str) -> Figure:
    """The occupancy that a kernel's registers, shared memory and threads allow."""
    percent = occupancy_percent(footprint(device, kernel), stocks(device))
    return Figure(percent, "%", origin=f"computed from the trace of {FOOTPRINTS[kernel]}")


def tiles_of(rows: int, columns: int, tile: tuple[int, int]) -> int:
    """Tiles that cover a matrix."""
    return math.ceil(rows / tile[0]) * math.ceil(columns / tile[1])


def rounds(tiles: int, programs: int) -> tuple[int, int]:
    """The rounds in which the programs compute all tiles, and the number of programs in the last round."""
    full, rest = divmod(tiles, programs)
    return (full, programs) if not rest else (full + 1, rest)


def hidden_tiles(device: Device, kernel: str) -> int:
    """Tiles of the hidden tensor for a kernel."""
    parameters = device[FOOTPRINTS[kernel]].point.parameters
    return tiles_of(int(parameters["tokens"]), int(parameters["hidden"]), TILES[kernel])


@claim("F24", equals(1), scope="this-gpu")
def programs_that_fit(device: Device) -> Figure:
    """A multiprocessor's registers and its shared memory have room for only one program of the ping-pong kernel."""
    counts = programs_by(device, "pingpong_kernel")
    display = ", ".join(f"{count} by {limit}" for limit, count in counts.items())
    return Figure(min(counts.values()), display=display, origin=f"the trace of {FOOTPRINTS['pingpong_kernel']}")


@claim("F26", equals(3), scope="this-gpu")
def launched_as_compiled(device: Device) -> Figure:
    """The launches of the pointwise kernel, the stacked kernel and the ping-pong kernel use the registers and threads
    that the compiler chose. None of these kernels spills registers."""

    def is_same(kernel: str) -> bool:
        data, used = on_hopper(device["fused_mlp/resources"]).data[kernel], footprint(device, kernel)
        return (used.registers, used.warps) == (data["registers"], data["warps"]) and not data["spills"]

    same = sum(map(is_same, FOOTPRINTS))
    return Figure(same, display=f"{same} of {len(FOOTPRINTS)}", origin="fused_mlp/resources and three traces")


@claim("F27", equals(True), scope="this-gpu")
def estimated_occupancies(device: Device) -> Figure:
    """The profiler estimates an occupancy of zero for the stacked kernel and the ping-pong kernel, although the
    computed occupancy of both kernels is above zero."""
    estimates = [launched(device, kernel).occupancy_percent for kernel in TILES]
    computed = [occupancy(device, kernel) for kernel in TILES]
    is_wrong = all(estimate == 0 for estimate in estimates) and all(figure.number > 0 for figure in computed)
    estimated = " and ".join(_percent(estimate) or "none" for estimate in estimates)
    display = f"{estimated}, computed {' and '.join(figure.text for figure in computed)}"
    return Figure(is_wrong, display=display, origin="two traces")


def _percent(value: float | None) -> str | None:
    return None if value is None else format_value(value, "%")


@claim("F28", equals(True), scope="this-gpu")
def started_programs(device: Device) -> Figure:
    """The ping-pong kernel starts as many programs as the GPU has multiprocessors."""
    run = on_hopper(device["fused_mlp/gate_up_fused"])

    def grids(step: Step) -> str:
        return ", ".join(str(math.prod(kernel.grid or (0,))) for kernel in step.kernels)

    programs, count = run.per_step(grids), run.environment.multiprocessors
    display = f"{programs.value} programs, {count} multiprocessors"
    return replace(programs, value=programs.value == str(count), display=display)


@claim("F29", equals("3072 tiles in 24 rounds, 36 of 132 in the last"), scope="this-gpu")
def rounds_of_first_kernel(device: Device) -> Figure:
    """In our forward's first kernel, 36 of 132 programs work in the last of 24 rounds."""
    run = on_hopper(device["fused_mlp/fused"])
    rows, hidden = (int(run.point.parameters[name]) for name in ("tokens", "hidden"))
    tiles = tiles_of(rows, hidden, tuned_tile(device))

    def text(step: Step) -> str:
        programs = math.prod(step.kernels[0].grid or (1,))
        number, last = rounds(tiles, programs)
        return f"{tiles} tiles in {number} rounds, {last} of {programs} in the last"

    return replace(run.per_step(text), origin="tiles of fused_mlp/chosen, programs of the trace of fused_mlp/fused")


def tuned_tile(device: Device) -> tuple[int, int]:
    """Rows and columns of a tile of the fastest ping-pong candidate at the series' shape."""
    name = next(name for name in tuned(device, "gate_up") if name.startswith("ping-pong"))
    rows, columns = name.removeprefix("ping-pong ").partition(",")[0].split("x")
    return int(rows), int(columns)


def residency(device: Device) -> Html:
    """The three kernels' use of a multiprocessor, the programs that fit, and their share of the tiles."""
    footprints = [footprint(device, kernel) for kernel in FOOTPRINTS]
    activities = [launched(device, kernel) for kernel in FOOTPRINTS]
    counts = [programs_by(device, kernel) for kernel in FOOTPRINTS]
    programs = [math.prod(activity.grid or (0,)) for activity in activities]
    tiles = [hidden_tiles(device, kernel) if kernel in TILES else None for kernel in FOOTPRINTS]
    rows: list[Sequence[Cell]] = [
        ["name", *(code(kernel) for kernel in FOOTPRINTS)],
        ["warps in a program", *(used.warps for used in footprints)],
        ["registers of a thread", *(used.registers for used in footprints)],
        ["shared memory of a program", *(format_value(used.shared_bytes, "bytes") for used in footprints)],
        *([f"programs that fit, by {limit}", *(count.get(limit) for count in counts)] for limit in LIMITS),
        ["occupancy, computed", *(occupancy(device, kernel).text for kernel in FOOTPRINTS)],
        ["occupancy, profiler's estimate", *(_percent(activity.occupancy_percent) for activity in activities)],
        ["programs started", *(f"{count:,}" for count in programs)],
        ["tiles to compute", *(None if count is None else f"{count:,}" for count in tiles)],
        ["rounds of programs", *map(_in_rounds, tiles, programs)],
    ]
    caption = "Resources of one program on a multiprocessor, and the rounds of the programs"
    return table(caption, ["", "pointwise kernel", "stacked kernel", "ping-pong kernel"], rows)


def _in_rounds(tiles: int | None, programs: int) -> str | None:
    if tiles is None:
        return None
    number, last = rounds(tiles, programs)
    return f"{number}, with {last} programs in the last round"


FIGURES: Mapping[str, Measure] = {"pingpong_occupancy": lambda device: occupancy(device, "pingpong_kernel")}
