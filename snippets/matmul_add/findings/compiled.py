"""The matmul's times, and the compiled step: its one operator, the rows on the way into it, and its GPU work."""

from collections.abc import Sequence
from functools import partial

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import Step
from snippets.lab.finding import Claim, Device, Figure, Run, Source, at_least, between, claim, equals, format_value
from snippets.lab.finding.measure import unpaired_ratio
from snippets.lab.finding.quantities import quantity
from snippets.lab.page import diff_table, show as show, timeline
from snippets.lab.recording.schema import Timing
from snippets.matmul_add.findings.overhead import (
    LARGE,
    MATMULS,
    PRODUCT_4096,
    across,
    is_unchanged,
    matmul,
    names,
    of_traces,
)

GEMM_OF_THE_POST = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn"


@claim("P26", equals(GEMM_OF_THE_POST), scope="this-gpu", source=Source("Part 1", GEMM_OF_THE_POST))
def large_matmul(device: Device) -> Figure:
    """At size 4096, the product of matmul_add is an ampere_bf16_s16816gemm kernel with a tile of 128x256.

    cuBLAS has different kernels for each generation of GPUs. On this generation, the names begin with nvjet and don't
    contain gemm."""
    return device["matmul_add/eager_4096"].per_step(lambda step: matmul(step)[0].name)


@claim("P27", between(520, 640), scope="timing", source=Source("Part 1", "580 µs"))
def product_4096(device: Device) -> Figure:
    """At size 4096, the product of matmul_add takes about 580 µs.

    This GPU is newer and faster than Part 1's GPU. Between two GPUs, compare rates and shares of a ceiling, not
    times."""
    return device["matmul_add/eager_4096"].per_step(lambda step: matmul(step)[0].duration_us, "us")


@claim("P28", at_least(1.5), scope="timing", source=Source("Part 1", "580 µs usually, 1084 µs on average of 5"))
def longest_to_shortest(device: Device) -> Figure:
    """At size 4096, the time of the product varies widely from step to step.

    Within one trace, the times of the steps agree closely. If the GPU runs the step for seconds, it lowers its clock. A
    trace of three steps ends before the clock drops."""

    def longest_to_shortest_of(run: Run) -> Figure:
        times = sorted(matmul(step)[0].duration_us for step in run.whole.steps)
        display = f"{format_value(times[0], 'us')} to {format_value(times[-1], 'us')}"
        return Figure(times[-1] / times[0], "x", origin=run.origin, display=display)

    return of_traces(device, longest_to_shortest_of, *reversed(LARGE))


def rate(us: float) -> float:
    """FLOPs a second of a matmul of 4096x4096 by 4096x4096."""
    return 2e6 * 4096**3 / us


ARITHMETIC = (*MATMULS, "aten::matmul", "aten::add")
GRAPH_CALL = "## Call CompiledFxGraph"


@claim("P29", equals("aten::addmm"), source=Source("Part 1", "one aten::addmm(b, x, w)"))
def only_addmm(device: Device) -> Figure:
    """A compiled step reaches the GPU through a single aten::addmm."""
    return device["matmul_add/compiled_4096"].per_step(
        lambda step: names(op for op in step.ops if op.name in ARITHMETIC)
    )


def one_row(identity: str, name: str) -> Claim:
    """The claim that each compiled step has one row with this name, or one that begins with it."""

    def measure(device: Device) -> Figure:
        run = device["matmul_add/compiled_4096"]
        return run.per_step(lambda step: sum(op.name.startswith(name) for op in step.ops))

    measure.__doc__ = f"Each compiled step has one row named {name}."
    return claim(identity, equals(1), source=Source("Part 1", "one a step"))(measure)


cache_lookup = one_row("P30", "TorchDynamo Cache Lookup")
compiled_region = one_row("P31", "Torch-Compiled Region: 0/0")
wrapper_prologue = one_row("P32", "AOTDispatcher Runtime Wrapper Prologue")
graph_call = one_row("P33", GRAPH_CALL)


@claim("P34", equals(1), source=Source("Part 1", "the same in 3 steps"))
def graph_names(device: Device) -> Figure:
    """The row ## Call CompiledFxGraph has the same hash in every step."""
    run = device["matmul_add/compiled_4096"]
    rows = [op.name for step in run.steps for op in step.ops if op.name.startswith(GRAPH_CALL)]
    return Figure(len(set(rows)), origin=run.origin, display=f"{len(set(rows))} name in {len(rows)} calls")


@claim("P35", is_unchanged, scope="this-gpu", source=Source("Part 1", "the same kernel"))
def matmul_names(device: Device) -> Figure:
    """The product of the compiled step runs the same kernel as the product of the eager step.

    The two names differ in one part, bz in the eager step and badd in the compiled step. NVIDIA doesn't document these
    parts. Our guess: badd adds to the output's old value, and bz ignores the old value."""
    return across(device, lambda step: matmul(step)[0].name, "eager_4096", "compiled_4096")


@claim("P36", is_unchanged, scope="this-gpu", source=Source("Part 1", "2 → 2, counting the copy"))
def kernels_left(device: Device) -> Figure:
    """Compiling matmul_add fuses operators at the level of the dispatcher, but fuses no kernels.

    The kernel of aten::add is gone, and a copy and a product are left. The result is correct, and a copy can't add, so
    the kernel of the product adds. The compiled step moves as many bytes as the eager step, because b is copied and
    then read again."""
    return across(device, lambda step: len(step.kernels), "eager_4096", "compiled_4096")


def kinds(step: Step) -> str:
    """The GPU work of a step by kind, in order."""
    return ", ".join(activity.kind for activity in step.activities)


@claim("P37", equals("memcpy, kernel"), source=Source("Part 1", "memcpy, kernel"))
def small_work(device: Device) -> Figure:
    """At size 64, a compiled step puts two activities on the GPU, a copy and the product."""
    return device["matmul_add/compiled_64"].per_step(kinds)


@claim("P38", equals("memcpy, kernel"), source=Source("Part 1", "memcpy, kernel"))
def large_work(device: Device) -> Figure:
    """At size 4096, a compiled step puts two activities on the GPU, a copy and the product.

    A third activity comes between the copy and the product: the memset that this product needs at this size, compiled
    or not."""
    return device["matmul_add/compiled_4096"].per_step(kinds)


@claim("P39", equals("cudaMemcpyAsync"), source=Source("Part 1", "cudaMemcpyAsync"))
def copy_call(device: Device) -> Figure:
    """cudaMemcpyAsync puts the compiled step's copy of b on the GPU."""
    return device["matmul_add/compiled_4096"].per_step(lambda step: names(copy.launch for copy in step.memcpys))


@claim("P40", equals("2 → 1"), source=Source("Part 1", "2 → 1"))
def kernel_launches(device: Device) -> Figure:
    """Compiling matmul_add saves one of two kernel launches in a step."""
    return across(device, lambda step: len({kernel.launch for kernel in step.kernels}), "eager_4096", "compiled_4096")


@claim("P41", is_unchanged, source=Source("Part 1", "2 → 2"))
def activities(device: Device) -> Figure:
    """Compiling matmul_add doesn't change the number of GPU activities in a step."""
    return across(device, lambda step: len(step.activities), "eager_4096", "compiled_4096")


def clock_reasons(timing: Timing) -> Figure:
    """NVML's reasons for a low clock during a timing."""
    return Figure(", ".join(timing.throttle) or "none")


FIGURES = {
    "kept_running": lambda device: unpaired_ratio(
        device["matmul_add/eager_4096"].time("steady"), quantity(device["matmul_add/eager_4096"], "busy_us")
    ),
    "clock_reasons": lambda device: clock_reasons(device["matmul_add/eager_4096"].timing("steady")),
}


def product_runs(device: Device) -> Html:
    """The product at 4096 step by step, the same product replayed, and the step kept running, with clocks."""
    rows: list[Sequence[Cell]] = []
    for name in ("eager_4096_cold", "eager_4096"):
        for step in device[f"matmul_add/{name}"].steps:
            rows.append([f"product, trace {name}, {step.name}", *_time_and_clock(matmul(step)[0].duration_us)])
    for name in ("sweep_eager[size=4096]", "eager_4096", "matrix_bias_4096"):
        bare = device[f"matmul_add/{name}"].ceiling(PRODUCT_4096).timing
        rows.append([f"product, interleaved with {name}", *_time_and_clock(bare.median_us, bare)])
    for kind in ("interleaved", "steady"):
        timing = device["matmul_add/eager_4096"].timing(kind)
        rows.append([f"product and add, {kind}", *_time_and_clock(timing.median_us, timing)])
    head = ["what we timed", "time", "rate", "clock", "power"]
    return table("The product x @ w of 4096x4096 matrices, timed several times", head, rows)


def _time_and_clock(us: float, during: Timing | None = None) -> Sequence[Cell]:
    clock = f"{during.clock_mhz:.0f} MHz" if during and during.clock_mhz else None
    power = f"{during.watts:.0f} W" if during and during.watts else None
    return format_value(us, "us"), format_value(rate(us), "flop/s"), clock, power


fused = partial(diff_table, variants={"eager": "matmul_add/eager_4096", "compiled": "matmul_add/compiled_4096"})
entering = partial(timeline, variants={"Eager": "matmul_add/eager_64_cold", "Compiled": "matmul_add/compiled_64_cold"})
