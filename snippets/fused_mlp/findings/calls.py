"""The forward from Python: CPU time of a call, the gain of prepared launches, and our forward in compiled code."""

from collections.abc import Mapping, Sequence

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import durations_sum_us, kernel_names
from snippets.fused_mlp.findings.forward import FORWARDS, forward_ratio, second_product
from snippets.fused_mlp.findings.probes import probe_timing
from snippets.fused_mlp.findings.shapes import over, shapes_in
from snippets.lab.finding import Device, Figure, Measure, NotTimed, at_most, claim, equals
from snippets.lab.finding.measure import derived, largest, ratio_of_kinds, ratio_of_pairs
from snippets.lab.finding.other_device import H100, H200, measured_on
from snippets.lab.page import figure_cell, race_table, show as show
from snippets.lab.recording.schema import Timing

EAGER, EMPTY, BY_TRITON = "eager", "an empty custom operator", "both launches by Triton"
LAUNCHES, OPERATOR, WHOLE = "both launches", "the operator", "the whole call"
CALLS = {
    EAGER: "eager's module",
    EMPTY: "a `custom_op` that only allocates its result",
    BY_TRITON: "both launches, by Triton",
    LAUNCHES: "both launches, prepared",
    OPERATOR: "our operator, with both launches",
    WHOLE: "our module",
}
"""Case of `enqueued` -> its name on the page."""
CALLS_WITH_CUBLAS = {
    BY_TRITON: "the first launch, by Triton, and cuBLAS's product",
    LAUNCHES: "the first launch, prepared, and cuBLAS's product",
    OPERATOR: "our operator, with the first launch and cuBLAS's product",
}
"""The names that differ where cuBLAS computes `down`."""


def call(device: Device, case: str) -> Timing:
    """CPU times of a case, one for each turn."""
    return probe_timing(device["fused_mlp/enqueued"], case)


def call_ratio(device: Device, upper: str, lower: str) -> Figure:
    """The CPU time of one case / another's, in pairs."""
    return ratio_of_pairs(call(device, upper), call(device, lower), f"fused_mlp/enqueued: {upper} over {lower}")


@claim("F97", at_most(0.6), scope="timing")
def cpu_over_eager(device: Device) -> Figure:
    """At the series' shape, a call of our forward takes at most 0.60 of the CPU time of a call of the eager forward."""
    return forward_ratio(device, "our forward", "eager", "enqueue")


@claim("F98", at_most(0.15), scope="timing")
def prepared_over_triton(device: Device) -> Figure:
    """The prepared launches of our forward take at most 0.15 of the CPU time of launches by Triton."""
    require_own_launches(device)
    return call_ratio(device, LAUNCHES, BY_TRITON)


def has_cublas(device: Device) -> bool:
    """Whether cuBLAS's kernel, which PyTorch launches, computes `down` in our forward."""
    return second_product(device).value == "cuBLAS's"


def require_own_launches(device: Device) -> None:
    """Raise `NotTimed` if Triton launches only one of the two kernels: then both times contain the call of cuBLAS."""
    if has_cublas(device):
        raise NotTimed("tuning took cuBLAS for down here, so both times contain a call of torch.mm")


def triton_over_prepared(device: Device) -> Figure:
    """How many times as long both launches take by Triton as prepared."""
    require_own_launches(device)
    return call_ratio(device, BY_TRITON, LAUNCHES)


@claim("F99", at_most(1.0), scope="timing")
def operator_over_empty(device: Device) -> Figure:
    """Our operator adds no more CPU time to its two launches than an empty `custom_op` takes."""
    operator, launches = call(device, OPERATOR).samples_us, call(device, LAUNCHES).samples_us
    added = [whole - part for whole, part in zip(operator, launches, strict=True)]
    origin = f"fused_mlp/enqueued: {OPERATOR} less {LAUNCHES}, over {EMPTY}"
    return ratio_of_pairs(Timing.from_samples(added), call(device, EMPTY), origin)


@claim("F48", at_most(0.4), scope="timing")
def cpu_over_gpu(device: Device) -> Figure:
    """At the series' shape, the CPU launches our forward in at most 0.4 of the interleaved time of our forward on the
    GPU."""
    return ratio_of_kinds(device[FORWARDS["our forward"]], "enqueue")


@claim("F64", at_most(0.77), scope="timing")
def forward_over_compiled_from_python(device: Device) -> Figure:
    """In timing from Python at the series' shape, our forward takes at most 0.77 of the compiled forward's time."""
    return forward_ratio(device, "our forward", "compiled", "from_python")


@claim("F100", at_most(1.0), scope="timing")
def over_compiled_in_any_row(device: Device) -> Figure:
    """In timing from Python with bf16, our forward takes no longer than the compiled forward at any shape of the
    table."""
    rows = shapes_in(device, "bfloat16")
    return largest(*(over(device, "bfloat16", "compiled", row, "from_python") for row in rows))


@claim("F101", equals(True), scope="this-gpu")
def same_kernels_compiled(device: Device) -> Figure:
    """Inside compiled code, our module launches the same kernels as outside compiled code."""
    alone, compiled = (
        device[FORWARDS[name]].per_step(kernel_names) for name in ("our forward", "our forward, compiled")
    )
    display = f"{compiled.value}, alone {alone.value}"
    return derived(alone.value == compiled.value, alone, compiled, display=display)


@claim("F102", at_most(1.1), scope="timing")
def compiled_over_alone(device: Device) -> Figure:
    """In timing from Python, our module takes at most 10 % longer inside compiled code than outside compiled code."""
    return forward_ratio(device, "our forward, compiled", "our forward", "from_python")


def calls_table(device: Device) -> Html:
    """CPU time of a call of the forward, and of its parts."""
    rows: list[Sequence[Cell]] = []
    headings = CALLS | (CALLS_WITH_CUBLAS if has_cublas(device) else {})
    for case, heading in headings.items():
        over_eager = None if case == EAGER else figure_cell(call_ratio(device, case, EAGER))
        rows.append([heading.replace("`", ""), figure_cell(Figure.from_timing(call(device, case))), over_eager])
    return table("CPU time of a call", ["", "CPU time", "CPU time / eager's CPU time"], rows)


def compiled_table(device: Device) -> Html:
    """The package alone, inside compiled code and in its CUDA graph, and the compiled forward."""
    names = (
        "compiled",
        "reduce-overhead",
        "our forward",
        "our forward, compiled",
        "our forward, reduce-overhead",
    )
    variants = {name: FORWARDS[name] for name in names}
    kinds = ("interleaved", "from_python", "enqueue")
    return race_table(device, variants, "Our forward inside compiled code", kinds=kinds)


def product_of_operator(device: Device) -> Figure:
    """The part of our operator's CPU time, in the trace, that `torch.mm` takes inside it."""

    def percent_of(step: Step) -> float:
        whole = [op for op in step.ops if op.name.endswith("::forward") and not op.is_annotation]
        return 100 * durations_sum_us(op for op in step.ops if op.name == "aten::mm") / durations_sum_us(whole)

    return device[FORWARDS["our forward"]].per_step(percent_of, "%")


FIGURES: Mapping[str, Measure] = {
    "over_compiled_from_python": lambda device: forward_ratio(device, "compiled", "our forward", "from_python"),
    "triton_over_prepared": triton_over_prepared,
    "h200_eager_call_us": measured_on(H200, lambda device: Figure.from_timing(call(device, EAGER))),
    "h100_eager_call_us": measured_on(H100, lambda device: Figure.from_timing(call(device, EAGER))),
    "h100_product_of_operator": measured_on(H100, product_of_operator),
    "launches_us": lambda device: Figure.from_timing(call(device, LAUNCHES)),
}
