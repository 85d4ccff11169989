"""Charts made of curves: a roofline, and the regimes of a sweep.

Each is a page piece, `piece(device, subject, caption)`. An experiment is `chapter/experiment`, or a point of one:
`mlp/sweep_eager[batch=1,seq=1]`. Data that cannot be drawn is a `ValueError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from kinetoscope.html import Cell, Html, note, table
from kinetoscope.trace.units import format_value
from snippets.lab.charts.curves import (
    LINES,
    Roof,
    RooflinePoint,
    Sweep,
    draw_regimes,
    regimes_height,
)
from snippets.lab.charts.numbers import (
    chart_id,
    figure_cell,
    framed,
    numbers_caption,
    percent_text,
    require_positive,
    spread_name,
    spread_sentence,
    timing_cells,
)
from snippets.lab.charts.roofline import roofline_html
from snippets.lab.charts.svg import draw
from snippets.lab.experiment import Parameters
from snippets.lab.finding.device import Device, Run
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import LEAST_US
from snippets.lab.recording.schema import Ceiling


def roofline(device: Device, variants: Mapping[str, str], caption: str) -> Html:
    """A roofline chart of experiments (heading -> experiment) below the highest ceilings of their sessions."""
    runs = {heading: device[experiment] for heading, experiment in variants.items()}
    points = {heading: RooflinePoint(run.point.flops, run.point.bytes, run.timing()) for heading, run in runs.items()}
    ceilings = [ceiling for run in runs.values() for ceiling in run.recording.ceilings]
    return roofline_of(device, points, caption, ceilings=ceilings)


def roofline_of(
    device: Device, points: Mapping[str, RooflinePoint], caption: str, *, ceilings: Iterable[Ceiling]
) -> Html:
    """A roofline chart: FLOP/s over FLOP per byte, and the percentage of the roof that each point reaches.

    The fastest ceiling without FLOPs is the memory roof, the fastest of the others the compute roof. Raises
    `ValueError` if either is missing, and for a point without work or time.
    """
    for name, point in points.items():
        work = {"FLOP": point.flops, "bytes": point.bytes, "time": point.timing.spread_us[0]}
        require_positive(caption, {f"{name}, {quantity}": amount for quantity, amount in work.items()})
    roof = _roof(caption, ceilings)
    rows: list[Sequence[Cell]] = []
    for name, point in points.items():
        rate, share = format_value(point.rate, "flop/s"), _share(point, roof)
        rows.append([name, format_value(point.intensity), rate, share, *timing_cells(point.timing)])
    sentences = [
        f"{name}: {rate} at {intensity} FLOP per byte{f', {share} of the roof' if share else ''}."
        for name, intensity, rate, share, *_ in rows
    ]
    drawing = roofline_html(
        points,
        roof,
        [_share(point, roof) for point in points.values()],
        ident=chart_id("chart", device, caption),
        title=caption,
        description=" ".join([*sentences, f"The roof is {roof}."]),
    )
    head = [
        "step",
        "FLOP per byte",
        "rate",
        "share of the roof",
        "time",
        spread_name(point.timing for point in points.values()),
    ]
    numbers = table(numbers_caption(caption), head, rows)
    missing = _NO_SHARE if any(row[3] is None for row in rows) else ""
    return framed(caption, drawing, Html(f"{numbers}<p>The roof is {escape(str(roof))}.{missing}</p>"))


_NO_SHARE = (
    f" A step below {LEAST_US:g} µs has no percentage, because the time of a ceiling includes the gap between "
    "two kernels. A step above the roof has no percentage, because its clock may have been higher, or the L2 cache may "
    "have held some of its bytes."
)


def _share(point: RooflinePoint, roof: Roof) -> str | None:
    """Percent of the roof, with both ends of the spread; None for a short time, and above the roof."""
    limit = roof(point.intensity)
    percent, low, high = (100 * rate / limit for rate in (point.rate, *point.spread))
    if point.timing.median_us < LEAST_US or percent > 100:
        return None
    return percent_text(low, high)


def _roof(caption: str, ceilings: Iterable[Ceiling]) -> Roof:
    compute: list[tuple[float, str]] = []
    memory: list[tuple[float, str]] = []
    for ceiling in ceilings:
        (compute if ceiling.flops else memory).append((ceiling.rate, ceiling.name))
    if not compute or not memory:
        raise ValueError(f"{caption}: a roofline needs the ceilings of a copy and of a matmul")
    return Roof(*max(compute), *max(memory))


def regimes(
    device: Device,
    variants: Mapping[str, str],
    caption: str,
    *,
    size: Callable[[Parameters], float],
    unit: str,
    turn: Callable[[Run], float | None] | None = None,
) -> Html:
    """What limits a step as its size grows. Each sweep has a panel with the times of GPU, CPU and a Python loop.

    Args:
        device: whose recordings.
        variants: heading -> experiment with two points or more.
        caption: what the chart shows.
        size: function from a point's parameters to its size, above zero.
        unit: what the size counts: `tokens`.
        turn: the size at which a sweep's GPU work turns from memory-bound to compute-bound: a line across its panel.
    """
    sweeps = {heading: _sweep(device, experiment, caption, size, turn) for heading, experiment in variants.items()}
    drawing = draw(
        regimes_height(sweeps),
        lambda figure: draw_regimes(figure, sweeps, unit),
        ident=chart_id("chart", device, caption),
        title=caption,
        description=" ".join(f"{heading}: {_ends(sweep, unit)}" for heading, sweep in sweeps.items()),
        data=(sweeps, unit),
    )
    rows: list[Sequence[Cell]] = [
        [heading, f"{at:,g}", *(figure_cell(Figure.from_timing(getattr(sweep, kind)[index])) for kind, _ in LINES)]
        for heading, sweep in sweeps.items()
        for index, at in enumerate(sweep.sizes)
    ]
    head = ["variant", unit, *(text for _, text in LINES)]
    timings = [timing for sweep in sweeps.values() for kind, _ in LINES for timing in getattr(sweep, kind)]
    numbers = table(numbers_caption(caption), head, rows)
    return framed(
        caption, drawing, Html(numbers + note(f"Times on the GPU are interleaved. {spread_sentence(timings)}"))
    )


def _sweep(
    device: Device,
    experiment: str,
    caption: str,
    size: Callable[[Parameters], float],
    turn: Callable[[Run], float | None] | None,
) -> Sweep:
    run = device[experiment]
    points = sorted(run.points, key=lambda point: size(point.parameters))
    sizes = tuple(size(point.parameters) for point in points)
    require_positive(caption, {experiment: min(sizes, default=0)})
    if len(set(sizes)) != len(sizes) or len(sizes) < 2:
        raise ValueError(f"{caption}: {experiment} has the sizes {sizes}, not two or more, each once")
    timings = [run.at(**point.parameters).timings for point in points]
    interleaved, enqueue, from_python = (tuple(getattr(each, kind) for each in timings) for kind, _ in LINES)
    return Sweep(sizes, interleaved, enqueue, from_python, turn(run) if turn else None)


def _ends(sweep: Sweep, unit: str) -> str:
    first, last = (format_value(sweep.interleaved[index].median_us, "us") for index in (0, -1))
    small, large = (f"{sweep.sizes[index]:,g}" for index in (0, -1))
    return f"{sweep.regime(unit)}; on the GPU {first} at {small} and {last} at {large}."
