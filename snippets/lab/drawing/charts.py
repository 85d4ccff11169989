"""Charts of what recordings say: a drawing that names itself and stands in both color schemes, its numbers beneath it.

Each takes data, or experiments whose recordings it reads. `ident` prefixes the ids of a drawing and must be unique on
its page; a chart of experiments makes its own. An experiment is `chapter/experiment`, or a point of one:
`mlp/sweep_eager[batch=1,seq=1]`. Data that cannot be drawn is a `ValueError`, a missing recording `RecordingMissing`.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import chain
from string import ascii_uppercase

from snippets.lab.drawing.bars import (
    Key,
    Stacks,
    draw_pairs,
    draw_stacks,
    in_short,
    joined,
    pairs_height,
    stacks_height,
)
from snippets.lab.drawing.curves import (
    LINES,
    Roof,
    RooflinePoint,
    Sweep,
    draw_regimes,
    draw_roofline,
    regimes_height,
    roofline_height,
)
from snippets.lab.drawing.svg import draw
from snippets.lab.finding.figure import figure_of_timing, format_value
from snippets.lab.finding.quantities import point
from snippets.lab.html import Cell, Html, details, table
from snippets.lab.page.tables import figure_cell
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import Ceiling, NotRecorded, Point, Timing, Timings
from snippets.lab.trace.events import GpuActivity, Trace
from snippets.lab.trace.kernel_names import decode_kernel_name
from snippets.lab.trace.queries import middle_step, require_kernels, steps_agree

MOST_KEYS = 12
"""Names with a letter of their own; of more, the smallest are joined."""
KINDS = ("gemm", "elementwise", "reduction", "attention", "copy", "other")
"""Of kernels, in the order of the palette: a product looks the same in every chart."""
LIKE = {
    "gemv": "gemm",
    "convolution": "gemm",
    "softmax": "reduction",
    "normalization": "reduction",
    "communication": "copy",
    "memset": "copy",
}


def kernel_bars(variants: Mapping[str, str], device: str, caption: str) -> Html:
    """GPU time of one step by kernel, a bar for each variant: heading -> experiment with a trace.

    Kernels, copies and fills of the middle step; their times are means over all steps when these agree. Kernels of a
    kind look alike. Raises `TraceError` for a trace without kernels.
    """
    found = {heading: _mean_times(load_trace(experiment, device)) for heading, experiment in variants.items()}
    names = _short_names(activity.name for activity, _ in chain.from_iterable(found.values()))
    groups = {heading: [(names[activity.name], us) for activity, us in times] for heading, times in found.items()}
    kinds = {short: _kind(name) for name, short in names.items()}
    ident = _ident("kernel_time", device, caption, variants)
    return stacked_bars(caption, groups, ident=ident, axis="GPU time of one step", kinds=kinds)


def _mean_times(traced: Trace) -> list[tuple[GpuActivity, float]]:
    require_kernels(traced)
    step = middle_step(traced)
    steps = traced.steps if steps_agree(traced) else (step,)
    return [
        (activity, statistics.fmean(one.activities[place].duration_us for one in steps))
        for place, activity in enumerate(step.activities)
    ]


def _short_names(names: Iterable[str]) -> dict[str, str]:
    """Name of a kernel -> short form, numbered where two names would have the same."""
    short: dict[str, str] = {}
    seen = Counter[str]()
    for name in dict.fromkeys(names):
        form = decode_kernel_name(name).short
        seen[form] += 1
        short[name] = form if seen[form] == 1 else f"{form} ({seen[form]})"
    return short


def _kind(name: str) -> int:
    operation = decode_kernel_name(name).operation
    kind = LIKE.get(operation, operation)
    return KINDS.index(kind if kind in KINDS else "other")


def bytes_moved(caption: str, variants: Mapping[str, Sequence[tuple[str, int]]], *, ident: str) -> Html:
    """Bytes that the kernels of each variant move: heading -> (kernel, bytes) in order."""
    return stacked_bars(caption, variants, "bytes", ident=ident, axis="bytes moved in one step")


def stacked_bars(
    caption: str,
    groups: Stacks,
    unit: str = "us",
    *,
    ident: str,
    axis: str = "time",
    kinds: Mapping[str, int] | None = None,
) -> Html:
    """A bar for each group, made of its parts. Each name has a letter, explained below the bars.

    Args:
        caption: what is shown; also the drawing's accessible name.
        groups: heading -> parts. No amount is below zero, and one at least is above.
        unit: of the amounts, a key of `figures.UNITS`.
        ident: prefix of the drawing's ids.
        axis: what the amounts are.
        kinds: name -> place in the palette; without it, each name looks different.
    """
    _require_amounts(caption, groups)
    shown = joined(groups, MOST_KEYS)
    names = list(dict.fromkeys(name for name, _ in chain.from_iterable(shown.values())))
    kinds = kinds or {name: place for place, name in enumerate(names)}
    others = KINDS.index("other")
    keys = {name: Key(ascii_uppercase[place], kinds.get(name, others)) for place, name in enumerate(names)}
    drawing = draw(
        stacks_height(len(shown), len(keys)),
        lambda figure: draw_stacks(figure, shown, keys, unit, axis),
        ident=ident,
        title=caption,
        description=" ".join(in_short(heading, parts, unit) for heading, parts in shown.items()),
    )
    rows: list[Sequence[Cell]] = [
        [heading, keys[name].letter if name in keys else None, name, format_value(amount, unit), _share(amount, parts)]
        for heading, parts in groups.items()
        for name, amount in parts
    ]
    head = ["variant", "key", "part", axis, "share"]
    return _framed(caption, drawing, table(_numbers(caption), head, rows, text_columns=3))


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


def cpu_gpu_bars(variants: Mapping[str, str], device: str, caption: str) -> Html:
    """For each variant how long the GPU takes to run a step, and how long the CPU takes to enqueue it."""
    found = {heading: _timings(experiment, _point(experiment, device)) for heading, experiment in variants.items()}
    groups = {heading: {"GPU": one.warm, "CPU": one.enqueue} for heading, one in found.items()}
    return timing_bars(caption, groups, ident=_ident("cpu_gpu", device, caption, variants))


def timing_bars(
    caption: str, groups: Mapping[str, Mapping[str, Timing]], *, ident: str, axis: str = "time of one step"
) -> Html:
    """Under each heading a bar for each timing, with its quartiles."""
    timings = {f"{heading}, {name}": one for heading, pair in groups.items() for name, one in pair.items()}
    _require_positive(caption, {name: one.q1_us for name, one in timings.items()})
    drawing = draw(
        pairs_height(len(groups), len(timings)),
        lambda figure: draw_pairs(figure, groups, axis),
        ident=ident,
        title=caption,
        description="; ".join(f"{name} {format_value(one.median_us, 'us')}" for name, one in timings.items()) + ".",
    )
    rows = [[heading, name, *_spread(one)] for heading, pair in groups.items() for name, one in pair.items()]
    head = ["variant", "timing", "median", "quartiles"]
    return _framed(caption, drawing, table(_numbers(caption), head, rows, text_columns=2))


def roofline(variants: Mapping[str, str], device: str, caption: str) -> Html:
    """A roofline of experiments, heading -> experiment, below the highest of the ceilings of their sessions."""
    spots: dict[str, RooflinePoint] = {}
    ceilings: list[Ceiling] = []
    for heading, experiment in variants.items():
        at = _point(experiment, device)
        spots[heading] = RooflinePoint(at.flops, at.bytes, _timings(experiment, at).warm)
        ceilings += load_recording(experiment.partition("[")[0], device).ceilings
    return roofline_chart(caption, spots, ceilings, ident=_ident("roofline_of", device, caption, variants))


def roofline_chart(
    caption: str, points: Mapping[str, RooflinePoint], ceilings: Iterable[Ceiling], *, ident: str
) -> Html:
    """FLOP/s over FLOP per byte, and how near each point comes to its roof.

    Of the ceilings, the highest of those that compute nothing is memory's roof, the highest of the others arithmetic's.
    Raises `ValueError` without one of each, and for a point without work or time.
    """
    for name, spot in points.items():
        work = {"FLOP": spot.flops, "bytes": spot.bytes, "time": spot.timing.q1_us}
        _require_positive(caption, {f"{name}, {what}": amount for what, amount in work.items()})
    roof = _roof(caption, ceilings)
    rows: list[Sequence[Cell]] = []
    for name, spot in points.items():
        rate, share = format_value(spot.rate, "flop/s"), format_value(100 * spot.rate / roof(spot.intensity), "%")
        rows.append([name, format_value(spot.intensity), rate, share, *_spread(spot.timing)])
    said = (
        f"{name}: {rate} at {intensity} FLOP per byte, {share} of the roof."
        for name, intensity, rate, share, *_ in rows
    )
    drawing = draw(
        roofline_height(len(points)),
        lambda figure: draw_roofline(figure, points, roof),
        ident=ident,
        title=caption,
        description=" ".join([*said, f"The roof is {roof}."]),
    )
    head = ["step", "FLOP per byte", "rate", "of the roof", "time", "quartiles"]
    return _framed(
        caption, drawing, Html(f"{table(_numbers(caption), head, rows)}<p>The roof is {escape(str(roof))}.</p>")
    )


def _roof(caption: str, ceilings: Iterable[Ceiling]) -> Roof:
    compute: list[tuple[float, str]] = []
    memory: list[tuple[float, str]] = []
    for one in ceilings:
        (compute if one.flops else memory).append(((one.flops or one.bytes) / one.timing.median_us * 1e6, one.what))
    if not compute or not memory:
        raise ValueError(f"{caption}: a roofline needs the ceilings of a copy and of a product")
    return Roof(*max(compute), *max(memory))


def regimes(
    experiments: Mapping[str, str],
    device: str,
    size: Callable[[Mapping[str, int | str]], float],
    caption: str,
    *,
    axis: str,
) -> Html:
    """What limits a step as it grows: a panel for each sweep with the times of GPU, CPU and a Python loop.

    Args:
        experiments: heading -> experiment with two points or more.
        device: whose recordings.
        size: of a point's parameters; above zero.
        caption: what is shown.
        axis: what the size counts.
    """
    sweeps = {heading: _sweep(caption, experiment, device, size) for heading, experiment in experiments.items()}
    drawing = draw(
        regimes_height(len(sweeps)),
        lambda figure: draw_regimes(figure, sweeps, axis),
        ident=_ident("regimes", device, caption, experiments),
        title=caption,
        description=" ".join(f"{heading}: {_ends(sweep, axis)}" for heading, sweep in sweeps.items()),
    )
    rows: list[Sequence[Cell]] = [
        [heading, f"{at:,g}", *(figure_cell(figure_of_timing(getattr(sweep, name)[place])) for name, _ in LINES)]
        for heading, sweep in sweeps.items()
        for place, at in enumerate(sweep.sizes)
    ]
    head = ["variant", axis, *(text for _, text in LINES)]
    return _framed(caption, drawing, table(_numbers(caption), head, rows))


def _sweep(caption: str, experiment: str, device: str, size: Callable[[Mapping[str, int | str]], float]) -> Sweep:
    points = sorted(load_recording(experiment, device).points, key=lambda at: size(at.parameters))
    sizes = tuple(size(at.parameters) for at in points)
    _require_positive(caption, {experiment: min(sizes, default=0)})
    if len(set(sizes)) != len(sizes) or len(sizes) < 2:
        raise ValueError(f"{caption}: {experiment} has the sizes {sizes}, not two or more, each once")
    timed = [_timings(experiment, at) for at in points]
    return Sweep(sizes, *(tuple(getattr(one, name) for one in timed) for name, _ in LINES))


def _ends(sweep: Sweep, axis: str) -> str:
    first, last = (format_value(sweep.warm[place].median_us, "us") for place in (0, -1))
    small, large = (f"{sweep.sizes[place]:,g}" for place in (0, -1))
    return f"{sweep.regime(axis)}; on the GPU {first} at {small} and {last} at {large}."


def _point(experiment: str, device: str) -> Point:
    path, _, place = experiment.partition("[")
    return point(load_recording(path, device), place.removesuffix("]"))


def _timings(experiment: str, at: Point) -> Timings:
    if at.timings is None:
        chapter = experiment.partition("/")[0]
        raise NotRecorded(f"{experiment} was not timed; make record CHAPTER={chapter}")
    return at.timings


def _spread(one: Timing) -> tuple[str, str]:
    said = figure_of_timing(one)
    return said.text, said.spread_text


def _require_positive(caption: str, amounts: Mapping[str, float]) -> None:
    if not amounts:
        raise ValueError(f"{caption}: nothing to draw")
    wrong = {name: amount for name, amount in amounts.items() if not (math.isfinite(amount) and amount > 0)}
    if wrong:
        raise ValueError(f"{caption}: must be above zero: {wrong}")


def _ident(kind: str, device: str, caption: str, experiments: Mapping[str, str]) -> str:
    content = "\n".join([kind, device, caption, *chain.from_iterable(experiments.items())])
    return f"chart-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def _numbers(caption: str) -> str:
    return f"{caption}: the numbers"


def _framed(caption: str, drawing: Html, numbers: Html) -> Html:
    """The search index leaves out the words of a drawing: out of it they mean nothing."""
    return Html(
        f'<figure class="chart" data-search-exclude><figcaption>{escape(caption)}</figcaption>{drawing}'
        f"{details('The numbers', numbers)}</figure>"
    )
