"""The forward in use: errors against float64, training, the package, and the exercises."""

from collections.abc import Mapping

from kinetoscope.html import Html, bold, table
from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import kernel_names, op_name
from snippets.fused_mlp.findings.ideas import step_ratio
from snippets.fused_mlp.findings.probes import on_hopper, probe_timing, probed
from snippets.fused_mlp.findings.shapes import DTYPES, PEERS_OF, SERIES, both_types, row_run, shape_name, shapes_in
from snippets.lab.finding import Device, Figure, Measure, at_least, at_most, between, claim, equals
from snippets.lab.finding.measure import (
    derived,
    largest,
    paired_ratio,
    point_ratio,
    quantity_ratio,
    ratio_of_kinds,
    unpaired_ratio,
)
from snippets.lab.page import Columns, figure_cell, race_table, show as show


def error_ratio(device: Device, upper: str, lower: str) -> Figure:
    """The relative error of one experiment / another's."""
    return point_ratio(device[f"fused_mlp/{upper}"], device[f"fused_mlp/{lower}"], "relative_error")


@claim("F65", at_most(1), scope="this-gpu")
def worst_error(device: Device) -> Figure:
    """The error of our forward isn't above the error of the eager forward at any shape."""
    rows = [(dtype, row) for dtype in DTYPES for row in shapes_in(device, dtype)]
    pairs = [(row_run(device, dtype, "fused", row), row_run(device, dtype, "eager", row)) for dtype, row in rows]
    ratios = [point_ratio(*pair, "relative_error").number for pair in pairs]
    return Figure(max(ratios), "x", (min(ratios), max(ratios)), "relative errors over eager's, every row")


@claim("F66", between(1.39, 1.44), scope="this-gpu")
def error_of_rounding(device: Device) -> Figure:
    """The error of our forward is the error of one rounding to bf16, times the square root of two."""
    return error_ratio(device, "fused", "gate_up_bare")


@claim("F67", between(0.99, 1.01), scope="this-gpu")
def error_of_activation(device: Device) -> Figure:
    """With the activation, our kernel for gate and up has the same error as cuBLAS's product without activation, within
    1 %."""
    return error_ratio(device, "gate_up_fused", "gate_up_bare")


@claim("F69", between(7.84, 8.16), scope="this-gpu")
def error_of_bfloat16_over_float16(device: Device) -> Figure:
    """In bf16, the error of our forward is eight times its error in float16, within 2 %, so the three additional bits
    of float16 aren't lost."""
    bfloat16, float16 = (row_run(device, dtype, "fused", SERIES) for dtype in DTYPES)
    return point_ratio(bfloat16, float16, "relative_error")


@claim("F68", between(0.5, 0.99), scope="this-gpu")
def error_of_compiled(device: Device) -> Figure:
    """The error of the compiled forward is between our forward's error and the eager forward's error, and is nearer to
    the eager forward's error."""
    ours, compiled, eager = (
        device[f"fused_mlp/{name}"].point.relative_error for name in ("fused", "compiled", "eager")
    )
    return Figure((compiled - ours) / (eager - ours), origin="its place on the way from our forward's error to eager's")


def errors_table(device: Device) -> Html:
    """Relative error of every variant against float64, in every row; float16 folded."""

    def errors_in(dtype: str) -> Html:
        rows = []
        for shape in shapes_in(device, dtype):
            errors = [row_run(device, dtype, name, shape).point.relative_error for name in PEERS_OF[dtype].values()]
            rows.append([shape_name(shape), *(bold(f"{error:.2e}", error == min(errors)) for error in errors)])
        return table(f"Relative error against float64, {dtype}", ["tokens x dim x hidden", *PEERS_OF[dtype]], rows)

    return both_types(device, errors_in)


TRAINING = {
    "eager": "fused_mlp/training_eager",
    "compiled": "fused_mlp/training_compiled",
    "Liger": "fused_mlp/training_liger",
    "our module, saving": "fused_mlp/training_fused",
    "our module, recomputing one": "fused_mlp/training_fused_recompute_hidden",
    "our module, recomputing all": "fused_mlp/training_fused_recompute",
}
SAVING, RECOMPUTING = TRAINING["our module, saving"], TRAINING["our module, recomputing all"]
RECOMPUTING_ONE = TRAINING["our module, recomputing one"]


FEW_BYTES = 1024


def zero_fills(step: Step) -> int:
    """The number of kernels and memsets that only write zeros, except a counter of a few bytes."""
    fills = sum(op_name(kernel) in ("aten::fill_", "aten::zero_") for kernel in step.kernels)
    return fills + sum((memset.moved_bytes or 0) > FEW_BYTES for memset in step.memsets)


@claim("F70", at_most(0.99), scope="timing")
def over_every_other(device: Device) -> Figure:
    """In interleaved timing, our training step takes at least 1 % less time than the training steps of eager,
    torch.compile and Liger."""
    others = ("eager", "compiled", "Liger")
    return largest(*(paired_ratio(device[SAVING], device[TRAINING[other]]) for other in others))


@claim("F71", at_most(0.8), scope="timing")
def over_eager(device: Device) -> Figure:
    """In interleaved timing, our training step takes at least 20 % less time than eager's training step."""
    return paired_ratio(device[SAVING], device[TRAINING["eager"]])


@claim("F72", between(1.08, 1.25), scope="timing")
def recomputing_over_saving(device: Device) -> Figure:
    """In interleaved timing, our training step takes between 8 and 25 % longer if it recomputes all three tensors than
    if it saves these tensors."""
    return paired_ratio(device[RECOMPUTING], device[SAVING])


def held_bytes(device: Device, experiment: str) -> int:
    """The bytes that a training step holds between forward and backward, without weights, input and result."""
    found: int = probed(device["fused_mlp/kept_bytes"], experiment.removeprefix("fused_mlp/training_"), "held_bytes")
    return found


def held_less(device: Device, experiment: str) -> Figure:
    """The bytes between forward and backward that a step holds less than the step that saves all tensors."""
    less = held_bytes(device, SAVING) - held_bytes(device, experiment)
    return Figure(less, "bytes", origin="fused_mlp/kept_bytes")


@claim("F73", at_most(0.05), scope="this-gpu")
def held_by_recomputing(device: Device) -> Figure:
    """Between forward and backward, our training step that recomputes all three tensors holds at most 5 % of the bytes
    that our training step with saved tensors holds."""
    return Figure(held_bytes(device, RECOMPUTING) / held_bytes(device, SAVING), "x", origin="fused_mlp/kept_bytes")


@claim("F74", at_most(0.6), scope="this-gpu")
def peak_of_saving(device: Device) -> Figure:
    """The peak memory of our training step, which saves three tensors for the backward pass, is at most 0.60 of the
    peak memory of eager's training step."""
    return point_ratio(device[SAVING], device[TRAINING["eager"]], "peak_memory_bytes")


@claim("F75", at_most(0.9), scope="timing")
def from_python_over_eager(device: Device) -> Figure:
    """In timing from Python, our training step takes at least 10 % less time than eager's training step."""
    return paired_ratio(device[SAVING], device[TRAINING["eager"]], "from_python")


@claim("F107", at_most(0.86), scope="timing")
def training_over_compiled(device: Device) -> Figure:
    """In interleaved timing, our training step takes at most 0.86 of the compiled training step's time."""
    return paired_ratio(device[SAVING], device[TRAINING["compiled"]])


@claim("F108", at_most(0.8), scope="this-gpu")
def peak_over_compiled(device: Device) -> Figure:
    """The peak memory of our training step, which saves three tensors for the backward pass, is at most 0.80 of the
    compiled training step's peak memory."""
    return point_ratio(device[SAVING], device[TRAINING["compiled"]], "peak_memory_bytes")


@claim("F113", at_most(0.93), scope="timing")
def training_energy(device: Device) -> Figure:
    """In steady timing, our training step takes at most 0.93 of the compiled training step's energy."""
    return quantity_ratio(device[SAVING], device[TRAINING["compiled"]], "joules")


@claim("F76", at_most(0.75), scope="this-gpu")
def error_of_gradient(device: Device) -> Figure:
    """In the gradient of x, the error of our training step is at most 75 % of the error of eager's training step."""
    return point_ratio(device[SAVING], device[TRAINING["eager"]], "relative_error")


@claim("F77", equals("0 and 0"), scope="this-gpu")
def zero_fill_counts(device: Device) -> Figure:
    """No kernel or memset of our training step only writes zeros, whether the step saves or recomputes the tensors."""
    saving, recomputing = (device[experiment].per_step(zero_fills) for experiment in (SAVING, RECOMPUTING))
    return derived(f"{saving.value} and {recomputing.value}", saving, recomputing)


def training_table(device: Device) -> Html:
    """Forward and backward of each variant: times, peak memory, error of the gradient of x."""
    quantities: Columns = {
        "from Python, CPU part": "enqueue_us",
        "peak memory of a step": "peak_memory_bytes",
        "relative error of x's gradient": "relative_error",
    }
    return race_table(device, TRAINING, "One training step: forward and backward", more=quantities)


@claim("F80", equals(True), scope="this-gpu")
def same_kernels(device: Device) -> Figure:
    """With the packaged forward, the plain module runs the same first kernel as our module, and the same number of
    kernels."""
    ours, packaged = (device[f"fused_mlp/{name}"].per_step(kernel_names) for name in ("fused", "kernelized"))
    # each tuning chooses the kernel of the second matmul
    firsts = [(names[0], len(names)) for names in (str(figure.value).split(", ") for figure in (ours, packaged))]
    return derived(firsts[0] == firsts[1], ours, packaged, display=f"{packaged.value}, our module {ours.value}")


@claim("F81", between(0.97, 1.03), scope="timing")
def packaged_over_module(device: Device) -> Figure:
    """In interleaved timing, the packaged forward takes as long as our module, within 3 %."""
    return paired_ratio(device["fused_mlp/kernelized"], device["fused_mlp/fused"])


@claim("F85", between(1.01, 1.09), scope="timing")
def late_hand_over(device: Device) -> Figure:
    """The ping-pong kernel takes 1 to 9 % longer if a consumer signals the other consumer with its last block in place
    of one block earlier."""
    return step_ratio(device, "gate_up", "hand over at the end", "hand over early")


@claim("F86", between(0.97, 1.08), scope="timing")
def cheap_activations(device: Device) -> Figure:
    """The ping-pong kernel takes at most 8 % longer with GELU by tanh or SiLU than without an activation."""
    return largest(*(step_ratio(device, "activation", name, "none") for name in ("gelu_tanh", "silu")))


@claim("F87", at_least(1.15), scope="timing")
def erf_over_tanh(device: Device) -> Figure:
    """The ping-pong kernel takes at least 15 % longer with GELU by erf than with GELU by tanh."""
    return step_ratio(device, "activation", "gelu", "gelu_tanh")


def activations(device: Device) -> Html:
    """The gated kernel with each activation."""
    variants = {"none": "none", "SiLU": "silu", "GELU by tanh": "gelu_tanh", "GELU by erf": "gelu"}
    run = on_hopper(device["fused_mlp/steps"])
    times = {name: Figure.from_timing(probe_timing(run, "activation", key)) for name, key in variants.items()}
    rows = [[name, figure_cell(time)] for name, time in times.items()]
    return table("The ping-pong kernel with four activations", ["activation", "interleaved time"], rows)


FIGURES: Mapping[str, Measure] = {
    "error_of_eager": lambda device: error_ratio(device, "fused", "eager"),
    "training_speedup": lambda device: paired_ratio(device[TRAINING["eager"]], device[SAVING]),
    "training_over_compiled_steady": lambda device: unpaired_ratio(
        *(device[one].time("steady") for one in (SAVING, TRAINING["compiled"]))
    ),
    "recompute_saves": lambda device: held_less(device, RECOMPUTING),
    "recompute_one_saves": lambda device: held_less(device, RECOMPUTING_ONE),
    "recomputing_one_over_saving": lambda device: paired_ratio(device[RECOMPUTING_ONE], device[SAVING]),
    "recomputing_over_compiled": lambda device: paired_ratio(device[RECOMPUTING], device[TRAINING["compiled"]]),
    "recomputing_over_compiled_steady": lambda device: unpaired_ratio(
        *(device[one].time("steady") for one in (RECOMPUTING, TRAINING["compiled"]))
    ),
    "training_cpu_over_gpu": lambda device: ratio_of_kinds(device[SAVING], "enqueue"),
    "silu_ratio": lambda device: step_ratio(device, "activation", "silu", "none"),
    "tanh_ratio": lambda device: step_ratio(device, "activation", "gelu_tanh", "none"),
}
