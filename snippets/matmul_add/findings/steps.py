"""The steps of a trace, why the first ones differ, and why the GPU's lane lags behind the CPU's."""

import math
import statistics
from collections.abc import Callable, Sequence

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.timeline.draw import TracedStep, draw_steps
from kinetoscope.trace.events import CudaCall, Span, Step, Trace
from kinetoscope.trace.queries import find_op, require_steps
from snippets.lab.charts.numbers import chart_id
from snippets.lab.finding import (
    Device,
    Figure,
    Run,
    Source,
    TraceError,
    at_least,
    at_most,
    claim,
    equals,
    format_value,
)
from snippets.lab.finding.measure import ratio_of_pairs, smallest
from snippets.lab.finding.part import timing_of_samples
from snippets.lab.page import figure_cell, show as show
from snippets.lab.recording.schema import Timing
from snippets.matmul_add.findings.overhead import LABEL, LARGE, SMALL, of_traces

FURTHER = ("unscheduled", "unscheduled_20", "stacked", "stacked_input", "compiled_4096", "row_bias_4096")
"""Traces without a picture on the page."""
COLD = (SMALL[0], LARGE[0])
WARMED = ("eager_64", "eager_4096", "stacked", "stacked_input")
"""Traces of eager steps in cold processes, and of such that ran three steps before."""


def is_query(call: CudaCall) -> bool:
    """Whether a call only queries how many blocks or clusters fit and launches nothing."""
    return call.name.startswith("cudaOccupancy")


def gap_us(step: Step) -> float:
    """From entering the label to the start of `aten::matmul`."""
    return round(find_op(step, "aten::matmul").start_us - find_op(step, LABEL).start_us, 3)


def hole(step: Step) -> Span:
    """The time between the first two kernels of a step."""
    if len(step.kernels) < 2:
        raise TraceError(f"{step.name} has fewer than two kernels")
    start = step.kernels[0].end_us
    return Span("hole", start, round(step.kernels[1].start_us - start, 3))


def requests(trace: Trace, start_us: float = -math.inf, end_us: float = math.inf) -> list[Span]:
    """The profiler's buffer requests that overlap an interval of time."""
    require_steps(trace)
    named = [span for span in trace.overheads if span.name == "Activity Buffer Request"]
    return [span for span in named if span.start_us < end_us and span.end_us > start_us]


def first_to_rest(run: Run, of: Callable[[Step], float]) -> Figure:
    """The first step's value over the largest of the others, with all values as text."""
    first, *rest = map(of, run.whole.steps)
    if not rest or max(rest) <= 0:
        raise TraceError("only one step; a comparison needs two")
    display = f"{format_value(first, 'us')}, then {' and '.join(format_value(us, 'us') for us in rest)}"
    return Figure(first / max(rest), "x", origin=run.origin, display=display)


@claim("P5", equals("ProfilerStep#2, ProfilerStep#3, ProfilerStep#4"), source=Source("Part 1", "#2, #3, #4"))
def steps_in_trace(device: Device) -> Figure:
    """With the schedule wait=1, warmup=1, active=3, a trace has the steps #2, #3 and #4."""
    run = device["matmul_add/eager_64_cold"]
    return Figure(", ".join(step.name for step in run.steps), origin=run.origin)


@claim("P6", at_least(3), scope="timing", source=Source("Part 1", "227.757 µs, then 5.521 and 4.488 µs"))
def first_gap(device: Device) -> Figure:
    """In a new process, the gap before aten::matmul is at least three times as long in step #2 as in the later
    steps."""
    return of_traces(device, lambda run: first_to_rest(run, gap_us), *COLD)


@claim("P7", at_most(1.2), scope="timing", source=Source("Part 1", "similar times"), is_advice=True)
def equal_steps(device: Device) -> Figure:
    """If steps ran before the profiler started, all profiled steps take about the same time.

    Three steps ran before the profiler started, and step #2 still takes the longest. The first step that the profiler
    keeps is slow, whatever the GPU did before. Leave this first step out of an average."""
    return of_traces(device, lambda run: first_to_rest(run, lambda step: step.end_us - step.start_us), *WARMED)


@claim("O-M7", at_least(1.5), scope="timing")
def first_gap_warmed(device: Device) -> Figure:
    """If three steps ran before the profiler, the gap before aten::matmul in step #2 is at least 50 % longer than any
    later gap."""
    return of_traces(device, lambda run: first_to_rest(run, gap_us), *WARMED)


def without_gpu(device: Device) -> list[tuple[int, bool, Timing, Timing]]:
    """Profiles without a GPU: warm-up steps, whether shapes are recorded, first gaps, gaps after them."""
    return [
        (one["warmup"], one["shapes"], timing_of_samples(one["first_us"]), timing_of_samples(one["next_us"]))
        for one in device["matmul_add/first_gap"].data["variants"]
    ]


@claim("O-M23", at_least(1.5), scope="timing")
def gap_without_gpu(device: Device) -> Figure:
    """Without a GPU, the gap before aten::matmul is at least 50 % longer in the first kept step than later, with one
    and with fifty warm-up steps."""
    ratios = (ratio_of_pairs(first, later) for _, _, first, later in without_gpu(device)[::2])
    return smallest(*ratios)


@claim("O-M24", at_most(0.75), scope="timing")
def gap_without_shapes(device: Device) -> Figure:
    """Without a GPU, not recording shapes shortens the gap before aten::matmul in the first kept step to at most 75 %
    of its time."""
    (_, _, recorded, _), (_, _, left_out, _), *_ = without_gpu(device)
    return ratio_of_pairs(left_out, recorded)


@claim("O-M8", equals(0))
def calls_in_gap(device: Device) -> Figure:
    """The gap before aten::matmul in step #2 has no CUDA call, so neither cuBLAS nor the loading of a kernel fills the
    gap."""
    return device["matmul_add/eager_64_cold"].per_step(
        lambda step: sum(0 <= call.start_us - find_op(step, LABEL).start_us < gap_us(step) for call in step.calls)
    )


def offset_us(step: Step) -> float:
    """From entering the label on the CPU to the first work on the GPU."""
    if not step.activities:
        raise TraceError(f"{step.name} has no GPU work")
    return round(step.activities[0].start_us - find_op(step, LABEL).start_us, 3)


@claim("P8", at_least(1000), scope="timing", source=Source("Part 1", "2.32 ms"))
def offset(device: Device) -> Figure:
    """At size 64 in a new process, the GPU lane lags behind the CPU lane by milliseconds.

    Here the lag is the time in which the CPU reaches the launch and the GPU begins the kernel. The profiler's buffer
    request is in the warm-up step, which the trace doesn't keep."""
    return device["matmul_add/eager_64_cold"].per_step(offset_us, "us")


@claim("P9", equals(1), scope="this-gpu", source=Source("Part 1", "one, before any operation"))
def request_before_work(device: Device) -> Figure:
    """With wait=0 and warmup=0, an Activity Buffer Request precedes the first work on the GPU."""
    run = device["matmul_add/unscheduled"]
    begin = min((activity.start_us for activity in run.whole.trace.activities), default=0.0)
    return Figure(len(requests(run.whole.trace, end_us=begin)), origin=run.origin)


@claim("P10", equals(1), scope="this-gpu", source=Source("Part 1", "once"))
def one_request(device: Device) -> Figure:
    """In a trace of twenty steps, the Activity Buffer Request occurs once."""
    run = device["matmul_add/unscheduled_20"]
    return Figure(len(requests(run.whole.trace)), origin=run.origin)


@claim("P11", at_least(1), scope="timing", source=Source("Part 1", "a hole in step #1 only"))
def holes(device: Device) -> Figure:
    """The two kernels of step #0 follow each other closely, but a hole opens between the two kernels of step #1.

    The longest hole is in step #0, in which add runs for the first time. Every later step also has a hole, because at
    this size the GPU is done before the CPU reaches the next launch."""

    def second_to_first(run: Run) -> Figure:
        first, second = (hole(step).duration_us for step in run.whole.steps[:2])
        display = f"{format_value(first, 'us')} in step #0, {format_value(second, 'us')} in step #1"
        return Figure(second / first, "x", origin=run.origin, display=display)

    return of_traces(device, second_to_first, "unscheduled", "unscheduled_20")


@claim("P12", at_least(1), scope="this-gpu", source=Source("Part 1", "another buffer request"))
def request_in_second_hole(device: Device) -> Figure:
    """The hole between the two kernels of step #1 is another Activity Buffer Request.

    No Activity Buffer Request is in this hole. Look at what overlaps a gap before you name the cause of the gap."""
    run = device["matmul_add/unscheduled"].whole
    second = hole(run.steps[1])
    return Figure(len(requests(run.trace, second.start_us, second.end_us)), origin=run.origin)


@claim("O-M9", equals(0), scope="this-gpu")
def no_request_left(device: Device) -> Figure:
    """With a warm-up step in the schedule, a trace of three steps has no Activity Buffer Request."""
    run = device["matmul_add/eager_64_cold"]
    return Figure(len(requests(run.whole.trace)), origin=run.origin)


@claim("O-M25", at_least(1), scope="this-gpu")
def later_requests(device: Device) -> Figure:
    """In a long trace, the profiler makes at least one Activity Buffer Request during the kept steps."""
    run = device["matmul_add/long_trace"]
    count = sum(after >= 0 for after in run.data["after_us"])
    return Figure(count, origin=run.origin, display=f"{count} in {run.data['kept_steps']:,} steps")


def buffer_request(device: Device) -> Figure:
    """The time of the profiler's buffer request."""
    run = device["matmul_add/unscheduled"]
    us = sorted(request.duration_us for request in requests(run.whole.trace))
    return Figure(statistics.median_low(us), "us", (us[0], us[-1]) if us[0] != us[-1] else None, run.origin)


def gaps_without_gpu(device: Device) -> Html:
    """The first gap and the ones after it, by warm-up steps and by whether shapes are recorded."""
    rows: list[Sequence[Cell]] = [
        [steps, "yes" if shapes else "no", *(figure_cell(Figure.from_timing(gap)) for gap in gaps)]
        for steps, shapes, *gaps in without_gpu(device)
    ]
    head = ["warm-up steps", "shapes recorded", "first gap", "later gaps"]
    return table("The gap before aten::matmul in profiles on a CPU, without a GPU", head, rows, text_columns=2)


def traces(device: Device) -> Html:
    """Links to recorded traces without a picture on the page."""
    recorded = [name for name in FURTHER if name in device.recorded_names("matmul_add")]
    links = (f'<a href="../recordings/{device.name}/matmul_add/{name}.trace.json.gz">{name}</a>' for name in recorded)
    return Html(f"<p>Further traces of this chapter: {', '.join(links)}.</p>")


def first_kept(device: Device) -> Html:
    """The first two kept steps of a cold and of a warmed process as a picture, on one scale."""
    runs = {"Cold": device["matmul_add/eager_64_cold"], "Warmed": device["matmul_add/eager_64"]}
    steps = {
        f"{process}, {step.name}": TracedStep(run.trace, step, LABEL)
        for process, run in runs.items()
        for step in run.steps[:2]
    }
    caption = "The first two kept steps, in a new process (cold) and in a process that already ran three steps (warmed)"
    return draw_steps(steps, caption, ident=chart_id("timeline", device, caption))


def first_steps(device: Device) -> Html:
    """The first steps of a process, all kept: holes, buffer requests, queries."""
    run = device["matmul_add/unscheduled"]
    rows: list[Sequence[Cell]] = []
    for step in run.steps:
        spans = (format_value(us, "us") for us in (step.end_us - step.start_us, hole(step).duration_us))
        inside = len(requests(run.trace, step.start_us, step.end_us))
        rows.append([code(step.name), *spans, inside, sum(map(is_query, step.calls)), len(step.calls)])
    head = ["step", "CPU time", "hole between kernels", "buffer requests", "occupancy queries", "CUDA calls"]
    return table("The first five steps of a process, all kept (wait=0, warmup=0, active=5)", head, rows)
