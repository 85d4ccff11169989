"""The page measuring: the book's steps below their roof, and what changes a time."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from kinetoscope.html import Cell, Html, table
from snippets.lab.finding import Device, Figure, Measure, NotTimed, at_least, at_most, claim, equals
from snippets.lab.finding.measure import largest, paired_ratio, ratio_of_pairs, smallest, unpaired_ratio
from snippets.lab.page import cpu_gpu_bars, figure_cell, race_table as race_table, roofline, show as show
from snippets.lab.recording.consistency import contradictions
from snippets.lab.recording.schema import Timing, Timings

STEPS = {
    "matmul + add, 64": "matmul_add/eager_64",
    "linear": "linear/eager",
    "matmul + add, 4096": "matmul_add/eager_4096",
    "MLP": "mlp/eager",
}
"""Steps of the book, one or two of each chapter."""
RACE = {"eager": "fused_mlp/eager", "compiled": "fused_mlp/compiled", "ours": "fused_mlp/fused"}
NUMBERS = {"random": "devices/matmul", "ones": "devices/matmul_ones"}
LINEAR, PLAIN = "devices/layout_linear", "devices/layout_plain"
PROFILED, SHARED = "devices/after_profiling", "devices/shared"
KINDS = {"interleaved": "interleaved", "cold": "cold", "from_python": "from Python", "enqueue": "enqueue"}
"""Field of `Timings` -> its name on the page."""


@claim("D1", at_least(1.1), scope="timing")
def copy_in_graph_over_stream(device: Device) -> Figure:
    """A large device-to-device copy takes at least 10 % longer as a node of a CUDA graph than as a call in a stream."""
    return paired_ratio(device["devices/copy_in_graph"], device["devices/copy"])


@claim("D2", at_least(1.05), scope="timing")
def random_over_ones(device: Device) -> Figure:
    """In steady timing, a large product of random numbers takes at least 5 % longer than an equally large product of
    ones."""
    return paired_ratio(device[NUMBERS["random"]], device[NUMBERS["ones"]], "steady")


def layout_ratios(device: Device) -> Mapping[str, Figure]:
    """Each product by its sizes: the interleaved time of `x @ w` over that of `x @ weight.t()`."""
    sizes = [point.parameters for point in device[LINEAR].points]
    return {
        " x ".join(str(each[name]) for name in "mkn"): paired_ratio(device[PLAIN].at(**each), device[LINEAR].at(**each))
        for each in sizes
    }


def layout_difference(device: Device) -> Figure:
    """The largest difference between the two layouts."""
    apart = [Figure(100 * abs(ratio.number - 1), "%", origin=ratio.origin) for ratio in layout_ratios(device).values()]
    return largest(*apart)


def layouts(device: Device) -> Html:
    """Bare products with the second factor stored in two ways."""
    rows: list[list[Cell]] = []
    for (name, ratio), point in zip(layout_ratios(device).items(), device[LINEAR].points, strict=True):
        times = (figure_cell(device[each].at(**point.parameters).time()) for each in (LINEAR, PLAIN))
        rows.append([name, *times, figure_cell(ratio)])
    head = ["M x K x N", "x @ weight.t()", "x @ w", "x @ w over x @ weight.t()"]
    return table("Matrix products with the weight in two layouts, in interleaved timing", head, rows)


@claim("D6", at_least(1.02), scope="timing")
def share_steady_over_interleaved(device: Device) -> Figure:
    """The ratio of the fused forward's time to the compiled forward's time is at least 2 % larger in steady timing than
    in interleaved timing."""
    steady, interleaved = (_ours_over_compiled(device, kind) for kind in ("steady", "interleaved"))
    ratios = [a / b for a, b in zip(*(_shares(device, kind) for kind in ("steady", "interleaved")), strict=True)]
    return replace(unpaired_ratio(steady, interleaved), spread=(min(ratios), max(ratios)))


def _shares(device: Device, kind: str) -> list[float]:
    """The fused forward's share of the compiled forward's time in each process: their clocks are not alike."""
    parts = (device[RACE[name]].timing(kind).parts for name in ("ours", "compiled"))
    return [statistics.median(ours) / statistics.median(compiled) for ours, compiled in zip(*parts, strict=True)]


def _ours_over_compiled(device: Device, kind: str) -> Figure:
    return paired_ratio(device[RACE["ours"]], device[RACE["compiled"]], kind)


@claim("D3", at_least(1.05), scope="timing")
def enqueue_beyond_drift(device: Device) -> Figure:
    """After the first profile of a process, enqueueing a small step takes at least 5 % longer than we expect from the
    drift before the profile."""
    return unpaired_ratio(enqueue_after_profiling(device), enqueue_drift(device))


def enqueue_after_profiling(device: Device) -> Figure:
    """Time to enqueue a small step after the first profiler session of its process, over the time before."""
    return _probed_ratio(device[PROFILED].data["after"], device[PROFILED].data["again"], "enqueue", PROFILED)


def enqueue_drift(device: Device) -> Figure:
    """The same without a session in between."""
    return _probed_ratio(device[PROFILED].data["again"], device[PROFILED].data["first"], "enqueue", PROFILED)


@claim("D4", at_least(2), scope="timing")
def from_python_when_shared(device: Device) -> Figure:
    """If a second process uses the GPU, a large product and a small step each take at least twice as long as alone,
    timed from Python."""
    return smallest(*(_when_shared(device, step, "from_python") for step in device[SHARED].data["alone"]))


@claim("D7", at_most(1.25), scope="timing")
def cold_when_shared(device: Device) -> Figure:
    """If a second process uses the GPU, a large product and a small step each take at most 25 % longer than alone in
    cold timing."""
    return largest(*(_when_shared(device, step, "cold") for step in device[SHARED].data["alone"]))


@claim("D8", at_most(1.05), scope="timing")
def range_when_shared(device: Device) -> Figure:
    """If a second process uses the GPU, the longest interleaved sample of a large product is at most 5 % longer than
    the shortest sample."""
    timing = Timing.from_samples(device[SHARED].data["shared"]["large product"]["interleaved"])
    whole, *parts = (max(samples_us) / min(samples_us) for samples_us in (timing.samples_us, *timing.parts))
    return Figure(whole, "x", (min(parts), whole), f"{SHARED}, the largest sample over the smallest")


def _when_shared(device: Device, step: str, kind: str) -> Figure:
    """The time of a step with a neighbor, over its time alone."""
    alone, shared = (device[SHARED].data[when][step] for when in ("alone", "shared"))
    return _probed_ratio(shared, alone, kind, f"{SHARED}, {step}")


@claim("D5", equals("alone: none; shared: large product, small step"), scope="this-gpu")
def contradicted(device: Device) -> Figure:
    """If a second process uses the GPU, the timings of a large product contradict each other, and so do the timings of
    a small step. Without a second process, neither the product's timings nor the step's timings contradict each
    other."""
    found = (f"{when}: {', '.join(_contradicted(steps)) or 'none'}" for when, steps in device[SHARED].data.items())
    return Figure("; ".join(found), origin=SHARED)


def _contradicted(steps: Mapping[str, Mapping[str, Sequence[float]]]) -> Mapping[str, str]:
    """Step -> why its times contradict each other, for steps with a contradiction."""
    reasons = {}
    for name, samples_us in steps.items():
        kinds = {kind: Timing.from_samples(each) for kind, each in samples_us.items()}
        reasons[name] = "; ".join(contradictions(Timings(**kinds, input_sets=0, rotated_bytes=0)))
    return {name: reason for name, reason in reasons.items() if reason}


def _shared_reason(device: Device, step: str) -> Figure:
    """The contradiction in a step with a neighbor process."""
    return Figure(_contradicted(device[SHARED].data["shared"]).get(step, "nothing"), origin=SHARED)


Samples = Mapping[str, Sequence[float]]


def _probed_ratio(upper: Samples, lower: Samples, kind: str, origin: str) -> Figure:
    return ratio_of_pairs(Timing.from_samples(upper[kind]), Timing.from_samples(lower[kind]), f"{origin}, {kind}")


def _probed_rows(columns: Sequence[Samples], prefix: str = "") -> list[list[Cell]]:
    """A row for each kind of time: its median in each column, and the last column over the one before."""
    rows: list[list[Cell]] = []
    for kind, heading in KINDS.items():
        times = (figure_cell(Figure.from_timing(Timing.from_samples(each[kind]))) for each in columns)
        rows.append([prefix + heading, *times, figure_cell(_probed_ratio(columns[-1], columns[-2], kind, ""))])
    return rows


def profiled(device: Device) -> Html:
    """The times of a small step before and after the first profiler session of its process."""
    rows = _probed_rows([device[PROFILED].data[when] for when in ("first", "again", "after")])
    head = [
        "kind of time",
        "before the profile",
        "before the profile, second time",
        "after the profile",
        "after the profile / second time before",
    ]
    return table("Times of a small step before and after a profile, in one process", head, rows)


def shared(device: Device) -> Html:
    """The times of two steps, with the GPU to themselves and with a neighbor."""
    data = device[SHARED].data
    rows = [
        row for step in data["alone"] for row in _probed_rows([data["alone"][step], data["shared"][step]], f"{step}, ")
    ]
    return table(
        "Two steps alone, and with a second process on the GPU",
        ["step and kind of time", "alone", "shared", "shared / alone"],
        rows,
    )


def apart(device: Device, step: str, kind: str) -> tuple[Figure, Figure]:
    """How far the processes of a step are apart, and the quartiles within the median process, in percent.

    Raises `NotTimed` for a timing of one process.
    """
    run = device[step].whole
    timing = run.timing(kind)
    if len(timing.rounds) < 2:
        raise NotTimed(f"{run.id} was timed in one process; make record CHAPTER={run.recording.chapter}")
    low, high = timing.spread_us
    quartiles = [statistics.quantiles(part, n=4, method="inclusive") for part in timing.parts]
    within = statistics.median(100 * (q3 - q1) / middle for q1, middle, q3 in quartiles)
    return Figure(100 * (high - low) / timing.median_us, "%", origin=run.origin), Figure(within, "%", origin=run.origin)


def processes(device: Device) -> Html:
    """The difference of three processes, and the spread of samples within a process, for steps of the book."""
    rows: list[list[Cell]] = []
    for name, step in STEPS.items():
        cells = (figure.text for kind in ("interleaved", "enqueue") for figure in apart(device, step, kind))
        rows.append([name, *cells])
    head = ["step", "GPU: spread of processes", "of quartiles", "enqueue: spread of processes", "of quartiles"]
    return table("Spread of the medians of three processes, and of the quartiles of one process", head, rows)


FIGURES: Mapping[str, Measure] = {
    **{f"ours_{kind}": partial(_ours_over_compiled, kind=kind) for kind in ("interleaved", "steady")},
    "enqueue_processes": lambda device: largest(*(apart(device, step, "enqueue")[0] for step in STEPS.values())),
    "large_from_python_when_shared": partial(_when_shared, step="large product", kind="from_python"),
    "large_interleaved_when_shared": partial(_when_shared, step="large product", kind="interleaved"),
    "small_interleaved_when_shared": partial(_when_shared, step="small step", kind="interleaved"),
    "large_shared_reason": partial(_shared_reason, step="large product"),
    "gpu_processes": lambda device: largest(*(apart(device, step, "interleaved")[0] for step in STEPS.values())),
}
steps_below_roof = partial(roofline, variants=STEPS)
gpu_and_cpu = partial(cpu_gpu_bars, variants={"a linear layer": "linear/eager", "an MLP": "mlp/eager"})
