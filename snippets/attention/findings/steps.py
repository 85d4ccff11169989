"""Steps other than one forward: decoding, forward and backward. And all errors against float64."""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape

from snippets.attention.findings.growing import Lengths
from snippets.attention.findings.speed import STEADY, fastest_first
from snippets.attention.findings.variants import EIGHT, ONE_KERNEL, VARIANTS
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    at_least,
    at_most,
    between,
    claim,
    equals,
    format_value,
    matches,
)
from snippets.lab.finding.measure import derived, listed, paired_ratio, point_ratio, share_of_ceiling, smallest
from snippets.lab.finding.quantities import quantity
from snippets.lab.html import Cell, Html, table
from snippets.lab.page import Columns, devices_table, figure_cell, kernel_bars, variants_table
from snippets.lab.page import show as show
from snippets.lab.recording.ceilings import COPY
from snippets.lab.recording.schema import Timing
from snippets.lab.trace.events import GpuActivity, Step
from snippets.lab.trace.queries import kernel_names, kernel_time_us, longest_kernel, op_name

DECODE = {heading: name.replace("/", "/decode_") for heading, name in EIGHT.items() if heading != "in place"}
"""Decoding has no mask, so it has no variant in place."""
CUDNN = DECODE["cuDNN"]


def blocks(step: Step) -> int:
    """Blocks of the longest kernel's grid."""
    return math.prod(longest_kernel(step).grid or (0,))


def shared_bytes(step: Step) -> int:
    """Shared memory of a block of the longest kernel."""
    return longest_kernel(step).shared_memory_bytes or 0


@claim("O-A43", at_least(80), scope="timing")
def lower_copy_share(device: Device) -> Figure:
    """Decoding, cuDNN and flash move keys and values at no less than four fifths of a plain copy's rate."""
    return smallest(*(share_of_ceiling(device[DECODE[heading]], COPY) for heading in ("cuDNN", "flash")))


@claim("O-A44", at_most(1.25), scope="timing")
def naive_over_cudnn(device: Device) -> Figure:
    """Decoding, naive attention takes at most a quarter longer than cuDNN."""
    return paired_ratio(device[DECODE["naive"]], device[CUDNN])


@claim("O-A45", equals("128 and 128 blocks"), scope="this-gpu")
def same_grid(device: Device) -> Figure:
    """Decoding, efficient and cuDNN both launch a block for each head of each sequence."""
    efficient, cudnn = (device[DECODE[heading]].per_step(blocks) for heading in ("efficient", "cuDNN"))
    return derived(f"{efficient.value} and {cudnn.value} blocks", efficient, cudnn)


@claim("O-A46", at_least(4), scope="timing")
def efficient_over_cudnn(device: Device) -> Figure:
    """Decoding, efficient takes at least four times as long as cuDNN."""
    return paired_ratio(device[DECODE["efficient"]], device[CUDNN])


@claim("O-A47", equals("flash_fwd_splitkv_kernel (1, 2, 128), flash_fwd_splitkv_combine_kernel"), scope="this-gpu")
def flash_split(device: Device) -> Figure:
    """Decoding, flash runs two blocks for each of the 128 heads, then a second kernel that combines their results."""

    def kernels(step: Step) -> str:
        names = [re.split(r"[<(]", kernel.name)[0].rpartition("::")[2] for kernel in step.kernels]
        first, *others = names or ["none"]
        return ", ".join([f"{first} {longest_kernel(step).grid}", *others])

    return device[DECODE["flash"]].per_step(kernels)


@claim("O-A48", at_least(11), scope="timing")
def math_over_cudnn(device: Device) -> Figure:
    """Decoding, math takes at least eleven times as long as cuDNN."""
    return paired_ratio(device[DECODE["math"]], device[CUDNN])


@claim("O-A49", equals(True), scope="this-gpu")
def compiled_is_cudnn(device: Device) -> Figure:
    """Decoding, the one kernel of the compiled form has the name of cuDNN's."""
    compiled, cudnn = (device[DECODE[heading]].per_step(kernel_names) for heading in ("compiled", "cuDNN"))
    is_same = compiled.value == cudnn.value
    text = f"{compiled.value}, in both" if is_same else f"{compiled.value} instead of {cudnn.value}"
    return derived(is_same, compiled, cudnn, display=text)


@claim("O-A61", matches(r"cudnn_\w+_sdpa_sm80_flash_fprop_wmma_\w+"), scope="this-gpu")
def decode_cudnn_kernel(device: Device) -> Figure:
    """Decoding, cuDNN runs a kernel with sm80 and wmma in its name."""
    return device[CUDNN].per_step(kernel_names)


def decode_table(device: Device) -> Html:
    """One query for each head, seven ways: time, share of a copy's rate, and the longest kernel's blocks."""
    columns: Columns = {
        "kernels": "kernels_per_step",
        "GPU, interleaved": "interleaved_us",
        "of a copy's rate": lambda run: share_of_ceiling(run, COPY).text,
        **STEADY,
        "from Python": "from_python_us",
        "blocks": lambda run: f"{blocks(run.step):,}",
        "shared memory": lambda run: format_value(shared_bytes(run.step), "bytes"),
    }
    caption = "One query for each head; blocks of the longest kernel, and the shared memory of each"
    return variants_table(device, DECODE, caption, columns=columns)


def decode_devices(device: Device) -> Html:
    """The time of each way on every recorded device."""
    figures = {heading: f"{experiment.replace('/', '.')}.interleaved_us" for heading, experiment in DECODE.items()}
    return devices_table(device, figures, "One query for each head, interleaved, on each GPU")


TRAINING = {heading: experiment.replace("/", "/training_") for heading, experiment in EIGHT.items()}


def is_backward(activity: GpuActivity) -> bool:
    """Whether autograd launched the activity."""
    return activity.op is not None and any(op.name.startswith("autograd::") for op in activity.op.chain)


def layout_copies(step: Step) -> tuple[GpuActivity, ...]:
    """Kernels of the backward pass that only change a tensor's layout."""
    return tuple(kernel for kernel in step.kernels if is_backward(kernel) and op_name(kernel) == "aten::copy_")


def copies_percent(step: Step) -> float:
    """Share of `layout_copies` in the time of a step's kernels."""
    return 100 * kernel_time_us(layout_copies(step)) / kernel_time_us(step.activities)


def peaks(device: Device) -> dict[str, int]:
    """Peak memory of a step of each variant."""
    return {heading: device[experiment].point.peak_memory_bytes for heading, experiment in TRAINING.items()}


@claim("O-A50", equals(True), scope="timing")
def same_order(device: Device) -> Figure:
    """By interleaved GPU time, forward and backward together come in the order of the forward alone."""
    training = fastest_first(device, TRAINING)
    is_same = training.value == fastest_first(device, EIGHT).value
    return Figure(is_same, display=str(training.value), origin=training.origin)


@claim(
    "O-A51",
    equals("naive 13, in place 13, math 32, efficient 4, flash 6, cuDNN 4, compiled 8, Flex 3"),
    scope="this-gpu",
)
def training_kernels(device: Device) -> Figure:
    """Kernels of a step: naive and in place 13, math 32, compiled 8; fused, from 3 to 6."""
    return listed(
        {heading: quantity(device[experiment], "kernels_per_step") for heading, experiment in TRAINING.items()}
    )


@claim("O-A52", at_most(0.125), scope="this-gpu")
def fused_peaks(device: Device) -> Figure:
    """No fused way needs more than an eighth of naive attention's memory."""
    naive = device[TRAINING["naive"]].point.peak_memory_bytes
    ratios = [device[TRAINING[heading]].point.peak_memory_bytes / naive for heading in ONE_KERNEL]
    return Figure(max(ratios), "x", (min(ratios), max(ratios)), "peak memory of a step, fused over naive")


@claim("O-A53", equals(1.0), scope="this-gpu")
def in_place_peak(device: Device) -> Figure:
    """In training, masking in place saves no memory: its peak is naive attention's, to the byte."""
    return point_ratio(device[TRAINING["in place"]], device[TRAINING["naive"]], "peak_memory_bytes")


@claim("O-A54", between(3, 3.6), scope="timing")
def backward_over_forward(device: Device) -> Figure:
    """In its trace, flash's backward pass takes 3 to 3.6 times as long as its forward pass."""

    def ratio(step: Step) -> float:
        backward = [activity for activity in step.activities if is_backward(activity)]
        forward = [activity for activity in step.activities if not is_backward(activity)]
        return kernel_time_us(backward) / kernel_time_us(forward)

    return device[TRAINING["flash"]].per_step(ratio, "x")


@claim("O-A55", equals("2, 1, 0"), scope="this-gpu")
def layout_copies_of_three(device: Device) -> Figure:
    """For its backward pass, flash writes two tensors in another layout, efficient one, cuDNN none."""
    runs = [device[TRAINING[heading]] for heading in ("flash", "efficient", "cuDNN")]
    counts = [run.per_step(lambda step: len(layout_copies(step))) for run in runs]
    return derived(", ".join(count.text for count in counts), *counts)


def training_memory_order(device: Device) -> Figure:
    """The variants by peak memory, the lowest first, without in place."""
    bytes_of = {heading: peak for heading, peak in peaks(device).items() if heading != "in place"}
    return Figure(", ".join(sorted(bytes_of, key=bytes_of.__getitem__)), origin="peak memory of a step")


def training_table(device: Device) -> Html:
    """Forward and backward, eight ways: kernels, time, the CPU's part, peak memory."""
    columns: Columns = {
        "kernels": "kernels_per_step",
        "GPU, interleaved": "interleaved_us",
        **STEADY,
        "from Python": "from_python_us",
        "of it the CPU's": "enqueue_us",
        "peak memory": "peak_memory_bytes",
    }
    return variants_table(device, TRAINING, "Forward and backward, eight ways", columns=columns)


def training_times(device: Device) -> Html:
    """GPU time of a training step by kernel, for variants that do not write the scores to memory."""
    variants = {heading: TRAINING[heading] for heading in ("cuDNN", "Flex", "flash", "efficient")}
    return kernel_bars(device, variants, "Where the GPU's time goes in forward and backward")


def wide_error(device: Device, heading: str) -> Figure:
    """Error with 128 numbers to a head over that with 64, at 1024 tokens."""
    narrow, wide = (Lengths(device, head_dim).error(heading, 1024) for head_dim in (64, 128))
    return Figure(wide / narrow, "x", origin=f"errors of {heading}, attention/lengths_128 over lengths_64")


@claim("O-A56", at_most(5e-3), scope="this-gpu")
def all_errors(device: Device) -> Figure:
    """Every step, forward, trained or decoding, is within half a percent of float64."""
    experiments = (*VARIANTS.values(), *TRAINING.values(), *DECODE.values())
    errors = [device[experiment].point.relative_error for experiment in experiments]
    return Figure(max(errors), spread=(min(errors), max(errors)), origin="relative errors against float64, every step")


@claim("O-A57", equals("math"), scope="this-gpu")
def nearest(device: Device) -> Figure:
    """Math has the smallest error against float64."""
    errors = {heading: device[experiment].point.relative_error for heading, experiment in EIGHT.items()}
    return Figure(min(errors, key=errors.__getitem__), origin="relative errors against float64")


@claim("O-A58", between(1.6, 2), scope="this-gpu")
def naive_over_flash(device: Device) -> Figure:
    """Naive attention's error is 1.6 to 2 times that of flash."""
    return point_ratio(device["attention/naive"], device["attention/flash"], "relative_error")


@claim("O-A59", at_least(1.2), scope="this-gpu")
def wide_naive_over_compiled(device: Device) -> Figure:
    """With 128 numbers to a head, naive attention's error is at least a fifth larger than the compiled form's."""
    naive, compiled = (Lengths(device, 128).error(heading, 1024) for heading in ("naive", "compiled"))
    return Figure(naive / compiled, "x", origin="errors, attention/lengths_128, naive over compiled")


def errors_table(device: Device) -> Html:
    """Relative errors against float64: forward at three lengths, decoding, and the gradient of q."""
    rows: list[Sequence[Cell]] = []
    for heading in TRAINING:
        lengths = Lengths(device, 64)
        cells = [
            f"{lengths.error(heading, tokens):.2e}" if lengths.is_timed(heading, tokens) else "out of memory"
            for tokens in (128, 1024, 8192)
        ]
        decoding = f"{device[DECODE[heading]].point.relative_error:.2e}" if heading in DECODE else None
        rows.append([heading, *cells, decoding, f"{device[TRAINING[heading]].point.relative_error:.2e}"])
    head = ["", "128 tokens", "1024 tokens", "8192 tokens", "decoding", "training, q's gradient"]
    return table("Relative error against float64, 64 numbers to a head", head, rows)


def wide_errors(device: Device) -> Html:
    """Errors with 64 and with 128 numbers to a head, of three variants at 1024 tokens."""
    sweeps = [Lengths(device, head_dim) for head_dim in (64, 128)]
    errors = {heading: [sweep.error(heading, 1024) for sweep in sweeps] for heading in ("naive", "compiled", "cuDNN")}
    rows = [[heading, *(f"{error:.2e}" for error in pair)] for heading, pair in errors.items()]
    return table("Relative error against float64, 1024 tokens", ["numbers to a head", "64", "128"], rows)


def hub(device: Device) -> Html:
    """The Hub's flash-attention and PyTorch's, interleaved; if it was not available, the cause."""
    data = device["attention/hub_flash"].data
    if "missing" in data:
        return Html(f"<p>Not measured here: {escape(str(data['missing']))}.</p>")
    rows: list[Sequence[Cell]] = []
    for heading, name in (("the Hub's", "hub"), ("PyTorch's flash", "flash")):
        time = Figure.from_timing(Timing.from_samples(data["samples_us"][name]))
        rows.append([heading, figure_cell(time), f"{data['errors'][name]:.2e}"])
    caption = f"FlashAttention from the Hub, version {data['version']}, and PyTorch's"
    return table(caption, ["", "GPU, interleaved", "relative error"], rows)


FIGURES: Mapping[str, Measure] = {
    "decode_copy_share": lambda device: share_of_ceiling(device[CUDNN], COPY),
    "decode_blocks": lambda device: device[CUDNN].per_step(blocks),
    "decode_multiprocessors": lambda device: Figure(device[CUDNN].environment.multiprocessors, origin=device.name),
    "decode_efficient_shared": lambda device: device[DECODE["efficient"]].per_step(shared_bytes, "bytes"),
    "decode_cudnn_shared": lambda device: device[CUDNN].per_step(shared_bytes, "bytes"),
    "training_naive_ratio": lambda device: paired_ratio(device[TRAINING["naive"]], device[TRAINING["cuDNN"]]),
    "training_copies": lambda device: device[TRAINING["flash"]].per_step(copies_percent, "%"),
    "error_wide_naive": lambda device: wide_error(device, "naive"),
    "error_wide_compiled": lambda device: wide_error(device, "compiled"),
}
