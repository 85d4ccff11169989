"""The loops with faults on a CPU with two ranks, and what the second page says about sample recordings."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.capture.ranks import run_ranks
from snippets.lab.finding.book import figure, find_claim, judge
from snippets.lab.finding.device import Device
from snippets.lab.finding.fault import rule_findings, savings_us
from snippets.lab.finding.ranks import on_ranks
from snippets.lab.page.mends import changed_lines, mend_lines
from snippets.several_gpus.experiments import EXPERIMENTS, faults
from snippets.several_gpus.experiments.faults import GROUPS, float32_losses, profiled_ranks
from tests.chapters.several_gpus import link_samples
from tests.chapters.several_gpus.fault_samples import (
    DDP,
    FSDP,
    PAIRS,
    SMALL,
    WORK,
    Pair,
    Rank,
    both,
    calls,
    fault_recordings,
    own,
    profiled,
)
from tests.lab.sample_recordings import save_samples

SIZES = {"width": 32, "blocks": 2, "seq": 4, "batch": 4}
LOOPS = sorted({name.replace("late_small", "late") for _, names in GROUPS.values() for name in names})


def losses_and_calls(rank: int, world: int) -> dict[str, tuple[list[float], dict[str, int]]]:
    """Loop -> its first losses on this rank, and the collectives of a later step by operator."""
    from torch.profiler import profile

    from snippets.several_gpus import faults as loops

    found = {}
    for name in LOOPS:
        loop = getattr(loops, name)("cpu", rank, world, **SIZES)
        losses = [loss.item() for loss in islice(loop, 4)]
        with profile(acc_events=True) as profiler:
            next(loop)
        names = Counter(event.name for event in profiler.events())
        found[name] = losses, {name: names[name] for name in names if name.startswith(("c10d::", "torch.distr"))}
    return found


@pytest.fixture(scope="module")
def ran() -> list[dict[str, tuple[list[float], dict[str, int]]]]:
    return run_ranks(losses_and_calls, 2, limit_s=300)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_the_mean_of_the_ranks_is_the_loss_on_one_gpu(name: str, ran: list[Any]) -> None:
    """Later losses are right only if the gradients were averaged."""
    sequences = 2 * SIZES["batch"] + SIZES["batch"] // 2 * name.startswith("uneven")
    expected = float32_losses("cpu", sequences, SIZES["width"], SIZES["blocks"], SIZES["seq"], 4)
    means = [sum(losses) / 2 for losses in zip(*(rank[name][0] for rank in ran), strict=True)]
    assert means == pytest.approx(expected, rel=1e-5)
    assert max(expected) - min(expected) > 0.01


@pytest.mark.slow
def test_ranks_of_an_uneven_loop_have_their_share(ran: list[Any]) -> None:
    first, second = (rank["uneven_before"][0][0] for rank in ran)
    assert first / second == pytest.approx(6 / 4, rel=0.2)


ALL_REDUCE, GATHER, SCATTER = "c10d::allreduce_", "c10d::_allgather_base_", "c10d::_reduce_scatter_base_"
SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "operator", "count"),
    [
        ("ddp_after", ALL_REDUCE, 1),
        ("unused_before", ALL_REDUCE, 2),
        ("unused_before", SEARCH, 1),
        ("afterwards_before", ALL_REDUCE, 12),
        ("no_sync_before", ALL_REDUCE, 4),
        ("no_sync_backward", ALL_REDUCE, 4),
        ("no_sync_after", ALL_REDUCE, 1),
        ("root_only_before", GATHER, 1),
        ("root_only_before", SCATTER, 1),
        ("fsdp_after", GATHER, 4),
        ("fsdp_after", SCATTER, 2),
    ],
)
def test_collectives_of_a_step(name: str, operator: str, count: int, ran: list[Any]) -> None:
    assert [rank[name][1].get(operator, 0) for rank in ran] == [count, count]


def probed(rank: int, world: int) -> dict[str, Any]:
    return profiled_ranks(TorchInstruments(), "cpu", rank, world, **SIZES, rounds=2, steps=2)


@pytest.mark.slow
def test_the_probe_profiles_the_ranks_that_it_names() -> None:
    first, second = run_ranks(probed, 2)
    assert first == second
    assert {name: sorted(each["nccl_us"]) for name, each in first.items()} == {
        "none": [],
        "rank 0": ["0"],
        "all": ["0", "1"],
    }
    assert all(len(each["us"]) == 2 and min(each["us"]) > 0 for each in first.values())


# -- what the page says


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return save_samples(tmp_path_factory.mktemp("samples"), fault_recordings())


def changed(device: Device, root: Path, pairs: Mapping[str, Pair], data: Any = None) -> Device:
    """The samples with changed recordings; all others are links."""
    shutil.copytree(device.root, root, copy_function=os.link, dirs_exist_ok=True)
    return save_samples(root, fault_recordings(pairs, data))


def status(device: Device, claim_id: str) -> str:
    chapter, claim = find_claim(claim_id)
    return judge(claim, chapter, device).status


def test_loops_with_faults_share_no_group_with_other_loops() -> None:
    own = {each.group for each in faults.EXPERIMENTS} - {""}
    assert own == {f"{group}_faults" for group in GROUPS}
    assert own.isdisjoint(each.group for each in EXPERIMENTS if each not in faults.EXPERIMENTS)


def test_each_loop_has_a_sample() -> None:
    assert {each.name for each in faults.EXPERIMENTS} == {*PAIRS, "profiled_ranks"}


def test_a_finding_of_one_rank_counts(device: Device) -> None:
    """Only rank 0 reads."""
    first, second = on_ranks(device["several_gpus/item_before"])
    (finding,) = rule_findings(first, "sync-in-step")
    assert "aten::item" in finding.where
    assert rule_findings(second, "sync-in-step") == ()
    assert savings_us(second, "sync-in-step") == (finding.saving_us_per_step,)


def timed(name: str, us: float) -> dict[str, Pair]:
    return {name: replace(PAIRS[name], us=us)}


SWAPPED = {"uneven_before": replace(PAIRS["uneven_before"], ranks=PAIRS["uneven_before"].ranks[::-1])}
AS_LATE = {"late_before": PAIRS["late_small_before"], "late_after": SMALL}
OTHER_LATE = {"late_small_before": replace(PAIRS["late_small_before"], ranks=PAIRS["late_small_before"].ranks[::-1])}
SCATTERED = both(13_600, *WORK, *calls("allreduce", 20, 2_000, 125, 125))
LESS_UNEVEN = Pair(
    13_000,
    (
        Rank((*own(12_000), ("allreduce", 12_000, 1_000))),
        Rank((*own(10_500), ("allreduce", 10_500, 2_500))),
    ),
)
SHORT_BUCKET = both(13_500, *WORK, ("allreduce", 10_000, 1_600), *own(1_000, 11_600))
SHORT_CALLS = both(13_600, *WORK, *calls("allreduce", 20, 10_000, 80, 80), *own(1_000, 11_600))
SHORT_SHARDS = both(
    13_400, ("allgather", 0, 700), *own(10_000, 700), ("reducescatter", 10_700, 700), *own(1_500, 11_400)
)
LESS_OFTEN = both(14_000, *WORK, *calls("allreduce", 36, 3_200, 200, 240), *own(1_800, 12_000))
DDP_OF_SHORT_PRODUCTS = both(11_500, *own(9_000), *calls("allreduce", 9, 2_000, 300, 750), *own(1_000, 9_000))
FSDP_OF_SHORT_PRODUCTS = both(11_800, *own(9_000, 100), *calls("allgather", 8, 0, 200, 1_200))
ONE_QUEUE = {"one_queue_before": replace(FSDP, us=13_200)}
FLIPS: list[tuple[str, Mapping[str, Pair], Any]] = [
    ("SF1", {"uneven_before": PAIRS["uneven_after"]}, None),
    ("SF2", {"uneven_before": LESS_UNEVEN}, None),
    ("SF3", timed("uneven_before", 11_500), None),
    ("SF4", SWAPPED, None),
    ("SF5", SWAPPED, None),
    ("SF6", timed("uneven_before", 14_500), None),
    ("SF7", timed("late_before", 22_000), None),
    ("SF8", AS_LATE, None),
    ("SF9", {"late_small_before": SMALL}, None),
    ("SF10", timed("late_small_before", 4_000), None),
    ("SF11", OTHER_LATE, None),
    ("SF12", {"one_bucket_before": DDP}, None),
    ("SF13", {"one_bucket_before": SHORT_BUCKET}, None),
    ("SF14", timed("one_bucket_before", 11_600), None),
    ("SF15", {"one_bucket_before": DDP}, None),
    ("SF16", {"ddp_after": PAIRS["one_bucket_before"]}, None),
    ("SF17", {"afterwards_before": DDP}, None),
    ("SF18", {"afterwards_before": SHORT_CALLS}, None),
    ("SF19", timed("afterwards_before", 11_600), None),
    ("SF20", {"afterwards_before": SCATTERED}, None),
    ("SF21", {"unused_before": DDP}, None),
    ("SF22", {"unused_before": DDP}, None),
    ("SF23", timed("unused_before", 11_000), None),
    ("SF24", timed("one_queue_before", 11_000), None),
    ("SF25", ONE_QUEUE, None),
    ("SF26", {"root_only_before": FSDP}, None),
    ("SF27", {"root_only_before": SHORT_SHARDS}, None),
    ("SF28", timed("root_only_before", 11_000), None),
    ("SF29", {"root_only_before": FSDP}, None),
    ("SF30", {"fsdp_after": PAIRS["root_only_before"]}, None),
    ("SF31", {"no_sync_before": PAIRS["no_sync_after"]}, None),
    ("SF32", {"no_sync_backward": PAIRS["no_sync_after"]}, None),
    ("SF33", timed("no_sync_before", 12_100), None),
    ("SF34", timed("no_sync_backward", 12_000), None),
    ("SF35", {"item_before": replace(SMALL, us=3_680)}, None),
    ("SF36", timed("item_before", 3_620), None),
    ("SF37", timed("item_before", 3_800), None),
    ("SF38", {}, {"profiled_ranks": profiled(one=5_100.0)}),
    ("SF39", {}, {"profiled_ranks": profiled(alone=890.0)}),
    ("SF40", {"no_sync_before": PAIRS["no_sync_after"]}, None),
    ("SF41", {"no_sync_before": LESS_OFTEN}, None),
    ("SF42", timed("late_small_before", 26_000), None),
    ("SF43", {"ddp_after": DDP_OF_SHORT_PRODUCTS}, None),
    ("SF44", {"fsdp_after": FSDP_OF_SHORT_PRODUCTS}, None),
    ("SF45", {"unused_before": DDP}, None),
]


@pytest.mark.parametrize(("claim_id", "pairs", "data"), FLIPS, ids=[claim_id for claim_id, _, _ in FLIPS])
def test_a_claim_flips_when_what_it_is_about_changes(
    device: Device, tmp_path: Path, claim_id: str, pairs: Mapping[str, Pair], data: Any
) -> None:
    assert status(device, claim_id) == "holds"
    assert status(changed(device, tmp_path, pairs, data), claim_id) == "differs"


MENDS = [
    ("uneven_before", "uneven_after"),
    ("one_bucket_before", "ddp_after"),
    ("afterwards_before", "afterwards_after"),
    ("unused_before", "ddp_after"),
    ("root_only_before", "fsdp_after"),
    ("no_sync_before", "no_sync_after"),
    ("no_sync_backward", "no_sync_after"),
    ("item_before", "item_after"),
]


@pytest.mark.parametrize(("before", "after"), MENDS)
def test_a_mend_is_a_few_lines(before: str, after: str) -> None:
    assert 1 <= changed_lines(mend_lines("several_gpus", before, after)) <= 5


def test_a_share_that_the_page_lets_compute(device: Device) -> None:
    assert figure("several_gpus.uneven_sequences", device).text == "1.20x"
    assert figure("several_gpus.one_bucket_bytes", device).value == 2 * 4 * (8 * 4096**2 + 7 * 4096)


def test_the_transfer_that_the_page_lets_compute(tmp_path: Path) -> None:
    link = [each for each in link_samples.recordings() if each[0].experiment == "link_2"]
    device = save_samples(tmp_path, link)
    size, bus, whole, half = (
        figure(f"several_gpus.{name}", device).number
        for name in ("one_bucket_bytes", "largest_bus", "bucket_us", "half_bucket_us")
    )
    assert whole == pytest.approx(1e6 * size / bus)
    assert half == pytest.approx(whole / 2)
    assert 2_000 < whole < 10_000
