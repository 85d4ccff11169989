"""Charts made of bars: kernels stacked, bytes, CPU beside GPU, timings with their spread.

Each is a page piece, `piece(device, subject, caption)`. An experiment is `chapter/experiment`, or a point of one:
`mlp/sweep_eager[batch=1,seq=1]`. Data that cannot be drawn is a `ValueError`.
"""

from __future__ import annotations

import math
import operator
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import chain
from string import ascii_uppercase

from kinetoscope.html import Cell, Html, note, table
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.queries import durations_us, middle_step, require_kernels, step_overlaps_us
from kinetoscope.trace.units import format_value
from snippets.lab.charts.bars import (
    Key,
    Stacks,
    draw_pairs,
    draw_stacks,
    in_short,
    joined,
    pairs_axis,
    pairs_height,
    stacks_axis,
    stacks_height,
)
from snippets.lab.charts.numbers import chart_id, framed, numbers_caption, require_positive, spread_name, timing_cells
from snippets.lab.charts.svg import draw, label
from snippets.lab.finding.device import Device
from snippets.lab.recording.schema import Timing

MAX_KEYS = 12
"""Number of names with a letter of their own; a chart joins the smallest of the rest."""
KINDS: Mapping[str, str] = {
    "gemm": "gemm",
    "gemv": "gemm",
    "convolution": "gemm",
    "elementwise": "pointwise",
    "copy": "copy",
    "memset": "copy",
    "communication": "copy",
}
"""Operation of a kernel -> the kind that it looks like in every drawing; all others are `other`."""


def kernel_bars(device: Device, variants: Mapping[str, str], caption: str) -> Html:
    """GPU time of one step by kernel, a bar for each variant: heading -> experiment with a trace.

    Kernels, copies and fills of the middle step; their times are means over all steps when these agree. Time in which a
    kernel overlaps the one before counts once, so that a bar is as long as the GPU was busy. Kernels of a kind look
    alike. Raises `TraceError` for a trace without kernels.
    """
    traces = {heading: device[experiment].trace for heading, experiment in variants.items()}
    times = {heading: _mean_times(trace) for heading, trace in traces.items()}
    names = _short_names(name for name, _ in chain.from_iterable(times.values()))
    groups = {heading: [(names[name], us) for name, us in pairs] for heading, pairs in times.items()}
    kinds = {short: _kind(name) for name, short in names.items()}
    chart = stacked_bars(device, groups, caption, axis="GPU time of one step", kinds=kinds)
    return Html(chart + note(_overlap_text(traces)))


def _overlap_text(traces: Mapping[str, Trace]) -> str:
    overlaps = {heading: math.fsum(map(statistics.fmean, step_overlaps_us(trace))) for heading, trace in traces.items()}
    listed = ", ".join(f"{heading} {format_value(us, 'us')}" for heading, us in overlaps.items() if us)
    text = f"If a kernel overlaps the previous kernel, the overlap counts once, with the previous kernel: {listed}."
    return text if listed else ""


def _mean_times(trace: Trace) -> list[tuple[str, float]]:
    require_kernels(trace)
    names = (activity.name for activity in middle_step(trace).activities)
    times, overlaps = (map(statistics.fmean, each) for each in (durations_us(trace), step_overlaps_us(trace)))
    return list(zip(names, map(operator.sub, times, overlaps), strict=True))


def _short_names(names: Iterable[str]) -> dict[str, str]:
    """Kernel name -> short form, numbered if two names have the same short form."""
    short: dict[str, str] = {}
    seen = Counter[str]()
    for name in dict.fromkeys(names):
        form = decode_kernel_name(name).short
        seen[form] += 1
        short[name] = form if seen[form] == 1 else f"{form} ({seen[form]})"
    return short


def _kind(name: str) -> str:
    return KINDS.get(decode_kernel_name(name).operation, "other")


def bytes_moved(device: Device, variants: Mapping[str, Sequence[tuple[str, int]]], caption: str) -> Html:
    """The bytes that the kernels of each variant move: heading -> (kernel, bytes) in order."""
    return stacked_bars(device, variants, caption, unit="bytes", axis="bytes moved in one step")


def stacked_bars(
    device: Device,
    groups: Stacks,
    caption: str,
    *,
    unit: str = "us",
    axis: str = "time",
    kinds: Mapping[str, str] | None = None,
) -> Html:
    """A bar for each group, made of the group's parts. Each part has a letter, which is explained below the bars.

    Args:
        device: whose numbers they are.
        groups: heading -> parts. No amount is below zero, and one at least is above.
        caption: what the chart shows; also the drawing's accessible name.
        unit: of the amounts, a key of `UNITS`.
        axis: what the amounts are.
        kinds: name -> its kind in the palette; without it, bytes look like bytes, and all else like other kernels.
    """
    _require_amounts(caption, groups)
    drawn = joined(groups, MAX_KEYS)
    names = list(dict.fromkeys(name for name, _ in chain.from_iterable(drawn.values())))
    plain = "copy" if unit == "bytes" else "other"
    keys = {name: Key(ascii_uppercase[index], (kinds or {}).get(name, plain)) for index, name in enumerate(names)}
    drawing = draw(
        stacks_height(len(drawn)),
        lambda figure: draw_stacks(figure, drawn, keys, unit, axis),
        ident=chart_id("chart", device, caption),
        title=caption,
        description=" ".join(in_short(heading, parts, unit) for heading, parts in drawn.items()),
        data=(drawn, keys, unit, axis),
    )
    rows: list[Sequence[Cell]] = [
        [heading, keys[name].letter if name in keys else None, name, format_value(amount, unit), _share(amount, parts)]
        for heading, parts in groups.items()
        for name, amount in parts
    ]
    head = ["variant", "key", "part", axis, "share"]
    drawing = stacks_axis(drawn, unit).written_into(drawing)
    return framed(caption, Html(drawing + legend(keys)), table(numbers_caption(caption), head, rows, text_columns=3))


def with_rest(whole: float, parts: Iterable[tuple[str, float]], rest: str) -> list[tuple[str, float]]:
    """The parts of a measured whole, then what they leave under the name `rest`. Where computed parts are more than the
    whole, they are cut, so a bar is always as long as the whole."""
    found: list[tuple[str, float]] = []
    left = whole
    for name, amount in parts:
        found.append((name, min(amount, left)))
        left -= found[-1][1]
    return [*found, (rest, left)]


def legend(keys: Mapping[str, Key]) -> str:
    """The meaning of each letter, as text that wraps on a phone."""
    listed = (
        f'<li class="{key.kind}"><span>{key.letter}</span> {escape(label(name, 60))}</li>' for name, key in keys.items()
    )
    return f'<ul class="keys">{"".join(listed)}</ul>'


def _require_amounts(caption: str, groups: Stacks) -> None:
    empty = [heading for heading, parts in groups.items() if not parts]
    if empty or not groups:
        raise ValueError(f"{caption}: nothing to draw{f' for {empty}' if empty else ''}")
    amounts = [amount for _, amount in chain.from_iterable(groups.values())]
    if not any(amounts) or not all(math.isfinite(amount) and amount >= 0 for amount in amounts):
        raise ValueError(f"{caption}: none of the amounts may be below zero, and not all of them zero: {amounts}")


def _share(amount: float, parts: Sequence[tuple[str, float]]) -> str | None:
    total = math.fsum(each for _, each in parts)
    return format_value(100 * amount / total, "%") if total else None


def cpu_gpu_bars(device: Device, variants: Mapping[str, str], caption: str) -> Html:
    """For each variant, the time that the GPU runs a step, and the time that the CPU enqueues the step."""
    timings = {heading: device[experiment].timings for heading, experiment in variants.items()}
    groups = {heading: {"GPU": each.interleaved, "CPU": each.enqueue} for heading, each in timings.items()}
    return timing_bars(device, groups, caption, axis="time of one step; GPU: interleaved")


def timing_bars(
    device: Device, groups: Mapping[str, Mapping[str, Timing]], caption: str, *, axis: str = "time of one step"
) -> Html:
    """A bar with its spread for each timing, grouped under headings."""
    timings = {f"{heading}, {name}": timing for heading, pair in groups.items() for name, timing in pair.items()}
    require_positive(caption, {name: timing.spread_us[0] for name, timing in timings.items()})
    drawing = draw(
        pairs_height(len(groups), len(timings)),
        lambda figure: draw_pairs(figure, groups, axis),
        ident=chart_id("chart", device, caption),
        title=caption,
        description="; ".join(f"{name} {format_value(each.median_us, 'us')}" for name, each in timings.items()) + ".",
        data=(groups, axis),
    )
    rows = [[heading, name, *timing_cells(each)] for heading, pair in groups.items() for name, each in pair.items()]
    head = ["variant", "timing", "median", spread_name(timings.values())]
    drawing = pairs_axis(groups).written_into(drawing)
    return framed(caption, drawing, table(numbers_caption(caption), head, rows, text_columns=2))
