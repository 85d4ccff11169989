"""What the page on split weights says about sample recordings: claims flip when what they are about changes."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.trace.events import CpuOp, GpuActivity
from snippets.lab.finding.book import figure, find_claim, judge
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.device import Device
from snippets.several_gpus.experiments import DECODING, MESH, PIPELINE, SHARDED, TENSOR_PARALLEL
from snippets.several_gpus.findings import decoding, gathering, mesh, pipeline, sharded, splitting, tensor_parallel
from tests.chapters.several_gpus import shard_samples as made
from tests.lab.sample_recordings import save_samples

Changes = Mapping[str, Any]


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return save_samples(tmp_path_factory.mktemp("samples"), made.recordings())


def changed(device: Device, root: Path, **changes: Any) -> Device:
    """The samples with changed recordings; all others are links."""
    shutil.copytree(device.root, root, copy_function=os.link, dirs_exist_ok=True)
    return save_samples(root, made.recordings(**changes))


def status(device: Device, claim_id: str) -> str:
    chapter, claim = find_claim(claim_id)
    return judge(claim, chapter, device).status


def test_each_experiment_has_a_sample() -> None:
    listed = (*SHARDED, *TENSOR_PARALLEL, *DECODING, *MESH, *PIPELINE)
    assert {recording.experiment for recording, _ in made.recordings()} == {each.name for each in listed}


FLIPS: list[tuple[str, Changes]] = [
    ("SG40", {"steps": {"fsdp_per_block": made.fsdp_step(gathers=4)}}),
    ("SG41", {"steps": {"fsdp_kept": made.fsdp_step(gathers=8)}}),
    ("SG42", {"data": {"fsdp_memory": made.memory(state=1.1)}}),
    ("SG43", {"data": {"fsdp_memory": made.memory(kept=0.7)}}),
    ("SG44", {"data": {"fsdp_memory": made.memory(root=0.9)}}),
    ("SG45", {"times_us": {"fsdp_root_only": 37_000.0}}),
    ("SG46", {"times_us": {"fsdp_ahead": 39_000.0}}),
    ("SG47", {"times_us": {"fsdp_kept": 44_000.0}}),
    ("SG48", {"steps": {"fsdp_per_block": made.fsdp_step(exposed_us=300.0)}}),
    ("SG49", {"data": {"fsdp_tokens": made.by_tokens(many=1.3)}}),
    ("SG50", {"data": {"fsdp_tokens": made.by_tokens(few=1.1)}}),
    ("SG72", {"steps": {"fsdp_per_block": made.fsdp_step(pieces=10)}}),
    ("SG73", {"data": {"fsdp_tokens": made.by_tokens(some=1.5)}}),
    ("SG51", {"data": {"tensor_rows_on_2": made.tensor_rows(2, found=2.0)}}),
    ("SG52", {"data": {"tensor_rows_on_2": made.tensor_rows(2, few=2.0)}}),
    ("SG53", {"data": {"tensor_rows_on_2": made.tensor_rows(2, found=4.0)}}),
    ("SG54", {"data": {"tensor_rows_on_4": made.tensor_rows(4, found=0.5)}}),
    ("SG55", {"data": {"tensor_rows_on_2": made.tensor_rows(2, sequence=1.5)}}),
    ("SG56", {"steps": {"tensor_sequence": made.forward_step(0, pairs=2)}}),
    ("SG57", {"steps": {"tensor_reduced": made.forward_step(8)}}),
    ("SG58", {"data": {"tensor_rows_on_2": made.tensor_rows(2, overlapped=1.1)}}),
    ("SG59", {"data": {"tensor_rows_on_2": made.tensor_rows(2, overlapped_few=0.9)}}),
    ("SG60", {"data": {"decode_on_2": made.decode(2, sum_us=1.0, off_us=-200.0)}}),
    ("SG61", {"data": {"decode_on_2": made.decode(2, shot_us=15.0)}}),
    ("SG62", {"data": {"decode_on_2": made.decode(2, shot_us=30.0)}}),
    ("SG63", {"data": {"decode_on_4": made.decode(4, shot_us=30.0)}}),
    ("SG64", {"data": {"decode_on_2": made.decode(2, off_us=2_000.0)}}),
    ("SG65", {"times_us": {"mesh_late": 16_100.0}}),
    ("SG66", {"steps": {"mesh_late": made.mesh_step(1)}}),
    ("SG67", {"data": {"bubble_on_2": made.bubbles(2, more=0.1)}}),
    ("SG68", {"data": {"bubble_on_2": made.bubbles(2, more=0.1)}}),
    ("SG69", {"data": {"bubble_on_4": made.bubbles(4, more=0.1)}}),
    ("SG70", {"times_us": {"pipeline_8_on_2": 52_000.0}}),
    ("SG71", {"steps": {"pipeline_8_on_2": made.stage_step(2, count=4)}}),
]


@pytest.mark.parametrize(("claim_id", "changes"), FLIPS, ids=[claim_id for claim_id, _ in FLIPS])
def test_a_claim_flips_when_what_it_is_about_changes(
    device: Device, tmp_path: Path, claim_id: str, changes: Changes
) -> None:
    assert status(device, claim_id) == "holds"
    assert status(changed(device, tmp_path, **changes), claim_id) == "differs"


def test_every_claim_can_flip() -> None:
    parts = (sharded, gathering, tensor_parallel, decoding, mesh, pipeline)
    claims = {value.id for part in parts for value in vars(part).values() if isinstance(value, Claim)}
    assert claims == {claim_id for claim_id, _ in FLIPS}


def test_formulas(device: Device) -> None:
    assert sharded.weights(device["several_gpus/fsdp_per_block"]) == made.WEIGHTS
    assert figure("several_gpus.fsdp_derived_bytes", device).value == 3 * made.WEIGHTS
    assert figure("several_gpus.fsdp_measured_bytes", device).value == 3 * made.WEIGHTS
    texts = {
        name: figure(f"several_gpus.{name}", device).text
        for name in ("fsdp_hidden_from", "tensor_ratio_book_2", "tensor_ratio_large_2", "bubble_formula_2_4")
    }
    assert texts == {
        "fsdp_hidden_from": "1,201",
        "tensor_ratio_book_2": "0.52x",
        "tensor_ratio_large_2": "0.11x",
        "bubble_formula_2_4": "20.0 %",
    }


def test_the_opening_counts_what_noise_makes_faster_as_the_work_alone(device: Device, tmp_path: Path) -> None:
    names = ("sharded weights, 512 tokens", "sharded weights, 8,192 tokens", "split MLP, hidden width 3,072")
    found = splitting.alone_percents(changed(device, tmp_path, data={"fsdp_tokens": made.by_tokens(many=0.9)}))
    assert tuple(found)[:3] == names
    assert found["sharded weights, 8,192 tokens"] == 100.0
    assert found["pipeline, 2 micro-batches"] == pytest.approx(100 - 100 / 3 - 2)


def test_a_way_that_did_not_run_is_not_measured(device: Device, tmp_path: Path) -> None:
    data = made.tensor_rows(2)
    for rows in data["widths"]["4096x14336"].values():
        rows["overlapped"] = {"stopped": "RuntimeError: no symmetric memory"}
    altered = changed(device, tmp_path, data={"tensor_rows_on_2": data})
    assert [status(altered, claim_id) for claim_id in ("SG58", "SG59", "SG51")] == [
        "not measured",
        "not measured",
        "holds",
    ]
    assert "overlapped" not in tensor_parallel.way_lines(altered)


def test_every_piece_shows_the_samples(device: Device) -> None:
    pieces = [
        *(
            sharded.given,
            sharded.traffic_table,
            sharded.ranks,
            sharded.lanes,
            sharded.memory_table,
            sharded.token_lines,
        ),
        *(
            tensor_parallel.ratio_table,
            tensor_parallel.way_lines,
            mesh.mesh_ranks,
            tensor_parallel.ranks,
            tensor_parallel.lanes,
            decoding.token_table,
        ),
        *(pipeline.bubble_table, pipeline.ranks, pipeline.lanes),
    ]
    assert [piece for piece in pieces if not re.search("<(table|figure)", piece(device))] == []
    for part in (sharded, gathering, tensor_parallel, decoding, mesh, pipeline):
        assert all(measure(device).text for measure in part.FIGURES.values())


def test_packing_is_what_fsdp_launches_and_does_not_send() -> None:
    gather = CpuOp("FSDP::all_gather (blocks.0)", 0.0, 9.0, "1/1", is_annotation=True)
    convert = CpuOp("aten::_foreach_copy_", 1.0, 2.0, "1/1", parent=gather)
    send = CpuOp("nccl:_all_gather_base", 4.0, 2.0, "1/1", parent=gather)

    def kernel(name: str, op: CpuOp | None) -> GpuActivity:
        return GpuActivity(name, 0.0, 5.0, kind="kernel", device=0, stream=7, op=op)

    assert gathering.is_packing(kernel("multi_tensor_apply_kernel", convert))
    assert not gathering.is_packing(kernel("multi_tensor_apply_kernel", None))
    assert not gathering.is_packing(kernel("multi_tensor_apply_kernel", CpuOp("aten::_fused_adamw_", 1.0, 2.0, "1/1")))
    assert not gathering.is_packing(kernel(made.ALL_GATHER, send))
