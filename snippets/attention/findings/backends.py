"""The kernels of PyTorch's own backends, and why math takes so much more time than the naive forward."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.events import GpuActivity, Step, TraceError
from kinetoscope.trace.queries import durations_us, kernel_names, kernel_time_us, longest_kernel, op_name
from kinetoscope.trace.units import format_value
from snippets.attention.findings.variants import VARIANTS, count_and_names, first_of, first_us, per_variant
from snippets.lab.finding import Device, Figure, Measure, Run, Source, at_least, at_most, claim, equals, matches
from snippets.lab.finding.measure import derived, unpaired_ratio
from snippets.lab.page import Columns, kernel_name_html, show as show, variants_table

MATH, NAIVE = "attention/math", "attention/naive"
EFFICIENT_KERNEL = "1 kernel: fmha_cutlassF_bf16_aligned_64x64_rf_sm80"
SERIES_CUDNN = "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_6_128x64x64_4x1x1_cga1x1x1_kernel0_0"
CUDNN_OF_SM80 = r"1 kernel: cudnn_\w+_sdpa_sm80_flash_fprop_wmma_\w+"
ROW_CHECK = "looking for rows without a visible key"
PURPOSES = {
    "aten::bmm": "the two products",
    "aten::_softmax": "softmax",
    "aten::mul": "scaling",
    "aten::copy_": "copies and casts",
    **dict.fromkeys(("aten::masked_fill_", "aten::add_"), "applying the mask"),
    **dict.fromkeys(("aten::fill_", "aten::tril", "aten::where"), "building the mask"),
}
"""Launching operator -> purpose; within `aten::_safe_softmax`, all but softmax and casts are the `ROW_CHECK`."""
SCORES_DIMENSIONS = 4
"""Batch, heads, queries, keys: the shape of the scores for every operator but a matmul, which folds the first two."""


def purpose(activity: GpuActivity) -> str:
    """The purpose of an activity of a written-out attention. Raises `TraceError` for an unknown operator."""
    op = activity.op
    if op is None or op.name not in {*PURPOSES, "aten::isneginf", "aten::all"}:
        raise TraceError(f"{op.name if op else 'no operator'} launched {activity.name}, which is no part of attention")
    is_inside = any(caller.name == "aten::_safe_softmax" for caller in op.chain)
    return ROW_CHECK if is_inside and op.name not in ("aten::_softmax", "aten::copy_") else PURPOSES[op.name]


def purposes(run: Run) -> Mapping[str, tuple[int, float]]:
    """Purpose -> number of kernels and memcpys of a step, and their time in microseconds, both means over steps."""
    times_us = map(statistics.fmean, durations_us(run.trace))
    by_purpose: dict[str, list[float]] = defaultdict(list)
    for activity, us in zip(run.step.activities, times_us, strict=True):
        if activity.kind != "memset":
            by_purpose[purpose(activity)].append(us)
    return {name: (len(times), sum(times)) for name, times in by_purpose.items()}


def time_us(step: Step, is_counted: Callable[[GpuActivity], bool]) -> float:
    """Time of the kernels of a step that are counted."""
    return sum(kernel.duration_us for kernel in step.kernels if is_counted(kernel))


def purpose_us(device: Device, name: str) -> Figure:
    """Time of math's kernels that serve one purpose."""
    return device[MATH].per_step(lambda step: time_us(step, lambda kernel: purpose(kernel) == name), "us")


def math_percent(device: Device, is_counted: Callable[[GpuActivity], bool]) -> Figure:
    """Share of the time of math's kernels that is counted."""
    return device[MATH].per_step(lambda step: 100 * time_us(step, is_counted) / kernel_time_us(step.kernels), "%")


def purpose_percent(device: Device, name: str) -> Figure:
    """Share of the time of math's kernels that serves one purpose."""
    return math_percent(device, lambda kernel: purpose(kernel) == name)


def is_large(kernel: GpuActivity) -> bool:
    """Whether a kernel reads or writes a tensor as large as the scores: one for each pair of query and key."""
    shapes = kernel.op.input_shapes if kernel.op else ()
    return op_name(kernel) == "aten::bmm" or any(
        len(shape) == SCORES_DIMENSIONS and shape[-1] == shape[-2] for shape in shapes
    )


@claim("A3", equals(20), scope="this-gpu", source=Source("Part 3", "20"))
def twenty_kernels(device: Device) -> Figure:
    """The math backend launches 20 kernels for one forward."""
    return device[MATH].per_step(lambda step: len(step.kernels))


@claim(
    "A5",
    matches(r"[^;]*sgemm[^;]*; .*s16816.*"),
    scope="this-gpu",
    source=Source("Part 3", "sgemm (float32, no Tensor Cores); s16816 (bf16)"),
)
def product_kernels(device: Device) -> Figure:
    """The math backend multiplies with sgemm kernels, and naive attention multiplies with s16816 kernels.

    On this GPU, the kernels come from newer libraries and have other names, which mean the same types. Claim O-A7
    checks the types of the products without the names.
    """
    return per_variant(device, ("math", "naive"), lambda step: first_of(step, "aten::bmm").name)


@claim("O-A7", equals("math float; naive BFloat16"))
def product_types(device: Device) -> Figure:
    """The math backend multiplies matrices in float32, and naive attention multiplies matrices in bf16."""

    def types(step: Step) -> str:
        dtypes = {dtype for op in step.ops if op.name == "aten::bmm" for dtype in op.input_types[:2]}
        return " and ".join(sorted(dtype.removeprefix("c10::") for dtype in dtypes))

    return per_variant(device, ("math", "naive"), types)


@claim("O-A8", at_least(4), scope="timing")
def product_in_float32(device: Device) -> Figure:
    """In the traces, the first product takes at least four times as long in the math backend as in naive attention."""
    return unpaired_ratio(first_us(device[MATH], "aten::bmm"), first_us(device[NAIVE], "aten::bmm"))


@claim(
    "A6",
    matches(r"ones, tril, scalar_tensor, fill_, where; 1 triu_tril_kernel, ([2-9]|\d{2,}) where, 1 add_"),
    scope="this-gpu",
    source=Source("Part 3", "ones, tril, scalar_tensor, fill_, where; triu_tril_kernel, several where, 1 add_"),
)
def mask_operators(device: Device) -> Figure:
    """At each call, the math backend builds its mask with the operators ones, tril, scalar_tensor, fill_ and where, and
    runs one triu_tril_kernel, several where kernels and one add_."""

    def operators(step: Step) -> str:
        names = [op.name.removeprefix("aten::") for op in step.ops]
        present = [name for name in ("ones", "tril", "scalar_tensor", "fill_", "where") if name in names]
        triangles = sum("triu_tril_kernel" in kernel.name for kernel in step.kernels)
        wheres = sum("where_kernel" in kernel.name for kernel in step.kernels)
        return f"{', '.join(present)}; {triangles} triu_tril_kernel, {wheres} where, {names.count('add_')} add_"

    return device[MATH].per_step(operators)


@claim("O-A9", at_most(1), scope="timing")
def mask_built(device: Device) -> Figure:
    """Building the mask takes at most 1 % of the math backend's kernel time."""
    return purpose_percent(device, "building the mask")


@claim(
    "A7",
    equals("math aten::_safe_softmax; naive aten::softmax"),
    source=Source("Part 3", "aten::_safe_softmax; plain softmax gives NaN on a row that is hidden wholly"),
)
def softmax_operators(device: Device) -> Figure:
    """The math backend calls aten::_safe_softmax, and naive attention calls a plain softmax."""

    def operator(step: Step) -> str:
        names = {op.name for op in step.ops}
        return next((name for name in ("aten::_safe_softmax", "aten::softmax") if name in names), "none")

    return per_variant(device, ("math", "naive"), operator)


@claim("O-A10", at_least(1.5), scope="timing")
def row_check_over_softmax(device: Device) -> Figure:
    """In the math backend, looking for rows without a visible key takes at least 1.5 times as long as the softmax."""
    return unpaired_ratio(purpose_us(device, ROW_CHECK), purpose_us(device, "softmax"))


@claim("O-A11", equals("8 of 20"), scope="this-gpu")
def large_kernels(device: Device) -> Figure:
    """Of the math backend's twenty kernels, eight work on tensors as large as the scores."""
    return device[MATH].per_step(lambda step: f"{sum(map(is_large, step.kernels))} of {len(step.kernels)}")


@claim("O-A15", at_most(100 / 12), scope="timing")
def small_percent(device: Device) -> Figure:
    """Of the math backend's twenty kernels, the twelve that work on smaller tensors than the scores together take at
    most a twelfth of the kernel time."""
    return math_percent(device, lambda kernel: not is_large(kernel))


def purposes_table(device: Device) -> Html:
    """The kernels of naive and math by purpose: number and time."""
    naive, math = purposes(device[NAIVE]), purposes(device[MATH])
    by_time = sorted(math, key=lambda name: -math[name][1])
    rows: list[Sequence[Cell]] = [[name, *_cells(naive.get(name)), *_cells(math.get(name))] for name in by_time]
    rows.append(["all", *_cells(_sum(naive)), *_cells(_sum(math))])
    head = ["", "naive: kernels and copies", "naive: time", "math: kernels and copies", "math: time"]
    return table("Kernels and copies of one forward, by purpose", head, rows)


def _sum(by_purpose: Mapping[str, tuple[int, float]]) -> tuple[int, float]:
    return sum(count for count, _ in by_purpose.values()), sum(us for _, us in by_purpose.values())


def _cells(count_and_us: tuple[int, float] | None) -> tuple[Cell, Cell]:
    return (count_and_us[0], format_value(count_and_us[1], "us")) if count_and_us else (None, None)


def launch_calls(step: Step) -> str:
    """The calls that launch a step's kernels, each once."""
    return ", ".join(dict.fromkeys(kernel.launch.name for kernel in step.kernels if kernel.launch))


def transposes(step: Step) -> int:
    """How often a step calls `aten::transpose`."""
    return sum(op.name == "aten::transpose" for op in step.ops)


def auto_picks(device: Device) -> Figure:
    """The backend that PyTorch picks by default."""
    picked = str(device["attention/auto"].data["picked"])
    return Figure({"cudnn": "cuDNN"}.get(picked, picked), origin="asked of PyTorch")


@claim("A8", equals(EFFICIENT_KERNEL), scope="this-gpu", source=Source("Part 3", EFFICIENT_KERNEL))
def efficient_kernel(device: Device) -> Figure:
    """The efficient backend runs one kernel: fmha_cutlassF_bf16_aligned_64x64_rf_sm80."""
    return device["attention/efficient"].per_step(count_and_names)


@claim("A10", matches(CUDNN_OF_SM80), scope="this-gpu", source=Source("Part 3", SERIES_CUDNN))
def cudnn_kernel(device: Device) -> Figure:
    """The cuDNN backend runs one kernel, with sm80 and wmma in its name.

    On this GPU, the cuDNN backend also runs one kernel, but the kernel is written for Hopper. The kernel's name
    contains sm90 and wgmma, the tensor-core instructions of this generation.
    """
    return device["attention/cudnn"].per_step(count_and_names)


@claim(
    "O-A12",
    equals("efficient cudaLaunchKernel; flash cudaLaunchKernel; cuDNN cuLaunchKernelEx; Flex cuLaunchKernel"),
    scope="this-gpu",
)
def one_kernel_launch_calls(device: Device) -> Figure:
    """The kernels of the backend cuDNN and of FlexAttention are launched by `cuLaunchKernelEx`, and the kernels of the
    backends efficient and flash by `cudaLaunchKernel`."""
    return per_variant(device, ("efficient", "flash", "cuDNN", "Flex"), launch_calls)


@claim("O-A13", equals("efficient 4; flash 4; cuDNN 0"))
def backend_transposes(device: Device) -> Figure:
    """The efficient and the flash backend call four transposes each, and the cuDNN backend calls none."""
    return per_variant(device, ("efficient", "flash", "cuDNN"), transposes)


@claim("O-A14", equals("says cuDNN, runs cuDNN"), scope="this-gpu")
def picked_and_ran(device: Device) -> Figure:
    """If no backend is named, PyTorch picks cuDNN for this shape and runs its kernel."""
    auto = device["attention/auto"].per_step(kernel_names)
    backends = ("math", "efficient", "flash", "cuDNN")
    same = [name for name in backends if device[VARIANTS[name]].per_step(kernel_names).value == auto.value]
    return derived(f"says {auto_picks(device).value}, runs {' or '.join(same) or 'none of them'}", auto)


def launches_table(device: Device, variants: Mapping[str, str], caption: str) -> Html:
    """The kernels of one forward of each variant (name -> experiment), one row each."""
    columns: Columns = {
        "longest kernel": lambda run: kernel_name_html(longest_kernel(run.step).name),
        "launched by": lambda run: code(launch_calls(run.step)),
        "kernels": "kernels_per_step",
        "copies": "memcpys_per_step",
        "fills": "memsets_per_step",
        "operators": "ops_per_step",
        "transposes": lambda run: transposes(run.step),
    }
    return variants_table(device, variants, caption, columns=columns, text_columns=3)


COMPILED_WAYS = ("compiled", "Flex")
"""The variants that torch.compile makes. A guess asks about one, so they have a table of their own, behind its veil."""
eager_launches = partial(
    launches_table,
    variants={name: experiment for name, experiment in VARIANTS.items() if name not in COMPILED_WAYS},
    caption="What one forward launches",
)
compiled_launches = partial(
    launches_table,
    variants={name: VARIANTS[name] for name in COMPILED_WAYS},
    caption="What one compiled forward launches",
)


FIGURES: Mapping[str, Measure] = {
    "row_check": lambda device: purpose_percent(device, ROW_CHECK),
    "mask_applied": lambda device: purpose_percent(device, "applying the mask"),
}
