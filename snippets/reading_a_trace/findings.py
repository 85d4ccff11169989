"""The pieces of the page on reading a trace: a numbered picture, a kernel's launch, the first numbers to check."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.timeline.strip import Rows, Scale, gaps, selected, strip, strip_kinds, strip_legend
from kinetoscope.trace.events import Span, Step
from kinetoscope.trace.lanes import Slice
from kinetoscope.trace.queries import find_op, require_kernels
from snippets.lab.charts.numbers import chart_id
from snippets.lab.finding import Device, TraceError, format_value
from snippets.lab.page import comparison_table, kernel_name_html, show as show
from snippets.lab.page.install import shell_lines

FIRST_STEPS = {"linear, eager": "linear/eager", "MLP, eager": "mlp/eager", "MLP, compiled": "mlp/compiled"}
FIRST_QUANTITIES = {
    "kernels in a step": "kernels_per_step",
    "copies in a step": "memcpys_per_step",
    "fills in a step": "memsets_per_step",
    "GPU busy": "busy_us",
    "the step on the CPU": "cpu_us",
}

SUMMARY_LINES = (
    "pip install WHEEL",
    "kinetoscope summary trace.json.gz",
    "kinetoscope summary trace.json --json    # for programs",
)

ROWS = Rows((40, 24), (70, 18), (130, 30), 164, has_text=True)
"""Rows of the numbered picture, high enough for its numbers."""
RADIUS = 9
"""Of the circle around a number, in pixels."""
ASIDE = {2: -15}
"""Number -> how far right of its place it is, in pixels: a number on a call would hide it."""


def annotated(device: Device, experiment: str, caption: str) -> Html:
    """One forward as a strip with the numbers 1 to 5: an operator, its launch, the arrow, the kernel, an idle time.

    The kernel is the one that starts longest after its launch; the idle time is the longest. Raises `TraceError` if no
    kernel of the middle step has an operator and a launch, or if the GPU is never idle.
    """
    run = device[experiment]
    require_kernels(run.trace)
    step = run.step
    begin_us = find_op(step, run.label).start_us - step.start_us
    span_us = 1.02 * (max(each.end_us for each in (*step.activities, *step.calls)) - step.start_us - begin_us)
    scale, ident = Scale(begin_us, span_us), chart_id("annotated", device, caption)
    described = (
        f"{caption}. Numbered: 1 an operator, 2 the CUDA call in it that launches a kernel, 3 the arrow from the call "
        "to the kernel, 4 the kernel, 5 the GPU's longest idle time."
    )
    drawing = strip(step, scale, ident=ident, described=described, rows=ROWS)
    return Html(
        f'<figure class="annotated" data-search-exclude><figcaption>{escape(caption)}</figcaption>'
        f'<svg width="100%" height="{ROWS.height}">{drawing}<g class="numbers" aria-hidden="true">'
        f"{''.join(_number(*place) for place in _places(step, scale))}</g></svg>"
        f"{strip_legend(strip_kinds(step, scale), ident)}</figure>"
    )


def _places(step: Step, scale: Scale) -> Iterable[tuple[int, str, int]]:
    """The numbers of the picture, with the position of each: x in percent, y in pixels."""
    ops, calls, work = selected(step, scale)
    launches = {each.pair: each for each in calls if each.pair is not None}
    kernels = (each for each in work if each.kind not in ("copy", "fill"))
    launched = [(launches[each.pair], each) for each in kernels if each.pair is not None and each.pair in launches]
    idle = max(gaps(work, scale), key=lambda gap: gap[1] - gap[0], default=None)
    if not launched or idle is None:
        raise TraceError(f"{step.name} has no kernel with its launch, or no idle time")
    call, kernel = max(launched, key=lambda pair: pair[1].start_us - pair[0].end_us)
    op = next((each for each in ops if each.start_us <= call.start_us <= each.end_us), None)
    if op is None:
        raise TraceError(f"{step.name}: no operator encloses the launch of {kernel.name}")
    (call_us, op_us), (idle_us, idle_end_us) = map(_middle_us, (call, op)), idle
    late_us = (kernel.start_us + 0.7 * kernel.duration_us, idle_us + 0.7 * (idle_end_us - idle_us))  # right of names
    times_us = (op_us, call_us, (call_us + kernel.start_us) / 2, *late_us)
    middles = [top + height // 2 for top, height in (ROWS.ops, ROWS.calls, ROWS.gpu)]
    heights = (*middles[:2], sum(middles[1:]) // 2, *2 * middles[2:])
    return [(number, scale.x(us), y) for number, (us, y) in enumerate(zip(times_us, heights, strict=True), start=1)]


def _middle_us(piece: Slice) -> float:
    return piece.start_us + piece.duration_us / 2


def _number(number: int, x: str, y: int) -> str:
    aside = f' transform="translate({ASIDE[number]})"' if number in ASIDE else ""
    return f'<g{aside}><circle cx="{x}" cy="{y}" r="{RADIUS}"/><text x="{x}" y="{y + 4}">{number}</text></g>'


def first_look(device: Device) -> Html:
    """The first numbers to check, for a step that waits for the CPU and for one that does not."""
    return comparison_table(
        device, FIRST_STEPS, "Kernels, GPU time and CPU time in three traces", quantities=FIRST_QUANTITIES
    )


def journey(device: Device, experiment: str, caption: str = "") -> Html:
    """How the first kernel of the middle step was launched: operators, call, kernel, and the ids that link them."""
    run = device[experiment]
    require_kernels(run.trace)
    step = run.step
    if not step.kernels:
        raise TraceError(f"{experiment}: {step.name} has no kernel, though another step has one")
    kernel = step.kernels[0]
    rows: list[Sequence[Cell]] = []
    for op in kernel.op.chain if kernel.op else ():
        kind = "annotation" if op.is_annotation else "operator"
        tie = f"External id {op.external_id}" if op is kernel.op else "its time encloses the time of the next row"
        rows.append([code(op.name), f"{kind}, CPU", tie, *_times(step, op)])
    if kernel.launch:
        tie = f"External id {kernel.launch.external_id}, correlation {kernel.launch.correlation}"
        rows.append([code(kernel.launch.name), "CUDA call, CPU", tie, *_times(step, kernel.launch)])
    tie = f"External id {kernel.external_id}, correlation {kernel.correlation}"
    rows.append([kernel_name_html(kernel.name), f"kernel, stream {kernel.stream}", tie, *_times(step, kernel)])
    head = ["name", "kind and lane", "linked by", "start in the step", "duration"]
    return table(caption or f"From annotation to kernel: {experiment}, {step.name}", head, rows, text_columns=3)


def summary_lines(device: Device) -> Html:
    """From an installation to the summary of a trace; the same for every device."""
    return shell_lines(SUMMARY_LINES)


def _times(step: Step, span: Span) -> tuple[str, str]:
    return format_value(span.start_us - step.start_us, "us"), format_value(span.duration_us, "us")
