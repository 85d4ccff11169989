"""A pipeline of stages: its bubble against the formula, and its bytes."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    at_most,
    between,
    claim,
    compare_ranks,
    paired_ratio,
    percent,
    unpaired_ratio,
)
from snippets.lab.finding.probed import ratio, time
from snippets.lab.page import Computation, prediction as prediction, rank_bars, rank_lanes, show as show
from snippets.several_gpus.findings.measured import BF16_BYTES, changed, parameter, sent_bytes


def probe_on(gpus: int) -> str:
    """The probe of bubbles on so many GPUs."""
    return f"several_gpus/bubble_on_{gpus}"


def formula(stages: int, batches: int) -> Figure:
    """The share of a step in which a stage has nothing to do, in percent."""
    return Figure(100 * (stages - 1) / (batches + stages - 1), "%", origin="(p - 1) / (m + p - 1)")


def bubble(device: Device, gpus: int, batches: int) -> Figure:
    """The share of a step of so many micro-batches that a stage's own work does not fill, in percent."""
    key = str(batches)
    return changed(percent(ratio(device, probe_on(gpus), (key, "alone_us"), (key, "us"))), -1, 100)


def beyond_formula(device: Device, gpus: int, batches: int) -> Figure:
    """The measured bubble less the formula's, in points of percent."""
    return changed(bubble(device, gpus, batches), plus=-formula(gpus, batches).number, unit="")


@claim("SG67", between(-5, 5), scope="timing")
def bubble_of_four(device: Device) -> Figure:
    """With two stages and four micro-batches, the measured bubble is within 5 percentage points of the formula."""
    return beyond_formula(device, 2, 4)


@claim("SG68", between(-5, 5), scope="timing")
def bubble_of_sixteen(device: Device) -> Figure:
    """With two stages and 16 micro-batches, the measured bubble is within 5 percentage points of the formula."""
    return beyond_formula(device, 2, 16)


@claim("SG69", between(-7, 7), scope="timing")
def bubble_of_four_stages(device: Device) -> Figure:
    """With four stages and eight micro-batches, the measured bubble is within 7 percentage points of the formula."""
    return beyond_formula(device, 4, 8)


def eight_over_two(device: Device) -> Figure:
    """A step in eight micro-batches over the same step in two."""
    eight, two = (device[f"several_gpus/pipeline_{count}_on_2"] for count in (8, 2))
    return paired_ratio(eight, two, "iteration")


@claim("SG70", at_most(0.95), scope="timing")
def more_micro_batches(device: Device) -> Figure:
    """On two GPUs, a step with eight micro-batches takes at least 5 % less time than a step with two micro-batches."""
    return eight_over_two(device)


def eight_over_two_by_formula() -> Figure:
    """The same by the formula: the bubble shrinks, and a stage's own work stays."""
    eight, two = (1 - formula(2, count).number / 100 for count in (8, 2))
    return Figure(two / eight, "x", origin="the formula of the bubble")


def most_of_ranks(device: Device, batches: int, part: str, gpus: int = 2) -> Figure:
    """The longest such part of a rank's step, in the trace."""
    run = device[f"several_gpus/pipeline_{batches}_on_{gpus}"]
    most = max(getattr(each, part) for each in compare_ranks(run).parts)
    return Figure(most, "us", origin=f"{run.origin}, in its trace")


def alone_each(device: Device, batches: int) -> Figure:
    """The time of a micro-batch on one of two stages that doesn't wait."""
    return changed(time(device, probe_on(2), str(batches), "alone_us"), 1 / batches)


def derived_bytes(device: Device) -> Figure:
    """What the first stage sends in a step: the hidden states of its batch."""
    run = device["several_gpus/pipeline_8_on_2"]
    numbers = parameter(run, "batch") * parameter(run, "tokens") * parameter(run, "dim")
    return Figure(BF16_BYTES * numbers, "bytes", origin="the sizes of the batch")


def measured_bytes(device: Device) -> Figure:
    """What the first stage sends in the trace of a step."""
    return device["several_gpus/pipeline_8_on_2"].per_step(sent_bytes, "bytes")


@claim("SG71", between(0.95, 1.05))
def sends_hidden_states(device: Device) -> Figure:
    """In a step, the first stage of a pipeline sends within 5 % of the bytes of the batch's hidden states."""
    return unpaired_ratio(measured_bytes(device), derived_bytes(device))


IDLING = Computation(
    "What share of a step is the bubble of two stages and four micro-batches, by the formula?",
    "several_gpus.bubble_formula_2_4",
    "The formula is (p - 1) / (m + p - 1), with p = 2 and m = 4.",
    "Divide p - 1 by m + p - 1.",
    {
        25.0: "your result is (p - 1) / m, the bubble as a share of a stage's work without the bubble.",
        "several_gpus.bubble_formula_2_16": "your result is the bubble with 16 micro-batches.",
    },
)


def bubble_table(device: Device) -> Html:
    """Bubbles by micro-batches on two and on four GPUs."""
    rows: list[list[Cell]] = []
    for gpus in (2, 4):
        probe = device[probe_on(gpus)]
        if not probe.is_recorded:
            continue
        for batches in sorted(map(int, probe.data)):
            times = [time(device, probe_on(gpus), str(batches), key) for key in ("alone_us", "us")]
            shares = [formula(gpus, batches), bubble(device, gpus, batches)]
            name = f"{gpus} stages, {batches} micro-batch{'es' * (batches > 1)}"
            rows.append([name, *map(figure_cell, (*times, *shares))])
    head = ["pipeline", "one stage without waiting", "time of a step", "bubble by the formula", "measured bubble"]
    return table("Time of a pipeline's step, and the bubble as a share of the step", head, rows)


def ranks(device: Device) -> Html:
    """What both stages do in a step, cut into two and into eight micro-batches."""
    shown = {f"{count} micro-batches": f"several_gpus/pipeline_{count}_on_2" for count in (2, 8)}
    return rank_bars(device, shown, "A step of two stages, with two and with eight micro-batches")


def lanes(device: Device) -> Html:
    """A step of four stages on one time axis."""
    return rank_lanes(device, "several_gpus/pipeline_8_on_4", "A step of four stages with eight micro-batches")


FIGURES: Mapping[str, Measure] = {
    "bubble_2_2": lambda device: bubble(device, 2, 2),
    "bubble_2_8": lambda device: bubble(device, 2, 8),
    "bubble_2_4": lambda device: bubble(device, 2, 4),
    "bubble_2_16": lambda device: bubble(device, 2, 16),
    "bubble_formula_2_4": lambda device: formula(2, 4),
    "bubble_formula_2_16": lambda device: formula(2, 16),
    "bubble_alone_1": lambda device: alone_each(device, 1),
    "bubble_alone_16": lambda device: alone_each(device, 16),
    "pipeline_8_over_2": eight_over_two,
    "pipeline_formula_8_over_2": lambda device: eight_over_two_by_formula(),
    "pipeline_own_2": lambda device: most_of_ranks(device, 2, "own_us"),
    "pipeline_own_8": lambda device: most_of_ranks(device, 8, "own_us"),
    "pipeline_launching_8": lambda device: most_of_ranks(device, 8, "launching_us"),
    "pipeline_launching_8_on_4": lambda device: most_of_ranks(device, 8, "launching_us", 4),
    "pipeline_traced_8_on_4": lambda device: most_of_ranks(device, 8, "step_us", 4),
    "pipeline_step_8_on_4": lambda device: device["several_gpus/pipeline_8_on_4"].time("iteration"),
}
