"""The cost of autocast's casts, eager and compiled: kernels that only convert."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kinetoscope.diagnosis.fusing import is_conversion
from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.queries import kernel_time_us
from snippets.lab.charts.bar_charts import stacked_bars
from snippets.lab.finding import Device, Figure, Measure, Run, at_least, between, claim, equals, format_value
from snippets.lab.finding.measure import unpaired_ratio
from snippets.lab.page import show as show
from snippets.training_memory.findings import steps

TYPES: Mapping[str, str] = {"c10::BFloat16": "bf16", "float": "float32"}
VIEWS = {"t", "view", "_unsafe_view", "transpose", "permute", "reshape", "expand"}
"""Operators in the name of a compiled kernel that move no number."""
CAST = "_to_copy"


@dataclass(frozen=True)
class Cast:
    """A kernel that does nothing but convert a tensor to another type."""

    phase: str
    subject: str
    """`weights` or `activations`, and in backward the gradients of either."""
    to: str
    activity: GpuActivity


def casts(run: Run, step: Step) -> list[Cast]:
    """The casts of a step: copies to another type, and compiled kernels that only convert."""
    sizes = {name: int(value) for name, value in run.point.parameters.items()}
    weight = sorted((sizes["dim"], sizes["hidden"]))
    found = []
    for phase in steps.PHASES:
        for activity in steps.in_phase(step, phase):
            to = _converts_to(activity)
            if to and activity.op is not None:
                shape = activity.op.input_shapes[0]
                found.append(Cast(phase, "weights" if sorted(shape) == weight else "activations", to, activity))
    return found


def _converts_to(activity: GpuActivity) -> str:
    """The type that an activity converts a tensor to; empty if it does anything else."""
    op = activity.op
    if op is None or activity.kind != "kernel":
        return ""
    if is_conversion(op):
        return TYPES.get(op.input_types[0], op.input_types[0])
    if decode_kernel_name(activity.name).library != "inductor" or set(_parts(activity)) - VIEWS != {CAST}:
        return ""
    types = [kind for kind, shape in zip(op.input_types, op.input_shapes, strict=False) if shape]
    return TYPES.get(types[-1], types[-1]) if len(set(types)) == 2 else ""


def _parts(activity: GpuActivity) -> tuple[str, ...]:
    return decode_kernel_name(activity.name).fused


def merged_casts(step: Step) -> int:
    """Compiled kernels that convert and compute as well."""
    return sum(CAST in _parts(activity) and not _converts_to(activity) for activity in step.kernels)


def _count(device: Device, variant: str, keep: Callable[[Cast], bool]) -> Figure:
    run = steps.run_of(device, variant)
    return run.per_step(lambda step: sum(map(keep, casts(run, step))))


def _cast_time(device: Device, variant: str) -> Figure:
    run = steps.run_of(device, variant)
    return run.per_step(lambda step: kernel_time_us([cast.activity for cast in casts(run, step)]), "us")


def _cast_share(device: Device, variant: str) -> Figure:
    run = steps.run_of(device, variant)
    return steps.share_of_gpu_time(run, lambda step: [cast.activity for cast in casts(run, step)])


def cast_time(device: Device) -> Figure:
    """The GPU's time in these kernels."""
    return _cast_time(device, "autocast")


def casts_of_the_gap(device: Device) -> Figure:
    """The time of the casts that autocast adds, in percent of the GPU's time that it takes beyond bf16 weights.

    A step with bf16 weights has casts, too: those of the loss. They aren't autocast's.
    """
    whole, without = (
        steps.run_of(device, variant).per_step(lambda step: kernel_time_us(step.activities), "us")
        for variant in ("autocast", "bfloat16")
    )
    spent, kept = (_cast_time(device, variant) for variant in ("autocast", "bfloat16"))
    share = (spent.number - kept.number) / (whole.number - without.number)
    return Figure(100 * share, "%", origin=f"{spent.origin}; less {kept.origin}")


def compiled_cast_time(device: Device) -> Figure:
    """The GPU's time in these kernels, compiled."""
    return _cast_time(device, "autocast_compiled")


def _per_layer(figure: Figure, run: Run, matrices: int) -> Figure:
    layers = int(run.point.parameters["layers"])
    return Figure(figure.number / (matrices * layers), origin=figure.origin, conclusive=figure.conclusive)


@claim("TM8", equals(1))
def weight_casts(device: Device) -> Figure:
    """In each step, autocast converts each weight matrix once, in forward, and backward uses the same bf16 copy."""
    counted = _count(device, "autocast", lambda cast: cast.subject == "weights" and cast.to == "bf16")
    return _per_layer(counted, steps.run_of(device, "autocast"), 3)


@claim("TM9", equals(2))
def input_casts(device: Device) -> Figure:
    """In forward, autocast converts the output of each norm twice: once for the gate projection, once for the up
    projection."""
    counted = _count(device, "autocast", lambda cast: cast.subject == "activations" and cast.phase == "forward")
    return _per_layer(counted, steps.run_of(device, "autocast"), 1)


@claim("TM10", equals(1))
def gradient_casts(device: Device) -> Figure:
    """In each step, autocast converts the gradient of each weight matrix once to float32."""
    counted = _count(device, "autocast", lambda cast: cast.subject == "weights" and cast.to == "float32")
    return _per_layer(counted, steps.run_of(device, "autocast"), 3)


@claim("TM11", between(5, 20), scope="timing")
def cast_share(device: Device) -> Figure:
    """Under autocast, kernels that only convert take between 5 and 20 % of the GPU's time."""
    return _cast_share(device, "autocast")


@claim("TM12", equals(0))
def compiled_activation_casts(device: Device) -> Figure:
    """In the compiled step under autocast, no kernel of forward only converts an activation."""
    return _count(device, "autocast_compiled", lambda cast: cast.subject == "activations" and cast.phase == "forward")


@claim("TM13", equals(2))
def compiled_weight_casts(device: Device) -> Figure:
    """In the compiled step under autocast, a separate kernel still converts each weight matrix, and another kernel
    converts the gradient of this matrix."""
    counted = _count(device, "autocast_compiled", lambda cast: cast.subject == "weights")
    return _per_layer(counted, steps.run_of(device, "autocast_compiled"), 3)


@claim("TM14", at_least(1.5), scope="timing")
def removed_by_fusion(device: Device) -> Figure:
    """Under autocast, kernels that only convert take at least 1.5 times as long in the eager step as in the compiled
    step."""
    return unpaired_ratio(cast_time(device), compiled_cast_time(device))


LOOKS = {"matrix products": "gemm", "kernels that only convert": "copy", "other kernels": "pointwise"}
"""Purpose of a kernel -> what it looks like; the optimizer looks like other kernels."""


def purposes(device: Device) -> Html:
    """The GPU's time of a step by purpose, for each precision but float32."""
    groups = {}
    for name, variant in {**steps.EAGER, **steps.COMPILED}.items():
        if variant == "fp32":
            continue
        run = steps.run_of(device, variant)
        step = run.step
        sums = {
            "matrix products": kernel_time_us(filter(steps.is_matmul, step.activities)),
            "kernels that only convert": kernel_time_us([cast.activity for cast in casts(run, step)]),
            "optimizer": kernel_time_us(steps.in_phase(step, "optimizer")),
        }
        rest = kernel_time_us(step.activities) - sum(sums.values())
        groups[name] = [(purpose, us) for purpose, us in {**sums, "other kernels": rest}.items() if us > 0]
    caption = "The GPU's time of one step, by purpose of the kernels"
    return stacked_bars(device, groups, caption, axis="GPU time", kinds=LOOKS)


ROWS: Mapping[str, Callable[[Cast], bool]] = {
    "weights, to bf16": lambda cast: cast.phase == "forward" and cast.subject == "weights",
    "activations, to bf16": lambda cast: cast.phase == "forward" and cast.subject == "activations",
    "gradients of activations": lambda cast: cast.phase == "backward" and cast.subject == "activations",
    "gradients of weights, to float32": lambda cast: cast.phase == "backward" and cast.subject == "weights",
}


def casts_table(device: Device, *variants: str) -> Html:
    """Kernels that only convert, eager and compiled: how many, and how long."""
    rows: list[list[Cell]] = []
    found = {variant: casts(run, run.step) for variant in variants for run in [steps.run_of(device, variant)]}
    together: Mapping[str, Callable[[Cast], bool]] = {"all casts": lambda cast: True}
    for name, keep in {**ROWS, **together}.items():
        cells: list[Cell] = [name]
        for variant in variants:
            kept = [cast.activity for cast in found[variant] if keep(cast)]
            cells += [f"{len(kept)}", format_value(kernel_time_us(kept), "us") if kept else None]
        rows.append(cells)
    names = {"autocast": "eager", "autocast_compiled": "compiled"}
    head = ["converted tensors", *(f"{names[each]}: {word}" for each in variants for word in ("kernels", "GPU time"))]
    told = " and ".join(names[each] for each in variants)
    return table(f"Kernels that only convert numbers in one step under autocast, {told}", head, rows)


FIGURES: Mapping[str, Measure] = {
    "cast_kernels": lambda device: _count(device, "autocast", lambda cast: True),
    "merged_kernels": lambda device: steps.run_of(device, "autocast_compiled").per_step(merged_casts),
    "compiled_cast_share": lambda device: _cast_share(device, "autocast_compiled"),
}
