"""The bytes that each variant moves, the saving of one kernel, and whether a compiler recognizes attention."""

import math
from collections import Counter
from collections.abc import Mapping

from kinetoscope.html import Html
from kinetoscope.trace.events import CpuOp, Step, TraceError
from kinetoscope.trace.queries import op_name
from kinetoscope.trace.work import ActivityWork, step_work
from snippets.attention.findings.variants import ONE_KERNEL, VARIANTS, count_and_names, operations, per_variant
from snippets.lab.finding import Device, Figure, Measure, Run, Source, derived, largest, paired_ratio, unpaired_ratio
from snippets.lab.finding.band import at_least, at_most, between, equals, matches
from snippets.lab.finding.claim import claim
from snippets.lab.page import RooflinePoint, bytes_moved, diff_table, roofline_of, show as show
from snippets.lab.recording.ceilings import COPY, LARGE_MATMUL
from snippets.lab.recording.schema import RecordingError

NAIVE, COMPILED = VARIANTS["naive"], VARIANTS["compiled"]
ELEMENT_BYTES = {"bool": 1, "c10::BFloat16": 2, "float": 4}
BF16_BYTES = ELEMENT_BYTES["c10::BFloat16"]
LONG = 4096
"""The sequence length for which the series counts the scores."""


def attention_bytes(step: Step) -> dict[int, tuple[int, int]]:
    """Work that a trace lacks, by index in the step: no FLOPs, and the minimum bytes.

    For operators that only this chapter has: each input is read once and each result written once.
    """
    known = {}
    for index, activity in enumerate(step.activities):
        moved = _least_bytes(activity.op) if activity.op is not None and activity.kind == "kernel" else None
        if moved is not None:
            known[index] = (0, moved)
    return known


def _least_bytes(op: CpuOp) -> int | None:
    """Bytes that an operator must move; None for an unknown operator, or an unknown type of its first three inputs."""
    elements = [math.prod(shape) if shape else 0 for shape in op.input_shapes[:3]]
    kinds = op.input_types[:3]
    if any(count and kind not in ELEMENT_BYTES for count, kind in zip(elements, kinds, strict=True)):
        return None
    inputs = [count * ELEMENT_BYTES[kind] if count else 0 for count, kind in zip(elements, kinds, strict=True)]
    match op.name:
        case "aten::_softmax" | "aten::tril":
            return 2 * inputs[0]
        case "aten::masked_fill_":
            return 2 * inputs[0] + inputs[1]
        case "aten::where":
            return sum(inputs) + max(elements[:3]) * ELEMENT_BYTES[op.input_types[2]]
        case "aten::isneginf":
            return inputs[0] + elements[0]
        case "aten::all":
            return inputs[0] + elements[0] // op.input_shapes[0][-1]
        case name if name.startswith("triton_per_fused") and "softmax" in name:
            return 2 * inputs[0] + inputs[1]
        case name if name.endswith("_attention_forward") or name.startswith("triton_tem_fused_flex_attention"):
            return sum(inputs) + inputs[0]
    return None


def known_work(step: Step) -> tuple[ActivityWork, ...]:
    """The work of each activity of a step. Raises `TraceError` if any is unknown."""
    works = step_work(step, attention_bytes)
    for work, activity in zip(works, step.activities, strict=True):
        if work is None:
            raise TraceError(f"{step.name} lacks the work of {activity.name}; make record CHAPTER=attention")
    return tuple(work for work in works if work)


def moved_bytes(step: Step) -> int:
    """Sum of the bytes that each kernel, memcpy and memset of a step must move."""
    return sum(work.bytes for work in known_work(step))


def score_bytes(step: Step) -> int:
    """Bytes of the scores of all heads. Raises `TraceError` if the step does not write them."""
    for op in step.ops:
        if op.name == "aten::_softmax":
            return math.prod(op.input_shapes[0]) * ELEMENT_BYTES[op.input_types[0]]
    raise TraceError(f"{step.name} has no separate softmax")


def least_bytes(device: Device) -> Figure:
    """The minimum bytes of one forward."""
    return Figure(device[NAIVE].point.bytes, "bytes", origin="the shapes: q, k, v and the result once each")


def over_least(run: Run) -> Figure:
    """The bytes that a variant moves over the minimum, both computed from the shapes."""
    moved, minimum = run.per_step(moved_bytes, "bytes"), least_bytes(run.device)
    return Figure(moved.number / minimum.number, "x", origin=moved.origin, conclusive=moved.spread is None)


def copy_percent(run: Run) -> Figure:
    """The time of a plain copy of the bytes that a variant moves, in percent of the variant's time."""
    copy_us = run.per_step(moved_bytes, "bytes").number / run.ceiling(COPY).rate * 1e6
    timing = run.timing()
    fast_us, slow_us = timing.spread_us
    share, low, high = (100 * copy_us / us for us in (timing.median_us, slow_us, fast_us))
    return Figure(share, "%", (low, high), f"{run.origin}, interleaved, and the copy in its turns")


@claim("O-A60", at_least(2), scope="timing")
def weights_moved_over_computed(device: Device) -> Figure:
    """Writing attention's weights and reading them back, at a copy's rate, takes at least twice as long as computing
    them at a large product's rate."""
    return derived(moved_us(device).number / computed_us(device).number, moved_us(device), unit="x")


def moved_us(device: Device) -> Figure:
    """The time to write all weights in bf16 and to read them, at a plain copy's rate."""
    run = device[NAIVE]
    return Figure(2 * run.per_step(score_bytes).number / run.ceiling(COPY).rate * 1e6, "us", origin=COPY)


def computed_us(device: Device) -> Figure:
    """The time to recompute all scores, hidden ones too, at a large matmul's rate."""
    run = device[NAIVE]
    flops = 2 * run.per_step(score_bytes).number / BF16_BYTES * int(run.point.parameters["head_dim"])
    return Figure(flops / run.ceiling(LARGE_MATMUL).rate * 1e6, "us", origin=LARGE_MATMUL)


@claim("A12", equals(LONG * LONG), source=Source("Part 3", "16.8 million"))
def scores_of_a_head(device: Device) -> Figure:
    """At 4096 tokens, the scores of one head have 16.8 million elements."""
    # From the peak memory of the naive forward, which then holds the scores, the weights and the result.
    lengths, sizes = device["attention/lengths_64"].data, device[NAIVE].point.parameters
    naive = lengths.get(str(LONG), {}).get("variants", {}).get("naive", {})
    if "peak_bytes" not in naive:
        raise RecordingError(f"attention/lengths_64 lacks naive at {LONG} tokens; make record CHAPTER=attention")
    heads = int(sizes["batch"]) * int(sizes["heads"])
    result_bytes = BF16_BYTES * heads * LONG * int(sizes["head_dim"])
    elements = (naive["peak_bytes"] - result_bytes) // (2 * BF16_BYTES * heads)
    return Figure(elements, display=f"{elements / 1e6:.1f} million", origin="attention/lengths_64, peak memory")


@claim("O-A23", between(36, 44))
def naive_over_least(device: Device) -> Figure:
    """Naive attention moves about forty times the bytes that attention must move."""
    return over_least(device[NAIVE])


@claim("O-A25", between(50, 100), scope="timing")
def naive_copy_percent(device: Device) -> Figure:
    """A plain copy of the bytes that naive attention moves takes at least half of naive attention's time."""
    return copy_percent(device[NAIVE])


@claim("O-A26", at_most(100 / 3), scope="timing")
def one_kernel_copy_percent(device: Device) -> Figure:
    """For every variant of attention with one kernel, a plain copy of the kernel's bytes takes at most a third of the
    kernel's time."""
    return largest(*(copy_percent(device[VARIANTS[name]]) for name in ONE_KERNEL))


def bytes_by_operator(device: Device) -> Html:
    """The bytes that each variant must move, by operator."""
    variants = {}
    for name in ("naive", "in place", "math", "compiled", "flash"):
        step = device[VARIANTS[name]].step
        moved: Counter[str] = Counter()
        for work, activity in zip(known_work(step), step.activities, strict=True):
            moved[_part(op_name(activity) or activity.name)] += work.bytes
        variants[name] = moved.most_common()
    return bytes_moved(device, variants, "Bytes that one forward must move, by operator")


def _part(name: str) -> str:
    if name.startswith("triton_"):
        return "the compiler's kernel"
    if name in ("aten::fill_", "aten::tril"):
        return "building the mask"
    return "attention in one kernel" if name.endswith("_attention_forward") else name.removeprefix("aten::")


def rooflines(device: Device) -> Html:
    """Six variants below this GPU's roofs: the useful FLOPs over the bytes that each variant's kernels move."""
    names = ("math", "naive", "compiled", "efficient", "flash", "cuDNN")
    runs = {name: device[VARIANTS[name]] for name in names}
    points = {
        name: RooflinePoint(run.point.flops, int(run.per_step(moved_bytes, "bytes").value), run.timing())
        for name, run in runs.items()
    }
    ceilings = [ceiling for run in runs.values() for ceiling in run.recording.ceilings]
    caption = "Useful FLOP/s of one forward, by useful FLOP per byte that its kernels move"
    return roofline_of(device, points, caption, ceilings=ceilings)


@claim("O-A16", equals(0), scope="this-gpu")
def patterns_met(device: Device) -> Figure:
    """Inductor does not recognize naive attention with a mask."""
    count = int(device["attention/compiled_code"].data["fused_attention"])
    text = f"{count} pattern{'s' * (count != 1)} of attention met"
    return Figure(count, display=text, origin="Inductor's counter fuse_attention")


@claim("O-A17", matches(r"product, triton_per_fused\w*softmax\w*, product"))
def compiled_operations(device: Device) -> Figure:
    """Compiled attention runs one Triton kernel between its two products."""
    return device[COMPILED].per_step(operations)


def are_two_in_both(figure: Figure) -> bool:
    """Whether naive and compiled have the same two kernels."""
    naive, compiled = str(figure.value).removeprefix("naive ").split("; compiled ")
    return naive == compiled and naive.count(", ") == 1


@claim("O-A18", are_two_in_both, scope="this-gpu")
def compiled_product_kernels(device: Device) -> Figure:
    """Compiled attention multiplies with the same two kernels as naive attention."""

    def products(step: Step) -> str:
        return ", ".join(kernel.name for kernel in step.kernels if op_name(kernel) == "aten::bmm")

    return per_variant(device, ("naive", "compiled"), products)


@claim("O-A19", at_least(4), scope="timing")
def between_products(device: Device) -> Figure:
    """In the traces, one compiled kernel replaces four kernels and copies of naive attention. The four together take at
    least four times as long as the compiled kernel."""

    def between_us(step: Step) -> float:
        return sum(activity.duration_us for activity in step.activities if op_name(activity) != "aten::bmm")

    return unpaired_ratio(device[NAIVE].per_step(between_us, "us"), device[COMPILED].per_step(between_us, "us"))


@claim("O-A20", at_least(2.5), scope="timing")
def compiled_speedup(device: Device) -> Figure:
    """Naive attention takes at least 2.5 times as long as compiled attention."""
    return paired_ratio(device[NAIVE], device[COMPILED])


@claim("O-A21", lambda figure: figure.value != "none", scope="this-gpu")
def attention_without_mask(device: Device) -> Figure:
    """Without a mask, Inductor recognizes naive attention, and calls an operator of SDPA instead."""

    def own_attention(step: Step) -> str:
        return next((op.name for op in step.ops if op.name.startswith("aten::_scaled_dot_product")), "none")

    return device["attention/decode_compiled"].per_step(own_attention)


@claim("O-A22", matches(r"1 kernel: triton_tem_fused_flex_attention.*"))
def flex_kernel(device: Device) -> Figure:
    """FlexAttention runs one kernel, which Inductor generates from its template for FlexAttention."""
    return device["attention/flex"].per_step(count_and_names)


def compiled_diff(device: Device) -> Html:
    """The kernels of a naive step that compiling changes."""
    variants, caption = {"naive": NAIVE, "compiled": COMPILED}, "Kernels of naive attention and of compiled attention"
    return diff_table(device, variants, caption, work=(attention_bytes, attention_bytes))


FIGURES: Mapping[str, Measure] = {
    "score_bytes": lambda device: device[NAIVE].per_step(score_bytes, "bytes"),
    "compiled_over_least": lambda device: over_least(device[COMPILED]),
}
