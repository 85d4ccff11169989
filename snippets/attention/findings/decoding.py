"""What the chapter attention shows and claims of decoding: one query, many keys."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from snippets.attention.findings.measures import (
    WAYS,
    Measure,
    amount,
    at_least,
    in_steps,
    one_of,
    own_claim,
    paired,
    timings,
    within,
)
from snippets.lab.experiment import find
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure, format_value
from snippets.lab.finding.measure import share_of_ceiling
from snippets.lab.finding.quantities import figure, point
from snippets.lab.html import Cell, Html, code, table
from snippets.lab.recording.device import shown_device
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.trace.events import GpuActivity, Step, Trace, TraceError
from snippets.lab.trace.queries import middle_step

DECODE = {heading: one.replace("/", "/decode_") for heading, one in WAYS.items() if heading not in ("in place", "auto")}


def longest_kernel(step: Step) -> GpuActivity:
    """The kernel of a step that takes longest. Raises `TraceError` for a step without kernels."""
    if not step.kernels:
        raise TraceError(f"{step.name} has no kernel; make record CHAPTER=attention")
    return max(step.kernels, key=lambda kernel: kernel.duration_us)


def blocks(kernel: GpuActivity) -> int:
    """Blocks of a kernel's grid."""
    return math.prod(kernel.grid or (0,))


def _blocks(heading: str) -> Measure:
    return in_steps(DECODE[heading], lambda _, step: blocks(longest_kernel(step)))


def _shared(heading: str) -> Measure:
    """A measure: shared memory of a block of the longest kernel."""
    return amount(DECODE[heading], "bytes", lambda _, step: longest_kernel(step).shared_memory_bytes or 0)


def copy_share(heading: str) -> Measure:
    """A measure: keys and values a second while decoding, in percent of a plain copy's rate."""

    def measure(device: str) -> Figure:
        found = load_recording(DECODE[heading], device)
        return share_of_ceiling(found, point(found), "copy")

    return measure


def _fused_shares(device: str) -> Figure:
    """The lower of cuDNN's and flash's shares of the copy's rate."""
    return min((copy_share(one)(device) for one in ("cuDNN", "flash")), key=lambda shown: float(shown.value))


def _same_grid(device: str) -> Figure:
    found = [_blocks(one)(device) for one in ("efficient", "cuDNN")]
    said = f"{found[0].value} and {found[1].value} blocks"
    return Figure(said, origin="grids in two traces", conclusive=all(one.conclusive for one in found))


def _split(device: str) -> Figure:
    """Flash's kernels while decoding, and blocks of the longer."""

    def shown(_: Trace, step: Step) -> str:
        return f"{len(step.kernels)} kernels, {blocks(longest_kernel(step))} blocks"

    return in_steps(DECODE["flash"], shown)(device)


def kernel_names(experiment: str) -> Measure:
    """A measure: names of the kernels of a step, in order."""
    return in_steps(experiment, lambda _, step: ", ".join(kernel.name for kernel in step.kernels))


def _found_by_compiler(device: str) -> Figure:
    """Whether the compiled step runs the kernels of cuDNN's, name for name."""
    compiled, cudnn = (kernel_names(DECODE[one])(device) for one in ("compiled", "cuDNN"))
    is_same = compiled.value == cudnn.value
    said = f"{compiled.value}, in both" if is_same else f"{compiled.value} instead of {cudnn.value}"
    return Figure(is_same, said=said, conclusive=compiled.conclusive and cudnn.conclusive)


def decode_table() -> Html:
    """One query for each head, seven ways: time, share of a copy's rate, and how the longest kernel is cut."""
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for heading, experiment in DECODE.items():
        step = middle_step(load_trace(experiment, device))
        kernel = longest_kernel(step)
        warm = timings(experiment, device).warm.median_us
        shared = format_value(kernel.shared_memory_bytes or 0, "bytes")
        share = copy_share(heading)(device).text
        rows.append([heading, len(step.kernels), format_value(warm, "us"), share, f"{blocks(kernel):,}", shared])
    head = ["", "kernels", "GPU, warm", "of a copy's rate", "blocks", "shared memory"]
    return table("One query for each head; blocks of the longest kernel, and the shared memory of each", head, rows)


def alignments() -> Html:
    """Whether a single query sees all keys, by `is_causal` and by what is meant; run while the page is built."""
    from snippets.attention import model

    one = find(DECODE["math"])[0].at(batch=1, heads=1, keys=5, head_dim=8)
    assert one.make is not None
    q, k, v = one.make("cpu", **one.parameters).inputs()
    right = model.reference(q, k, v)
    rows: list[Sequence[Cell]] = []
    for function in (model.aligned_top_left, model.aligned_lower_right):
        found = function(q, k, v)
        wrong_by = float((found.double() - right).norm() / right.norm())
        is_first = found.flatten().tolist() == v[..., :1, :].flatten().tolist()
        rows.append([code(function.__name__), _yes(is_first), _yes(wrong_by < 1e-2)])
    head = ["one query, five keys", "returns the first key's value", "right"]
    return table("Run on the CPU while this page was built", head, rows, text_columns=3)


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


CLAIMS: tuple[Claim, ...] = (
    own_claim(
        "O-A43",
        "Decoding, cuDNN and flash move keys and values at four fifths of a plain copy's rate or more.",
        _fused_shares,
        at_least(80),
        scope="timing",
    ),
    own_claim(
        "O-A44",
        "Decoding, naive attention takes at most a quarter longer than cuDNN.",
        paired(DECODE["naive"], DECODE["cuDNN"]),
        within(1.03, 1.25),
        scope="timing",
    ),
    own_claim(
        "O-A45",
        "Efficient and cuDNN cut the work alike, into a block for each head of each sequence.",
        _same_grid,
        one_of("128 and 128 blocks"),
        scope="this-gpu",
    ),
    own_claim(
        "O-A46",
        "Yet efficient takes more than four times as long.",
        paired(DECODE["efficient"], DECODE["cuDNN"]),
        within(4.1, 5.1),
        scope="timing",
    ),
    own_claim(
        "O-A47",
        "Flash splits each head's keys in two, and a second kernel combines what came of them.",
        _split,
        one_of("2 kernels, 256 blocks"),
        scope="this-gpu",
    ),
    own_claim(
        "O-A48",
        "Math takes more than eleven times as long as cuDNN.",
        paired(DECODE["math"], DECODE["cuDNN"]),
        within(11, 14.5),
        scope="timing",
    ),
    own_claim(
        "O-A49",
        "The compiled form's one kernel is cuDNN's, name for name.",
        _found_by_compiler,
        one_of(True),
        scope="this-gpu",
    ),
)


FIGURES: Mapping[str, Measure] = {
    "decode_bytes": lambda device: figure("attention.decode_cudnn.bytes", device),
    "decode_copy_share": copy_share("cuDNN"),
    "decode_naive_ratio": paired(DECODE["naive"], DECODE["cuDNN"]),
    "decode_efficient_ratio": paired(DECODE["efficient"], DECODE["cuDNN"]),
    "decode_math_ratio": paired(DECODE["math"], DECODE["cuDNN"]),
    "decode_blocks": _blocks("cuDNN"),
    "decode_multiprocessors": lambda device: Figure(
        load_recording(DECODE["cuDNN"], device).circumstances.multiprocessors, origin="multiprocessors of the device"
    ),
    "decode_efficient_shared": _shared("efficient"),
    "decode_cudnn_shared": _shared("cuDNN"),
}
"""The chapter's own numbers of this question, `#!fig attention.<name>`."""
