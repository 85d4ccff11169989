"""The gain of each idea and the choices of tuning; the whole forward beside a user's alternatives and QuACK's."""

from collections.abc import Mapping, Sequence

from snippets.fused_mlp.findings.traffic import BF16_BYTES, probed
from snippets.lab.finding import Device, Figure, Measure, NotRecorded, Run, format_value
from snippets.lab.finding.claim import at_least, at_most, between, claim, equals
from snippets.lab.finding.measure import listed, paired_ratio, point_difference, ratio_of_kinds, unpaired_ratio
from snippets.lab.finding.quantities import quantity
from snippets.lab.html import Cell, Html, table
from snippets.lab.page import Columns, figure_cell, kernel_table, timeline, variants_table
from snippets.lab.page import show as show
from snippets.lab.trace.events import Step
from snippets.lab.trace.queries import op_name

STEPS = {
    "gate_up": {
        "hand over early": "two consumers in turns (ours)",
        "four slots": "four slots instead of six",
        "groups of eight": "groups of eight tiles instead of one",
        "stacked": "no turns: the stacked kernel",
    },
    "forward": {
        "ours, launched early": "both products ours, the second launched early",
        "ours, one after the other": "both ours, one after the other",
        "cuBLAS down": "the second product by cuBLAS",
    },
}
"""Part of `steps` -> variant -> its name on the page; the baseline comes first."""
SERIES = "8192x768x3072"
"""The series' shape, as named in `chosen`."""


def probe_time(run: Run, part: str, variant: str) -> Figure:
    """Median and quartiles that a probe returned. Raises `NotRecorded` if the machine lacked a required package."""
    if "missing" in run.data:
        raise NotRecorded(f"{run.id} was recorded without a package that it compares with: {run.data['missing']}")
    low, median, high = probed(run, part, variant)
    return Figure(median, "us", (low, high), f"{run.id}, {part}: {variant}")


def probe_ratio(run: Run, part: str, upper: str, lower: str) -> Figure:
    """Ratio of two medians that a probe timed interleaved; the spread is the widest that the quartiles allow."""
    return unpaired_ratio(probe_time(run, part, upper), probe_time(run, part, lower))


def step_ratio(device: Device, part: str, upper: str, lower: str) -> Figure:
    """The time of one variant of `steps` over that of another."""
    return probe_ratio(device["fused_mlp/steps"], part, upper, lower)


def tuned(device: Device, part: str, shape: str = SERIES) -> dict[str, float]:
    """Candidate -> microseconds at a shape, the fastest first; `part` is "gate_up" or "forward"."""
    times: Mapping[str, float] = device["fused_mlp/chosen"].data[shape][part]
    return dict(sorted(times.items(), key=lambda item: item[1]))


@claim("F30", at_least(1.06), scope="timing")
def worth_of_turns(device: Device) -> Figure:
    """Taking turns makes the kernel at least 6 % faster than the stacked one."""
    return step_ratio(device, "gate_up", "stacked", "hand over early")


@claim("F32", between(0.97, 1.03), scope="timing")
def worth_of_slots_and_order(device: Device) -> Figure:
    """Four slots instead of six, and another order of tiles, change the time by less than 3 %."""
    ratios = [step_ratio(device, "gate_up", name, "hand over early") for name in ("four slots", "groups of eight")]
    return max(ratios, key=lambda figure: abs(figure.number - 1))


@claim("F35", at_least(1.5), scope="timing")
def worst_half(device: Device) -> Figure:
    """The slowest candidate of the first product takes at least one and a half times as long as the fastest."""
    fastest, *_, slowest = tuned(device, "gate_up").values()
    return Figure(slowest / fastest, "x", origin="fused_mlp/chosen, the slowest candidate over the fastest")


@claim("F36", between(0.95, 1.05), scope="timing")
def worth_of_early_launch(device: Device) -> Figure:
    """Launching the second product early changes the forward's time by less than 5 %."""
    return step_ratio(device, "forward", "ours, one after the other", "ours, launched early")


@claim("F37", between(0.94, 1.06), scope="timing")
def cublas_down_over_ours(device: Device) -> Figure:
    """In turns, too, the forward takes as long with cuBLAS's second product as with ours, to within 6 %."""
    return step_ratio(device, "forward", "cuBLAS down", "ours, launched early")


@claim("F38", between(0.9, 1.1), scope="timing")
def cublas_over_ours(device: Device) -> Figure:
    """For the second product, cuBLAS's kernel and the best of ours are within a tenth of each other."""
    times = tuned(device, "forward")
    ours = min(time_us for name, time_us in times.items() if name != "cuBLAS")
    return Figure(times["cuBLAS"] / ours, "x", origin="fused_mlp/chosen, medians")


def steps_table(device: Device) -> Html:
    """The same work, each variant without one idea, timed interleaved."""
    first_half = _changed(device, "gate_up", "From x to the hidden tensor, with one idea changed")
    return Html(first_half + _changed(device, "forward", "The whole forward: what follows the first product"))


def _changed(device: Device, part: str, caption: str) -> Html:
    rows: list[Sequence[Cell]] = []
    first = next(iter(STEPS[part]))
    for name, heading in STEPS[part].items():
        longer = 100 * (step_ratio(device, part, name, first).number - 1)
        time = figure_cell(probe_time(device["fused_mlp/steps"], part, name))
        rows.append([heading, time, None if name == first else f"{longer:+.1f} %".replace("-", "−")])
    return table(caption, ["", "median", "against the first row"], rows)


def tuned_table(device: Device) -> Html:
    """Every candidate at the series' shape, the fastest first."""
    rows: list[Sequence[Cell]] = []
    for part, heading in (("gate_up", "first half"), ("forward", "forward")):
        times = tuned(device, part)
        fastest = min(times.values())
        rows += [[heading, name, format_value(us, "us"), format_value(us / fastest, "x")] for name, us in times.items()]
    caption = "What tuning had to choose from at this shape; the forward's times contain the first half"
    return table(caption, ["", "candidate", "median", "of the fastest"], rows, text_columns=2)


FORWARDS = {
    "eager": "fused_mlp/eager",
    "compiled": "fused_mlp/compiled",
    "max-autotune": "fused_mlp/max_autotune",
    "reduce-overhead": "fused_mlp/reduce_overhead",
    "Liger": "fused_mlp/liger",
    "ours": "fused_mlp/fused",
    "ours, kernelized": "fused_mlp/kernelized",
}


def forward_ratio(device: Device, upper: str, lower: str) -> Figure:
    """The time of one forward over that of another, by their headings."""
    return paired_ratio(device[FORWARDS[upper]], device[FORWARDS[lower]])


@claim("F40", at_most(0.78), scope="timing")
def forward_over_compiled(device: Device) -> Figure:
    """Warm, our forward takes at most 0.78 of the compiled one's time."""
    return forward_ratio(device, "ours", "compiled")


@claim("F49", at_most(0.78), scope="timing")
def over_max_autotune(device: Device) -> Figure:
    """Against max-autotune it takes at most 0.78 as well."""
    return forward_ratio(device, "ours", "max-autotune")


@claim("F41", at_most(0.70), scope="timing")
def forward_over_eager(device: Device) -> Figure:
    """It takes at most 0.70 of eager's time."""
    return forward_ratio(device, "ours", "eager")


@claim("F42", at_most(0.75), scope="timing")
def forward_over_liger(device: Device) -> Figure:
    """It takes at most 0.75 of the time with Liger's layer."""
    return forward_ratio(device, "ours", "Liger")


def over_quack(device: Device, part: str) -> Figure:
    """Our time over QuACK's, from their interleaved pairs."""
    run = device["fused_mlp/quack"]
    probe_time(run, part, "quack")  # raises if QuACK was not installed
    low, middle, high = run.data[f"{part}_ratio"]
    return Figure(middle, "x", (low, high), f"{run.id}, {part}: fused over quack, interleaved")


@claim("F43", between(0.97, 1.03), scope="timing")
def forward_over_quack(device: Device) -> Figure:
    """It takes the time of QuACK's kernel followed by cuBLAS, to within 3 %."""
    return over_quack(device, "forward")


@claim("F44", at_most(1.0), scope="timing")
def half_over_quack(device: Device) -> Figure:
    """Its first half takes at most the time of QuACK's kernel.

    QuACK's kernel is a few percent faster. It shares loads between two multiprocessors and cuts tiles of 128x192, which
    Triton cannot: its tiles are powers of two. What remains to be won is in how long the tensor cores wait.
    """
    return over_quack(device, "gate_up")


@claim("F45", equals("eager 5, compiled 4, Liger 4, ours 2"), scope="this-gpu")
def kernel_counts(device: Device) -> Figure:
    """Eager runs five kernels, the compiled forward and Liger's four, ours two."""
    names = ("eager", "compiled", "Liger", "ours")
    return listed({name: quantity(device[FORWARDS[name]], "kernels_per_step") for name in names})


@claim("F46", equals(True), scope="this-gpu")
def held_memory(device: Device) -> Figure:
    """At its peak our forward holds the hidden tensor and its result, and nothing else."""
    point = device[FORWARDS["ours"]].point
    tokens, dim, hidden = (int(point.parameters[name]) for name in ("tokens", "dim", "hidden"))
    held = point.peak_memory_bytes
    display = format_value(held, "bytes")
    return Figure(held == BF16_BYTES * tokens * (hidden + dim), display=display, origin="peak memory of a call")


@claim("F47", at_least(1.05), scope="this-gpu")
def least_other_error(device: Device) -> Figure:
    """None of the other forwards is as near to float64 as ours."""
    errors = {name: device[experiment].point.relative_error for name, experiment in FORWARDS.items()}
    others = [error for name, error in errors.items() if not name.startswith("ours")]
    return Figure(min(others) / errors["ours"], "x", origin="the least error of the others over ours")


@claim("F48", at_least(0.9), scope="timing")
def cpu_over_gpu(device: Device) -> Figure:
    """From Python the CPU hardly keeps up with our forward: to submit it takes at least nine tenths of the time that
    the GPU takes to run it."""
    return ratio_of_kinds(device[FORWARDS["ours"]], "enqueue")


def second_product(device: Device) -> Figure:
    """The library of the second matmul's kernel in our forward: cuBLAS if an operator of PyTorch launched it."""
    return device[FORWARDS["ours"]].per_step(
        lambda step: "cuBLAS's" if op_name(step.kernels[-1]) == "aten::mm" else "ours"
    )


def saved_memory_bytes(device: Device) -> Figure:
    """Peak memory of eager's forward minus that of ours."""
    return point_difference(device[FORWARDS["eager"]], device[FORWARDS["ours"]], "peak_memory_bytes")


def three_forwards(device: Device) -> Html:
    """Eager, compiled and ours as pictures on one scale."""
    variants = {name: FORWARDS[name] for name in ("eager", "compiled", "ours")}
    return timeline(device, variants, "One forward: eager, compiled and ours")


def our_kernels(device: Device) -> Html:
    """The GPU work of our forward."""
    return kernel_table(device, FORWARDS["ours"], "Our forward on the GPU", work=kernels_work)


def kernels_work(step: Step) -> dict[int, tuple[int, int]]:
    """FLOPs and least bytes of our two kernels by their index in a step, from the shapes of the operator's inputs."""
    work: dict[int, tuple[int, int]] = {}
    for index, activity in enumerate(step.activities):
        if activity.op is None or not activity.op.name.endswith("::forward"):
            continue
        (tokens, dim), (hidden, _), *_ = activity.op.input_shapes
        matmuls = 1 if work else 2  # gate and up, then down
        moved = tokens * dim + matmuls * hidden * dim + tokens * hidden
        work[index] = 2 * matmuls * tokens * hidden * dim, BF16_BYTES * moved
    return work


def forwards(device: Device) -> Html:
    """Every variant of the whole forward: kernels, times, memory, error."""
    eager = device[FORWARDS["eager"]]
    columns: Columns = {
        "kernels": "kernels_per_step",
        "GPU time, warm": lambda run: figure_cell(run.time()),
        "eager's over it": lambda run: None if run == eager else figure_cell(paired_ratio(eager, run)),
        "from Python": "from_python_us",
        "CPU alone": "enqueue_us",
        "peak memory": "peak_memory_bytes",
        "error": lambda run: f"{run.point.relative_error:.1e}",
    }
    return variants_table(device, FORWARDS, "The whole forward, timed in turns", columns=columns)


def beside_quack(device: Device) -> Html:
    """Our forward beside QuACK's, interleaved, in a separate session."""
    run = device["fused_mlp/quack"]
    version = run.data.get("version", "")
    headings = {"quack": f"QuACK {version}", "fused": "ours", "bare": "cuBLAS, bare product", "eager": "eager"}
    rows: list[Sequence[Cell]] = []
    for part, half in (("gate_up", "first half"), ("forward", "forward")):
        for name in run.data.get(part, ("quack",)):
            time, over = probe_time(run, part, name), probe_ratio(run, part, name, "quack")
            rows.append([half, headings[name], figure_cell(time), f"{over.number:.3f}x"])
    caption = "Beside QuACK, whose forward is its kernel and cuBLAS: timed in turns, in a session of their own"
    return table(caption, ["", "variant", "median", "over QuACK"], rows, text_columns=2)


FIGURES: Mapping[str, Measure] = {
    "chosen_forward": lambda device: Figure(next(iter(tuned(device, "forward"))), origin="fused_mlp/chosen"),
    "forward_speedup": lambda device: forward_ratio(device, "eager", "ours"),
    "over_compiled": lambda device: forward_ratio(device, "compiled", "ours"),
    "over_liger": lambda device: forward_ratio(device, "Liger", "ours"),
}
