"""The forward and its first half beside QuACK's, with its default tiles and tuned by itself."""

from collections.abc import Sequence

from snippets.fused_mlp.findings.probes import on_hopper, probe_ratio, probe_timing, probed, require_packages
from snippets.lab.finding import Device, Figure, Run, at_least, at_most, claim, largest, unpaired_ratio
from snippets.lab.html import Cell, Html, table
from snippets.lab.page import figure_cell
from snippets.lab.page import show as show

UNTUNED, TUNED, OURS = "quack", "quack tuned", "fused"
STEADY = "steady"


def quack(device: Device) -> Run:
    """What was timed in one process with QuACK's kernel."""
    return on_hopper(device["fused_mlp/quack"])


def steady(device: Device, variant: str) -> Figure:
    """The steady time of a forward."""
    timing = probe_timing(quack(device), STEADY, variant, "samples_us")
    return Figure.from_timing(timing, f"fused_mlp/quack, steady: {variant}")


@claim("F43", at_most(1.0), scope="timing")
def forward_over_quack(device: Device) -> Figure:
    """Interleaved, our forward takes no longer than QuACK's kernel, tuned or untuned, followed by cuBLAS."""
    return largest(*(probe_ratio(quack(device), "forward", OURS, name) for name in (UNTUNED, TUNED)))


@claim("F110", at_most(1.0), scope="timing")
def steady_over_quack(device: Device) -> Figure:
    """Steady, our forward takes no longer than QuACK's kernel, tuned or untuned, followed by cuBLAS."""
    ours = steady(device, OURS)
    return largest(*(unpaired_ratio(ours, steady(device, name)) for name in (UNTUNED, TUNED)))


@claim("F44", at_least(1.03), scope="timing")
def half_over_quack(device: Device) -> Figure:
    """The first half of our forward takes at least 3 % longer than QuACK's untuned kernel."""
    return probe_ratio(quack(device), "gate_up", OURS, UNTUNED)


def quack_shapes(device: Device) -> Run:
    """What was timed with QuACK's kernel at every shape of the table."""
    run = on_hopper(device["fused_mlp/quack_shapes"])
    require_packages(run)
    return run


def taken_shapes(run: Run) -> list[str]:
    """The shapes that QuACK did not reject."""
    return [shape for shape, times in run.data.items() if isinstance(times, dict) and "failed" not in times]


def over_faster_quack(run: Run, shape: str) -> Figure:
    """Our forward over the faster of QuACK's two at one shape, interleaved."""
    return largest(*(probe_ratio(run, (shape, "forward"), OURS, name) for name in (UNTUNED, TUNED)))


def steady_over_faster_quack(run: Run, shape: str) -> Figure:
    """Our forward over the faster of QuACK's two at one shape, steady."""
    ours, *others = (
        Figure.from_timing(probe_timing(run, shape, STEADY, name, "samples_us"), f"{run.id}, {shape}, steady: {name}")
        for name in (OURS, UNTUNED, TUNED)
    )
    return largest(*(unpaired_ratio(ours, other) for other in others))


@claim("F116", at_most(1.0), scope="timing")
def forward_over_quack_everywhere(device: Device) -> Figure:
    """Interleaved, our forward takes no longer than QuACK's, tuned or untuned, at any shape of the table."""
    run = quack_shapes(device)
    return largest(*(over_faster_quack(run, shape) for shape in taken_shapes(run)))


@claim("F117", at_most(1.0), scope="timing")
def steady_over_quack_everywhere(device: Device) -> Figure:
    """Steady, our forward takes no longer than QuACK's, tuned or untuned, at any shape of the table."""
    run = quack_shapes(device)
    return largest(*(steady_over_faster_quack(run, shape) for shape in taken_shapes(run)))


def quack_shape_table(device: Device) -> Html:
    """Our forward and QuACK's at every shape of the table: interleaved, and steady as a ratio."""
    run = quack_shapes(device)
    rows: list[Sequence[Cell]] = []
    for shape, times in run.data.items():
        if not isinstance(times, dict):
            continue
        if "failed" in times:
            rows.append([shape, None, None, times["failed"], None, None])
            continue
        medians = (Figure.from_timing(probe_timing(run, shape, "forward", name)) for name in (OURS, UNTUNED, TUNED))
        ratios = (over_faster_quack(run, shape), steady_over_faster_quack(run, shape))
        rows.append([shape, *map(figure_cell, medians), *(f"{ratio.number:.3f}x" for ratio in ratios)])
    head = ["tokens x dim x hidden", "ours", "QuACK, untuned", "QuACK, tuned", "over the faster", "the same, steady"]
    return table("One forward in bfloat16 beside QuACK's, interleaved", head, rows)


def beside_quack(device: Device) -> Html:
    """Our forward and QuACK's in a process of their own: interleaved, and the whole forward steady."""
    run = quack(device)
    name = f"QuACK {run.data.get('version', '')}"
    headings = {
        UNTUNED: f"{name}, untuned",
        TUNED: f"{name}, tuned",
        OURS: "ours",
        "bare": "cuBLAS, bare product",
        "eager": "eager",
    }
    has_steady = STEADY in run.data
    rows: list[Sequence[Cell]] = []
    for part, half in (("gate_up", "first half"), ("forward", "forward")):
        for variant in run.data.get(part, (UNTUNED,)):
            time = Figure.from_timing(probe_timing(run, part, variant))
            over = probe_ratio(run, part, variant, UNTUNED)
            alone = figure_cell(steady(device, variant)) if has_steady and variant in probed(run, STEADY) else None
            steadily = alone if part == "forward" else None
            rows.append([half, headings[variant], figure_cell(time), f"{over.number:.3f}x", steadily])
    caption = "Against QuACK, whose forward is its kernel and cuBLAS, in one process"
    head = ["", "variant", "interleaved", "over QuACK untuned", "steady"]
    return table(caption, head, rows, text_columns=2)
