"""What the articles say about times: speed-ups, launch overhead, and tables for one GPU."""

from __future__ import annotations

from collections.abc import Mapping

from snippets.fact_check.findings.sources import A100, H100, deep_dive, digest, tutorial
from snippets.fact_check.findings.sweep import PRECISIONS, gain, gain_at, sizes, time_at, tokens_taking
from snippets.fused_mlp.findings.shapes import PEERS, row_run, shapes_in
from snippets.lab.finding import Device, Figure, Measure, NotTimed, at_least, at_most, between, claim, matches
from snippets.lab.finding.measure import derived, largest, paired_ratio, percent, smallest, unpaired_ratio
from snippets.lab.trace.queries import count_launches
from snippets.mlp.findings.costs import ONE_TOKEN, SIZES, at_size
from snippets.mlp.findings.eager import pointwise_us
from snippets.mlp.findings.steps import pointwise

LINEAR_US, GELU_US, BLOCK_US, FUSED_US = 120.0, 40.0, 280.0, 210.0
"""The table of the H100."""
PLAIN_US, AFTER_US = 2100.0, 1500.0
"""The kernel time of a 1024x4096x1024 MLP before and after fusing, on an A100."""
WAYS = {"compiled": "compiled", "two kernels": "fused", "a CUDA graph": "reduce_overhead"}
"""A way to launch less -> its experiment in fused_mlp."""
TEN_PERCENT = 0.1


def about(us: float) -> tuple[float, float]:
    """A tenth around a time."""
    return us * (1 - TEN_PERCENT), us * (1 + TEN_PERCENT)


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
    """For a forward of the MLP at 8192 tokens, no way to launch less saves time on the CPU: compiled, with two kernels
    or with a CUDA graph, a call keeps it busy at least 2 % longer than eager's."""
    eager = device["fused_mlp/eager"]
    return smallest(*(paired_ratio(device[f"fused_mlp/{name}"], eager, "enqueue") for name in WAYS.values()))


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
    """Fusion saves 20 to 30 % of the wall time on common layers; here: at more than half of seven shapes, from Python,
    the fastest fused forward spares a fifth of eager's time.

    Products take the time at wide shapes, and the CPU at few tokens, where a fused call costs more of it. What is left
    are shapes with many tokens and few numbers to each. Time your own shape from Python before you count on a gain."""
    return shapes_with_a_fifth(device, "from_python")


# -- 2.1 ms to 1.5 ms


def tokens_at(device: Device, arithmetic: str) -> Figure:
    """The number of tokens at which the eager block takes 2.1 ms."""
    tokens = tokens_taking(device, arithmetic, "block", PLAIN_US)
    return Figure(round(tokens, -2), origin="fact_check/block, between two sizes", display=f"{round(tokens, -2):,.0f}")


def gain_at_plain(device: Device) -> Figure:
    """The largest gain of fusing where the eager block takes 2.1 ms, over the precisions that reach it."""
    gains = []
    for arithmetic in PRECISIONS:
        try:
            gains.append(gain_at(device, arithmetic, tokens_taking(device, arithmetic, "block", PLAIN_US)))
        except NotTimed:
            continue
    if not gains:
        raise NotTimed("no arithmetic reaches that time")
    return largest(*gains)


@claim(
    "FC26",
    between(*(PLAIN_US / AFTER_US * (1 + sign * TEN_PERCENT) for sign in (-1, 1))),
    scope="timing",
    source=deep_dive("2.1 ms to 1.5 ms for a 1024×4096×1024 MLP", A100, only_there=True),
)
def from_2100_to_1500(device: Device) -> Figure:
    """Where a 1024x4096x1024 MLP takes 2.1 ms, fusing makes it about 1.4 times as fast, in the arithmetic
    that gains the most.

    The article gives neither batch nor arithmetic, and Part 2 has no such figure. So we look for the size: the table
    has one for each arithmetic. Two products take most of the time there, and fusing GELU into one of them leaves both.
    Ask a quoted time for its batch."""
    return gain_at_plain(device)


# -- the table of the H100


@claim(
    "FC27",
    between(*about(LINEAR_US + GELU_US)),
    scope="timing",
    source=tutorial("Linear (1024x4096) 0.12 ms, GeLU 0.04 ms", H100, only_there=True),
)
def linear_and_gelu_us(device: Device) -> Figure:
    """A Linear from 1024 to 4096 and its GELU take 0.12 ms and 0.04 ms, together 0.16 ms, give or take a tenth; here:
    8192 tokens in bf16, interleaved.

    The size is our guess, because the table names none."""
    return device["fused_mlp/linear_8192_eager"].time()


@claim(
    "FC28",
    between(GELU_US - 5, GELU_US + 5),
    scope="timing",
    source=tutorial("GeLU 0.04 ms", H100, only_there=True),
)
def gelu_us(device: Device) -> Figure:
    """In the trace of these two kernels, GELU takes a time that rounds to 0.04 ms.

    GELU moves two tensors and computes little, so its time tells their bytes. These fit our guess."""
    return device["fused_mlp/linear_8192_eager"].per_step(lambda step: step.kernels[1].duration_us, "us")


@claim(
    "FC29",
    between(*about(LINEAR_US)),
    scope="timing",
    source=tutorial("Linear with GeLU fused: 0.12 ms", H100, only_there=True),
)
def fused_linear_us(device: Device) -> Figure:
    """With GELU in its epilogue, the Linear still takes 0.12 ms, give or take a tenth; interleaved, the faster of
    cuBLAS's epilogue and a hand-written kernel.

    The epilogue hides GELU, so the fused Linear takes about as long as a bare one."""
    runs = (device[f"fused_mlp/linear_8192_{name}"] for name in ("addmm", "fused"))
    return smallest(*(run.time() for run in runs))


def table_tokens(device: Device, arithmetic: str = "bfloat16") -> float:
    """The number of tokens at which the Linear takes the table's 0.12 ms."""
    return tokens_taking(device, arithmetic, "linear", LINEAR_US)


@claim("FC30", between(*about(BLOCK_US)), scope="timing", source=tutorial("MLP block: 0.28 ms", H100, only_there=True))
def block_us(device: Device) -> Figure:
    """Where the Linear takes 0.12 ms in bf16, the block of two Linears takes 0.28 ms, give or take a tenth.

    Two such Linears and the GELU of the table make the same sum, so this row follows from the ones above it."""
    return time_at(device, "bfloat16", table_tokens(device), "block")


@claim(
    "FC31",
    between(1.25, 1.42),
    scope="timing",
    source=tutorial("MLP block: 0.28 to 0.21 ms, 1.33x", H100, only_there=True),
)
def block_gain(device: Device) -> Figure:
    """There the fused block is 1.33 times as fast, by no less than 1.25 times.

    Fusing takes GELU away and leaves two products. By the table's own rows that makes 0.24, not 0.21. More is possible
    only with a faster product, too."""
    return gain_at(device, "bfloat16", table_tokens(device))


def latency_saved(device: Device, arithmetic: str, tokens: int) -> Figure:
    """Percent of the eager block's time that the fastest fused one saves."""
    ratio = gain(device, arithmetic, tokens)
    low, high = ratio.bounds
    return Figure(100 - 100 / ratio.number, "%", (100 - 100 / low, 100 - 100 / high), ratio.origin)


def most_saved(device: Device) -> Figure:
    """The most that fusing saves at any size in any arithmetic."""
    found = [
        latency_saved(device, arithmetic, tokens) for arithmetic in PRECISIONS for tokens in sizes(device, arithmetic)
    ]
    return largest(*found)


@claim(
    "FC32",
    between(15, 25),
    scope="timing",
    source=tutorial("15–25 % less latency for the MLP block", H100, only_there=True),
)
def saved_where_the_table_is(device: Device) -> Figure:
    """Where the Linear takes 0.12 ms in bf16, fusing saves 15 to 25 % of the block's time.

    The sentence before the table gives this range and no size."""
    ratio = gain_at(device, "bfloat16", table_tokens(device))
    low, high = ratio.bounds
    return Figure(100 - 100 / ratio.number, "%", (100 - 100 / low, 100 - 100 / high), ratio.origin)


def largest_gain(device: Device, arithmetic: str) -> Figure:
    """The largest gain of fusing over the sizes, in one arithmetic."""
    return largest(*(gain(device, arithmetic, tokens) for tokens in sizes(device, arithmetic)))


@claim("FC36", at_most(1.02), scope="timing")
def gain_in_tf32(device: Device) -> Figure:
    """In TF32, GELU in cuBLAS's epilogue makes the block at most 2 % faster, at any size."""
    return largest_gain(device, "tf32")


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
    "saved_by_compiling": lambda device: launches_saved(device, "compiled"),
    "shapes_on_the_gpu": lambda device: shapes_with_a_fifth(device, "interleaved"),
    "wall_time": lambda device: shapes_with_a_fifth(device, "from_python"),
    "tokens_bfloat16": lambda device: tokens_at(device, "bfloat16"),
    "tokens_tf32": lambda device: tokens_at(device, "tf32"),
    "tokens_float32": lambda device: tokens_at(device, "float32"),
    "most_saved": most_saved,
    "gain_in_float32": lambda device: largest_gain(device, "float32"),
    "gain_in_bfloat16": lambda device: largest_gain(device, "bfloat16"),
    "gain_in_cache": lambda device: cache_gain(device, "[batch=4,seq=128]"),
    "gain_beyond_cache": lambda device: cache_gain(device, SIZES[-1]),
    "linear_and_gelu": lambda device: device["fused_mlp/linear_8192_eager"].time(),
    "liger_of_inductor": lambda device: unpaired_ratio(liger_us(device), inductor_us(device)),
    "one_token_percent": lambda device: percent(naive_at_one_token(device)),
}
