"""All-reduce in symmetric memory: one shot and two shots, next to NCCL."""

from __future__ import annotations

from kinetoscope.html import Cell, Html, table
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import Device, Figure, Source, at_least, at_most, claim
from snippets.lab.finding.probed import entry, ratio, time
from snippets.lab.page import show as show
from snippets.several_gpus.findings.link import KIB, LINKS, MIB, size_text


@claim("SG11", at_most(0.9), scope="timing")
def one_shot_of_few_bytes(device: Device) -> Figure:
    """On two GPUs, a one-shot all-reduce of 64 KiB takes at most 90 % of the time of NCCL's all-reduce."""
    return symmetric_ratio(device, 64 * KIB, "one_shot_us", "nccl_us")


@claim("SG12", at_most(0.8), scope="timing")
def two_shots_of_many_bytes(device: Device) -> Figure:
    """On four GPUs, a two-shot all-reduce of 16 MiB takes at most 80 % of the time of a one-shot all-reduce."""
    return symmetric_ratio(device, 16 * MIB, "two_shot_us", "one_shot_us", 4)


@claim(
    "SG13",
    at_least(1),
    scope="timing",
    source=Source("vLLM, pull request 24532", "two-shot loses from about 16 MiB", device=""),
)
def nccl_of_many_bytes(device: Device) -> Figure:
    """On four GPUs, a two-shot all-reduce of 16 MiB takes at least as long as NCCL's all-reduce of 16 MiB.

    The source measured other GPUs. Here, the advantage of two shots is smaller at 16 MiB than at 4 MiB, and we measure
    no larger arrays.
    """
    return symmetric_ratio(device, 16 * MIB, "two_shot_us", "nccl_us", 4)


def symmetric_ratio(device: Device, size: int, upper: str, lower: str, ranks: int = 2) -> Figure:
    """The ratio of two kinds of all-reduce of so many bytes."""
    keys = ("symmetric", str(size))
    return ratio(device, LINKS[ranks], (*keys, upper), (*keys, lower))


def symmetric_table(device: Device, ranks: int = 2) -> Html:
    """All-reduce by NCCL, one shot and two shots."""
    link = LINKS[ranks]
    rows: list[list[Cell]] = []
    for size in sorted(entry(device, link, "symmetric"), key=int):
        times = [time(device, link, "symmetric", size, f"{name}_us") for name in ("nccl", "one_shot", "two_shot")]
        rows.append([size_text(int(size)), *map(figure_cell, times)])
    head = ["bytes of the array", "NCCL", "one-shot", "two-shot"]
    return table(f"Time of an all-reduce with NCCL and in symmetric memory, in CUDA graphs on {ranks} GPUs", head, rows)
