"""The cost and the gain of compiling, and how much of both remains if b is a single row."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from html import escape

from kinetoscope.html import Html
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.queries import gpu_names
from kinetoscope.trace.work import step_work
from snippets.lab.finding import (
    Device,
    Figure,
    NotRecorded,
    Source,
    TraceError,
    at_least,
    between,
    claim,
    equals,
    format_value,
)
from snippets.lab.finding.measure import paired_ratio, ratio_of_kinds, same, share_of_ceiling
from snippets.lab.page import kernel_bars, race_table, show as show, sweep_table, waiting
from snippets.lab.recording.ceilings import COPY
from snippets.matmul_add.findings.overhead import PRODUCT_4096, SWEEPS, across, is_unchanged

WAYS = {
    "Eager": "eager",
    "Compiled": "compiled",
    "addmm with a matrix b": "matrix_bias",
    "addmm with a row b": "row_bias",
}
"""Way to compute the step -> prefix of its recordings' names."""


def of_copy(device: Device, of: Callable[[GpuActivity], float], unit: str) -> Figure:
    """A quantity of the copy of b in the compiled step at 4096."""

    def measure(step: Step) -> float:
        if not step.memcpys:
            raise TraceError(f"{step.name} has no copy")
        return of(step.memcpys[0])

    return device["matmul_add/compiled_4096"].per_step(measure, unit)


def copy_rate(copy: GpuActivity) -> float:
    """Bytes read and written a second."""
    return 2e6 * (copy.moved_bytes or 0) / copy.duration_us


@claim("P42", equals(2 * 4096 * 4096), source=Source("Part 1", "32 MB"))
def copy_bytes_4096(device: Device) -> Figure:
    """At size 4096, the copy in the compiled step moves 32 MiB, which is all of b."""
    return of_copy(device, lambda copy: copy.moved_bytes or 0, "bytes")


@claim("P43", between(30, 36), scope="timing", source=Source("Part 1", "33 µs"))
def copy_4096(device: Device) -> Figure:
    """At size 4096, the copy of b in the compiled step takes about 33 µs.

    This GPU's memory is about twice as fast as the A100's memory, and the copy is about twice as fast, too. To see
    whether a copy is slow, compare its rate with the rate of a large copy on the same GPU."""
    return of_copy(device, lambda copy: copy.duration_us, "us")


@claim("P44", at_least(95), scope="timing", source=Source("Part 1", "2.03 of 2.04 TB/s, by our arithmetic"))
def copy_share(device: Device) -> Figure:
    """At size 4096, the copy of b runs at the full speed of the memory, at least 95 % of the rate of a large copy."""
    rate, ceiling = of_copy(device, copy_rate, "bytes/s"), device["matmul_add/compiled_4096"].ceiling(COPY).rate
    display = f"{rate.text}; the copy ceiling is {format_value(ceiling, 'bytes/s')}"
    return Figure(100 * rate.number / ceiling, "%", origin=rate.origin, display=display)


def compiled_to_eager(device: Device, size: int, kind: str) -> Figure:
    """The time of a compiled step / an eager step's."""
    return paired_ratio(device[f"matmul_add/compiled_{size}"], device[f"matmul_add/eager_{size}"], kind)


@claim("P45", between(1.8, 2.2), scope="timing", source=Source("Part 1", "0.2, 0.1, 0.1 ms against 0.1, 0.07, 0.07 ms"))
def compiled_enqueue_4096(device: Device) -> Figure:
    """A compiled step takes the CPU about twice the time of an eager step.

    Here a compiled step takes the CPU more than twice the time. Part 1 read three steps of a trace, on another CPU,
    with the profiler at work. We compare enqueue times at size 4096, in processes in which the profiler never ran."""
    return compiled_to_eager(device, 4096, "enqueue")


@claim("P46", equals(True), source=Source("Part 1", "torchinductor_<user>/fxgraph"))
def code_folder(device: Device) -> Figure:
    """Inductor keeps its graphs in the folder torchinductor_<user>/fxgraph, inside the folder for temporary files."""
    data = device["matmul_add/generated_code"].data
    if data.get("default_folder_is_torchinductor_user") and not data.get("fxgraph_exists"):
        raise NotRecorded(f"Inductor had not kept a graph yet on {device.name}; compile one, then record again")
    return Figure(bool(data.get("default_folder_is_torchinductor_user")))


@claim("P47", at_least(1), scope="this-gpu", source=Source("Part 1", "out = copy(b), then the product"))
def copies_in_code(device: Device) -> Figure:
    """The code that Inductor generates for matmul_add copies b.

    The generated code only allocates the output and calls aten::addmm. This operator copies b, whether compiled code or
    your own code calls it. So the compiler didn't decide to copy b."""
    run = device["matmul_add/generated_code"]
    lines = [str(line) for line in run.data["calls"]]
    called = [line.split("(")[0].split(" = ")[-1] for line in lines]
    return Figure(sum(".copy_" in line for line in lines), origin=run.origin, display=", ".join(called))


@claim("O-M14", between(0.9, 1.1), scope="timing")
def compiled_warm_4096(device: Device) -> Figure:
    """At size 4096, compiling matmul_add changes the GPU time of a step by at most 10 %."""
    return compiled_to_eager(device, 4096, "interleaved")


def least_bytes(step: Step) -> int:
    """The bytes that a step's GPU work must read and write. Raises `TraceError` if the trace lacks any."""
    works = step_work(step)
    known = [work.bytes for work in works if work is not None]
    if len(known) < len(works):
        raise TraceError(f"{step.name} lacks the work of some activities")
    return sum(known)


@claim("O-M22", is_unchanged)
def compiled_bytes_4096(device: Device) -> Figure:
    """At size 4096, a compiled step of matmul_add has to move as many bytes as an eager step."""
    return across(device, least_bytes, "eager_4096", "compiled_4096", unit="bytes")


@claim("O-M15", at_least(1.5), scope="timing")
def compiled_launched_64(device: Device) -> Figure:
    """At size 64, a loop of compiled steps takes at least 50 % longer than a loop of eager steps."""
    return compiled_to_eager(device, 64, "from_python")


@claim("O-M16", equals("1 and 1"))
def matrix_copied(device: Device) -> Figure:
    """With a matrix b, aten::addmm first copies b, at size 64 and at size 4096."""
    return across(device, lambda step: len(step.memcpys), "matrix_bias_64", "matrix_bias_4096", by=" and ")


@claim("O-M17", equals("1 kernel, 0 copies and 1 kernel, 0 copies"))
def row_in_one_kernel(device: Device) -> Figure:
    """With one row as b, aten::addmm runs one kernel and no copy, at size 64 and at size 4096."""
    return across(
        device,
        lambda step: f"{len(step.kernels)} kernel, {len(step.memcpys)} copies",
        *("row_bias_64", "row_bias_4096"),
        by=" and ",
    )


@claim("O-M19", at_least(1.03), scope="timing")
def matrix_to_row_4096(device: Device) -> Figure:
    """At size 4096, aten::addmm takes the GPU at least 3 % longer with a matrix b than with a row b."""
    return paired_ratio(device["matmul_add/matrix_bias_4096"], device["matmul_add/row_bias_4096"])


@claim("O-M20", at_least(90), scope="timing")
def row_bias_share_4096(device: Device) -> Figure:
    """At size 4096, aten::addmm with a row b reaches at least 90 % of the rate of the product alone in the same
    layout."""
    return share_of_ceiling(device["matmul_add/row_bias_4096"], PRODUCT_4096)


@claim("O-M21", equals(True))
def same_gpu_work(device: Device) -> Figure:
    """At size 4096, a direct call of aten::addmm with a matrix b puts the same activities on the GPU as the compiled
    step, name by name."""
    ways = device["matmul_add/matrix_bias_4096"], device["matmul_add/compiled_4096"]
    return same(*(run.per_step(gpu_names) for run in ways))


FIGURES = {
    "copy_share_4096": lambda device: replace(copy_share(device), display=""),
    "compiled_launched_4096": lambda device: compiled_to_eager(device, 4096, "from_python"),
    "compiled_enqueue_64": lambda device: compiled_to_eager(device, 64, "enqueue"),
    "row_bytes_4096": lambda device: across(device, least_bytes, "matrix_bias_4096", "row_bias_4096", unit="bytes"),
    "matrix_to_row_64": lambda device: paired_ratio(
        device["matmul_add/matrix_bias_64"], device["matmul_add/row_bias_64"]
    ),
}


def generated(device: Device) -> Html:
    """The lines of Inductor's code that launch GPU work."""
    lines = device["matmul_add/generated_code"].data["calls"]
    code = f"<pre><code>{escape(chr(10).join(map(str, lines)))}</code></pre>"
    return Html(f'<div class="language-text highlight">{code}</div>')


race = partial(race_table, variants={way: f"matmul_add/{name}_4096" for way, name in list(WAYS.items())[:2]})
opening = partial(
    waiting, sizes={f"{n}x{n}": {way: f"matmul_add/{way}_{n}" for way in ("eager", "compiled")} for n in (64, 4096)}
)
by_kernel = partial(kernel_bars, variants={way: f"matmul_add/{name}_4096" for way, name in WAYS.items()})
graph_gain = partial(
    sweep_table,
    variants={name.lower(): sweep for name, sweep in SWEEPS.items()},
    caption="A loop of steps, and the replay of the same steps from a CUDA graph",
    cells={
        "loop / replay": lambda run: ratio_of_kinds(run, "from_python").text,
        "loop": lambda run: run.time("from_python").text,
        "replay": lambda run: run.time().text,
    },
    label=lambda at: str(at["size"]),
)
