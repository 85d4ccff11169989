"""Longer sequences and wider heads: times, memory and rates as they grow."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from kinetoscope.html import Cell, Html, bold, details, table
from snippets.attention.findings.variants import EIGHT, ONE_KERNEL, VARIANTS
from snippets.lab.experiment import find
from snippets.lab.finding import Device, Figure, Measure, at_least, at_most, between, claim, equals, format_value
from snippets.lab.finding.measure import ratio_of_pairs, unpaired_ratio
from snippets.lab.page import RooflinePoint, roofline_of, show as show
from snippets.lab.recording.ceilings import LARGE_MATMUL
from snippets.lab.recording.schema import Timing

SWEPT = {heading: experiment.partition("/")[2] for heading, experiment in EIGHT.items()}
"""Name on the page -> name in the sweeps over lengths."""
HEAD_DIMS = (64, 128)
BF16_BYTES = 2
FLASH = VARIANTS["flash"]
MATMUL_FLOPS = 2 * 8192**3
OUT_OF_MEMORY = re.compile(r"out of memory for ([\d.]+) ([KMGT])iB more at (\d+) tokens")
BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Lengths:
    """The sweep over lengths with heads of one size. Raises `LookupError` for an unmeasured value."""

    device: Device
    head_dim: int

    @property
    def id(self) -> str:
        """The experiment."""
        return f"attention/lengths_{self.head_dim}"

    @property
    def data(self) -> Mapping[int, Mapping[str, Any]]:
        """The result of `lengths` for each number of tokens, in ascending order."""
        data = self.device[self.id].data
        return {int(tokens): data[tokens] for tokens in sorted(data, key=int)}

    @property
    def longest(self) -> int:
        """The largest number of tokens."""
        return max(self.data)

    def variant(self, heading: str, tokens: int) -> Mapping[str, Any]:
        """The result of one variant at a length."""
        return dict(self.data[tokens]["variants"][SWEPT[heading]])

    def refused(self, heading: str, tokens: int) -> tuple[int, int] | None:
        """The bytes requested when a variant ran out of memory, and the tokens; None if it did not."""
        match = OUT_OF_MEMORY.fullmatch(self.variant(heading, tokens).get("stopped", ""))
        return (round(float(match[1]) * BINARY[match[2]]), int(match[3])) if match else None

    def _given(self, heading: str, tokens: int, name: str) -> Any:
        variant = self.variant(heading, tokens)
        if name not in variant:
            why = variant.get("stopped", "it was not measured")
            raise LookupError(f"{heading} has no {name} at {tokens} tokens: {why}")
        return variant[name]

    def error(self, heading: str, tokens: int) -> float:
        """Relative error of a variant at a length."""
        return float(self._given(heading, tokens, "error"))

    def is_timed(self, heading: str, tokens: int) -> bool:
        """Whether a variant has a time at a length."""
        return "stopped" not in self.variant(heading, tokens)

    def timing(self, heading: str, tokens: int) -> Timing:
        """The interleaved time of a variant at a length."""
        return Timing.from_samples(self._given(heading, tokens, "samples_us"))

    def over(self, upper: str, lower: str, tokens: int) -> Figure:
        """The time of a variant / the time of another variant in the same turns."""
        origin = f"{self.id}, {upper} over {lower}, {tokens} tokens"
        return ratio_of_pairs(self.timing(upper, tokens), self.timing(lower, tokens), origin)

    def time(self, heading: str, tokens: int) -> Figure:
        """The same as a figure."""
        return Figure.from_timing(self.timing(heading, tokens), f"{self.id}, {heading}, {tokens} tokens")

    def growth(self, heading: str, tokens: int) -> Figure:
        """The time of a variant at a length / its time at half the length."""
        return unpaired_ratio(self.time(heading, tokens), self.time(heading, tokens // 2))

    def point(self, heading: str, tokens: int) -> RooflinePoint:
        """A variant at a length, with the minimum work of causal attention: half the scores."""
        step = find(FLASH)[0].at(head_dim=self.head_dim, tokens=tokens)
        assert step.work is not None
        work = step.work(**step.parameters)
        return RooflinePoint(work.flops, work.bytes, self.timing(heading, tokens))

    def rate(self, heading: str) -> Figure:
        """FLOP/s of a variant at the longest length."""
        point = self.point(heading, self.longest)
        return Figure(point.rate, "flop/s", point.spread, f"{self.id}, {heading}")

    def product_share(self, heading: str) -> Figure:
        """FLOP/s at the longest length, in percent of a large matmul's in the same turns."""
        step, timing = self.point(heading, self.longest), self.timing(heading, self.longest)
        matmul = Timing.from_samples(self.data[self.longest]["matmul"]["samples_us"])
        ratio = ratio_of_pairs(matmul, timing, f"{self.id}, {heading}, of {LARGE_MATMUL}")
        share, low, high = (100 * step.flops / MATMUL_FLOPS * each for each in (ratio.number, *ratio.bounds))
        return Figure(share, "%", (low, high), ratio.origin)


def wide_ratio(device: Device, heading: str) -> Figure:
    """Time with 128 numbers to a head over that with 64, at 1024 tokens."""
    narrow, wide = (Lengths(device, head_dim).time(heading, 1024) for head_dim in HEAD_DIMS)
    return unpaired_ratio(wide, narrow)


def sweeps(device: Device) -> tuple[Lengths, ...]:
    """The sweep of each head dimension."""
    return tuple(Lengths(device, head_dim) for head_dim in HEAD_DIMS)


@claim("O-A35", at_least(1), scope="timing")
def cudnn_lead(device: Device) -> Figure:
    """From 256 tokens up, with heads of 64 and of 128 numbers, every other variant of attention takes longer than
    cuDNN."""
    leads = [
        lengths.over(heading, "cuDNN", tokens)
        for lengths in sweeps(device)
        for tokens in lengths.data
        for heading in SWEPT
        if tokens >= 256 and heading != "cuDNN" and lengths.is_timed(heading, tokens)
    ]
    return min(leads, key=lambda lead: lead.bounds[0])


@claim("O-A36", equals(16), scope="this-gpu")
def picked_everywhere(device: Device) -> Figure:
    """At every measured length, with heads of 64 and of 128 numbers, PyTorch picks cuDNN's attention."""
    picks = [measured["auto"] for lengths in sweeps(device) for measured in lengths.data.values()]
    count = picks.count("cudnn")
    return Figure(count, origin="attention/lengths_*, picked", display=f"{count} of {len(picks)}")


@claim("O-A37", between(3.6, 4.4), scope="timing")
def fused_growth(device: Device) -> Figure:
    """For 16,384 tokens, every fused variant of attention takes about four times as long as for 8,192 tokens."""
    factors = [lengths.growth(heading, lengths.longest) for lengths in sweeps(device) for heading in ONE_KERNEL]
    return max(factors, key=lambda factor: max(abs(bound - 4) for bound in factor.bounds))


@claim("O-A38", at_most(1.8), scope="timing")
def first_growth(device: Device) -> Figure:
    """For 256 tokens, cuDNN's attention takes at most 1.8 times as long as for 128 tokens."""
    return Lengths(device, 64).growth("cuDNN", 256)


@claim("O-A39", at_least(1.25), scope="timing")
def wide_rate_over_narrow(device: Device) -> Figure:
    """At 16,384 tokens, cuDNN's attention reaches at least 1.25 times as many FLOP/s with heads of 128 numbers as with
    heads of 64 numbers."""
    narrow, wide = (lengths.rate("cuDNN") for lengths in sweeps(device))
    return unpaired_ratio(wide, narrow)


@claim("O-A40", equals("64: naive, in place, math; 128: naive, in place, math"), scope="this-gpu")
def out_of_memory(device: Device) -> Figure:
    """Up to 16,384 tokens, with heads of 64 and of 128 numbers, only the variants naive, in place and math run out of
    memory."""
    parts = [f"{lengths.head_dim}: {', '.join(_stopped(lengths)) or 'none'}" for lengths in sweeps(device)]
    return Figure("; ".join(parts), origin="attention/lengths_*, at the longest length")


def _stopped(lengths: Lengths) -> list[str]:
    return [heading for heading in SWEPT if lengths.refused(heading, lengths.longest)]


@claim("O-A41", at_least(5), scope="timing")
def compiled_jump(device: Device) -> Figure:
    """For 2,048 tokens, compiled attention takes at least five times as long as for 1,024 tokens."""
    return Lengths(device, 64).growth("compiled", 2048)


@claim("O-A42", at_most(1.04), scope="timing")
def wide_naive(device: Device) -> Figure:
    """With heads of 128 numbers instead of 64, naive attention takes at most 4 % longer."""
    return wide_ratio(device, "naive")


def _refused_math(device: Device, part: int, unit: str = "") -> Figure:
    lengths = Lengths(device, 64)
    refused, variant = lengths.refused("math", lengths.longest), lengths.variant("math", lengths.longest)
    if refused is None:
        raise LookupError(f"math is not out of memory here: {variant.get('stopped', 'it ran')}")
    return Figure(refused[part], unit, origin=f"{lengths.id}, math: {variant['stopped']}")


def scores_bytes(device: Device) -> Figure:
    """One matrix of scores of all heads at the longest length, in bf16."""
    sizes = device["attention/naive"].point.parameters
    elements = int(sizes["batch"]) * int(sizes["heads"]) * Lengths(device, 64).longest ** 2
    return Figure(BF16_BYTES * elements, "bytes", origin="batch x heads x tokens x tokens, in bf16")


def lengths_table(device: Device) -> Html:
    """The time of every variant at each length, the fastest in bold; the larger head dimension folded."""
    narrow, wide = map(_times, sweeps(device))
    return Html(narrow + details("With heads of 128 numbers", wide))


def _times(lengths: Lengths) -> Html:
    rows = []
    for tokens in lengths.data:
        times = {name: lengths.timing(name, tokens).median_us for name in SWEPT if lengths.is_timed(name, tokens)}
        cells = (
            bold(format_value(times[name], "us"), times[name] == min(times.values()))
            if name in times
            else Html(f'<span title="{escape(lengths.variant(name, tokens)["stopped"])}">stopped</span>')
            for name in SWEPT
        )
        rows.append([f"{tokens:,}", *cells])
    caption = f"Interleaved GPU time of one forward, with heads of {lengths.head_dim} numbers"
    return table(caption, ["tokens", *SWEPT], rows)


def longest_table(device: Device) -> Html:
    """The result of every variant at the longest length; the larger head dimension folded."""
    narrow, wide = map(_at_longest, sweeps(device))
    return Html(narrow + details("With heads of 128 numbers", wide))


def _at_longest(lengths: Lengths) -> Html:
    rows: list[Sequence[Cell]] = []
    for heading in SWEPT:
        variant, refused = lengths.variant(heading, lengths.longest), lengths.refused(heading, lengths.longest)
        if lengths.is_timed(heading, lengths.longest):
            ratios = (lengths.product_share(heading).text, lengths.growth(heading, lengths.longest).text)
            rows.append([heading, *ratios, format_value(int(variant["peak_bytes"]), "bytes")])
        else:
            rows.append([heading, None, None, _asked(*refused) if refused else variant["stopped"]])
    caption = f"Sequences of {lengths.longest:,} tokens, with heads of {lengths.head_dim} numbers"
    return table(
        caption, ["", "share of a large product's FLOP/s", "time / time for half the tokens", "peak memory"], rows
    )


def _asked(more_bytes: int, tokens: int) -> str:
    return f"out of memory: asked for {format_value(more_bytes, 'bytes')} more at {tokens:,} tokens"


def climbing(device: Device) -> Html:
    """The shortest and the longest timed sequence below this GPU's roofs: written out, and cuDNN's kernel."""
    lengths = Lengths(device, 64)
    points: dict[str, RooflinePoint] = {}
    for heading in ("cuDNN", "naive"):
        timed = [tokens for tokens in lengths.data if lengths.is_timed(heading, tokens)]
        points |= {f"{heading}, {each:,} tokens": lengths.point(heading, each) for each in (min(timed), max(timed))}
    caption = "Shortest and longest sequences, with heads of 64 numbers: FLOP/s, by FLOP per byte that must move"
    return roofline_of(device, points, caption, ceilings=device[FLASH].recording.ceilings)


def wide_heads(device: Device) -> Html:
    """1024 tokens with 64 and with 128 numbers to a head: times and their ratio."""
    rows = []
    for heading in SWEPT:
        narrow, wide = (lengths.time(heading, 1024).text for lengths in sweeps(device))
        rows.append([heading, narrow, wide, wide_ratio(device, heading).text])
    head = ["", "heads of 64 numbers", "heads of 128 numbers", "128 numbers / 64 numbers"]
    return table("Interleaved GPU time of one forward of 1024 tokens", head, rows)


FIGURES: Mapping[str, Measure] = {
    "stopped_ways": lambda device: Figure(
        len(_stopped(Lengths(device, 64))), origin="attention/lengths_64, at the longest length"
    ),
    "length_math_asked": lambda device: _refused_math(device, 0, "bytes"),
    "length_math_tokens": lambda device: _refused_math(device, 1),
    "length_growth": lambda device: Lengths(device, 64).growth("flash", 16384),
    "two_scores": lambda device: Figure(2 * int(scores_bytes(device).value), "bytes", origin="twice its scores_bytes"),
    "memory": lambda device: Figure(device[FLASH].environment.memory_bytes, "bytes", origin=device.name),
    "length_share_64": lambda device: Lengths(device, 64).product_share("cuDNN"),
    "length_share_128": lambda device: Lengths(device, 128).product_share("cuDNN"),
    "length_wide_cudnn": lambda device: wide_ratio(device, "cuDNN"),
}
