"""What the first questions of the chapter fused_mlp show and claim: bytes, the compiler, pointwise, one Linear."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape

from snippets.fused_mlp.findings.measures import BF16_BYTES, at_least, at_most, paired, percent, timings
from snippets.lab.drawing.charts import bytes_moved
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure, format_value
from snippets.lab.finding.measure import of_steps, per_step
from snippets.lab.finding.quantities import figure, point
from snippets.lab.html import Cell, Html, table
from snippets.lab.page.diff import diff_table
from snippets.lab.page.tables import comparison_table, figure_cell
from snippets.lab.recording.ceilings import COPY, LARGE_MATMUL, ceiling_rates
from snippets.lab.recording.device import DEFAULT_DEVICE, shown_device
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import RecordingError
from snippets.lab.trace.events import Step, Trace, TraceError
from snippets.lab.trace.queries import middle_step
from snippets.lab.trace.work import ActivityWork, step_work

# KEEP recording
from snippets.mlp.findings import fused_work

POINTWISE = {
    "ours": "fused_mlp/pointwise_fused",
    "copy": "fused_mlp/pointwise_copy",
    "compiled": "fused_mlp/pointwise_compiled",
    "Liger": "fused_mlp/pointwise_liger",
    "eager": "fused_mlp/pointwise_eager",
}
LINEAR = {"ours": "fused", "cuBLAS's epilogue": "addmm", "eager": "eager", "compiled": "compiled"}
"""Heading -> what the name of its recording ends in."""
FEW, MANY = 64, 8192
"""Rows of the Linear's input."""


# ---- bytes and ceilings


def kernel_works(traced: Trace, step: Step) -> tuple[ActivityWork, ...]:
    """The least that each kernel of a forward had to do, in order. Raises `TraceError` where the trace tells not all.

    The pointwise kernel of a compiled step is known: it reads the results of two products and writes a factor of the
    third.
    """
    works = step_work(traced, step, fused_work)
    known = [work for work, one in zip(works, step.activities, strict=True) if work and one.kind == "kernel"]
    if len(known) != len(step.kernels):
        raise TraceError(f"{step.name} does not tell the work of all its kernels; make record CHAPTER=fused_mlp")
    return tuple(known)


def moved_bytes(traced: Trace, step: Step) -> int:
    """Bytes that the kernels of a step have to move, each on its own."""
    return sum(work.bytes for work in kernel_works(traced, step))


def hidden_size_bytes(traced: Trace, step: Step) -> int:
    """Bytes of the tensor that the step's first product writes. Raises `TraceError` for a step without a product."""
    for work in kernel_works(traced, step):
        if work.product:
            return BF16_BYTES * work.product[0] * work.product[2]
    raise TraceError(f"{step.name} has no product; make record CHAPTER=fused_mlp")


def hidden_trips(traced: Trace, step: Step) -> int:
    """How often the kernels of a step read or write a tensor of the hidden size."""
    hidden = hidden_size_bytes(traced, step)
    trips = 0
    for work in kernel_works(traced, step):
        if work.product:
            m, k, n = work.product
            trips += sum(BF16_BYTES * elements == hidden for elements in (m * k, k * n, m * n))
        else:
            trips += work.bytes // hidden
    return trips


def _forward_bytes(variant: str) -> Callable[[str], Figure]:
    def measure(device: str) -> Figure:
        traced = load_trace(f"fused_mlp/{variant}", device)
        origin = f"fused_mlp/{variant}, shapes in its trace"
        return per_step(traced, lambda step: moved_bytes(traced, step), "bytes", origin)

    return measure


def _fused_bytes(device: str) -> Figure:
    """A kernel for gate, up and activation, and one for down: what the first has to move, and eager's last product."""
    traced = load_trace("fused_mlp/eager", device)
    *_, down = kernel_works(traced, middle_step(traced))
    first = point(load_recording("fused_mlp/gate_up_fused", device)).bytes
    return Figure(first + down.bytes, "bytes", origin="the shapes: two kernels, the hidden tensor between them")


def _least_bytes(device: str) -> Figure:
    least = point(load_recording("fused_mlp/eager", device)).bytes
    return Figure(least, "bytes", origin="the shapes: input, weights and result once each")


def _avoidable(device: str) -> Figure:
    moved, least = _forward_bytes("eager")(device), _least_bytes(device)
    return Figure(100 * (1 - float(least.value) / float(moved.value)), "%", origin=f"{moved.origin}; {least.origin}")


def _saved_by_two(device: str) -> Figure:
    moved, fused = _forward_bytes("eager")(device), _fused_bytes(device)
    return Figure(100 * (1 - float(fused.value) / float(moved.value)), "%", origin=f"{moved.origin}; {fused.origin}")


def _trips(device: str) -> Figure:
    found = []
    for variant in ("eager", "compiled"):
        traced = load_trace(f"fused_mlp/{variant}", device)
        found.append(of_steps(traced, functools.partial(hidden_trips, traced)))
    said = ", ".join(f"{name} {one.value}" for name, one in zip(("eager", "compiled"), found, strict=True))
    return Figure(said, origin="shapes in the traces", conclusive=all(one.conclusive for one in found))


def _rate(what: str, device: str) -> float:
    rates = ceiling_rates(load_recording("fused_mlp/eager", device))
    if what not in rates:
        raise RecordingError(f"fused_mlp/eager has no ceiling {what!r}; make record CHAPTER=fused_mlp")
    return rates[what]


def _copy_us(of: Callable[[str], Figure]) -> Callable[[str], Figure]:
    """A measure: how long as many bytes take at the rate of the session's copy."""

    def measure(device: str) -> Figure:
        return Figure(float(of(device).value) / _rate(COPY, device) * 1e6, "us", origin="at the rate of a large copy")

    return measure


def _flops_us(device: str) -> Figure:
    flops = point(load_recording("fused_mlp/eager", device)).flops
    return Figure(flops / _rate(LARGE_MATMUL, device) * 1e6, "us", origin=f"at the rate of {LARGE_MATMUL}")


def _bytes_over_flops(device: str) -> Figure:
    least, flops = _copy_us(_least_bytes)(device), _flops_us(device)
    return Figure(100 * float(least.value) / float(flops.value), "%", origin="each at its ceiling, of one session")


def _flops_of_eager(device: str) -> Figure:
    flops, warm = float(_flops_us(device).value), timings("fused_mlp/eager", device).warm
    shares = [100 * flops / us for us in (warm.median_us, warm.q3_us, warm.q1_us)]
    return Figure(shares[0], "%", (shares[1], shares[2]), f"{LARGE_MATMUL} and fused_mlp/eager, warm, of one session")


def _rows_that_fit(device: str) -> Figure:
    """Rows of the hidden tensor for which one multiprocessor's shared memory has room."""
    data, parameters = (load_recording(f"fused_mlp/{name}", device) for name in ("resources", "eager"))
    hidden = int(point(parameters).parameters["hidden"])
    return Figure(int(data.data["device"]["shared_bytes"]) // (BF16_BYTES * hidden), origin="fused_mlp/resources")


# ---- what Inductor generates


def _calls(mode: str, device: str) -> list[str]:
    data = load_recording("fused_mlp/generated", device).data
    if mode not in data:
        raise RecordingError(f"fused_mlp/generated has no {mode!r}; make record CHAPTER=fused_mlp")
    return [str(call) for call in data[mode]["calls"]]


def _own_products(device: str) -> Figure:
    """How many of the products max-autotune gave to kernels of its own, which it calls templates."""
    calls = _calls("max_autotune", device)
    return Figure(sum(call.startswith("triton_tem") for call in calls), origin="fused_mlp/generated")


def _both_modes(device: str) -> Figure:
    default, tuned = (", ".join(_calls(mode, device)) for mode in ("compiled", "max_autotune"))
    return Figure(default if default == tuned else f"{default}; max-autotune: {tuned}", origin="fused_mlp/generated")


def _calls_cublas(shown: Figure) -> bool:
    product = r"extern_kernels\.mm"
    return re.fullmatch(rf"{product}, {product}, triton_poi_\w+, {product}", str(shown.value)) is not None


def _products_of(variant: str, device: str) -> Figure:
    traced = load_trace(f"fused_mlp/{variant}", device)

    def names(step: Step) -> str:
        owners = ((traced.op_of(kernel), kernel.name) for kernel in step.kernels)
        return ", ".join(name for op, name in owners if op is not None and op.name == "aten::mm")

    return of_steps(traced, names, f"fused_mlp/{variant}")


def _same_products(device: str) -> Figure:
    eager, tuned = (_products_of(variant, device) for variant in ("eager", "max_autotune"))
    same = eager.value == tuned.value and str(eager.value).count(",") == 2
    return Figure(same, origin="names in the traces", conclusive=eager.conclusive and tuned.conclusive)


# ---- timings


def _extreme(choose: Callable[..., Figure], upper: str, lower: str) -> Callable[[str], Figure]:
    """A measure: the smallest or the largest of the two ratios, warm and cold."""
    both = [paired(f"fused_mlp/{upper}", f"fused_mlp/{lower}", kind) for kind in ("warm", "cold")]
    return lambda device: choose((measure(device) for measure in both), key=lambda shown: float(shown.value))


def _of_large_copy(kind: str) -> Callable[[str], Figure]:
    """A measure: our pointwise kernel's bytes a second in percent of the large copy's, the ceiling of its session."""

    def measure(device: str) -> Figure:
        found, timed = load_recording(POINTWISE["ours"], device), getattr(timings(POINTWISE["ours"], device), kind)
        most = ceiling_rates(found)[COPY]
        median, low, high = (
            100 * point(found).bytes / us * 1e6 / most for us in (timed.median_us, timed.q3_us, timed.q1_us)
        )
        return Figure(median, "%", (low, high), f"{found.id}, {kind}, of a large copy")

    return measure


def _error_over_inductor(device: str) -> Figure:
    ours, theirs = (point(load_recording(POINTWISE[name], device)).relative_error for name in ("ours", "compiled"))
    return Figure(ours / theirs, "x", origin="our relative error over that of Inductor's kernel")


# ---- a Linear with its activation


def _linear_kernels(device: str) -> Figure:
    shown, conclusive = [], True
    for name, suffix in LINEAR.items():
        counts = [figure(f"fused_mlp.linear_{rows}_{suffix}.kernels_per_step", device) for rows in (FEW, MANY)]
        conclusive = conclusive and all(one.conclusive for one in counts)
        shown.append(f"{name} {' and '.join(dict.fromkeys(one.text for one in counts))}")
    return Figure(", ".join(shown), origin="the traces", conclusive=conclusive)


def _linear_kernel(rows: int) -> Callable[[str], Figure]:
    def measure(device: str) -> Figure:
        name = f"fused_mlp/linear_{rows}_fused"
        traced = load_trace(name, device)
        return of_steps(traced, lambda step: ", ".join(kernel.name for kernel in step.kernels), name)

    return measure


def _linear_by(kind: str) -> Callable[[str], Figure]:
    """The four ways at few rows, the fastest first."""

    def measure(device: str) -> Figure:
        times = {
            name: getattr(timings(f"fused_mlp/linear_{FEW}_{suffix}", device), kind).median_us
            for name, suffix in LINEAR.items()
        }
        return Figure(", ".join(sorted(times, key=times.__getitem__)), origin=f"{kind}, in turns")

    return measure


def _trace_over_warm(suffix: str) -> Callable[[str], Figure]:
    """A measure: the kernel's own time in the trace over the time of a step in a row of replays, at few rows."""

    def measure(device: str) -> Figure:
        name = f"fused_mlp/linear_{FEW}_{suffix}"
        own, warm = figure(f"{name.replace('/', '.')}.kernel_time_us", device), timings(name, device).warm
        low, high = own.spread or (float(own.value), float(own.value))
        spread = (low / warm.q3_us, high / warm.q1_us)
        return Figure(float(own.value) / warm.median_us, "x", spread, f"{name}: kernel time in the trace over warm")

    return measure


def _own_time_over_addmm(rows: int) -> Callable[[str], Figure]:
    """A measure: our kernel's time in the trace over that of cuBLAS's, from the extremes of their steps."""

    def measure(device: str) -> Figure:
        found = [figure(f"fused_mlp.linear_{rows}_{suffix}.kernel_time_us", device) for suffix in ("fused", "addmm")]
        (ours, least, most), (theirs, their_least, their_most) = (
            map(float, (one.value, *(one.spread or (one.value, one.value)))) for one in found
        )
        spread = (least / their_most, most / their_least)
        return Figure(ours / theirs, "x", spread, "kernel times in two traces of one session")

    return measure


def _over_bare(device: str) -> Figure:
    name = f"fused_mlp/linear_{MANY}_fused"
    bare = next((one for one in load_recording(name, device).ceilings if one.what == f"matmul {MANY}x1024x4096"), None)
    if bare is None:
        raise RecordingError(f"{name} lacks the bare product of its shape; make record CHAPTER=fused_mlp")
    warm = timings(name, device).warm
    spread = (warm.q1_us / bare.timing.median_us, warm.q3_us / bare.timing.median_us)
    return Figure(warm.median_us / bare.timing.median_us, "x", spread, f"{name}, warm, over cuBLAS's bare product")


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "F1",
        "The kernels of an eager forward read or write a tensor of the hidden size eight times, those of a compiled "
        "one six times.",
        "every-gpu",
        _trips,
        lambda shown: shown.value == "eager 8, compiled 6",
    ),
    Claim(
        "F2",
        "More than nine tenths of the bytes that an eager forward moves need not be moved.",
        "every-gpu",
        _avoidable,
        lambda shown: float(shown.value) > 90,
    ),
    Claim(
        "F3",
        "At this session's ceilings the least bytes take less than a tenth of the time of the arithmetic.",
        "timing",
        _bytes_over_flops,
        lambda shown: float(shown.value) < 10,
    ),
    Claim(
        "F4",
        "At the rate of a large product the arithmetic alone takes more than half of the eager forward's time.",
        "timing",
        _flops_of_eager,
        lambda shown: float(shown.value) > 50,
    ),
    Claim(
        "F5",
        "By default and with max-autotune Inductor's code is the same: two products by cuBLAS, one pointwise kernel "
        "in Triton, one product by cuBLAS.",
        "this-gpu",
        _both_modes,
        _calls_cublas,
    ),
    Claim(
        "F6",
        "With max-autotune the three products run eager's kernels, name for name.",
        "this-gpu",
        _same_products,
        lambda shown: shown.value is True,
    ),
    Claim(
        "F7",
        "With a cold cache our pointwise kernel reaches at least nineteen twentieths of the rate of a copy that moves "
        "as many bytes.",
        "timing",
        percent(paired("fused_mlp/pointwise_copy", "fused_mlp/pointwise_fused", "cold")),
        at_least(95),
    ),
    Claim(
        "F8",
        "Our pointwise kernel is not slower than Inductor's, warm or cold.",
        "timing",
        _extreme(max, "pointwise_fused", "pointwise_compiled"),
        at_most(1.02),
    ),
    Claim(
        "F9",
        "Eager's two kernels take at least three fifths longer than our one, warm and cold.",
        "timing",
        _extreme(min, "pointwise_eager", "pointwise_fused"),
        at_least(1.6),
    ),
    Claim(
        "F10",
        "Liger's kernel takes at least a tenth longer than ours, warm and cold.",
        "timing",
        _extreme(min, "pointwise_liger", "pointwise_fused"),
        at_least(1.1),
    ),
    Claim(
        "F11",
        "The one-instruction tanh costs no accuracy that bf16 could show: our error is at most a hundredth above that "
        "of Inductor's kernel, which computes tanh in full.",
        "this-gpu",
        _error_over_inductor,
        at_most(1.01),
    ),
    Claim(
        "F12",
        "Eager and compiled run two kernels for a Linear with GELU; cuBLAS's epilogue and ours run one.",
        "every-gpu",
        _linear_kernels,
        lambda shown: shown.value == "ours 1, cuBLAS's epilogue 1, eager 2, compiled 2",
    ),
    Claim(
        "F13",
        "At 8192 rows ours takes at least a twentieth less time than cuBLAS's own epilogue, warm and cold.",
        "timing",
        _extreme(max, f"linear_{MANY}_fused", f"linear_{MANY}_addmm"),
        at_most(0.95),
    ),
    Claim(
        "F14",
        "At 8192 rows ours, bias and GELU included, takes no longer than cuBLAS's bare product of that shape.",
        "timing",
        _over_bare,
        at_most(1.0),
    ),
    Claim(
        "F15",
        "At 64 rows ours is not slower than cuBLAS's epilogue in a row of replays.",
        "timing",
        paired(f"fused_mlp/linear_{FEW}_fused", f"fused_mlp/linear_{FEW}_addmm", "warm"),
        at_most(1.0),
    ),
    Claim(
        "F16",
        "At 64 rows ours is not slower than cuBLAS's epilogue with a cold cache, alone.",
        "timing",
        paired(f"fused_mlp/linear_{FEW}_fused", f"fused_mlp/linear_{FEW}_addmm", "cold"),
        at_most(1.0),
        expected={DEFAULT_DEVICE: "differs"},
        why="Alone, a kernel has no other to hide its start behind, and both have to fetch the weight from memory. "
        "cuBLAS's kernel is the faster one then; in a row of them ours wins only because they overlap. Ask where a "
        "small kernel will stand before choosing it.",
    ),
    Claim(
        "F17",
        "In a row of replays at 64 rows a step of ours takes less time than its own kernel in the trace.",
        "timing",
        _trace_over_warm("fused"),
        lambda shown: float(shown.value) > 1.02,
    ),
    Claim(
        "F19",
        "At 64 rows our kernel, by itself in the trace, takes at least a twentieth longer than cuBLAS's.",
        "timing",
        _own_time_over_addmm(FEW),
        at_least(1.05),
    ),
    Claim(
        "F18",
        "At 64 rows a call of ours from Python keeps the CPU busy at least three times as long as one of cuBLAS's "
        "epilogue.",
        "timing",
        paired(f"fused_mlp/linear_{FEW}_fused", f"fused_mlp/linear_{FEW}_addmm", "enqueue"),
        at_least(3),
    ),
)


def forward_traffic() -> Html:
    """What the kernels of a forward have to move: eager, compiled, with two fused kernels, and the least."""
    device = shown_device()
    traced = load_trace("fused_mlp/eager", device)
    hidden = hidden_size_bytes(traced, middle_step(traced))
    trips = {
        "eager": ("gate's result", "up's result", "GELU's result", "hidden tensor"),
        "compiled": ("gate's result", "up's result", "hidden tensor"),
        "two fused kernels": ("hidden tensor",),
        "the least": (),
    }
    parts = {}
    for name, (_, of) in _FORWARDS.items():
        rest = int(of(device).value) - 2 * hidden * len(trips[name])
        parts[name] = [
            ("inputs, weights, result", rest),
            *((f"{one}, out and back", 2 * hidden) for one in trips[name]),
        ]
    return bytes_moved("What one forward has to move", parts, ident="fused-mlp-traffic")


_FORWARDS: Mapping[str, tuple[str, Callable[[str], Figure]]] = {
    "eager": ("fused_mlp/eager", _forward_bytes("eager")),
    "compiled": ("fused_mlp/compiled", _forward_bytes("compiled")),
    "two fused kernels": ("", _fused_bytes),
    "the least": ("", _least_bytes),
}
"""Heading -> recording of what is timed here, and the bytes."""


def floors() -> Html:
    """Bytes of a forward, how long they and the arithmetic take at the session's ceilings, and the measured time."""
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for name, (timed, of) in _FORWARDS.items():
        measured = figure_cell(figure(f"{timed.replace('/', '.')}.warm_us", device)) if timed else None
        rows.append([name, of(device).text, _copy_us(of)(device).text, _flops_us(device).text, measured])
    head = ["", "bytes", "as a copy", "arithmetic", "measured"]
    return table(
        "One forward: bytes at a large copy's rate, arithmetic at a large product's, and the measured time, warm",
        head,
        rows,
    )


def generated_kernel() -> Html:
    """The one kernel that Inductor writes for the forward, as its source was recorded."""
    data = load_recording("fused_mlp/generated", shown_device()).data
    source = "\n\n".join(map(str, data["compiled"]["kernels"]))
    return Html(f'<pre data-search-exclude><code tabindex="0">{escape(source)}</code></pre>')


def pointwise_compared() -> Html:
    """Five ways to read two tensors and write one, or as many bytes: times, rate, and what a thread costs."""
    device = shown_device()
    rows: list[Sequence[Cell]] = [
        [
            title,
            *(figure_cell(figure(f"{name.replace('/', '.')}.{kind}_us", device)) for name in POINTWISE.values()),
        ]
        for title, kind in (("GPU time, warm", "warm"), ("GPU time, cold cache", "cold"))
    ]
    share = (percent(paired("fused_mlp/pointwise_copy", name, "cold")) for name in POINTWISE.values())
    rows.append(["cold, of the copy's rate", *(figure_cell(measure(device)) for measure in share)])
    kernels = {name: _launches(name, device) for name in POINTWISE.values()}
    for title, place in (("registers of a thread", 0), ("threads of a block", 1), ("elements for each thread", 2)):
        rows.append([title, *(", ".join(one[place] for one in found) or None for found in kernels.values())])
    errors = (point(load_recording(name, device)).relative_error for name in POINTWISE.values())
    rows.append(["relative error", *(format_value(error) if error else None for error in errors)])
    return table("The activation of one tensor times another: four ways, and a copy", ["", *POINTWISE], rows)


def _launches(experiment: str, device: str) -> list[tuple[str, str, str]]:
    """Registers of a thread, threads of a block and elements for each thread, of each kernel of a step."""
    traced = load_trace(experiment, device)
    at = point(load_recording(experiment, device)).parameters
    elements = int(at["tokens"]) * int(at["hidden"])
    found = []
    for kernel in middle_step(traced).kernels:
        threads = math.prod(kernel.block or (0,))
        each = elements / (math.prod(kernel.grid) * threads) if threads and kernel.grid else 0
        found.append((str(kernel.registers), f"{threads:,}", f"{each:g}"))
    return found


def linear_compared(rows: int) -> Html:
    """A Linear with GELU, four ways, for an input of that many rows."""
    names = {heading: f"fused_mlp/linear_{rows}_{suffix}" for heading, suffix in LINEAR.items()}
    quantities = {
        "kernels": "kernels_per_step",
        "kernel time in the trace": "kernel_time_us",
        "GPU time, warm": "warm_us",
        "GPU time, cold cache": "cold_us",
        "from Python, until the GPU is done": "launched_us",
        "CPU's share of it": "enqueue_us",
        "relative error": "relative_error",
    }
    return comparison_table(names, quantities, shown_device(), f"A Linear with GELU, {rows:,} rows")


def linear_diff() -> Html:
    """What the fused Linear changes in a step of many rows."""
    names = ("eager", "ours")
    steps = (f"fused_mlp/linear_{MANY}_eager", f"fused_mlp/linear_{MANY}_fused")
    return diff_table(*steps, shown_device(), names, "From the eager Linear and GELU to one kernel")


FIGURES: Mapping[str, Callable[[str], Figure]] = {
    "eager_bytes": _forward_bytes("eager"),
    "least_bytes": _least_bytes,
    "avoidable": _avoidable,
    "saved_by_two": _saved_by_two,
    "arithmetic_us": _flops_us,
    "rows_that_fit": _rows_that_fit,
    "own_products": _own_products,
    "pointwise_of_copy": percent(paired("fused_mlp/pointwise_copy", "fused_mlp/pointwise_fused", "cold")),
    "pointwise_of_large_copy": _of_large_copy("cold"),
    "pointwise_of_large_copy_warm": _of_large_copy("warm"),
    "linear_over_addmm": paired(f"fused_mlp/linear_{MANY}_fused", f"fused_mlp/linear_{MANY}_addmm", "warm"),
    "linear_over_addmm_in_trace": _own_time_over_addmm(MANY),
    "linear_kernel_few": _linear_kernel(FEW),
    "linear_kernel_many": _linear_kernel(MANY),
    "linear_few_from_python": _linear_by("launched"),
    "linear_few_warm": paired(f"fused_mlp/linear_{FEW}_fused", f"fused_mlp/linear_{FEW}_addmm", "warm"),
    "linear_few_enqueue": paired(f"fused_mlp/linear_{FEW}_fused", f"fused_mlp/linear_{FEW}_addmm", "enqueue"),
}
