"""What PyTorch's own attention launches, backend by backend, and why one of them launches so much."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from snippets.attention.findings.measures import (
    WAYS,
    Measure,
    amount,
    at_least,
    at_most,
    in_each,
    in_steps,
    one_of,
    over,
    own_claim,
    series_claim,
)
from snippets.attention.findings.written_out import (
    NAIVE,
    kernel_names_of,
    kernels_in_short,
    of_operator,
    op_name,
    op_us,
)
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure, format_value
from snippets.lab.html import Cell, Html, code, table
from snippets.lab.page.kernel_name import kernel_name_html
from snippets.lab.recording.device import shown_device
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.trace.events import GpuActivity, Step, Trace, TraceError
from snippets.lab.trace.queries import durations_us, kernel_time_us, middle_step

MATH = WAYS["math"]
BACKENDS = ("math", "efficient", "flash", "cuDNN")
"""Of PyTorch, as `WAYS` calls them."""
ROW_CHECK = "looking for rows without a key"
PURPOSES = {
    "aten::bmm": "the two products",
    "aten::_softmax": "softmax",
    "aten::masked_fill_": "applying the mask",
    "aten::add_": "applying the mask",
    "aten::mul": "scaling",
    "aten::copy_": "copies and casts",
    "aten::fill_": "building the mask",
    "aten::tril": "building the mask",
    "aten::where": "building the mask",
}
"""Operator that launches -> what that is there for; within `aten::_safe_softmax`, all but softmax and casts look for
rows without a key."""
SCORES_DIMENSIONS = 4
"""Batch, heads, queries, keys: as every operator gets the scores but a product, which folds the first two."""


def purpose(traced: Trace, activity: GpuActivity) -> str:
    """What an activity of a written-out attention is there for. Raises `TraceError` for an operator unknown here."""
    op = traced.op_of(activity)
    if op is None or op.name not in {*PURPOSES, "aten::isneginf", "aten::all"}:
        raise TraceError(f"{op.name if op else 'no operator'} launched {activity.name}, which is no part of attention")
    inside = any(above.name == "aten::_safe_softmax" for above in traced.dispatch_chain(op))
    return ROW_CHECK if inside and op.name not in ("aten::_softmax", "aten::copy_") else PURPOSES[op.name]


def purposes(experiment: str, device: str) -> Mapping[str, tuple[int, float]]:
    """Purpose -> how many kernels and copies of a step serve it, and their time in microseconds, mean over steps."""
    traced = load_trace(experiment, device)
    step = middle_step(traced)
    times = map(statistics.fmean, durations_us(traced, step))
    found: dict[str, list[float]] = defaultdict(list)
    for activity, us in zip(step.activities, times, strict=True):
        if activity.kind != "memset":
            found[purpose(traced, activity)].append(us)
    return {name: (len(each), sum(each)) for name, each in found.items()}


def _purpose_us(name: str) -> Callable[[Trace, Step], float]:
    return lambda traced, step: sum(one.duration_us for one in step.kernels if purpose(traced, one) == name)


def _purpose_percent(name: str) -> Measure:
    """A measure: share of the time of math's kernels that serves one purpose."""
    us = _purpose_us(name)
    return amount(MATH, "%", lambda traced, step: 100 * us(traced, step) / kernel_time_us(step.kernels))


# ---- what the backends launch


def _first_product(traced: Trace, step: Step) -> str:
    return of_operator(traced, step, "aten::bmm").name


def _is_sgemm_and_s16816(shown: Figure) -> bool:
    math, _, naive = str(shown.value).partition("; ")
    return "sgemm" in math and "s16816" in naive


def _factor_types(_: Trace, step: Step) -> str:
    found = {kind for op in step.ops if op.name == "aten::bmm" for kind in op.input_types[:2]}
    return " and ".join(sorted(kind.removeprefix("c10::") for kind in found))


def _mask_ops(_: Trace, step: Step) -> str:
    """What math runs for its mask: the operators of the series that are there, its kernels, and how often each."""
    names = [op.name.removeprefix("aten::") for op in step.ops]
    ops = [name for name in ("ones", "tril", "scalar_tensor", "fill_", "where") if name in names]
    triangles = sum("triu_tril_kernel" in one.name for one in step.kernels)
    wheres = sum("where_kernel" in one.name for one in step.kernels)
    return f"{', '.join(ops)}; {triangles} triu_tril_kernel, {wheres} where, {names.count('add_')} add_"


def _rebuilds_mask(shown: Figure) -> bool:
    match = re.fullmatch(
        r"ones, tril, scalar_tensor, fill_, where; 1 triu_tril_kernel, (\d+) where, 1 add_", str(shown.value)
    )
    return match is not None and int(match[1]) > 1


def _softmax_op(_: Trace, step: Step) -> str:
    names = {op.name for op in step.ops}
    return next((name for name in ("aten::_safe_softmax", "aten::softmax") if name in names), "none")


def _is_large(traced: Trace, kernel: GpuActivity) -> bool:
    """Whether a kernel reads or writes a tensor as large as the scores: one for each pair of query and key."""
    op = traced.op_of(kernel)
    shapes = op.input_shapes if op else ()
    return op_name(traced, kernel) == "aten::bmm" or any(
        len(shape) == SCORES_DIMENSIONS and shape[-1] == shape[-2] for shape in shapes
    )


def _large_kernels(traced: Trace, step: Step) -> str:
    return f"{sum(_is_large(traced, one) for one in step.kernels)} of {len(step.kernels)}"


def _small_percent(traced: Trace, step: Step) -> float:
    small = sum(one.duration_us for one in step.kernels if not _is_large(traced, one))
    return 100 * small / kernel_time_us(step.kernels)


def _transposes(_: Trace, step: Step) -> int:
    return sum(op.name == "aten::transpose" for op in step.ops)


def launch_calls(traced: Trace, step: Step) -> str:
    """The calls that launch a step's kernels, each once."""
    found = (traced.launch_of(one) for one in step.kernels)
    return ", ".join(dict.fromkeys(call.name for call in found if call))


def _auto(device: str) -> Figure:
    picked = str(load_recording(WAYS["auto"], device).data["picked"])
    return Figure({"cudnn": "cuDNN"}.get(picked, picked), origin="asked of PyTorch")


def _picked(device: str) -> Figure:
    """What PyTorch picks where none is named, by asking it and by the kernel that ran."""
    ran, *others = (in_steps(WAYS[name], kernel_names_of)(device) for name in ("auto", *BACKENDS))
    same = [name for name, one in zip(BACKENDS, others, strict=True) if one.value == ran.value]
    return Figure(f"says {_auto(device).value}, runs {' or '.join(same) or 'none of them'}", conclusive=ran.conclusive)


CLAIMS: tuple[Claim, ...] = (
    series_claim(
        "A3",
        "The math backend launches 20 kernels for one forward.",
        in_steps(MATH, lambda _, step: len(step.kernels)),
        one_of(20),
        "20",
        scope="this-gpu",
    ),
    series_claim(
        "A5",
        "The math backend multiplies with sgemm kernels, the naive forward with s16816 kernels.",
        in_each(("math", "naive"), _first_product),
        _is_sgemm_and_s16816,
        "sgemm (float32, no Tensor Cores); s16816 (bf16)",
        scope="this-gpu",
        differs="Names of another generation of libraries; what they stand for is the same. The next claim checks that "
        "without names, by the types that the products get.",
    ),
    own_claim(
        "O-A7",
        "The math backend's products get factors in float32, the naive forward's in bf16.",
        in_each(("math", "naive"), _factor_types),
        one_of("math float; naive BFloat16"),
    ),
    own_claim(
        "O-A8",
        "The first product takes at least four times as long in float32.",
        over(op_us(MATH, "aten::bmm"), op_us(NAIVE, "aten::bmm")),
        at_least(4),
        scope="timing",
    ),
    series_claim(
        "A6",
        "The math backend builds its mask anew at each call: ones, tril, scalar_tensor, fill_ and where, a "
        "triu_tril_kernel, several where kernels and one add_.",
        in_steps(MATH, _mask_ops),
        _rebuilds_mask,
        "ones, tril, scalar_tensor, fill_, where; triu_tril_kernel, several where, 1 add_",
        scope="this-gpu",
    ),
    own_claim(
        "O-A9",
        "Building the mask anew takes at most a hundredth of the math backend's time on the GPU.",
        _purpose_percent("building the mask"),
        at_most(1),
        scope="timing",
    ),
    series_claim(
        "A7",
        "The math backend calls aten::_safe_softmax, the naive forward a plain softmax.",
        in_each(("math", "naive"), _softmax_op),
        one_of("math aten::_safe_softmax; naive aten::softmax"),
        "aten::_safe_softmax; plain softmax gives NaN on a row that is hidden wholly",
    ),
    own_claim(
        "O-A10",
        "Looking for rows without a key takes at least one and a half times as long as the softmax itself.",
        over(amount(MATH, "us", _purpose_us(ROW_CHECK)), amount(MATH, "us", _purpose_us("softmax"))),
        at_least(1.5),
        scope="timing",
    ),
    own_claim(
        "O-A11",
        "Of the math backend's twenty kernels, eight work on tensors as large as the scores.",
        in_steps(MATH, _large_kernels),
        one_of("8 of 20"),
        scope="this-gpu",
    ),
    own_claim(
        "O-A15",
        "The math backend's other kernels together take at most a twelfth of its time on the GPU.",
        amount(MATH, "%", _small_percent),
        at_most(100 / 12),
        scope="timing",
    ),
    series_claim(
        "A8",
        "The efficient backend is one kernel: fmha_cutlassF_bf16_aligned_64x64_rf_sm80.",
        in_steps(WAYS["efficient"], kernels_in_short),
        one_of("1 kernel: fmha_cutlassF_bf16_aligned_64x64_rf_sm80"),
        "1 kernel: fmha_cutlassF_bf16_aligned_64x64_rf_sm80",
        scope="this-gpu",
    ),
    series_claim(
        "A10",
        "The cuDNN backend is one kernel, with sm80 and wmma in its name.",
        in_steps(WAYS["cuDNN"], kernels_in_short),
        lambda shown: re.fullmatch(r"1 kernel: cudnn_\w+_sdpa_sm80_flash_fprop_wmma_\w+", str(shown.value)) is not None,
        "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_6_128x64x64_4x1x1_cga1x1x1_kernel0_0",
        scope="this-gpu",
        differs="One kernel here, too, but made for Hopper, as sm90 and wgmma in its name say: wgmma are that "
        "generation's instructions for Tensor Cores. The kernel of the efficient backend is the A100's to the letter.",
    ),
    own_claim(
        "O-A12",
        "cuDNN's and Flex's kernels are launched by calls of the driver, those of efficient and flash by "
        "cudaLaunchKernel.",
        in_each(("efficient", "flash", "cuDNN", "Flex"), launch_calls),
        one_of("efficient cudaLaunchKernel; flash cudaLaunchKernel; cuDNN cuLaunchKernelEx; Flex cuLaunchKernel"),
        scope="this-gpu",
    ),
    own_claim(
        "O-A13",
        "The efficient and the flash backend call four transposes each, the cuDNN backend none.",
        in_each(("efficient", "flash", "cuDNN"), _transposes),
        one_of("efficient 4; flash 4; cuDNN 0"),
    ),
    own_claim(
        "O-A14",
        "Where no backend is named, PyTorch picks cuDNN for this shape and runs its kernel.",
        _picked,
        one_of("says cuDNN, runs cuDNN"),
        scope="this-gpu",
    ),
)


# ---- what the page shows


def launches_table() -> Html:
    """What each way launches for one forward: a row each."""
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for name, experiment in WAYS.items():
        traced = load_trace(experiment, device)
        step = middle_step(traced)
        longest = max(step.kernels, key=lambda one: one.duration_us)
        ops = [op for op in step.ops if not op.is_annotation]
        rows.append(
            [
                name,
                kernel_name_html(longest.name),
                code(launch_calls(traced, step)),
                len(step.kernels),
                len(step.memcpys),
                len(step.memsets),
                len(ops),
                _transposes(traced, step),
            ]
        )
    head = ["", "longest kernel", "launched by", "kernels", "copies", "fills", "operators", "transposes"]
    return table("What one forward launches", head, rows, text_columns=3)


def purposes_table() -> Html:
    """What the kernels of naive and math are there for: how many, and for how long."""
    device = shown_device()
    naive, math = purposes(NAIVE, device), purposes(MATH, device)
    by_time = sorted(math, key=lambda name: -math[name][1])
    rows: list[Sequence[Cell]] = [
        [name, *(cell for found in (naive, math) for cell in _cells(found.get(name)))] for name in by_time
    ]
    sums = [(sum(count for count, _ in one.values()), sum(us for _, us in one.values())) for one in (naive, math)]
    rows.append(["all", *(cell for each in sums for cell in _cells(each))])
    head = ["", "naive", "time", "math", "time"]
    return table("Kernels and copies of one forward, by what they are there for", head, rows)


def _cells(found: tuple[int, float] | None) -> tuple[Cell, Cell]:
    return (found[0], format_value(found[1], "us")) if found else (None, None)


def all_masked(results: Sequence[object]) -> Html:
    """What `model.nothing_to_see()` returned, while this page was built."""
    plain, safe = (str(one).removeprefix("tensor(").removesuffix(")") for one in results)
    rows: list[Sequence[Cell]] = [
        [code("scores.softmax(dim=-1)"), plain],
        [code("torch._safe_softmax(scores, dim=-1)"), safe],
    ]
    return table(
        "A row that is hidden wholly, on the CPU while this page was built", ["", "result"], rows, text_columns=2
    )


FIGURES: Mapping[str, Measure] = {
    "auto_picks": _auto,
    "math_product": over(op_us(MATH, "aten::bmm"), op_us(NAIVE, "aten::bmm")),
    "row_check": _purpose_percent(ROW_CHECK),
    "mask_built": _purpose_percent("building the mask"),
    "mask_applied": _purpose_percent("applying the mask"),
}
"""The numbers of this part, `#!fig attention.<name>`."""
