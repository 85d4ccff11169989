"""A decoder that is split over GPUs: its tokens, predicted from reading and sums."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    at_least,
    at_most,
    between,
    claim,
    unpaired_ratio,
)
from snippets.lab.finding.probed import entry, rate, ratio, time
from snippets.lab.page import show as show
from snippets.several_gpus.findings.measured import changed


def decode_on(gpus: int) -> str:
    """The probe of a decoder's tokens on so many GPUs."""
    return f"several_gpus/decode_on_{gpus}"


def token(device: Device, gpus: int, size: str, way: str) -> Figure:
    """The time of a decoder's token: on `one` GPU, or on all with a kind of sum."""
    return time(device, decode_on(gpus), "sizes", size, "us", way)


def sums(device: Device, gpus: int, size: str, way: str) -> Figure:
    """The time of all sums of a token, alone."""
    return time(device, decode_on(gpus), "sizes", size, "sums_us", way)


def token_over_one(device: Device, gpus: int, size: str, way: str) -> Figure:
    """A token on several GPUs over a token on one, in pairs."""
    keys = ("sizes", size, "us")
    return ratio(device, decode_on(gpus), (*keys, way), (*keys, "one"))


def read_rate(device: Device, gpus: int) -> Figure:
    """The rate of reading a large array."""
    probe = decode_on(gpus)
    return rate(entry(device, probe, "read", "bytes"), time(device, probe, "read", "us"), "bytes/s")


def saved_reading(device: Device, gpus: int, size: str) -> Figure:
    """The time of reading what a token's GPU leaves to the others."""
    of_size = entry(device, decode_on(gpus), "sizes", size)
    left = (of_size["bytes"] - of_size["whole_bytes"]) * (1 - 1 / gpus)
    per_s = read_rate(device, gpus)
    return Figure(1e6 * left / per_s.number, "us", origin=per_s.origin)


def reading_share(device: Device, size: str) -> Figure:
    """The time of reading all that a token reads, in percent of the token's time on one GPU."""
    read, one = read_rate(device, 2), token(device, 2, size, "one")
    read_us = 1e6 * entry(device, decode_on(2), "sizes", size, "bytes") / read.number
    return Figure(100 * read_us / one.number, "%", origin=f"{one.origin}; {read.origin}")


def predicted_token(device: Device, gpus: int, size: str, way: str) -> Figure:
    """A token on one GPU, less what the others read, plus its sums."""
    one, saved, added = (
        token(device, gpus, size, "one"),
        saved_reading(device, gpus, size),
        sums(device, gpus, size, way),
    )
    return Figure(one.number - saved.number + added.number, "us", origin=f"{one.origin}; {added.origin}")


@claim("SG60", at_least(0.85), scope="timing")
def small_decoder(device: Device) -> Figure:
    """With NCCL's all-reduces, a token of the decoder of 1.1 billion weights takes at least 0.85 times as long on
    two GPUs as on one GPU."""
    return token_over_one(device, 2, "1.1b", "nccl")


@claim("SG61", at_most(0.9), scope="timing")
def one_shot_sums(device: Device) -> Figure:
    """On two GPUs, the one-shot all-reduces of one token take at most 0.9 times as long as NCCL's all-reduces."""
    keys = ("sizes", "8b", "sums_us")
    return ratio(device, decode_on(2), (*keys, "one_shot"), (*keys, "nccl"))


@claim("SG62", at_most(0.85), scope="timing")
def large_decoder(device: Device) -> Figure:
    """With one-shot all-reduces, a token of the decoder of 8 billion weights takes at most 0.85 times as long on two
    GPUs as on one GPU."""
    return token_over_one(device, 2, "8b", "one_shot")


@claim("SG63", at_most(1), scope="timing")
def four_over_two(device: Device) -> Figure:
    """With one-shot all-reduces, a token of the decoder of 8 billion weights takes no longer on four GPUs than on two
    GPUs."""
    return unpaired_ratio(*(token(device, gpus, "8b", "one_shot") for gpus in (4, 2)))


@claim("SG64", between(0.8, 1.2), scope="timing")
def token_as_predicted(device: Device) -> Figure:
    """On two GPUs with NCCL's all-reduces, a token of the decoder of 8 billion weights takes within 20 % of the
    predicted time."""
    return unpaired_ratio(token(device, 2, "8b", "nccl"), predicted_token(device, 2, "8b", "nccl"))


def token_table(device: Device) -> Html:
    """Tokens of both decoders on one, two and four GPUs, measured and predicted."""
    rows: list[list[Cell]] = []
    for gpus in (2, 4):
        if not device[decode_on(gpus)].is_recorded:
            continue
        for size in entry(device, decode_on(gpus), "sizes"):
            one = token(device, gpus, size, "one")
            for way in entry(device, decode_on(gpus), "sizes", size, "sums_us"):
                shown = (
                    one,
                    saved_reading(device, gpus, size),
                    sums(device, gpus, size, way),
                    predicted_token(device, gpus, size, way),
                    token(device, gpus, size, way),
                    token_over_one(device, gpus, size, way),
                )
                kind = way.replace("_", "-").replace("nccl", "NCCL")
                name = f"{size.rstrip('b')} billion weights, {gpus} GPUs, {kind}"
                rows.append([name, *map(figure_cell, shown)])
    head = [
        "decoder",
        "time on one GPU",
        "saved by reading less",
        "all-reduces alone",
        "predicted time",
        "measured time",
        "measured, over one GPU",
    ]
    return table("Time of a token of a decoder that is split over GPUs", head, rows)


FIGURES: Mapping[str, Measure] = {
    "decode_small_reading": lambda device: reading_share(device, "1.1b"),
    "decode_large_reading": lambda device: reading_share(device, "8b"),
    "decode_small_over_one": lambda device: token_over_one(device, 2, "1.1b", "nccl"),
    "decode_large_over_one": lambda device: token_over_one(device, 2, "8b", "nccl"),
    "decode_sum_nccl": lambda device: changed(
        sums(device, 2, "8b", "nccl"), 1 / (2 * entry(device, decode_on(2), "sizes", "8b", "layers"))
    ),
    "decode_sum_one_shot": lambda device: changed(
        sums(device, 2, "8b", "one_shot"), 1 / (2 * entry(device, decode_on(2), "sizes", "8b", "layers"))
    ),
}
