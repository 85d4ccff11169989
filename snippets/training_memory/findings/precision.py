"""Training steps by precision: how long they take, and what their matrix products multiply."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.queries import kernel_time_us
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import Device, Figure, Measure, at_least, at_most, claim, equals, format_value
from snippets.lab.finding.measure import paired_ratio, unpaired_ratio
from snippets.lab.page import show as show
from snippets.training_memory.findings import steps


def _speedup(device: Device, slow: str, fast: str) -> Figure:
    return paired_ratio(steps.run_of(device, slow), steps.run_of(device, fast), "iteration")


@claim("TM15", at_least(3), scope="timing")
def tf32_speedup(device: Device) -> Figure:
    """A step with TF32 products is at least 3 times as fast as a step in float32."""
    return _speedup(device, "fp32", "tf32")


@claim("TM16", at_least(1.5), scope="timing")
def autocast_over_tf32(device: Device) -> Figure:
    """A step under autocast is at least 1.5 times as fast as a step with TF32 products."""
    return _speedup(device, "tf32", "autocast")


@claim("TM17", at_least(1.1), scope="timing")
def bfloat16_over_autocast(device: Device) -> Figure:
    """A step with bf16 weights is at least 1.1 times as fast as a step under autocast."""
    return _speedup(device, "autocast", "bfloat16")


@claim("TM18", at_least(1.1), scope="timing")
def compiled_autocast(device: Device) -> Figure:
    """Under autocast, a compiled step is at least 1.1 times as fast as an eager step."""
    return _speedup(device, "autocast", "autocast_compiled")


@claim("TM19", at_most(1.2), scope="timing")
def compiled_autocast_over_bfloat16(device: Device) -> Figure:
    """A compiled step under autocast takes at most 1.2 times as long as a compiled step with bf16 weights."""
    return _speedup(device, "autocast_compiled", "bfloat16_compiled")


def _clock(device: Device, variant: str) -> Figure:
    run = steps.run_of(device, variant)
    return Figure(run.timing("iteration").clock_mhz, "MHz", origin=run.origin)


def compiled_clock(device: Device) -> Figure:
    """The multiprocessors' clock while compiled steps with bf16 weights run."""
    return _clock(device, "bfloat16_compiled")


def float32_clock(device: Device) -> Figure:
    """The multiprocessors' clock while steps in float32 run."""
    return _clock(device, "fp32")


def reasons_to_lower_the_clock(device: Device) -> Figure:
    """The GPU's reasons for a lower clock while steps in any precision were timed; `none` without a reason."""
    runs = [steps.run_of(device, variant) for variant in {**steps.EAGER, **steps.COMPILED}.values()]
    named = sorted({reason for run in runs for reason in run.timing("iteration").throttle})
    return Figure(", ".join(named) or "none", origin=f"{device.name}, while the loops were timed")


@claim("TM28", at_most(0.95), scope="timing")
def lower_clock(device: Device) -> Figure:
    """The GPU's clock is at most 0.95 times as high during compiled steps with bf16 weights as during steps in
    float32."""
    return unpaired_ratio(compiled_clock(device), float32_clock(device))


def matmul_types(step: Step) -> str:
    """The types of the factors, by the names of the kernels."""
    types = {
        decode_kernel_name(activity.name).dtype or "not named" for activity in step.kernels if steps.is_matmul(activity)
    }
    return ", ".join(sorted(types))


@claim("TM20", equals("f32; tf32; bf16; bf16"), scope="this-gpu")
def types_of_products(device: Device) -> Figure:
    """By the kernels' names, products multiply float32 numbers in float32, TF32 numbers with TF32, and bf16 numbers
    under autocast and with bf16 weights."""
    types = [steps.run_of(device, variant).per_step(matmul_types) for variant in steps.EAGER.values()]
    agree = all(figure.conclusive for figure in types)
    text = "; ".join(str(figure.value) for figure in types)
    return Figure(text, origin=f"{device.short_name}, names of kernels", conclusive=agree)


def _matmuls(step: Step) -> list[GpuActivity]:
    return list(filter(steps.is_matmul, step.activities))


def precisions(device: Device) -> Html:
    """An iteration in each precision; its matrix products by type, time and rate; its memory."""
    rows: list[list[Cell]] = []
    for name, variant in {**steps.EAGER, **steps.COMPILED}.items():
        run = steps.run_of(device, variant)
        us = run.per_step(lambda step: kernel_time_us(_matmuls(step)), "us")
        rows.append(
            [
                name,
                figure_cell(run.time("iteration")),
                format_value(steps.busy_share(device, variant).number, "%"),
                matmul_types(run.step),
                figure_cell(us),
                format_value(1e6 * run.point.flops / us.number, "flop/s"),
                format_value(run.point.peak_memory_bytes, "bytes"),
                format_value(run.timing("iteration").clock_mhz, "MHz"),
            ]
        )
    head = [
        "precision",
        "iteration",
        "kernels, share of iteration",
        "type of products",
        "GPU time of products",
        "rate of products",
        "memory added by a step",
        "clock",
    ]
    return table("Products, memory and clock of a training step by precision", head, rows)


FIGURES: Mapping[str, Measure] = {
    "compiled_autocast_gpu": lambda device: unpaired_ratio(
        *(steps.gpu_us(device, name) for name in ("autocast", "autocast_compiled"))
    ),
    "compiled_bfloat16_gpu": lambda device: unpaired_ratio(
        *(steps.gpu_us(device, name) for name in ("bfloat16", "bfloat16_compiled"))
    ),
    "compiled_gpu_ratio": lambda device: unpaired_ratio(
        *(steps.gpu_us(device, name) for name in ("autocast_compiled", "bfloat16_compiled"))
    ),
    "autocast_speedup": lambda device: _speedup(device, "fp32", "autocast"),
    "compiled_iteration": lambda device: steps.run_of(device, "bfloat16_compiled").time("iteration"),
    "compiled_gpu_time": lambda device: steps.gpu_us(device, "bfloat16_compiled"),
    "matmul_time_share": lambda device: steps.share_of_gpu_time(steps.run_of(device, "autocast"), _matmuls),
    "matmul_share_float32": lambda device: steps.share_of_gpu_time(steps.run_of(device, "fp32"), _matmuls),
}
