"""Few tokens: a forward that reads the weights, and the time in which a copy would read them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kinetoscope.html import Cell, Html, bold, details, table
from snippets.fused_mlp.findings.forward import FORWARDS
from snippets.fused_mlp.findings.probes import probe_timing, probed
from snippets.fused_mlp.findings.shapes import WIDE
from snippets.fused_mlp.findings.traffic import BF16_BYTES
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    NotTimed,
    at_most,
    claim,
    format_value,
)
from snippets.lab.finding.measure import largest, ratio_of_pairs, unpaired_ratio
from snippets.lab.finding.other_device import H100, H200, measured_on
from snippets.lab.page import (
    Computation,
    figure_cell,
    prediction as prediction,
    show as show,
    timing_bars,
)
from snippets.lab.recording.ceilings import COPY
from snippets.lab.recording.schema import Timing

VARIANTS = {"our forward": "fused", "max-autotune": "max_autotune", "compiled": "compiled", "eager": "eager"}
"""Heading -> key of the recording."""
STEADY_TOKENS = ("1", "16")
DRAWN_TOKENS = ("1", "16", "64")
WEIGHTS_BYTES = 3 * WIDE[0] * WIDE[1] * BF16_BYTES


def few(device: Device, tokens: str, variant: str) -> Timing:
    """The interleaved times of a variant at so many tokens."""
    return probe_timing(device["fused_mlp/few_tokens"], "interleaved", tokens, variant)


def steady(device: Device, tokens: str, variant: str) -> Figure:
    """The steady time of a variant at so many tokens."""
    timing = probe_timing(device["fused_mlp/few_tokens"], "steady", tokens, variant, "samples_us")
    return Figure.from_timing(timing, f"fused_mlp/few_tokens, steady, {tokens}: {variant}")


def joules(device: Device, tokens: str, variant: str) -> Figure | None:
    """The energy of one steady forward; None if power was not read, or too seldom."""
    sensors = probed(device["fused_mlp/few_tokens"], "steady", tokens, variant)
    if not sensors.get("watts"):
        return None
    time = steady(device, tokens, variant)
    return Figure(sensors["watts"] * time.number / 1e6, "J", origin=time.origin)


def energy_over_compiled(device: Device, tokens: str) -> Figure:
    """The energy of the package's steady forward / the compiled one's. Raises `NotTimed` without power readings."""
    ours, compiled = (joules(device, tokens, name) for name in ("fused", "compiled"))
    if ours is None or compiled is None:
        raise NotTimed(f"fused_mlp/few_tokens has no energy of {tokens} tokens")
    return unpaired_ratio(ours, compiled)


def over_max_autotune(device: Device, tokens: str) -> Figure:
    """Our forward's time over max-autotune's, interleaved, in pairs."""
    origin = f"fused_mlp/few_tokens, {tokens}: our forward over max-autotune, interleaved, in pairs"
    return ratio_of_pairs(few(device, tokens, "fused"), few(device, tokens, "max_autotune"), origin)


def floor_us(device: Device) -> Figure:
    """The time of the weights' bytes at the rate of the large copy in the turns of the series' forwards."""
    rate = device[FORWARDS["our forward"]].ceiling(COPY).rate
    return Figure(1e6 * WEIGHTS_BYTES / rate, "us", origin=f"the weights' bytes at the rate of {COPY}")


READING = Computation(
    "How long must reading the weights take?",
    "fused_mlp.few_floor_us",
    "{fused_mlp.few_weights_bytes} at {fused_mlp.few_copy_rate}, for any number of tokens.",
    "Divide the bytes of the three weights by a copy's rate.",
)


@claim("F103", at_most(0.97), scope="timing")
def few_interleaved(device: Device) -> Figure:
    """In interleaved timing for one token and for 16 tokens, our forward takes at most 0.97 of the time of
    max-autotune's forward."""
    return largest(*(over_max_autotune(device, tokens) for tokens in STEADY_TOKENS))


@claim("F104", at_most(0.97), scope="timing")
def few_steady(device: Device) -> Figure:
    """In steady timing for one token and for 16 tokens, our forward takes at most 0.97 of the time of max-autotune's
    forward."""
    variants = ("fused", "max_autotune")
    return largest(*(unpaired_ratio(*(steady(device, tokens, name) for name in variants)) for tokens in STEADY_TOKENS))


@claim("F105", at_most(1.1), scope="timing")
def sixteen_over_one(device: Device) -> Figure:
    """In interleaved timing, our forward takes at most 10 % longer for 16 tokens than for one token."""
    return unpaired_ratio(*(Figure.from_timing(few(device, tokens, "fused")) for tokens in ("16", "1")))


def one_token_over_floor(device: Device, variant: str) -> Figure:
    """The interleaved time of a variant for one token / the time of the weights' bytes at the copy's rate."""
    return unpaired_ratio(Figure.from_timing(few(device, "1", variant)), floor_us(device))


def few_bars(device: Device) -> Html:
    """Three of the numbers of tokens as bars."""
    groups = {
        name: {f"{tokens} token{'s' * (tokens != '1')}": few(device, tokens, key) for tokens in DRAWN_TOKENS}
        for name, key in VARIANTS.items()
    }
    return timing_bars(device, groups, "One forward for few tokens, interleaved")


def few_table(device: Device) -> Html:
    """Every number of tokens, the package / max-autotune; and the steady times with clock, power and energy."""
    rows: list[Sequence[Cell]] = []
    for tokens in sorted(probed(device["fused_mlp/few_tokens"], "interleaved"), key=int):
        medians = {key: few(device, tokens, key).median_us for key in VARIANTS.values()}
        best = min(medians.values())
        times = (bold(format_value(us, "us"), us == best) for us in medians.values())
        ratio = over_max_autotune(device, tokens)
        precise = replace(ratio, display=f"{ratio.number:.3f}x")
        rows.append([tokens, figure_cell(precise), *times])
    reading = f"At a large copy's rate, reading the weights takes {floor_us(device).text}"
    caption = f"One forward with weights of {WIDE[0]}x{WIDE[1]}, interleaved. {reading}"
    every = table(caption, ["tokens", "our forward / max-autotune", *VARIANTS], rows)
    return Html(every + details("Steady times, with clock and energy", _steady_table(device)))


def _steady_table(device: Device) -> Html:
    run = device["fused_mlp/few_tokens"]
    rows: list[Sequence[Cell]] = []
    for tokens in STEADY_TOKENS:
        for name, key in VARIANTS.items():
            time, sensors = steady(device, tokens, key), probed(run, "steady", tokens, key)
            energy = joules(device, tokens, key)
            clock = format_value(float(sensors["clock_mhz"]), "MHz") if sensors.get("clock_mhz") else None
            rows.append([f"{tokens}, {name}", figure_cell(time), clock, energy.text if energy else None])
    return table(
        "One forward for few tokens, steady", ["tokens, variant", "GPU, steady", "clock", "energy per forward"], rows
    )


FIGURES: Mapping[str, Measure] = {
    "few_weights_bytes": lambda device: Figure(WEIGHTS_BYTES, "bytes", origin="the shapes: three weights in bf16"),
    "few_floor_us": floor_us,
    "few_copy_rate": lambda device: Figure(device[FORWARDS["our forward"]].ceiling(COPY).rate, "bytes/s", origin=COPY),
    "sixteen_us": lambda device: Figure.from_timing(few(device, "16", "fused")),
    "one_token_over_floor": lambda device: one_token_over_floor(device, "fused"),
    "h200_max_autotune_over_floor": measured_on(H200, lambda device: one_token_over_floor(device, "max_autotune")),
    "h100_max_autotune_over_floor": measured_on(H100, lambda device: one_token_over_floor(device, "max_autotune")),
    "one_token_energy": lambda device: energy_over_compiled(device, "1"),
    "sixteen_tokens_energy": lambda device: energy_over_compiled(device, "16"),
}
