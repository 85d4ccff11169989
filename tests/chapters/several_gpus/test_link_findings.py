"""Claims about the link, data parallel and overlapped products: each flips when what it is about changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.finding.book import figure, find_claim, judge
from snippets.lab.finding.device import Device
from snippets.several_gpus.experiments import beside, data_parallel, link
from snippets.several_gpus.findings import data_parallel as found_parallel, link as found_link
from tests.chapters.several_gpus import link_samples
from tests.chapters.several_gpus.link_samples import recordings
from tests.lab.sample_recordings import save_samples

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
    own = (*link.EXPERIMENTS, *data_parallel.EXPERIMENTS, *beside.EXPERIMENTS)
    assert {recording.experiment for recording, _ in recordings()} == {each.name for each in own}


def test_sizes_of_the_findings_are_those_of_the_experiments() -> None:
    shape = data_parallel.SHAPE
    assert tuple(shape.values()) == (found_parallel.WIDTH, found_parallel.BLOCKS, found_parallel.TOKENS)
    assert found_parallel.gradient_bytes(2048, 16) == 2 * 16 * (8 * 2048**2 + 7 * 2048) == 1_074_200_576
    assert found_link.size_text(4096) == "4 KiB"
    assert found_link.size_text(1 << 30) == "1 GiB"


@pytest.mark.parametrize(
    ("collective", "ranks", "share"),
    [("all_reduce", 2, 1.0), ("all_reduce", 4, 1.5), ("all_gather", 2, 0.5), ("reduce_scatter", 4, 0.75)],
)
def test_what_a_rank_sends(collective: str, ranks: int, share: float) -> None:
    assert found_link.sent_share(collective, ranks) == share


def test_figures_of_the_link(device: Device) -> None:
    names = ("latency_us", "one_way", "largest_bus", "half_predicted", "half_measured", "many_calls_us", "call_bytes")
    assert {name: figure(f"several_gpus.{name}", device).text for name in names} == {
        "latency_us": "10.0 µs",
        "one_way": "396 GB/s",
        "largest_bus": "319 GB/s",
        "half_predicted": "3.19 MB",
        "half_measured": "3.38 MB",
        "many_calls_us": "30.7 ms",
        "call_bytes": "64 MiB",
    }


def test_tokens_that_hide_half(device: Device) -> None:
    # 4 P T / C = P / B: 7.5e14 / 4 / 319e9
    assert figure("several_gpus.half_hidden_predicted", device).value == 588
    assert figure("several_gpus.half_hidden", device).value == 545


def test_the_product_on_what_is_left(device: Device) -> None:
    assert figure("several_gpus.product_predicted_us", device).number == pytest.approx(1_450 * 132 / 108)
    assert figure("several_gpus.multiprocessors_left", device).value == 108


def test_transfers_that_ended_early_time_nothing(device: Device, tmp_path: Path) -> None:
    device = changed(device, tmp_path, data={"beside": link_samples.beside(outlasted=False)})
    assert status(device, "SG28") == "not measured"


def test_a_part_that_failed_is_not_measured(device: Device, tmp_path: Path) -> None:
    data = link_samples.link() | {"symmetric": {"stopped": "RuntimeError: no peers"}}
    device = changed(device, tmp_path, data={"link_2": data})
    assert [status(device, claim_id) for claim_id in ("SG11", "SG1")] == ["not measured", "holds"]


def of_link(**changes: Any) -> Changes:
    return {"data": {"link_2": link_samples.link(**changes)}}


def of_four(**changes: Any) -> Changes:
    return {"data": {"link_4": link_samples.link(4, **{"bus": 350e9, **changes})}}


def of_options(**changes: Any) -> Changes:
    return {"data": {"ddp_options": link_samples.ddp_options(**changes)}}


def of_beside(**changes: Any) -> Changes:
    return {"data": {"beside": link_samples.beside(**changes)}}


FLIPS: list[tuple[str, Changes]] = [
    ("SG1", of_link(bus=200e9)),
    ("SG2", of_link(copy=300e9)),
    ("SG3", of_link(other_copy=0.6)),
    ("SG4", of_link(latency=0.1)),
    ("SG5", of_link(launched=11.0)),
    ("SG6", of_link(slow_to=64 << 20)),
    ("SG7", of_link(gather=0.7)),
    ("SG8", of_four(bus=250e9)),
    ("SG9", of_link(launched=0.5)),
    ("SG10", of_link(calls=0.2)),
    ("SG11", of_link(one_shot_us=3.0)),
    ("SG12", of_four(two_shot_us=2.0)),
    ("SG13", of_four(two_shot_us=0.7)),
    ("SG14", {"iterations": {"one_bucket": 27_000.0}}),
    ("SG15", {"iterations": {"buckets_in_backward": 23_000.0}}),
    ("SG16", {"traces": {"each_parameter": (95, False)}}),
    ("SG17", {"traces": {"one_bucket": (1, True)}}),
    ("SG18", {"traces": {"ddp_views": (16, False)}}),
    ("SG19", {"traces": {"ddp": (16, True, True, 2.0, 48)}}),
    ("SG20", of_options(one=64)),
    ("SG21", of_options(large=1.0)),
    ("SG22", of_options(quarter=1.1)),
    ("SG23", of_options(no_sync=0.98)),
    ("SG24", {"data": {"tokens": link_samples.tokens(hiding=0.1)}}),
    ("SG25", {"data": {"tokens": link_samples.tokens(hiding=3.0)}}),
    ("SG26", {"data": {"tokens": link_samples.tokens(tail=1.2)}}),
    ("SG27", of_beside(blocks=64)),
    ("SG28", of_beside(slowdown=1.0)),
    ("SG29", of_beside(gather=1.1)),
    ("SG30", of_beside(slowdown=1.0)),
    ("SG31", of_beside(few=8)),
    ("SG32", of_beside(fewer=1.3)),
    ("SG33", of_beside(transfer=1.0)),
    ("SG34", of_beside(copy=1.2)),
    ("SG35", of_beside(pair=1.0)),
    ("SG37", {"traces": {"each_parameter": (96, False, False)}}),
    ("SG36", of_beside(copied="copy_kernel")),
    ("SG82", {"traces": {"ddp_views": (16, True, True, 1.1)}}),
    ("SG83", {"traces": {"ddp_views": (16, True, True, 1.5)}}),
    ("SG84", {"traces": {"ddp_views": (16, True, True, 1.0)}}),
]


@pytest.mark.parametrize(("claim_id", "changes"), FLIPS, ids=[claim_id for claim_id, _ in FLIPS])
def test_a_claim_flips_when_what_it_is_about_changes(
    device: Device, tmp_path: Path, claim_id: str, changes: Changes
) -> None:
    assert status(device, claim_id) == "holds"
    assert status(changed(device, tmp_path, **changes), claim_id) == "differs"
