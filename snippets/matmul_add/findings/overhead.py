"""What limits a step at which size: kernels, the profiler's totals, and what memory and arithmetic allow."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from snippets.lab.finding import (
    Device,
    Figure,
    Run,
    Source,
    TraceError,
    at_least,
    at_most,
    between,
    claim,
    derived,
    equals,
    format_value,
    ratio_of_kinds,
    share_of_ceiling,
)
from snippets.lab.html import Cell, Html, table
from snippets.lab.page import regimes, roofline, timeline
from snippets.lab.page import show as show
from snippets.lab.recording.ceilings import LARGE_MATMUL
from snippets.lab.trace.averages import key_averages
from snippets.matmul_add.findings.reading import SWEEPS, across, closing_wait, names, self_cpu_us, self_gpu_us


def busy_share(run: Run) -> Figure:
    """Percent of the profiler's CPU total that its GPU total is."""
    gpu, cpu = self_gpu_us(run.trace), self_cpu_us(run.trace)
    share = 100 * gpu / cpu
    display = f"{format_value(share, '%')}: {format_value(gpu, 'us')} of {format_value(cpu, 'us')}"
    return Figure(share, "%", origin=run.origin, display=display)


def enqueue_to_work(run: Run) -> Figure:
    """How many times the GPU's time of a step fits into the CPU's."""
    display = f"{run.time('enqueue').text} to enqueue, {run.time().text} to run"
    return replace(ratio_of_kinds(run, "enqueue"), display=display)


def size_of(run: Run, pick: Callable[..., int], applies: Callable[[Run], bool]) -> Figure:
    """The smallest or largest size of a sweep to which something applies; 0 for none."""
    sizes = [int(at.parameters["size"]) for at in run.points if applies(run.at(**at.parameters))]
    size = pick(sizes, default=0)
    return Figure(size, origin=run.origin, display=str(size) if size else "none of the sizes")


def crossing(run: Run) -> Figure:
    """The smallest size of a sweep that is not overhead-bound: the CPU takes no longer to enqueue it than the GPU."""
    return size_of(run, min, lambda at: ratio_of_kinds(at, "enqueue").number <= 1)


def worth_a_graph(run: Run) -> Figure:
    """The largest size of a sweep at which a loop takes at least half as long again as the replay."""
    return size_of(run, max, lambda at: ratio_of_kinds(at, "from_python").number >= 1.5)


@claim("P1", equals("2 and 2"), source=Source("Part 1", "2 kernels"))
def two_kernels(device: Device) -> Figure:
    """An eager step runs two kernels, at 64 as at 4096."""
    return across(device, lambda step: len(step.kernels), "eager_64", "eager_4096", by=" and ")


@claim("P2", equals("aten::mm, aten::add"), source=Source("Part 1", "GEMM, then add"))
def matmul_then_add(device: Device) -> Figure:
    """The first kernel is the matrix product, the second the elementwise add."""
    return device["matmul_add/eager_64"].per_step(lambda step: names(kernel.op for kernel in step.kernels))


@claim("P3", at_most(5), scope="timing", source=Source("Part 1", "1.0 %: 23.104 µs of 2.314 ms"))
def idle_at_64(device: Device) -> Figure:
    """At 64 the GPU's time is a few hundredths of the CPU's."""
    return busy_share(device["matmul_add/eager_64_cold"])


@claim("P4", between(60, 110), scope="timing", source=Source("Part 1", "92 %: 4.495 ms of 4.908 ms"))
def totals_meet(device: Device) -> Figure:
    """At 4096 the two totals nearly meet."""
    return busy_share(device["matmul_add/eager_4096_cold"])


@claim("O-M1", at_least(3), scope="timing")
def overhead_bound(device: Device) -> Figure:
    """At 64 a step is overhead-bound: enqueuing it takes the CPU at least three times as long as running it takes the
    GPU."""
    return enqueue_to_work(device["matmul_add/eager_64"])


@claim("O-M2", at_most(0.5), scope="timing")
def cpu_done_early(device: Device) -> Figure:
    """At 4096 it is not: the CPU is done in less than half the time that the GPU needs."""
    return enqueue_to_work(device["matmul_add/eager_4096"])


@claim("O-M3", between(70, 120), scope="timing")
def compute_bound(device: Device) -> Figure:
    """At 4096 it is compute-bound: product and add together keep at least seven tenths of the rate of a bare product of
    that shape."""
    return share_of_ceiling(device["matmul_add/eager_4096"], "matmul 4096x4096x4096")


@claim("O-M4", at_most(2), scope="timing")
def growth(device: Device) -> Figure:
    """From 64 to 512 the work grows 512-fold, and the GPU's time less than doubles."""
    small, large = (device[f"matmul_add/sweep_eager[size={size}]"].time() for size in (64, 512))
    return derived(large.number / small.number, small, unit="x", display=f"{small.text} at 64, {large.text} at 512")


@claim("O-M5", equals(True), scope="timing")
def crossings(device: Device) -> Figure:
    """A compiled step stays overhead-bound up to the same size as an eager one, or beyond."""
    eager, compiled = sizes = [crossing(device[name]) for name in SWEEPS.values()]
    is_later = eager.number > 0 and (compiled.number == 0 or eager.number <= compiled.number)
    return derived(is_later, *sizes, display=f"eager from {eager.value}, compiled from {compiled.value}")


@claim("O-M6", between(10, 100), scope="timing")
def wait_share(device: Device) -> Figure:
    """At 4096 at least a tenth of the profiler's CPU total is no work, but waiting for the GPU."""
    run = device["matmul_add/eager_4096_cold"]
    return Figure(100 * closing_wait(run.trace).duration_us / self_cpu_us(run.trace), "%", origin=run.origin)


def busiest_op(device: Device) -> Figure:
    """The operator with the most CPU time of its own."""
    run = device["matmul_add/eager_64_cold"]
    rows = [row for row in key_averages(run.trace) if row.kind == "operator"]
    if not rows:
        raise TraceError("no operator in the trace")
    return Figure(max(rows, key=lambda row: row.self_cpu_us).name, origin=run.origin)


FIGURES = {
    "gpu_share_64": lambda device: replace(idle_at_64(device), display=""),
    "gpu_share_4096": lambda device: replace(totals_meet(device), display=""),
    "wait_share_4096": wait_share,
    "growth_512": lambda device: replace(growth(device), display=""),
    "product_share_4096": compute_bound,
    "large_product_share_4096": lambda device: share_of_ceiling(device["matmul_add/eager_4096"], LARGE_MATMUL),
    "crossing_eager": lambda device: crossing(device["matmul_add/sweep_eager"]),
    "crossing_compiled": lambda device: crossing(device["matmul_add/sweep_compiled"]),
    "graph_until_eager": lambda device: worth_a_graph(device["matmul_add/sweep_eager"]),
    "graph_until_compiled": lambda device: worth_a_graph(device["matmul_add/sweep_compiled"]),
    "busiest_op": busiest_op,
}


def one_step(device: Device) -> Html:
    """The small step as a picture."""
    caption = "One step at 64: what the CPU did, and what the GPU ran"
    return timeline(device, {"Eager, 64x64": "matmul_add/eager_64"}, caption)


def two_sizes(device: Device) -> Html:
    """The step at both sizes as a picture."""
    sizes = {f"{size}x{size}": f"matmul_add/eager_{size}_cold" for size in (64, 4096)}
    return timeline(device, sizes, "A step at 64 and at 4096, on one scale")


def totals(device: Device) -> Html:
    """The profiler's two totals at both sizes, and what of the CPU's is waiting."""
    rows: list[Sequence[Cell]] = []
    for size in (64, 4096):
        trace = device[f"matmul_add/eager_{size}_cold"].trace
        cpu, gpu = self_cpu_us(trace), self_gpu_us(trace)
        times = (format_value(us, "us") for us in (cpu, closing_wait(trace).duration_us, gpu))
        rows.append([f"{size}x{size}", *times, format_value(100 * gpu / cpu, "%")])
    head = ["size", "Self CPU total", "of it cudaDeviceSynchronize", "Self CUDA total", "CUDA / CPU"]
    return table("Totals over three profiled steps of a cold process", head, rows)


def by_size(device: Device) -> Html:
    """The sweep: the GPU's time, the CPU's and that of a loop."""
    caption = "How long a step takes, by the size of its matrices"
    return regimes(device, SWEEPS, caption, size=lambda at: float(at["size"]), unit="rows and columns")


def roof(device: Device) -> Html:
    """The eager step at every size of the sweep below the roofs of memory and of arithmetic."""
    sizes = [at.parameters["size"] for at in device["matmul_add/sweep_eager"].points]
    steps = {f"{size}x{size}": f"matmul_add/sweep_eager[size={size}]" for size in sizes}
    return roofline(device, steps, "How near an eager step comes to what memory and arithmetic allow")
