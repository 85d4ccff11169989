"""One step of a trace as a picture: what the CPU called, what the GPU ran, and which call started what.

Drawn as SVG whose places and widths are percentages of its own width, while its text keeps its size: it fits any page
as it is, and to zoom is to make it wider inside its frame (docs/assets/js/timeline.js). Under it stand tables of the
same data, row for row in the order of the slices; the script shows the row of a slice that is selected.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape

from snippets.lab import kernel_names, recording, tables, trace
from snippets.lab.figures import in_words
from snippets.lab.html import Cell, Html, details, table
from snippets.lab.lanes import Kind, Lane, Slice, lanes
from snippets.lab.trace import GpuActivity, Step, Trace

PERFETTO = "https://ui.perfetto.dev"
KINDS: Mapping[Kind, str] = {
    "label": "labeled region",
    "annotation": "annotation",
    "op": "operator",
    "call": "CUDA call",
    "gemm": "GEMM",
    "pointwise": "pointwise kernel",
    "other": "other kernel",
    "copy": "copy",
    "fill": "fill",
}
"""What is told apart, in the words and the order of the legend."""
_MANY = {"kernel": "kernels", "copy": "copies", "fill": "fills"}
_PATTERNS: Mapping[Kind, str] = {
    "pointwise": '<path d="M-1 1 1-1M-1 7 7-1M5 7 7 5"/>',
    "other": '<path d="M0 0 6 6M6 0 0 6"/>',
    "copy": '<circle cx="1.5" cy="1.5" r="1"/><circle cx="4.5" cy="4.5" r="1"/>',
}
"""Over the color of a kind, on a tile of six pixels. A GEMM is plain, a fill hollow, an annotation dashed by CSS."""

_HEAD_PX, _NAME_PX, _CPU_ROW_PX, _GPU_ROW_PX, _AXIS_PX = 44, 16, 16, 22, 16
_REFERENCE_PX = 720
"""The width that names are shortened for; on a narrower page they are cut off, and the script fits them anew."""
_PADDING_PX, _LEAST_LETTERS, _MOST_TICKS, _LAST_TICK = 6, 3, 6, 0.93  # as in timeline.js
_LETTER_PX = 6.0
_MARGIN = 1.004
"""How much longer the scale is than what it shows, so that the last slice has an edge."""
_LEAST_PERCENT = 0.001
"""Of a slice: what is 0 % wide, as a `view` would be in a step of a tenth of a second, is not drawn at all."""
_NOTHING = Html("")
_METADATA = ("_unsafe_view", "as_strided", "expand", "permute", "reshape", "t", "transpose", "unsqueeze", "view")
"""Operators in the name of a fused kernel that compute nothing."""
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


def timeline(variants: Mapping[str, str], device: str, caption: str, *, root: str = "..") -> Html:
    """The middle steps of recordings on one time scale, with buttons that open or download the whole traces.

    Args:
        variants: heading -> `chapter/experiment`, drawn from above in this order.
        root: the site's root as seen from the page.

    Raises `RecordingMissing` where one has no trace, `TraceError` where one has no step.
    """
    found = {heading: recording.load(name, device) for heading, name in variants.items()}
    drawn, buttons = {}, []
    for heading, one in found.items():
        traced = recording.trace(one.id, device)
        drawn[heading] = (traced, tables.middle_step(traced), one.label)
        path = recording.trace_path(one, device).relative_to(recording.RECORDINGS).as_posix()
        buttons.append(_buttons(heading, f"{root}/recordings/{path}", f"{one.id} on {one.circumstances.device}"))
    digest = hashlib.sha256("\n".join([device, caption, *variants, *variants.values()]).encode()).hexdigest()
    return drawing(drawn, caption, f"timeline-{digest[:8]}", Html(f'<ul class="traces">{"".join(buttons)}</ul>'))


def _buttons(heading: str, url: str, title: str) -> str:
    href = escape(url)
    return (
        f"<li><strong>{escape(heading)}</strong> "
        f'<button type="button" class="perfetto" data-trace="{href}" data-title="{escape(title)}" '
        f'data-perfetto="{PERFETTO}" hidden>Open the whole trace in Perfetto</button> '
        f'<a href="{href}" download>Download .json.gz</a> <span role="status"></span></li>'
    )


def drawing(traces: Mapping[str, tuple[Trace, Step, str]], caption: str, ident: str, below: Html = _NOTHING) -> Html:
    """Steps of any traces, one above the other on one time scale, each from its beginning; then the table of the same.

    Args:
        traces: heading -> (trace, a step of it, the annotation to be marked or "").
        ident: start of every id within; another for each drawing on a page.
        below: what stands under the table.

    Raises `ValueError` when there is nothing to draw.
    """
    if not traces:
        raise ValueError("a timeline of nothing: give at least one step")
    found = {heading: lanes(*given) for heading, given in traces.items()}
    slices = [one for each in found.values() for lane in each for one in lane.slices]
    begin = min([0.0, *(one.start_us for one in slices)])
    end = max([step.end_us - step.start_us for _, step, _ in traces.values()] + [one.end_us for one in slices])
    canvas = _Canvas(begin, (end - begin) * _MARGIN or 1.0, ident)
    said = {heading: summary(step) for heading, (_, step, _) in traces.items()}
    for place, (heading, each) in enumerate(found.items()):
        canvas.add(place, heading, said[heading], each)
    described = escape(". ".join([caption, *(f"{heading}: {'; '.join(parts)}" for heading, parts in said.items())]))
    kinds = {one.kind for one in slices}
    legend = "".join(_legend(kind, ident) for kind in KINDS if kind in kinds)
    same = "".join(_tables(caption, heading, traces[heading][0], each) for heading, each in found.items())
    return Html(
        f'<figure class="lab-timeline" data-search-exclude><figcaption>{escape(caption)}</figcaption>{_TOOLS}'
        f'<div class="frame" role="region" tabindex="0" aria-label="{escape(caption)}: drawing">'
        f'{canvas.svg(described)}</div><ul class="legend">{legend}</ul>'
        f'<div class="selected" aria-live="polite"></div>{_HINT}'
        f"{details('The same as tables', same)}{below}</figure>"
    )


def summary(step: Step) -> tuple[str, str]:
    """A step in two phrases: what ran on the GPU and how long it was busy; when GPU and CPU were done."""
    cpu = in_words(step.end_us - step.start_us, "us")
    if not step.activities:
        return "nothing on the GPU", f"CPU done after {cpu}"
    counts = {"kernel": len(step.kernels), "copy": len(step.memcpys), "fill": len(step.memsets)}
    said = [f"{count} {name if count == 1 else _MANY[name]}" for name, count in counts.items() if count]
    busy = in_words(trace.busy_us(step.activities), "us")
    done = in_words(max(one.end_us for one in step.activities) - step.start_us, "us")
    return f"{', '.join(said)}, GPU busy {busy}", f"GPU done after {done}, CPU after {cpu}"


def names(one: Slice) -> tuple[str, str]:
    """What to call a slice: in full, and in short where it is narrow. Untrusted text, like the name it is made from."""
    if not isinstance(one.source, GpuActivity):
        return one.name, one.name.rpartition("::")[2]
    decoded = kernel_names.decode(one.name)
    if one.source.kind != "kernel":
        return decoded.short, one.kind
    fused = [op for op in decoded.fused if op not in _METADATA]
    parts = ["GEMM", *fused] if one.kind == "gemm" else fused
    return decoded.short, " + ".join(parts) or decoded.short.partition(" (")[0]


def fitted(choices: Sequence[str], width_px: float) -> str:
    """The first of `choices` that fits into a slice of this width, else the start of the last; at worst nothing."""
    letters = int((width_px - _PADDING_PX) / _LETTER_PX)
    whole = next((text for text in choices if len(text) <= letters), "")
    return whole or (f"{choices[-1][: letters - 1]}…" if letters >= _LEAST_LETTERS else "")


class _Canvas:
    """An SVG that grows downwards, a step at a time; x in percent of the time scale, y in pixels."""

    def __init__(self, begin_us: float, span_us: float, ident: str) -> None:
        self.begin_us, self.span_us, self.ident = begin_us, span_us, ident
        self.height = _AXIS_PX
        self.regions: list[str] = []
        self.slices: list[str] = []
        self.arrows: list[str] = []
        self.names: list[str] = []

    def x(self, time_us: float) -> str:
        """A time as a place on the scale."""
        return f"{round(100 * (time_us - self.begin_us) / self.span_us, 3):g}%"

    def width(self, duration_us: float) -> str:
        """A duration as a share of the scale, never so small that it is not drawn."""
        return f"{max(_LEAST_PERCENT, round(100 * duration_us / self.span_us, 3)):g}%"

    def add(self, place: int, heading: str, said: tuple[str, str], each: Sequence[Lane]) -> None:
        """A step below those drawn before, with the arrows from its calls to what they started."""
        self.height += _HEAD_PX
        top = self.height
        self.names.append(f'<text class="heading" y="{self.height - 22}">{escape(heading)}</text>')
        more = f'<tspan>{said[0]}</tspan><tspan class="more">; {said[1]}</tspan>'
        self.names.append(f'<text class="said" y="{self.height - 8}">{more}</text>')
        ends: dict[int, tuple[Slice, int]] = {}
        self.slices.append(f'<g role="group" aria-label="{escape(heading)}">')
        for lane in each:
            row_px = _GPU_ROW_PX if lane.is_gpu else _CPU_ROW_PX
            self.names.append(f'<text y="{self.height + _NAME_PX - 4}">{escape(lane.name)}</text>')
            self.height += _NAME_PX
            for one in lane.slices:
                y = self.height + one.row * row_px
                pair = "" if one.pair is None else f' data-pair="{place}.{one.pair}"'
                self.slices.append(self._slice(one, y, row_px - 2, pair))
                if one.kind == "call" and one.pair is not None:
                    ends[one.pair] = one, y + row_px - 2
                elif one.pair in ends:
                    self.arrows.append(self._arrow(*ends[one.pair], one, y, pair))
            self.height += lane.rows * row_px
        self.slices.append("</g>")
        self._region([one for lane in each for one in lane.slices if one.kind == "label"], top)

    def _region(self, labels: Sequence[Slice], top: int) -> None:
        """The time of the marked span, behind all lanes of its step."""
        for one in labels:
            wide, high = self.width(one.duration_us), self.height - top
            self.regions.append(f'<rect x="{self.x(one.start_us)}" y="{top}" width="{wide}" height="{high}"/>')

    def _slice(self, one: Slice, y: int, height: int, pair: str) -> str:
        full, short = names(one)
        fill = f' fill="url(#{self.ident}-{one.kind})"' if one.kind in _PATTERNS else ""
        narrow = "" if short == full else f' data-short="{escape(short)}"'
        lines = [*dict.fromkeys((full, one.name)), f"{_lasts(one)}, begins after {_exact(one.start_us)}"]
        title = escape("\n".join(lines), quote=False)
        shown = fitted((full, short), one.duration_us / self.span_us * _REFERENCE_PX)
        return (
            f'<svg class="slice {one.kind}"{pair}{narrow} x="{self.x(one.start_us)}" y="{y}" '
            f'width="{self.width(one.duration_us)}" height="{height}"><title>{title}</title>'
            f'<rect width="100%" height="100%"{fill}/><text x="3" y="{height // 2 + 4}">{escape(shown)}</text></svg>'
        )

    def _arrow(self, call: Slice, bottom: int, work: Slice, top: int, pair: str) -> str:
        ends = f'x1="{self.x(call.start_us)}" y1="{bottom}" x2="{self.x(work.start_us)}" y2="{top}"'
        return f"<line {ends}{pair}/>"

    def svg(self, described: str) -> str:
        """The whole drawing; `described` is HTML."""
        marker = f'<marker id="{self.ident}-arrow" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="5" orient="auto">'
        patterns = "".join(
            f'<pattern id="{self.ident}-{kind}" class="{kind}" width="6" height="6" patternUnits="userSpaceOnUse">'
            f'<rect width="6" height="6"/>{strokes}</pattern>'
            for kind, strokes in _PATTERNS.items()
        )
        return (
            f'<svg class="drawing" width="100%" height="{self.height}" role="img" aria-label="{described}" '
            f'data-begin="{round(self.begin_us, 3)}" data-span="{round(self.span_us, 3)}">'
            f'<defs>{marker}<path d="M0 0 6 3 0 6z"/></marker>{patterns}</defs>'
            f'<g class="regions">{"".join(self.regions)}</g><g class="axis">{self._axis()}</g>'
            f'{"".join(self.slices)}<g class="arrows" marker-end="url(#{self.ident}-arrow)">{"".join(self.arrows)}</g>'
            f'<g class="names">{"".join(self.names)}</g></svg>'
        )

    def _axis(self) -> str:
        unit, name = (1000.0, "ms") if self.span_us >= 2000 else (1.0, "µs")
        ticks = []
        for time in ticks_us(self.begin_us, self.span_us):
            x = self.x(time)
            line = f'<line x1="{x}" x2="{x}" y2="100%"/>'
            ticks.append(f'{line}<text x="{x}" dx="4" y="11">{time / unit:g} {name}</text>')
        return "".join(ticks)


def ticks_us(begin_us: float, span_us: float) -> list[float]:
    """Round times for the axis: at most six, none so near the end that its name would be cut off."""
    rough = span_us / _MOST_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    every = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first, last = math.ceil(begin_us / every), math.floor((begin_us + _LAST_TICK * span_us) / every)
    return [round(place * every, 9) for place in range(first, last + 1)]


def _legend(kind: Kind, ident: str) -> str:
    fill = f' fill="url(#{ident}-{kind})"' if kind in _PATTERNS else ""
    sample = f'<svg width="22" height="12" aria-hidden="true"><rect x="1" y="1" width="20" height="10"{fill}/></svg>'
    return f'<li class="{kind}">{sample}{KINDS[kind]}</li>'


def _tables(caption: str, heading: str, traced: Trace, each: Sequence[Lane]) -> Html:
    """All slices in the order in which they are drawn; the first cell of a row is what the slice is called."""
    work: dict[int | None, list[str]] = defaultdict(list)
    for one in (one for lane in each if lane.is_gpu for one in lane.slices):
        work[one.pair].append(names(one)[1])
    cpu = [_cpu_row(f"{heading}: {lane.name}", one, work) for lane in each if not lane.is_gpu for one in lane.slices]
    gpu = [_gpu_row(f"{heading}: {lane.name}", one, traced) for lane in each if lane.is_gpu for one in lane.slices]
    cpu_head = ["name", "what", "lane", "starts on the GPU", "begins after", "lasts"]
    gpu_head = ["what", "name", "lane", "operator", "call", "begins after", "lasts", "launch delay", "grid", "block"]
    gpu_head += ["registers", "shared memory, bytes", "moved, bytes"]
    shown = table(f"{caption}: {heading}, CPU", cpu_head, cpu, text_columns=4) if cpu else _NOTHING
    return Html(shown + (table(f"{caption}: {heading}, GPU", gpu_head, gpu, text_columns=5) if gpu else _NOTHING))


def _cpu_row(place: str, one: Slice, work: Mapping[int | None, Sequence[str]]) -> list[Cell]:
    started = work.get(one.pair, ()) if one.pair is not None else ()
    said = ", ".join(started) if len(started) < 4 else f"{len(started):,} activities"
    return [_code(one.name), KINDS[one.kind], place, said or None, _exact(one.start_us), _lasts(one)]


def _gpu_row(place: str, one: Slice, traced: Trace) -> list[Cell]:
    activity = one.source
    assert isinstance(activity, GpuActivity)
    op, launch, delay = traced.op_of(activity), traced.launch_of(activity), traced.launch_delay_us(activity)
    return [
        names(one)[0],
        _code(one.name),
        place,
        _code(op.name) if op else None,
        _code(launch.name) if launch else None,
        _exact(one.start_us),
        _lasts(one),
        None if delay is None else in_words(delay, "us"),
        _sizes(activity.grid),
        _sizes(activity.block),
        activity.registers,
        _count(activity.shared_memory_bytes),
        _count(activity.moved_bytes),
    ]


def _code(name: str) -> Html:
    return Html(f"<code>{escape(name, quote=False)}</code>")


def _exact(time_us: float) -> str:
    """A place on the axis: to 0.1 us however late, so that what follows can be told from what comes before."""
    return f"{time_us:,.1f} µs"


def _lasts(one: Slice) -> str:
    return in_words(one.duration_us, "us")


def _sizes(sizes: tuple[int, int, int] | None) -> str | None:
    return None if sizes is None else "x".join(map(str, sizes))


def _count(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"
