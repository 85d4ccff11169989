"""What the chapter fused_mlp shows and claims of other shapes, errors, training and use."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape

from snippets.fused_mlp.findings.measures import one_of, own_claim, within
from snippets.lab.drawing.charts import kernel_bars, roofline
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure, format_value
from snippets.lab.finding.measure import of_steps, paired_samples_ratio, per_step, share_of_ceiling
from snippets.lab.finding.quantities import point
from snippets.lab.html import Cell, Html, details, table
from snippets.lab.page.tables import comparison_table, figure_cell, kernel_table
from snippets.lab.recording.device import shown_device
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import Point, RecordingError, Timing, Timings
from snippets.lab.trace.events import GpuActivity, Step, Trace

# KEEP recording

PEERS = {
    "eager": "eager",
    "compiled": "compiled",
    "max-autotune": "max_autotune",
    "reduce-overhead": "reduce_overhead",
    "Liger": "liger",
    "ours": "fused",
}
"""Heading of a column -> what its experiments end in."""
OTHERS = tuple(name for name in PEERS.values() if name != "fused")
DTYPES = ("bfloat16", "float16")
TRAINING = {
    "eager": "fused_mlp/training_eager",
    "compiled": "fused_mlp/training_compiled",
    "Liger": "fused_mlp/training_liger",
    "ours, saving": "fused_mlp/training_fused",
    "ours, recomputing": "fused_mlp/training_fused_recompute",
}
SERIES, TALL_AND_THIN = (8192, 768, 3072), (65536, 256, 1024)
ONE_TOKEN, FEW_TOKENS = (1, 4096, 14336), ((1, 4096, 14336), (16, 4096, 14336), (128, 4096, 14336))
NEAR = 1.02
"""Within 2 % of the fastest counts as won: that much one and the same kernel differs between two runs."""
LONG = 20
"""A first call that takes so many times as long as the second has made something."""
ROOFLINE_TOKENS = (1, 16, 128, 1024, 16384)

Shape = tuple[int, int, int]


def experiment_at(dtype: str, variant: str) -> str:
    """The sweep of a variant over the table's shapes."""
    return f"fused_mlp/{dtype}_{variant}"


def shapes_in(dtype: str, device: str) -> list[Shape]:
    """(tokens, dim, hidden) of each row of the table, in its order."""
    return [_shape(at) for at in load_recording(experiment_at(dtype, "fused"), device).points]


def _shape(at: Point) -> Shape:
    tokens, dim, hidden = (int(at.parameters[name]) for name in ("tokens", "dim", "hidden"))
    return tokens, dim, hidden


def shape_name(shape: Shape) -> str:
    """`8192x768x3072`: tokens, dim, hidden."""
    return "x".join(map(str, shape))


def place_of(shape: Shape) -> str:
    """A shape as the point of a sweep."""
    return ",".join(f"{name}={size}" for name, size in zip(("tokens", "dim", "hidden"), shape, strict=True))


def timed_at(experiment: str, device: str, shape: Shape | None = None) -> Timings:
    """The timings of an experiment, at a row of the table. Raises `RecordingError` when it was not timed."""
    found = point(load_recording(experiment, device), shape and place_of(shape)).timings
    if found is None:
        raise RecordingError(f"{experiment} was not timed; make record CHAPTER=fused_mlp")
    return found


def in_turns(upper: str, lower: str, kind: str, shape: Shape | None = None) -> Callable[[str], Figure]:
    """A measure: ratio of the paired timings of two experiments of one session; `kind` is a field of `Timings`."""

    def measure(device: str) -> Figure:
        if len({load_recording(name, device).session for name in (upper, lower)}) > 1:
            raise RecordingError(f"{upper} and {lower} were recorded apart; make record CHAPTER=fused_mlp FRESH=1")
        a, b = (getattr(timed_at(name, device, shape), kind) for name in (upper, lower))
        return paired_samples_ratio(a, b, f"{upper} over {lower}, {kind}, in turns")

    return measure


def table_ratio(dtype: str, upper: str, lower: str, kind: str, shape: Shape) -> Callable[[str], Figure]:
    """A measure: ratio of the paired timings of two variants in a row of the table."""
    return in_turns(experiment_at(dtype, upper), experiment_at(dtype, lower), kind, shape)


def least(*measures: Callable[[str], Figure]) -> Callable[[str], Figure]:
    """A measure: the smallest of several."""
    return lambda device: min((measure(device) for measure in measures), key=lambda shown: float(shown.value))


def most(*measures: Callable[[str], Figure]) -> Callable[[str], Figure]:
    """A measure: the largest of several."""
    return lambda device: max((measure(device) for measure in measures), key=lambda shown: float(shown.value))


# ---- the table of shapes


def medians_us(dtype: str, kind: str, shape: Shape, device: str) -> dict[str, float]:
    """Median of each variant in a row of the table."""
    return {
        name: getattr(timed_at(experiment_at(dtype, name), device, shape), kind).median_us for name in PEERS.values()
    }


def over_fastest_other(dtype: str, kind: str, shape: Shape, device: str) -> Figure:
    """How long ours takes in a row, as a multiple of the fastest other's time."""
    times = medians_us(dtype, kind, shape, device)
    other = min(OTHERS, key=times.__getitem__)
    return table_ratio(dtype, "fused", other, kind, shape)(device)


def lost(dtype: str, device: str) -> list[Shape]:
    """Rows in which another variant is faster by more than 2 %, warm."""
    rows = shapes_in(dtype, device)
    return [row for row in rows if float(over_fastest_other(dtype, "warm", row, device).value) > NEAR]


def rows_won(*dtypes: str) -> Callable[[str], Figure]:
    """A measure: in percent of the rows, where ours is the fastest or within 2 % of it."""

    def measure(device: str) -> Figure:
        rows = sum(len(shapes_in(dtype, device)) for dtype in dtypes)
        won = rows - sum(len(lost(dtype, device)) for dtype in dtypes)
        return Figure(100 * won / rows, "%", origin="warm medians, in turns", said=f"{won} of {rows}")

    return measure


def _rows_won_count(device: str) -> Figure:
    return Figure(len(shapes_in("bfloat16", device)) - len(lost("bfloat16", device)), origin="warm medians, in turns")


def _rows_lost(dtype: str) -> Callable[[str], Figure]:
    def measure(device: str) -> Figure:
        rows = ", ".join(map(shape_name, lost(dtype, device)))
        return Figure(rows or "none", origin=f"warm medians in {dtype}, in turns")

    return measure


def _beaten_by(device: str) -> Figure:
    """The fastest variants of the rows that ours loses."""
    found: set[str] = set()
    for dtype in DTYPES:
        for row in lost(dtype, device):
            times = medians_us(dtype, "warm", row, device)
            found |= {heading for heading, name in PEERS.items() if times[name] == min(times.values())}
    return Figure(", ".join(sorted(found)) or "nobody", origin="warm medians, in turns")


def _greatest_gain(device: str) -> Figure:
    """The row in which ours takes the smallest part of the fastest other's time."""
    rows = shapes_in("bfloat16", device)
    best = min(rows, key=lambda row: float(over_fastest_other("bfloat16", "warm", row, device).value))
    return Figure(shape_name(best), origin="warm medians, in turns")


def _tall_and_thin(device: str) -> Figure:
    return over_fastest_other("bfloat16", "warm", TALL_AND_THIN, device)


def shape_table() -> Html:
    """Warm medians of all variants in every row, ours over the fastest other, the fastest in bold; float16 folded."""
    first, second = (_times(dtype, "warm") for dtype in DTYPES)
    return Html(first + details("The same in float16", second))


def python_table() -> Html:
    """The same rows launched from Python, and for how long each of our calls keeps the CPU busy; float16 folded."""
    first, second = (_times(dtype, "launched") for dtype in DTYPES)
    return Html(first + details("The same in float16", second))


def _times(dtype: str, kind: str) -> Html:
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for shape in shapes_in(dtype, device):
        times = medians_us(dtype, kind, shape, device)
        best = min(times, key=times.__getitem__)
        ours, *others = (_marked(format_value(times[name], "us"), name == best) for name in ("fused", *OTHERS))
        ratio = over_fastest_other(dtype, kind, shape, device)
        said = replace(ratio, said=f"{ratio.value:.3f}x")  # 2 % decide who has won
        cells: list[Cell] = [ours, figure_cell(said), *others]
        if kind == "launched":
            enqueue = timed_at(experiment_at(dtype, "fused"), device, shape).enqueue
            cells.append(format_value(enqueue.median_us, "us"))
        rows.append([shape_name(shape), *cells])
    when = {"warm": "on the GPU, warm", "launched": "from Python, until the GPU is done"}[kind]
    others = [heading for heading, name in PEERS.items() if name in OTHERS]
    head = ["tokens x dim x hidden", "ours", "over the fastest other", *others, *(["ours, CPU"] * (kind == "launched"))]
    return table(f"One forward in {dtype}, {when}", head, rows)


def _marked(text: str, is_best: bool) -> Cell:
    return Html(f"<strong>{escape(text)}</strong>") if is_best else text


def shape_roofline() -> Html:
    """Our forward of one wide block, from one token to many, below this GPU's roofs."""
    device, sweep = shown_device(), experiment_at("bfloat16", "fused")
    shown = {
        f"{tokens:,} token{'s' * (tokens != 1)}": f"{sweep}[{place_of((tokens, 4096, 14336))}]"
        for tokens in ROOFLINE_TOKENS
    }
    return roofline(shown, device, "Our forward at 4096x14336, from one token to many")


def copy_share(shape: Shape, variant: str = "fused") -> Callable[[str], Figure]:
    """A measure: bytes that a forward has to move, over its warm time, in percent of a plain copy's rate."""

    def measure(device: str) -> Figure:
        found = load_recording(experiment_at("bfloat16", variant), device)
        return share_of_ceiling(found, point(found, place_of(shape)), "copy")

    return measure


def chosen_at(shape: Shape, part: str, device: str) -> str:
    """What tuning chose; the recording lists candidates by name, not by time."""
    times: dict[str, float] = load_recording("fused_mlp/chosen", device).data[shape_name(shape)][part]
    return min(times, key=times.__getitem__)


def _few_tokens_choice(device: str) -> Figure:
    chosen = {shape[0]: chosen_at(shape, "gate_up", device) for shape in FEW_TOKENS}
    kinds = {tokens: "ping-pong" if name.startswith("ping-pong") else name for tokens, name in chosen.items()}
    return Figure("; ".join(f"{tokens}: {kind}" for tokens, kind in kinds.items()), origin="fused_mlp/chosen")


def busy_cpu(kind: str = "warm", experiment: str = "fused_mlp/fused") -> Callable[[str], Figure]:
    """A measure: for how long a call keeps the CPU busy, over how long it keeps the GPU busy; medians."""

    def measure(device: str) -> Figure:
        times = timed_at(experiment, device)
        lower: Timing = getattr(times, kind)
        return Figure(times.enqueue.median_us / lower.median_us, "x", origin=f"{experiment}, enqueue over {kind}")

    return measure


# ---- new shapes


def pauses(variant: str, device: str) -> list[int]:
    """Numbers of tokens whose first call took at least `LONG` times as long as their second, in order."""
    data = load_recording("fused_mlp/new_shapes", device).data
    if variant not in data:
        raise RecordingError(f"fused_mlp/new_shapes has no {variant!r}; make record CHAPTER=fused_mlp")
    calls = zip(data["tokens"], data[variant]["first_call_ms"], data[variant]["second_call_ms"], strict=True)
    return [tokens for tokens, first, second in calls if first >= LONG * second]


def _pauses(variant: str) -> Callable[[str], Figure]:
    return lambda device: Figure(", ".join(map(str, pauses(variant, device))), origin="fused_mlp/new_shapes")


def _pause_count(device: str) -> Figure:
    return Figure(len(pauses("fused", device)), origin="fused_mlp/new_shapes")


def first_call(variant: str, place: int) -> Callable[[str], Figure]:
    """A measure: the first call at one of the numbers of tokens."""

    def measure(device: str) -> Figure:
        data = load_recording("fused_mlp/new_shapes", device).data
        return Figure(1e3 * data[variant]["first_call_ms"][place], "us", origin=f"fused_mlp/new_shapes, {variant}")

    return measure


def _first_calls(device: str) -> Figure:
    ours, static = (float(first_call(name, 0)(device).value) for name in ("fused", "static"))
    return Figure(ours / static, "x", origin="fused_mlp/new_shapes, the first call of each")


def first_calls() -> Html:
    """Time of the first call at five numbers of tokens in turn, and of the call after it."""
    data = load_recording("fused_mlp/new_shapes", shown_device()).data
    titles = {"static": "dynamic=False", "automatic": "default", "fused": "ours"}
    rows: list[Sequence[Cell]] = []
    for place, tokens in enumerate(data["tokens"]):
        times = [
            format_value(1e3 * data[name][calls][place], "us")
            for name in titles
            for calls in ("first_call_ms", "second_call_ms")
        ]
        rows.append([tokens, *times])
    head = ["tokens", *itertools.chain(*((f"{title}, first call", "second") for title in titles.values()))]
    return table("Five numbers of tokens in turn", head, rows)


# ---- errors


def error_at(experiment: str, device: str, shape: Shape | None = None) -> float:
    """Relative error against float64, at a row of the table."""
    return point(load_recording(experiment, device), shape and place_of(shape)).relative_error


def error_ratio(upper: str, lower: str, shape: Shape | None = None) -> Callable[[str], Figure]:
    """A measure: the relative error of one experiment over that of another, in a row of the table if `shape`."""

    def measure(device: str) -> Figure:
        value = error_at(upper, device, shape) / error_at(lower, device, shape)
        return Figure(value, "x", origin=f"relative errors, {upper} over {lower}")

    return measure


def _worst_error(device: str) -> Figure:
    """Ours over eager's, the highest of all rows and both dtypes, with the range."""
    ratios = [
        error_at(experiment_at(dtype, "fused"), device, row) / error_at(experiment_at(dtype, "eager"), device, row)
        for dtype in DTYPES
        for row in shapes_in(dtype, device)
    ]
    return Figure(max(ratios), "x", (min(ratios), max(ratios)), "relative errors, ours over eager's, every row")


def errors_table() -> Html:
    """Relative error of every variant against float64, in every row; float16 folded."""
    first, second = (_errors(dtype) for dtype in DTYPES)
    return Html(first + details("The same in float16", second))


def _errors(dtype: str) -> Html:
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for shape in shapes_in(dtype, device):
        found = [error_at(experiment_at(dtype, name), device, shape) for name in PEERS.values()]
        rows.append([shape_name(shape), *(_marked(f"{one:.2e}", one == min(found)) for one in found)])
    return table(f"Relative error against float64, {dtype}", ["tokens x dim x hidden", *PEERS], rows)


# ---- training


def training_table() -> Html:
    """Forward and backward of five variants: times, peak memory, error of the gradient of x."""
    quantities = {
        "GPU time, warm": "warm_us",
        "GPU time, cold cache": "cold_us",
        "from Python, until the GPU is done": "launched_us",
        "of it the CPU's": "enqueue_us",
        "peak memory of a step": "peak_memory_bytes",
        "relative error of x's gradient": "relative_error",
    }
    return comparison_table(TRAINING, quantities, shown_device(), "Forward and backward, five ways")


def training_kernels() -> Html:
    """GPU time of a training step by kernel."""
    shown = {name: TRAINING[name] for name in ("eager", "compiled", "ours, saving", "ours, recomputing")}
    return kernel_bars(shown, shown_device(), "Where the GPU's time goes in forward and backward")


def zero_fills(traced: Trace, step: Step) -> tuple[GpuActivity, ...]:
    """Kernels that only write zeros."""
    ops = ((kernel, traced.op_of(kernel)) for kernel in step.kernels)
    return tuple(kernel for kernel, op in ops if op is not None and op.name in ("aten::fill_", "aten::zero_"))


def _zero_fills(variant: str) -> Callable[[str], Figure]:
    def measure(device: str) -> Figure:
        traced = load_trace(f"fused_mlp/{variant}", device)
        return per_step(traced, lambda step: len(zero_fills(traced, step)), origin=f"fused_mlp/{variant}")

    return measure


def peak_ratio(upper: str, lower: str) -> Callable[[str], Figure]:
    """A measure: peak memory of one experiment over that of another."""

    def measure(device: str) -> Figure:
        a, b = (point(load_recording(name, device)).peak_memory_bytes for name in (upper, lower))
        return Figure(a / b, "x", origin=f"peak memory, {upper} over {lower}")

    return measure


def _by_memory(device: str) -> Figure:
    peaks: dict[int, list[str]] = {}
    for name, one in TRAINING.items():
        peaks.setdefault(point(load_recording(one, device)).peak_memory_bytes, []).append(name)
    order = "; ".join(" and ".join(peaks[peak]) for peak in sorted(peaks))
    return Figure(order, origin="peak memory of a step, the lowest first")


def _training_over(*others: str) -> Callable[[str], Figure]:
    return most(*(in_turns(TRAINING["ours, saving"], TRAINING[other], "warm") for other in others))


# ---- use


def packaged_kernels() -> Html:
    """The GPU work of one forward whose module came out of the package."""
    caption = "One forward of the plain module with the package's forward, on the GPU"
    return kernel_table("fused_mlp/kernelized", shown_device(), caption)


def _kernel_names(variant: str, device: str) -> Figure:
    traced = load_trace(f"fused_mlp/{variant}", device)
    return of_steps(traced, lambda step: ", ".join(kernel.name for kernel in step.kernels), f"fused_mlp/{variant}")


def _same_kernels(device: str) -> Figure:
    """Whether the first kernel and the number of them agree; who does the second product is each tuning's choice."""
    ours, packaged = (_kernel_names(name, device) for name in ("fused", "kernelized"))
    begin = [(names[0], len(names)) for names in (str(one.value).split(", ") for one in (ours, packaged))]
    same = begin[0] == begin[1]
    said = f"{packaged.value}, ours {ours.value}"
    return Figure(same, said=said, conclusive=ours.conclusive and packaged.conclusive)


# ---- exercises


def step_time(part: str, variant: str, device: str) -> Timing:
    """A timing of `steps`. Raises `RecordingError` where it has none of that name."""
    parts = load_recording("fused_mlp/steps", device).data
    try:
        q1, median, q3 = parts[part][variant]
    except KeyError as error:
        raise RecordingError(f"fused_mlp/steps has no {part}/{variant}; make record CHAPTER=fused_mlp") from error
    return Timing(median, q1, q3, ())


def step_ratio(part: str, upper: str, lower: str) -> Callable[[str], Figure]:
    """A measure: median of one variant of `steps` over that of another."""

    def measure(device: str) -> Figure:
        a, b = (step_time(part, name, device) for name in (upper, lower))
        spread = (a.q1_us / b.q3_us, a.q3_us / b.q1_us)
        return Figure(a.median_us / b.median_us, "x", spread, f"fused_mlp/steps, {upper} over {lower}")

    return measure


def _steps_listed(caption: str, part: str, variants: Mapping[str, str]) -> Html:
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for title, name in variants.items():
        one = step_time(part, name, device)
        rows.append([title, figure_cell(Figure(one.median_us, "us", (one.q1_us, one.q3_us)))])
    return table(caption, ["", "gate, up and activation, warm"], rows)


def handed_over() -> Html:
    """The gated kernel when a consumer hands over with the last block of its tile, and with the block before it."""
    variants = {"with the last block": "hand over at the end", "with the block before it": "hand over early"}
    return _steps_listed("When the other consumer may begin", "gate_up", variants)


def activations() -> Html:
    """The gated kernel with each activation."""
    variants = {"none": "none", "SiLU": "silu", "GELU by tanh": "gelu_tanh", "GELU by erf": "gelu"}
    return _steps_listed("The same kernel with another activation", "activation", variants)


_TWO_THIRDS = 200 / 3
_MODULE, _PACKAGED = "fused_mlp/fused", "fused_mlp/kernelized"
_SAVING, _RECOMPUTING = TRAINING["ours, saving"], TRAINING["ours, recomputing"]

CLAIMS: tuple[Claim, ...] = (
    own_claim(
        "F50",
        "In bfloat16 ours is the fastest or within 2 % of it in at least two thirds of the rows.",
        rows_won("bfloat16"),
        lambda shown: float(shown.value) >= _TWO_THIRDS,
    ),
    own_claim(
        "F51",
        "In float16, too.",
        rows_won("float16"),
        lambda shown: float(shown.value) >= _TWO_THIRDS,
    ),
    own_claim(
        "F52",
        "In both types together, too.",
        rows_won(*DTYPES),
        lambda shown: float(shown.value) >= _TWO_THIRDS,
    ),
    own_claim(
        "F53",
        "For 1 and 16 tokens tuning takes cuBLAS's products and our pointwise kernel, for 128 the ping-pong kernel.",
        _few_tokens_choice,
        one_of("1: two products; 16: two products; 128: ping-pong"),
    ),
    own_claim(
        "F54",
        "At one token our forward moves its weights at three quarters of a plain copy's rate or more.",
        copy_share(ONE_TOKEN),
        lambda shown: float(shown.value) >= 75,
    ),
    own_claim(
        "F56",
        "Where ours loses, in whichever type, max-autotune is the fastest.",
        _beaten_by,
        one_of("max-autotune", "nobody"),
    ),
    own_claim(
        "F57",
        "Of the rows in bfloat16 the tall and thin one is where ours gains the most.",
        _greatest_gain,
        one_of(shape_name(TALL_AND_THIN)),
    ),
    own_claim(
        "F55",
        "At the series' shape a call of ours keeps the CPU busy at least one and a half times as long as eager's.",
        in_turns(_MODULE, "fused_mlp/eager", "enqueue"),
        lambda shown: float(shown.value) >= 1.5,
    ),
    own_claim(
        "F60",
        "With dynamic=False each of the five numbers of tokens compiles.",
        _pauses("static"),
        one_of("8192, 8184, 6144, 4096, 3996"),
    ),
    own_claim(
        "F61",
        "By default torch.compile compiles twice, at the first number of tokens and at the second.",
        _pauses("automatic"),
        one_of("8192, 8184"),
    ),
    own_claim(
        "F62",
        "Ours pauses twice: at the first call, and at the first of another power of two.",
        _pauses("fused"),
        one_of("8192, 4096"),
    ),
    own_claim(
        "F63",
        "The very first call of ours takes longer than that of a compiled forward.",
        _first_calls,
        lambda shown: float(shown.value) > 1,
    ),
    own_claim(
        "F65",
        "In no row is our error above eager's.",
        _worst_error,
        lambda shown: float(shown.value) <= 1,
        scope="this-gpu",
    ),
    own_claim(
        "F66",
        "Our forward's error is that of one rounding to bf16 times the square root of two.",
        error_ratio(_MODULE, "fused_mlp/gate_up_bare"),
        within(1.39, 1.44),
        scope="this-gpu",
    ),
    own_claim(
        "F67",
        "With the activation in it, our first kernel's error is that of the bare product, within 1 %: tanh.approx does "
        "not show.",
        error_ratio("fused_mlp/gate_up_fused", "fused_mlp/gate_up_bare"),
        within(0.99, 1.01),
        scope="this-gpu",
    ),
    own_claim(
        "F69",
        "In float16 our error is an eighth of that in bf16, within 2 %: three digits more, none lost to tanh.approx.",
        error_ratio(experiment_at("bfloat16", "fused"), experiment_at("float16", "fused"), SERIES),
        within(7.84, 8.16),
        scope="this-gpu",
    ),
    own_claim(
        "F68",
        "The compiled forward's error lies between ours and eager's, nearer to eager's.",
        error_ratio("fused_mlp/compiled", "fused_mlp/eager"),
        within(0.82, 0.98),
        scope="this-gpu",
    ),
    own_claim(
        "F70",
        "Forward and backward take ours less GPU time than eager, compiled or Liger.",
        _training_over("eager", "compiled", "Liger"),
        lambda shown: float(shown.value) < 0.99,
    ),
    own_claim(
        "F71",
        "Against eager it is at least a tenth less.",
        _training_over("eager"),
        lambda shown: float(shown.value) <= 0.9,
    ),
    own_claim(
        "F72",
        "Recomputing instead of saving takes between 8 and 25 % more GPU time.",
        in_turns(_RECOMPUTING, _SAVING, "warm"),
        within(1.08, 1.25),
    ),
    own_claim(
        "F73",
        "Recomputing lowers the peak by at least a fifth.",
        peak_ratio(_RECOMPUTING, _SAVING),
        lambda shown: float(shown.value) <= 0.8,
        scope="this-gpu",
    ),
    own_claim(
        "F74",
        "Saving, ours has a lower peak than eager.",
        peak_ratio(_SAVING, TRAINING["eager"]),
        lambda shown: float(shown.value) < 1,
        scope="this-gpu",
    ),
    own_claim(
        "F75",
        "Launched from Python, a training step of ours takes at least a fifth longer than eager's.",
        in_turns(_SAVING, TRAINING["eager"], "launched"),
        lambda shown: float(shown.value) >= 1.2,
    ),
    own_claim(
        "F76",
        "The gradient of x is nearer to float64 with ours than with eager.",
        error_ratio(_SAVING, TRAINING["eager"]),
        lambda shown: float(shown.value) < 1,
        scope="this-gpu",
    ),
    own_claim(
        "F77",
        "Saving or recomputing, no kernel of a step only writes zeros.",
        lambda device: _both(_zero_fills("training_fused")(device), _zero_fills("training_fused_recompute")(device)),
        one_of("0 and 0"),
        scope="this-gpu",
    ),
    own_claim(
        "F80",
        "The plain module with the package's forward begins with our own module's kernel, and runs as many.",
        _same_kernels,
        one_of(True),
        scope="this-gpu",
    ),
    own_claim(
        "F81",
        "And it takes as much GPU time, within 3 %.",
        in_turns(_PACKAGED, _MODULE, "warm"),
        within(0.97, 1.03),
    ),
    own_claim(
        "F85",
        "Handing over with the last block instead of the one before it takes 1 to 9 % longer.",
        step_ratio("gate_up", "hand over at the end", "hand over early"),
        within(1.01, 1.09),
    ),
    own_claim(
        "F86",
        "GELU by tanh and SiLU take at most 8 % longer than no activation at all.",
        most(step_ratio("activation", "gelu_tanh", "none"), step_ratio("activation", "silu", "none")),
        within(0.97, 1.08),
    ),
    own_claim(
        "F87",
        "GELU by erf takes at least a tenth longer than GELU by tanh.",
        step_ratio("activation", "gelu", "gelu_tanh"),
        within(1.1, 1.35),
    ),
)


def _both(first: Figure, second: Figure) -> Figure:
    return Figure(
        f"{first.value} and {second.value}", origin=first.origin, conclusive=first.conclusive and second.conclusive
    )


def _saved_peak(device: str) -> Figure:
    saving, recomputing = (point(load_recording(name, device)).peak_memory_bytes for name in (_SAVING, _RECOMPUTING))
    return Figure(saving - recomputing, "bytes", origin="peak memory of a step, saving less recomputing")


FIGURES: Mapping[str, Callable[[str], Figure]] = {
    "rows_won": _rows_won_count,
    "rows_lost": _rows_lost("bfloat16"),
    "rows_lost_float16": _rows_lost("float16"),
    "tall_and_thin": _tall_and_thin,
    "one_token_copy_share": copy_share(ONE_TOKEN),
    "one_token_from_python": table_ratio("bfloat16", "fused", "eager", "launched", ONE_TOKEN),
    "cpu_over_gpu": busy_cpu(),
    "cpu_over_eager": in_turns(_MODULE, "fused_mlp/eager", "enqueue"),
    "pauses": _pause_count,
    "new_bucket_us": first_call("fused", 3),
    "very_first_us": first_call("fused", 0),
    "error_of_eager": error_ratio(_MODULE, "fused_mlp/eager"),
    "error_of_rounding": error_ratio(_MODULE, "fused_mlp/gate_up_bare"),
    "training_speedup": in_turns(TRAINING["eager"], _SAVING, "warm"),
    "training_by_memory": _by_memory,
    "recompute_ratio": in_turns(_RECOMPUTING, _SAVING, "warm"),
    "recompute_saves": _saved_peak,
    "training_from_python": in_turns(_SAVING, TRAINING["eager"], "launched"),
    "training_cpu_over_gpu": busy_cpu(experiment=_SAVING),
    "hand_over_ratio": step_ratio("gate_up", "hand over at the end", "hand over early"),
    "erf_ratio": step_ratio("activation", "gelu", "gelu_tanh"),
    "silu_ratio": step_ratio("activation", "silu", "none"),
    "tanh_ratio": step_ratio("activation", "gelu_tanh", "none"),
}
"""The chapter's own numbers of these questions, `#!fig fused_mlp.<name>`."""
