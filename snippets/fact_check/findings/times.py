"""What the articles say about times: speedups, launch overhead, small batches, and the cache."""

from __future__ import annotations

from collections.abc import Mapping

from snippets.fact_check.findings.sources import about, deep_dive, digest
from snippets.fused_mlp.findings.shapes import PEERS, row_run, shapes_in
from snippets.lab.finding import Device, Figure, Measure, at_least, at_most, between, claim, matches
from snippets.lab.finding.measure import derived, largest, paired_ratio, smallest
from snippets.lab.trace.queries import count_launches
from snippets.mlp.findings.costs import ONE_TOKEN, SIZES, at_size
from snippets.mlp.findings.eager import pointwise_us
from snippets.mlp.findings.steps import pointwise

WAYS = {"compiled": "compiled", "two kernels": "fused", "a CUDA graph": "reduce_overhead"}
"""A way to launch less -> its experiment in fused_mlp."""
OF_THE_COMPILER = ("compiled", "a CUDA graph")
"""Those that torch.compile makes, with its guards before every call."""


# -- two kernels for one job


@claim("FC20", between(*about(89.4)), scope="timing", source=digest("89.4 µs", only_there=True))
def inductor_us(device: Device) -> Figure:
    """The compiled MLP's fused kernel takes 89.4 µs, give or take a tenth.

    This GPU moves bytes at a higher rate than an A100, so its kernel takes less time. Compare ratios between GPUs."""
    return pointwise_us(device["mlp/compiled"])


@claim("FC21", between(*about(92.8)), scope="timing", source=digest("92.8 µs", only_there=True))
def liger_us(device: Device) -> Figure:
    """Liger's GeGLU kernel takes 92.8 µs, give or take a tenth.

    The same holds for this time: it belongs to the A100's memory."""
    return pointwise_us(device["mlp/liger"])


@claim("FC22", between(0.9, 1.1), scope="timing")
def liger_over_compiled(device: Device) -> Figure:
    """Interleaved, the MLP's forward takes the same time with Liger's kernel as compiled, within 10 %, at each of six
    sizes."""
    ratios = [at_size(device, "Liger", "compiled", size, "interleaved") for size in SIZES]
    return max(ratios, key=lambda ratio: abs(ratio.number - 1))


# -- launch overhead and wall time


def launches_saved(device: Device, way: str) -> Figure:
    """Percent of the eager forward's launch calls that a way to launch less saves."""
    eager, fewer = (device[f"fused_mlp/{name}"].per_step(count_launches) for name in ("eager", WAYS[way]))
    return derived(100 * (1 - fewer.number / eager.number), eager, fewer, unit="%")


@claim("FC23", at_least(60), source=deep_dive("60–70 % less kernel launch overhead"))
def launches_saved_at_most(device: Device) -> Figure:
    """A fused implementation can save 60 % of the forward's launches; counted here: launch calls of the way that makes
    the fewest."""
    return largest(*(launches_saved(device, way) for way in WAYS))


@claim("FC24", at_least(1.02), scope="timing")
def enqueue_of_fewer_launches(device: Device) -> Figure:
    """For a forward of the MLP at 8192 tokens, fewer launches need not save time on the CPU: compiled, or compiled into
    a CUDA graph, a call keeps it busy at least 2 % longer than eager's."""
    return smallest(*(enqueue_over_eager(device, way) for way in OF_THE_COMPILER))


def enqueue_over_eager(device: Device, way: str) -> Figure:
    """The CPU's time of a call by a way to launch less, over that of eager's."""
    return paired_ratio(device[f"fused_mlp/{WAYS[way]}"], device["fused_mlp/eager"], "enqueue")


def best_speedup(device: Device, shape: tuple[int, int, int], kind: str) -> Figure:
    """Eager's time over that of the fastest fused forward at a shape."""
    eager = row_run(device, "bfloat16", "eager", shape)
    others = (row_run(device, "bfloat16", name, shape) for name in PEERS.values() if name != "eager")
    return largest(*(paired_ratio(eager, other, kind) for other in others))


def shapes_with_a_fifth(device: Device, kind: str) -> Figure:
    """At how many shapes of fused_mlp the fastest fused forward takes at least a fifth less time than eager."""
    shapes = shapes_in(device, "bfloat16")
    won = sum(best_speedup(device, shape, kind).number >= 1.25 for shape in shapes)
    return Figure(100 * won / len(shapes), "%", origin=f"fused_mlp, {kind}", display=f"{won} of {len(shapes)}")


@claim(
    "FC25",
    at_least(51),
    scope="timing",
    source=deep_dive("a 20–30 % wall-time speedup on common transformer-sized layers"),
)
def wall_time_by_shape(device: Device) -> Figure:
    """Fusion saves 20 to 30 % of the wall time on common layers; here: at more than half of the race's shapes, from
    Python, the fastest fused forward spares a fifth of eager's time.

    With wide tokens the products take the time, and with few tokens the reading of the weights. Fusing spares neither.
    What is left are shapes with many tokens and few numbers to each. Time your own shape before you count on a gain."""
    return shapes_with_a_fifth(device, "from_python")


# -- small batches, and data that stays in cache


@claim(
    "FC33",
    at_least(1.02),
    scope="timing",
    source=deep_dive("for small batch sizes the naive version can be faster", ""),
)
def naive_at_one_token(device: Device) -> Figure:
    """For small batches the unfused version can be faster: from Python at one token, the compiled forward takes at
    least 2 % longer than the eager MLP's."""
    return at_size(device, "compiled", "eager", ONE_TOKEN)


@claim(
    "FC34",
    matches(r"eager fewer.*"),
    scope="this-gpu",
    source=deep_dive("faster due to less register pressure", ""),
)
def registers(device: Device) -> Figure:
    """The unfused version has less register pressure: a thread of eager's pointwise kernels has fewer registers than
    one of the compiled form's fused kernel.

    It has more. And a kernel's registers do not depend on the batch. At one token eager wins from Python alone: on the
    GPU the compiled forward takes less time there, too. The CPU decides, because a compiled call has guards to check.
    Look at the time from Python and at that of the GPU before you blame a kernel."""
    eager, fused = (
        device[name].per_step(lambda step: max(kernel.registers or 0 for kernel in pointwise(step)))
        for name in ("mlp/eager", "mlp/compiled")
    )
    word = "fewer" if eager.number < fused.number else "not fewer"
    return derived(f"eager {word}: {eager.value} against {fused.value}", eager, fused)


@claim(
    "FC35",
    at_most(1.02),
    scope="timing",
    source=deep_dive("fusion might not help if the data can't stay in cache", ""),
)
def gain_beyond_the_cache(device: Device) -> Figure:
    """Fusion does not help where data cannot stay in cache; here: at the size whose hidden tensor is larger than the L2
    cache, the compiled forward is at most 2 % faster than eager's, interleaved.

    That is where it helps. A fused value stays in a register and needs no cache. Eager writes it to memory and reads it
    back, which costs most where no cache holds it. If your tensors outgrow the cache, fuse first."""
    return at_size(device, "eager", "compiled", SIZES[-1], "interleaved")


def cache_gain(device: Device, size: str) -> Figure:
    """Eager's time over the compiled forward's at a size, interleaved."""
    return at_size(device, "eager", "compiled", size, "interleaved")


FIGURES: Mapping[str, Measure] = {
    "saved_by_two_kernels": lambda device: launches_saved(device, "two kernels"),
    "saved_by_a_graph": lambda device: launches_saved(device, "a CUDA graph"),
    "enqueue_of_two_kernels": lambda device: enqueue_over_eager(device, "two kernels"),
    "shapes_on_the_gpu": lambda device: shapes_with_a_fifth(device, "interleaved"),
    "wall_time": lambda device: shapes_with_a_fifth(device, "from_python"),
    "gain_in_cache": lambda device: cache_gain(device, "[batch=4,seq=128]"),
    "gain_beyond_cache": lambda device: cache_gain(device, SIZES[-1]),
}
