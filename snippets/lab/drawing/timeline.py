"""Draw one step of a trace: CPU operators and calls, GPU activities, and arrows from each call to its activities.

Positions and widths in the SVG are percentages of its width, while text keeps its size: it fits any page, and
docs/assets/js/timeline.js zooms by making it wider inside its frame. The tables below have a row for each slice, in the
same order; the script shows the row of the selected slice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape

from snippets.lab.drawing.canvas import PATTERNS, SLICE_KINDS, Canvas, duration_text, exact_time, slice_names
from snippets.lab.drawing.numbers import chart_id
from snippets.lab.finding.device import Device
from snippets.lab.html import Cell, Html, details, hold_back, table
from snippets.lab.trace.events import GpuActivity, Step
from snippets.lab.trace.lanes import Kind, Lane, Slice, lanes
from snippets.lab.trace.queries import busy_us
from snippets.lab.trace.units import format_value

PERFETTO = "https://ui.perfetto.dev"
_MANY = {"kernel": "kernels", "copy": "copies", "fill": "fills"}
_MARGIN = 1.004
"""Length of the scale / time of the steps: the last slice needs room for its edge."""
_NOTHING = Html("")
_TOOLS = (
    '<div class="zoom" role="group" aria-label="Zoom" hidden>'
    '<button type="button" value="-" aria-label="Zoom out">−</button>'
    '<button type="button" value="+" aria-label="Zoom in">+</button>'
    '<button type="button" value="0">Whole step</button></div>'
)
_HINT = (
    '<p class="hint" hidden>Select a slice for its details: click it, or go there by Tab and arrow keys and press '
    "Enter. Zoom with + and −, with Ctrl and the wheel, or with two fingers.</p>"
)


_OVERLAP_LEGEND = (
    '<li class="overlap"><svg width="22" height="12" aria-hidden="true"><rect x="1" y="1" width="20" height="10"/>'
    "</svg>the kernel before still runs: this one may only wait</li>"
)


def timeline(device: Device, variants: Mapping[str, str], caption: str, *, site_root: str = "..") -> Html:
    """The middle steps of recordings on one time scale, with buttons that open or download the whole traces.

    Args:
        device: whose recordings.
        variants: heading -> `chapter/experiment`, drawn in this order from the top.
        caption: what the timeline shows.
        site_root: the site's root as seen from the page.

    Raises `NotRecorded` if a recording is missing, `TraceError` if a trace has no step.
    """
    runs = {heading: device[experiment] for heading, experiment in variants.items()}
    steps = {heading: (run.step, run.label) for heading, run in runs.items()}
    buttons = "".join(
        _buttons(heading, f"{site_root}/recordings/{run.trace_path}", f"{run.id} on {run.environment.device}")
        for heading, run in runs.items()
    )
    ident = chart_id("timeline", device, caption)
    return draw_steps(steps, caption, ident=ident, below=Html(f'<ul class="traces">{buttons}</ul>'))


def _buttons(heading: str, url: str, title: str) -> str:
    href = escape(url)
    return (
        f"<li><strong>{escape(heading)}</strong> "
        f'<button type="button" class="perfetto" data-trace="{href}" data-title="{escape(title)}" '
        f'data-perfetto="{PERFETTO}" hidden>Open the whole trace in Perfetto</button> '
        f'<a href="{href}" download>Download .json.gz</a> <span role="status"></span></li>'
    )


def draw_steps(steps: Mapping[str, tuple[Step, str]], caption: str, *, ident: str, below: Html = _NOTHING) -> Html:
    """Draw steps of any traces from top to bottom on one time scale, each from its start; then their tables.

    Args:
        steps: heading -> a step, and the annotation to mark or "".
        caption: what the timeline shows.
        ident: prefix of every id; unique on the page.
        below: HTML after the tables.

    Raises `ValueError` without steps.
    """
    if not steps:
        raise ValueError("a timeline of nothing: give at least one step")
    lanes_of = {heading: lanes(step, label) for heading, (step, label) in steps.items()}
    slices = [each for step_lanes in lanes_of.values() for lane in step_lanes for each in lane.slices]
    begin = min([0.0, *(each.start_us for each in slices)])
    end = max([step.end_us - step.start_us for step, _ in steps.values()] + [each.end_us for each in slices])
    canvas = Canvas(begin, (end - begin) * _MARGIN or 1.0, ident)
    descriptions = {heading: describe_step(step) for heading, (step, _) in steps.items()}
    for index, (heading, step_lanes) in enumerate(lanes_of.items()):
        canvas.add(index, heading, descriptions[heading], step_lanes)
    parts = [caption, *(f"{heading}: {'; '.join(phrases)}" for heading, phrases in descriptions.items())]
    kinds = {each.kind for each in slices}
    legend = "".join(legend_entry(kind, ident) for kind in SLICE_KINDS if kind in kinds)
    legend += _OVERLAP_LEGEND if any(each.overlap_us for each in slices) else ""
    tables = "".join(_tables(caption, heading, step_lanes) for heading, step_lanes in lanes_of.items())
    return Html(
        f'<figure class="lab-timeline" data-search-exclude><figcaption>{escape(caption)}</figcaption>{_TOOLS}'
        f'<div class="frame" role="region" tabindex="0" aria-label="{escape(caption)}: drawing">'
        f'{canvas.svg(escape(". ".join(parts)))}</div><ul class="legend">{legend}</ul>'
        f'<div class="selected" aria-live="polite"></div>{_HINT}'
        f"{details('The same as tables', hold_back(tables))}{below}</figure>"
    )


def describe_step(step: Step) -> tuple[str, str]:
    """Describe a step in two phrases: its GPU work and busy time; when GPU and CPU finished."""
    cpu = format_value(step.end_us - step.start_us, "us")
    if not step.activities:
        return "nothing on the GPU", f"CPU done after {cpu}"
    counts = {"kernel": len(step.kernels), "copy": len(step.memcpys), "fill": len(step.memsets)}
    parts = [f"{count} {name if count == 1 else _MANY[name]}" for name, count in counts.items() if count]
    busy = format_value(busy_us(step.activities), "us")
    done = format_value(max(piece.end_us for piece in step.activities) - step.start_us, "us")
    return f"{', '.join(parts)}, GPU busy {busy}", f"GPU done after {done}, CPU after {cpu}"


def legend_entry(kind: Kind, ident: str) -> str:
    """How a kind of slices looks; `ident` as the canvas has it."""
    fill = f' fill="url(#{ident}-{kind})"' if kind in PATTERNS else ""
    sample = f'<svg width="22" height="12" aria-hidden="true"><rect x="1" y="1" width="20" height="10"{fill}/></svg>'
    return f'<li class="{kind}">{sample}{SLICE_KINDS[kind]}</li>'


def _tables(caption: str, heading: str, step_lanes: Sequence[Lane]) -> Html:
    """Tables of all slices in drawing order; the first cell of a row is the slice's label."""
    work: dict[int | None, list[str]] = defaultdict(list)
    for piece in (piece for lane in step_lanes if lane.is_gpu for piece in lane.slices):
        work[piece.pair].append(slice_names(piece)[1])
    cpu = [
        _cpu_row(f"{heading}: {lane.name}", piece, work)
        for lane in step_lanes
        if not lane.is_gpu
        for piece in lane.slices
    ]
    gpu = [_gpu_row(f"{heading}: {lane.name}", piece) for lane in step_lanes if lane.is_gpu for piece in lane.slices]
    cpu_head = ["name", "what", "lane", "starts on the GPU", "begins after", "lasts"]
    gpu_head = ["what", "name", "lane", "operator", "call", "begins after", "lasts", "launch delay", "grid", "block"]
    gpu_head += ["registers", "shared memory, bytes", "moved, bytes"]
    cpu_table = table(f"{caption}: {heading}, CPU", cpu_head, cpu, text_columns=4) if cpu else _NOTHING
    return Html(cpu_table + (table(f"{caption}: {heading}, GPU", gpu_head, gpu, text_columns=5) if gpu else _NOTHING))


def _cpu_row(lane: str, piece: Slice, work: Mapping[int | None, Sequence[str]]) -> list[Cell]:
    started = work.get(piece.pair, ()) if piece.pair is not None else ()
    launched = ", ".join(started) if len(started) < 4 else f"{len(started):,} activities"
    return [
        _code(piece.name),
        SLICE_KINDS[piece.kind],
        lane,
        launched or None,
        exact_time(piece.start_us),
        duration_text(piece),
    ]


def _gpu_row(lane: str, piece: Slice) -> list[Cell]:
    activity = piece.source
    assert isinstance(activity, GpuActivity)
    op, launch, delay = activity.op, activity.launch, activity.launch_delay_us
    return [
        slice_names(piece)[0],
        _code(piece.name),
        lane,
        _code(op.name) if op else None,
        _code(launch.name) if launch else None,
        exact_time(piece.start_us),
        duration_text(piece),
        None if delay is None else format_value(delay, "us"),
        _sizes(activity.grid),
        _sizes(activity.block),
        activity.registers,
        _count(activity.shared_memory_bytes),
        _count(activity.moved_bytes),
    ]


def _code(name: str) -> Html:
    return Html(f"<code>{escape(name, quote=False)}</code>")


def _sizes(sizes: tuple[int, int, int] | None) -> str | None:
    return None if sizes is None else "x".join(map(str, sizes))


def _count(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"
