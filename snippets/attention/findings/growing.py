"""What the chapter attention shows and claims of length: times, memory and rates as the sequence grows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from snippets.attention.findings.measures import (
    BF16_BYTES,
    ONE_KERNEL,
    WAYS,
    Measure,
    at_least,
    at_most,
    one_of,
    own_claim,
    within,
)
from snippets.attention.findings.speed import EIGHT
from snippets.lab.drawing.charts import roofline_chart
from snippets.lab.drawing.curves import RooflinePoint
from snippets.lab.experiment import find
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure, format_value
from snippets.lab.html import Cell, Html, details, table
from snippets.lab.recording.device import shown_device
from snippets.lab.recording.loading import load_recording
from snippets.lab.recording.schema import Ceiling, RecordingError, Timing

SWEPT = {heading: experiment.partition("/")[2] for heading, experiment in EIGHT.items()}
"""As the page calls it -> name in the sweeps over lengths."""
HEAD_DIMS = (64, 128)
LARGE_PRODUCT = "matmul 8192x8192x8192"
STOPPED = re.compile(r"out of memory for ([\d.]+) ([KMGT])iB more at (\d+) tokens")
BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Stopped(LookupError):
    """A way that gave nothing at a length, as where it ran out of memory."""


def at_lengths(head_dim: int, device: str) -> dict[int, Mapping[str, Any]]:
    """What `lengths` returned for each number of tokens, the shortest first."""
    data = load_recording(f"attention/lengths_{head_dim}", device).data
    return {tokens: data[str(tokens)] for tokens in sorted(map(int, data))}


def of_way(head_dim: int, tokens: int, heading: str, device: str) -> Mapping[str, Any]:
    """What one way gave at a length. Raises `LookupError` for a length or a way that was not measured."""
    found: Mapping[str, Any] = at_lengths(head_dim, device)[tokens]["variants"][SWEPT[heading]]
    return found


def length_timing(head_dim: int, tokens: int, heading: str, device: str) -> Timing:
    """The warm time of a way at a length. Raises `Stopped` where it has none."""
    found = of_way(head_dim, tokens, heading, device)
    if "time_us" not in found:
        raise Stopped(f"{heading} has no time at {tokens} tokens: {found.get('stopped', 'it was not measured')}")
    q1, median, q3 = found["time_us"]
    return Timing(median, q1, q3, ())


def longest(device: str) -> int:
    """The largest number of tokens."""
    return max(at_lengths(HEAD_DIMS[0], device))


def growth(head_dim: int, tokens: int, heading: str) -> Measure:
    """A measure: the time of a way at a length over that at half of it."""

    def measure(device: str) -> Figure:
        a, b = (length_timing(head_dim, count, heading, device) for count in (tokens, tokens // 2))
        spread = (a.q1_us / b.q3_us, a.q3_us / b.q1_us)
        origin = f"attention/lengths_{head_dim}, {heading}, {tokens} tokens over {tokens // 2}"
        return Figure(a.median_us / b.median_us, "x", spread, origin)

    return measure


def _fused_growth(device: str) -> Figure:
    """Growth of the last doubling: the largest of the fused ways at both head dimensions, with the range."""
    last = longest(device)
    found = [float(growth(dim, last, one)(device).value) for dim in HEAD_DIMS for one in ONE_KERNEL]
    return Figure(max(found), "x", (min(found), max(found)), "the last doubling, fused ways, both head dimensions")


def _fastest_but(heading: str, head_dim: int, tokens: int, device: str) -> float:
    """The fastest other way's median over this one's."""
    variants = at_lengths(head_dim, device)[tokens]["variants"]
    others = [one["time_us"][1] for name, one in variants.items() if name != SWEPT[heading] and "time_us" in one]
    return float(min(others) / length_timing(head_dim, tokens, heading, device).median_us)


def _cudnn_lead(device: str) -> Figure:
    """The smallest lead of cuDNN from 256 tokens up."""
    leads = [
        _fastest_but("cuDNN", dim, tokens, device)
        for dim in HEAD_DIMS
        for tokens in at_lengths(dim, device)
        if tokens >= 256
    ]
    return Figure(min(leads), "x", (min(leads), max(leads)), "the fastest other way over cuDNN, from 256 tokens up")


def _picked(device: str) -> Figure:
    picks = [one["auto"] for dim in HEAD_DIMS for one in at_lengths(dim, device).values()]
    return Figure(
        picks.count("cudnn"), origin="attention/lengths_*, picked", said=f"{picks.count('cudnn')} of {len(picks)}"
    )


def _out_of_memory(device: str) -> Figure:
    """`64: math; 128: naive, in place, math`: who is out of memory at the longest length."""
    last = longest(device)
    found = []
    for dim in HEAD_DIMS:
        names = [one for one in SWEPT if STOPPED.fullmatch(of_way(dim, last, one, device).get("stopped", ""))]
        found.append(f"{dim}: {', '.join(names) or 'none'}")
    return Figure("; ".join(found), origin=f"attention/lengths_*, {last} tokens")


def _first_out(device: str) -> Figure:
    """Who runs out of memory at the shortest length, the narrower head first."""
    stops = [
        (tokens, dim, heading)
        for dim in HEAD_DIMS
        for tokens in at_lengths(dim, device)
        for heading in SWEPT
        if STOPPED.fullmatch(of_way(dim, tokens, heading, device).get("stopped", ""))
    ]
    if not stops:
        raise LookupError("no way ran out of memory")
    tokens, dim, heading = min(stops, key=lambda stop: stop[:2])
    return Figure(heading, origin=f"attention/lengths_{dim}, at {tokens:,} tokens")


def _asked(head_dim: int, heading: str) -> Measure:
    """A measure: the bytes that a way asked for when there were no more."""

    def measure(device: str) -> Figure:
        stopped = of_way(head_dim, longest(device), heading, device).get("stopped", "")
        match = STOPPED.fullmatch(stopped)
        if match is None:
            raise LookupError(f"{heading} is not out of memory here: {stopped or 'it ran'}")
        asked = round(float(match[1]) * BINARY[match[2]])
        return Figure(asked, "bytes", origin=f"attention/lengths_{head_dim}, {heading}: {stopped}")

    return measure


def scores_bytes(device: str) -> Figure:
    """One matrix of scores of all heads at the longest length, in bf16."""
    sizes = load_recording(WAYS["naive"], device).points[0].parameters
    heads = int(sizes["batch"]) * int(sizes["heads"])
    return Figure(BF16_BYTES * heads * longest(device) ** 2, "bytes", origin="batch x heads x tokens x tokens, in bf16")


def spot(head_dim: int, tokens: int, heading: str, device: str) -> RooflinePoint:
    """A way at a length, with the least work that it can be: causal, so half the scores."""
    step = find(WAYS["flash"])[0].at(head_dim=head_dim, tokens=tokens)
    assert step.work is not None
    work = step.work(**step.parameters)
    return RooflinePoint(work.flops, work.bytes, length_timing(head_dim, tokens, heading, device))


def _ceilings(device: str) -> tuple[Ceiling, ...]:
    """Those of the forwards of 1024 tokens: what is measured as plain data has none of its own."""
    return load_recording(WAYS["flash"], device).ceilings


def product_share(head_dim: int, heading: str) -> Measure:
    """A measure: FLOP/s at the longest length, in percent of a large product's."""

    def measure(device: str) -> Figure:
        limit = next((one for one in _ceilings(device) if one.what == LARGE_PRODUCT), None)
        if limit is None:
            raise RecordingError(f"attention/flash has no ceiling {LARGE_PRODUCT!r}; make record CHAPTER=attention")
        at = spot(head_dim, longest(device), heading, device)
        most = limit.flops / limit.timing.median_us * 1e6
        value, low, high = (100 * rate / most for rate in (at.rate, *at.quartiles))
        return Figure(value, "%", (low, high), f"attention/lengths_{head_dim}, {heading}, of {LARGE_PRODUCT}")

    return measure


def _wide_over_narrow(device: str) -> Figure:
    wide, narrow = (spot(dim, longest(device), "cuDNN", device) for dim in (128, 64))
    spread = (wide.quartiles[0] / narrow.quartiles[1], wide.quartiles[1] / narrow.quartiles[0])
    return Figure(wide.rate / narrow.rate, "x", spread, "cuDNN's FLOP/s, 128 numbers to a head over 64")


def lengths_table() -> Html:
    """The warm time of every way at each length, the fastest in bold; the larger head dimension folded."""
    device = shown_device()
    first, second = (_lengths(head_dim, device) for head_dim in HEAD_DIMS)
    return Html(first + details("With 128 numbers to a head", second))


def _lengths(head_dim: int, device: str) -> Html:
    rows: list[Sequence[Cell]] = []
    for tokens, one in at_lengths(head_dim, device).items():
        found = [one["variants"][name] for name in SWEPT.values()]
        best = min(way["time_us"][1] for way in found if "time_us" in way)
        rows.append([f"{tokens:,}", *(_time_cell(way, best) for way in found)])
    return table(f"One forward, GPU time, {head_dim} numbers to a head", ["tokens", *SWEPT], rows)


def _time_cell(way: Mapping[str, Any], best: float) -> Cell:
    if "time_us" not in way:
        return Html(f'<span title="{escape(way["stopped"])}">stopped</span>')
    said = format_value(way["time_us"][1], "us")
    return Html(f"<strong>{escape(said)}</strong>") if way["time_us"][1] == best else said


def longest_table() -> Html:
    """What came of every way at the longest length; the larger head dimension folded."""
    device = shown_device()
    first, second = (_longest(head_dim, device) for head_dim in HEAD_DIMS)
    return Html(first + details("With 128 numbers to a head", second))


def _longest(head_dim: int, device: str) -> Html:
    rows = [[heading, *_at_longest(head_dim, heading, device)] for heading in SWEPT]
    head = ["", "FLOP/s, of a product's", "the last doubling", "peak memory"]
    return table(f"{longest(device):,} tokens, {head_dim} numbers to a head", head, rows)


def _at_longest(head_dim: int, heading: str, device: str) -> list[Cell]:
    last = longest(device)
    found = of_way(head_dim, last, heading, device)
    if "time_us" not in found:
        asked = _asked(head_dim, heading)(device).text if STOPPED.fullmatch(found["stopped"]) else found["stopped"]
        return [None, None, f"asked for {asked} more"]
    share, grown = (one(device).text for one in (product_share(head_dim, heading), growth(head_dim, last, heading)))
    return [share, grown, format_value(int(found["peak_bytes"]), "bytes")]


def climbing() -> Html:
    """The shortest and the longest sequence below this GPU's roofs: attention written out, and cuDNN's kernel."""
    device = shown_device()
    lengths = at_lengths(64, device)
    shown = {
        f"{heading}, {tokens:,} tokens": spot(64, tokens, heading, device)
        for heading in ("cuDNN", "naive")
        for tokens in (min(lengths), max(lengths))
        if "time_us" in of_way(64, tokens, heading, device)
    }
    caption = "As the sequence grows, 64 numbers to a head, over FLOP for each byte that has to be moved"
    return roofline_chart(caption, shown, _ceilings(device), ident="attention-climbing")


def wide_heads() -> Html:
    """1024 tokens with 64 and with 128 numbers to a head: times, and how they compare."""
    device = shown_device()
    rows: list[Sequence[Cell]] = []
    for heading in SWEPT:
        narrow, wide = (length_timing(dim, 1024, heading, device).median_us for dim in HEAD_DIMS)
        rows.append([heading, format_value(narrow, "us"), format_value(wide, "us"), format_value(wide / narrow, "x")])
    return table("One forward of 1024 tokens, GPU time", ["", "64", "128", "times as long"], rows)


def wide_ratio(heading: str) -> Measure:
    """A measure: time with 128 numbers to a head over that with 64, at 1024 tokens."""

    def measure(device: str) -> Figure:
        a, b = (length_timing(dim, 1024, heading, device) for dim in (128, 64))
        spread = (a.q1_us / b.q3_us, a.q3_us / b.q1_us)
        return Figure(a.median_us / b.median_us, "x", spread, f"{heading}, attention/lengths_128 over lengths_64")

    return measure


CLAIMS: tuple[Claim, ...] = (
    own_claim(
        "O-A35",
        "From 256 tokens up, at both head dimensions, no way is as fast as cuDNN.",
        _cudnn_lead,
        at_least(1.03),
        scope="timing",
    ),
    own_claim(
        "O-A36",
        "PyTorch picks cuDNN at every length and both head dimensions.",
        _picked,
        one_of(16),
        scope="this-gpu",
    ),
    own_claim(
        "O-A37",
        "At the last doubling of the tokens every fused way takes 3.7 to 4.1 times as long.",
        _fused_growth,
        lambda shown: shown.spread is not None and shown.spread[0] >= 3.7 and shown.spread[1] <= 4.1,
        scope="timing",
    ),
    own_claim(
        "O-A38",
        "At the first doubling, from 128 to 256, cuDNN takes less than 1.8 times as long.",
        growth(64, 256, "cuDNN"),
        at_most(1.8),
        scope="timing",
    ),
    own_claim(
        "O-A39",
        "At the longest, 128 numbers to a head give cuDNN at least 1.25 times the FLOP/s of 64.",
        _wide_over_narrow,
        within(1.25, 1.5),
        scope="timing",
    ),
    own_claim(
        "O-A40",
        "At 16,384 tokens math runs out of memory with 64 numbers to a head; with 128, naive and in place do, too.",
        _out_of_memory,
        one_of("64: math; 128: naive, in place, math"),
        scope="this-gpu",
    ),
    own_claim(
        "O-A41",
        "From 1,024 to 2,048 tokens the compiled form takes more than five times as long.",
        growth(64, 2048, "compiled"),
        within(5, 7.5),
        scope="timing",
    ),
    own_claim(
        "O-A42",
        "Twice as many numbers to a head cost naive attention at most 4 % of its time.",
        wide_ratio("naive"),
        within(0.98, 1.04),
        scope="timing",
    ),
)


FIGURES: Mapping[str, Measure] = {
    "length_growth": growth(64, 16384, "flash"),
    "length_first_growth": growth(64, 256, "cuDNN"),
    "length_jump": growth(64, 2048, "compiled"),
    "length_first_out": _first_out,
    "length_scores": scores_bytes,
    "length_math_asked": _asked(64, "math"),
    "length_share_64": product_share(64, "cuDNN"),
    "length_share_128": product_share(128, "cuDNN"),
    "length_naive_share": product_share(64, "naive"),
    "length_wide_naive": wide_ratio("naive"),
    "length_wide_cudnn": wide_ratio("cuDNN"),
}
"""The chapter's own numbers of these questions, `#!fig attention.<name>`."""
