"""The bytes of a forward, how many of them a fused kernel avoids, and why the compiler moves them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.queries import op_name
from kinetoscope.trace.work import ActivityWork, step_work
from snippets.fused_mlp.findings.probes import probed
from snippets.lab.finding import Device, Figure, Measure, TraceError, at_least, at_most, claim, equals, matches
from snippets.lab.finding.measure import derived, listed, share_of_ceiling, unpaired_ratio
from snippets.lab.finding.quantities import quantity
from snippets.lab.page import Computation, bytes_moved, figure_cell, prediction as prediction, show as show
from snippets.lab.recording.ceilings import COPY, LARGE_MATMUL
from snippets.mlp.findings.steps import fused_work

BF16_BYTES = 2
INSTRUCTION_ROWS = 64
"""Rows of a matrix instruction of Hopper."""
REGISTERS = 65_536
"""Of 4 bytes, in a multiprocessor: the same number in every GPU that the kernels run on."""


def kernel_work(step: Step) -> tuple[ActivityWork, ...]:
    """The minimum work of each kernel of a forward, in order. Raises `TraceError` if the trace lacks any.

    The work of a compiled step's pointwise kernel is known: it reads the results of two matmuls and writes a factor of
    the third.
    """
    works = zip(step_work(step, fused_work), step.activities, strict=True)
    known = tuple(work for work, activity in works if work and activity.kind == "kernel")
    if len(known) != len(step.kernels):
        raise TraceError(f"{step.name} lacks the work of some kernels; make record CHAPTER=fused_mlp")
    return known


def hidden_size_bytes(step: Step) -> int:
    """Bytes of the tensor that the step's first matmul writes. Raises `TraceError` for a step without a matmul."""
    for work in kernel_work(step):
        if work.matmul:
            return BF16_BYTES * work.matmul[0] * work.matmul[2]
    raise TraceError(f"{step.name} has no matmul; make record CHAPTER=fused_mlp")


def hidden_trips(step: Step, accesses: int | None = None) -> int:
    """The number of times that a step's kernels read or write a tensor of the hidden size.

    `accesses` are the loads and stores of a kernel that is not a matmul; None takes its operator's tensors.
    """
    hidden = hidden_size_bytes(step)
    trips = 0
    for work in kernel_work(step):
        if work.matmul:
            m, k, n = work.matmul
            trips += sum(BF16_BYTES * elements == hidden for elements in (m * k, k * n, m * n))
        else:
            trips += work.bytes // hidden if accesses is None else accesses
    return trips


def forward_bytes(device: Device, variant: str = "eager") -> Figure:
    """Sum of the bytes that each kernel of a forward must move."""
    return device[f"fused_mlp/{variant}"].per_step(lambda step: sum(work.bytes for work in kernel_work(step)), "bytes")


def fused_bytes(device: Device) -> Figure:
    """Bytes of a kernel for gate, up and activation, plus the bytes of eager's last matmul for down."""
    *_, down = kernel_work(device["fused_mlp/eager"].step)
    first = device["fused_mlp/gate_up_fused"].point.bytes
    return Figure(first + down.bytes, "bytes", origin="the shapes: two kernels, the hidden tensor between them")


def least_bytes(device: Device) -> Figure:
    """Input, weights and result once each."""
    return quantity(device["fused_mlp/eager"], "bytes")


LEAST = Computation(
    "How many bytes must any forward move?",
    "fused_mlp.least_bytes",
    "Input and result of 8192 x 768 numbers, and three weights of 768 x 3072, two bytes each.",
    "Count the input, the result and the three weights once each, two bytes a number.",
    {
        "fused_mlp.least_without_weights": "your result leaves out the weights.",
        "fused_mlp.eager_bytes": "your result counts what eager moves: each tensor as often as a kernel touches it.",
    },
)


def saved_percent(device: Device, fewer: Figure) -> Figure:
    """Percent of eager's bytes saved by moving only `fewer`."""
    moved = forward_bytes(device)
    return Figure(100 * (1 - fewer.number / moved.number), "%", origin=f"{moved.origin}; {fewer.origin}")


def floor_us(device: Device, work: Figure) -> Figure:
    """The time of bytes at the rate of the session's copy, or of FLOPs at the rate of its large matmul."""
    name = COPY if work.unit == "bytes" else LARGE_MATMUL
    rate = device["fused_mlp/eager"].ceiling(name).rate
    return Figure(work.number / rate * 1e6, "us", origin=f"at the rate of {name}")


def best_arithmetic_us(device: Device) -> Figure:
    """The time of the arithmetic at the highest rate of a bare product at any shape of the table."""
    ceilings = (ceiling for point in device["fused_mlp/bfloat16_eager"].whole.points for ceiling in point.ceilings)
    best = max((ceiling for ceiling in ceilings if ceiling.name != COPY), key=lambda ceiling: ceiling.rate)
    flops = quantity(device["fused_mlp/eager"], "flops").number
    return Figure(1e6 * flops / best.rate, "us", origin=f"at the rate of {best.name}")


def over_best_arithmetic(device: Device) -> Figure:
    """The interleaved time of the package's forward / the time of its arithmetic at the highest rate."""
    return unpaired_ratio(device["fused_mlp/fused"].time(), best_arithmetic_us(device))


def arithmetic_us(device: Device) -> Figure:
    """The time of the arithmetic at the rate of the session's large matmul."""
    return floor_us(device, quantity(device["fused_mlp/eager"], "flops"))


@claim("F1", equals("eager 8, compiled 6"))
def trips_of_hidden_tensors(device: Device) -> Figure:
    """The kernels of an eager forward read or write tensors as large as the hidden tensor eight times, and the kernels
    of a compiled forward read or write such tensors six times."""
    (source,) = probed(device["fused_mlp/generated"], "compiled", "kernels")
    accesses = source.count("tl.load(") + source.count("tl.store(")
    eager = device["fused_mlp/eager"].per_step(hidden_trips)
    compiled = device["fused_mlp/compiled"].per_step(lambda step: hidden_trips(step, accesses))
    return listed({"eager": eager, "compiled": compiled})


@claim("F2", at_least(90))
def avoidable(device: Device) -> Figure:
    """An eager forward could avoid at least 90 % of the bytes that it moves."""
    return saved_percent(device, least_bytes(device))


@claim("F3", at_most(10), scope="timing")
def bytes_over_arithmetic(device: Device) -> Figure:
    """At the rates of a large copy and a large product, the least bytes of a forward take at most 10 % of the time of
    its arithmetic."""
    copied, arithmetic = floor_us(device, least_bytes(device)), arithmetic_us(device)
    return Figure(100 * copied.number / arithmetic.number, "%", origin="each at its ceiling, of the same turns")


@claim("F4", at_least(50), scope="timing")
def arithmetic_of_eager(device: Device) -> Figure:
    """At the rate of a large product, the arithmetic of a forward takes at least half of the eager forward's time."""
    return share_of_ceiling(device["fused_mlp/eager"], LARGE_MATMUL)


def generated_calls(device: Device, mode: str) -> list[str]:
    """The calls of Inductor's code for the forward, in order; `mode` is "compiled" or "max_autotune"."""
    return [str(call) for call in probed(device["fused_mlp/generated"], mode, "calls")]


POINTWISE = "triton_poi"
KERNEL_KINDS = {"triton_tem": "template", POINTWISE: "pointwise"}
"""Start of the name of a kernel that Inductor wrote -> its kind."""
CUBLAS = "cuBLAS"
MATMULS = 3
"""Of a forward: gate, up and down."""
OWN_MATMUL = "template"
"""Inductor's word for a matmul of its own."""


def kernel_kinds(step: Step) -> str:
    """The kernels of a compiled forward by origin: `cuBLAS, cuBLAS, pointwise, cuBLAS`."""
    return ", ".join(_kind(kernel) for kernel in step.kernels)


def _kind(kernel: GpuActivity) -> str:
    kinds = (kind for start, kind in KERNEL_KINDS.items() if kernel.name.startswith(start))
    return next(kinds, CUBLAS if op_name(kernel) == "aten::mm" else kernel.name)


@claim(
    "F5",
    matches(r"cuBLAS, cuBLAS, pointwise, cuBLAS; max-autotune: (\w+), \1, pointwise, (cuBLAS|template)"),
    scope="this-gpu",
)
def kernels_of_both_modes(device: Device) -> Figure:
    """In a compiled forward, by default and with max-autotune, a pointwise kernel computes GELU and the multiplication
    after the products of gate and up."""
    modes = [device[f"fused_mlp/{mode}"].per_step(kernel_kinds) for mode in ("compiled", "max_autotune")]
    return derived("; max-autotune: ".join(str(mode.value) for mode in modes), *modes)


@claim("F78", matches(r"triton_\w+, triton_\w+"), scope="this-gpu")
def one_token_products(device: Device) -> Figure:
    """For one token, max-autotune computes the three products in two kernels that Inductor wrote, without cuBLAS."""
    return Figure(", ".join(generated_calls(device, "one_token")), origin="fused_mlp/generated")


def own_products(device: Device) -> Figure:
    """The number of matmuls that max-autotune's forward runs in kernels of Inductor's own."""
    count = device["fused_mlp/max_autotune"].per_step(lambda step: kernel_kinds(step).split(", ").count(OWN_MATMUL))
    return replace(count, display="" if count.value else "none")


def cublas_products(device: Device) -> Figure:
    """The number of max-autotune's three matmuls that cuBLAS computes: `all of the three`, `2 of the three`."""
    count = device["fused_mlp/max_autotune"].per_step(lambda step: kernel_kinds(step).split(", ").count(CUBLAS))
    return replace(count, display=f"{'all' if count.value == MATMULS else count.value or 'none'} of the three")


def compiled_once_more(device: Device) -> Figure:
    """The matmuls of max-autotune's code by origin, compiled in another process with an empty cache."""
    calls = [call for call in generated_calls(device, "max_autotune") if not call.startswith(POINTWISE)]
    kinds = {"extern_kernels.mm": CUBLAS}
    names = (kinds.get(call, OWN_MATMUL if call.startswith("triton_tem") else call) for call in calls)
    return Figure(", ".join(names), origin="fused_mlp/generated")


def result_in_registers(device: Device) -> Figure:
    """The share of a multiprocessor's registers that the float32 sums of `INSTRUCTION_ROWS` rows of the result fill."""
    dim = int(device["fused_mlp/eager"].point.parameters["dim"])
    return Figure(100 * INSTRUCTION_ROWS * dim / REGISTERS, "%", origin="the shapes")


FORWARDS: Mapping[str, tuple[Measure, tuple[str, ...]]] = {
    "eager": (forward_bytes, ("gate's result", "up's result", "GELU's result", "hidden tensor")),
    "compiled": (lambda device: forward_bytes(device, "compiled"), ("gate's result", "up's result", "hidden tensor")),
    "two fused kernels": (fused_bytes, ("hidden tensor",)),
    "the least": (least_bytes, ()),
}
"""Heading -> the bytes of a forward, and the tensors of the hidden size that it writes and reads."""


def forward_traffic(device: Device) -> Html:
    """The bytes that a forward must move: eager, compiled, with two fused kernels, and the minimum."""
    return bytes_moved(device, traffic_parts(device), "What one forward has to move")


def traffic_parts(device: Device) -> dict[str, list[tuple[str, int]]]:
    """Heading -> the tensors moved and their bytes."""
    trip_bytes = 2 * hidden_size_bytes(device["fused_mlp/eager"].step)
    parts = {}
    for heading, (measure, tensors) in FORWARDS.items():
        trips = [(f"{tensor}, out and back", trip_bytes) for tensor in tensors]
        rest = int(measure(device).value) - trip_bytes * len(trips)
        parts[heading] = [("inputs, weights, result", rest), *trips]
    return parts


MEASURED = {"eager": "fused_mlp/eager", "compiled": "fused_mlp/compiled", "two fused kernels": "fused_mlp/fused"}


def floors(device: Device) -> Html:
    """Bytes of a forward, their time and the arithmetic's at the session's ceilings, and the measured time."""
    rows: list[Sequence[Cell]] = []
    for heading, (measure, _) in FORWARDS.items():
        moved = measure(device)
        measured = figure_cell(device[MEASURED[heading]].time()) if heading in MEASURED else None
        rows.append([heading, moved.text, floor_us(device, moved).text, arithmetic_us(device).text, measured])
    caption = "The two floors of one forward (the shortest times to expect), and its interleaved time"
    return table(caption, ["", "bytes", "floor for the bytes", "floor for the arithmetic", "measured time"], rows)


def generated_kernel(device: Device) -> Html:
    """The one kernel that Inductor writes for the forward, as its source was recorded."""
    source = "\n\n".join(map(str, device["fused_mlp/generated"].data["compiled"]["kernels"]))
    return Html(f'<pre data-search-exclude><code tabindex="0">{escape(source)}</code></pre>')


FIGURES: Mapping[str, Measure] = {
    "eager_bytes": forward_bytes,
    "least_without_weights": lambda device: Figure(2 * 2 * 8192 * 768, "bytes", origin="the shapes"),
    "best_arithmetic_us": best_arithmetic_us,
    "over_best_arithmetic": over_best_arithmetic,
    "result_in_registers": result_in_registers,
    "max_autotune_kernels": lambda device: device["fused_mlp/max_autotune"].per_step(kernel_kinds),
    "compiled_once_more": compiled_once_more,
    "own_products": own_products,
    "cublas_products": cublas_products,
    "saved_by_two": lambda device: saved_percent(device, fused_bytes(device)),
}
