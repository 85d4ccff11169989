"""Decoding: one query, many keys."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from snippets.attention.findings.variants import EIGHT, kernel_names
from snippets.lab.experiment import find
from snippets.lab.finding import Device, Figure, Measure, at_least, between, claim, equals, format_value, quantity
from snippets.lab.finding.measure import derived, paired_ratio, share_of_ceiling, smallest
from snippets.lab.html import Cell, Html, code, table
from snippets.lab.page import show as show
from snippets.lab.recording.ceilings import COPY
from snippets.lab.trace.events import GpuActivity, Step, TraceError

DECODE = {heading: name.replace("/", "/decode_") for heading, name in EIGHT.items() if heading != "in place"}
"""Without a mask there is nothing to mask in place."""
CUDNN = DECODE["cuDNN"]


def longest_kernel(step: Step) -> GpuActivity:
    """The kernel of a step that takes longest. Raises `TraceError` for a step without kernels."""
    if not step.kernels:
        raise TraceError(f"{step.name} has no kernel; make record CHAPTER=attention")
    return max(step.kernels, key=lambda kernel: kernel.duration_us)


def blocks(step: Step) -> int:
    """Blocks of the longest kernel's grid."""
    return math.prod(longest_kernel(step).grid or (0,))


def shared_bytes(step: Step) -> int:
    """Shared memory of a block of the longest kernel."""
    return longest_kernel(step).shared_memory_bytes or 0


@claim("O-A43", at_least(80), scope="timing")
def lower_copy_share(device: Device) -> Figure:
    """Decoding, cuDNN and flash move keys and values at four fifths of a plain copy's rate or more."""
    return smallest(*(share_of_ceiling(device[DECODE[heading]], COPY) for heading in ("cuDNN", "flash")))


@claim("O-A44", between(1.03, 1.25), scope="timing")
def naive_over_cudnn(device: Device) -> Figure:
    """Decoding, naive attention takes at most a quarter longer than cuDNN."""
    return paired_ratio(device[DECODE["naive"]], device[CUDNN])


@claim("O-A45", equals("128 and 128 blocks"), scope="this-gpu")
def same_grid(device: Device) -> Figure:
    """Efficient and cuDNN cut the work alike, into a block for each head of each sequence."""
    efficient, cudnn = (device[DECODE[heading]].per_step(blocks) for heading in ("efficient", "cuDNN"))
    return derived(f"{efficient.value} and {cudnn.value} blocks", efficient, cudnn)


@claim("O-A46", between(4.1, 5.1), scope="timing")
def efficient_over_cudnn(device: Device) -> Figure:
    """Yet efficient takes more than four times as long."""
    return paired_ratio(device[DECODE["efficient"]], device[CUDNN])


@claim("O-A47", equals("2 kernels, 256 blocks"), scope="this-gpu")
def flash_split(device: Device) -> Figure:
    """Flash splits each head's keys in two, and a second kernel combines what came of them."""
    return device[DECODE["flash"]].per_step(lambda step: f"{len(step.kernels)} kernels, {blocks(step)} blocks")


@claim("O-A48", between(11, 14.5), scope="timing")
def math_over_cudnn(device: Device) -> Figure:
    """Math takes more than eleven times as long as cuDNN."""
    return paired_ratio(device[DECODE["math"]], device[CUDNN])


@claim("O-A49", equals(True), scope="this-gpu")
def compiled_is_cudnn(device: Device) -> Figure:
    """The compiled form's one kernel is cuDNN's, name for name."""
    compiled, cudnn = (device[DECODE[heading]].per_step(kernel_names) for heading in ("compiled", "cuDNN"))
    is_same = compiled.value == cudnn.value
    text = f"{compiled.value}, in both" if is_same else f"{compiled.value} instead of {cudnn.value}"
    return derived(is_same, compiled, cudnn, display=text)


def decode_table(device: Device) -> Html:
    """One query for each head, seven ways: time, share of a copy's rate, and how the longest kernel is cut."""
    rows: list[Sequence[Cell]] = []
    for heading, experiment in DECODE.items():
        run, step = device[experiment], device[experiment].step
        speed = (run.time().text, share_of_ceiling(run, COPY).text)
        grid = (f"{blocks(step):,}", format_value(shared_bytes(step), "bytes"))
        rows.append([heading, len(step.kernels), *speed, *grid])
    head = ["", "kernels", "GPU, warm", "of a copy's rate", "blocks", "shared memory"]
    return table("One query for each head; blocks of the longest kernel, and the shared memory of each", head, rows)


def alignments(device: Device) -> Html:
    """Whether a single query sees all keys, by `is_causal` and by what is meant; run while the page is built."""
    from snippets.attention import model

    experiment = find(DECODE["math"])[0].at(batch=1, heads=1, keys=5, head_dim=8)
    assert experiment.make is not None
    q, k, v = experiment.make("cpu", **experiment.parameters).inputs()
    right = model.reference(q, k, v)
    rows: list[Sequence[Cell]] = []
    for function in (model.aligned_top_left, model.aligned_lower_right):
        result = function(q, k, v)
        error = float((result.double() - right).norm() / right.norm())
        is_first = result.flatten().tolist() == v[..., :1, :].flatten().tolist()
        rows.append([code(function.__name__), *("yes" if is_so else "no" for is_so in (is_first, error < 1e-2))])
    head = ["one query, five keys", "returns the first key's value", "right"]
    return table("Run on the CPU while this page was built", head, rows, text_columns=3)


FIGURES: Mapping[str, Measure] = {
    "decode_bytes": lambda device: quantity(device[CUDNN], "bytes"),
    "decode_copy_share": lambda device: share_of_ceiling(device[CUDNN], COPY),
    "decode_naive_ratio": naive_over_cudnn,
    "decode_efficient_ratio": efficient_over_cudnn,
    "decode_math_ratio": math_over_cudnn,
    "decode_blocks": lambda device: device[CUDNN].per_step(blocks),
    "decode_multiprocessors": lambda device: Figure(device[CUDNN].environment.multiprocessors, origin=device.name),
    "decode_efficient_shared": lambda device: device[DECODE["efficient"]].per_step(shared_bytes, "bytes"),
    "decode_cudnn_shared": lambda device: device[CUDNN].per_step(shared_bytes, "bytes"),
}
