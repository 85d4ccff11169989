"""Which kernel runs on which GPU: the portable kernels' machine code for every architecture, and code for 8.0 run."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kinetoscope.html import Cell, Html, details, table
from snippets.fused_mlp.findings.probes import probe_ratio, probe_timing, probed
from snippets.lab.finding import Device, Figure, NotTimed, at_least, at_most, claim, equals, format_value
from snippets.lab.page import figure_cell, show as show

NAMES = {
    80: "8.0, Ampere (A100)",
    86: "8.6, Ampere (RTX 30)",
    89: "8.9, Ada (L4, RTX 40)",
    90: "9.0, Hopper (H100, H200)",
    100: "10.0, Blackwell (B200)",
    120: "12.0, Blackwell (RTX 50)",
}
"""Compute capability, ten times -> its name on the page."""
INTERLEAVED = "interleaved"
OLD, OWN = "code for 8.0", "own code"


class Candidate(NamedTuple):
    """A portable kernel's machine code for one architecture."""

    capability: int
    kernel: str
    """`gate_up` or `linear`."""
    tiles: str
    instruction: str
    copies: int
    registers: int
    spills: int
    shared_bytes: int


def candidates(device: Device) -> list[Candidate]:
    """The compiled candidates by architecture; this needed no GPU of that kind. Raises `NotTimed` without
    candidates."""
    run = device["fused_mlp/architectures"]
    columns = probed(run, "columns")
    places = [columns.index(name) for name in Candidate._fields]
    found = [Candidate(*(row[place] for place in places)) for row in probed(run, "rows")]
    if not found:
        raise NotTimed(f"{run.id}: no candidate was compiled")
    return sorted(found, key=lambda one: one.capability)


@claim("F91", equals(0), scope="this-gpu")
def spilling(device: Device) -> Figure:
    """No candidate of the portable kernels spills registers on any architecture where the candidate fits."""
    found = candidates(device)
    count = sum(one.spills > 0 for one in found)
    return Figure(count, display=f"{count} of {len(found)}", origin="fused_mlp/architectures")


@claim("F92", at_least(4), scope="this-gpu")
def fewest_copies(device: Device) -> Figure:
    """On every architecture, every candidate of the portable kernels has at least four asynchronous copies to shared
    memory."""
    return Figure(min(one.copies for one in candidates(device)), origin="fused_mlp/architectures")


def shapes_run(device: Device) -> Mapping[str, Mapping[str, float]]:
    """`TOKENSxDIMxHIDDEN` -> the errors of the kernel compiled for 8.0 and of eager."""
    errors: Mapping[str, Mapping[str, float]] = probed(device["fused_mlp/ampere_code"], "errors")
    return errors


@claim("F93", at_most(1), scope="this-gpu")
def error_of_old_code(device: Device) -> Figure:
    """The portable kernel compiled for compute capability 8.0 and run on this GPU has no larger error than eager at any
    size."""
    ratios = [one["error"] / one["eager_error"] for one in shapes_run(device).values()]
    return Figure(max(ratios), "x", (min(ratios), max(ratios)), "fused_mlp/ampere_code, errors over eager's")


@claim("F94", at_least(1.4), scope="timing")
def old_over_own(device: Device) -> Figure:
    """On this GPU, the portable kernel takes at least 40 % longer if it is compiled for compute capability 8.0 than if
    it is compiled for this GPU."""
    return probe_ratio(device["fused_mlp/ampere_code"], INTERLEAVED, OLD, OWN)


def architectures(device: Device) -> Html:
    """For each architecture the instructions and resources of the candidates; every candidate folded below."""
    found = candidates(device)
    limits = probed(device["fused_mlp/architectures"], "limits")
    rows: list[Sequence[Cell]] = []
    for capability in sorted({one.capability for one in found}):
        ours = [one for one in found if one.capability == capability]
        rows.append(
            [
                NAMES.get(capability, f"{capability / 10}"),
                len(ours),
                ", ".join(dict.fromkeys(one.instruction for one in ours)),
                _ends([one.copies for one in ours]),
                _ends([one.registers for one in ours]),
                sum(one.spills for one in ours),
                format_value(max(one.shared_bytes for one in ours), "bytes"),
                format_value(int(limits[str(capability)]), "bytes"),
            ]
        )
    head = [
        "compute capability",
        "candidates",
        "product instruction",
        "LDGSTS instructions",
        "registers",
        "register spills",
        "shared memory, most used",
        "shared memory, allowed",
    ]
    summary = table("The portable kernels, compiled for six architectures", head, rows)
    return Html(summary + details("Every candidate", every_candidate(found)))


def _ends(numbers: Sequence[int]) -> str:
    return " to ".join(dict.fromkeys(map(str, (min(numbers), max(numbers)))))


def every_candidate(found: Sequence[Candidate]) -> Html:
    """One row for each set of tiles: the architectures on which it fits, and its registers there."""
    kinds = list(dict.fromkeys((one.kernel, one.tiles) for one in found))
    capabilities = sorted({one.capability for one in found})
    registers = {(one.kernel, one.tiles, one.capability): one.registers for one in found}
    rows = [
        [kernel, tiles, *(registers.get((kernel, tiles, each)) for each in capabilities)] for kernel, tiles in kinds
    ]
    head = ["kernel", "tiles", *(f"{capability / 10}" for capability in capabilities)]
    return table(
        "Registers of a thread by architecture, empty where a candidate does not fit", head, rows, text_columns=2
    )


def old_code(device: Device) -> Html:
    """The kernel compiled for 8.0 and run here: times, and errors at each size."""
    run = device["fused_mlp/ampere_code"]
    times = [
        [name, figure_cell(Figure.from_timing(probe_timing(run, INTERLEAVED, name)))]
        for name in probed(run, INTERLEAVED)
    ]
    caption = f"Gate, up and GELU by the portable kernel, tiles of {probed(run, 'tiles')}"
    errors = [
        [name, *(f"{float(one[key]):.2e}" for key in ("error", "eager_error"))]
        for name, one in shapes_run(device).items()
    ]
    return Html(
        table(caption, ["compiled for", "interleaved"], times)
        + details(
            "Errors at odd sizes",
            table("Relative error", ["tokens x dim x hidden", "code for 8.0", "eager"], errors),
        )
    )
