"""The forward and its first half beside QuACK's, with its default tiles and tuned by itself."""

from collections.abc import Sequence

from snippets.fused_mlp.findings.probes import on_hopper, probe_ratio, probe_timing, probed
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
