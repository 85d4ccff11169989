"""Where time goes as work grows: three regimes, and the sizes at which one gives way to the next."""

from collections.abc import Mapping, Sequence
from functools import partial

from kinetoscope.html import Cell, Html, table
from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import kernel_time_us
from snippets.lab.finding import (
    Device,
    Figure,
    NotTimed,
    Run,
    at_least,
    at_most,
    between,
    claim,
    derived,
    format_value,
    paired_ratio,
    ratio_of_kinds,
    share_of_ceiling,
    unpaired_ratio,
)
from snippets.lab.page import figure_cell, regimes, show as show, timeline, waiting
from snippets.lab.recording.ceilings import COPY, LARGE_MATMUL
from snippets.regimes.findings.crossovers import (
    LAUNCHES,
    cpu_median,
    cpu_varies,
    growth_from,
    idle,
    launches,
    least_us,
    medians,
    memory_until,
    overhead_until,
    points,
    regime_of,
)

STACK, COMPILED = "regimes/growth_stack", "regimes/growth_stack_compiled"
GEGLU, GELU = "regimes/growth_geglu", "regimes/growth_gelu"
MODELS = {"stack": STACK, "GeGLU": GEGLU}
TRACED: Mapping[str, tuple[str, str]] = {
    "overhead-bound": ("regimes/overhead_bound", STACK),
    "memory-bound": ("regimes/memory_bound", GELU),
    "compute-bound": ("regimes/compute_bound", STACK),
}
"""Regime -> the experiment with its trace, and the sweep with its times."""
SIZES = {
    f"{tokens:,} token{'s' * (tokens > 1)}": {"eager": f"{STACK}[tokens={tokens}]"} for tokens in (1, 64, 1024, 4096)
}
"""Points that the opening draws."""


def _at(device: Device, sweep: str, tokens: int) -> Run:
    return device[f"{sweep}[tokens={tokens}]"]


# Claims


@claim("RG1", at_least(2), scope="timing")
def waits_for_cpu(device: Device) -> Figure:
    """On this host, one block of the stack with 64 tokens is overhead-bound: the CPU takes at least twice as long to
    launch the block as the GPU takes to run it."""
    return ratio_of_kinds(_at(device, STACK, 64), "enqueue")


@claim("RG2", at_most(1.5), scope="timing")
def free_tokens(device: Device) -> Figure:
    """From Python, the stack takes at most 1.5 times as long with 1024 tokens as with one token, although 1024 tokens
    need 1024 times the arithmetic."""
    many, single = (_at(device, STACK, tokens).time("from_python") for tokens in (1024, 1))
    return unpaired_ratio(many, single)


@claim("RG3", at_least(1), scope="timing")
def memory_is_hidden(device: Device) -> Figure:
    """From Python, the stack is never memory-bound on this host: wherever its bytes take longer than its FLOPs, it
    waits for the CPU."""
    return unpaired_ratio(overhead_until(device[STACK]), memory_until(device[STACK]))


@claim("RG4", between(1, 4), scope="timing")
def where_growth_begins(device: Device) -> Figure:
    """The GPU's time for the stack begins to grow at one to four times the number of tokens at which the stack's FLOPs
    begin to take longer than its bytes."""
    run = device[STACK]
    return derived(growth_from(run).number / memory_until(run).number, growth_from(run), unit="x")


@claim("RG5", at_least(75), scope="timing")
def near_the_matmul(device: Device) -> Figure:
    """With 16,384 tokens, the stack is compute-bound: it reaches at least three quarters of a large matmul's rate."""
    return share_of_ceiling(_at(device, STACK, 16384), LARGE_MATMUL)


@claim("RG6", at_least(200 / 3), scope="timing")
def near_the_copy(device: Device) -> Figure:
    """With 32,768 tokens, GELU is memory-bound: it moves its bytes at no less than two thirds of a large copy's
    rate."""
    return share_of_ceiling(_at(device, GELU, 32768), COPY)


@claim("RG7", at_most(1), scope="timing")
def geglu_waits_longer(device: Device) -> Figure:
    """The stack stays overhead-bound up to fewer tokens than the GeGLU block, which launches more kernels."""
    return unpaired_ratio(*(overhead_until(device[sweep]) for sweep in (STACK, GEGLU)))


@claim("RG8", at_most(2))
def launches_stay(device: Device) -> Figure:
    """From one token to 65,536 tokens, the number of launches in a step of the stack varies by two at most."""
    counts = set(launches(device, STACK).values())
    display = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else f"{max(counts)} at every size"
    return Figure(max(counts) - min(counts), origin=device[LAUNCHES].origin, display=display)


@claim("RG9", at_most(0.1), scope="timing")
def cost_of_a_token(device: Device) -> Figure:
    """From Python, a token takes at most a tenth as long in a batch of 16,384 tokens as in a batch of 64 tokens."""
    many, few = (_at(device, STACK, tokens).time("from_python") for tokens in (16384, 64))
    ratio = unpaired_ratio(many, few)
    low, high = ratio.bounds
    share = 64 / 16384
    return Figure(share * ratio.number, "x", (share * low, share * high), ratio.origin)


@claim("RG10", at_most(1.1), scope="timing")
def compiled_on_the_gpu(device: Device) -> Figure:
    """On the GPU, compiling makes the stack at most a tenth faster at any size, because compiling saves no kernel."""
    return derived(max(gains_on_gpu(device).values()), _at(device, STACK, 1).time(), unit="x")


@claim("RG11", at_least(4 / 3), scope="timing")
def compiled_from_python(device: Device) -> Figure:
    """From Python and with 64 tokens, the compiled stack takes at least a third longer than the eager stack."""
    return paired_ratio(_at(device, COMPILED, 64), _at(device, STACK, 64), "from_python")


def gains_on_gpu(device: Device) -> dict[int, float]:
    """Tokens -> eager's time on the GPU / the compiled stack's."""
    eager, compiled = (medians(device[sweep]) for sweep in (STACK, COMPILED))
    return {
        tokens: first / second for tokens, first, second in zip(points(device[STACK]), eager, compiled, strict=True)
    }


def gelu_share(device: Device) -> Figure:
    """The percentage of the GPU's time that GELU takes in the step at 16,384 tokens."""

    def share(step: Step) -> float:
        gelu = [activity for activity in step.kernels if activity.op is not None and activity.op.name == "aten::gelu"]
        return 100 * kernel_time_us(gelu) / kernel_time_us(step.activities)

    return device[TRACED["compute-bound"][0]].per_step(share, "%")


def gelu_flops(device: Device) -> Figure:
    """The percentage of FLOPs that is GELU's in the stack, at any number of tokens."""
    stack, gelu = (_at(device, sweep, 16384).point for sweep in (STACK, GELU))
    return Figure(100 * gelu.flops / stack.flops, "%", origin=f"{device[STACK].origin}, computed from shapes")


def _ceiling(device: Device, limit: str, unit: str) -> Figure:
    """The rate of a large copy or of a large matmul, measured with the stack."""
    return Figure(device[STACK].ceiling(limit).rate, unit, origin=f"{device[STACK].origin}, {limit}")


def flops_per_byte(device: Device) -> Figure:
    """The FLOPs that the GPU can compute, at a large matmul's rate, while it moves a byte at a large copy's rate."""
    flops, moved = (_ceiling(device, limit, "") for limit in (LARGE_MATMUL, COPY))
    return derived(round(flops.number / moved.number), flops, moved)


def _least(device: Device, limit: str) -> Figure:
    """The least time of one block at 64 tokens: of its bytes at a copy's rate, or of its FLOPs at a large matmul's."""
    at = _at(device, STACK, 64)
    return Figure(least_us(at, limit), "us", origin=f"{at.origin}, {limit}")


def products_share(device: Device) -> Figure:
    """The rate of the stack at 16,384 tokens, had GELU taken no time, in percent of a large matmul's."""
    reached, gelu = near_the_matmul(device), gelu_share(device)
    return derived(100 * reached.number / (100 - gelu.number), reached, gelu, unit="%")


@claim("RG12", at_least(10), scope="timing")
def gelu_in_compute_bound(device: Device) -> Figure:
    """In a step of one block with 16,384 tokens, which is compute-bound, GELU takes at least a tenth of the GPU's
    time."""
    return gelu_share(device)


# Pieces of the page


def opening(device: Device) -> Html:
    """The stack from one token to many: the times of the CPU, of the GPU and of the wait."""
    return waiting(device, SIZES)


def growth_chart(device: Device) -> Html:
    """Time over tokens of both models, with the regimes marked."""
    return _chart(device, MODELS, "Time of one step by its number of tokens")


def compiled_chart(device: Device) -> Html:
    """Time over tokens of the stack, eager and compiled."""
    return _chart(device, {"eager": STACK, "compiled": COMPILED}, "Time of one block, eager and compiled")


def _chart(device: Device, sweeps: Mapping[str, str], caption: str) -> Html:
    return regimes(
        device,
        sweeps,
        caption,
        size=lambda at: int(at["tokens"]),
        unit="tokens",
        turn=lambda run: memory_until(run).number,
    )


def growth_table(device: Device, sweep: str) -> Html:
    """A sweep at powers of four: where its time goes, its rates, and its regime."""
    counts = launches(device, sweep)
    rows: list[list[Cell]] = [
        [
            f"{tokens:,}",
            counts.get(tokens),
            *(at.time(kind).text for kind in ("enqueue", "interleaved", "from_python")),
            idle(at).text,
            *(format_value(work / at.timing().median_us * 1e6, unit) for work, unit in _work(at)),
            regime_of(at),
        ]
        for tokens, at in points(device[sweep]).items()
        if tokens.bit_length() % 2
    ]
    head = ["tokens", "launches", "CPU", "GPU", "from Python", "GPU idle", "FLOP/s", "bytes/s", "regime"]
    heading = next(name for name, experiment in MODELS.items() if experiment == sweep)
    return table(f"The {heading}: one step, from one token to many", head, rows)


def _work(at: Run) -> Sequence[tuple[int, str]]:
    return (at.point.flops, "flop/s"), (at.point.bytes, "bytes/s")


def crossovers(device: Device) -> Html:
    """The sizes at which one regime gives way to the next, for both models."""
    measures = {
        "the step waits for the CPU up to": overhead_until,
        "the bytes take longer than the FLOPs up to": memory_until,
        "the GPU's time grows from": growth_from,
    }
    rows: list[list[Cell]] = [
        [heading, *(figure_cell(measure(device[sweep])) for sweep in MODELS.values())]
        for heading, measure in measures.items()
    ]
    head = ["", *(f"{name}, tokens" for name in MODELS)]
    return table("The numbers of tokens at which the limit of a step changes", head, rows)


def three_regimes(device: Device) -> Html:
    """The three traced steps against each limit."""
    rows: list[list[Cell]] = []
    for regime, (experiment, sweep) in TRACED.items():
        at = _at(device, sweep, int(device[experiment].point.parameters["tokens"]))
        times = (at.time(kind).text for kind in ("enqueue", "interleaved"))
        rows.append([regime, *times, idle(at).text, *(_reached(at, limit) for limit in (COPY, LARGE_MATMUL))])
    head = ["step", "CPU", "GPU", "GPU idle", "bytes/s, share of a copy's rate", "FLOP/s, share of a matmul's rate"]
    return table("The three steps, and their rates of bytes and of FLOPs", head, rows)


def _reached(at: Run, limit: str) -> Cell:
    """The share of a ceiling that the step reaches, by pairs of timings, as claims compute it; of a short step none."""
    try:
        return share_of_ceiling(at, limit).text
    except NotTimed:
        return None


overhead_bound_step, memory_bound_step, compute_bound_step = (
    partial(timeline, variants={regime: experiment}) for regime, (experiment, _) in TRACED.items()
)

FIGURES = {
    "stack_overhead_until": lambda device: overhead_until(device[STACK]),
    "compiled_overhead_until": lambda device: overhead_until(device[COMPILED]),
    "geglu_overhead_until": lambda device: overhead_until(device[GEGLU]),
    "stack_memory_until": lambda device: memory_until(device[STACK]),
    "stack_growth_from": lambda device: growth_from(device[STACK]),
    "cpu_median": lambda device: cpu_median(device[STACK]),
    "cpu_varies": lambda device: cpu_varies(device[STACK]),
    "bytes_rate": lambda device: _ceiling(device, COPY, "bytes/s"),
    "flops_rate": lambda device: _ceiling(device, LARGE_MATMUL, "flop/s"),
    "bytes_take_us": lambda device: _least(device, COPY),
    "flops_take_us": lambda device: _least(device, LARGE_MATMUL),
}
