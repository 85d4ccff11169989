"""What one kernel saves: the bytes that each variant moves, and how near that brings it to the GPU's roofs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from snippets.attention.findings.variants import BF16_BYTES, ONE_KERNEL, VARIANTS, op_name
from snippets.lab.finding import Device, Figure, Measure, Run, Source, at_most, between, claim, equals, largest
from snippets.lab.html import Html
from snippets.lab.page import RooflinePoint, bytes_moved, roofline_of
from snippets.lab.page import show as show
from snippets.lab.recording.ceilings import COPY
from snippets.lab.recording.schema import RecordingError
from snippets.lab.trace.events import CpuOp, Step, TraceError
from snippets.lab.trace.work import ActivityWork, step_work

NAIVE = VARIANTS["naive"]
ELEMENT_BYTES = {"bool": 1, "c10::BFloat16": 2, "float": 4}
LONG = 4096
"""The sequence length of which the series counts the scores."""


def attention_bytes(step: Step) -> dict[int, tuple[int, int]]:
    """What a trace does not tell by itself: no FLOPs, and the least bytes, by index in the step.

    Of operators that only attention needs here: each input read once, each result written once.
    """
    known = {}
    for index, activity in enumerate(step.activities):
        moved = _least_bytes(activity.op) if activity.op is not None and activity.kind == "kernel" else None
        if moved is not None:
            known[index] = (0, moved)
    return known


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


def known_work(step: Step) -> tuple[ActivityWork, ...]:
    """The work of each activity of a step. Raises `TraceError` where one's is not known."""
    works = step_work(step, attention_bytes)
    for work, activity in zip(works, step.activities, strict=True):
        if work is None:
            raise TraceError(f"{step.name} does not tell the work of {activity.name}; make record CHAPTER=attention")
    return tuple(work for work in works if work)


def moved_bytes(step: Step) -> int:
    """Bytes that the kernels, copies and fills of a step have to move, each on its own."""
    return sum(work.bytes for work in known_work(step))


def score_bytes(step: Step) -> int:
    """Bytes of the scores of all heads. Raises `TraceError` for a step that never writes them."""
    for op in step.ops:
        if op.name == "aten::_softmax":
            return math.prod(op.input_shapes[0]) * ELEMENT_BYTES[op.input_types[0]]
    raise TraceError(f"{step.name} has no softmax of its own")


def least_bytes(device: Device) -> Figure:
    """The bytes that one forward has to move at least."""
    return Figure(device[NAIVE].point.bytes, "bytes", origin="the shapes: q, k, v and the result once each")


def over_least(run: Run) -> Figure:
    """The bytes that a variant moves over the least, both by the shapes."""
    moved, least = run.per_step(moved_bytes, "bytes"), least_bytes(run.device)
    return Figure(moved.number / least.number, "x", origin=moved.origin, conclusive=moved.spread is None)


def copy_percent(run: Run) -> Figure:
    """How long a plain copy takes for the bytes that a variant moves, in percent of the variant's own time."""
    copy_us = run.per_step(moved_bytes, "bytes").number / run.ceiling(COPY).rate * 1e6
    timing = run.timing()
    share, low, high = (100 * copy_us / us for us in (timing.median_us, timing.q3_us, timing.q1_us))
    return Figure(share, "%", (low, high), f"{run.origin}, interleaved, and the copy of its session")


@claim("A12", equals(LONG * LONG), source=Source("Part 3", "16.8 million"))
def scores_of_a_head(device: Device) -> Figure:
    """At 4096 tokens the scores of one head have 16.8 million elements."""
    # By the memory that the naive forward took: at its peak it holds the scores, the weights and the result.
    lengths, sizes = device["attention/lengths_64"].data, device[NAIVE].point.parameters
    naive = lengths.get(str(LONG), {}).get("variants", {}).get("naive", {})
    if "peak_bytes" not in naive:
        raise RecordingError(f"attention/lengths_64 lacks naive at {LONG} tokens; make record CHAPTER=attention")
    heads = int(sizes["batch"]) * int(sizes["heads"])
    result_bytes = BF16_BYTES * heads * LONG * int(sizes["head_dim"])
    elements = (naive["peak_bytes"] - result_bytes) // (2 * BF16_BYTES * heads)
    return Figure(elements, display=f"{elements / 1e6:.1f} million", origin="attention/lengths_64, peak memory")


@claim("O-A23", between(38, 42))
def naive_over_least(device: Device) -> Figure:
    """The naive forward moves about forty times the bytes that have to be moved."""
    return over_least(device[NAIVE])


@claim("O-A25", between(50, 80), scope="timing")
def naive_copy_percent(device: Device) -> Figure:
    """A plain copy of the bytes that the naive forward moves takes half of its time, or more."""
    return copy_percent(device[NAIVE])


@claim("O-A26", at_most(100 / 3), scope="timing")
def one_kernel_copy_percent(device: Device) -> Figure:
    """For none of the ways with one kernel does a copy of its bytes take more than a third of its time."""
    return largest(*(copy_percent(device[VARIANTS[name]]) for name in ONE_KERNEL))


def bytes_by_operator(device: Device) -> Html:
    """The bytes that each variant has to move, by the operators that move them."""
    variants = {}
    for name in ("naive", "in place", "math", "compiled", "flash"):
        step = device[VARIANTS[name]].step
        moved: Counter[str] = Counter()
        for work, activity in zip(known_work(step), step.activities, strict=True):
            moved[_part(op_name(activity) or activity.name)] += work.bytes
        variants[name] = moved.most_common()
    return bytes_moved(device, variants, "What one forward has to move, by operator")


def _part(name: str) -> str:
    if name.startswith("triton_"):
        return "the compiler's kernel"
    if name in ("aten::fill_", "aten::tril"):
        return "building the mask"
    return "attention in one kernel" if name.endswith("_attention_forward") else name.removeprefix("aten::")


def rooflines(device: Device) -> Html:
    """Six variants below this GPU's roofs: the useful FLOPs over the bytes that its own kernels move."""
    names = ("math", "naive", "compiled", "efficient", "flash", "cuDNN")
    runs = {name: device[VARIANTS[name]] for name in names}
    points = {
        name: RooflinePoint(run.point.flops, int(run.per_step(moved_bytes, "bytes").value), run.timing())
        for name, run in runs.items()
    }
    ceilings = [ceiling for run in runs.values() for ceiling in run.recording.ceilings]
    caption = "One forward: useful FLOP/s, over FLOP for each byte that its kernels move"
    return roofline_of(device, points, caption, ceilings=ceilings)


FIGURES: Mapping[str, Measure] = {
    "score_bytes": lambda device: device[NAIVE].per_step(score_bytes, "bytes"),
    "least_bytes": least_bytes,
    "naive_bytes": lambda device: device[NAIVE].per_step(moved_bytes, "bytes"),
    "naive_over_least": naive_over_least,
    "compiled_over_least": lambda device: over_least(device["attention/compiled"]),
    "naive_copy_percent": naive_copy_percent,
    "one_kernel_copy_percent": one_kernel_copy_percent,
}
