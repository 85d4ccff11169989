"""What the chapter mlp shows and claims: a GeGLU block eager, compiled, and with Liger's kernel."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TypeVar

from snippets.lab.drawing.charts import bytes_moved, cpu_gpu_bars, kernel_bars, regimes, roofline, timing_bars
from snippets.lab.drawing.timeline import timeline
from snippets.lab.finding.claim import Claim, Scope, Source, Status
from snippets.lab.finding.figure import Figure, format_value
from snippets.lab.finding.measure import of_steps, paired_samples_ratio, per_step
from snippets.lab.finding.quantities import point
from snippets.lab.html import Cell, Html, details, table
from snippets.lab.page.diff import diff_table
from snippets.lab.page.kernel_name import kernel_name_html
from snippets.lab.page.tables import comparison_table, figure_cell, kernel_table, profiler_table
from snippets.lab.recording.device import DEFAULT_DEVICE, shown_device
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import Ceiling, RecordingError, Timing, Timings
from snippets.lab.trace.averages import key_averages
from snippets.lab.trace.events import CpuOp, GpuActivity, Step, Trace, TraceError
from snippets.lab.trace.queries import kernel_time_us, middle_step
from snippets.lab.trace.work import step_work

# KEEP recording
# KEEP timeline
# KEEP trace

VARIANTS = {"eager": "mlp/eager", "compiled": "mlp/compiled", "Liger": "mlp/liger"}
WIDTHS = {"3072": "", "4096": "_4096"}
"""Hidden size -> what the names of its recordings end in."""
SWEEPS = {"eager": "mlp/sweep_eager", "compiled": "mlp/sweep_compiled", "Liger": "mlp/sweep_liger"}
ONE_TOKEN, ONE_SEQUENCE = "batch=1,seq=1", "batch=1,seq=128"
BF16_BYTES = 2
METADATA_OPS = {"aten::t", "aten::transpose", "aten::as_strided", "aten::reshape", "aten::view", "aten::_unsafe_view"}
WRAPPERS = {"aten::linear", "aten::matmul", "aten::t", "aten::transpose", "aten::reshape"}
PRE_OPS = ("TorchDynamo", "Torch-Compiled Region", "Pregraph", "AOTDispatcher", "## Call CompiledFxGraph")
ARTICLE = "“The Profiling Deep-Dive on nn.Linear Fusion”, an article about Part 2"
SERIES_GEMMS_US, SERIES_FUSED_US, SERIES_LIGER_US = (190.0, 190.0, 170.0), 89.4, 92.8
"""Part 2's kernel times: gate, up and down; Inductor's fused kernel; Liger's."""

E = TypeVar("E")
Pick = Callable[[Trace, Step], Sequence[GpuActivity]]


def op_name(traced: Trace, activity: GpuActivity) -> str:
    """Name of the operator that launched an activity, empty where the trace ties it to none."""
    op = traced.op_of(activity)
    return op.name if op else ""


def gemms(traced: Trace, step: Step) -> tuple[GpuActivity, ...]:
    """The kernels of `aten::mm`, in order: gate, up, down. Raises `TraceError` when they are not three."""
    return _three(step, tuple(kernel for kernel in step.kernels if op_name(traced, kernel) == "aten::mm"))


def pointwise(traced: Trace, step: Step) -> tuple[GpuActivity, ...]:
    """The other kernels: GELU and the product, or the one that does both."""
    return tuple(kernel for kernel in step.kernels if op_name(traced, kernel) != "aten::mm")


def pick(kernels: Sequence[GpuActivity], place: int) -> GpuActivity:
    """The kernel at a place. Raises `TraceError` when there are not so many."""
    if place >= len(kernels):
        raise TraceError(f"a step lacks kernel {place + 1} of {len(kernels)}; make record CHAPTER=mlp")
    return kernels[place]


def _three(step: Step, found: tuple[E, ...]) -> tuple[E, ...]:
    if len(found) != 3:
        raise TraceError(f"{step.name} has {len(found)} products instead of three; make record CHAPTER=mlp")
    return found


def _mms(step: Step) -> tuple[CpuOp, ...]:
    return _three(step, tuple(op for op in step.ops if op.name == "aten::mm"))


def products(traced: Trace, step: Step) -> tuple[tuple[int, int, int], ...]:
    """(M, K, N) of each `aten::mm` of a step."""
    shapes = [op.input_shapes for op in _mms(step)]
    return tuple((left[0], left[1], right[1]) for left, right, *_ in shapes)


def order(traced: Trace, step: Step) -> str:
    """Operators that launched the kernels of a step, in the kernels' order."""
    return ", ".join(op_name(traced, kernel).removeprefix("aten::") for kernel in step.kernels)


def gemm_names(traced: Trace, step: Step) -> str:
    """Names of the three GEMM kernels."""
    return ", ".join(kernel.name for kernel in gemms(traced, step))


def pre_op_names(_: Trace, step: Step) -> str:
    """Rows that only a compiled call has."""
    return ", ".join(op.name.split(" fx")[0] for op in step.ops if op.name.startswith(PRE_OPS)) or "none"


def hidden_bytes(traced: Trace, step: Step) -> int:
    """Bytes of the tensor that the gate's GEMM writes."""
    m, _, n = products(traced, step)[0]
    return BF16_BYTES * m * n


def intermediate_bytes(_: Trace, step: Step) -> int:
    """Bytes of GELU's input, and so of its result."""
    return sum(BF16_BYTES * math.prod(op.input_shapes[0]) for op in step.ops if op.name == "aten::gelu")


def pointwise_bytes(traced: Trace, step: Step) -> tuple[int, ...]:
    """What each pointwise kernel has to move. Raises `TraceError` where the trace does not tell."""
    works = dict(zip(step.activities, step_work(traced, step, fused_work), strict=True))
    found = [works[kernel] for kernel in pointwise(traced, step)]
    if None in found:
        raise TraceError(f"{step.name} does not tell the shapes of its operators; make record CHAPTER=mlp")
    return tuple(one.bytes for one in found if one)


def fused_work(traced: Trace, step: Step) -> dict[int, tuple[int, int]]:
    """What a trace does not tell: a kernel that fuses reads the results of two GEMMs and writes a factor of the third.

    No FLOPs, and these bytes, by the kernel's place in its step; nothing for a step with two pointwise kernels.
    """
    kernels = pointwise(traced, step)
    if len(kernels) != 1:
        return {}
    gate, up, down = products(traced, step)
    moved = BF16_BYTES * (gate[0] * gate[2] + up[0] * up[2] + down[0] * down[1])
    return {step.activities.index(kernels[0]): (0, moved)}


def in_steps(variant: str, of: Callable[[Trace, Step], int | str | bool]) -> Callable[[str], Figure]:
    """A measure: what the steps of a variant's trace show; inconclusive when they disagree."""

    def measure(device: str) -> Figure:
        traced = load_trace(f"mlp/{variant}", device)
        return of_steps(traced, lambda step: of(traced, step), f"mlp/{variant}")

    return measure


def amount(variant: str, unit: str, of: Callable[[Trace, Step], float]) -> Callable[[str], Figure]:
    """A measure: a quantity with a unit, the median step and the range of all."""

    def measure(device: str) -> Figure:
        traced = load_trace(f"mlp/{variant}", device)
        return per_step(traced, lambda step: of(traced, step), unit, f"mlp/{variant}, per step of its trace")

    return measure


def kernel_us(variant: str, kernels_of: Pick, place: int) -> Callable[[str], Figure]:
    """A measure: time of one kernel in the trace."""
    return amount(variant, "us", lambda traced, step: pick(kernels_of(traced, step), place).duration_us)


def over_steps(variant: str, kernels_of: Pick, place: int, device: str) -> Timing:
    """Time of one kernel in the trace, a sample for each step."""
    traced = load_trace(f"mlp/{variant}", device)
    return timing_of([pick(kernels_of(traced, step), place).duration_us for step in traced.steps])


def timing_of(samples: Sequence[float]) -> Timing:
    """Samples in microseconds, one or more, as a timing."""
    several = samples if len(samples) > 1 else [*samples, *samples]
    q1, median, q3 = statistics.quantiles(several, n=4, method="inclusive")
    return Timing(median, q1, q3, tuple(samples))


def trace_ratio(upper: Callable[[str], Figure], lower: Callable[[str], Figure]) -> Callable[[str], Figure]:
    """A measure: how many times one kernel's time fits into another's, from the extremes of their steps."""

    def measure(device: str) -> Figure:
        (a, a_low, a_high), (b, b_low, b_high) = (_range(one(device)) for one in (upper, lower))
        return Figure(a / b, "x", (a_low / b_high, a_high / b_low), "two traces of one session")

    return measure


def _range(shown: Figure) -> tuple[float, float, float]:
    value = float(shown.value)
    return (value, *(shown.spread or (value, value)))


def timings(experiment: str, device: str, place: str = "") -> Timings:
    """The timings of a recording at a point. Raises `RecordingError` when it was not timed."""
    found = point(load_recording(experiment, device), place).timings
    if found is None:
        raise RecordingError(f"{experiment} was not timed; make record CHAPTER=mlp")
    return found


def paired(upper: str, lower: str, kind: str, place: str = "") -> Callable[[str], Figure]:
    """A measure: ratio of the paired timings of two experiments of one session; `kind` is a field of `Timings`."""

    def measure(device: str) -> Figure:
        sessions = {load_recording(name, device).session for name in (upper, lower)}
        if len(sessions) > 1:
            raise RecordingError(f"{upper} and {lower} were recorded apart; make record CHAPTER=mlp FRESH=1")
        a, b = (getattr(timings(name, device, place), kind) for name in (upper, lower))
        return paired_samples_ratio(a, b, f"{upper} over {lower}, {kind}, in turns")

    return measure


def smallest(*measures: Callable[[str], Figure]) -> Callable[[str], Figure]:
    """A measure: the smallest of several ratios."""
    return lambda device: min((measure(device) for measure in measures), key=lambda shown: float(shown.value))


def ceiling(variant: str, what: str, device: str) -> Ceiling:
    """A ceiling of the variant's own session. Raises `RecordingError` where it was not measured."""
    for one in load_recording(f"mlp/{variant}", device).ceilings:
        if one.what == what:
            return one
    raise RecordingError(f"mlp/{variant} has no ceiling {what!r}; make record CHAPTER=mlp")


def copy_rate(variant: str, device: str) -> float:
    """Bytes a second of a plain copy in the variant's session."""
    copy = ceiling(variant, "copy", device)
    return copy.bytes / copy.timing.median_us * 1e6


def percent_of_copy(variant: str, place: int = 0) -> Callable[[str], Figure]:
    """A measure: the rate at which a pointwise kernel moves what it has to, in percent of a plain copy's."""

    def measure(device: str) -> Figure:
        copy = copy_rate(variant, device)

        def percent(traced: Trace, step: Step) -> float:
            kernel = pick(pointwise(traced, step), place)
            return 100 * pointwise_bytes(traced, step)[place] / kernel.duration_us * 1e6 / copy

        return amount(variant, "%", percent)(device)

    return measure


def bare_product(place: int, device: str) -> Ceiling:
    """The ceiling of one of eager's products, bare and sustained. Raises `RecordingError` where it was not measured."""
    traced = load_trace("mlp/eager", device)
    shape = "x".join(map(str, products(traced, middle_step(traced))[place]))
    return ceiling("eager", f"matmul {shape}", device)


def compilations(mode: str, device: str) -> list[int]:
    """Compilations so far after each batch size of `new_shapes`, in one mode."""
    found = load_recording("mlp/new_shapes", device).data
    if mode not in found:
        raise RecordingError(f"mlp/new_shapes has no {mode!r}; make record CHAPTER=mlp")
    return [int(count) for count in found[mode]["compiled"]]


def recompiled(mode: str, device: str) -> str:
    """`1 of 3`: how many changes of the batch size compiled something."""
    counts = compilations(mode, device)
    return f"{sum(b > a for a, b in itertools.pairwise(counts))} of {len(counts) - 1}"


def working_ops(traced: Trace, step: Step) -> str:
    """Of the operators that run inside `aten::linear`, those that put work on the GPU themselves."""
    inside = {op.name for op in _inside_linear(traced, step)}
    return ", ".join(sorted({op_name(traced, activity) for activity in step.activities} & inside))


def _inside_linear(traced: Trace, step: Step) -> list[CpuOp]:
    return [op for op in step.ops if any(above.name == "aten::linear" for above in traced.dispatch_chain(op))]


def _metadata(traced: Trace, step: Step) -> str:
    """`chain; names that reach the GPU; names that do not`, of all that runs inside `aten::linear`."""
    inside, working = _inside_linear(traced, step), working_ops(traced, step)
    chains = {_chain(traced, op.index) for op in inside if op.name == "aten::mm"}
    idle = sorted({op.name for op in inside} - set(working.split(", ")))
    return f"{' and '.join(sorted(chains))}; GPU work: {working}; none: {', '.join(idle)}"


def _metadata_ops(device: str) -> Figure:
    found = in_steps("eager", _metadata)(device)
    return replace(found, said=str(found.value).replace("aten::", ""))


def _gemm_kernels(device: str) -> Figure:
    found = in_steps("eager", gemm_names)(device)
    gate, *others = str(found.value).split(", ")
    return replace(found, said=f"{gate} twice, then {others[-1]}") if others[:1] == [gate] else found


def _chain_over_mm(device: str) -> Figure:
    """Own CPU time of the operators that launch nothing themselves, in percent of that of `aten::mm`."""
    rows = [row for row in key_averages(load_trace("mlp/eager", device)) if row.name.startswith("aten::")]
    idle = math.fsum(row.self_cpu_us for row in rows if not row.self_gpu_us)
    mm = math.fsum(row.self_cpu_us for row in rows if row.name == "aten::mm")
    return Figure(100 * idle / mm, "%", origin="mlp/eager, sums over its trace")


def _chain(traced: Trace, index: int) -> str:
    names = [op.name for op in traced.dispatch_chain(traced.cpu_ops[index])]
    return " > ".join(names[names.index("aten::linear") :])


def _queries(traced: Trace, step: Step) -> str:
    def asks(ops: tuple[str, ...]) -> str:
        found = [op for op in step.ops if op.name in ops]
        asking = [op for op in found if any("Occupancy" in call.name for call in traced.launches_under(op))]
        return f"{len(asking)} of {len(found)}"

    return f"{asks(('aten::mm',))} GEMMs, {asks(('aten::gelu', 'aten::mul'))} pointwise"


def _templates(traced: Trace, step: Step) -> str:
    vectorized = r"vectorized_elementwise_kernel<(\d+).*?(GeluCUDAKernelImpl|MulFunctor)"
    found = [re.search(vectorized, kernel.name) for kernel in pointwise(traced, step)]
    return ", ".join(f"{match[2]} {match[1]} wide" for match in found if match)


def _compiled_order(traced: Trace, step: Step) -> str:
    left = sorted(WRAPPERS & {op.name for op in step.ops})
    return f"{order(traced, step)}; wrappers left: {', '.join(left) or 'none'}"


def _shapes(traced: Trace, step: Step) -> str:
    return ", ".join(f"[{m},{k}]x[{k},{n}]" for m, k, n in products(traced, step))


def _same_gemms(variant: str) -> Callable[[str], Figure]:
    def measure(device: str) -> Figure:
        eager, other = in_steps("eager", gemm_names)(device), in_steps(variant, gemm_names)(device)
        return Figure(eager.value == other.value, conclusive=eager.conclusive and other.conclusive)

    return measure


def _gemm_launches(traced: Trace, step: Step) -> str:
    calls = {launch.name for kernel in gemms(traced, step) if (launch := traced.launch_of(kernel))}
    blocks = {math.prod(kernel.grid) for kernel in gemms(traced, step) if kernel.grid}
    return f"{', '.join(sorted(calls))}, {', '.join(map(str, sorted(blocks)))} blocks"


def _one_block_each(device: str) -> Figure:
    count = load_recording("mlp/eager", device).circumstances.multiprocessors
    found = in_steps("eager", _gemm_launches)(device)
    return Figure(f"{found.value}, {count} multiprocessors", origin=found.origin, conclusive=found.conclusive)


def _is_one_each(shown: Figure) -> bool:
    return re.fullmatch(r"cuLaunchKernelEx, (\d+) blocks, \1 multiprocessors", str(shown.value)) is not None


def _memsets(device: str) -> Figure:
    def fills(traced: Trace, step: Step) -> str:
        linear = {op.index: name for op, name in zip(_mms(step), ("gate", "up", "down"), strict=True)}
        owners = [(fill.moved_bytes, traced.op_of(fill)) for fill in step.memsets]
        return (
            ", ".join(f"{linear.get(op.index, op.name) if op else '?'} {size} bytes" for size, op in owners) or "none"
        )

    found = [in_steps(variant, fills)(device) for variant in ("eager", "compiled", "liger")]
    same = all(one.value == found[0].value for one in found)
    return Figure(
        found[0].value if same else "; ".join(str(one.value) for one in found),
        conclusive=all(one.conclusive for one in found),
    )


def _down_is_faster(traced: Trace, step: Step) -> float:
    gate, up, down = (kernel.duration_us for kernel in gemms(traced, step))
    return 100 * (1 - down / statistics.fmean((gate, up)))


def _liger_forward(traced: Trace, step: Step) -> str:
    linears = sum(op.name == "aten::linear" for op in step.ops)
    names = ", ".join(kernel.name for kernel in pointwise(traced, step))
    return f"{order(traced, step)}; {linears} aten::linear; {names}"


def _pointwise_bytes(traced: Trace, step: Step) -> int:
    return sum(pointwise_bytes(traced, step))


def _saved_bytes(device: str) -> Figure:
    eager, fused = (amount(name, "bytes", _pointwise_bytes)(device) for name in ("eager", "compiled"))
    both = eager.spread is None and fused.spread is None
    return Figure(float(eager.value) - float(fused.value), "bytes", origin="shapes in the traces", conclusive=both)


def _cpu_side(traced: Trace, step: Step) -> str:
    """Whose CPU side the step with Liger's layer has."""
    return "eager's" if any(op.name == "aten::linear" for op in step.ops) else "the compiled call's"


def _by_cpu(device: str) -> Figure:
    """The variants, from the one that keeps the CPU busy for the shortest time."""
    busy = {name: timings(experiment, device).enqueue.median_us for name, experiment in VARIANTS.items()}
    return Figure(", ".join(sorted(busy, key=busy.__getitem__)), origin="enqueue, in turns")


def _liger_launch(traced: Trace, step: Step) -> str:
    kernel = pick(pointwise(traced, step), 0)
    rows, _, columns = products(traced, step)[0]
    blocks, threads = math.prod(kernel.grid or (0,)), math.prod(kernel.block or (0,))
    return f"{blocks} blocks of {threads} threads for {rows} rows of {columns}"


def _same_footprint(device: str) -> Figure:
    def footprint(traced: Trace, step: Step) -> str:
        kernel = pick(pointwise(traced, step), 0)
        occupancy = format_value(kernel.occupancy_percent or 0, "%")
        return f"{math.prod(kernel.block or (0,))} threads, {kernel.registers} registers, {occupancy} occupancy"

    first, *others = found = [in_steps(f"liger{suffix}", footprint)(device) for suffix in WIDTHS.values()]
    same = all(one.value == first.value for one in others)
    return Figure(
        "; ".join(str(one.value) for one in found),
        said=f"{first.value}, at both" if same else "",
        conclusive=all(one.conclusive for one in found),
    )


def _saved_memory(device: str) -> Figure:
    eager, fused = (point(load_recording(VARIANTS[name], device)).peak_memory_bytes for name in ("eager", "compiled"))
    one = in_steps("eager", hidden_bytes)(device)
    return Figure((eager - fused) / int(one.value), said=f"{format_value((eager - fused), 'bytes')} less")


def _error_ratio(device: str) -> Figure:
    eager, fused = (point(load_recording(VARIANTS[name], device)).relative_error for name in ("eager", "compiled"))
    return Figure(eager / fused, "x", origin="eager's relative error over the compiled forward's")


def _cost_of_compiling(device: str) -> Figure:
    """The cheapest first call that compiled over the dearest that did not, over both modes of torch.compile."""
    compiling: list[float] = []
    others: list[float] = []
    for mode in ("static", "automatic"):
        counts = [0, *compilations(mode, device)]
        for place, ms in enumerate(load_recording("mlp/new_shapes", device).data[mode]["first_call_ms"]):
            (compiling if counts[place + 1] > counts[place] else others).append(float(ms))
    if not others:
        return Figure(0.0, "x", said="every call compiled", conclusive=False)
    return Figure(min(compiling) / max(others), "x")


@dataclass(frozen=True)
class Config:
    """A launch configuration that Inductor chose for the fused kernel, and the kernel's time after each such choice."""

    elements: int
    """Of the result, for each block."""
    threads: int
    """Of a block."""
    times_us: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.elements} elements to {self.threads} threads"

    @property
    def us(self) -> float:
        """The median time."""
        return statistics.median(self.times_us)


def compiled_anew(device: str) -> list[tuple[int, int, float]]:
    """Each compilation of `mlp/tuned`, in order: elements and threads of a block of the fused kernel, and its time."""
    data = load_recording("mlp/tuned", device).data
    traced = load_trace("mlp/compiled", device)
    elements = hidden_bytes(traced, middle_step(traced)) // BF16_BYTES
    launches = zip(data["grid"], data["block"], data["fused_us"], strict=True)
    return [(math.ceil(elements / math.prod(grid)), math.prod(block), us) for grid, block, us in launches]


def configs(device: str) -> list[Config]:
    """The launch configurations that Inductor chose, the one with the fastest kernel first."""
    times: dict[tuple[int, int], list[float]] = {}
    for elements, threads, us in compiled_anew(device):
        times.setdefault((elements, threads), []).append(us)
    return sorted((Config(*found, tuple(us)) for found, us in times.items()), key=lambda one: one.us)


def _fast_and_slow(device: str) -> tuple[Config, Config]:
    found = configs(device)
    return found[0], found[-1]


def _configs(device: str) -> Figure:
    return Figure(", ".join(map(str, configs(device))), origin="mlp/tuned, the fastest first")


def _slow_over_fast(device: str) -> Figure:
    fast, slow = _fast_and_slow(device)
    spread = (min(slow.times_us) / max(fast.times_us), max(slow.times_us) / min(fast.times_us))
    return Figure(slow.us / fast.us, "x", spread, "mlp/tuned, median over median")


def _slow_choices(device: str) -> Figure:
    """How many compilations did not choose the fastest."""
    _, *others = configs(device)
    return Figure(sum(len(one.times_us) for one in others), origin="mlp/tuned")


def _slow_share(device: str) -> Figure:
    slow, of = int(_slow_choices(device).value), len(compiled_anew(device))
    return Figure(100 * slow / of, "%", origin="mlp/tuned", said=f"{slow} of {of}")


def _shown_config(traced: Trace, step: Step) -> str:
    kernel = pick(pointwise(traced, step), 0)
    elements = hidden_bytes(traced, step) // BF16_BYTES
    return str(Config(math.ceil(elements / math.prod(kernel.grid or (1,))), math.prod(kernel.block or (0,)), ()))


def _has_the_fastest(device: str) -> Figure:
    shown, (fast, _) = in_steps("compiled", _shown_config)(device), _fast_and_slow(device)
    is_fast = shown.value == str(fast)
    return replace(shown, value=is_fast, said=f"{shown.value}, {'the' if is_fast else 'not the'} fastest")


def _slow_us(device: str) -> Figure:
    _, slow = _fast_and_slow(device)
    return Figure(slow.us, "us", (min(slow.times_us), max(slow.times_us)), "mlp/tuned")


def _slow_speedup(device: str) -> Figure:
    """The whole compiled forward against eager's, had it got the slower kernel: warm, and later by the difference."""
    eager, fused = (timings(name, device).warm.median_us for name in _FORWARD[:2])
    fast, slow = _fast_and_slow(device)
    return Figure(eager / (fused + slow.us - fast.us), "x", origin="mlp/eager over mlp/compiled, warm, and mlp/tuned")


def _new_shapes(device: str) -> Figure:
    return Figure(f"torch.compile: {recompiled('automatic', device)}, Liger: {recompiled('liger', device)}")


def _modes(device: str) -> Figure:
    return Figure(f"static: {recompiled('static', device)}, automatic: {recompiled('automatic', device)}")


def _launches_saved(device: str) -> Figure:
    eager, fused = (in_steps(name, lambda _, step: len(step.kernels))(device) for name in ("eager", "compiled"))
    return Figure(
        100 * (1 - int(fused.value) / int(eager.value)), "%", conclusive=eager.conclusive and fused.conclusive
    )


def _trace_over_bare(device: str) -> Figure:
    """How many times as fast as bare and sustained: the least of the three GEMMs, and the range."""
    times = [(bare_product(place, device), over_steps("eager", gemms, place, device)) for place in range(3)]
    rates = [limit.timing.median_us / inside.median_us for limit, inside in times]
    return Figure(min(rates), "x", (min(rates), max(rates)))


def claim(
    identity: str,
    sentence: str,
    measure: Callable[[str], Figure],
    holds: Callable[[Figure], bool],
    said: str = "",
    *,
    scope: Scope = "every-gpu",
    differs: str = "",
    who: str = "Part 2",
) -> Claim:
    """A claim; `said` is the source's value, `differs` why it does not hold on the builder."""
    expected: Mapping[str, Status] = {DEFAULT_DEVICE: "differs"} if differs else {}
    return Claim(identity, sentence, scope, measure, holds, Source(who, said) if said else None, expected, differs)


def _is(*values: object) -> Callable[[Figure], bool]:
    return lambda shown: shown.value in values


def _between(low: float, high: float) -> Callable[[Figure], bool]:
    return lambda shown: low <= float(shown.value) <= high


def _names_a100_tiles(shown: Figure) -> bool:
    gate, up, down = str(shown.value).split(", ")
    known = "ampere_bf16_s16816gemm_bf16_"
    return gate == up and gate.startswith(f"{known}128x128") and down.startswith(f"{known}128x256")


def _two_kinds(shown: Figure) -> bool:
    gate, up, down = str(shown.value).split(", ")
    return gate == up != down


def _only_mm_works(shown: Figure) -> bool:
    chain, working, idle = str(shown.value).split("; ")
    return (
        chain == "aten::linear > aten::matmul > aten::mm"
        and working == "GPU work: aten::mm"
        and set(idle.removeprefix("none: ").split(", ")) >= METADATA_OPS
    )


def _is_compiled_forward(shown: Figure) -> bool:
    return re.fullmatch(r"mm, mm, triton_\w+, mm; wrappers left: none", str(shown.value)) is not None


gelu_us, mul_us = kernel_us("eager", pointwise, 0), kernel_us("eager", pointwise, 1)
fused_us, liger_us = kernel_us("compiled", pointwise, 0), kernel_us("liger", pointwise, 0)
_FORWARD = ("mlp/eager", "mlp/compiled", "mlp/liger")
_SWEEP = ("mlp/sweep_eager", "mlp/sweep_compiled", "mlp/sweep_liger")
_SIZES = (ONE_TOKEN, ONE_SEQUENCE, *(f"batch={batch},seq=128" for batch in (4, 16, 64, 128)))


def _slower_from_python(place: str, variant: int) -> Callable[[str], Figure]:
    return paired(_SWEEP[variant], _SWEEP[0], "launched", place)


CLAIMS: tuple[Claim, ...] = (
    claim(
        "M1",
        "One eager forward runs exactly five kernels, in this order: GEMM, GEMM, GELU, multiplication, GEMM.",
        in_steps("eager", order),
        _is("mm, mm, gelu, mul, mm"),
        "5 kernels: GEMM, GEMM, GELU, mul, GEMM",
    ),
    claim(
        "M2",
        "gate and up run ampere_bf16_s16816gemm_bf16_128x128_…_stages_32x5_tn, down runs …_128x256_…_stages_64x3_tn.",
        _gemm_kernels,
        _names_a100_tiles,
        "ampere_bf16_s16816gemm_bf16_128x128_…_stages_32x5_tn twice, then …_128x256_…_stages_64x3_tn",
        scope="this-gpu",
        differs="cuBLAS brings kernels of their own for Hopper, nvjet_sm90_*. The pattern carries over: one kernel "
        "for the two equal products, another for the third. The names do not, nor does what one learned to read from "
        "them. Compare names within a machine, never between two.",
    ),
    claim(
        "M3",
        "The pointwise kernels are vectorized_elementwise_kernel<4, GeluCUDAKernelImpl…> and <4, …MulFunctor…>.",
        in_steps("eager", _templates),
        _is("GeluCUDAKernelImpl 4 wide, MulFunctor 4 wide"),
        "<4, …> in both",
        scope="this-gpu",
        differs="The same two templates, twice as wide. The number is how many elements a thread loads at once: "
        "PyTorch builds the width of eight only for compute capability 9 and 10 and uses at most four elsewhere. A "
        "name that changes between GPUs need not mean that the algorithm did.",
    ),
    claim(
        "M4",
        "Each GEMM asks cudaOccupancyMaxActiveBlocksPerMultiprocessor before its launch; GELU and the multiplication "
        "do not.",
        in_steps("eager", _queries),
        _is("3 of 3 GEMMs, 0 of 2 pointwise"),
        "3 queries a forward, one for each GEMM",
        scope="this-gpu",
        differs="No question in these steps; the chapter Matmul and add saw cuBLAS ask in a process's first step only, "
        "and remember. The rule that a query announces a GEMM finds none in later steps: read the operator above a "
        "launch instead.",
    ),
    claim(
        "M5",
        "In each aten::linear the chain linear > matmul > mm reaches the GPU, and only through mm: t, transpose, "
        "as_strided, reshape, view and _unsafe_view launch nothing.",
        _metadata_ops,
        _only_mm_works,
        "about six names for each linear, of which mm alone reaches the GPU",
    ),
    claim(
        "M6",
        "The products are [8192,768]x[768,3072] twice and [8192,3072]x[3072,768]: equally many floating-point "
        "operations.",
        in_steps("eager", _shapes),
        _is("[8192,768]x[768,3072], [8192,768]x[768,3072], [8192,3072]x[3072,768]"),
        "the same shapes, 38.7 GFLOP each",
    ),
    claim(
        "M7",
        "Down is about a tenth faster than gate and up, which do the same amount of work.",
        amount("eager", "%", _down_is_faster),
        _between(4, 17),
        "0.19 ms, 0.19 ms and 0.17 ms",
        scope="timing",
    ),
    claim(
        "M8",
        "Compiled, the forward runs four kernels, two GEMMs, one from Triton and a GEMM, and no linear, matmul, t, "
        "transpose or reshape is left above them.",
        in_steps("compiled", _compiled_order),
        _is_compiled_forward,
        "4 kernels: mm, mm, fused, mm, as three bare aten::mm",
    ),
    claim(
        "M9",
        "Compiling leaves the three GEMM kernels as they were, name for name.",
        _same_gemms("compiled"),
        _is(True),
        "byte-for-byte identical names",
    ),
    claim(
        "M10",
        "The fused kernel is called triton_poi_fused__unsafe_view_gelu_mul_0.",
        in_steps("compiled", lambda t, s: ", ".join(kernel.name for kernel in pointwise(t, s))),
        _is("triton_poi_fused__unsafe_view_gelu_mul_0"),
        "triton_poi_fused__unsafe_view_gelu_mul_0",
        scope="this-gpu",
    ),
    claim(
        "M11",
        "The tensor between GELU and the multiplication, [8192, 3072] in bf16, is around 50 MB.",
        amount("eager", "bytes", intermediate_bytes),
        _between(49e6, 51e6),
        "around 50 MB",
    ),
    claim(
        "M12",
        "Fusion saves one round trip of that tensor: one write of it and one read.",
        _saved_bytes,
        _is(2 * BF16_BYTES * 8192 * 3072),
        "one whole round trip of the intermediate",
    ),
    claim(
        "M13",
        "The fused kernel is limited by memory: it moves its three tensors at three quarters of a plain copy's rate "
        "or more.",
        percent_of_copy("compiled"),
        lambda shown: float(shown.value) >= 75,
        "89.4 µs, which makes 1.69 TB/s",
        scope="timing",
    ),
    claim(
        "K1",
        "With Liger's layer the forward runs four kernels: three aten::linear as before, and one "
        "LigerGELUMulFunction whose kernel is _geglu_tanh_forward_kernel.",
        in_steps("liger", _liger_forward),
        _is("mm, mm, LigerGELUMulFunction, mm; 3 aten::linear; _geglu_tanh_forward_kernel"),
        "3 aten::linear and one LigerGELUMulFunction, _geglu_tanh_forward_kernel",
    ),
    claim(
        "K2",
        "A Liger call has none of the rows that a compiled call adds: no Dynamo, no guards, no prologue.",
        in_steps("liger", pre_op_names),
        _is("none"),
        "no pre-ops",
    ),
    claim(
        "K3",
        "Liger's kernel is a few percent slower than Inductor's.",
        trace_ratio(liger_us, fused_us),
        _between(1.0, 1.1),
        "92.8 µs against 89.4 µs",
        scope="timing",
        differs="The gap is several times as wide here, and it hangs on two accidents. This width is no power of two, "
        "so a quarter of the positions in Liger's blocks are masked off; and this compilation got the faster of two "
        "launch configurations, which Inductor does not always choose. With the other one, Liger's kernel would be the "
        "faster. Measure at your width, and more than one compilation.",
    ),
    claim(
        "K4",
        "Change the shape and torch.compile pays the compile cost all over again, while Liger's kernel never does.",
        _new_shapes,
        _is("torch.compile: 3 of 3, Liger: 0 of 3"),
        "any change of batch, sequence or hidden size compiles again",
        differs="Liger's half is right. torch.compile learns from the first change: it makes the batch size a "
        "variable, compiles once more, and that graph served every further size tried here. The sentence describes "
        "dynamic=False. Expect about two compilations for a varying batch, not one for each size.",
    ),
    claim(
        "K5",
        "With Liger the three GEMM kernels are eager's, name for name.",
        _same_gemms("liger"),
        _is(True),
        "still the same cuBLAS kernels",
    ),
    claim(
        "O-P1",
        "gate and up, two equal products, run one kernel; down runs another.",
        _gemm_kernels,
        _two_kinds,
        scope="this-gpu",
    ),
    claim(
        "O-P2",
        "Every GEMM is put on the GPU by cuLaunchKernelEx, with as many blocks as the GPU has multiprocessors.",
        _one_block_each,
        _is_one_each,
        scope="this-gpu",
    ),
    claim(
        "O-P3",
        "In every variant gate and up each bring along a memset of four bytes, and down brings none.",
        _memsets,
        _is("gate 4 bytes, up 4 bytes"),
        scope="this-gpu",
    ),
    claim(
        "O-P4",
        "In the short trace each GEMM is faster than the same product, bare but timed for long.",
        _trace_over_bare,
        lambda shown: float(shown.value) > 1.02,
        scope="timing",
    ),
    claim(
        "O-P5",
        "The fused kernel takes about as long as eager's multiplication alone: GELU comes free.",
        trace_ratio(fused_us, mul_us),
        _between(0.85, 1.15),
        scope="timing",
    ),
    claim(
        "O-P6",
        "The compiled forward peaks lower than eager by at least one tensor of the hidden size.",
        _saved_memory,
        lambda shown: float(shown.value) >= 1,
    ),
    claim(
        "O-P7",
        "Liger's launch follows from the shape alone: a block for each row, its threads from the number of columns.",
        in_steps("liger", _liger_launch),
        _is("8192 blocks of 256 threads for 8192 rows of 3072"),
    ),
    claim(
        "O-P8",
        "Free of Dynamo is not free of overhead: at one token and at one sequence a Liger call keeps the CPU busy at "
        "least a fifth longer than an eager one.",
        smallest(*(paired(_SWEEP[2], _SWEEP[0], "enqueue", place) for place in (ONE_TOKEN, ONE_SEQUENCE))),
        lambda shown: float(shown.value) >= 1.2,
        scope="timing",
    ),
    claim(
        "O-P9",
        "With dynamic=False every new batch size compiles; by default only the first new one does.",
        _modes,
        _is("static: 3 of 3, automatic: 1 of 3"),
    ),
    claim(
        "O-P10",
        "A call that compiles takes at least twenty times as long as one that does not.",
        _cost_of_compiling,
        lambda shown: float(shown.value) >= 20,
        scope="timing",
    ),
    claim(
        "O-P11",
        "Fusion makes the whole forward 20 to 30 % faster.",
        paired(_FORWARD[0], _FORWARD[1], "warm"),
        _between(1.2, 1.43),
        "a 20–30 % wall-time speedup",
        scope="timing",
        differs="Part 2 says no such thing; it never times a whole forward. Most of the time is in GEMMs that fusion "
        "does not touch, and the pointwise part shrinks by less than half. Ask what share of the time an "
        "optimization can reach before believing what it promises.",
        who=ARTICLE,
    ),
    claim(
        "O-P12",
        "Fusion does pay on the GPU: the compiled forward and Liger's both take less GPU time than eager's.",
        smallest(paired(_FORWARD[0], _FORWARD[1], "warm"), paired(_FORWARD[0], _FORWARD[2], "warm")),
        lambda shown: float(shown.value) > 1.02,
        scope="timing",
    ),
    claim(
        "O-P13",
        "Fusion leaves 60 to 70 % less launch overhead; counted here: launches.",
        _launches_saved,
        _between(60, 70),
        "60–70 % less kernel launch overhead",
        scope="this-gpu",
        differs="One launch of five goes, and the CPU does not even get its time back: the layers that choose the "
        "fused kernel cost more than the launch it saves. Fusion of pointwise operators saves mostly memory traffic.",
        who=ARTICLE,
    ),
    claim(
        "O-P14",
        "Launched from Python at one token and at one sequence, the compiled forward and Liger's both take at least "
        "a tenth longer than eager's.",
        smallest(*(_slower_from_python(place, variant) for place in (ONE_TOKEN, ONE_SEQUENCE) for variant in (1, 2))),
        lambda shown: float(shown.value) >= 1.1,
        scope="timing",
    ),
    claim(
        "O-P16",
        "Keeping the tensor between in registers also keeps its precision: the compiled forward's error is at least "
        "a twentieth lower than eager's.",
        _error_ratio,
        lambda shown: float(shown.value) >= 1.05,
    ),
    claim(
        "O-P15",
        "On the GPU alone the compiled forward is faster than eager's at every size from one token up.",
        smallest(*(paired(_SWEEP[0], _SWEEP[1], "warm", place) for place in _SIZES)),
        lambda shown: float(shown.value) > 1.02,
        scope="timing",
    ),
    claim(
        "O-P17",
        "Compiled anew twelve times, the same forward gets one of two launch configurations for its fused kernel: "
        "1024 elements to a block of 128 threads, or 512 to one of 256.",
        _configs,
        _is("1024 elements to 128 threads, 512 elements to 256 threads"),
        scope="this-gpu",
    ),
    claim(
        "O-P18",
        "The fused kernel takes about one and a half times as long with the slower configuration.",
        _slow_over_fast,
        _between(1.35, 1.65),
        scope="timing",
    ),
    claim(
        "O-P19",
        "Neither is an exception: at least a quarter of the compilations get the slower one, and at least a quarter "
        "the faster.",
        _slow_share,
        _between(25, 75),
        scope="timing",
    ),
    claim(
        "O-P20",
        "The compiled forward that this page shows got the faster one.",
        _has_the_fastest,
        _is(True),
        scope="this-gpu",
    ),
    claim(
        "O-P21",
        "With the slower one, Inductor's kernel takes longer than Liger's.",
        trace_ratio(_slow_us, liger_us),
        lambda shown: float(shown.value) > 1.05,
        scope="timing",
    ),
    claim(
        "O-P22",
        "At a hidden size of 4096, a power of two, Liger's kernel takes at most a tenth longer than Inductor's.",
        trace_ratio(kernel_us("liger_4096", pointwise, 0), kernel_us("compiled_4096", pointwise, 0)),
        lambda shown: float(shown.value) <= 1.1,
        scope="timing",
    ),
    claim(
        "O-P23",
        "Liger's kernel has the same threads, registers and estimated occupancy at 3072 columns and at 4096.",
        _same_footprint,
        lambda shown: len({*str(shown.value).split("; ")}) == 1,
        scope="this-gpu",
    ),
)


def forward() -> Html:
    """One eager step as a picture."""
    return timeline({"eager": VARIANTS["eager"]}, shown_device(), "One eager forward")


def kernels() -> Html:
    """The GPU work of one eager step."""
    return kernel_table(VARIANTS["eager"], shown_device(), "One eager forward on the GPU")


def operators() -> Html:
    """The profiler's table of the eager steps."""
    caption = "The eager forward as the profiler's table has it"
    return profiler_table(VARIANTS["eager"], shown_device(), caption)


def gemm_times() -> Html:
    """The three GEMMs of eager: time in the trace, and of the same product bare and sustained."""
    device = shown_device()
    groups = {}
    for place, name in enumerate(("gate", "up", "down")):
        limit = bare_product(place, device)
        groups[f"{name}, {limit.what.removeprefix('matmul ')}"] = {
            "trace": over_steps("eager", gemms, place, device),
            "sustained": limit.timing,
        }
    caption = "The three GEMMs in the trace, and the same products bare and sustained"
    return timing_bars(caption, groups, ident="mlp-gemms", axis="time of one product, M x K x N")


def compiled_step() -> Html:
    """Eager and compiled as pictures on one scale."""
    shown = {name: VARIANTS[name] for name in ("eager", "compiled")}
    return timeline(shown, shown_device(), "One forward, eager and compiled")


def compiled_diff() -> Html:
    """What compiling changes in a step."""
    caption, names = "From the eager forward to the compiled one", ("eager", "compiled")
    return diff_table(*_FORWARD[:2], shown_device(), names, caption, work=(None, fused_work))


def liger_diff() -> Html:
    """What Liger's layer changes in a step, and where the layer came from."""
    device = shown_device()
    origin = escape(str(load_recording(VARIANTS["Liger"], device).data["liger"]))
    caption, names = "From the eager forward to the one with Liger's layer", ("eager", "Liger")
    listed = diff_table(*_FORWARD[::2], device, names, caption, work=(None, fused_work))
    return Html(f"<p>The layer came from {origin}.</p>{listed}")


def traffic() -> Html:
    """The tensors that the pointwise part has to move, eager and compiled."""
    device = shown_device()
    of = {name: load_trace(VARIANTS[name], device) for name in ("eager", "compiled")}
    hidden = {name: hidden_bytes(traced, middle_step(traced)) for name, traced in of.items()}
    moved = {
        "eager": ("gate, read", "GELU's result, written", "GELU's result, read again", "up, read", "product, written"),
        "compiled": ("gate, read", "up, read", "product, written"),
    }
    parts = {name: [(part, hidden[name]) for part in parts] for name, parts in moved.items()}
    return bytes_moved("What the pointwise part has to move", parts, ident="mlp-traffic")


def footprints() -> Html:
    """The two fused kernels side by side: how the work is cut, and what a thread costs."""
    device = shown_device()
    columns: dict[str, GpuActivity] = {}
    for variant in ("compiled", "liger"):
        traced = load_trace(f"mlp/{variant}", device)
        step = middle_step(traced)
        columns[variant] = pick(pointwise(traced, step), 0)
        elements = hidden_bytes(traced, step) // BF16_BYTES
    threads = {
        name: math.prod(kernel.grid or (0,)) * math.prod(kernel.block or (0,)) for name, kernel in columns.items()
    }
    rows: list[Sequence[Cell]] = [
        ["kernel", *(kernel_name_html(one.name) for one in columns.values())],
        ["blocks", *(f"{math.prod(one.grid or (0,)):,}" for one in columns.values())],
        ["threads in a block", *(f"{math.prod(one.block or (0,)):,}" for one in columns.values())],
        ["elements for each thread", *(f"{elements / count:g}" for count in threads.values())],
        ["registers for each thread", *(str(one.registers) for one in columns.values())],
        ["percent of a copy's rate", *(percent_of_copy(name)(device).text for name in columns)],
        ["est. achieved occupancy", *(format_value(one.occupancy_percent or 0, "%") for one in columns.values())],
        ["time in the trace", *(figure_cell(of(device)) for of in (fused_us, liger_us))],
    ]
    return table("Two kernels for one job", ["", "Inductor's", "Liger's"], rows)


def choices() -> Html:
    """The fused kernel's time under each configuration that Inductor chose, beside Liger's; then each compilation."""
    device = shown_device()
    each = compiled_anew(device)
    groups = {
        f"{one}: {len(one.times_us)} of {len(each)}": {"Inductor": timing_of(one.times_us)} for one in configs(device)
    }
    groups["a row to a block"] = {"Liger": over_steps("liger", pointwise, 0, device)}
    caption = "One forward compiled anew: launch configurations of the fused kernel, and their times"
    chart = timing_bars(caption, groups, ident="mlp-choices", axis="time of the fused kernel")
    rows: list[Sequence[Cell]] = [
        [place, elements, threads, f"{elements / threads:g}", format_value(us, "us")]
        for place, (elements, threads, us) in enumerate(each, 1)
    ]
    head = ["compilation", "elements in a block", "threads in a block", "elements for each thread", "median time"]
    return Html(chart + details("Each compilation", table("Each compilation in order", head, rows)))


def side_by_side() -> Html:
    """All three variants as pictures on one scale."""
    return timeline(VARIANTS, shown_device(), "One forward, three ways")


def cpu_and_gpu() -> Html:
    """How long GPU and CPU take for a step, by variant."""
    return cpu_gpu_bars(VARIANTS, shown_device(), "One forward without the profiler: GPU time and CPU time")


def new_shapes() -> Html:
    """Compilations so far and time of the first call, for four batch sizes in turn."""
    data = load_recording("mlp/new_shapes", shown_device()).data
    shown = [data[mode] for mode in ("static", "automatic", "liger") if mode in data]
    rows = []
    for i, batch in enumerate(data["batches"]):
        pairs = [(of["compiled"][i], format_value(1e3 * of["first_call_ms"][i], "us")) for of in shown]
        rows.append([batch, *itertools.chain(*pairs)])
    titles = ("dynamic=False", "default", "Liger")[: len(shown)]
    head = ["batch", *itertools.chain(*((title, "first call") for title in titles))]
    return table("Four batch sizes in turn: compilations so far, and how long the first call took", head, rows)


def bought() -> Html:
    """The three variants end to end: time on the GPU, from Python, ratios to eager, memory, error."""
    device = shown_device()
    quantities = {
        "GPU time, warm": "warm_us",
        "GPU time, cold cache": "cold_us",
        "from Python, until the GPU is done": "launched_us",
        "peak memory of a call": "peak_memory_bytes",
        "relative error": "relative_error",
    }
    listed = comparison_table(VARIANTS, quantities, device, "One forward, three ways")
    rows = [
        [title, *(figure_cell(paired("mlp/eager", other, kind)(device)) for other in _FORWARD[1:])]
        for title, kind in (("GPU time, warm", "warm"), ("GPU time, cold cache", "cold"), ("from Python", "launched"))
    ]
    return Html(listed + table("How many times as fast as eager (paired timings)", ["", "compiled", "Liger"], rows))


def kernel_times() -> Html:
    """GPU time of a step by kernel, by variant."""
    return kernel_bars(VARIANTS, shown_device(), "Where the GPU's time goes in one forward")


def regimes() -> Html:
    """From one token to many: who waits for whom, by variant."""
    caption = "One forward, from one token to many"
    return regimes(SWEEPS, shown_device(), _tokens, caption, axis="tokens")


def roofline() -> Html:
    """From one token to many: the compiled forward below this GPU's roofs."""
    device, sweep = shown_device(), SWEEPS["compiled"]
    shown = {}
    for at in load_recording(sweep, device).points:
        count = _tokens(at.parameters)
        place = f"batch={at.parameters['batch']},seq={at.parameters['seq']}"
        shown[f"{count:,} token{'s' * (count != 1)}"] = f"{sweep}[{place}]"
    return roofline(shown, device, "The compiled forward without launches, from one token to many")


def _tokens(parameters: Mapping[str, int | str]) -> int:
    return int(parameters["batch"]) * int(parameters["seq"])


def widths() -> Html:
    """The two fused kernels at a hidden size that is no power of two, and at one that is."""
    device = shown_device()
    groups = {
        f"{width} columns": {
            "Inductor": over_steps(f"compiled{suffix}", pointwise, 0, device),
            "Liger": over_steps(f"liger{suffix}", pointwise, 0, device),
        }
        for width, suffix in WIDTHS.items()
    }
    return timing_bars("The fused kernel at two widths", groups, ident="mlp-widths", axis="time in the trace")


def replayed() -> Html:
    """One token: how long Python takes for a forward, and how long the replay of a CUDA graph."""
    device = shown_device()
    groups = {}
    for name, experiment in SWEEPS.items():
        timed = timings(experiment, device, ONE_TOKEN)
        groups[name] = {"Python": timed.launched, "CUDA graph": timed.warm}
    return timing_bars("One token: launched from Python, and replayed", groups, ident="mlp-replayed")


def _gelu_of_gate(traced: Trace, step: Step) -> float:
    return 100 * pick(pointwise(traced, step), 0).duration_us / gemms(traced, step)[0].duration_us


def _share(traced: Trace, step: Step) -> float:
    return 100 * _pointwise_us(traced, step) / kernel_time_us(step.kernels)


def _series_speedup(_: str) -> Figure:
    """Eager's pointwise part from the fused kernel's time, by the bytes: five tensors against three."""
    rest = sum(SERIES_GEMMS_US)
    value = (rest + SERIES_FUSED_US * 5 / 3) / (rest + SERIES_FUSED_US)
    return Figure(value, "x", origin="computed from the times that Part 2 gives for its A100, at equal bandwidth")


def _saved_us(device: str) -> Figure:
    eager, fused = (timings(name, device).warm.samples_us for name in _FORWARD[:2])
    q1, median, q3 = statistics.quantiles([a - b for a, b in zip(eager, fused, strict=True)], n=4, method="inclusive")
    return Figure(median, "us", (q1, q3), "mlp/eager less mlp/compiled, warm, in turns")


def _predicted_us(device: str) -> Figure:
    rate = copy_rate("compiled", device)
    return Figure(float(_saved_bytes(device).value) / rate * 1e6, "us", origin="the saved bytes at a plain copy's rate")


def _free_pointwise(device: str) -> Figure:
    share = amount("eager", "%", _share)(device)
    return Figure(1 / (1 - float(share.value) / 100), "x", origin=share.origin)


def _replayed(device: str) -> Figure:
    """The compiled forward of one token: time from Python over that of a CUDA graph's replay."""
    times = timings(SWEEPS["compiled"], device, ONE_TOKEN)
    return Figure(times.launched.median_us / times.warm.median_us, "x", origin="mlp/sweep_compiled, launched over warm")


def _clock(device: str) -> Figure:
    clocks = load_recording("mlp/eager", device).circumstances.clocks
    if "sm_mhz" not in clocks:
        raise RecordingError("mlp/eager has no clocks; make record CHAPTER=mlp")
    return Figure(clocks["sm_mhz"], said=f"{clocks['sm_mhz']:,.0f} MHz", origin="nvidia-smi, just after timing")


def _pointwise_us(traced: Trace, step: Step) -> float:
    return kernel_time_us(pointwise(traced, step))


FIGURES: Mapping[str, Callable[[str], Figure]] = {
    "order": in_steps("eager", order),
    "gate_gemm": in_steps("eager", lambda t, s: gemms(t, s)[0].name),
    "down_gemm": in_steps("eager", lambda t, s: gemms(t, s)[2].name),
    "gemm_kinds": in_steps("eager", lambda t, s: len({kernel.name for kernel in gemms(t, s)})),
    "working_op": in_steps("eager", working_ops),
    "chain_over_mm": _chain_over_mm,
    "gate_us": kernel_us("eager", gemms, 0),
    "gelu_us": gelu_us,
    "gelu_of_gate": amount("eager", "%", _gelu_of_gate),
    "mul_us": mul_us,
    "fused_us": fused_us,
    "liger_us": liger_us,
    "gemm_flops": amount("eager", "flop", lambda t, s: 2 * math.prod(products(t, s)[0])),
    "intermediate_bytes": amount("eager", "bytes", intermediate_bytes),
    "eager_bytes": amount("eager", "bytes", _pointwise_bytes),
    "fused_bytes": amount("compiled", "bytes", _pointwise_bytes),
    "saved_bytes": _saved_bytes,
    "saved_us": _saved_us,
    "predicted_us": _predicted_us,
    "gelu_percent": percent_of_copy("eager", 0),
    "liger_cpu_side": in_steps("liger", _cpu_side),
    "liger_over_inductor": trace_ratio(liger_us, fused_us),
    "slow_choices": _slow_choices,
    "slow_over_fast": _slow_over_fast,
    "slow_us": _slow_us,
    "slow_speedup": _slow_speedup,
    "shown_config": in_steps("compiled", _shown_config),
    "by_cpu": _by_cpu,
    "automatic_compilations": lambda device: Figure(compilations("automatic", device)[-1], origin="mlp/new_shapes"),
    "clock": _clock,
    "pointwise_share": amount("eager", "%", _share),
    "free_pointwise": _free_pointwise,
    "pointwise_speedup": trace_ratio(amount("eager", "us", _pointwise_us), fused_us),
    "series_speedup": _series_speedup,
    "compiled_speedup": paired(_FORWARD[0], _FORWARD[1], "warm"),
    "liger_speedup": paired(_FORWARD[0], _FORWARD[2], "warm"),
    "compiled_from_python": paired(_FORWARD[0], _FORWARD[1], "launched"),
    "one_token_compiled": _slower_from_python(ONE_TOKEN, 1),
    "one_token_liger": _slower_from_python(ONE_TOKEN, 2),
    "one_token_gpu": paired(_SWEEP[0], _SWEEP[1], "warm", ONE_TOKEN),
    "one_token_replayed": _replayed,
    "wide_fused_percent": percent_of_copy("compiled_4096"),
    "wide_liger_percent": percent_of_copy("liger_4096"),
    "wide_ratio": trace_ratio(kernel_us("liger_4096", pointwise, 0), kernel_us("compiled_4096", pointwise, 0)),
    "wide_compiled_speedup": paired("mlp/eager_4096", "mlp/compiled_4096", "warm"),
    "wide_liger_speedup": paired("mlp/eager_4096", "mlp/liger_4096", "warm"),
}
"""The chapter's own numbers, `#!fig mlp.<name>`."""
