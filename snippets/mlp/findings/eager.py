"""One eager forward: its kernels, their order and their operators."""

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import op_name
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    Run,
    between,
    claim,
    equals,
    format_value,
    matches,
)
from snippets.lab.finding.band import at_least, at_most
from snippets.lab.finding.measure import largest, ratio_of_pairs
from snippets.lab.page import (
    Computation,
    figure_cell,
    prediction as prediction,
    show as show,
)
from snippets.lab.recording.schema import Timing
from snippets.mlp.findings.steps import (
    gemms,
    kernel_ops,
    matmul_shapes,
    part_2,
    pointwise,
    pointwise_bytes,
)

METADATA_OPS = {"aten::t", "aten::transpose", "aten::as_strided", "aten::reshape", "aten::view", "aten::_unsafe_view"}
A100_GEMMS = r"(ampere_bf16_s16816gemm_bf16_128x128[^,]*), \1, ampere_bf16_s16816gemm_bf16_128x256[^,]*"
A100_NAMES = "ampere_bf16_s16816gemm_bf16_128x128_…_stages_32x5_tn twice, then …_128x256_…_stages_64x3_tn"
ASKING = "3 of 3 GEMMs, 0 of 2 pointwise"
EAGER_AND_LIGER = "mlp/eager and mlp/liger, the step with the longest gap"
SHAPES = "[8192,768]x[768,3072], [8192,768]x[768,3072], [8192,3072]x[3072,768]"


def gemm_kernels(run: Run) -> Figure:
    """Names of the three GEMM kernels, shortened if gate and up run the same kernel."""
    names = run.per_step(lambda step: ", ".join(kernel.name for kernel in gemms(step)))
    gate, *others = str(names.value).split(", ")
    return replace(names, display=f"{gate} twice, then {others[-1]}") if others[0] == gate else names


def pointwise_us(run: Run, index: int = 0) -> Figure:
    """Time of a pointwise kernel in the trace."""
    return run.per_step(lambda step: pointwise(step)[index].duration_us, "us")


def moved_bytes(run: Run) -> Figure:
    """The bytes that the pointwise kernels of a step must move in total."""
    return run.per_step(lambda step: sum(pointwise_bytes(step)), "bytes")


def copy_share(run: Run) -> Figure:
    """The rate at which the first pointwise kernel moves its bytes, in percent of a plain copy's."""
    copy = run.ceiling("copy").rate
    return run.per_step(lambda step: 100 * pointwise_bytes(step)[0] / pointwise(step)[0].duration_us * 1e6 / copy, "%")


def gelu_floor(device: Device) -> Figure:
    """The time of GELU's bytes at the rate of a large copy."""
    run = device["mlp/eager"]
    copy = run.ceiling("copy").rate
    return run.per_step(lambda step: 1e6 * pointwise_bytes(step)[0] / copy, "us")


READING_AND_WRITING = Computation(
    "How long must GELU read and write, at a large copy's rate?",
    "mlp.gelu_floor_us",
    "{mlp.gelu_bytes} at {mlp.copy_rate}.",
    "Count the bytes of gate's result, read once and written once, and divide by a copy's rate.",
    {"mlp.gelu_half_floor_us": "that counts one tensor. GELU reads one tensor and writes another."},
)


@claim("M1", equals("mm, mm, gelu, mul, mm"), source=part_2("5 kernels: GEMM, GEMM, GELU, mul, GEMM"))
def order(device: Device) -> Figure:
    """One eager forward runs exactly five kernels, in this order: GEMM, GEMM, GELU, multiplication, GEMM."""
    return device["mlp/eager"].per_step(kernel_ops)


@claim("M2", matches(A100_GEMMS), scope="this-gpu", source=part_2(A100_NAMES))
def a100_names(device: Device) -> Figure:
    """In the MLP, the products gate and up run the kernel ampere_bf16_s16816gemm_bf16_128x128_…_stages_32x5_tn, and
    the product down runs …_128x256_…_stages_64x3_tn.

    On Hopper, cuBLAS has other kernels, with names like nvjet_sm90_*. On Hopper, too, the two equal products run one
    kernel, and the third product runs another. Compare kernel names within one machine, never between two machines."""
    return gemm_kernels(device["mlp/eager"])


@claim("M3", equals("GeluCUDAKernelImpl 4 wide, MulFunctor 4 wide"), scope="this-gpu", source=part_2("<4, …> in both"))
def templates(device: Device) -> Figure:
    """The MLP's pointwise kernels are vectorized_elementwise_kernel<4, GeluCUDAKernelImpl…> and <4, …MulFunctor…>.

    The same two templates run here, but with the number eight instead of four. The number says how many elements a
    thread loads at once. PyTorch builds the templates with eight only for compute capability 9 and 10, and with at most
    four for other GPUs. So a name can change between GPUs although the algorithm stays the same."""
    expression = r"vectorized_elementwise_kernel<(\d+).*?(GeluCUDAKernelImpl|MulFunctor)"

    def widths(step: Step) -> str:
        names = (re.search(expression, kernel.name) for kernel in pointwise(step))
        return ", ".join(f"{match[2]} {match[1]} wide" for match in names if match)

    return device["mlp/eager"].per_step(widths)


@claim("M4", equals(ASKING), scope="this-gpu", source=part_2("3 queries a forward, one for each GEMM"))
def queries(device: Device) -> Figure:
    """cuBLAS calls cudaOccupancyMaxActiveBlocksPerMultiprocessor before it launches each GEMM of the MLP. PyTorch makes
    no such call before GELU and the multiplication.

    cuBLAS makes no occupancy query before a GEMM of these steps. In the chapter Matmul and add, cuBLAS makes such
    queries in a process's first step only. So recognize a GEMM by the operator above its launch, and not by a query."""

    def count(step: Step, *names: str) -> str:
        ops = [op for op in step.ops if op.name in names]
        return f"{sum(any('Occupancy' in call.name for call in step.calls_in(op)) for op in ops)} of {len(ops)}"

    return device["mlp/eager"].per_step(
        lambda step: f"{count(step, 'aten::mm')} GEMMs, {count(step, 'aten::gelu', 'aten::mul')} pointwise"
    )


def only_mm_works(figure: Figure) -> bool:
    """Whether the chain is as expected and no metadata operator launches GPU work."""
    working, _, idle = str(figure.value).partition("; none: ")
    is_mm = working == "aten::linear > aten::matmul > aten::mm; GPU work: aten::mm"
    return is_mm and {*idle.split(", ")} >= METADATA_OPS


@claim("M5", only_mm_works, source=part_2("about six names for each linear, of which mm alone reaches the GPU"))
def metadata_only(device: Device) -> Figure:
    """In each aten::linear of the MLP, linear calls matmul, matmul calls mm, and only mm launches GPU work: t,
    transpose, as_strided, reshape, view and _unsafe_view launch nothing."""
    figure = device["mlp/eager"].per_step(inside_linear)
    return replace(figure, display=str(figure.value).replace("aten::", ""))


def inside_linear(step: Step) -> str:
    """`chain; names that reach the GPU; names that do not`, of all that runs inside `aten::linear`."""
    chains = [[above.name for above in op.chain] for op in step.ops]
    inside = [chain[chain.index("aten::linear") :] for chain in chains if "aten::linear" in chain]
    to_mm = sorted({" > ".join(chain) for chain in inside if chain[-1] == "aten::mm"})
    working = working_ops(step)
    idle = sorted({chain[-1] for chain in inside} - set(working.split(", ")))
    return f"{' and '.join(to_mm)}; GPU work: {working}; none: {', '.join(idle)}"


def working_ops(step: Step) -> str:
    """The operators inside `aten::linear` that launch GPU work themselves."""
    inside = {op.name for op in step.ops if any(above.name == "aten::linear" for above in op.chain)}
    return ", ".join(sorted({op_name(activity) for activity in step.activities} & inside))


@claim("M6", equals(SHAPES), source=part_2("the same shapes, 38.7 GFLOP each"))
def shapes(device: Device) -> Figure:
    """Two of the MLP's products are [8192,768]x[768,3072], and the third product is [8192,3072]x[3072,768], with the
    same number of floating-point operations."""
    return device["mlp/eager"].per_step(
        lambda step: ", ".join(f"[{m},{k}]x[{k},{n}]" for m, k, n in matmul_shapes(step))
    )


@claim("M7", between(8, 12), scope="timing", source=part_2("0.19 ms, 0.19 ms and 0.17 ms"))
def down_is_faster(device: Device) -> Figure:
    """In the eager MLP's trace, the product down takes about a tenth less time than gate and up, although all three
    products do the same amount of work."""

    def percent(step: Step) -> float:
        gate, up, down = (kernel.duration_us for kernel in gemms(step))
        return 100 * (1 - down / statistics.fmean((gate, up)))

    return device["mlp/eager"].per_step(percent, "%")


def throttling(device: Device) -> Figure:
    """NVML's reasons for a lowered clock while eager's interleaved samples ran."""
    timing = device["mlp/eager"].timing()
    if not timing.clock_mhz:
        raise NotTimed("mlp/eager has no clock of its interleaved timing; make record CHAPTER=mlp")
    return Figure(", ".join(timing.throttle) or "none", origin="NVML, while the samples ran")


def gap_before_up(step: Step) -> float:
    """Time from the end of the product of `gate` to the start of the product of `up`."""
    gate, up, _ = gemms(step)
    return up.start_us - gate.start_us - gate.duration_us


def up_to_gate(step: Step) -> float:
    """The time of the product of `up` / the product of `gate`."""
    gate, up, _ = gemms(step)
    return up.duration_us / gate.duration_us


def longest_gap_step(device: Device) -> Step:
    """The step with the longest gap before `up` in the traces of eager's forward and of Liger's."""
    return max((step for name in ("eager", "liger") for step in device[f"mlp/{name}"].steps), key=gap_before_up)


def idle_times(device: Device, work: str, quantity: str = "up_us") -> list[Timing]:
    """Times of `mlp/after_idle` after some work, the shortest gap first; a sample for each round."""
    return [Timing.from_samples(times[quantity]) for times in device["mlp/after_idle"].data["after"][work]]


def back_to_back(device: Device, work: str) -> Figure:
    """Time of `up` right after some work over its time after the longest gap."""
    first, *_, last = idle_times(device, work)
    return ratio_of_pairs(first, last, f"mlp/after_idle, after {work}, in pairs")


@claim("O-P27", at_most(1), scope="timing")
def up_after_work(device: Device) -> Figure:
    """In CUDA graphs, the MLP's product up is no faster after the longest idle gap than right after gate, a product
    with a small result, or a fill."""
    return largest(*(back_to_back(device, work) for work in ("gate", "small result", "fill")))


@claim("O-P37", at_least(1.05), scope="timing")
def up_over_gate(device: Device) -> Figure:
    """In the compiled MLP's trace, the product up takes at least a twentieth longer than gate, although both products
    run the same kernel on inputs of the same size."""
    return device["mlp/compiled"].per_step(up_to_gate, "x")


def after_idle(device: Device) -> Html:
    """The time of `up` after three kinds of work, by the gap between them."""
    works = {"gate": "gate", "small result": "a product with a small result", "fill": "a fill of memory"}
    columns = [map(_after_gap, idle_times(device, work, "gap_us"), idle_times(device, work)) for work in works]
    rows: list[Sequence[Cell]] = [
        [f"{cycles:,}", *cells]
        for cycles, *cells in zip(device["mlp/after_idle"].data["cycles"], *columns, strict=True)
    ]
    head = ["cycles that a thread spins before the product up", *(f"up after {title}" for title in works.values())]
    return table("Time of the product up after an idle gap, in the profile of a CUDA graph", head, rows)


def _after_gap(gap: Timing, up: Timing) -> Html:
    return Html(f"{figure_cell(Figure.from_timing(up))}<small>gap {format_value(gap.median_us, 'us')}</small>")


FIGURES: Mapping[str, Measure] = {
    "gate_gemm": lambda device: device["mlp/eager"].per_step(lambda step: gemms(step)[0].name),
    "down_gemm": lambda device: device["mlp/eager"].per_step(lambda step: gemms(step)[2].name),
    "gate_us": lambda device: device["mlp/eager"].per_step(lambda step: gemms(step)[0].duration_us, "us"),
    "gelu_us": lambda device: pointwise_us(device["mlp/eager"], 0),
    "up_compiled_us": lambda device: device["mlp/compiled"].per_step(lambda step: gemms(step)[1].duration_us, "us"),
    "gap_compiled_us": lambda device: device["mlp/compiled"].per_step(gap_before_up, "us"),
    "longest_trace_gap_us": lambda device: Figure(
        gap_before_up(longest_gap_step(device)), "us", origin=EAGER_AND_LIGER
    ),
    "up_after_trace_gap": lambda device: Figure(up_to_gate(longest_gap_step(device)), "x", origin=EAGER_AND_LIGER),
    "longest_gap_us": lambda device: Figure.from_timing(idle_times(device, "gate", "gap_us")[-1]),
    "up_after_gate": lambda device: back_to_back(device, "gate"),
    "gate_compiled_us": lambda device: device["mlp/compiled"].per_step(lambda step: gemms(step)[0].duration_us, "us"),
    "up_after_small": lambda device: back_to_back(device, "small result"),
    "up_after_fill": lambda device: back_to_back(device, "fill"),
    "gelu_floor_us": gelu_floor,
    "gelu_half_floor_us": lambda device: replace(gelu_floor(device), value=gelu_floor(device).number / 2),
    "gelu_bytes": lambda device: device["mlp/eager"].per_step(lambda step: pointwise_bytes(step)[0], "bytes"),
    "copy_rate": lambda device: Figure(device["mlp/eager"].ceiling("copy").rate, "bytes/s", origin="a large copy"),
    "gelu_of_gate": lambda device: device["mlp/eager"].per_step(
        lambda step: 100 * pointwise(step)[0].duration_us / gemms(step)[0].duration_us, "%"
    ),
    "gemm_flops": lambda device: device["mlp/eager"].per_step(lambda step: 2 * prod(matmul_shapes(step)[0]), "flop"),
    "eager_bytes": lambda device: moved_bytes(device["mlp/eager"]),
}
