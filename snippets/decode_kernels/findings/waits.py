"""What a decode step waits for: reading, boundaries between kernels, and multiprocessors without a program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import GpuActivity, Step
from snippets.decode_kernels.findings.names import (
    EARLY,
    HEAD,
    LAYER_PARTS,
    MAX_AUTOTUNE,
    ONE,
    PART_NAMES,
    PEERS,
    PLAIN,
    kernels_of,
    part_bytes,
    tokens_of,
)
from snippets.decoder.findings.limits import boundary_us
from snippets.decoder.findings.reading import CONTEXT, SMALL, Shape, floor_of, read_rate
from snippets.lab.charts.bar_charts import stacked_bars, with_rest
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    at_least,
    between,
    claim,
    equals,
    format_value,
    unpaired_ratio,
)
from snippets.lab.page import Computation, floor_bars, prediction as prediction, show as show

OWN_KERNELS = (
    "decode_qkv_kernel",
    "decode_attend_kernel",
    "decode_residual_kernel",
    "decode_gate_up_kernel",
    "decode_head_kernel",
)
"""Their beginnings: a compiler may append to a name."""
FLOOR = "the floor: bytes / rate of reading"
CONDITIONS = "One text, 1.1 billion weights, without the profiler. The scale is linear."


def token_us(device: Device, variant: str) -> Figure:
    """The time of a step of the smaller model."""
    return device[tokens_of(variant)].time("iteration")


def kernel_count(device: Device, variant: str) -> Figure:
    """Kernels of a step, in its trace."""
    return device[tokens_of(variant)].per_step(lambda step: len(step.kernels))


def floor_us(device: Device) -> Figure:
    """The time of reading the bytes of a step of the smaller model."""
    return floor_of(device, SMALL.read_bytes(1, CONTEXT))


def boundaries_us(device: Device, variant: str) -> Figure:
    """A boundary for each kernel of a variant."""
    kernels, each = kernel_count(device, variant), boundary_us(device)
    low, high = (kernels.number * bound for bound in each.bounds)
    return Figure(kernels.number * each.number, "us", (low, high), f"{kernels.origin}; {each.origin}")


def kernels_by_part(step: Step, shape: Shape = SMALL) -> dict[str, list[GpuActivity]]:
    """Part -> its kernels, by the order of a step of five kernels a layer. Raises `NotTimed` for another number."""
    own = [kernel for kernel in step.kernels if kernel.name.startswith(OWN_KERNELS)]
    order = [*(LAYER_PARTS * shape.layers), HEAD]
    if len(own) != len(order):
        raise NotTimed(f"a step has {len(own)} of this book's kernels, not {len(order)}")
    found: dict[str, list[GpuActivity]] = {}
    for part, kernel in zip(order, own, strict=True):
        found.setdefault(part, []).append(kernel)
    return found


def programs_of(step: Step) -> dict[str, int]:
    """Part -> the programs of one of its kernels. Raises `NotTimed` if the trace does not say."""
    found = {}
    for part, kernels in kernels_by_part(step).items():
        if kernels[0].grid is None:
            raise NotTimed("the trace does not say how many programs a kernel has")
        found[part] = math.prod(kernels[0].grid)
    return found


def idle_factor(programs: int, multiprocessors: int) -> float:
    """The time of so many equal programs over the time if they filled all multiprocessors to the end."""
    return math.ceil(programs / multiprocessors) * multiprocessors / programs


def multiprocessors(device: Device) -> Figure:
    """Multiprocessors of the GPU."""
    return Figure(device[tokens_of(PLAIN)].environment.multiprocessors, origin=device.name)


def tails(device: Device, variant: str = PLAIN) -> dict[str, Figure]:
    """Part of a step -> the time during which multiprocessors without a program leave their share of the rate
    unused."""
    step, count = device[tokens_of(variant)].whole.step, int(multiprocessors(device).number)
    reading = part_bytes(SMALL, 1, CONTEXT)
    found = {}
    for part, programs in programs_of(step).items():
        alone = floor_of(device, reading[part])
        more = idle_factor(programs, count) - 1
        low, high = (more * bound for bound in alone.bounds)
        found[part] = Figure(more * alone.number, "us", (low, high), f"{programs} programs of {part}")
    return found


def added(*figures: Figure) -> Figure:
    """The sum of times, with the sums of their bounds."""
    low, high = (math.fsum(figure.bounds[end] for figure in figures) for end in (0, 1))
    total = math.fsum(figure.number for figure in figures)
    return Figure(total, "us", (low, high), "; ".join(dict.fromkeys(figure.origin for figure in figures)))


def less(upper: Figure, lower: Figure) -> Figure:
    """The difference of two times that were not timed in pairs, with the widest bounds."""
    low, high = upper.bounds[0] - lower.bounds[1], upper.bounds[1] - lower.bounds[0]
    return Figure(upper.number - lower.number, "us", (low, high), upper.origin)


def shared(us: Figure, count: float) -> Figure:
    """A time divided by a number of kernels, barriers or texts."""
    low, high = (bound / count for bound in us.bounds)
    return Figure(us.number / count, "us", (low, high), us.origin)


def tails_us(device: Device) -> Figure:
    """All tails of a step of five kernels a layer."""
    return added(*tails(device).values())


def plain_predicted(device: Device) -> Figure:
    """Reading, a boundary for each kernel, and the tails."""
    return added(floor_us(device), boundaries_us(device, PLAIN), tails_us(device))


def beyond_each(device: Device, variant: str, expected: Figure, count: float) -> Figure:
    """The time of a step beyond an expected time, divided by the number of its kernels or barriers."""
    return shared(less(token_us(device, variant), expected), count)


def plain_without_tails(device: Device) -> Figure:
    """Reading, and a boundary for each kernel."""
    return added(floor_us(device), boundaries_us(device, PLAIN))


@claim("DK1", equals(kernels_of(SMALL)))
def five_kernels_a_layer(device: Device) -> Figure:
    """The five-kernel step of the smaller model runs five kernels for each of 22 layers, and one kernel for the output
    head."""
    return kernel_count(device, PLAIN)


@claim("DK2", equals(1))
def one_kernel(device: Device) -> Figure:
    """The one-kernel step runs a single kernel per token."""
    return kernel_count(device, ONE)


@claim("DK3", at_least(2))
def compiled_kernels(device: Device) -> Figure:
    """The max-autotune graph runs at least twice as many kernels as the five-kernel step."""
    return unpaired_ratio(kernel_count(device, MAX_AUTOTUNE), kernel_count(device, PLAIN))


@claim("DK4", equals(1))
def one_launch(device: Device) -> Figure:
    """The CPU launches the early-launch step with one call per token, the launch of a CUDA graph."""
    return device[tokens_of(EARLY)].per_step(lambda step: sum("Graph" in call.name for call in step.calls))


@claim("DK5", between(0.8, 1.25), scope="timing")
def plain_as_predicted(device: Device) -> Figure:
    """Reading, boundaries and tails together predict the time of the five-kernel step within a quarter.

    The prediction assumes that a kernel reads at the highest rate from its start to its end. But at its start, a kernel
    waits for its first bytes, at its end its programs add up their sums, and in attention, one load follows another.
    """
    return unpaired_ratio(token_us(device, PLAIN), plain_predicted(device))


@claim("DK6", at_least(1), scope="timing")
def no_faster_than_reading(device: Device) -> Figure:
    """No five-kernel, early-launch or one-kernel step of the smaller model takes less time than reading takes."""
    fastest = min((token_us(device, each) for each in (PLAIN, EARLY, ONE)), key=lambda us: us.bounds[0])
    return unpaired_ratio(fastest, floor_us(device))


PREDICTED = Computation(
    "How long do reading, boundaries and tails take together?",
    "decode_kernels.plain_predicted",
    "{decode_kernels.floor_us} of reading, {decode_kernels.own_kernels} boundaries of {decode_kernels.boundary_us}, "
    "and {decode_kernels.tails_us} of tails.",
    "Add one boundary for each kernel, and the tails of the table, to the floor.",
    {
        "decode_kernels.plain_without_tails": "your result leaves out the tails.",
        "decode_kernels.plain_without_boundaries": "your result leaves out the boundaries.",
        "decode_kernels.floor_us": "your result is the time of reading alone.",
    },
)


def peer_parts(device: Device) -> Html:
    """The compiled steps as reading, boundaries, and the rest."""
    groups: dict[str, Sequence[tuple[str, float]]] = {}
    for variant, heading in PEERS.items():
        boundaries = ("boundaries between kernels", boundaries_us(device, variant).number)
        computed = [("reading", floor_us(device).number), boundaries]
        groups[heading] = with_rest(token_us(device, variant).number, computed, "the rest")
    kinds = {"reading": "copy", "boundaries between kernels": "other", "the rest": "pointwise"}
    return stacked_bars(
        device, groups, "The parts of a token's time in the compiled steps", axis="time of a token", kinds=kinds
    )


def program_table(device: Device) -> Html:
    """The parts of a step: bytes, programs, rounds of the multiprocessors, and the time of the tail."""
    step, count = device[tokens_of(PLAIN)].whole.step, int(multiprocessors(device).number)
    programs, reading, waiting = programs_of(step), part_bytes(SMALL, 1, CONTEXT), tails(device)
    rows: list[list[Cell]] = []
    for part, name in PART_NAMES.items():
        rounds = programs[part] / count
        rows.append(
            [
                name,
                f"{1 if part == HEAD else SMALL.layers}",
                format_value(reading[part], "bytes"),
                figure_cell(floor_of(device, reading[part])),
                f"{programs[part]:,}",
                f"{rounds:.2f} → {math.ceil(rounds)}",
                figure_cell(waiting[part]),
            ]
        )
    total = sum(reading.values())
    rows.append(
        [
            "all parts",
            f"{kernels_of(SMALL)}",
            format_value(total, "bytes"),
            figure_cell(floor_of(device, total)),
            None,
            None,
            figure_cell(tails_us(device)),
        ]
    )
    head = [
        "part of the step",
        "kernels",
        "bytes, all layers",
        "time of reading",
        "programs of a kernel",
        "rounds",
        "time that the tail adds",
    ]
    return table("The parts of a token with 1.1 billion weights: bytes, programs and tails", head, rows)


def plain_bars(device: Device) -> Html:
    """The five-kernel step above its floor and its prediction."""
    rungs = {
        "prediction: reading, boundaries and tails": plain_predicted(device),
        "five-kernel step": token_us(device, PLAIN),
    }
    caption = "Time of one token in the five-kernel step"
    return floor_bars(device, (FLOOR, floor_us(device)), rungs, caption, conditions=CONDITIONS)


FIGURES: Mapping[str, Measure] = {
    "context": lambda device: Figure(CONTEXT, origin="the middle of an answer"),
    "floor_us": floor_us,
    "read_rate": read_rate,
    "boundary_us": boundary_us,
    "own_kernels": lambda device: kernel_count(device, PLAIN),
    "autotuned_kernels": lambda device: kernel_count(device, MAX_AUTOTUNE),
    "autotuned_boundaries": lambda device: boundaries_us(device, MAX_AUTOTUNE),
    "plain_boundaries": lambda device: boundaries_us(device, PLAIN),
    "plain_without_tails": plain_without_tails,
    "plain_without_boundaries": lambda device: added(floor_us(device), tails_us(device)),
    "attention_programs": lambda device: Figure(
        programs_of(device[tokens_of(PLAIN)].whole.step)["attend"], origin=device[tokens_of(PLAIN)].origin
    ),
    "plain_us": lambda device: token_us(device, PLAIN),
    "plain_rest_us": lambda device: beyond_each(device, PLAIN, plain_predicted(device), kernels_of(SMALL)),
    "plain_beyond_us": lambda device: beyond_each(device, PLAIN, floor_us(device), kernels_of(SMALL)),
    "early_beyond_us": lambda device: beyond_each(device, EARLY, floor_us(device), kernels_of(SMALL)),
    "one_us": lambda device: token_us(device, ONE),
}
