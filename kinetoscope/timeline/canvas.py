"""The SVG of a timeline: slices in rows, arrows from calls to the work they launched, the time axis.

A slice is one rectangle, plus a name if it fits: a page has many slices, and each element costs its reader time.
`data-said` describes a slice, a line each: its label, the name in the trace if that differs and no table has it, and
its times.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from html import escape
from itertools import accumulate

from kinetoscope.trace.events import GpuActivity
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.lanes import Lane, Slice
from kinetoscope.trace.placing import Kind
from kinetoscope.trace.text import shortened
from kinetoscope.trace.units import format_value

SLICE_KINDS: Mapping[Kind, str] = {
    "label": "labeled region",
    "annotation": "annotation",
    "op": "operator",
    "call": "CUDA call",
    "gemm": "GEMM",
    "pointwise": "pointwise kernel",
    "other": "other kernel",
    "copy": "copy",
    "fill": "fill",
    "idle": "GPU idle",
    "unrecorded": "before the recording",
}
"""Kinds of slices, with the names and in the order of the legend."""
PATTERNS: Mapping[Kind, str] = {
    "pointwise": '<path d="M-1 1 1-1M-1 7 7-1M5 7 7 5"/>',
    "other": '<path d="M0 0 6 6M6 0 0 6"/>',
    "copy": '<circle cx="1.5" cy="1.5" r="1"/><circle cx="4.5" cy="4.5" r="1"/>',
    "idle": '<path d="M-1 1 1-1M-1 7 7-1M5 7 7 5"/>',
}
"""Hatch over the color of a kind, on a 6 px tile. A GEMM is plain, a memset hollow; CSS dashes an annotation."""
_HEAD_PX, _NAME_PX, _CPU_ROW_PX, _GPU_ROW_PX, _AXIS_PX = 48, 18, 18, 24, 24
_REFERENCE_PX = 720
"""Names are shortened for this width; a narrower page clips them until the script fits them again."""
_PADDING_PX, _LEAST_LETTERS, _MOST_TICKS, _LAST_TICK = 6, 3, 6, 0.93  # the first three as in timeline.js
_LETTER_PX, _CAPITAL_PX = 6.5, 9.5
_THIN_PX = 4
"""As in timeline.js, which knows the real width."""
_LEAST_PERCENT = 0.001
"""Minimum width of a slice: browsers do not draw 0 %, the rounded width of a `view` in a step of 0.1 s."""
_METADATA = ("_unsafe_view", "as_strided", "expand", "permute", "reshape", "t", "transpose", "unsqueeze", "view")
"""Operators without computation that occur in the names of fused kernels."""


def overlap_text(us: float) -> str:
    """The part of a kernel's duration that overlaps: `of it 7.05 µs overlapping the kernel before`."""
    return f"of it {format_value(us, 'us')} overlapping the kernel before"


def slice_names(piece: Slice) -> tuple[str, str]:
    """The label of a slice, full and short for a narrow slice. Untrusted text, like the name in the trace."""
    if piece.merged > 1:
        return piece.name, f"{piece.merged:,}×"
    if piece.kind == "idle":
        return f"{format_value(piece.duration_us, 'us')} idle", format_value(piece.duration_us, "us")
    if piece.kind == "unrecorded":
        return "not recorded", ""
    if not isinstance(piece.source, GpuActivity):
        return piece.name, piece.name.rpartition("::")[2]
    decoded = decode_kernel_name(piece.name)
    if piece.source.kind != "kernel":
        return decoded.short, piece.kind
    fused = [op for op in decoded.fused if op not in _METADATA]
    parts = ["GEMM", *fused] if piece.kind == "gemm" else fused
    return decoded.short, " + ".join(parts) or decoded.short.partition(" (")[0]


def fitted(choices: Sequence[str], width_px: float) -> str:
    """The first of `choices` that fits into a slice of this width, else the start of the last, or an empty text."""
    free_px = width_px - _PADDING_PX
    whole = next((text for text in choices if sum(map(_letter_px, text)) <= free_px), None)
    if whole is not None:
        return whole
    ends = accumulate(map(_letter_px, choices[-1]), initial=_LETTER_PX)
    letters = sum(end <= free_px for end in ends) - 1
    return f"{choices[-1][:letters]}…" if letters >= _LEAST_LETTERS - 1 else ""


def _letter_px(letter: str) -> float:
    """About the width of a letter at 12 px in a wide font."""
    return _CAPITAL_PX if letter.isupper() else _LETTER_PX


class Canvas:
    """An SVG that grows down with each step; x in percent of the time scale, y in pixels."""

    def __init__(
        self, begin_us: float, span_us: float, ident: str, *, name_width: int | None = None, has_tables: bool = False
    ) -> None:
        """A canvas for steps.

        Args:
            begin_us: the start of its time scale.
            span_us: the length of the time scale.
            ident: prefix of every id.
            name_width: the most characters of a name; long names would be most of the page of a step with thousands of
                slices.
            has_tables: whether tables below the drawing have the names of the trace, so that slices need none.
        """
        self.name_width, self.has_tables = name_width, has_tables
        self.begin_us, self.span_us, self.ident = begin_us, span_us, ident
        self.height = _AXIS_PX
        self.steps: list[str] = []
        self.names: list[str] = []
        self.kinds: set[Kind] = set()

    def x(self, time_us: float) -> str:
        """The position of a time on the scale."""
        return f"{round(100 * (time_us - self.begin_us) / self.span_us, 4):g}%"

    def width(self, duration_us: float) -> str:
        """The width of a duration on the scale, at least the minimum that browsers draw."""
        return f"{max(_LEAST_PERCENT, round(100 * duration_us / self.span_us, 4)):g}%"

    def add(
        self,
        index: int,
        heading: str,
        phrases: tuple[str, str],
        lanes: Sequence[Lane],
        shown: tuple[float, float],
    ) -> None:
        """Draw a step below the previous ones, with arrows from its calls to the activities they launched.

        Args:
            index: number of the step in the drawing.
            heading: its name.
            phrases: a description, and the part of it that a phone omits.
            lanes: the lanes to draw.
            shown: begin and end of the time drawn, after the start of the step, in us.
        """
        self.height += _HEAD_PX
        top = self.height
        self.names.append(f'<text class="heading" y="{self.height - 24}">{escape(heading)}</text>')
        more = f'<tspan>{phrases[0]}</tspan><tspan class="more">; {phrases[1]}</tspan>'
        self.names.append(f'<text class="said" y="{self.height - 8}">{more}</text>')
        ends: dict[int, tuple[Slice, int]] = {}
        drawn, arrows = [], []
        for lane in lanes:
            row_px = _GPU_ROW_PX if lane.is_gpu else _CPU_ROW_PX
            self.names.append(f'<text y="{self.height + _NAME_PX - 5}">{escape(lane.name)}</text>')
            self.height += _NAME_PX
            drawn.append('<g class="gpu">' if lane.is_gpu else "<g>")
            self.kinds |= {piece.kind for piece in lane.slices}
            for piece in lane.slices:
                y = self.height + piece.row * row_px
                pair = "" if piece.pair is None else f' data-pair="{index}.{piece.pair}"'
                drawn.append(self._slice(piece, y, row_px - 2, pair))
                if piece.kind == "call" and piece.pair is not None:
                    ends[piece.pair] = piece, y + row_px - 2
                elif piece.pair in ends:
                    arrows.append(self._arrow(*ends[piece.pair], piece, y, pair))
            drawn.append("</g>")
            self.height += lane.rows * row_px
        own = [piece for lane in lanes for piece in lane.slices if piece.is_own]
        regions = "".join(self._region(piece, top) for piece in own if piece.kind == "label")
        first = min(
            (piece.start_us for lane in lanes if lane.is_gpu for piece in lane.slices if piece.is_own), default=""
        )
        self.steps.append(
            f'<svg class="step" role="group" aria-label="{escape(heading)}" data-shown="{shown[0]} {shown[1]}" '
            f'data-gpu="{first}">{regions}{"".join(drawn)}'
            f'<g class="arrows" marker-end="url(#{self.ident}-arrow)">{"".join(arrows)}</g></svg>'
        )

    def _region(self, label: Slice, top: int) -> str:
        """Shade the time of the marked annotation behind all lanes of its step."""
        wide, high = self.width(label.duration_us), self.height - top
        return f'<rect class="region" x="{self.x(label.start_us)}" y="{top}" width="{wide}" height="{high}"/>'

    def _slice(self, piece: Slice, y: int, height: int, pair: str) -> str:
        said = self._said(piece)
        full, short = said[0], self._shortened(slice_names(piece)[1])
        fill = f' fill="url(#{self.ident}-{piece.kind})"' if piece.kind in PATTERNS else ""
        ident = f' id="{escape(piece.anchor)}"' if piece.anchor else ""
        narrow = "" if short == full else f' data-short="{escape(short)}"'
        role = "slice" if piece.is_own else "ghost" if piece.is_ghost else "gap"
        role += " block" if piece.merged > 1 else ""
        looks = f"{piece.kind} thin" if piece.merged == 1 and self._is_thin(piece) else piece.kind
        words = escape("\n".join(said)).replace("\n", "&#10;")
        filled_px = max(1.0, round(piece.filled * height, 1))
        filled = "" if piece.filled == 1 else f' data-filled="{round(piece.filled, 4):g}"'
        place = f'y="{y + height - filled_px:g}" width="{self.width(piece.duration_us)}" height="{filled_px:g}"{filled}'
        drawn = f'<rect class="{role} {looks}"{ident}{pair}{narrow} x="{self.x(piece.start_us)}" {place}{fill} '
        over = self._overlap(piece, y, height) + self._name(piece, full, short, y, height)
        return f'{drawn}data-said="{words}"/>{over}'

    def _is_thin(self, piece: Slice) -> bool:
        """Whether borders would make a slice look much longer than it is."""
        return piece.kind not in ("idle", "unrecorded") and piece.duration_us / self.span_us * _REFERENCE_PX < _THIN_PX

    def _said(self, piece: Slice) -> list[str]:
        full = self._shortened(slice_names(piece)[0])
        if piece.kind == "idle" or piece.kind == "unrecorded":
            return [full, f"begins after {exact_time(piece.start_us)}"]
        names = [full] if piece.merged > 1 or self.has_tables else [*dict.fromkeys((full, self._shortened(piece.name)))]
        whose = "another step's work, " if piece.is_ghost else ""
        return [*names, f"{whose}{duration_text(piece)}, begins after {exact_time(piece.start_us)}"]

    def _shortened(self, name: str) -> str:
        return name if self.name_width is None else shortened(name, self.name_width)

    def _overlap(self, piece: Slice, y: int, height: int) -> str:
        if not piece.overlap_us:
            return ""
        wide = self.width(min(piece.overlap_us, piece.duration_us))
        return f'<rect class="overlap" x="{self.x(piece.start_us)}" y="{y}" width="{wide}" height="{height}"/>'

    def _name(self, piece: Slice, full: str, short: str, y: int, height: int) -> str:
        width_px = piece.duration_us / self.span_us * _REFERENCE_PX
        is_gap = piece.kind == "idle" or piece.kind == "unrecorded"
        text = fitted((full, short), width_px)
        if not text or (is_gap and text not in (full, short)):
            return ""
        x, dx = (self.x(piece.start_us + piece.duration_us / 2), 0) if is_gap else (self.x(piece.start_us), 3)
        return f'<text x="{x}" dx="{dx}" y="{y + height // 2 + 4}">{escape(text)}</text>'

    def _arrow(self, call: Slice, bottom: int, work: Slice, top: int, pair: str) -> str:
        ends = f'x1="{self.x(call.start_us)}" y1="{bottom}" x2="{self.x(work.start_us)}" y2="{top}"'
        return f"<line {ends}{pair}/>"

    def svg(self, described: str) -> str:
        """The whole drawing; `described` is HTML."""
        return (
            f'<svg class="drawing" width="100%" height="{self.height}" role="img" aria-label="{described}" '
            f'data-begin="{round(self.begin_us, 3)}" data-span="{round(self.span_us, 3)}">'
            f"{definitions(self.ident, self.kinds)}"
            f'<rect class="ruler" width="100%" height="{_AXIS_PX - 2}"/><g class="axis">{self._axis()}</g>'
            f'{"".join(self.steps)}<g class="names">{"".join(self.names)}</g></svg>'
        )

    def _axis(self) -> str:
        unit, name = (1000.0, "ms") if self.span_us >= 2000 else (1.0, "µs")
        ticks = []
        for time in ticks_us(self.begin_us, self.span_us):
            x = self.x(time)
            line = f'<line x1="{x}" x2="{x}" y2="100%"/>'
            ticks.append(f'{line}<text x="{x}" dx="4" y="15">{time / unit:g} {name}</text>')
        return "".join(ticks)


def definitions(ident: str, kinds: Collection[Kind]) -> str:
    """The head of the arrows, and the patterns of these kinds of slices, under ids that begin with `ident`."""
    patterns = "".join(pattern(ident, kind, strokes) for kind, strokes in PATTERNS.items() if kind in kinds)
    marker = f'<marker id="{ident}-arrow" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="5" orient="auto">'
    return f'<defs>{marker}<path d="M0 0 6 3 0 6z"/></marker>{patterns}</defs>'


def pattern(ident: str, kind: str, strokes: str) -> str:
    """The fill of a kind: its color, and the strokes over it."""
    tile = f'id="{ident}-{kind}" class="{kind}" width="6" height="6" patternUnits="userSpaceOnUse"'
    return f'<pattern {tile}><rect width="6" height="6"/>{strokes}</pattern>'


def ticks_us(begin_us: float, span_us: float) -> list[float]:
    """Round times for the axis: at most six, none so close to the end that its label is clipped."""
    rough = span_us / _MOST_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    interval = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first, last = math.ceil(begin_us / interval), math.floor((begin_us + _LAST_TICK * span_us) / interval)
    return [round(index * interval, 9) for index in range(first, last + 1)]


def exact_time(time_us: float) -> str:
    """A time with 0.1 us precision at any magnitude, so that the text distinguishes successive slices."""
    return f"{time_us:,.1f} µs"


def duration_text(piece: Slice) -> str:
    """The duration of a slice as text, with the part that overlaps."""
    lasts = format_value(piece.duration_us, "us")
    return f"{lasts}, {overlap_text(piece.overlap_us)}" if piece.overlap_us else lasts
