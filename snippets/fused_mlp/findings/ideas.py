"""What each idea of the kernels is worth, and what tuning had to choose from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snippets.fused_mlp.findings.traffic import probed
from snippets.lab.finding import Device, Figure, Measure, NotRecorded, Run, at_least, between, claim, format_value
from snippets.lab.finding.measure import unpaired_ratio
from snippets.lab.html import Cell, Html, table
from snippets.lab.page import figure_cell
from snippets.lab.page import show as show

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
SERIES = "8192x768x3072"
"""The series' shape, as `chosen` calls it."""


def probe_time(run: Run, part: str, variant: str) -> Figure:
    """Median and quartiles that a probe returned. Raises `NotRecorded` where the machine lacked a package it needs."""
    if "missing" in run.data:
        raise NotRecorded(f"{run.id} was recorded without what it compares with: {run.data['missing']}")
    low, median, high = probed(run, part, variant)
    return Figure(median, "us", (low, high), f"{run.id}, {part}: {variant}")


def probe_ratio(run: Run, part: str, upper: str, lower: str) -> Figure:
    """Median over median of what a probe timed in turns, and the widest that the quartiles allow."""
    return unpaired_ratio(probe_time(run, part, upper), probe_time(run, part, lower))


def step_ratio(device: Device, part: str, upper: str, lower: str) -> Figure:
    """The time of one variant of `steps` over that of another."""
    return probe_ratio(device["fused_mlp/steps"], part, upper, lower)


def tuned(device: Device, part: str, shape: str = SERIES) -> dict[str, float]:
    """Candidate -> microseconds at a shape, the fastest first; `part` is "gate_up" or "forward"."""
    times: Mapping[str, float] = device["fused_mlp/chosen"].data[shape][part]
    return dict(sorted(times.items(), key=lambda item: item[1]))


@claim("F30", at_least(1.06), scope="timing")
def worth_of_turns(device: Device) -> Figure:
    """Taking turns makes the kernel at least 6 % faster than the stacked one."""
    return step_ratio(device, "gate_up", "stacked", "hand over early")


@claim("F32", between(0.97, 1.03), scope="timing")
def worth_of_slots_and_order(device: Device) -> Figure:
    """Four slots instead of six, and another order of tiles, change the time by less than 3 %."""
    ratios = [step_ratio(device, "gate_up", name, "hand over early") for name in ("four slots", "groups of eight")]
    return max(ratios, key=lambda figure: abs(figure.number - 1))


@claim("F35", at_least(1.5), scope="timing")
def worst_half(device: Device) -> Figure:
    """The slowest candidate of the first product takes at least one and a half times as long as the fastest."""
    fastest, *_, slowest = tuned(device, "gate_up").values()
    return Figure(slowest / fastest, "x", origin="fused_mlp/chosen, the slowest candidate over the fastest")


@claim("F36", between(0.95, 1.05), scope="timing")
def worth_of_early_launch(device: Device) -> Figure:
    """Launching the second product early changes the forward's time by less than 5 %."""
    return step_ratio(device, "forward", "ours, one after the other", "ours, launched early")


@claim("F37", between(0.94, 1.06), scope="timing")
def cublas_down_over_ours(device: Device) -> Figure:
    """In turns, too, the forward takes as long with cuBLAS's second product as with ours, to within 6 %."""
    return step_ratio(device, "forward", "cuBLAS down", "ours, launched early")


@claim("F38", between(0.9, 1.1), scope="timing")
def cublas_over_ours(device: Device) -> Figure:
    """For the second product, cuBLAS's kernel and the best of ours are within a tenth of each other."""
    times = tuned(device, "forward")
    ours = min(time_us for name, time_us in times.items() if name != "cuBLAS")
    return Figure(times["cuBLAS"] / ours, "x", origin="fused_mlp/chosen, medians")


def steps_table(device: Device) -> Html:
    """The same work with one idea left out each time, in turns."""
    captions = {
        "gate_up": "From x to the hidden tensor, with one idea changed",
        "forward": "The whole forward: what follows the first product",
    }
    tables = []
    for part, caption in captions.items():
        first = next(iter(STEPS[part]))
        rows: list[Sequence[Cell]] = [
            [
                heading,
                figure_cell(probe_time(device["fused_mlp/steps"], part, name)),
                None if name == first else _signed(step_ratio(device, part, name, first)),
            ]
            for name, heading in STEPS[part].items()
        ]
        tables.append(table(caption, ["", "median", "against the first row"], rows))
    return Html("".join(tables))


def _signed(ratio: Figure) -> str:
    return f"{100 * (ratio.number - 1):+.1f} %".replace("-", "−")


def tuned_table(device: Device) -> Html:
    """Every candidate at the series' shape, the fastest first."""
    rows: list[Sequence[Cell]] = []
    for part, heading in (("gate_up", "first half"), ("forward", "forward")):
        times = tuned(device, part)
        fastest = min(times.values())
        rows += [[heading, name, format_value(us, "us"), format_value(us / fastest, "x")] for name, us in times.items()]
    caption = "What tuning had to choose from at this shape; the forward's times contain the first half"
    return table(caption, ["", "candidate", "median", "of the fastest"], rows, text_columns=2)


FIGURES: Mapping[str, Measure] = {
    "cublas_over_ours": cublas_over_ours,
    "chosen_forward": lambda device: Figure(next(iter(tuned(device, "forward"))), origin="fused_mlp/chosen"),
    "worst_half": worst_half,
}
