"""What the chapter attention shows and claims of training and of errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from snippets.attention.findings.decoding import DECODE
from snippets.attention.findings.growing import Stopped, of_way
from snippets.attention.findings.measures import (
    ONE_KERNEL,
    WAYS,
    Measure,
    amount,
    at_most,
    in_steps,
    one_of,
    own_claim,
    paired,
    timings,
    within,
)
from snippets.attention.findings.speed import EIGHT
from snippets.lab.drawing.charts import kernel_bars
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.quantities import figure, point
from snippets.lab.html import Cell, Html, table
from snippets.lab.page.tables import figure_cell
from snippets.lab.recording.device import shown_device
from snippets.lab.recording.loading import load_recording
from snippets.lab.trace.events import GpuActivity, Step, Trace
from snippets.lab.trace.queries import kernel_time_us

# KEEP trace

TRAINING = {heading: one.replace("/", "/training_") for heading, one in EIGHT.items()}


def is_backward(traced: Trace, activity: GpuActivity) -> bool:
    """Whether autograd launched it."""
    op = traced.op_of(activity)
    return op is not None and any(one.name.startswith("autograd::") for one in traced.dispatch_chain(op))


def backward_ratio(heading: str) -> Measure:
    """A measure: GPU time of the backward pass over that of the forward pass before it, in one trace."""

    def ratio(traced: Trace, step: Step) -> float:
        backward = [one for one in step.activities if is_backward(traced, one)]
        forward = [one for one in step.activities if one not in backward]
        return kernel_time_us(backward) / kernel_time_us(forward)

    return amount(TRAINING[heading], "x", ratio)


def copies(traced: Trace, step: Step) -> tuple[GpuActivity, ...]:
    """Kernels that only write a tensor in another layout, for the backward pass."""
    named = ((kernel, traced.op_of(kernel)) for kernel in step.kernels if is_backward(traced, kernel))
    return tuple(kernel for kernel, op in named if op is not None and op.name == "aten::copy_")


def _layout_copies(device: str) -> Figure:
    found = [in_steps(TRAINING[one], lambda t, s: len(copies(t, s)))(device) for one in ("flash", "efficient", "cuDNN")]
    said = ", ".join(str(one.value) for one in found)
    return Figure(said, origin="flash, efficient, cuDNN", conclusive=all(one.conclusive for one in found))


def _copies_share(traced: Trace, step: Step) -> float:
    return 100 * kernel_time_us(copies(traced, step)) / kernel_time_us(step.activities)


def _by_time(experiments: Mapping[str, str], device: str) -> str:
    times = {heading: timings(one, device).warm.median_us for heading, one in experiments.items()}
    return ", ".join(sorted(times, key=times.__getitem__))


def _same_order(device: str) -> Figure:
    """Whether forward and backward come in the order of the forward alone."""
    training = _by_time(TRAINING, device)
    forward = _by_time({heading: WAYS[heading] for heading in TRAINING}, device)
    return Figure(training == forward, said=training, origin="warm medians, in turns")


def _peaks(device: str) -> dict[str, int]:
    return {name: point(load_recording(one, device)).peak_memory_bytes for name, one in TRAINING.items()}


def _by_memory(device: str) -> Figure:
    peaks = {name: peak for name, peak in _peaks(device).items() if name != "in place"}
    return Figure(", ".join(sorted(peaks, key=peaks.__getitem__)), origin="peak memory of a step, the lowest first")


def _fused_peaks(device: str) -> Figure:
    """Peak of each fused way over that of naive attention: the largest, with the range."""
    peaks = _peaks(device)
    ratios = [peaks[name] / peaks["naive"] for name in ONE_KERNEL]
    return Figure(max(ratios), "x", (min(ratios), max(ratios)), "peak memory of a step, fused over naive")


def _in_place_peak(device: str) -> Figure:
    peaks = _peaks(device)
    return Figure(peaks["in place"] / peaks["naive"], "x", origin="peak memory of a step, in place over naive")


def _training_kernels(device: str) -> Figure:
    found = {name: in_steps(one, lambda _, step: len(step.kernels))(device) for name, one in TRAINING.items()}
    said = ", ".join(f"{name} {one.value}" for name, one in found.items())
    return Figure(said, origin="kernels of a training step", conclusive=all(one.conclusive for one in found.values()))


def training_table() -> Html:
    """Forward and backward, eight ways: kernels, time, the CPU's part, peak memory."""
    device = shown_device()
    quantities = ("kernels_per_step", "warm_us", "enqueue_us", "peak_memory_bytes")
    rows = [
        [heading, *(figure(f"{one.replace('/', '.')}.{quantity}", device).text for quantity in quantities)]
        for heading, one in TRAINING.items()
    ]
    return table("Forward and backward, eight ways", ["", "kernels", "GPU, warm", "CPU", "peak memory"], rows)


def training_times() -> Html:
    """GPU time of a training step by kernel, where scores stay off memory."""
    shown = {heading: TRAINING[heading] for heading in ("cuDNN", "Flex", "flash", "efficient")}
    return kernel_bars(shown, shown_device(), "Where the GPU's time goes in forward and backward")


# ---- right or wrong


def error_of(experiment: str, device: str) -> float:
    """Relative error of an experiment against float64."""
    return point(load_recording(experiment, device)).relative_error


def swept_error(head_dim: int, tokens: int, heading: str, device: str) -> float:
    """Relative error of a way at a length. Raises `Stopped` where it has none."""
    found = of_way(head_dim, tokens, heading, device)
    if "error" not in found:
        raise Stopped(f"{heading} has no error at {tokens} tokens: {found.get('stopped', 'it was not measured')}")
    return float(found["error"])


def error_ratio(upper: str, lower: str) -> Measure:
    """A measure: the relative error of one experiment over that of another."""

    def measure(device: str) -> Figure:
        return Figure(error_of(upper, device) / error_of(lower, device), "x", origin=f"errors, {upper} over {lower}")

    return measure


def _nearest(device: str) -> Figure:
    errors = {name: error_of(one, device) for name, one in WAYS.items() if name != "auto"}
    return Figure(min(errors, key=errors.__getitem__), origin="relative errors against float64")


def wide_error(heading: str) -> Measure:
    """A measure: error with 128 numbers to a head over that with 64, at 1024 tokens."""

    def measure(device: str) -> Figure:
        wide, narrow = (swept_error(dim, 1024, heading, device) for dim in (128, 64))
        return Figure(wide / narrow, "x", origin=f"errors of {heading}, attention/lengths_128 over lengths_64")

    return measure


def _wide_naive_over_compiled(device: str) -> Figure:
    errors = [swept_error(128, 1024, heading, device) for heading in ("naive", "compiled")]
    return Figure(errors[0] / errors[1], "x", origin="errors, attention/lengths_128, naive over compiled")


def _all_errors(device: str) -> Figure:
    """The largest error of all steps: forward, training, decoding."""
    errors = [error_of(one, device) for group in (WAYS, TRAINING, DECODE) for one in group.values()]
    worst = max(errors)
    return Figure(worst, spread=(min(errors), worst), origin="relative errors against float64, every step")


def errors_table() -> Html:
    """Relative errors against float64: forward at three lengths, decoding, and the gradient of q."""
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for heading in TRAINING:
        cells = [f"{swept_error(64, tokens, heading, device):.2e}" for tokens in (128, 1024, 8192)]
        decoding = f"{error_of(DECODE[heading], device):.2e}" if heading in DECODE else None
        rows.append([heading, *cells, decoding, f"{error_of(TRAINING[heading], device):.2e}"])
    head = ["", "128 tokens", "1024 tokens", "8192 tokens", "decoding", "training, q's gradient"]
    return table("Relative error against float64, 64 numbers to a head", head, rows)


def wide_errors() -> Html:
    """Errors with 64 and with 128 numbers to a head, of three ways at 1024 tokens."""
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for heading in ("naive", "compiled", "cuDNN"):
        rows.append([heading, *(f"{swept_error(dim, 1024, heading, device):.2e}" for dim in (64, 128))])
    return table("Relative error against float64, 1024 tokens", ["numbers to a head", "64", "128"], rows)


def hub() -> Html:
    """The Hub's flash-attention beside PyTorch's, in turns; where it could not be had, why."""
    data = load_recording("attention/hub_flash", shown_device()).data
    if "missing" in data:
        return Html(f"<p>Not measured here: {escape(str(data['missing']))}.</p>")
    rows: list[Sequence[Cell]] = []
    for title, name in (("the Hub's", "hub"), ("PyTorch's flash", "flash")):
        q1, median, q3 = data[name]
        timed = figure_cell(Figure(median, "us", (q1, q3)))
        rows.append([title, timed, f"{data['errors'][name]:.2e}"])
    caption = f"FlashAttention from the Hub, version {data['version']}, and PyTorch's"
    return table(caption, ["", "GPU, warm", "relative error"], rows)


CLAIMS: tuple[Claim, ...] = (
    own_claim(
        "O-A50",
        "Forward and backward together come in the order of the forward alone.",
        _same_order,
        one_of(True),
        scope="timing",
    ),
    own_claim(
        "O-A51",
        "Kernels of a step: naive and in place 13, math 32, compiled 8; fused, from 3 to 6.",
        _training_kernels,
        one_of("naive 13, in place 13, math 32, efficient 4, flash 6, cuDNN 4, compiled 8, Flex 3"),
        scope="this-gpu",
    ),
    own_claim(
        "O-A52",
        "No fused way needs more than an eighth of naive attention's memory.",
        _fused_peaks,
        at_most(0.125),
        scope="this-gpu",
    ),
    own_claim(
        "O-A53",
        "In training, masking in place saves no memory: its peak is naive attention's, to the byte.",
        _in_place_peak,
        one_of(1.0),
        scope="this-gpu",
    ),
    own_claim(
        "O-A54",
        "The backward pass of flash takes 3 to 3.6 times as long as its forward pass.",
        backward_ratio("flash"),
        within(3, 3.6),
        scope="timing",
    ),
    own_claim(
        "O-A55",
        "For it, flash writes two tensors in another layout, efficient one, cuDNN none.",
        _layout_copies,
        one_of("2, 1, 0"),
        scope="this-gpu",
    ),
    own_claim(
        "O-A56",
        "Every step, forward, trained or decoding, is within half a percent of float64.",
        _all_errors,
        at_most(5e-3),
        scope="this-gpu",
    ),
    own_claim(
        "O-A57",
        "The nearest to float64 is the slowest: math.",
        _nearest,
        one_of("math"),
        scope="this-gpu",
    ),
    own_claim(
        "O-A58",
        "Naive attention's error is 1.6 to 2 times that of flash.",
        error_ratio(WAYS["naive"], WAYS["flash"]),
        within(1.6, 2),
        scope="this-gpu",
    ),
    own_claim(
        "O-A59",
        "With 128 numbers to a head naive attention's error is above the compiled form's by a fifth or more.",
        _wide_naive_over_compiled,
        within(1.2, 1.35),
        scope="this-gpu",
    ),
)

FIGURES: Mapping[str, Measure] = {
    "training_backward": backward_ratio("flash"),
    "training_naive_ratio": paired(TRAINING["naive"], TRAINING["cuDNN"]),
    "training_copies": amount(TRAINING["flash"], "%", _copies_share),
    "training_memory_order": _by_memory,
    "error_nearest": _nearest,
    "error_naive_ratio": error_ratio(WAYS["naive"], WAYS["flash"]),
    "error_wide_naive": wide_error("naive"),
    "error_wide_compiled": wide_error("compiled"),
}
"""The chapter's own numbers of these questions, `#!fig attention.<name>`."""
