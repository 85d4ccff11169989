"""`generate` of transformers, as people call it: launches, host reads, and who waits."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import CpuOp, GpuActivity, Step
from kinetoscope.trace.queries import busy_us, copy_direction
from snippets.decoder.findings.probed import ratio, time
from snippets.decoder.findings.reading import SMALL, floor_us
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    Source,
    TraceError,
    at_least,
    at_most,
    between,
    claim,
    equals,
    percent,
    unpaired_ratio,
)
from snippets.lab.page import show as show

TIMES = "decoder/generate_times"
TRACES = {
    "after each token": "decoder/generate",
    "one token late": "decoder/generate_late",
    "no stop check": "decoder/generate_never",
}
"""When `generate` asks whether all sequences have ended -> the trace of a call."""
WAYS = {
    "after each token": "dynamic",
    "one token late": "late",
    "no stop check": "never",
    "after each token, with a static cache, not compiled": "static eager",
}


def generate_us(device: Device, way: str = "dynamic") -> Figure:
    """The time of a token of `generate`, from calls for few and for many tokens."""
    return time(device, TIMES, "variants", way, "us")


def _spans(step: Step) -> list[CpuOp]:
    """From the choice of a token to that of the next: the whole ones within a call."""
    spans = [op for op in step.ops if op.is_annotation and op.name == "token"]
    if len(spans) < 3:
        raise TraceError(f"{step.name} has {len(spans)} spans of tokens, too few to find a whole one")
    return spans[1:-1]


def per_token(device: Device, experiment: str, of: Callable[[list[GpuActivity]], float], unit: str = "") -> Figure:
    """The median over the tokens of a call: of what each token put on the GPU."""

    def median(step: Step) -> float:
        values = [
            of([a for a in step.activities if a.launch and span.start_us <= a.launch.start_us < span.end_us])
            for span in _spans(step)
        ]
        return statistics.median(values) if unit else statistics.median_low(values)

    return device[experiment].per_step(median, unit)


def launches(device: Device, experiment: str = "decoder/generate") -> Figure:
    """Launches of a token."""
    return per_token(device, experiment, lambda activities: len({id(a.launch) for a in activities}))


def host_reads(device: Device, experiment: str = "decoder/generate") -> Figure:
    """Copies of a token to the CPU."""
    return per_token(device, experiment, lambda activities: sum(copy_direction(a.name) == "DtoH" for a in activities))


def busy_share(device: Device) -> Figure:
    """The GPU's work on a token of `generate`, in percent of a token's time without the profiler."""
    return percent(unpaired_ratio(per_token(device, "decoder/generate", busy_us, "us"), generate_us(device)))


def over_floor(device: Device) -> Figure:
    """How many times as long as its floor a token of `generate` takes."""
    return unpaired_ratio(generate_us(device), floor_us(device))


@claim("DE2", at_least(10), scope="timing")
def ten_floors(device: Device) -> Figure:
    """With the dynamic cache, a token of `generate` takes at least ten times as long as reading the token's bytes."""
    return over_floor(device)


@claim("DE3", at_least(500))
def many_launches(device: Device) -> Figure:
    """A token of `generate` needs at least 500 launches."""
    return launches(device)


@claim("DE4", at_least(30))
def launches_of_a_layer(device: Device) -> Figure:
    """A token of `generate` needs at least 30 launches for each layer."""
    per_layer = launches(device)
    return Figure(per_layer.number / SMALL.layers, origin=per_layer.origin, conclusive=per_layer.conclusive)


@claim("DE5", at_most(100 / 3), scope="timing")
def mostly_idle(device: Device) -> Figure:
    """While `generate` decodes, the GPU works at most a third of the time."""
    return busy_share(device)


@claim("DE6", equals(2), source=Source("transformers#43089", "3.25", device=""))
def two_reads(device: Device) -> Figure:
    """`generate` copies two values per token to the CPU."""
    return host_reads(device)


@claim("DE7", equals(1))
def reads_without_stop_check(device: Device) -> Figure:
    """Without its check for the end of the text, `generate` copies one value per token to the CPU."""
    return host_reads(device, "decoder/generate_never")


@claim("DE8", between(90, 110), scope="timing")
def late_check(device: Device) -> Figure:
    """If `generate` checks one token late whether all texts have ended, the time of a token changes by at most 10 %."""
    return percent(over_dynamic(device, "late"))


@claim("DE9", at_least(1), scope="timing")
def static_eager_is_slower(device: Device) -> Figure:
    """Without compilation, a token of `generate` is no faster with the static cache of transformers than with the
    dynamic cache."""
    return over_dynamic(device, "static eager")


def over_dynamic(device: Device, way: str) -> Figure:
    """The time of a token of a variant of `generate` over that of `generate` as it comes."""
    return ratio(device, TIMES, ("variants", way, "us"), ("variants", "dynamic", "us"))


def stop_checks(device: Device) -> Html:
    """A token of `generate` by when it asks for the end: time, launches and host reads."""
    rows: list[list[Cell]] = []
    for heading, way in WAYS.items():
        try:
            cells: list[Cell] = [figure_cell(generate_us(device, way))]
        except NotTimed as error:
            cells = [str(error)]
        trace = TRACES.get(heading)
        counts = [figure_cell(of(device, trace)) for of in (launches, host_reads)] if trace else [None, None]
        rows.append([heading, *cells, *counts])
    head = ["stop check", "time of a token", "launches", "copies to the CPU"]
    return table("Time of a token in generate, by stop check", head, rows)


FIGURES: Mapping[str, Measure] = {
    "generate_us": generate_us,
    "generate_over_floor": over_floor,
    "generate_launches": launches,
    "generate_launches_per_layer": lambda device: Figure(
        round(launches(device).number / SMALL.layers), origin="launches of a token / layers"
    ),
    "generate_host_reads": host_reads,
    "generate_busy": busy_share,
    "generate_busy_us": lambda device: per_token(device, "decoder/generate", busy_us, "us"),
    "late_reads": lambda device: host_reads(device, "decoder/generate_late"),
    "late_percent": lambda device: percent(over_dynamic(device, "late")),
    "never_percent": lambda device: percent(over_dynamic(device, "never")),
    "first_token_of_generate_us": lambda device: time(device, TIMES, "variants", "dynamic", "first_us"),
}
