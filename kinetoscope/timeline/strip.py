"""Draw a step as a strip: its outermost operators, the calls that launch or wait, the GPU lane with its gaps hatched.

A strip is a picture that fits any width and needs no script. `draw` shows the same step in full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from msgspec.structs import replace

from kinetoscope.html import Html
from kinetoscope.timeline.canvas import PATTERNS, SLICE_KINDS, definitions, ticks_us
from kinetoscope.trace.events import CpuOp, GpuActivity, Step
from kinetoscope.trace.intervals import length_us, ns, union
from kinetoscope.trace.lanes import Slice, lanes
from kinetoscope.trace.placing import Kind
from kinetoscope.trace.queries import is_sync, op_name
from kinetoscope.trace.units import format_value

_LETTER_PX, _PADDING_PX = 6.2, 8
_WIDE_PX, _NARROW_PX = 900, 290
"""Widths of a strip on a large screen and on a phone: a name is drawn where it fits."""
_MIN_GAP, _MIN_WIDTH = 0.004, 0.01
"""Shortest gap that is hatched, and shortest slice that is drawn alone without text, as shares of the scale."""


@dataclass(frozen=True)
class Rows:
    """Top and height of each row, in pixels."""

    ops: tuple[int, int]
    calls: tuple[int, int]
    gpu: tuple[int, int]
    height: int
    has_text: bool
    """Whether it has a time axis, and names of rows and slices."""


LARGE = Rows((38, 18), (60, 14), (108, 24), 138, has_text=True)
SMALL = Rows((4, 12), (19, 8), (38, 20), 62, has_text=False)
GPU_ALONE = Rows((0, 0), (0, 0), (20, 22), 62, has_text=False)
"""For work that starts long after its calls."""


@dataclass(frozen=True)
class Scale:
    """The part of a step that a strip shows."""

    begin_us: float
    """After the start of the step."""
    span_us: float

    def x(self, time_us: float) -> str:
        """The position of a time in percent of the width."""
        return f"{round(100 * (time_us - self.begin_us) / self.span_us, 2):g}%"

    def width(self, duration_us: float) -> str:
        """The width of a duration, at least the minimum that browsers draw."""
        return f"{max(0.05, round(100 * duration_us / self.span_us, 2)):g}%"


def strip(step: Step, scale: Scale, *, ident: str, described: str, rows: Rows = LARGE) -> Html:
    """One step as SVG.

    Args:
        step: the step to draw.
        scale: the part of the step, so that strips of several steps can share it.
        ident: prefix of every id; unique on the page.
        described: a description for a screen reader.
        rows: `LARGE` or `SMALL`.
    """
    ops, calls, work = selected(step, scale)
    if not rows.has_text:
        ops, calls, work = (merged(each, _MIN_WIDTH * scale.span_us) for each in (ops, calls, work))
    parts = [_slice(each, scale, rows.ops, each.name if rows.has_text else "", ident) for each in ops]
    parts += [_slice(each, scale, rows.calls, "", ident) for each in calls]
    parts += [_gap(start, end, scale, rows, ident) for start, end in gaps(work, scale)]
    parts += [_slice(each, scale, rows.gpu, _work_name(each) if rows.has_text else "", ident) for each in work]
    frame = _axis(scale) + _row_names(rows) if rows.has_text else ""
    kinds: set[Kind] = {"idle", *(each.kind for each in (*ops, *calls, *work))}
    return Html(
        f'<svg class="strip" width="100%" height="{rows.height}" role="img" aria-label="{escape(described)}">'
        f"{definitions(ident, kinds)}{frame}{''.join(parts)}{_arrows(calls, work, scale, rows, ident)}</svg>"
    )


def strip_kinds(step: Step, scale: Scale) -> set[Kind]:
    """The kinds of slices in a strip, for its legend."""
    ops, calls, work = selected(step, scale)
    return {each.kind for each in (*ops, *calls, *work)} | ({"idle"} if any(gaps(work, scale)) else set())


def strip_legend(kinds: set[Kind], ident: str) -> Html:
    """Samples of the kinds of slices; `ident` is that of a strip on the page."""
    names = {**SLICE_KINDS, "call": "CUDA call"}
    items = "".join(
        f'<li class="{kind}"><svg width="22" height="12" aria-hidden="true"><rect x="1" y="1" width="20" height="10"'
        f"{_fill(kind, ident)}/></svg>{names[kind]}</li>"
        for kind in names
        if kind in kinds
    )
    return Html(f'<ul class="strip-legend">{items}</ul>')


def gaps(work: Sequence[Slice], scale: Scale) -> Iterator[tuple[float, float]]:
    """Start and end of each time without GPU work, up to the last work; omits gaps shorter than `_MIN_GAP` of the
    scale."""
    at = scale.begin_us
    for each in sorted(work, key=lambda piece: piece.start_us):
        if each.start_us - at >= _MIN_GAP * scale.span_us:
            yield at, each.start_us
        at = max(at, each.end_us)


def selected(step: Step, scale: Scale) -> tuple[list[Slice], list[Slice], list[Slice]]:
    """Outermost operators, calls that launch or wait, and GPU work, each as far as the scale shows it."""
    all_lanes = lanes(step)
    end_us = scale.begin_us + scale.span_us
    shown = [
        (lane.is_gpu, each)
        for lane in all_lanes
        for each in lane.slices
        if each.start_us < end_us and each.end_us > scale.begin_us
    ]
    ops = [each for _, each in shown if each.kind == "op" and _is_outermost(each)]
    calls = [each for _, each in shown if each.kind == "call" and (each.pair is not None or is_sync(each.name))]
    return ops, calls, [each for is_gpu, each in shown if is_gpu]


def merged(slices: Sequence[Slice], least_us: float) -> list[Slice]:
    """The slices, with each run of short slices closer than `least_us` replaced by one slice of its predominant
    kind."""
    runs: list[list[Slice]] = []
    for each in sorted(slices, key=lambda piece: piece.start_us):
        last = runs[-1][-1] if runs else None
        is_short = each.duration_us < least_us
        if last and is_short and last.duration_us < least_us and each.start_us - last.end_us < least_us:
            runs[-1].append(each)
        else:
            runs.append([each])
    return [_as_one(run) for run in runs]


def _as_one(run: Sequence[Slice]) -> Slice:
    if len(run) == 1:
        return run[0]
    times: Counter[Kind] = Counter()
    for each in run:
        times[each.kind] += round(1000 * each.duration_us)
    (kind, _), *_ = times.most_common(1)
    duration_us = max(each.end_us for each in run) - run[0].start_us
    filled = (
        length_us(union((ns(each.start_us), ns(each.end_us)) for each in run)) / duration_us if duration_us else 1.0
    )
    name = f"{len(run):,} short slices"
    return replace(run[0], name=name, kind=kind, duration_us=duration_us, pair=None, merged=len(run), filled=filled)


def _is_outermost(piece: Slice) -> bool:
    """Whether only annotations are around an operator."""
    assert isinstance(piece.source, CpuOp)
    return all(above.is_annotation for above in piece.source.chain[:-1])


def _work_name(piece: Slice) -> str:
    """`GEMM`, or the operator that a pointwise kernel computes."""
    assert isinstance(piece.source, GpuActivity)
    return "GEMM" if piece.kind == "gemm" else op_name(piece.source).removeprefix("aten::")


def _slice(piece: Slice, scale: Scale, row: tuple[int, int], name: str, ident: str) -> str:
    top, height = row
    title = f"{piece.name}\n{format_value(piece.duration_us, 'us')}"
    return (
        f'<svg class="slice {piece.kind}" x="{scale.x(piece.start_us)}" y="{top}" '
        f'width="{scale.width(piece.duration_us)}" height="{height}"><title>{escape(title, quote=False)}</title>'
        f'<rect width="100%" {_filled(piece.filled)}{_fill(piece.kind, ident)}/>'
        f"{_text(name, piece.duration_us / scale.span_us, height)}</svg>"
    )


def _gap(start_us: float, end_us: float, scale: Scale, rows: Rows, ident: str) -> str:
    top, height = rows.gpu
    lasts = format_value(end_us - start_us, "us")
    text = _text(lasts, (end_us - start_us) / scale.span_us, height) if rows.has_text else ""
    return (
        f'<svg class="slice idle" x="{scale.x(start_us)}" y="{top}" width="{scale.width(end_us - start_us)}" '
        f'height="{height}"><title>GPU idle\n{lasts}</title>'
        f'<rect width="100%" height="100%"{_fill("idle", ident)}/>{text}</svg>'
    )


def _text(name: str, share: float, height: int) -> str:
    """A name within its slice; empty if it does not fit, and marked if it fits only on a large screen."""
    needed = len(name) * _LETTER_PX + _PADDING_PX
    if not name or needed > share * _WIDE_PX:
        return ""
    mark = "" if needed <= share * _NARROW_PX else ' class="long-name"'
    return f'<text x="4" y="{height // 2 + 4}"{mark}>{escape(name, quote=False)}</text>'


def _filled(share: float) -> str:
    """Place and height of the filled part, at the bottom: the share of time in which merged slices run."""
    if share == 1:
        return 'height="100%"'
    return f'y="{round(100 * (1 - share), 1):g}%" height="{max(2.0, round(100 * share, 1)):g}%"'


def _fill(kind: Kind, ident: str) -> str:
    return f' fill="url(#{ident}-{kind})"' if kind in PATTERNS else ""


def _axis(scale: Scale) -> str:
    lines = []
    for time in ticks_us(0.0, scale.span_us):
        x = f"{round(100 * time / scale.span_us, 2):g}%"
        lines.append(f'<line x1="{x}" x2="{x}" y2="100%"/><text x="{x}" dx="4" y="11">{time:g} µs</text>')
    return f'<g class="axis">{"".join(lines)}</g>'


def _row_names(rows: Rows) -> str:
    cpu, gpu = rows.ops[0] - 6, rows.gpu[0] - 6
    return (
        f'<g class="names"><text y="{cpu}">CPU: operators, and the calls that launch</text>'
        f'<text y="{gpu}">GPU</text></g>'
    )


def _arrows(calls: Sequence[Slice], work: Sequence[Slice], scale: Scale, rows: Rows, ident: str) -> str:
    """Arrows from each call to the work that it launched, except to fills, which are too short."""
    ends = {each.pair: each for each in calls if each.pair is not None}
    bottom, top = sum(rows.calls), rows.gpu[0]
    lines = "".join(
        f'<line x1="{scale.x(ends[each.pair].start_us + ends[each.pair].duration_us / 2)}" y1="{bottom}" '
        f'x2="{scale.x(each.start_us)}" y2="{top}"/>'
        for each in work
        if each.pair in ends and each.kind != "fill"
    )
    return f'<g class="arrows" marker-end="url(#{ident}-arrow)">{lines}</g>' if rows.has_text else ""
