"""The tensors that forward keeps for backward: measured, derived from shapes, chosen by a compiler, and recomputed
instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.units import format_value
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    at_least,
    at_most,
    between,
    claim,
    equals,
    timing_of_samples,
)
from snippets.lab.finding.measure import percent, ratio_of_pairs, unpaired_ratio
from snippets.lab.finding.other_device import H100, measured_on
from snippets.lab.page import (
    prediction as prediction,
    show as show,
)
from snippets.training_memory.findings.held import (
    EAGER,
    NAMES,
    derived,
    derived_bytes,
    farthest_from_one,
    figure,
    left_by_forward,
    loss_bytes,
    peak_bytes,
    ratio,
    saved_bytes,
    variant,
)
from snippets.training_memory.findings.kinds import kind_of
from snippets.training_memory.findings.steps import (
    in_phase,
    is_matmul,
    run_of,
    share_of_gpu_time,
)

RECOMPUTE = "training_memory/recompute"
SMALL, LARGE = "64", "128"
"""Batches at which recomputing is timed."""
PRODUCTS_OF_A_BLOCK = 3
"""Gate, up and down."""


@claim("TM30", between(0.99, 1.01))
def left_as_derived(device: Device) -> Figure:
    """Forward leaves as many bytes allocated as shapes and the loss predict, within 1 %, in float32, in bf16, under
    autocast and with recomputing."""
    ratios = {
        name: left_by_forward(device, name) / (derived_bytes(device, name) + loss_bytes(device)) for name in EAGER
    }
    return farthest_from_one(device, ratios)


@claim("TM31", between(0.99, 1.01))
def saved_as_derived(device: Device) -> Figure:
    """Autograd saves as many bytes as shapes predict, within 1 %, in float32, in bf16, under autocast and with
    recomputing."""
    return farthest_from_one(device, {name: saved_bytes(device, name) / derived_bytes(device, name) for name in EAGER})


@claim("TM32", between(0.99, 1.01))
def compiled_left_as_saved(device: Device) -> Figure:
    """The compiled forward leaves as many bytes allocated as the sum of the bytes that autograd saves and the bytes
    that the loss holds, within 1 %."""
    known = saved_bytes(device, "compiled") + loss_bytes(device)
    return ratio(device, "compiled", left_by_forward(device, "compiled"), known)


def wide_share(device: Device) -> Figure:
    """The share of the four wide tensors of each block in the bytes that forward keeps in float32."""
    kept = derived(device, "fp32")
    wide = sum(kept[what] for what in ("gelu: its input", "gelu times up: both factors", "down: its input"))
    return figure(device, "fp32", 100 * wide / sum(kept.values()), "%")


@claim("TM33", at_least(55))
def autocast_keeps(device: Device) -> Figure:
    """Under autocast, forward keeps at least 55 % of the bytes that forward keeps in float32."""
    return percent(ratio(device, "autocast", saved_bytes(device, "autocast"), saved_bytes(device, "fp32")))


@claim("TM34", between(0.98, 1.02))
def bfloat16_keeps(device: Device) -> Figure:
    """With bf16 weights and activations, forward keeps half of the bytes that forward keeps in float32, within 2 %."""
    return ratio(device, "bfloat16", 2 * saved_bytes(device, "bfloat16"), saved_bytes(device, "fp32"))


@claim("TM35", at_most(0.8))
def compiled_keeps(device: Device) -> Figure:
    """Under autocast, the compiled forward keeps at least a fifth fewer bytes than the eager forward."""
    return ratio(device, "compiled", saved_bytes(device, "compiled"), saved_bytes(device, "autocast"))


@claim("TM59", between(0.99, 1.01))
def loss_holds(device: Device) -> Figure:
    """The result of mse_loss is one number, but holds as many bytes as the tensor that mse_loss reads, within 1 %."""
    left, written_out = (left_by_forward(device, name) for name in ("autocast", "loss written out"))
    return ratio(device, "autocast, loss written out", left - written_out, loss_bytes(device))


def loss_storage(device: Device) -> Figure:
    """Bytes that the result of mse_loss holds."""
    left, written_out = (left_by_forward(device, name) for name in ("autocast", "loss written out"))
    return figure(device, "autocast", left - written_out, "bytes")


@claim("TM39", at_most(0.6))
def recomputed_peak(device: Device) -> Figure:
    """Under autocast, the peak with each block recomputed is at most 0.6 times the peak without recomputing."""
    return ratio(device, "recomputed", peak_bytes(device, "recomputed"), peak_bytes(device, "autocast"))


def recomputing_saves(device: Device) -> Figure:
    """Bytes of the peak that recomputing saves."""
    saved = peak_bytes(device, "autocast") - peak_bytes(device, "recomputed")
    return figure(device, "recomputed", saved, "bytes")


def half_recomputed(device: Device) -> Figure:
    """The share of that saving that recomputing every other block brings."""
    saved = peak_bytes(device, "autocast") - peak_bytes(device, "half recomputed")
    return figure(device, "half recomputed", 100 * saved / recomputing_saves(device).number, "%")


def _time(device: Device, batch: str, name: str, kind: str) -> Figure:
    run = device[RECOMPUTE]
    samples = run.data[batch][name]["times"][kind]
    return Figure.from_timing(timing_of_samples(samples), f"{run.origin}, batch {batch}, {name}, {kind}")


def _recomputing_over_keeping(device: Device, batch: str, kind: str) -> Figure:
    run = device[RECOMPUTE]
    above, below = (timing_of_samples(run.data[batch][name]["times"][kind]) for name in ("recomputed", "autocast"))
    return ratio_of_pairs(above, below, f"{run.origin}, batch {batch}, {kind}")


def launching(device: Device) -> Figure:
    """The CPU's time to launch the step under autocast at the smaller batch."""
    return _time(device, SMALL, "autocast", "enqueue")


def launching_again(device: Device) -> Figure:
    """The CPU's time to launch the step that recomputes, at the larger batch."""
    return _time(device, LARGE, "recomputed", "enqueue")


@claim("TM40", at_most(1 + 1 / 3), scope="timing")
def recomputing_takes(device: Device) -> Figure:
    """At a batch of 128, a step that recomputes takes at most a third longer than a step that keeps all
    activations."""
    return _recomputing_over_keeping(device, LARGE, "interleaved")


def recomputing_adds(device: Device) -> Figure:
    """The time that recomputing adds to a step at the larger batch, in percent of it."""
    ratio = _recomputing_over_keeping(device, LARGE, "interleaved")
    low, high = ratio.bounds
    return Figure(100 * (ratio.number - 1), "%", (100 * (low - 1), 100 * (high - 1)), ratio.origin)


def recomputed_time_share(device: Device) -> Figure:
    """The share of forward that recomputing runs again: all but each block's last product and the sum after it."""
    return share_of_gpu_time(run_of(device, "autocast"), recomputed_work)


def kernels_with_recomputing(device: Device) -> Figure:
    """The expected kernel time of the recomputing step at the larger batch: the kernels of the step that keeps, and the
    share that runs again."""
    kept, again = _time(device, LARGE, "autocast", "interleaved"), recomputed_time_share(device)
    low, high = (us * (1 + share / 100) for us, share in zip(kept.bounds, again.bounds, strict=True))
    return Figure(kept.number * (1 + again.number / 100), "us", (low, high), f"{kept.origin}; {again.origin}")


def forward_work(step: Step) -> list[GpuActivity]:
    """Forward's work on the GPU."""
    return in_phase(step, "forward")


def recomputed_work(step: Step) -> list[GpuActivity]:
    """The work of a second forward that stops at the last tensor that backward needs."""
    forward = forward_work(step)
    products = list(dict.fromkeys(activity.op for activity in forward if is_matmul(activity)))
    last = products[PRODUCTS_OF_A_BLOCK - 1 :: PRODUCTS_OF_A_BLOCK]
    return [activity for activity in forward if activity.op not in last and kind_of(activity) != "sums"]


@claim("TM61", between(0.9, 1.1), scope="timing")
def added_as_recomputed(device: Device) -> Figure:
    """At a batch of 128, recomputing lengthens a step by the share of the step that the repeated kernels take, within a
    tenth. The repeated kernels are forward's kernels without each block's last product and sum."""
    added = unpaired_ratio(recomputing_adds(device), recomputed_time_share(device))
    if launching_again(device).number < kernels_with_recomputing(device).number:
        return added
    return replace(added, conclusive=False, doubt="launching takes longer than the kernels would, so the GPU waits")


@claim("TM45", at_least(80), scope="timing")
def recomputing_is_launched(device: Device) -> Figure:
    """At a batch of 64, launching a step that recomputes takes the CPU at least 80 % of the step's time."""
    launched, waited = (_time(device, SMALL, "recomputed", kind) for kind in ("enqueue", "from_python"))
    return percent(unpaired_ratio(launched, waited))


@claim("TM41", equals(True))
def same_losses(device: Device) -> Figure:
    """With recomputing, the first losses are the same to the last bit as without recomputing."""
    run = device[RECOMPUTE]
    same = [found["recomputed"]["losses"] == found["autocast"]["losses"] for found in run.data.values()]
    return Figure(all(same), origin=run.origin)


def kept(device: Device) -> Html:
    """The bytes that forward keeps for backward, determined in three ways."""
    rows: list[list[Cell]] = []
    for name, heading in NAMES.items():
        by_shapes = format_value(derived_bytes(device, name), "bytes") if name in EAGER else None
        measured = (format_value(of(device, name), "bytes") for of in (saved_bytes, left_by_forward))
        rows.append([heading, by_shapes, *measured])
    head = ["variant", "predicted by shapes", "saved by autograd", "allocated after forward, minus before"]
    return table("Bytes that forward keeps for backward", head, rows)


def by_shapes(device: Device) -> Html:
    """The bytes that each operation keeps, by shapes."""
    names = ("fp32", "bfloat16", "autocast")
    columns = [derived(device, name) for name in names]
    rows: list[list[Cell]] = [
        [what, *(format_value(column[what], "bytes") if column[what] else None for column in columns)]
        for what in columns[0]
    ]
    head = ["operation that keeps a tensor", *(NAMES[name] for name in names)]
    return table("Bytes that the four blocks and the loss keep, predicted by shapes", head, rows)


def kept_tensors(device: Device) -> Html:
    """Tensors that autograd saves under autocast, eager and compiled, counted by shape and type."""
    counts = [
        Counter((shape, dtype, size) for shape, dtype, size in variant(device, name)["kept"])
        for name in ("autocast", "compiled")
    ]
    largest = sorted({*counts[0], *counts[1]}, key=lambda each: (-each[2], each))
    rows: list[list[Cell]] = [
        [code(shape), dtype, format_value(size, "bytes"), *(count[shape, dtype, size] or None for count in counts)]
        for shape, dtype, size in largest
    ]
    head = ["shape", "type", "bytes of each", "eager", "compiled"]
    return table("Tensors that autograd saves under autocast", head, rows, text_columns=2)


def recomputing(device: Device) -> Html:
    """The time of recomputing at two batches."""
    rows: list[list[Cell]] = []
    for batch in (SMALL, LARGE):
        for name in ("autocast", "recomputed"):
            times = (_time(device, batch, name, kind) for kind in ("interleaved", "enqueue", "from_python"))
            rows.append([batch, NAMES[name], *map(figure_cell, times)])
    head = ["batch", "variant", "time on the GPU", "CPU time to launch", "time from Python"]
    return table("Time of a step with and without recomputing activations", head, rows, text_columns=2)


def recomputing_bytes(device: Device) -> Html:
    """The bytes that recomputing saves."""
    rows: list[list[Cell]] = [
        [NAMES[name], *(format_value(of(device, name), "bytes") for of in (saved_bytes, peak_bytes))]
        for name in ("autocast", "recomputed", "compiled")
    ]
    head = ["variant", "kept for backward", "peak"]
    return table("Bytes kept for backward and at the peak, with and without recomputing", head, rows)


FIGURES: Mapping[str, Measure] = {
    "kept_by_shapes": lambda device: figure(device, "fp32", derived_bytes(device, "fp32"), "bytes"),
    "kept_by_autograd": lambda device: figure(device, "fp32", saved_bytes(device, "fp32"), "bytes"),
    "h100_launching_again": measured_on(H100, launching_again),
    "h100_kernels_with_recomputing": measured_on(H100, kernels_with_recomputing),
    "launching_share": lambda device: percent(
        unpaired_ratio(launching(device), _time(device, SMALL, "autocast", "from_python"))
    ),
    "recomputing_from_python": lambda device: _recomputing_over_keeping(device, LARGE, "from_python"),
    "forward_time_share": lambda device: share_of_gpu_time(run_of(device, "autocast"), forward_work),
    "recomputing_small": lambda device: _recomputing_over_keeping(device, SMALL, "from_python"),
}
