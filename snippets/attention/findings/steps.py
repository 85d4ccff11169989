"""Forward and backward, and all errors against float64."""

from collections.abc import Mapping, Sequence
from html import escape

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.queries import kernel_time_us, op_name
from snippets.attention.findings.decoding import DECODE
from snippets.attention.findings.growing import Lengths
from snippets.attention.findings.speed import STEADY, fastest_first
from snippets.attention.findings.variants import EIGHT, ONE_KERNEL, VARIANTS
from snippets.lab.finding import Device, Figure, Measure, at_least, at_most, between, claim, equals, quantity
from snippets.lab.finding.measure import derived, listed, paired_ratio, point_ratio
from snippets.lab.page import Columns, figure_cell, kernel_bars, show as show, variants_table
from snippets.lab.recording.schema import Timing

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
    """By interleaved GPU time, the variants of attention come in the same order in training as in a forward."""
    training = fastest_first(device, TRAINING)
    is_same = training.value == fastest_first(device, EIGHT).value
    return Figure(is_same, display=str(training.value), origin=training.origin)


@claim(
    "O-A51",
    equals("naive 13, in place 13, math 32, efficient 4, flash 6, cuDNN 4, compiled 8, Flex 3"),
    scope="this-gpu",
)
def training_kernels(device: Device) -> Figure:
    """A training step of attention runs 13 kernels in the variants naive and in place, 32 in math, 8 in compiled, and
    3 to 6 in each fused variant."""
    return listed(
        {heading: quantity(device[experiment], "kernels_per_step") for heading, experiment in TRAINING.items()}
    )


@claim("O-A52", at_most(0.125), scope="this-gpu")
def fused_peaks(device: Device) -> Figure:
    """In training, every fused variant of attention needs at most an eighth of naive attention's peak memory."""
    naive = device[TRAINING["naive"]].point.peak_memory_bytes
    ratios = [device[TRAINING[heading]].point.peak_memory_bytes / naive for heading in ONE_KERNEL]
    return Figure(max(ratios), "x", (min(ratios), max(ratios)), "peak memory of a step, fused over naive")


@claim("O-A53", equals(1.0), scope="this-gpu")
def in_place_peak(device: Device) -> Figure:
    """In training, attention masked in place has the same peak memory as naive attention, to the byte."""
    return point_ratio(device[TRAINING["in place"]], device[TRAINING["naive"]], "peak_memory_bytes")


@claim("O-A54", between(3, 3.6), scope="timing")
def backward_over_forward(device: Device) -> Figure:
    """In the trace of flash, the backward pass takes 3 to 3.6 times as long as the forward pass."""

    def ratio(step: Step) -> float:
        backward = [activity for activity in step.activities if is_backward(activity)]
        forward = [activity for activity in step.activities if not is_backward(activity)]
        return kernel_time_us(backward) / kernel_time_us(forward)

    return device[TRAINING["flash"]].per_step(ratio, "x")


@claim("O-A55", equals("2, 1, 0"), scope="this-gpu")
def layout_copies_of_three(device: Device) -> Figure:
    """For the backward pass, flash copies two tensors to another layout, efficient copies one tensor, and cuDNN
    copies no tensor."""
    runs = [device[TRAINING[heading]] for heading in ("flash", "efficient", "cuDNN")]
    counts = [run.per_step(lambda step: len(layout_copies(step))) for run in runs]
    return derived(", ".join(count.text for count in counts), *counts)


def training_table(device: Device) -> Html:
    """Forward and backward, eight ways: kernels, time, the CPU's part, peak memory."""
    columns: Columns = {
        "kernels": "kernels_per_step",
        "GPU, interleaved": "interleaved_us",
        **STEADY,
        "from Python": "from_python_us",
        "from Python, CPU time": "enqueue_us",
        "peak memory": "peak_memory_bytes",
    }
    return variants_table(device, TRAINING, "Forward and backward of each variant", columns=columns)


def training_times(device: Device) -> Html:
    """GPU time of a training step by kernel, for variants that do not write the scores to memory."""
    variants = {heading: TRAINING[heading] for heading in ("cuDNN", "Flex", "flash", "efficient")}
    return kernel_bars(device, variants, "GPU time of forward and backward, by kernel")


def wide_error(device: Device, heading: str) -> Figure:
    """Error with 128 numbers to a head over that with 64, at 1024 tokens."""
    narrow, wide = (Lengths(device, head_dim).error(heading, 1024) for head_dim in (64, 128))
    return Figure(wide / narrow, "x", origin=f"errors of {heading}, attention/lengths_128 over lengths_64")


@claim("O-A56", at_most(5e-3), scope="this-gpu")
def all_errors(device: Device) -> Figure:
    """Every variant of attention is within 0.5 % of float64, in a forward, in training and in decoding."""
    experiments = (*VARIANTS.values(), *TRAINING.values(), *DECODE.values())
    errors = [device[experiment].point.relative_error for experiment in experiments]
    return Figure(max(errors), spread=(min(errors), max(errors)), origin="relative errors against float64, every step")


@claim("O-A57", equals("math"), scope="this-gpu")
def nearest(device: Device) -> Figure:
    """Of all variants of attention, math has the smallest error against float64."""
    errors = {heading: device[experiment].point.relative_error for heading, experiment in EIGHT.items()}
    return Figure(min(errors, key=errors.__getitem__), origin="relative errors against float64")


@claim("O-A58", between(1.6, 2), scope="this-gpu")
def naive_over_flash(device: Device) -> Figure:
    """The error of naive attention is 1.6 to 2 times as large as the error of flash."""
    return point_ratio(device["attention/naive"], device["attention/flash"], "relative_error")


@claim("O-A59", at_least(1.2), scope="this-gpu")
def wide_naive_over_compiled(device: Device) -> Figure:
    """With heads of 128 numbers, the error of naive attention is at least 20 % larger than the error of compiled
    attention."""
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
    head = ["", "128 tokens", "1024 tokens", "8192 tokens", "decoding", "training, gradient of q"]
    return table("Relative error against float64, with heads of 64 numbers", head, rows)


def wide_errors(device: Device) -> Html:
    """Errors with 64 and with 128 numbers to a head, of three variants at 1024 tokens."""
    sweeps = [Lengths(device, head_dim) for head_dim in (64, 128)]
    errors = {heading: [sweep.error(heading, 1024) for sweep in sweeps] for heading in ("naive", "compiled", "cuDNN")}
    rows = [[heading, *(f"{error:.2e}" for error in pair)] for heading, pair in errors.items()]
    return table(
        "Relative error against float64, with 1024 tokens", ["", "heads of 64 numbers", "heads of 128 numbers"], rows
    )


def hub(device: Device) -> Html:
    """The Hub's flash-attention and PyTorch's, interleaved; if it was not available, the cause."""
    data = device["attention/hub_flash"].data
    if "missing" in data:
        return Html(f"<p>Not measured here: {escape(str(data['missing']))}.</p>")
    rows: list[Sequence[Cell]] = []
    for heading, name in (("the Hub's FlashAttention", "hub"), ("PyTorch's flash backend", "flash")):
        time = Figure.from_timing(Timing.from_samples(data["samples_us"][name]))
        rows.append([heading, figure_cell(time), f"{data['errors'][name]:.2e}"])
    caption = f"FlashAttention from the Hub, version {data['version']}, and PyTorch's flash backend"
    return table(caption, ["", "GPU, interleaved", "relative error"], rows)


FIGURES: Mapping[str, Measure] = {
    "training_naive_ratio": lambda device: paired_ratio(device[TRAINING["naive"]], device[TRAINING["cuDNN"]]),
    "training_copies": lambda device: device[TRAINING["flash"]].per_step(copies_percent, "%"),
    "error_wide_naive": lambda device: wide_error(device, "naive"),
    "error_wide_compiled": lambda device: wide_error(device, "compiled"),
}
