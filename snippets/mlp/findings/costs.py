"""The costs of the kernels and the gain of fusion: the whole forward, from one token to many."""

import itertools
import statistics
from collections.abc import Mapping
from functools import partial

from kinetoscope.html import Html
from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import kernel_time_us
from snippets.lab.charts.bar_charts import kernel_bars, timing_bars
from snippets.lab.experiment import Parameters
from snippets.lab.finding import Device, Figure, Measure, Source, format_value, timing_of_samples
from snippets.lab.finding.band import at_least, at_most, between, equals, matches
from snippets.lab.finding.claim import claim
from snippets.lab.finding.measure import (
    derived,
    largest,
    paired_ratio,
    point_ratio,
    ratio_of_kinds,
    share_of_ceiling,
    smallest,
    unpaired_ratio,
)
from snippets.lab.page import race_table, regimes, roofline, show as show, timeline, waiting
from snippets.lab.recording.ceilings import LARGE_MATMUL
from snippets.lab.recording.schema import Timing
from snippets.mlp.findings.eager import gemm_kernels
from snippets.mlp.findings.fusion import compilations, recompiled
from snippets.mlp.findings.steps import BF16_BYTES, VARIANTS, gate_bytes, gemms, launch_size, matmul_shapes, pointwise

MATMULS = ("gate", "up", "down")
SWEEPS = {"eager": "mlp/sweep_eager", "compiled": "mlp/sweep_compiled", "Liger": "mlp/sweep_liger"}
ONE_TOKEN, ONE_SEQUENCE = "[batch=1,seq=1]", "[batch=1,seq=128]"
ARTICLE = "The Profiling Deep-Dive on nn.Linear Fusion"
SERIES_GEMMS_US, SERIES_FUSED_US = (190.0, 190.0, 170.0), 89.4
"""Part 2's kernel times: gate, up and down; Inductor's fused kernel."""
SIZES = (ONE_TOKEN, ONE_SEQUENCE, *(f"[batch={batch},seq=128]" for batch in (4, 16, 64, 128)))


def times_eager(device: Device, variant: str, kind: str = "interleaved") -> Figure:
    """Eager's time / a variant's."""
    return paired_ratio(device["mlp/eager"], device[VARIANTS[variant]], kind)


def at_size(device: Device, upper: str, lower: str, size: str, kind: str = "from_python") -> Figure:
    """The time of one variant / another's at a size of the sweeps."""
    return paired_ratio(device[SWEEPS[upper] + size], device[SWEEPS[lower] + size], kind)


def trace_and_replayed(device: Device) -> dict[str, dict[str, Timing]]:
    """Eager's three matmuls, by name and shape: in the trace, and bare in interleaved replays. Raises `NotTimed`."""
    run, times = device["mlp/eager"], {}
    for index, shape in enumerate("x".join(map(str, sizes)) for sizes in matmul_shapes(run.step)):
        in_trace = timing_of_samples([gemms(step)[index].duration_us for step in run.steps])
        times[f"{MATMULS[index]}, {shape}"] = {"trace": in_trace, "interleaved": run.ceiling(f"matmul {shape}").timing}
    return times


@claim("O-P1", matches(r"([^,]+), \1, (?!\1$)[^,]+"), scope="this-gpu")
def two_kinds(device: Device) -> Figure:
    """The MLP's products gate and up have one shape and run one kernel, and the product down runs another kernel."""
    return gemm_kernels(device["mlp/eager"])


@claim("O-P2", matches(r"cuLaunchKernelEx, (\d+) blocks, \1 multiprocessors"), scope="this-gpu")
def blocks_of_gemms(device: Device) -> Figure:
    """cuLaunchKernelEx launches every GEMM of the eager MLP, with one block for each multiprocessor."""
    count = device["mlp/eager"].environment.multiprocessors

    def launches(step: Step) -> str:
        calls = {kernel.launch.name for kernel in gemms(step) if kernel.launch}
        blocks = {launch_size(kernel)[0] for kernel in gemms(step)}
        return f"{', '.join(sorted(calls))}, {', '.join(map(str, sorted(blocks)))} blocks, {count} multiprocessors"

    return device["mlp/eager"].per_step(launches)


@claim("O-P3", equals("gate 4 bytes, up 4 bytes"), scope="this-gpu")
def memsets(device: Device) -> Figure:
    """In each variant of the MLP, the products gate and up each come with a memset of four bytes, but down has none."""

    def fills(step: Step) -> str:
        matmuls = {kernel.op: name for kernel, name in zip(gemms(step), MATMULS, strict=True)}
        owners = [(matmuls.get(fill.op, fill.op.name) if fill.op else "?", fill) for fill in step.memsets]
        return ", ".join(f"{name} {fill.moved_bytes} bytes" for name, fill in owners) or "none"

    figures = [device[experiment].per_step(fills) for experiment in VARIANTS.values()]
    values = [str(figure.value) for figure in figures]
    return derived("; ".join(values if len(set(values)) > 1 else values[:1]), *figures)


@claim("O-P4", at_least(1.02), scope="timing")
def replayed_over_trace(device: Device) -> Figure:
    """In the eager MLP's short trace, each GEMM takes less time than the same product alone in interleaved replays."""
    pairs = trace_and_replayed(device).values()
    return Figure(min(pair["interleaved"].median_us / pair["trace"].median_us for pair in pairs), "x")


@claim("O-P6", between(1.9, 2.1))
def saved_memory(device: Device) -> Figure:
    """The compiled MLP's peak memory is lower than the eager MLP's peak memory by two tensors of the hidden size."""
    eager, fused = (device[name].point.peak_memory_bytes for name in ("mlp/eager", "mlp/compiled"))
    saved, hidden = eager - fused, gate_bytes(device["mlp/eager"].step)
    return Figure(saved / hidden, display=f"{format_value(saved, 'bytes')} less")


@claim("O-P7", matches(r"(\d+) blocks for \1 rows of 3072; \1 blocks for \1 rows of 4096"))
def liger_launch(device: Device) -> Figure:
    """Liger's GeGLU kernel starts one block for each row, at 3072 columns and at 4096 columns."""

    def launch(step: Step) -> str:
        (rows, _, columns) = matmul_shapes(step)[0]
        return f"{launch_size(pointwise(step)[0])[0]} blocks for {rows} rows of {columns}"

    narrow, wide = (device[name].per_step(launch) for name in ("mlp/liger", "mlp/liger_4096"))
    return derived(f"{narrow.value}; {wide.value}", narrow, wide)


@claim("O-P8", at_least(1.2), scope="timing")
def liger_on_the_cpu(device: Device) -> Figure:
    """With one token and with one sequence of 128 tokens, a call of Liger's MLP takes at least a fifth more CPU time
    than an eager call, although Dynamo isn't involved."""
    return smallest(*(at_size(device, "Liger", "eager", size, "enqueue") for size in (ONE_TOKEN, ONE_SEQUENCE)))


@claim("O-P9", equals("static: 3 of 3, automatic: 1 of 3"))
def static_or_automatic(device: Device) -> Figure:
    """With dynamic=False, every new batch size makes torch.compile compile the MLP again, but by default only the first
    new batch size does."""
    return Figure(", ".join(f"{mode}: {recompiled(device, mode)}" for mode in ("static", "automatic")))


@claim("O-P10", at_least(300), scope="timing")
def cost_of_compiling(device: Device) -> Figure:
    """A call of the MLP that compiles takes hundreds of times as long as a call that doesn't compile."""
    calls_ms: dict[bool, list[float]] = {True: [], False: []}
    for mode in ("static", "automatic"):
        changes = itertools.pairwise([0, *compilations(device, mode)])
        for (before, after), ms in zip(changes, device["mlp/new_shapes"].data[mode]["first_call_ms"], strict=True):
            calls_ms[after > before].append(float(ms))
    if not calls_ms[False]:
        return Figure(0.0, "x", display="every call compiled", conclusive=False)
    compiling, other = (
        Figure(statistics.median(ms), spread=(min(ms), max(ms)), origin="mlp/new_shapes, first calls")
        for ms in (calls_ms[True], calls_ms[False])
    )
    return unpaired_ratio(compiling, other)


@claim("O-P11", between(1.2, 1.43), scope="timing", source=Source(ARTICLE, "a 20–30 % wall-time speedup", ""))
def compiled_speedup(device: Device) -> Figure:
    """Fusion makes the whole MLP 20 to 30 % faster. (We measure the compiled MLP in interleaved timing.)

    Part 2 doesn't promise this speedup, because Part 2 never times a whole forward. GEMMs take most of the time, and
    fusion doesn't change the GEMMs. The time of the pointwise kernels shrinks by less than half. Before you believe a
    promise, ask which share of the time the optimization affects."""
    return times_eager(device, "compiled")


@claim("O-P12", at_least(1.02), scope="timing")
def fusion_pays(device: Device) -> Figure:
    """Fusion saves GPU time: interleaved, the compiled MLP and Liger's MLP each take less time than the eager MLP."""
    return smallest(times_eager(device, "compiled"), times_eager(device, "Liger"))


@claim("O-P29", at_most(0.9), scope="timing")
def not_overhead_bound(device: Device) -> Figure:
    """With 8192 tokens, neither the eager MLP nor the compiled MLP is overhead-bound: for each, the CPU takes at most
    90 % of the GPU's time."""
    return largest(*(ratio_of_kinds(device[VARIANTS[name]], "enqueue") for name in ("eager", "compiled")))


@claim(
    "O-P13", between(60, 70), scope="this-gpu", source=Source(ARTICLE, "cut GPU kernel launch overhead by 60–70 %", "")
)
def launches_saved(device: Device) -> Figure:
    """Fusing the MLP saves 60 to 70 % of the launch overhead. (We count the kernels of a forward.)

    Fusion removes one launch of five. The CPU still works longer than in eager, because the checks before the fused
    code take more time than the launch that fusion removes. Fusion of pointwise operators mostly saves memory
    traffic."""
    eager, fused = (device[name].per_step(lambda step: len(step.kernels)) for name in ("mlp/eager", "mlp/compiled"))
    return derived(100 * (1 - fused.number / eager.number), eager, fused, unit="%")


@claim("O-P14", at_least(1.1), scope="timing")
def slower_from_python(device: Device) -> Figure:
    """From Python, with one token and with one sequence of 128 tokens, the compiled MLP and Liger's MLP both take at
    least a tenth longer than the eager MLP."""
    sizes, variants = (ONE_TOKEN, ONE_SEQUENCE), ("compiled", "Liger")
    return smallest(*(at_size(device, variant, "eager", size) for size in sizes for variant in variants))


@claim("O-P16", at_least(1.05))
def lower_error(device: Device) -> Figure:
    """The eager MLP's error is at least a twentieth higher than the compiled MLP's error, because the compiled MLP
    doesn't round GELU's result."""
    return point_ratio(device["mlp/eager"], device["mlp/compiled"], "relative_error")


@claim("O-P15", at_least(1.02), scope="timing")
def faster_at_every_size(device: Device) -> Figure:
    """On the GPU alone, the compiled MLP is faster than the eager MLP at every size from one token up."""
    return smallest(*(at_size(device, "eager", "compiled", size, "interleaved") for size in SIZES))


def pointwise_share(device: Device) -> Figure:
    """The pointwise part of eager's kernel time."""
    return device["mlp/eager"].per_step(
        lambda step: 100 * kernel_time_us(pointwise(step)) / kernel_time_us(step.kernels), "%"
    )


def free_pointwise(device: Device) -> Figure:
    """Eager's speedup without its pointwise part."""
    share = pointwise_share(device)
    return derived(1 / (1 - share.number / 100), share, unit="x")


def series_speedup(_: Device) -> Figure:
    """Eager's pointwise part, estimated from the fused kernel's time by the bytes: five tensors against three."""
    rest = sum(SERIES_GEMMS_US)
    value = (rest + SERIES_FUSED_US * 5 / 3) / (rest + SERIES_FUSED_US)
    return Figure(value, "x", origin="computed from the times that Part 2 gives for its A100, at equal bandwidth")


def liger_pace(device: Device) -> Figure:
    """Whether a call with Liger's layer waits for the CPU: in every process, in the slowest, or in none."""
    ratio = ratio_of_kinds(device["mlp/liger"], "enqueue")
    low, high = ratio.bounds
    where = "every process" if low > 1 else "the slowest process only" if high > 1 else "no process"
    return Figure(f"in {where}", origin=ratio.origin)


FIGURES: Mapping[str, Measure] = {
    "automatic_compilations": lambda device: Figure(compilations(device, "automatic")[-1], origin="mlp/new_shapes"),
    "liger_cpu_over_gpu": lambda device: ratio_of_kinds(device["mlp/liger"], "enqueue"),
    "liger_pace": liger_pace,
    "compiled_from_python": lambda device: times_eager(device, "compiled", "from_python"),
    "one_token_compiled": lambda device: at_size(device, "compiled", "eager", ONE_TOKEN),
    "one_token_liger": lambda device: at_size(device, "Liger", "eager", ONE_TOKEN),
    "one_token_gpu": lambda device: at_size(device, "eager", "compiled", ONE_TOKEN, "interleaved"),
    "weight_bytes": lambda device: device["mlp/eager"].per_step(
        lambda step: sum(BF16_BYTES * k * n for _, k, n in matmul_shapes(step)), "bytes"
    ),
    "l2_bytes": lambda device: Figure(device["mlp/eager"].environment.l2_bytes, "bytes", origin="torch"),
    "most_tokens_share": lambda device: share_of_ceiling(device[SWEEPS["compiled"] + SIZES[-1]], LARGE_MATMUL),
    "one_token_replayed": lambda device: ratio_of_kinds(device[SWEEPS["compiled"] + ONE_TOKEN], "from_python"),
}


opening = partial(
    waiting,
    sizes={
        "1 token": {name: SWEEPS[name] + ONE_TOKEN for name in ("eager", "compiled")},
        "8,192 tokens": {name: VARIANTS[name] for name in ("eager", "compiled")},
    },
)
side_by_side = partial(timeline, variants=VARIANTS)
kernel_times = partial(kernel_bars, variants=VARIANTS)
bought = partial(
    race_table,
    variants=VARIANTS,
    caption="Times of one forward: eager, compiled, and with Liger's layer",
    kinds=("interleaved", "steady", "cold", "from_python"),
    over="eager",
    more={"peak memory of a call": "peak_memory_bytes", "relative error": "relative_error"},
)


def gemm_times(device: Device) -> Html:
    """Eager's three matmuls: time in the trace, and sustained without other kernels."""
    caption = "Times of the three products: in the trace of the forward, and alone in interleaved replays"
    return timing_bars(device, trace_and_replayed(device), caption, axis="time of one product, M x K x N")


def _tokens(parameters: Parameters) -> int:
    return int(parameters["batch"]) * int(parameters["seq"])


regimes_by_tokens = partial(regimes, variants=SWEEPS, size=_tokens, unit="tokens")


def roofline_by_tokens(device: Device) -> Html:
    """From one token to many: the compiled forward below this GPU's roofs."""
    variants = {}
    for point in device[SWEEPS["compiled"]].points:
        tokens, selector = _tokens(point.parameters), "batch={batch},seq={seq}".format(**point.parameters)
        variants[f"{tokens:,} token{'s' * (tokens != 1)}"] = f"{SWEEPS['compiled']}[{selector}]"
    return roofline(device, variants, "The compiled forward on the GPU alone, from one token to many")


def replayed(device: Device) -> Html:
    """One token: the time of a forward from Python and of the replay of a CUDA graph."""
    timings = {name: device[experiment + ONE_TOKEN].timings for name, experiment in SWEEPS.items()}
    groups = {name: {"Python": each.from_python, "CUDA graph": each.interleaved} for name, each in timings.items()}
    return timing_bars(device, groups, "One forward with one token: from Python, and as the replay of a CUDA graph")
