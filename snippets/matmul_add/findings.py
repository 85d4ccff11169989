"""What the chapter matmul_add found: how its traces and timings are read, its claims, figures and pictures."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape

import msgspec

from snippets.lab.drawing.charts import cpu_gpu_bars, kernel_bars, regimes, roofline
from snippets.lab.drawing.timeline import draw_steps, timeline
from snippets.lab.finding.claim import Claim, Scope, Source, Status
from snippets.lab.finding.figure import Figure, format_value
from snippets.lab.finding.measure import of_steps, paired_samples_ratio, share_of_ceiling
from snippets.lab.finding.quantities import point
from snippets.lab.html import Cell, Html, code, details, table
from snippets.lab.page.diff import diff_table
from snippets.lab.page.tables import comparison_table, dispatch_tree, kernel_table, profiler_table, sweep_table
from snippets.lab.recording.device import DEFAULT_DEVICE, recorded_names, shown_device
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import NotRecorded, Point, Recording, Timings
from snippets.lab.trace.averages import key_averages
from snippets.lab.trace.events import CpuOp, CudaCall, GpuActivity, Span, Step, Trace, TraceError
from snippets.lab.trace.queries import busy_us, middle_step, require_steps
from snippets.lab.trace.work import step_work

# KEEP recording
# KEEP timeline

Measure = Callable[[str], Figure]
OfStep = Callable[[Trace, Step], int | str]
OfTrace = Callable[[Trace], Figure]
Holds = Callable[[Figure], bool]

LABEL = "matmul_add"
PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm")
ARITHMETIC = (*PRODUCTS, "aten::matmul", "aten::add")
BUFFER_REQUEST = "Activity Buffer Request"
GRAPH_CALL = "## Call CompiledFxGraph"
ENTRY = (
    "TorchDynamo Cache Lookup",
    "Torch-Compiled Region",
    "AOTDispatcher Runtime Wrapper Prologue",
    GRAPH_CALL,
    "aten::addmm",
)
"""What a trace shows on the way into compiled code: how the names begin."""
SWEEPS = {"eager": "matmul_add/sweep_eager", "compiled": "matmul_add/sweep_compiled"}


# What a trace says. Whatever is not there raises `TraceError`, which makes a claim "not measured".


def _load(name: str, device: str) -> Recording:
    return load_recording(f"matmul_add/{name}", device)


def _trace(name: str, device: str) -> Trace:
    traced = load_trace(f"matmul_add/{name}", device)
    require_steps(traced)
    return traced


def op_named(step: Step, name: str) -> CpuOp:
    """The first operator or annotation of a step whose name starts with `name`."""
    found = next((op for op in step.ops if op.name.startswith(name)), None)
    if found is None:
        raise TraceError(f"{step.name} has no {name!r}")
    return found


def product(traced: Trace, step: Step) -> tuple[GpuActivity, CpuOp]:
    """The first kernel that a matrix product of a step launched, and its operator."""
    for kernel in step.kernels:
        op = traced.op_of(kernel)
        if op is not None and op.name in PRODUCTS:
            return kernel, op
    raise TraceError(f"{step.name} has no kernel of {', '.join(PRODUCTS)}")


def chain(traced: Trace, step: Step) -> str:
    """What called what, down to the operator of the matrix product; the number of the step left out."""
    names = [op.name for op in traced.dispatch_chain(product(traced, step)[1])]
    return " > ".join(name.replace(step.name, "ProfilerStep#N") for name in names)


def calls_under(name: str) -> OfStep:
    """The CUDA calls that began inside an operator, by name and in order."""
    return lambda traced, step: ", ".join(one.name for one in traced.launches_under(op_named(step, name))) or "none"


def number_of_calls(traced: Trace, step: Step, name: str) -> int:
    """How many CUDA calls began inside an operator."""
    return len(traced.launches_under(op_named(step, name)))


def rows_named(name: str) -> OfStep:
    """How many rows of a step begin with a name."""
    return lambda _, step: sum(op.name.startswith(name) for op in step.ops)


def owners(traced: Trace, activities: Sequence[GpuActivity]) -> str:
    """The operators that put work on the GPU, in order."""
    return ", ".join(op.name if (op := traced.op_of(one)) else "none" for one in activities)


def callers(traced: Trace, activities: Sequence[GpuActivity]) -> str:
    """The CUDA calls that put work on the GPU, in order."""
    return ", ".join(call.name if (call := traced.launch_of(one)) else "none" for one in activities)


def queries(traced: Trace, step: Step) -> int:
    """Calls of a step that ask how many blocks or clusters fit, rather than putting work on the GPU."""
    return sum(call.name.startswith("cudaOccupancy") for call in step.launches)


def gap_us(step: Step) -> float:
    """From entering the label to the start of `aten::matmul`."""
    return round(op_named(step, "aten::matmul").start_us - op_named(step, LABEL).start_us, 3)


def calls_in_gap(traced: Trace, step: Step) -> int:
    """CUDA calls between entering the label and `aten::matmul`."""
    start, end = op_named(step, LABEL).start_us, op_named(step, "aten::matmul").start_us
    return sum(start <= call.start_us < end for call in step.launches)


def offset_us(step: Step) -> float:
    """From entering the label on the CPU to the first work on the GPU."""
    if not step.activities:
        raise TraceError(f"{step.name} has no GPU work")
    return round(step.activities[0].start_us - op_named(step, LABEL).start_us, 3)


def hole(step: Step) -> Span:
    """The time between the first two kernels of a step."""
    if len(step.kernels) < 2:
        raise TraceError(f"{step.name} has no two kernels")
    start = step.kernels[0].end_us
    return Span("hole", start, round(step.kernels[1].start_us - start, 3))


def requests(traced: Trace, start_us: float = float("-inf"), end_us: float = float("inf")) -> list[Span]:
    """The buffer requests that overlap a stretch of time."""
    named = [span for span in traced.overheads if span.name == BUFFER_REQUEST]
    return [span for span in named if span.start_us < end_us and span.end_us > start_us]


def closing_wait(traced: Trace) -> CudaCall:
    """The last `cudaDeviceSynchronize`."""
    waits = [call for call in traced.launches if call.name == "cudaDeviceSynchronize"]
    if not waits:
        raise TraceError("no cudaDeviceSynchronize in the trace")
    return waits[-1]


def busy_within_us(traced: Trace, span: Span) -> float:
    """Time in which the GPU was busy during a stretch of CPU time."""
    inside = [one for one in traced.activities if one.start_us < span.end_us and one.end_us > span.start_us]
    bounds = [(max(one.start_us, span.start_us), min(one.end_us, span.end_us)) for one in inside]
    cut = (
        msgspec.structs.replace(one, start_us=start, duration_us=end - start)
        for one, (start, end) in zip(inside, bounds, strict=True)
    )
    return busy_us(cut)


def self_cpu_us(traced: Trace) -> float:
    """The profiler's `Self CPU time total`: of operators, annotations and CUDA calls."""
    return round(math.fsum(row.self_cpu_us for row in key_averages(traced)), 3)


def self_gpu_us(traced: Trace) -> float:
    """The profiler's `Self CUDA time total`: kernels, copies and fills."""
    return round(sum(one.duration_us for one in traced.activities), 3)


def entry(_: Trace, step: Step) -> str:
    """The rows on the way into compiled code, in order."""
    return ", ".join(name for op in step.ops for name in ENTRY if op.name.startswith(name))


def least_bytes(traced: Trace, step: Step) -> int:
    """What the GPU work of a step has to read and write. Raises `TraceError` where the trace does not tell."""
    works = step_work(traced, step)
    known = [todo.bytes for todo in works if todo is not None]
    if len(known) < len(works):
        raise TraceError(f"{step.name} does not tell what all of its GPU work had to do")
    return sum(known)


# Measures: from a device to a figure


def steps_of(of: OfStep, *names: str, joint: str = " → ") -> Measure:
    """What each recording shows in all of its steps; of several recordings, joined: `2 → 1`."""

    def one(name: str, device: str) -> Figure:
        traced = _trace(name, device)
        return of_steps(traced, lambda step: of(traced, step))

    def measure(device: str) -> Figure:
        shown = [one(name, device) for name in names]
        value = shown[0].value if len(shown) == 1 else joint.join(figure.text for figure in shown)
        return Figure(value, origin=f"{device}, {', '.join(names)}", conclusive=all(f.conclusive for f in shown))

    return measure


def bytes_of(*names: str) -> Measure:
    """The least that a step of each recording has to move: `201 MB → 101 MB`."""

    def measure(device: str) -> Figure:
        found = [steps_of(least_bytes, name)(device) for name in names]
        value = " → ".join(str(one.value) for one in found)
        said = " → ".join(format_value(one.value, "bytes") for one in found)
        return Figure(
            value, said=said, origin=f"{device}, {', '.join(names)}", conclusive=all(f.conclusive for f in found)
        )

    return measure


def of_trace(name: str, of: OfTrace) -> Measure:
    """A figure of a whole trace."""
    return lambda device: replace(of(_trace(name, device)), origin=f"{device}, {name}")


def median(values: Sequence[float], unit: str) -> Figure:
    """The median of some values, from the smallest to the largest. Raises `TraceError` when there are none."""
    if not values:
        raise TraceError("nothing of that kind in the trace")
    spread = (min(values), max(values)) if min(values) != max(values) else None
    return Figure(statistics.median_low(values), unit, spread)


def first_to_rest(of: Callable[[Step], float]) -> OfTrace:
    """How many times the first step's value is the largest of the others; said as all the values."""

    def measure(traced: Trace) -> Figure:
        first, *rest = (of(step) for step in traced.steps)
        if not rest or max(rest) <= 0:
            raise TraceError("one step alone cannot be compared")
        said = f"{format_value(first, 'us')}, then {' and '.join(format_value(one, 'us') for one in rest)}"
        return Figure(first / max(rest), "x", said=said)

    return measure


def busy_share(traced: Trace) -> Figure:
    """Percent of the profiler's CPU total that its GPU total is."""
    gpu, cpu = self_gpu_us(traced), self_cpu_us(traced)
    share = 100 * gpu / cpu
    return Figure(
        share, "%", said=f"{format_value(share, '%')}: {format_value(gpu, 'us')} of {format_value(cpu, 'us')}"
    )


def wait_share(traced: Trace) -> Figure:
    """Percent of the profiler's CPU total that is the closing wait."""
    return Figure(100 * closing_wait(traced).duration_us / self_cpu_us(traced), "%")


def wait_busy(traced: Trace) -> Figure:
    """Percent of the closing wait in which the GPU worked."""
    wait = closing_wait(traced)
    return Figure(100 * busy_within_us(traced, wait) / wait.duration_us, "%")


def wait_idle(traced: Trace) -> Figure:
    """Percent of the closing wait in which the GPU did nothing."""
    return Figure(100 - float(wait_busy(traced).value), "%")


def busiest_op(traced: Trace) -> Figure:
    """The operator with the most CPU time of its own."""
    rows = [row for row in key_averages(traced) if row.kind == "operator"]
    if not rows:
        raise TraceError("no operator in the trace")
    return Figure(max(rows, key=lambda row: row.self_cpu_us).name)


def wait_to_work(traced: Trace) -> Figure:
    """How many times all GPU work of the trace fits into the closing wait."""
    wait, done = closing_wait(traced).duration_us, self_gpu_us(traced)
    return Figure(wait / done, "x", said=f"{format_value(wait, 'us')} for {format_value(done, 'us')} of work")


def holes(traced: Trace) -> Figure:
    """How many times the hole of the second step is that of the first."""
    first, second = (hole(step).duration_us for step in traced.steps[:2])
    said = f"{format_value(first, 'us')} in step #0, {format_value(second, 'us')} in step #1"
    return Figure(second / first, "x", said=said)


def requests_in_second_hole(traced: Trace) -> Figure:
    """Buffer requests that overlap the hole of step #1."""
    found = hole(traced.steps[1])
    return Figure(len(requests(traced, found.start_us, found.end_us)))


def requests_before_work(traced: Trace) -> Figure:
    """Buffer requests that begin before the GPU does anything."""
    return Figure(len(requests(traced, end_us=min((one.start_us for one in traced.activities), default=0.0))))


def queries_by_step(traced: Trace) -> Figure:
    """Occupancy queries of the first step; 0 when a later step has some, too."""
    first, *rest = (queries(traced, step) for step in traced.steps)
    said = f"{first} in step #0, {sum(rest)} in the {len(rest)} steps after it"
    return Figure(0 if sum(rest) else first, said=said)


def queries_before_products(device: str) -> Figure:
    """Percent of the launches of matrix products that follow an occupancy query in their operator."""
    asked = []
    for name in ("eager_64", "eager_4096", "compiled_64", "compiled_4096", "stacked", "row_bias_4096"):
        traced = _trace(name, device)
        calls = (traced.launches_under(product(traced, step)[1]) for step in traced.steps)
        asked += [any(call.name.startswith("cudaOccupancy") for call in one) for one in calls]
    said = f"{sum(asked)} of {len(asked)} launches of a product"
    return Figure(100 * sum(asked) / len(asked), "%", said=said)


def product_times(traced: Trace) -> Figure:
    """The product's kernel: the median over the steps."""
    return median([product(traced, step)[0].duration_us for step in traced.steps], "us")


def longest_to_shortest(traced: Trace) -> Figure:
    """How many times the longest of the product's times is the shortest, said as both."""
    found = product_times(traced)
    low, high = found.spread or (1.0, 1.0)
    return Figure(high / low, "x", said=found.spread_text or found.text)


def copies(of: Callable[[GpuActivity], float | int], unit: str) -> OfTrace:
    """A quantity of the copies of a trace: the median over its steps."""
    return lambda traced: median([of(copy) for step in traced.steps for copy in step.memcpys], unit)


def copy_rate(copy: GpuActivity) -> float:
    """Bytes read and written a second."""
    return 2e6 * (copy.moved_bytes or 0) / copy.duration_us


def copy_share(device: str) -> Figure:
    """Percent of the `copy` ceiling that the copy of b reached."""
    found = _load("compiled_4096", device)
    limit = next((one for one in found.ceilings if one.what == "copy"), None)
    if limit is None:
        raise NotRecorded(f"{found.id} lacks the ceiling 'copy'; record it again")
    rate = float(copies(copy_rate, "bytes/s")(_trace("compiled_4096", device)).value)
    most = 1e6 * limit.bytes / limit.timing.median_us
    said = f"{format_value(rate, 'bytes/s')}; the copy ceiling is {format_value(most, 'bytes/s')}"
    return Figure(100 * rate / most, "%", said=said, origin=f"{device}, compiled_4096")


def timings(found: Recording, at: Point | None = None) -> Timings:
    """The timings of a point, or of the only one."""
    timed = (at or point(found)).timings
    if timed is None:
        raise NotRecorded(f"{found.id} was not timed; record it again")
    return timed


def times(upper: str, lower: str, way: str) -> Measure:
    """How many times one recording's time is that of another of its session."""

    def measure(device: str) -> Figure:
        pair = [getattr(timings(_load(name, device)), way) for name in (upper, lower)]
        return paired_samples_ratio(pair[0], pair[1], f"{device}, {way}: {upper} / {lower}")

    return measure


def enqueue_to_work(name: str) -> Measure:
    """How many times the GPU's time of a step fits into the CPU's."""

    def measure(device: str) -> Figure:
        both = timings(_load(name, device))
        cpu, gpu = both.enqueue.median_us, both.warm.median_us
        said = f"{format_value(cpu, 'us')} to enqueue, {format_value(gpu, 'us')} to run"
        return Figure(cpu / gpu, "x", said=said, origin=f"{device}, {name}")

    return measure


def growth(device: str) -> Figure:
    """How many times the GPU's time at 512 is that at 64."""
    found = _load("sweep_eager", device)
    low, high = (timings(found, point(found, f"size={size}")).warm.median_us for size in (64, 512))
    return Figure(high / low, "x", said=f"{format_value(low, 'us')} at 64, {format_value(high, 'us')} at 512")


def is_overhead_bound(found: Recording, at: Point) -> bool:
    """Whether the CPU takes longer to enqueue a step than the GPU to run it."""
    return timings(found, at).enqueue.median_us > timings(found, at).warm.median_us


def crossing(name: str) -> Measure:
    """The smallest size of a sweep that is not overhead-bound; 0 when all are."""

    def measure(device: str) -> Figure:
        found = _load(name, device)
        free = [int(at.parameters["size"]) for at in found.points if not is_overhead_bound(found, at)]
        size = min(free, default=0)
        return Figure(size, said=str(size) if size else "none of the sizes", origin=f"{device}, {name}")

    return measure


def loop_to_replay(found: Recording, at: Point) -> float:
    """How many times the time of a step in a Python loop is that of one replayed without launches."""
    both = timings(found, at)
    return both.launched.median_us / both.warm.median_us


def worth_a_graph(name: str) -> Measure:
    """The largest size of a sweep at which a loop takes at least half as long again as the replay; 0 for none."""

    def measure(device: str) -> Figure:
        found = _load(name, device)
        sizes = [int(at.parameters["size"]) for at in found.points if loop_to_replay(found, at) >= 1.5]
        size = max(sizes, default=0)
        return Figure(size, said=str(size) if size else "none of the sizes", origin=f"{device}, {name}")

    return measure


def crossings(device: str) -> Figure:
    """Whether the eager sweep leaves the overhead-bound regime, and the compiled one no earlier."""
    eager, compiled = (int(crossing(f"sweep_{way}")(device).value) for way in SWEEPS)
    said = f"eager from {eager}, compiled from {compiled}"
    return Figure(eager > 0 and (compiled == 0 or eager <= compiled), said=said)


def ceiling_share(name: str, shape: str = "4096x4096x4096") -> Measure:
    """Percent of a bare product's rate that a step reaches."""
    return lambda device: share_of_ceiling(found := _load(name, device), point(found), f"matmul {shape}")


def same_gpu_work(device: str) -> Figure:
    """Whether `addmm` by hand puts on the GPU, by name and in order, what compiling does."""
    both = steps_of(lambda _, step: " + ".join(a.name for a in step.activities), "matrix_bias_4096", "compiled_4096")
    by_hand, compiled = str(both(device).value).split(" → ")
    return Figure(by_hand == compiled, conclusive=both(device).conclusive)


def graph_names(traced: Trace) -> Figure:
    """How many names the compiled graph has over all steps."""
    names = [op.name for step in traced.steps for op in step.ops if op.name.startswith(GRAPH_CALL)]
    return Figure(len(set(names)), said=f"{len(set(names))} name in {len(names)} calls")


def code_folder(device: str) -> Figure:
    """Whether Inductor's cache lies where the post says."""
    data = _load("generated_code", device).data
    return Figure(bool(data.get("default_folder_is_torchinductor_user")) and bool(data.get("fxgraph_exists")))


def copies_in_code(device: str) -> Figure:
    """How many copies stand in the code that Inductor wrote, said as the functions it calls."""
    lines = [str(line) for line in _load("generated_code", device).data.get("calls", ())]
    called = [line.split("(")[0].split(" = ")[-1] for line in lines]
    return Figure(sum(".copy_" in line for line in lines), said=", ".join(called), origin=f"{device}, generated_code")


# Claims: P is the post's, O-M our own


def same(value: object) -> Holds:
    """A predicate: exactly this value."""
    return lambda found: found.value == value


def between(low: float, high: float = float("inf")) -> Holds:
    """A predicate: a number in this band."""
    return lambda found: not isinstance(found.value, str) and low <= found.value <= high


def unchanged(found: Figure) -> bool:
    """A predicate: the same on both sides of the arrow."""
    return len(set(str(found.value).split(" → "))) == 1


def more(found: Figure) -> bool:
    """A predicate: a larger number on the right of the arrow."""
    before, after = (int(number) for number in str(found.value).split(" → "))
    return after > before


def _post(name: str, sentence: str, scope: Scope, measure: Measure, holds: Holds, value: str, why: str = "") -> Claim:
    """A claim of the first post; one with a `why` differs on the builder."""
    expected: Mapping[str, Status] = {DEFAULT_DEVICE: "differs"} if why else {}
    return Claim(name, sentence, scope, measure, holds, Source("Part 1", value), expected, why)


# fmt: off
OVERHEAD = (
    _post("P1", "An eager step runs two kernels, at 64 as at 4096.", "every-gpu",
          steps_of(lambda _, step: len(step.kernels), "eager_64", "eager_4096", joint=" and "), same("2 and 2"),
          "2 kernels"),
    _post("P2", "The first kernel is the matrix product, the second the elementwise add.", "every-gpu",
          steps_of(lambda traced, step: owners(traced, step.kernels), "eager_64"), same("aten::mm, aten::add"),
          "GEMM, then add"),
    _post("P3", "At 64 the GPU's time is a few hundredths of the CPU's.", "timing",
          of_trace("eager_64_cold", busy_share), between(0, 5), "1.0 %: 23.104 µs of 2.314 ms"),
    _post("P4", "At 4096 the two totals nearly meet.", "timing",
          of_trace("eager_4096_cold", busy_share), between(60, 110), "92 %: 4.495 ms of 4.908 ms"),
    Claim("O-M1", "At 64 a step is overhead-bound: enqueuing it takes the CPU at least three times as long as running "
          "it takes the GPU.", "timing", enqueue_to_work("eager_64"), between(3)),
    Claim("O-M2", "At 4096 it is not: the CPU is done in less than half the time that the GPU needs.", "timing",
          enqueue_to_work("eager_4096"), between(0, 0.5)),
    Claim("O-M3", "At 4096 it is compute-bound: product and add together keep at least seven tenths of the rate of a "
          "bare product of that shape.", "timing", ceiling_share("eager_4096"), between(70, 120)),
    Claim("O-M4", "From 64 to 512 the work grows 512-fold, and the GPU's time less than doubles.", "timing",
          growth, between(0, 2)),
    Claim("O-M5", "A compiled step stays overhead-bound up to the same size as an eager one, or beyond.", "timing",
          crossings, same(True)),
    Claim("O-M6", "At 4096 at least a tenth of the profiler's CPU total is no work, but waiting for the GPU.",
          "timing", of_trace("eager_4096_cold", wait_share), between(10, 100)),
)

STEPS = (
    _post("P5", "With wait=1, warmup=1, active=3 the trace holds the steps #2, #3 and #4.", "every-gpu",
          of_trace("eager_64_cold", lambda traced: Figure(", ".join(step.name for step in traced.steps))),
          same("ProfilerStep#2, ProfilerStep#3, ProfilerStep#4"), "#2, #3, #4"),
    _post("P6", "In a cold process the gap between the starts of matmul_add and of aten::matmul is several times as "
          "long in step #2 as in the steps after it.", "timing",
          of_trace("eager_64_cold", first_to_rest(gap_us)), between(3), "227.757 µs, then 5.521 and 4.488 µs"),
    _post("P7", "After a warm-up before the profiler, all profiled steps take about the same time.", "timing",
          of_trace("eager_64", first_to_rest(lambda step: step.end_us - step.start_us)), between(0, 1.5),
          "similar times",
          "Three steps before the profiler do little here: step #2 stays nearly as wide as in a cold process. What is "
          "slow is the first step that the profiler keeps, whatever the GPU did before. Leave that step out of an "
          "average."),
    Claim("O-M7", "The gap of step #2 survives the warm-up: it stays at least three times that of the steps after it.",
          "timing", of_trace("eager_64", first_to_rest(gap_us)), between(3)),
    Claim("O-M8", "No CUDA call is made in that gap, so neither cuBLAS nor the loading of a kernel fills it.",
          "every-gpu", steps_of(calls_in_gap, "eager_64_cold"), same(0)),
    _post("P8", "The GPU lane lags behind the CPU lane by milliseconds.", "timing",
          of_trace("eager_64_cold", lambda traced: median([offset_us(step) for step in traced.steps], "us")),
          between(1000), "2.32 ms",
          "The offset here is that of a launch: the time for the CPU to reach it and for the GPU to take it up. "
          "Something as long as the post's offset exists, the profiler's request for a buffer, but it falls into the "
          "warm-up step and is not kept."),
    _post("P9", "With wait=0 and warmup=0 an Activity Buffer Request stands before the first work on the GPU.",
          "this-gpu", of_trace("unscheduled", requests_before_work), same(1), "one, before any operation"),
    _post("P10", "In twenty steps the Activity Buffer Request occurs once.", "this-gpu",
          of_trace("unscheduled_20", lambda traced: Figure(len(requests(traced)))), same(1), "once"),
    _post("P11", "The kernels of step #0 follow each other closely; a hole opens between those of step #1.", "timing",
          of_trace("unscheduled", holes), between(1), "a hole in step #1 only",
          "The wide hole is in step #0, where add runs for the first time. Loading its kernel is a small part of it; "
          "what the CPU did in most of the rest, the trace does not tell. Every later step has a hole as well, because "
          "at this size the GPU is done long before the CPU reaches the next launch."),
    _post("P12", "The hole of step #1 is one more buffer request.", "this-gpu",
          of_trace("unscheduled", requests_in_second_hole), between(1), "another buffer request",
          "No buffer request falls into that hole. It is the time that the CPU took to reach the second launch, and "
          "the steps after it have shorter ones. Look at what overlaps a gap before you name it."),
    Claim("O-M9", "With a warm-up step in the schedule no buffer request is left in the trace.", "this-gpu",
          of_trace("eager_64_cold", lambda traced: Figure(len(requests(traced)))), same(0)),
)

DISPATCH = (
    _post("P13", "The product is reached through ProfilerStep#N, matmul_add, aten::matmul and aten::mm.", "every-gpu",
          steps_of(chain, "eager_64"), same("ProfilerStep#N > matmul_add > aten::matmul > aten::mm"), "the same chain"),
    _post("P14", "aten::add is the sibling of aten::matmul, not its child.", "every-gpu",
          steps_of(lambda traced, step: ", ".join(op.name for op in traced.children(op_named(step, LABEL))),
                   "eager_64"), same("aten::matmul, aten::add"), "aten::matmul, aten::add"),
    _post("P15", "A leading batch axis on all three tensors turns aten::mm into aten::bmm.", "every-gpu",
          steps_of(lambda traced, step: product(traced, step)[1].name, "eager_64", "stacked"),
          same("aten::mm → aten::bmm"), "aten::mm → aten::bmm"),
    _post("P16", "With the batch axis, aten::matmul makes more CUDA calls.", "this-gpu",
          steps_of(lambda traced, step: number_of_calls(traced, step, "aten::matmul"), "eager_64", "stacked"),
          more, "a bunch more",
          "The batch axis adds rows, but they are operators that rearrange metadata on the CPU: expand, reshape, view. "
          "The CUDA call is the same single launch, and so is the kernel's name; only its grid has grown."),
    Claim("O-M10", "With a batch axis on x and b alone the product stays aten::mm: x is folded into one tall matrix.",
          "every-gpu", steps_of(lambda traced, step: product(traced, step)[1].name, "stacked_input"),
          same("aten::mm")),
    _post("P17", "aten::mm makes one CUDA call more than aten::add.", "this-gpu",
          steps_of(lambda traced, step: " and ".join(
                   str(number_of_calls(traced, step, op)) for op in ("aten::mm", "aten::add")), "eager_64"),
          same("2 and 1"), "2 and 1",
          "At 64 each operator makes exactly one call, its launch. At 4096 the product does make one call more, but it "
          "is a cudaMemsetAsync: work for the GPU and not a question."),
    _post("P18", "aten::mm asks cudaOccupancyMaxActiveBlocksPerMultiprocessor before it launches.", "this-gpu",
          steps_of(calls_under("aten::mm"), "eager_64"),
          lambda found: "cudaOccupancyMaxActiveBlocksPerMultiprocessor" in str(found.value),
          "cudaOccupancyMaxActiveBlocksPerMultiprocessor, cudaLaunchKernel",
          "cuBLAS asks here too, but only in the first step of the process, and remembers the answers. A trace "
          "that leaves out the first steps, as it should, does not show the questions."),
    _post("P19", "The product's kernel is launched by cudaLaunchKernel.", "this-gpu",
          steps_of(lambda traced, step: callers(traced, [product(traced, step)[0]]), "eager_64"),
          same("cudaLaunchKernel"), "cudaLaunchKernel",
          "These kernels are launched by the driver's extended call, which takes attributes that the plain call does "
          "not know, such as the size of a cluster of blocks. A search for cudaLaunchKernel finds the adds and misses "
          "every product."),
    _post("P20", "aten::add makes a single CUDA call, cudaLaunchKernel.", "every-gpu",
          steps_of(calls_under("aten::add"), "eager_64"), same("cudaLaunchKernel"), "cudaLaunchKernel only"),
    _post("P21", "Rule of thumb: an occupancy query marks the launch of a matrix product.", "this-gpu",
          queries_before_products, between(100, 100), "every one",
          "The rule finds nothing: no product in this chapter's warm steps follows a query. Go by the operator that "
          "launched a kernel instead; the trace ties the two together on any GPU."),
    Claim("O-M11", "cuBLAS asks about occupancy in the first step of a process and not again.", "this-gpu",
          of_trace("unscheduled", queries_by_step), between(1)),
    Claim("O-M12", "At 4096 the product brings along a memset of four bytes.", "this-gpu",
          steps_of(lambda _, step: ", ".join(str(one.moved_bytes) for one in step.memsets) or "none", "eager_4096"),
          same("4")),
    _post("P22", "A thread of the add kernel uses 32 registers.", "this-gpu",
          steps_of(lambda _, step: step.kernels[-1].registers or 0, "eager_64"), same(32), "32",
          "Compiled for another GPU, a kernel gets its registers assigned anew. The few more already cost some of the "
          "room for blocks, and still nothing is asked."),
    _post("P23", "The add kernel uses no shared memory.", "every-gpu",
          steps_of(lambda _, step: step.kernels[-1].shared_memory_bytes or 0, "eager_64"), same(0), "0"),
    _post("P24", "At 64 the GPU is idle for nearly all of the closing cudaDeviceSynchronize.", "timing",
          of_trace("eager_64_cold", wait_idle), between(90, 100), "98 %"),
    _post("P25", "At 64 that wait is many times as long as all the work that it waits for.", "timing",
          of_trace("eager_64_cold", wait_to_work), between(10), "1.78 ms for 26 µs of work",
          "With nothing left to wait for, the call returns at once; its length here is the price of asking. The post's "
          "long wait fits its long lane offset: there the GPU began late, here it did not."),
    Claim("O-M13", "At 4096 the GPU works through most of the closing wait.", "timing",
          of_trace("eager_4096_cold", wait_busy), between(70, 100)),
)

LARGE = (
    _post("P26", "At 4096 the product is an ampere_bf16_s16816gemm kernel with a tile of 128x256.", "this-gpu",
          steps_of(lambda traced, step: product(traced, step)[0].name, "eager_4096"),
          same("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn"),
          "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn",
          "cuBLAS has kernels of its own for each generation; on this one their names begin with nvjet. Tools and "
          "habits that look for gemm in a name find nothing here."),
    _post("P27", "At 4096 the product takes about 580 µs.", "timing",
          of_trace("eager_4096", product_times), between(500, 660), "580 µs",
          "A newer GPU with faster Tensor Cores, that is all. Between GPUs compare rates and shares of a ceiling, not "
          "times."),
    _post("P28", "Its time varies widely from step to step.", "timing",
          of_trace("eager_4096", longest_to_shortest), between(1.5), "580 µs usually, 1084 µs on average of 5",
          "Within one trace the steps agree closely. The product does slow down when it is kept running, because the "
          "GPU then lowers its clock to stay within its power; a trace of three steps is over before that."),
)

COMPILED = (
    _post("P29", "A compiled step reaches the GPU through a single aten::addmm.", "every-gpu",
          steps_of(lambda _, step: ", ".join(op.name for op in step.ops if op.name in ARITHMETIC), "compiled_4096"),
          same("aten::addmm"), "one aten::addmm(b, x, w)"),
    *(_post(name, f"Each compiled step has one row {row}.", "every-gpu",
            steps_of(rows_named(row), "compiled_4096"), same(1), "one a step")
      for name, row in (("P30", "TorchDynamo Cache Lookup"), ("P31", "Torch-Compiled Region: 0/0"),
                        ("P32", "AOTDispatcher Runtime Wrapper Prologue"), ("P33", GRAPH_CALL))),
    _post("P34", "The hash in CompiledFxGraph is the same in every step.", "every-gpu",
          of_trace("compiled_4096", graph_names), same(1), "the same in 3 steps"),
    _post("P35", "The compiled step's product is the very kernel that the eager step runs.", "this-gpu",
          steps_of(lambda traced, step: product(traced, step)[0].name, "eager_4096", "compiled_4096"), unchanged,
          "the same kernel",
          "The names differ in one part, bz against badd. NVIDIA does not document it, but it fits that one ignores "
          "what the output held and the other adds to it. So this GPU shows in the name what on the other one has to "
          "be inferred."),
    _post("P36", "The fusion is at the level of the dispatcher, not of kernels.", "this-gpu",
          steps_of(lambda _, step: len(step.kernels), "eager_4096", "compiled_4096"), unchanged,
          "2 → 2, counting the copy",
          "The kernel of aten::add is gone. What is left is a copy, which cannot add, and one product; the result is "
          "checked against a reference, so the product adds. The post says so too, further on. What nothing removed "
          "is the traffic: b is copied, then read again."),
    _post("P37", "At 64 a compiled step puts two activities on the GPU, a copy and the product.", "every-gpu",
          steps_of(lambda _, step: ", ".join(one.kind for one in step.activities), "compiled_64"),
          same("memcpy, kernel"), "memcpy, kernel"),
    _post("P38", "At 4096 a compiled step puts two activities on the GPU, a copy and the product.", "every-gpu",
          steps_of(lambda _, step: ", ".join(one.kind for one in step.activities), "compiled_4096"),
          same("memcpy, kernel"), "memcpy, kernel",
          "A third one stands between them, the memset that this product needs at this size, compiled or not. Count "
          "kernels, copies and fills apart, or an eager and a compiled step cannot be compared."),
    _post("P39", "The copy is put on the GPU by cudaMemcpyAsync.", "every-gpu",
          steps_of(lambda traced, step: callers(traced, step.memcpys), "compiled_4096"), same("cudaMemcpyAsync"),
          "cudaMemcpyAsync"),
    _post("P40", "Compiling saves one of two kernel launches.", "every-gpu",
          steps_of(lambda traced, step: len(set(map(traced.launch_of, step.kernels))), "eager_4096", "compiled_4096"),
          same("2 → 1"), "2 → 1"),
    _post("P41", "It does not save a GPU activity.", "every-gpu",
          steps_of(lambda _, step: len(step.activities), "eager_4096", "compiled_4096"), unchanged, "2 → 2"),
    _post("P42", "At 4096 the copy moves 32 MiB: all of b.", "every-gpu",
          of_trace("compiled_4096", copies(lambda copy: copy.moved_bytes or 0, "bytes")), same(2 * 4096 * 4096),
          "32 MB"),
    _post("P43", "That copy takes about 33 µs.", "timing",
          of_trace("compiled_4096", copies(lambda copy: copy.duration_us, "us")), between(25, 41), "33 µs",
          "Memory is about twice as fast here, and so is the copy. Again the time says which GPU it was; the rate and "
          "its ceiling say whether the copy was any good."),
    _post("P44", "The copy runs at the full speed of the memory, bytes read and written counted.", "timing",
          copy_share, between(80), "2.03 of 2.04 TB/s, by our arithmetic"),
    _post("P45", "A compiled step costs the CPU about twice as much time as an eager one.", "timing",
          times("compiled_4096", "eager_4096", "enqueue"), between(1.5, 3.5),
          "0.2, 0.1, 0.1 ms against 0.1, 0.07, 0.07 ms"),
    _post("P46", "Inductor keeps its graphs in torchinductor_<user>/fxgraph, in the folder for temporary files.",
          "every-gpu", code_folder, same(True), "torchinductor_<user>/fxgraph"),
    _post("P47", "The copy of b stands in the code that Inductor generates.", "this-gpu", copies_in_code, between(1),
          "out = copy(b), then the product",
          "The generated code allocates the output and calls addmm, nothing else. It is aten::addmm that copies, "
          "compiled or called by hand, so the copy is not a decision of the compiler."),
    Claim("O-M14", "At 4096 compiling changes the GPU's time by less than a tenth.", "timing",
          times("compiled_4096", "eager_4096", "warm"), between(0.9, 1.1)),
    Claim("O-M22", "Compiling saves no traffic: at 4096 a compiled step has to move as many bytes as an eager one.",
          "every-gpu", bytes_of("eager_4096", "compiled_4096"), unchanged),
    Claim("O-M15", "At 64 a loop of compiled steps takes at least half as long again as a loop of eager ones.",
          "timing", times("compiled_64", "eager_64", "launched"), between(1.5)),
)

BIAS = (
    Claim("O-M16", "addmm with a matrix b copies b first, at 64 as at 4096.", "every-gpu",
          steps_of(lambda _, step: len(step.memcpys), "matrix_bias_64", "matrix_bias_4096", joint=" and "),
          same("1 and 1")),
    Claim("O-M17", "addmm with one row as b copies nothing.", "every-gpu",
          steps_of(lambda _, step: len(step.memcpys), "row_bias_64", "row_bias_4096", joint=" and "), same("0 and 0")),
    Claim("O-M18", "addmm with one row as b is one kernel, at 64 as at 4096.", "every-gpu",
          steps_of(lambda _, step: len(step.kernels), "row_bias_64", "row_bias_4096", joint=" and "), same("1 and 1")),
    Claim("O-M19", "At 4096 a matrix b takes the GPU longer than a row b.", "timing",
          times("matrix_bias_4096", "row_bias_4096", "warm"), between(1.03)),
    Claim("O-M20", "A row b is nearly free: at 4096 the step keeps at least 85 % of the rate of a bare product.",
          "timing", ceiling_share("row_bias_4096"), between(85, 120)),
    Claim("O-M21", "addmm by hand puts the same work on the GPU as compiling does, name by name.", "every-gpu",
          same_gpu_work, same(True)),
)
# fmt: on

CLAIMS: tuple[Claim, ...] = (*OVERHEAD, *STEPS, *DISPATCH, *LARGE, *COMPILED, *BIAS)


def _number(measure: Measure) -> Measure:
    return lambda device: replace(measure(device), said="")


FIGURES: Mapping[str, Measure] = {
    "gpu_share_64": _number(of_trace("eager_64_cold", busy_share)),
    "gpu_share_4096": _number(of_trace("eager_4096_cold", busy_share)),
    "wait_share_4096": of_trace("eager_4096_cold", wait_share),
    "growth_512": _number(growth),
    "product_share_4096": ceiling_share("eager_4096"),
    "large_product_share_4096": ceiling_share("eager_4096", "8192x8192x8192"),
    "row_bias_share_4096": ceiling_share("row_bias_4096"),
    "crossing_eager": crossing("sweep_eager"),
    "crossing_compiled": crossing("sweep_compiled"),
    "graph_until_eager": worth_a_graph("sweep_eager"),
    "graph_until_compiled": worth_a_graph("sweep_compiled"),
    "first_gap": of_trace("eager_64_cold", first_to_rest(gap_us)),
    "first_gap_warmed": of_trace("eager_64", first_to_rest(gap_us)),
    "steps_kept": of_trace("eager_64", lambda traced: Figure(len(traced.steps))),
    "busiest_op": of_trace("eager_64_cold", busiest_op),
    "chain": steps_of(chain, "eager_64"),
    "entry": steps_of(entry, "compiled_64_cold"),
    "product_call": steps_of(lambda traced, step: callers(traced, [product(traced, step)[0]]), "eager_64"),
    "offset": of_trace("eager_64_cold", lambda traced: median([offset_us(step) for step in traced.steps], "us")),
    "buffer_request": of_trace("unscheduled", lambda traced: median([o.duration_us for o in requests(traced)], "us")),
    "first_queries": of_trace("unscheduled", queries_by_step),
    "wait_busy_4096": of_trace("eager_4096_cold", wait_busy),
    "wait_to_work_64": of_trace("eager_64_cold", wait_to_work),
    "product_4096": of_trace("eager_4096", product_times),
    "product_rate_4096": of_trace(
        "eager_4096", lambda traced: Figure(2e6 * 4096**3 / float(product_times(traced).value), "flop/s")
    ),
    "copy_4096": of_trace("compiled_4096", copies(lambda copy: copy.duration_us, "us")),
    "copy_rate_4096": of_trace("compiled_4096", copies(copy_rate, "bytes/s")),
    "copy_share_4096": _number(copy_share),
    "copy_bytes_4096": of_trace("compiled_4096", copies(lambda copy: copy.moved_bytes or 0, "bytes")),
    "compiled_bytes_4096": bytes_of("eager_4096", "compiled_4096"),
    "row_bytes_4096": bytes_of("matrix_bias_4096", "row_bias_4096"),
    "compiled_enqueue_64": times("compiled_64", "eager_64", "enqueue"),
    "compiled_enqueue_4096": times("compiled_4096", "eager_4096", "enqueue"),
    "compiled_launched_64": times("compiled_64", "eager_64", "launched"),
    "compiled_warm_4096": times("compiled_4096", "eager_4096", "warm"),
    "matrix_to_row_64": times("matrix_bias_64", "row_bias_64", "warm"),
    "matrix_to_row_4096": times("matrix_bias_4096", "row_bias_4096", "warm"),
}


# What the page shows, of the device that it shows


def one_step() -> Html:
    """The small step as a picture."""
    caption = "One step at 64: what the CPU did, and what the GPU ran"
    return timeline({"Eager, 64x64": "matmul_add/eager_64"}, shown_device(), caption)


def kernels() -> Html:
    """The GPU work of the small step."""
    return kernel_table("matmul_add/eager_64", shown_device(), "The same step: what the GPU ran")


def traces(*names: str) -> Html:
    """Links to recorded traces that no picture shows."""
    device = shown_device()
    recorded = [name for name in names if name in recorded_names(device, "matmul_add")]
    links = (f'<a href="../recordings/{device}/matmul_add/{name}.trace.json.gz">{name}</a>' for name in recorded)
    return Html(f"<p>Further traces of this chapter: {', '.join(links)}.</p>")


def profiler() -> Html:
    """What `key_averages()` prints for the small step."""
    return profiler_table("matmul_add/eager_64_cold", shown_device())


def two_sizes() -> Html:
    """The step at both sizes as a picture, on one scale."""
    sizes = {f"{size}x{size}": f"matmul_add/eager_{size}_cold" for size in (64, 4096)}
    return timeline(sizes, shown_device(), "A step at 64 and at 4096, on one scale")


def totals() -> Html:
    """The profiler's two totals at both sizes, and what of the CPU's is waiting."""
    rows: list[Sequence[Cell]] = []
    for size in (64, 4096):
        traced = _trace(f"eager_{size}_cold", shown_device())
        cpu, gpu, wait = self_cpu_us(traced), self_gpu_us(traced), closing_wait(traced).duration_us
        parts = (
            format_value(cpu, "us"),
            format_value(wait, "us"),
            format_value(gpu, "us"),
            format_value(100 * gpu / cpu, "%"),
        )
        rows.append([f"{size}x{size}", *parts])
    head = ["size", "Self CPU total", "of it cudaDeviceSynchronize", "Self CUDA total", "CUDA / CPU"]
    return table("Totals over three profiled steps of a cold process", head, rows)


def by_size() -> Html:
    """The sweep: the GPU's time, the CPU's and that of a loop."""
    sweeps = {way.capitalize(): name for way, name in SWEEPS.items()}
    device, caption = shown_device(), "How long a step takes, by the size of its matrices"
    return regimes(sweeps, device, lambda at: float(at["size"]), caption, axis="rows and columns")


def roof() -> Html:
    """The eager step at every size of the sweep below the roofs of memory and of arithmetic."""
    device = shown_device()
    sizes = [at.parameters["size"] for at in _load("sweep_eager", device).points]
    steps = {f"{size}x{size}": f"{SWEEPS['eager']}[size={size}]" for size in sizes}
    return roofline(steps, device, "How near an eager step comes to what memory and arithmetic allow")


def first_kept() -> Html:
    """The first two kept steps of a cold and of a warmed process as a picture, on one scale."""
    drawn: dict[str, tuple[Trace, Step, str]] = {}
    for process, name in (("Cold", "eager_64_cold"), ("Warmed", "eager_64")):
        traced = _trace(name, shown_device())
        drawn |= {f"{process}, {step.name}": (traced, step, LABEL) for step in traced.steps[:2]}
    return draw_steps(drawn, "The first two kept steps of a cold and of a warmed process", "matmul-add-first-kept")


def first_steps() -> Html:
    """The first steps of a process, all kept: holes, buffer requests, queries."""
    traced = _trace("unscheduled", shown_device())
    rows: list[Sequence[Cell]] = []
    for step in traced.steps:
        spans = (format_value(step.end_us - step.start_us, "us"), format_value(hole(step).duration_us, "us"))
        asked = len(requests(traced, step.start_us, step.end_us))
        rows.append([code(step.name), *spans, asked, queries(traced, step), len(step.launches)])
    head = ["step", "CPU time", "hole", "buffer requests", "occupancy queries", "CUDA calls"]
    return table("wait=0, warmup=0, active=5: the first five steps", head, rows)


def first_calls() -> Html:
    """The CUDA calls of the very first step by name, beside those of the step after it."""
    steps = _trace("unscheduled", shown_device()).steps
    first, second = (Counter(call.name for call in step.launches) for step in steps[:2])
    rows: list[Sequence[Cell]] = [[code(name), count, second[name]] for name, count in first.most_common()]
    return details("Every CUDA call of the first step", table("By name", ["call", "step #0", "step #1"], rows))


def calls() -> Html:
    """The CUDA calls that each product and each add makes."""
    rows: list[Sequence[Cell]] = []
    for name in ("eager_64", "stacked", "eager_4096"):
        traced = _trace(name, shown_device())
        for op in middle_step(traced).ops:
            if op.name in (*PRODUCTS, "aten::add"):
                made = Html("<br>".join(code(call.name) for call in traced.launches_under(op)))
                rows.append([code(name), code(op.name), made])
    head = ["experiment", "operator", "its CUDA calls, in order"]
    return Html(table("What each operator asks of CUDA", head, rows, text_columns=3) + first_calls())


def tree(name: str) -> Html:
    """The operators of one step as they call each other."""
    return dispatch_tree(f"matmul_add/{name}", shown_device())


def stacks() -> Html:
    """Both ways to stack: counts beside each other, and the operators of each."""
    ways = {"one matrix": "eager_64", "x, w and b stacked": "stacked", "x and b stacked": "stacked_input"}
    counts = {"operators": "ops_per_step", "CUDA calls": "cuda_calls_per_step", "kernels": "kernels_per_step"}
    paths = {way: f"matmul_add/{name}" for way, name in ways.items()}
    found = comparison_table(paths, counts, shown_device(), "A stack of eight, per step")
    return Html(found + "".join(details(f"Operators: {way}", tree(ways[way])) for way in list(ways)[1:]))


def waits() -> Html:
    """The closing wait at both sizes and what the GPU did in it."""
    rows: list[Sequence[Cell]] = []
    for size in (64, 4096):
        traced = _trace(f"eager_{size}_cold", shown_device())
        wait = closing_wait(traced)
        found = (wait.duration_us, busy_within_us(traced, wait), self_gpu_us(traced))
        rows.append([f"{size}x{size}", *(format_value(us, "us") for us in found)])
    head = ["size", "the wait lasts", "GPU busy in it", "all GPU work of the trace"]
    return table("The closing cudaDeviceSynchronize", head, rows)


def product_runs() -> Html:
    """The product at 4096 step by step, and a bare one replayed, with the clock after it."""
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for name in ("eager_4096_cold", "eager_4096"):
        traced = _trace(name, device)
        times_us = [(step.name, product(traced, step)[0].duration_us) for step in traced.steps]
        rows += [[f"trace {name}, {step}", format_value(us, "us"), _rate(us), None, None] for step, us in times_us]
    for name in ("sweep_eager", "eager_4096", "matrix_bias_4096"):
        found = _load(name, device)
        clocks = found.circumstances.clocks
        state = (f"{clocks['sm_mhz']:.0f} MHz", f"{clocks['power_w']:.0f} W") if len(clocks) > 1 else (None, None)
        same_shape = (one.timing.median_us for one in found.ceilings if one.what == "matmul 4096x4096x4096")
        rows += [[f"replayed, session of {name}", format_value(us, "us"), _rate(us), *state] for us in same_shape]
    head = ["4096x4096 by 4096x4096", "time", "rate", "clock after it", "power after it"]
    return table("One product, many runs", head, rows)


def _rate(us: float) -> str:
    return format_value(2e6 * 4096**3 / us, "flop/s")


def fused() -> Html:
    """What became of the eager step's GPU work when the step was compiled."""
    steps = ("matmul_add/eager_4096", "matmul_add/compiled_4096")
    return diff_table(*steps, shown_device(), ("eager", "compiled"), "From eager to compiled, at 4096")


def entering() -> Html:
    """The small step, eager and compiled, as a picture on one scale."""
    steps = {way.capitalize(): f"matmul_add/{way}_64_cold" for way in SWEEPS}
    return timeline(steps, shown_device(), "A step at 64, eager and compiled, on one scale")


def generated() -> Html:
    """The lines of Inductor's code that put work on the GPU."""
    lines = _load("generated_code", shown_device()).data["calls"]
    return Html(f"<pre><code>{escape(chr(10).join(map(str, lines)))}</code></pre>")


def cpu_and_gpu() -> Html:
    """What a step costs the CPU and the GPU, eager and compiled, at both sizes."""
    ways = [(way, size) for size in (64, 4096) for way in ("eager", "compiled")]
    steps = {f"{way.capitalize()}, {size}x{size}": f"matmul_add/{way}_{size}" for way, size in ways}
    return cpu_gpu_bars(steps, shown_device(), "What a step costs the GPU and the CPU")


def by_kernel() -> Html:
    """What the GPU's time at 4096 is made of, in four ways to compute the step."""
    ways = {"Eager": "eager", "Compiled": "compiled", "addmm, b a matrix": "matrix_bias", "addmm, b a row": "row_bias"}
    steps = {heading: f"matmul_add/{name}_4096" for heading, name in ways.items()}
    return kernel_bars(steps, shown_device(), "The GPU's time of a step at 4096, by kernel")


def by_hand() -> Html:
    """The small step written in two operators, compiled, and written in one."""
    ways = {"eager": "eager_64", "compiled": "compiled_64", "addmm by hand": "matrix_bias_64"}
    quantities = {
        "kernels": "kernels_per_step",
        "copies": "memcpys_per_step",
        "operators": "ops_per_step",
        "CPU time to enqueue": "enqueue_us",
        "GPU time, warm": "warm_us",
        "peak memory": "peak_memory_bytes",
    }
    paths = {heading: f"matmul_add/{name}" for heading, name in ways.items()}
    return comparison_table(paths, quantities, shown_device(), "One step at 64")


def graph_gain() -> Html:
    """What a loop of steps takes beside a launch-free replay of them, by size."""

    def time_of(way: str) -> Callable[[Recording, int], Cell]:
        return lambda found, i: format_value(getattr(timings(found, found.points[i]), way).median_us, "us")

    def gain(found: Recording, i: int) -> Cell:
        return format_value(loop_to_replay(found, found.points[i]), "x")

    heads = {"loop / replay": gain, "loop": time_of("launched"), "replay": time_of("warm")}
    caption = "A loop of steps beside the replay of a CUDA graph of them"
    return sweep_table(SWEEPS, heads, shown_device(), caption, lambda at: str(at["size"]))
