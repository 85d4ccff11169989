"""What one kernel saves and takes: bytes and occupancy, on the builder's recordings and on numbers by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import msgspec
import pytest

from snippets.attention.findings import occupancy, traffic
from snippets.attention.findings.measures import WAYS
from snippets.lab.finding.book import judge
from snippets.lab.finding.claim import Status
from snippets.lab.finding.figure import Figure
from snippets.lab.html import Html
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.loading import load_trace
from snippets.lab.recording.schema import NotRecorded
from snippets.lab.trace.events import GpuActivity, TraceError
from snippets.lab.trace.queries import middle_step

# KEEP recording
from tests.bench import AlteredRecordings

PARTS = (traffic, occupancy)
CLAIMS = {claim.id: claim for part in PARTS for claim in part.CLAIMS}
FIGURES = {name: figure for part in PARTS for name, figure in part.FIGURES.items()}
HEAD_TENSOR, SCORES, MASK = 2 * 128 * 1024 * 64, 2 * 128 * 1024 * 1024, 1024 * 1024
"""Bytes of q, of all scores in bf16, and of the mask."""
H200 = {
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 233472,
    "sharedMemPerBlock": 49152,
    "maxThreadsPerMultiprocessor": 2048,
    "numSms": 132,
}
replace = msgspec.structs.replace


def verdict(name: str) -> Status:
    return judge(CLAIMS[name], "attention", DEFAULT_DEVICE).word


def measured(name: str) -> Figure:
    found = judge(CLAIMS[name], "attention", DEFAULT_DEVICE).measured
    assert found is not None
    return found


def kernel(threads: int, registers: int, shared_bytes: int, blocks: int = 10_000) -> GpuActivity:
    return GpuActivity(
        "kernel", 0.0, 1.0, "kernel", 0, 7, grid=(blocks, 1, 1), block=(threads, 1, 1), registers=registers,
        shared_memory_bytes=shared_bytes,
    )  # fmt: skip


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> AlteredRecordings:
    return AlteredRecordings(monkeypatch)


def alter(bench: AlteredRecordings, experiment: str, change: Callable[[GpuActivity], GpuActivity]) -> None:
    """Change every activity of a trace, in its steps and as a whole."""
    traced = bench.trace(experiment, DEFAULT_DEVICE)
    steps = tuple(replace(step, activities=tuple(map(change, step.activities))) for step in traced.steps)
    bench.traces[experiment] = replace(traced, steps=steps, activities=tuple(map(change, traced.activities)))


def text_of(shown: Html) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", shown)))


def test_every_verdict_is_the_one_the_prose_was_written_for() -> None:
    judged = [judge(claim, "attention", DEFAULT_DEVICE) for claim in CLAIMS.values()]
    assert [(one.claim.id, one.word, one.reason) for one in judged if one.word != "holds"] == []


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_conclusive(name: str) -> None:
    assert FIGURES[name](DEFAULT_DEVICE).conclusive
    assert FIGURES[name](DEFAULT_DEVICE).text


# ---- bytes


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("naive", 2 * (2 * HEAD_TENSOR + SCORES) + 3 * 2 * SCORES + 2 * SCORES + MASK + 4),
        ("in place", 2 * (2 * HEAD_TENSOR + SCORES) + 3 * 2 * SCORES + MASK + 4),
        ("compiled", 2 * (2 * HEAD_TENSOR + SCORES) + 2 * SCORES + MASK + 4),
        ("efficient", 4 * HEAD_TENSOR),
        ("flash", 4 * HEAD_TENSOR),
        ("cuDNN", 4 * HEAD_TENSOR + 4),
        ("Flex", 4 * HEAD_TENSOR),
    ],
)
def test_bytes_are_those_of_the_formula(way: str, expected: int) -> None:
    traced = load_trace(WAYS[way], DEFAULT_DEVICE)
    assert [traffic.moved_bytes(traced, step) for step in traced.steps] == [expected] * len(traced.steps)


def test_bytes_of_math_by_hand() -> None:
    """Scores in float32 have twice the bytes; the answers whether a score is minus infinity have half."""
    scores, head_tensor, answers, rows = 2 * SCORES, 2 * HEAD_TENSOR, SCORES // 2, 128 * 1024
    casts = 3 * (HEAD_TENSOR + head_tensor) + (scores + SCORES) + (head_tensor + HEAD_TENSOR)
    scaling, products = 2 * 2 * head_tensor, 2 * (2 * head_tensor + scores)
    building = MASK + 2 * MASK + 4 + 4 + (MASK + 4 * MASK)
    adding = 2 * scores + 4 * MASK
    softmax = 2 * scores
    checking = (scores + answers) + (answers + rows) + 4 + (rows + scores + scores)
    expected = casts + scaling + products + building + adding + softmax + checking
    traced = load_trace(WAYS["math"], DEFAULT_DEVICE)
    assert traffic.moved_bytes(traced, middle_step(traced)) == expected


def test_an_operator_of_unknown_work_is_said(bench: AlteredRecordings) -> None:
    traced = bench.trace(WAYS["naive"], DEFAULT_DEVICE)
    ops = tuple(replace(op, name="aten::other") if op.name == "aten::masked_fill_" else op for op in traced.cpu_ops)
    other = replace(traced, cpu_ops=ops)
    with pytest.raises(TraceError, match="does not tell the work of"):
        traffic.moved_bytes(other, middle_step(other))


def test_more_memory_than_the_scores_need_is_noticed(bench: AlteredRecordings) -> None:
    assert measured("A12").value == 4096 * 4096
    found = bench.load("attention/lengths_64", DEFAULT_DEVICE)
    at = {"variants": {"naive": {"peak_bytes": 2 * found.data["4096"]["variants"]["naive"]["peak_bytes"]}}}
    bench.recordings["attention/lengths_64"] = replace(found, data={**found.data, "4096": at})
    assert (verdict("A12"), measured("A12").text) == ("differs", "33.7 million")
    bench.recordings["attention/lengths_64"] = replace(found, data={})
    assert verdict("A12") == "not measured"


def test_a_slower_copy_makes_memory_the_limit(bench: AlteredRecordings) -> None:
    for way in ("naive", "cuDNN"):
        found = bench.load(WAYS[way], DEFAULT_DEVICE)
        ceilings = tuple(
            replace(one, timing=replace(one.timing, median_us=2 * one.timing.median_us)) for one in found.ceilings
        )
        bench.recordings[WAYS[way]] = replace(found, ceilings=ceilings)
    assert (verdict("O-A25"), verdict("O-A26")) == ("differs", "differs")


# ---- what a kernel takes


@pytest.mark.parametrize(
    ("taken", "fit", "percent"),
    [
        (kernel(128, 255, 49_152), (2, 4, 16), 12.5),
        (kernel(384, 168, 134_144), (1, 1, 5), 18.75),
        (kernel(256, 240, 100_000), (1, 2, 8), 12.5),
        (kernel(128, 48, 0), (10, None, 16), 62.5),
        (kernel(32, 16, 0), (128, None, 64), 50.0),
        (kernel(128, 32, 232_448), (16, 1, 16), 6.25),
        (kernel(128, 32, 233_000), (16, 0, 16), 0.0),
    ],
)
def test_blocks_that_fit_by_hand(taken: GpuActivity, fit: tuple[int, int | None, int], percent: float) -> None:
    assert occupancy.residents(taken, H200)[:3] == fit
    assert occupancy.occupancy_percent(taken, H200) == percent


@pytest.mark.parametrize(
    ("taken", "percent"),
    [
        (kernel(128, 255, 49_152), 12.5),
        (kernel(128, 255, 49_153), 0.0),
        (kernel(128, 32, 0, blocks=132), 6.25),
        (kernel(128, 32, 0, blocks=66), 3.125),
    ],
)
def test_the_estimate_knows_no_more_shared_memory_than_the_default(taken: GpuActivity, percent: float) -> None:
    assert occupancy.estimate_percent(taken, H200) == percent


def test_a_kernel_without_a_footprint_is_said() -> None:
    with pytest.raises(TraceError, match=r"^the trace does not tell what kernel takes"):
        occupancy.residents(replace(kernel(128, 32, 0), registers=None), H200)


def test_the_properties_by_hand_are_the_builders() -> None:
    properties = load_trace(WAYS["flash"], DEFAULT_DEVICE).device_properties
    assert {name: properties[name] for name in H200} == H200


def test_more_registers_are_noticed(bench: AlteredRecordings) -> None:
    alter(bench, WAYS["flash"], lambda one: replace(one, registers=128))
    assert (verdict("A9"), measured("A9").value) == (
        "differs",
        "pytorch_flash, 13.0 %; 128 x 128 = 16,384, 4 of them fit",
    )
    alter(bench, WAYS["cuDNN"], lambda one: replace(one, registers=80))
    assert (verdict("O-A27"), measured("O-A27").value) == ("differs", "80 x 384 = 30,720, 2 of them fit")


def test_an_estimate_of_another_kind_is_noticed(bench: AlteredRecordings) -> None:
    count = len(occupancy.chapter_kernels(DEFAULT_DEVICE))
    assert measured("O-A29").text == f"{count} of {count}"
    alter(bench, WAYS["Flex"], lambda one: replace(one, occupancy_percent=13.0))
    assert (verdict("O-A28"), measured("O-A28").value) == ("differs", "cuDNN 18.8 %")
    assert verdict("O-A29") == "differs"


def test_without_a_trace_nothing_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "recorded", lambda *_: ())
    assert (verdict("O-A29"), judge(CLAIMS["O-A29"], "attention", DEFAULT_DEVICE).is_pending) == ("not measured", True)
    with pytest.raises(NotRecorded, match="make record CHAPTER=attention"):
        CLAIMS["O-A29"].measure(DEFAULT_DEVICE)


def test_the_fullest_may_be_the_fastest(bench: AlteredRecordings) -> None:
    alter(bench, WAYS["efficient"], lambda one: replace(one, registers=255))
    assert (verdict("O-A24"), measured("O-A24").value) == ("differs", "cuDNN is the fullest, efficient the slowest")


# ---- what is shown


def test_charts_and_tables_say_what_they_promise() -> None:
    assert "naive: 2.75 GB, most of it bmm 604 MB" in text_of(traffic.bytes_moved())
    assert "flash: 67.1 MB, most of it attention in one kernel 67.1 MB." in text_of(traffic.bytes_moved())
    roofs = text_of(traffic.rooflines())
    assert re.search(r"naive: [\d.]+ TFLOP/s at 6.24 FLOP per byte", roofs)
    assert re.search(r"flash: [\d.]+ TFLOP/s at 256 FLOP per byte", roofs)
    footprints = text_of(occupancy.footprints())
    assert "flash 128 255 49,152 2 4 12.5 % 13.0 %" in footprints
    assert "cuDNN 384 168 134,144 1 1 18.8 % 0 %" in footprints
