"""What one kernel saves: the bytes that each way moves, and how near that brings it to the GPU's roofs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from snippets.attention.findings.measures import (
    BF16_BYTES,
    ONE_KERNEL,
    WAYS,
    Measure,
    amount,
    at_most,
    one_of,
    own_claim,
    series_claim,
    timings,
    within,
)
from snippets.lab.drawing.charts import bytes_moved, roofline_chart
from snippets.lab.drawing.curves import RooflinePoint
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.quantities import point
from snippets.lab.html import Html
from snippets.lab.recording.ceilings import COPY, ceiling_rates
from snippets.lab.recording.device import shown_device
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import Ceiling, RecordingError
from snippets.lab.trace.events import CpuOp, Step, Trace, TraceError
from snippets.lab.trace.queries import middle_step
from snippets.lab.trace.work import ActivityWork, step_work

NAIVE = WAYS["naive"]
ELEMENT_BYTES = {"bool": 1, "c10::BFloat16": 2, "float": 4}
LONG = 4096
"""The sequence length of which the series counts the scores."""


def attention_bytes(traced: Trace, step: Step) -> dict[int, tuple[int, int]]:
    """What a trace does not tell by itself: no FLOPs, and the least bytes, by place in the step.

    Of operators that only attention needs here: each input read once, each result written once.
    """
    found = {}
    for place, activity in enumerate(step.activities):
        op = traced.op_of(activity)
        moved = _least_bytes(op) if op is not None and activity.kind == "kernel" else None
        if moved is not None:
            found[place] = (0, moved)
    return found


def _least_bytes(op: CpuOp) -> int | None:
    """Bytes that an operator has to move; None for one that is not known here."""
    elements = [math.prod(shape) if shape else 0 for shape in op.input_shapes]
    inputs = [
        count * ELEMENT_BYTES.get(kind, 0) if count else 0 for count, kind in zip(elements, op.input_types, strict=True)
    ]
    match op.name:
        case "aten::_softmax" | "aten::tril":
            return 2 * inputs[0]
        case "aten::masked_fill_":
            return 2 * inputs[0] + inputs[1]
        case "aten::where":
            return sum(inputs[:3]) + max(elements[:3]) * ELEMENT_BYTES[op.input_types[2]]
        case "aten::isneginf":
            return inputs[0] + elements[0]
        case "aten::all":
            return inputs[0] + elements[0] // op.input_shapes[0][-1]
        case name if name.startswith("triton_per_fused") and "softmax" in name:
            return 2 * inputs[0] + inputs[1]
        case name if name.endswith("_attention_forward") or name.startswith("triton_tem_fused_flex_attention"):
            return sum(inputs[:3]) + inputs[0]
    return None


def step_works(traced: Trace, step: Step) -> tuple[ActivityWork, ...]:
    """The work of each activity of a step. Raises `TraceError` where one's is not known."""
    works = step_work(traced, step, attention_bytes)
    for work, activity in zip(works, step.activities, strict=True):
        if work is None:
            raise TraceError(f"{step.name} does not tell the work of {activity.name}; make record CHAPTER=attention")
    return tuple(work for work in works if work)


def moved_bytes(traced: Trace, step: Step) -> int:
    """Bytes that the kernels, copies and fills of a step have to move, each on its own."""
    return sum(work.bytes for work in step_works(traced, step))


def score_bytes(traced: Trace, step: Step) -> int:
    """Bytes of the scores of all heads. Raises `TraceError` for a step that never writes them."""
    for op in step.ops:
        if op.name == "aten::_softmax":
            return math.prod(op.input_shapes[0]) * ELEMENT_BYTES[op.input_types[0]]
    raise TraceError(f"{step.name} has no softmax of its own")


def _moved(experiment: str) -> Measure:
    return amount(experiment, "bytes", lambda traced, step: moved_bytes(traced, step))


def _least(device: str) -> Figure:
    least = point(load_recording(NAIVE, device)).bytes
    return Figure(least, "bytes", origin="the shapes: q, k, v and the result once each")


def _over_least(experiment: str) -> Measure:
    """A measure: the bytes that a way moves over the least, both by the shapes."""

    def measure(device: str) -> Figure:
        moved, least = _moved(experiment)(device), _least(device)
        same = moved.spread is None and moved.conclusive
        return Figure(float(moved.value) / float(least.value), "x", origin=moved.origin, conclusive=same)

    return measure


def _copy_percent(experiment: str) -> Measure:
    """A measure: how long a plain copy takes for the bytes that a way moves, in percent of the way's own time."""

    def measure(device: str) -> Figure:
        rates, warm = ceiling_rates(load_recording(experiment, device)), timings(experiment, device).warm
        if COPY not in rates:
            raise RecordingError(f"{experiment} has no ceiling {COPY!r}; make record CHAPTER=attention")
        copy_us = float(_moved(experiment)(device).value) / rates[COPY] * 1e6
        shares = [100 * copy_us / us for us in (warm.median_us, warm.q3_us, warm.q1_us)]
        return Figure(shares[0], "%", (shares[1], shares[2]), f"{experiment}, warm, and the copy of its session")

    return measure


def _fastest_percent(device: str) -> Figure:
    """The same of the way with one kernel that comes nearest to a copy's rate."""
    return max((_copy_percent(WAYS[name])(device) for name in ONE_KERNEL), key=lambda shown: float(shown.value))


def _scores_of_a_head(device: str) -> Figure:
    """Elements of one head's scores at the longer length, from the memory that the naive forward took there.

    At its peak it holds the scores, what softmax made of them, and the result.
    """
    found = load_recording("attention/lengths_64", device).data.get(str(LONG), {}).get("variants", {}).get("naive", {})
    if "peak_bytes" not in found:
        raise RecordingError(f"attention/lengths_64 lacks naive at {LONG} tokens; make record CHAPTER=attention")
    at = point(load_recording(NAIVE, device)).parameters
    heads = int(at["batch"]) * int(at["heads"])
    result_bytes = BF16_BYTES * heads * LONG * int(at["head_dim"])
    elements = (found["peak_bytes"] - result_bytes) // (2 * BF16_BYTES * heads)
    return Figure(elements, said=f"{elements / 1e6:.1f} million", origin="attention/lengths_64, peak memory")


CLAIMS: tuple[Claim, ...] = (
    series_claim(
        "A12",
        "At 4096 tokens the scores of one head have 16.8 million elements.",
        _scores_of_a_head,
        one_of(LONG * LONG),
        "16.8 million",
    ),
    own_claim(
        "O-A23",
        "The naive forward moves about forty times the bytes that have to be moved.",
        _over_least(NAIVE),
        within(38, 42),
    ),
    own_claim(
        "O-A25",
        "A plain copy of the bytes that the naive forward moves takes half of its time, or more.",
        _copy_percent(NAIVE),
        within(50, 80),
        scope="timing",
    ),
    own_claim(
        "O-A26",
        "For none of the ways with one kernel does a copy of its bytes take more than a third of its time.",
        _fastest_percent,
        at_most(100 / 3),
        scope="timing",
    ),
)


# ---- what the page shows


def bytes_moved() -> Html:
    """The bytes that each way has to move, by the operators that move them."""
    device = shown_device()
    variants = {}
    for name in ("naive", "in place", "math", "compiled", "flash"):
        traced = load_trace(WAYS[name], device)
        step = middle_step(traced)
        moved: Counter[str] = Counter()
        for work, activity in zip(step_works(traced, step), step.activities, strict=True):
            op = traced.op_of(activity)
            moved[_part(op.name if op else activity.name)] += work.bytes
        variants[name] = moved.most_common()
    return bytes_moved("What one forward has to move, by operator", variants, ident="attention-traffic")


def _part(name: str) -> str:
    if name.startswith("triton_"):
        return "the compiler's kernel"
    if name in ("aten::fill_", "aten::tril"):
        return "building the mask"
    return "attention in one kernel" if name.endswith("_attention_forward") else name.removeprefix("aten::")


def rooflines() -> Html:
    """Six ways below this GPU's roofs: the useful FLOPs over the bytes that its own kernels move."""
    device = shown_device()
    spots: dict[str, RooflinePoint] = {}
    ceilings: list[Ceiling] = []
    for name in ("math", "naive", "compiled", "efficient", "flash", "cuDNN"):
        found = load_recording(WAYS[name], device)
        moved = int(_moved(WAYS[name])(device).value)
        spots[name] = RooflinePoint(point(found).flops, moved, timings(WAYS[name], device).warm)
        ceilings += found.ceilings
    caption = "One forward: useful FLOP/s, over FLOP for each byte that its kernels move"
    return roofline_chart(caption, spots, ceilings, ident="attention-roofline")


FIGURES: Mapping[str, Measure] = {
    "score_bytes": amount(NAIVE, "bytes", score_bytes),
    "least_bytes": _least,
    "naive_bytes": _moved(NAIVE),
    "naive_over_least": _over_least(NAIVE),
    "compiled_over_least": _over_least(WAYS["compiled"]),
    "naive_copy_percent": _copy_percent(NAIVE),
    "one_kernel_copy_percent": _fastest_percent,
}
"""The numbers of this part, `#!fig attention.<name>`."""
