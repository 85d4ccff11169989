"""One kernel instead of two: Inductor's, which new shapes compile again, and Liger's, from a library."""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from math import prod

from kinetoscope.html import Cell, Html, note, table
from kinetoscope.trace.events import Step
from snippets.lab.finding import Device, Figure, Measure, NotRecorded, format_value, same, unpaired_ratio
from snippets.lab.finding.band import at_least, between, equals, matches
from snippets.lab.finding.claim import claim
from snippets.lab.page import bytes_moved, diff_table, figure_cell, kernel_name_html, show as show, timeline
from snippets.mlp.findings.eager import copy_share, gemm_kernels, moved_bytes, pointwise_us
from snippets.mlp.findings.steps import BF16_BYTES, fused_work, gate_bytes, kernel_ops, launch_size, part_2, pointwise

EAGER_AND_COMPILED = {"eager": "mlp/eager", "compiled": "mlp/compiled"}
WRAPPERS = {"aten::linear", "aten::matmul", "aten::t", "aten::transpose", "aten::reshape"}
PRE_OPS = ("TorchDynamo", "Torch-Compiled Region", "Pregraph", "AOTDispatcher", "## Call CompiledFxGraph")
COMPILED = r"mm, mm, triton_\w+, mm; wrappers left: none"
LIGER = "mm, mm, LigerGELUMulFunction, mm; 3 aten::linear; _geglu_tanh_forward_kernel"
RECOMPILED = "torch.compile: 3 of 3, Liger: 0 of 3"
FUSED_NAME = "triton_poi_fused__unsafe_view_gelu_mul_0"


def compilations(device: Device, mode: str) -> list[int]:
    """Compilations so far after each batch size of `new_shapes`, in one mode."""
    data = device["mlp/new_shapes"].data
    if mode not in data:
        raise NotRecorded(f"mlp/new_shapes has no {mode!r}; make record CHAPTER=mlp")
    return [int(count) for count in data[mode]["compiled"]]


def recompiled(device: Device, mode: str) -> str:
    """`1 of 3`: how many changes of the batch size compiled something."""
    counts = compilations(device, mode)
    return f"{sum(b > a for a, b in itertools.pairwise(counts))} of {len(counts) - 1}"


def pointwise_names(step: Step) -> str:
    """Names of all kernels but the matmuls'."""
    return ", ".join(kernel.name for kernel in pointwise(step))


def linears(step: Step) -> int:
    """The number of `aten::linear` calls in a step; a compiled step has none."""
    return sum(op.name == "aten::linear" for op in step.ops)


@claim("M8", matches(COMPILED), source=part_2("4 kernels: mm, mm, fused, mm, as three bare aten::mm"))
def four_kernels(device: Device) -> Figure:
    """The compiled MLP runs four kernels: GEMM, GEMM, Triton, GEMM. No linear, matmul, t, transpose or reshape runs on
    the CPU."""

    def kernels(step: Step) -> str:
        left = sorted(WRAPPERS & {op.name for op in step.ops})
        return f"{kernel_ops(step)}; wrappers left: {', '.join(left) or 'none'}"

    return device["mlp/compiled"].per_step(kernels)


@claim("M9", equals(True), source=part_2("byte-for-byte identical names"))
def gemms_stay(device: Device) -> Figure:
    """The MLP's three GEMM kernels have the same names in the compiled forward and in the eager forward."""
    return same(gemm_kernels(device["mlp/eager"]), gemm_kernels(device["mlp/compiled"]))


@claim("M10", equals(FUSED_NAME), scope="this-gpu", source=part_2(FUSED_NAME))
def fused_name(device: Device) -> Figure:
    """The compiled MLP's fused kernel is called triton_poi_fused__unsafe_view_gelu_mul_0."""
    return device["mlp/compiled"].per_step(pointwise_names)


@claim("M11", between(49e6, 51e6), source=part_2("around 50 MB"))
def intermediate_bytes(device: Device) -> Figure:
    """The MLP's tensor between GELU and the multiplication, [8192, 3072] in bf16, takes around 50 MB."""
    return device["mlp/eager"].per_step(
        lambda step: sum(BF16_BYTES * prod(op.input_shapes[0]) for op in step.ops if op.name == "aten::gelu"), "bytes"
    )


@claim("M12", equals(2 * BF16_BYTES * 8192 * 3072), source=part_2("one whole round trip of the intermediate"))
def saved_bytes(device: Device) -> Figure:
    """By the shapes in the traces, fusing GELU and the multiplication saves one write and one read of the tensor
    between GELU and the multiplication."""
    eager, fused = moved_bytes(device["mlp/eager"]), moved_bytes(device["mlp/compiled"])
    agree = eager.spread is None and fused.spread is None
    return Figure(eager.number - fused.number, "bytes", origin="shapes in the traces", conclusive=agree)


@claim("M13", at_least(75), scope="timing", source=part_2("89.4 µs, which makes 1.69 TB/s"))
def fused_share_of_copy(device: Device) -> Figure:
    """The compiled MLP's fused kernel is memory-bound: it moves its three tensors at no less than three quarters of a
    large copy's rate.

    In this compilation, Inductor chose the slower of two launch configurations, with two neighboring elements for each
    thread instead of eight. With the faster configuration, the kernel comes near a large copy's rate. Look at a
    kernel's launch configuration before you blame memory for the kernel's time."""
    return copy_share(device["mlp/compiled"])


@claim("K1", equals(LIGER), source=part_2("3 aten::linear and one LigerGELUMulFunction, _geglu_tanh_forward_kernel"))
def liger_forward(device: Device) -> Figure:
    """With Liger's layer, the MLP runs four kernels: three kernels of aten::linear, as in eager, and
    _geglu_tanh_forward_kernel of LigerGELUMulFunction."""
    return device["mlp/liger"].per_step(
        lambda step: f"{kernel_ops(step)}; {linears(step)} aten::linear; {pointwise_names(step)}"
    )


@claim("K2", equals("none"), source=part_2("no pre-ops"))
def pre_ops(device: Device) -> Figure:
    """A call of Liger's layer has none of the rows that a compiled call adds to a trace: no Dynamo, no guards, no
    prologue."""
    return device["mlp/liger"].per_step(
        lambda step: ", ".join(op.name.split(" fx")[0] for op in step.ops if op.name.startswith(PRE_OPS)) or "none"
    )


@claim("K3", between(1.01, 1.08), scope="timing", source=part_2("92.8 µs against 89.4 µs"), is_advice=True)
def liger_over_inductor(device: Device) -> Figure:
    """Liger's GeGLU kernel is a few percent slower than Inductor's GeGLU kernel.

    Here Liger's kernel is faster, because Inductor chose the slower of its two launch configurations in this
    compilation. With the faster configuration, Inductor's kernel is faster than Liger's by more than a few percent. The
    number of columns is not a power of two, so Liger's blocks mask off a quarter of their positions. Measure with your
    number of columns, and compile several times."""
    return unpaired_ratio(pointwise_us(device["mlp/liger"]), pointwise_us(device["mlp/compiled"]))


@claim("K4", equals(RECOMPILED), source=part_2("any change of batch, sequence or hidden size compiles again"))
def compiles_again(device: Device) -> Figure:
    """After each change of the MLP's input shape, torch.compile compiles again, but Liger's kernel never does.

    With dynamic=False, torch.compile does compile again for each new shape. By default, torch.compile compiles again
    after the first change only, with the batch size as a variable, and this second graph serves the next two sizes. So
    expect two compilations for batches of more than one, and a third for a batch of one. By its source, Liger's kernel
    compiles again only for a new hidden size."""
    return Figure(f"torch.compile: {recompiled(device, 'automatic')}, Liger: {recompiled(device, 'liger')}")


def dynamo(device: Device, name: str) -> dict[str, list[int]]:
    """Dynamo's counts after each batch size. Raises `NotRecorded` for a sequence that `new_shapes` lacks."""
    found: dict[str, dict[str, list[int]]] = device["mlp/new_shapes"].data.get("dynamo", {})
    if name not in found:
        raise NotRecorded(f"mlp/new_shapes has no counts of Dynamo, {name!r}; make record CHAPTER=mlp")
    return found[name]


@claim("O-P30", equals("3, after batches 64, 32, 16, 48, 1"))
def graphs_with_one(device: Device) -> Figure:
    """After batches of 64, 32, 16 and 48, a batch of one makes torch.compile compile a third graph of the MLP."""
    counts = dynamo(device, "one")
    return Figure(f"{counts['graphs'][-1]}, after batches {', '.join(map(str, counts['batches']))}")


@claim("O-P31", equals(1))
def graphs_when_marked(device: Device) -> Figure:
    """With `mark_dynamic`, one graph of the MLP serves every batch size from the first call on."""
    return Figure(dynamo(device, "marked")["graphs"][-1], origin="mlp/new_shapes")


@claim("O-P32", equals("8 graphs, 12 calls, 8 of them in a graph, 1 warning"))
def recompile_limit(device: Device) -> Figure:
    """With dynamic=False and twelve batch sizes, Dynamo compiles eight graphs of the MLP, warns once, and runs the
    other four calls eagerly."""
    counts = dynamo(device, "static")
    graphs, calls, inside = counts["graphs"][-1], len(counts["batches"]), counts["in_graphs"][-1]
    return Figure(f"{graphs} graphs, {calls} calls, {inside} of them in a graph, {counts['warnings'][0]} warning")


@claim("O-P33", matches(r"contiguous: 0 copies; transposed: aten::clone, aten::copy_, [1-9]\d* on the GPU"))
def reshape_may_copy(device: Device) -> Figure:
    """aten::reshape of a contiguous tensor copies nothing, but aten::reshape of a transposed tensor runs clone and
    copy_, and the GPU copies the tensor."""
    found: dict[str, dict[str, list[str]]] = device["mlp/new_shapes"].data.get("reshape", {})
    if not found:
        raise NotRecorded("mlp/new_shapes has no 'reshape'; make record CHAPTER=mlp")
    plain, turned = found["contiguous"], found["transposed"]
    copying = ", ".join(op for op in ("aten::clone", "aten::copy_") if op in turned["ops"])
    copies = len(plain["activities"]) + plain["ops"].count("aten::copy_")
    return Figure(f"contiguous: {copies} copies; transposed: {copying}, {len(turned['activities'])} on the GPU")


@claim("K5", equals(True), source=part_2("still the same cuBLAS kernels"))
def gemms_of_eager(device: Device) -> Figure:
    """The MLP's three GEMM kernels have the same names with Liger's layer and in the eager forward."""
    return same(gemm_kernels(device["mlp/eager"]), gemm_kernels(device["mlp/liger"]))


def predicted_us(device: Device) -> Figure:
    """The time of a plain copy of the saved bytes."""
    us = saved_bytes(device).number / device["mlp/compiled"].ceiling("copy").rate * 1e6
    return Figure(us, "us", origin="the saved bytes at a plain copy's rate")


FIGURES: Mapping[str, Measure] = {
    "fused_us": lambda device: pointwise_us(device["mlp/compiled"]),
    "fused_bytes": lambda device: moved_bytes(device["mlp/compiled"]),
    "liger_us": lambda device: pointwise_us(device["mlp/liger"]),
}


compiled_step = partial(timeline, variants=EAGER_AND_COMPILED)
compiled_diff = partial(diff_table, variants=EAGER_AND_COMPILED, work=(None, fused_work))


def liger_diff(device: Device) -> Html:
    """The kernels that Liger's layer changes in a step, and the source of the layer."""
    variants = {"eager": "mlp/eager", "Liger": "mlp/liger"}
    caption = "What Liger's layer changes on the GPU"
    changes = diff_table(device, variants, caption, work=(None, fused_work))
    return Html(f"<p>The layer came from {escape(str(device['mlp/liger'].data['liger']))}.</p>{changes}")


def traffic(device: Device) -> Html:
    """The tensors that the pointwise part must move, eager and compiled."""
    moved = {
        "eager": ("gate, read", "GELU's result, written", "GELU's result, read again", "up, read", "product, written"),
        "compiled": ("gate, read", "up, read", "product, written"),
    }
    hidden = {name: gate_bytes(device[f"mlp/{name}"].step) for name in moved}
    parts = {name: [(tensor, hidden[name]) for tensor in tensors] for name, tensors in moved.items()}
    return bytes_moved(device, parts, "Bytes that the pointwise kernels must move")


def footprints(device: Device) -> Html:
    """The two fused kernels side by side: blocks, threads, and the resources of a thread."""
    runs = [device["mlp/compiled"], device["mlp/liger"]]
    kernels = [pointwise(run.step)[0] for run in runs]
    launches, elements = [launch_size(kernel) for kernel in kernels], gate_bytes(runs[1].step) // BF16_BYTES
    rows: list[Sequence[Cell]] = [
        ["kernel", *(kernel_name_html(kernel.name) for kernel in kernels)],
        ["blocks", *(f"{blocks:,}" for blocks, _ in launches)],
        ["threads in a block", *(f"{threads:,}" for _, threads in launches)],
        ["elements for each thread", *(f"{elements / (blocks * threads):g}" for blocks, threads in launches)],
        ["registers for each thread", *(str(kernel.registers) for kernel in kernels)],
        ["percent of a large copy's rate", *(copy_share(run).text for run in runs)],
        ["est. achieved occupancy", *(format_value(kernel.occupancy_percent or 0, "%") for kernel in kernels)],
        ["time in the trace", *(figure_cell(pointwise_us(run)) for run in runs)],
    ]
    return table("The fused kernels of Inductor and of Liger", ["", "Inductor's kernel", "Liger's kernel"], rows)


def new_shapes(device: Device) -> Html:
    """Compilations so far and time of the first call, for four batch sizes in turn."""
    data, titles = device["mlp/new_shapes"].data, {"static": "dynamic=False", "automatic": "default", "liger": "Liger"}
    modes = [mode for mode in titles if mode in data]
    rows: list[Sequence[Cell]] = []
    for index, batch in enumerate(data["batches"]):
        calls = ((data[mode]["compiled"][index], data[mode]["first_call_ms"][index]) for mode in modes)
        rows.append([batch, *itertools.chain(*((count, format_value(1e3 * ms, "us")) for count, ms in calls))])
    head = ["batch", *itertools.chain(*((f"{titles[mode]}, compilations", "time of first call") for mode in modes))]
    caption = "Four batch sizes in turn: number of compilations so far, and time of the first call"
    warned = note(
        "Compare only the orders of magnitude of the times, because a compilation can use what an earlier compilation "
        "left in the process."
    )
    return Html(table(caption, head, rows) + warned)
