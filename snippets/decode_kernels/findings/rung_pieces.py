"""Charts and tables of the steps: bars above the floor, and every number of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kinetoscope.html import Cell, Html, table
from snippets.decode_kernels.findings.names import EARLY, HEADINGS, MODELS, ONE, PLAIN, steady_of, tokens_of
from snippets.decode_kernels.findings.rungs import LARGE_MODEL, SMALL_MODEL, joules, model_floor, read_share, steady_us
from snippets.decode_kernels.findings.waits import (
    CONDITIONS,
    FLOOR,
    floor_us,
    kernel_count,
    token_us,
)
from snippets.decoder.findings.probed import entry
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import Device, NotTimed
from snippets.lab.page import floor_bars, show as show


def opening(device: Device) -> Html:
    """The larger model's steps above their floor."""
    headings = {each: heading for each, heading in HEADINGS.items() if each != ONE}
    return steady_bars(device, LARGE_MODEL, 1, headings, f"Time of one token with {LARGE_MODEL} weights, by step")


def steady_bars(device: Device, model: str, batch: int, headings: Mapping[str, str], caption: str) -> Html:
    """The steps of a model that ran, of those with a heading, above the floor of the model."""
    data = entry(device, steady_of(model, batch), "variants")
    ran = {each: heading for each, heading in headings.items() if "us" in data.get(each, {})}
    rungs = {heading: steady_us(device, model, each, batch) for each, heading in ran.items()}
    texts = "One text" if batch == 1 else f"{batch} texts"
    conditions = f"{texts}. Each step ran alone for seconds, without the profiler."
    return floor_bars(device, (FLOOR, model_floor(device, model, batch)), rungs, caption, conditions=conditions)


def early_bars(device: Device) -> Html:
    """The five-kernel step and the early-launch step."""
    rungs = {HEADINGS[each]: token_us(device, each) for each in (EARLY, PLAIN)}
    caption = "Time of one token with and without early launches"
    return floor_bars(device, (FLOOR, floor_us(device)), rungs, caption, conditions=CONDITIONS)


def rung_bars(device: Device) -> Html:
    """All steps of the smaller model above the floor, the slowest first."""
    times = {heading: token_us(device, each) for each, heading in HEADINGS.items()}
    rungs = dict(sorted(times.items(), key=lambda item: -item[1].number))
    caption = "Time of one token with 1.1 billion weights, by step"
    return floor_bars(device, (FLOOR, floor_us(device)), rungs, caption, conditions=CONDITIONS)


def rung_table(device: Device, model: str, batch: int = 1) -> Html:
    """Every step of a model and batch: kernels and launches in its trace if it has one, times, rate, and energy."""
    texts = "one text" if batch == 1 else f"{batch} texts"
    caption = f"{'A token' if batch == 1 else 'A step'} with {model} weights and {texts}, by step"
    data = device[steady_of(model, batch)].data
    if "left_out" in data:
        return table(caption, ["step", "reason"], [["all steps", str(data["left_out"])]], text_columns=2)
    traced = ["kernels", "launches", "interleaved"] if _is_traced(model, batch) else []
    head = ["step", *traced, "steady", "share of the highest rate", "energy per token"]
    return table(caption, head, [_row(device, model, each, batch) for each in HEADINGS])


def _is_traced(model: str, batch: int) -> bool:
    """Whether loops of these steps were traced, and timed in turns."""
    return model == SMALL_MODEL and batch == 1


def _row(device: Device, model: str, variant: str, batch: int) -> list[Cell]:
    traced: list[Cell] = []
    if _is_traced(model, batch):
        run = device[tokens_of(variant)]
        calls = run.per_step(lambda step: sum("Launch" in call.name for call in step.calls))
        traced = [figure_cell(each) for each in (kernel_count(device, variant), calls, run.time("iteration"))]
    found = device[steady_of(model, batch)].data["variants"].get(variant, {})
    if "us" not in found:
        return [HEADINGS[variant], *traced, found.get("stopped", "not in this recording"), None, None]
    energy: Cell = figure_cell(joules(device, model, variant, batch)) if found["joules"] else None
    cells = [steady_us(device, model, variant, batch), read_share(device, model, variant, batch)]
    return [HEADINGS[variant], *traced, *map(figure_cell, cells), energy]


def share_table(device: Device) -> Html:
    """The share of the highest rate of every step for one text, by model."""
    return shares(device, (1,))


def shares(device: Device, batches: Sequence[int]) -> Html:
    """The share of the highest rate of every step, by model and number of texts."""
    points = [(model, batch) for model in MODELS for batch in batches]
    rows: list[list[Cell]] = []
    for variant, heading in HEADINGS.items():
        rows.append([heading, *(_share(device, model, variant, batch) for model, batch in points)])
    texts = [f"{model}, {'one text' if batch == 1 else f'{batch} texts'}" for model, batch in points]
    return table("Share of the highest rate of reading, by step", ["step", *texts], rows)


def _share(device: Device, model: str, variant: str, batch: int) -> Cell:
    try:
        return figure_cell(read_share(device, model, variant, batch))
    except NotTimed:
        return None
