"""The articles' claims about times: speedups, launch overhead, small batches, and the cache."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import count_launches, kernel_time_us
from snippets.fact_check.findings.sources import about, deep_dive, digest
from snippets.fused_mlp.findings.shapes import PEERS, row_run, shapes_in
from snippets.lab.finding import Device, Figure, Measure, NotTimed, at_least, at_most, between, claim, equals
from snippets.lab.finding.device import all_devices
from snippets.lab.finding.measure import derived, largest, paired_ratio, quantity_ratio, smallest
from snippets.lab.finding.other_device import H100, measured_on
from snippets.mlp.findings.costs import ONE_TOKEN, SIZES, SWEEPS, at_size
from snippets.mlp.findings.eager import pointwise_us
from snippets.mlp.findings.steps import gate_bytes, matmul_shapes, pointwise
from snippets.regimes.findings.compiling import GEGLU, over

WAYS = {"compiled": "compiled", "two kernels": "fused", "a CUDA graph": "reduce_overhead"}
"""A way to launch less -> its experiment in fused_mlp."""
OF_THE_COMPILER = ("compiled", "a CUDA graph")
"""Those that torch.compile makes, with its guards before every call."""
EAGER_RACE, FUSED_RACE = "fused_mlp/bfloat16_eager", "fused_mlp/bfloat16_fused"
"""Two of the race's sweeps over shapes."""
A_FIFTH = 1.2
"""Eager's time over that of a forward that is 20 % faster, as O-P11 has it."""


# -- two kernels for one job


@claim(
    "FC20",
    between(*about(89.4)),
    scope="timing",
    source=digest("89.4 microseconds measured for the compiled fused kernel", only_there=True),
)
def inductor_us(device: Device) -> Figure:
    """The compiled MLP's fused kernel takes 89.4 µs, give or take a tenth.

    This GPU moves bytes at a higher rate than an A100, so the fused kernel takes less time."""
    return pointwise_us(device["mlp/compiled"])


@claim(
    "FC21",
    between(*about(92.8)),
    scope="timing",
    source=digest("92.8 microseconds measured for the hand-tuned Liger GEGLU MLP", only_there=True),
)
def liger_us(device: Device) -> Figure:
    """Liger's GeGLU kernel takes 92.8 µs, give or take a tenth.

    This GPU moves bytes at a higher rate than an A100, so Liger's kernel takes less time."""
    return pointwise_us(device["mlp/liger"])


@claim("FC37", at_least(50), scope="timing", source=digest("92.8 microseconds for the hand-tuned Liger GEGLU MLP"))
def kernel_of_liger(device: Device) -> Figure:
    """The Liger GEGLU MLP takes 92.8 µs. Tested as a share, because another GPU can test a share: Liger's GeGLU kernel
    takes at least half the time of all kernels in the MLP's forward.

    Part 2 gives this time for the GeGLU kernel alone, which is one of four kernels in the MLP. The other three kernels
    are products, which take most of the time. The article's 89.4 is also the time of one kernel.
    Before you quote a time, say whether one kernel or a whole step takes it."""

    def share(step: Step) -> float:
        return 100 * kernel_time_us(pointwise(step)) / kernel_time_us(step.kernels)

    return device["mlp/liger"].per_step(share, "%")


@claim(
    "FC40",
    at_least(1.02),
    scope="timing",
    source=digest("fast precisely because it was generated for one exact input size", ""),
)
def any_size_over_one(device: Device) -> Figure:
    """The compiled kernel is fast because it was generated for one input size: an MLP compiled for any number of tokens
    takes at least 2 % longer on the GPU.

    A forward compiled for any number of tokens takes no longer. Its graph has a kernel with the same fusion and a mask.
    The kernel is fast because it is fused, not because its size is fixed. If your batch varies, compile with
    dynamic=True."""
    return over(device, GEGLU, "dynamic", "default", "interleaved")


@claim("FC38", at_most(0.98), scope="timing", source=digest("lower energy use per pass", ""))
def energy_of_compiled(device: Device) -> Figure:
    """Fusing lowers the energy of a forward pass: when each forward runs alone for seconds, the compiled MLP uses at
    most 98 % of the eager MLP's energy."""
    return quantity_ratio(device["mlp/compiled"], device["mlp/eager"], "joules")


@claim("FC22", between(0.9, 1.1), scope="timing")
def liger_over_compiled(device: Device) -> Figure:
    """When the forwards take turns, the MLP's forward with Liger's kernel takes the same GPU time as the compiled
    forward, within 10 %, at each of six sizes."""
    ratios = [at_size(device, "Liger", "compiled", size, "interleaved") for size in SIZES]
    return max(ratios, key=lambda ratio: abs(ratio.number - 1))


# -- launch overhead and wall time


def launches_saved(device: Device, way: str) -> Figure:
    """Percent of the eager forward's launch calls, fills included, that a way to launch less saves."""
    eager, fewer = (device[f"fused_mlp/{name}"].per_step(count_launches) for name in ("eager", WAYS[way]))
    return derived(100 * (1 - fewer.number / eager.number), eager, fewer, unit="%")


@claim("FC23", between(60, 70), scope="timing", source=deep_dive("cut GPU kernel launch overhead by 60–70 %", ""))
def overhead_saved(device: Device) -> Figure:
    """A fused implementation cuts 60 to 70 % of the launch overhead: with this book's two kernels, a call of the
    forward takes 60 to 70 % less CPU time than an eager call.

    Counted in kernels, the saved share is at the edge of the article's range, and counted in launch calls it is above
    the range. But overhead is time, and launches are only a part of the CPU's time: the CPU also runs Python, checks
    arguments and allocates memory. So the saved share also depends on the machine's CPU. Measure the CPU time of a
    call."""
    kept = enqueue_over_eager(device, "two kernels")
    low, high = kept.bounds
    return Figure(100 - 100 * kept.number, "%", (100 - 100 * high, 100 - 100 * low), kept.origin)


def kernels_saved(device: Device) -> Figure:
    """Percent of the eager forward's kernels that this book's two kernels save."""
    eager, ours = (device[f"fused_mlp/{name}"].per_step(lambda step: len(step.kernels)) for name in ("eager", "fused"))
    return derived(100 - 100 * ours.number / eager.number, eager, ours, unit="%")


@claim("FC24", at_least(1.02), scope="timing")
def enqueue_of_fewer_launches(device: Device) -> Figure:
    """Fewer launches need not save CPU time: at 8192 tokens, a compiled call of the MLP's forward, with or without a
    CUDA graph, keeps the CPU busy at least 2 % longer than an eager call."""
    return smallest(*(enqueue_over_eager(device, way) for way in OF_THE_COMPILER))


def enqueue_over_eager(device: Device, way: str) -> Figure:
    """The CPU's time of a call with fewer launches / eager's."""
    return paired_ratio(device[f"fused_mlp/{WAYS[way]}"], device["fused_mlp/eager"], "enqueue")


def best_speedup(device: Device, shape: tuple[int, int, int], kind: str) -> Figure:
    """Eager's time / the fastest fused forward's at a shape."""
    eager = row_run(device, "bfloat16", "eager", shape)
    others = (row_run(device, "bfloat16", name, shape) for name in PEERS.values() if name != "eager")
    return largest(*(paired_ratio(eager, other, kind) for other in others))


def shapes_with_a_fifth(device: Device, kind: str) -> Figure:
    """At how many shapes of fused_mlp the fastest fused forward is at least 1.2 times as fast as eager's."""
    shapes = shapes_in(device, "bfloat16")
    won = sum(best_speedup(device, shape, kind).number >= A_FIFTH for shape in shapes)
    return Figure(f"{won} of {len(shapes)}", origin=f"fused_mlp, {kind}")


def most_shapes(figure: Figure) -> bool:
    """More than half of all shapes."""
    won, _, shapes = str(figure.value).partition(" of ")
    return 2 * int(won) > int(shapes)


@claim(
    "FC25",
    most_shapes,
    scope="timing",
    source=deep_dive("a 20–30 % wall-time speedup on common transformer-sized layers", ""),
)
def wall_time_by_shape(device: Device) -> Figure:
    """Fusion makes common layers at least 20 % faster in wall time. Tested here: from Python, at more than half of the
    race's shapes, the fastest fused forward is at least 1.2 times as fast as the eager forward."""
    return shapes_with_a_fifth(device, "from_python")


# -- small batches, and data that stays in cache


@claim(
    "FC33",
    at_least(1.02),
    scope="timing",
    source=deep_dive("for small batch sizes the naive version can be faster", ""),
)
def naive_at_one_token(device: Device) -> Figure:
    """For small batches, the unfused version can be faster: at one token, timed from Python, the MLP's compiled forward
    takes at least 2 % longer than its eager forward."""
    return at_size(device, "compiled", "eager", ONE_TOKEN)


@claim("FC34", equals(True), scope="this-gpu", source=deep_dive("faster due to less register pressure", ""))
def registers(device: Device) -> Figure:
    """The unfused version has less register pressure: a thread of eager's pointwise kernels has fewer registers than a
    thread of the compiled MLP's fused kernel.

    A thread of eager's kernels has more registers. Also, register pressure is lowest at small batches, because fewer
    tokens need smaller tiles, with fewer numbers per thread. At one token, eager is faster only when timed from Python:
    on the GPU, the compiled forward takes less time. Eager is faster because a compiled call makes the CPU check
    guards. Before you blame a kernel, compare the time from Python with the GPU's time."""
    eager, fused = (
        device[name].per_step(lambda step: max(kernel.registers or 0 for kernel in pointwise(step)))
        for name in ("mlp/eager", "mlp/compiled")
    )
    display = f"eager {eager.value}, fused {fused.value}"
    return derived(eager.number < fused.number, eager, fused, display=display)


@claim("FC35", at_least(1.02), scope="timing")
def gain_beyond_the_cache(device: Device) -> Figure:
    """When the hidden tensor is larger than the L2 cache, the MLP's compiled forward is at least 2 % faster on the GPU
    than its eager forward, if both take turns."""
    if hidden_bytes(device, SIZES[-1]) <= device["mlp/eager"].environment.l2_bytes:
        raise NotTimed("the L2 cache holds the hidden tensor of every size; time a larger one")
    return at_size(device, "eager", "compiled", SIZES[-1], "interleaved")


def hidden_bytes(device: Device, size: str) -> int:
    """Bytes of a tensor of the hidden size at a size of the sweeps."""
    step, sizes = device["mlp/eager"].step, device[SWEEPS["eager"] + size].point.parameters
    return gate_bytes(step) // matmul_shapes(step)[0][0] * int(sizes["batch"]) * int(sizes["seq"])


def cache_gains(device: Device, *, fits: bool) -> Figure:
    """Eager's time / the compiled forward's, interleaved, at the sizes whose hidden tensor fits the L2 cache or not:
    the least and the largest ratio."""
    limit = device["mlp/eager"].environment.l2_bytes
    sizes = [size for size in SIZES if (hidden_bytes(device, size) <= limit) is fits]
    gains = [at_size(device, "eager", "compiled", size, "interleaved") for size in sizes]
    low, high = smallest(*gains), largest(*gains)
    return derived(high.number, *gains, unit="x", display=low.text if len(gains) == 1 else f"{low.text} to {high.text}")


def registers_of_fused_linear(device: Device, size: str) -> Figure:
    """Registers of a thread of the kernel for a Linear and its GELU, with few tokens or with many."""
    return device[f"regimes/{size}_fused"].per_step(lambda step: step.kernels[0].registers or 0)


def raced_on(device: Device) -> Figure:
    """The recorded devices that ran the race's shapes."""
    raced = [each for each in all_devices(device.root) if each[EAGER_RACE].is_recorded and each[FUSED_RACE].is_recorded]
    names = " and ".join(f"the {each.short_name}" for each in raced)
    return Figure(names or "no device", origin=f"{EAGER_RACE}, {FUSED_RACE}")


FIGURES: Mapping[str, Measure] = {
    "h100_any_size_over_one": measured_on(H100, any_size_over_one),
    "steady_speedup": lambda device: paired_ratio(device["fused_mlp/eager"], device["fused_mlp/fused"], "steady"),
    "calls_saved": lambda device: launches_saved(device, "two kernels"),
    "saved_by_a_graph": lambda device: launches_saved(device, "a CUDA graph"),
    "shapes_on_the_gpu": lambda device: shapes_with_a_fifth(device, "interleaved"),
    "liger_forward_us": lambda device: device["mlp/liger"].time(),
    "gains_in_cache": lambda device: cache_gains(device, fits=True),
    "gains_beyond_cache": lambda device: cache_gains(device, fits=False),
    "registers_at_few": lambda device: registers_of_fused_linear(device, "small"),
    "registers_at_many": lambda device: registers_of_fused_linear(device, "large"),
}
