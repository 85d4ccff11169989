"""The figures and claims of the second page, on made-up recordings: each holds, and each can fail."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from snippets.lab.finding.book import findings, judge
from snippets.lab.finding.device import Device
from snippets.training_memory.findings import allocator, instruments, keeping, memory
from snippets.training_memory.findings.held import held_step
from tests.chapters.training_memory.memory_samples import memory_recordings
from tests.lab.sample_recordings import save_samples
from tests.lab.samples import Markup, cells

ELSEWHERE = ("TM61",)
"""Claims that read the trace of the first page, too: test_recomputing.py."""
CLAIMS = {
    claim.id: claim
    for claim in findings("training_memory").claims
    if int(claim.id.removeprefix("TM")) >= 30 and claim.id not in ELSEWHERE
}

OTHERWISE = {"TM58": "differs"}
"""An article's claim that the samples refute, as the recordings do."""


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_samples(tmp_path, memory_recordings())


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_a_claim_holds_on_samples(claim_id: str, device: Device) -> None:
    verdict = judge(CLAIMS[claim_id], "training_memory", device)
    assert (verdict.status, verdict.reason) == (OTHERWISE.get(claim_id, "holds"), "")


def altered(root: Path, experiment: str, change: Callable[[Any], None]) -> Device:
    """The samples, the data of one of them changed."""
    recordings = []
    for recording, trace in memory_recordings():
        data = msgspec.json.decode(msgspec.json.encode(recording.data))
        if recording.experiment == experiment:
            change(data)
        recordings.append((msgspec.structs.replace(recording, data=data), trace))
    return save_samples(root, recordings)


def larger(*path: Any, by: float) -> Callable[[Any], None]:
    """Multiply a number within the data."""

    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = type(data[path[-1]])(by * data[path[-1]])

    return change


def put(*path: Any, value: Any) -> Callable[[Any], None]:
    """Replace something within the data."""

    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


def of_steps(name: str, phase: str, moment: str, by: float) -> Callable[[Any], None]:
    """Multiply the bytes of a phase in every measured step."""

    def change(data: Any) -> None:
        for step in data["variants"][name]["steps"]:
            step[phase][moment] = int(by * step[phase][moment])

    return change


def passing(name: str, size: int) -> Callable[[Any], None]:
    """Make the first block, which forward takes and releases, this large."""

    def change(data: Any) -> None:
        data["variants"][name]["timeline"]["bytes"][:2] = [size, -size]

    return change


def longer(batch: str, kind: str, by: float) -> Callable[[Any], None]:
    """Make the step that recomputes slower."""

    def change(data: Any) -> None:
        times = data[batch]["recomputed"]["times"]
        times[kind] = [by * us for us in times[kind]]

    return change


OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 128.00 MiB."
FAULTS: list[tuple[str, str, Callable[[Any], None]]] = [
    ("TM30", "holds", of_steps("bfloat16", "forward", "after", 1.03)),
    ("TM31", "holds", put("variants", "half recomputed", "kept", value=[["1", "float32", 8]])),
    ("TM32", "holds", of_steps("compiled", "forward", "after", 1.03)),
    ("TM33", "holds", put("variants", "autocast", "kept", value=[["1", "bfloat16", 900_000_000]])),
    ("TM34", "holds", put("variants", "bfloat16", "kept", value=[["1", "bfloat16", 950_000_000]])),
    ("TM35", "holds", put("variants", "compiled", "kept", value=[["1", "bfloat16", 1_000_000_000]])),
    ("TM36", "holds", of_steps("compiled", "backward", "peak", 1.02)),
    ("TM37", "holds", passing("fp32", 10**10)),
    ("TM38", "holds", larger("variants", "fp32", "steps", -1, "optimizer", "after", by=6.0)),
    ("TM39", "holds", of_steps("recomputed", "backward", "peak", 1.5)),
    ("TM40", "recompute", longer("128", "interleaved", 1.1)),
    ("TM41", "recompute", put("64", "recomputed", "losses", 1, value=0.2500001)),
    ("TM42", "holds", of_steps("foreach", "optimizer", "peak", 0.95)),
    ("TM43", "holds", of_steps("fp32", "optimizer", "peak", 1.1)),
    ("TM44", "holds", of_steps("gradients zeroed", "backward", "peak", 0.97)),
    ("TM45", "recompute", longer("64", "enqueue", 0.7)),
    ("TM46", "allocators", put("default", "rounding", 2, "block", value=513)),
    ("TM47", "allocators", put("default", "rounding", 6, "segments", value=5 << 20)),
    ("TM48", "allocators", put("default", "fragmented", "2 MiB", "error", value="")),
    ("TM49", "allocators", put("default", "fragmented", "2 MiB", "interleaved", "reserved", value=100 << 20)),
    ("TM50", "allocators", put("default", "fragmented", "1 MiB", "error", value=OUT_OF_MEMORY)),
    ("TM51", "allocators", put("expandable segments", "fragmented", "2 MiB", "error", value=OUT_OF_MEMORY)),
    ("TM52", "allocators", put("default", "fragmented", "2 MiB", "error", value="")),
    ("TM54", "allocators", put("default", "profiled", "2 MiB", 1, "calls", value=14)),
    ("TM55", "allocators", put("default", "profiled", "1 MiB", 1, "calls", value=14)),
    ("TM56", "allocators", put("default", "fragmented", "2 MiB", "segments", 0, "owners", 1, value="lend")),
    ("TM57", "allocators", put("default", "fragmented", "2 MiB", "cached", "reserved", value=0)),
    ("TM59", "holds", of_steps("loss written out", "forward", "after", 1.01)),
]


@pytest.mark.parametrize(("claim_id", "experiment", "change"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_claim_can_fail(claim_id: str, experiment: str, change: Callable[[Any], None], tmp_path: Path) -> None:
    verdict = judge(CLAIMS[claim_id], "training_memory", altered(tmp_path, experiment, change))
    assert verdict.status == "differs"


def test_a_high_total_is_a_sign_only_where_free_parts_are_large(tmp_path: Path) -> None:
    statistics = ("variants", "fp32", "statistics")
    device = altered(tmp_path, "holds", put(*statistics, "inactive_split_bytes.all.current", value=10**10))
    assert judge(CLAIMS["TM58"], "training_memory", device).status == "holds"
    device = altered(tmp_path, "holds", put("variants", "fp32", "parameters", value=10**11))
    verdict = judge(CLAIMS["TM58"], "training_memory", device)
    assert (verdict.status, "cannot test the sign" in verdict.reason) == ("not measured", True)


@pytest.mark.parametrize("setting", ["default", "expandable segments"])
def test_what_a_summary_prints_decides(setting: str, tmp_path: Path) -> None:
    """The claims read the printed text, not the statistics."""
    claim_id = "TM53" if setting == "default" else "TM60"

    def change(data: Any) -> None:
        fragmented = data[setting]["fragmented"]["2 MiB"]
        fragmented["summary"] = re.sub(r"(Non-releasable memory \| )[^|]*", r"\g<1>1024 KiB ", fragmented["summary"])

    device = altered(tmp_path, "allocators", change)
    assert judge(CLAIMS[claim_id], "training_memory", device).status == "differs"


def test_a_step_is_back_where_it_began(device: Device) -> None:
    for name in ("fp32", "compiled", "gradients zeroed"):
        first, *_, last = held_step(device, name).levels()
        assert first == last


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1, "1 byte"),
        (512, "512 bytes"),
        (100_352, "100,352 bytes"),
        (1 << 20, "1 MiB"),
        ((1 << 20) + 1, "1 MiB + 1"),
        ((1 << 20) + 512, "1 MiB + 512"),
        (39 << 19, "19.5 MiB"),
    ],
)
def test_sizes_in_mebibytes(size: int, text: str) -> None:
    assert allocator.in_mib(size) == text


def test_the_opening_adds_up_to_what_is_in_use(device: Device) -> None:
    text = Markup(memory.opening(device)).text
    used = (100 << 30) - device["training_memory/holds"].data["variants"]["fp32"]["free_of_all"][0]
    assert f"float32: {used / 1e9:.2f} GB" in text


@pytest.mark.parametrize(
    "piece",
    [
        memory.opening,
        memory.timeline,
        memory.phases,
        keeping.kept,
        keeping.by_shapes,
        keeping.kept_tensors,
        keeping.recomputing,
        keeping.recomputing_bytes,
        allocator.map_of_segments,
        allocator.outcomes,
        allocator.rounding,
        allocator.error_message,
        instruments.summaries,
        instruments.profiler_rows,
    ],
)
def test_a_piece_shows_something(piece: Callable[[Device], str], device: Device) -> None:
    assert len(Markup(piece(device)).text) > 40


def test_the_kept_tensors_are_counted(device: Device) -> None:
    rows = cells(keeping.kept_tensors(device))
    listed = device["training_memory/holds"].data["variants"]["autocast"]["kept"]
    assert sum(int(row[3]) for row in rows[1:] if row[3].isdigit()) == len(listed)


def test_lines_for_a_pool_name_their_metric() -> None:
    """What stands above the head, such as the number of OOMs, has fewer columns."""
    text = """|====|
|        CUDA OOMs: 0  |  cudaMalloc retries: 0  |
| Metric           | Cur Usage | Peak Usage | Tot Alloc | Tot Freed |
|----|
| Allocations      |  13 |  26 |  28 |  15 |
|  from large pool |  12 |  25 |  27 |  14 |
|===="""
    assert cells(instruments.all_printed(text)) == [
        ["Metric", "Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed"],
        ["Allocations", "13", "26", "28", "15"],
        ["Allocations, from large pool", "12", "25", "27", "14"],
    ]
