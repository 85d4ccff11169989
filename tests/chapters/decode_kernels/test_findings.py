"""What the page says about sample recordings: claims flip when what they are about changes, and each fence runs."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.trace.events import Step
from snippets.decode_kernels.experiments import EXPERIMENTS
from snippets.decode_kernels.experiments.in_transformers import KERNELS_OF_A_LAYER, OURS, PLAIN
from snippets.decode_kernels.experiments.parts import part_bytes
from snippets.decode_kernels.experiments.variants import INT8_VARIANTS, PEERS, RUNGS
from snippets.decode_kernels.findings import (
    choosing,
    in_transformers,
    integers,
    missing,
    names,
    parts,
    rung_pieces,
    several_texts,
    tiles,
    waits,
)
from snippets.decoder.findings.reading import CONTEXT, LARGE, SMALL, Shape
from snippets.decoder.model import CONFIGS, flops_per_token
from snippets.lab.finding.book import figure, find_claim, findings, judge
from snippets.lab.finding.device import Device
from snippets.lab.recording.schema import NotTimed
from tests.chapters.decode_kernels import samples
from tests.chapters.decode_kernels.samples import LARGE_INT8_US, LARGE_US, PROGRAMS, TOKEN_US, recordings
from tests.lab.sample_recordings import page_on_samples, save_samples

Changes = Mapping[str, Any]


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return save_samples(tmp_path_factory.mktemp("samples"), recordings())


def changed(device: Device, root: Path, **changes: Any) -> Device:
    """The samples with changed recordings; all others are links."""
    shutil.copytree(device.root, root, copy_function=os.link, dirs_exist_ok=True)
    return save_samples(root, recordings(**changes))


def status(device: Device, claim_id: str) -> str:
    chapter, claim = find_claim(claim_id)
    return judge(claim, chapter, device).status


def test_each_experiment_has_a_sample() -> None:
    made = {recording.experiment for recording, _ in recordings() if recording.chapter == "decode_kernels"}
    assert made == {each.name for each in EXPERIMENTS}


def test_names_are_those_of_the_experiments() -> None:
    known = {each.name for each in EXPERIMENTS}
    assert tuple(names.HEADINGS) == (*PEERS, *RUNGS)
    assert tuple(names.INT8_HEADINGS) == INT8_VARIANTS
    used = [names.tokens_of(variant) for variant in names.HEADINGS]
    for model in names.MODELS:
        used += [of(model, batch) for of in (names.steady_of, names.parts_of) for batch in names.BATCHES]
        used += [of(model) for of in (names.int8_of, names.errors_of, names.generate_of)]
    used += [names.transformers_of(way) for way in in_transformers.CACHES]
    assert {each.removeprefix("decode_kernels/") for each in [*used, tiles.TILES]} <= known
    assert list(in_transformers.LAYERS) == [PLAIN, OURS]
    assert len(names.LAYER_PARTS) == KERNELS_OF_A_LAYER
    for way in in_transformers.CACHES:
        (probe,) = [each for each in EXPERIMENTS if each.id == names.transformers_of(way)]
        assert way in str(probe.parameters["ways"]).split(",")


@pytest.mark.parametrize(("size", "shape"), [("1.1b", SMALL), ("8b", LARGE)])
@pytest.mark.parametrize("batch", [1, 8])
def test_bytes_and_flops_of_the_parts(size: str, shape: Shape, batch: int) -> None:
    config = CONFIGS[size]
    reading = names.part_bytes(shape, batch, CONTEXT)
    assert reading == part_bytes(config, batch, CONTEXT)
    assert sum(reading.values()) == shape.read_bytes(batch, CONTEXT)
    assert sum(names.part_flops(shape, batch, CONTEXT).values()) == batch * flops_per_token(config, CONTEXT)


def test_figures_of_the_prediction(device: Device) -> None:
    # 2,080 MB at 4.4 TB/s; 111 boundaries of 1.3; rounds of 132 programs
    expected = {
        "floor_us": "473 µs",
        "plain_boundaries": "144 µs",
        "tails_us": "28.1 µs",
        "plain_predicted": "645 µs",
        "plain_without_boundaries": "501 µs",
        "plain_without_tails": "617 µs",
        "autotuned_boundaries": "355 µs",
        "boundary_bytes": "5.72 MB",
        "saved_us": "90.0 µs",
        "saved_boundaries": "62.4 %",
        "barrier_us": "974 ns",
        "attention_programs": "64",
    }
    assert {name: figure(f"decode_kernels.{name}", device).text for name in expected} == expected


def test_tails_of_each_part(device: Device) -> None:
    # attention: 64 programs on 132 multiprocessors take 132 / 64 of 2.70 us
    found = {part: us.text for part, us in waits.tails(device).items()}
    assert found == {
        "qkv": "12.5 µs",
        "attend": "2.87 µs",
        "out": "1.31 µs",
        "gate_up": "7.21 µs",
        "down": "3.60 µs",
        "head": "685 ns",
    }


def test_tails_of_a_step_with_other_programs(device: Device, tmp_path: Path) -> None:
    """132 programs of attention fill 132 multiprocessors."""
    early = samples.trace(samples.kernels_of_step("kernels", samples.PROGRAMS | {"attend": 132}))
    altered = changed(device, tmp_path, traces={"kernels": early})
    assert [waits.tails(altered, each)["attend"].text for each in ("plain_kernels", "kernels")] == ["2.87 µs", "0 µs"]


@pytest.mark.parametrize(("programs", "factor"), [(132, 1.0), (66, 2.0), (133, 264 / 133), (1320, 1.0)])
def test_rounds_of_programs(programs: int, factor: float) -> None:
    assert waits.idle_factor(programs, 132) == pytest.approx(factor)


def test_a_step_of_another_number_of_kernels_has_no_parts(device: Device, tmp_path: Path) -> None:
    fewer = samples.trace(samples.kernels_of_step("plain_kernels", layers=21))
    altered = changed(device, tmp_path, traces={"plain_kernels": fewer})
    with pytest.raises(NotTimed, match="106 of this book's kernels, not 111"):
        waits.tails(altered)
    assert status(altered, "DK5") == "not measured"


def test_parts_know_their_kernels_by_name_and_order(device: Device) -> None:
    step: Step = device["decode_kernels/kernels"].step
    found = waits.kernels_by_part(step)
    assert {part: len(kernels) for part, kernels in found.items()} == {
        **dict.fromkeys(names.LAYER_PARTS, 22),
        "head": 1,
    }
    assert waits.programs_of(step) == PROGRAMS


def steady(**times: float) -> dict[str, Any]:
    return samples.steady({**TOKEN_US, **times})


def steady_large(**times: float) -> dict[str, Any]:
    return samples.steady({**LARGE_US, **times})


def int8_large(**times: float) -> dict[str, Any]:
    return samples.int8(LARGE, {**LARGE_INT8_US, **times})


def own_trace(layers: int) -> bytes:
    return samples.trace(samples.kernels_of_step("plain_kernels", layers=layers))


def eager_transformers(**changed: Any) -> dict[str, Any]:
    return samples.in_transformers("dynamic", "static eager", **changed)


FLIPS: list[tuple[str, Changes]] = [
    ("DK1", {"traces": {"plain_kernels": own_trace(21)}}),
    ("DK2", {"traces": {"one_kernel": samples.trace([("decode_step_kernel", 132, 5.0)] * 2)}}),
    ("DK3", {"traces": {"max_autotune": samples.trace([("gemm", 132, 5.0)] * 120)}}),
    ("DK4", {"traces": {"kernels": samples.trace(samples.kernels_of_step("kernels"), calls=2)}}),
    ("DK5", {"tokens": {"plain_kernels": 900.0}}),
    ("DK6", {"tokens": {"kernels": 400.0}}),
    ("DK7", {"tokens": {"kernels": 670.0}}),
    ("DK8", {"tokens": {"one_kernel": 700.0}}),
    ("DK9", {"tokens": {"plain_kernels": 1_050.0}}),
    ("DK10", {"data": {"steady_1_1b": steady(kernels=900.0, one_kernel=910.0)}}),
    ("DK11", {"data": {"steady_8b": steady_large(kernels=4_700.0, one_kernel=4_700.0)}}),
    ("DK12", {"data": {"steady_1_1b": steady(kernels=700.0, one_kernel=710.0)}}),
    ("DK13", {"data": {"steady_8b": steady_large(kernels=4_000.0, one_kernel=4_000.0)}}),
    ("DK14", {"data": {"steady_8b": steady_large(plain_kernels=4_900.0)}}),
    ("DK15", {"data": {"steady_1_1b_batch_8": steady(kernels=1_500.0, one_kernel=1_500.0)}}),
    ("DK16", {"data": {"steady_8b_batch_8": steady_large(kernels=5_100.0, one_kernel=5_100.0)}}),
    ("DK17", {"data": {"steady_8b_batch_8": steady_large(kernels=5_100.0)}}),
    ("DK18", {"data": {"steady_1_1b": samples.steady(TOKEN_US, {"kernels": 900.0})}}),
    ("DK19", {"data": {"steady_8b": samples.steady(LARGE_US, {"kernels": 500.0})}}),
    ("DK20", {"data": {"steady_1_1b": steady(one_kernel=700.0)}}),
    ("DK21", {"data": {"errors_1_1b": samples.errors(kernels=0.006)}}),
    ("DK22", {"data": {"parts_8b": samples.parts(LARGE, gate_up=1.6)}}),
    ("DK23", {"data": {"parts_8b": samples.parts(LARGE, gate_up=1.3)}}),
    ("DK24", {"data": {"parts_1_1b": samples.parts(SMALL, start_us=0.05, attend=0.7)}}),
    ("DK25", {"data": {"parts_1_1b": samples.parts(SMALL, start_us=0.0)}}),
    ("DK26", {"data": {"parts_1_1b": samples.parts(SMALL, 8)}}),
    ("DK27", {"data": {"parts_1_1b": samples.parts(SMALL, gate_up=1.5)}}),
    ("DK28", {"tokens": {"one_kernel": 850.0}}),
    ("DK29", {"data": {"steady_1_1b": steady(max_autotune=1_300.0)}}),
    ("DK30", {"data": {"steady_8b": steady_large(kernels=3_000.0)}}),
    ("DK31", {"data": {"int8_8b": int8_large(int8_kernels=2_300.0)}}),
    ("DK32", {"data": {"int8_8b": int8_large(int8_kernels=2_500.0)}}),
    ("DK33", {"data": {"int8_8b": int8_large(int8_kernels=1_800.0)}}),
    ("DK34", {"data": {"errors_1_1b": samples.errors(equal=240)}}),
    ("DK35", {"data": {"errors_8b": samples.errors(int8_error=0.006)}}),
    ("DK36", {"data": {"errors_8b": samples.errors(rounding=0.006)}}),
    ("DK37", {"data": {"tiles": samples.tiles(fastest=0.9)}}),
    ("DK38", {"data": {"in_transformers_compiled": samples.in_transformers("static", gap=0.05)}}),
    ("DK39", {"data": {"in_transformers": eager_transformers(dropped=32)}}),
    ("DK40", {"data": {"in_transformers": eager_transformers(us=13_000.0)}}),
    ("DK41", {"data": {"in_transformers_compiled": samples.in_transformers("static", us=2_700.0)}}),
]


@pytest.mark.parametrize(("claim_id", "changes"), FLIPS, ids=[claim_id for claim_id, _ in FLIPS])
def test_a_claim_flips_when_what_it_is_about_changes(
    device: Device, tmp_path: Path, claim_id: str, changes: Changes
) -> None:
    assert status(device, claim_id) == "holds"
    assert status(changed(device, tmp_path, **changes), claim_id) == "differs"


def test_every_claim_has_a_flip() -> None:
    assert {each.id for each in findings("decode_kernels").claims} == {claim_id for claim_id, _ in FLIPS}


def test_a_step_that_reads_faster_than_the_highest_rate(device: Device, tmp_path: Path) -> None:
    altered = changed(device, tmp_path, data={"steady_8b": steady_large(kernels=1_000.0)})
    found = missing.missing_bars(altered)
    assert re.search(r"8 billion weights: (1\S* ms), most of it reading \1, beyond reading 0", found)


def test_a_model_that_does_not_fit_is_left_out(device: Device, tmp_path: Path) -> None:
    reason = {"left_out": "8b needs 24 GB of memory, 10 GB are free"}
    large = ("steady_8b", "steady_8b_batch_8", "int8_8b", "errors_8b")
    swept = samples.tiles() | {"8b, batch 1, bf16": reason}
    altered = changed(device, tmp_path, data={**dict.fromkeys(large, reason), "tiles": swept})
    assert [status(altered, claim_id) for claim_id in ("DK11", "DK13", "DK31", "DK35")] == ["not measured"] * 4
    assert "8b needs 24 GB" in rung_pieces.rung_table(altered, "8 billion")
    assert "8b needs 24 GB" in integers.int8_table(altered, "8 billion")
    assert "1.1 billion weights" in missing.missing_bars(altered)
    assert "8 billion weights" not in missing.missing_bars(altered)
    assert cells(rung_pieces.share_table(altered), "one-kernel step")[2:] == ["–"]
    assert cells(choosing.choices(altered), "one-kernel step")[-1] == "–"
    with pytest.raises(NotTimed, match="8b needs 24 GB"):
        tiles.tile_table(altered, "8 billion")
    assert status(altered, "DK37") == "holds"


def test_a_variant_that_stopped_says_why(device: Device, tmp_path: Path) -> None:
    data = samples.steady({name: us for name, us in TOKEN_US.items() if name != "one_kernel"})
    data["variants"]["one_kernel"] = {"stopped": "RuntimeError: too many resources"}
    altered = changed(device, tmp_path, data={"steady_1_1b": data})
    assert "too many resources" in rung_pieces.rung_table(altered, "1.1 billion")
    assert status(altered, "DK12") == "holds"  # of the early-launch step alone
    assert status(altered, "DK20") == "not measured"


def cells(html: str, first: str) -> list[str]:
    """The texts of the cells of a table's row without their spreads, found by its first cell."""
    rows = (re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in html.split("<tr")[1:])
    texts = [[re.sub(r"<small>.*?</small>|<[^>]+>", "", cell) for cell in row] for row in rows]
    return next(row for row in texts if row and row[0] == first)


def test_rows_of_the_tables(device: Device) -> None:
    assert cells(waits.program_table(device), "attention")[1:6] == ["22", "11.9 MB", "2.70 µs", "64", "0.48 → 1"]
    assert cells(waits.program_table(device), "all parts")[1:3] == ["111", "2.08 GB"]
    row = cells(rung_pieces.rung_table(device, "1.1 billion"), "early-launch step")
    assert row == ["early-launch step", "111", "1", "590 µs", "590 µs", "80.2 %", "177 mJ"]
    row = cells(rung_pieces.rung_table(device, "8 billion", 8), "early-launch step")
    assert row == ["early-launch step", "3.83 ms", "92.3 %", "144 mJ"]
    row = cells(integers.int8_table(device, "8 billion"), "early-launch step, int8")
    assert row[1:] == ["7.99 GB", "2.00 ms", "90.8 %", "600 mJ", "0.01"]
    assert cells(rung_pieces.share_table(device), "max-autotune graph")[1:] == ["43.0 %", "80.6 %"]
    assert cells(several_texts.share_table(device), "max-autotune graph")[1:3] == ["43.0 %", "41.4 %"]
    assert cells(parts.part_table(device, "1.1 billion"), "attention")[1:4] == ["22", "11.9 MB", "27.6 µs"]
    assert cells(missing.missing_table(device, "1.1 billion"), "attention")[1:] == [
        "24.9 µs",
        "2.87 µs",
        "28.6 µs",
        "-6.61 µs",
    ]
    assert cells(missing.missing_table(device, "8 billion"), "attention")[2] == "–"
    row = cells(tiles.tile_table(device, "1.1 billion"), "output projection")
    assert row[1:] == [
        "8 x 1024, 8 warps, 1 held",
        "8 x 512, 4 warps, 4 held",
        "2",
        "578 µs",
        "590 µs",
        "0.98x",
    ]
    assert cells(choosing.choices(device), "early-launch step")[-2:] == ["0.42x", "0.74x"]
    assert cells(choosing.generate_choices(device), choosing.GENERATE_OURS)[-2:] == ["1.64x", "–"]


def test_the_roofline_has_the_roof_of_reading(device: Device) -> None:
    drawn = parts.part_roofline(device)
    assert "4.40 TB/s" in drawn
    assert "reading, sum" in drawn
    assert drawn.count("the step") >= 1


def test_every_fence_and_figure_of_the_page_shows_the_samples(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    for page in ("decode_kernels", "decode_kernels_texts", "decode_kernels_transformers"):
        shown = page_on_samples("decode_kernels", device, monkeypatch, page)
        assert "Not recorded yet" not in shown
        assert "not timed" not in shown
