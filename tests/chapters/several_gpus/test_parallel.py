"""The ladder of data parallel and its probes, in two processes with gloo."""

from __future__ import annotations

import math

import pytest
import torch

from snippets.lab.capture.ranks import run_ranks
from snippets.several_gpus.experiments import data_parallel, training
from snippets.several_gpus.experiments.clocks import ROUNDS
from snippets.several_gpus.model import parameter_count, random_model
from snippets.several_gpus.parallel import fill_buckets
from tests.chapters.several_gpus import ranked

WORLD = 2
PARAMETERS = 2 * (8 * 16**2 + 7 * 16)


def test_parameters_are_counted() -> None:
    model = random_model(16, 2, "cpu", torch.float32)
    assert parameter_count(16, 2) == PARAMETERS == sum(each.numel() for each in model.parameters())


def test_a_bucket_is_cut_where_it_is_full_and_no_parameter_is_divided() -> None:
    sizes = [10, 1, 30, 1, 5]
    parameters = [torch.empty(size, dtype=torch.uint8) for size in sizes]
    buckets = fill_buckets(parameters, bucket_bytes=6)
    assert [[each.numel() for each in bucket] for bucket in buckets] == [[5, 1], [30], [1, 10]]


@pytest.fixture(scope="module")
def gradients() -> list[dict[str, list[list[float]]]]:
    return run_ranks(ranked.gradients_of_rungs, WORLD)


@pytest.mark.slow
@pytest.mark.parametrize("rung", ranked.RUNGS)
def test_each_rung_has_the_mean_of_the_gradients_of_one_model(
    gradients: list[dict[str, list[list[float]]]], rung: str
) -> None:
    model = random_model(ranked.WIDTH, ranked.BLOCKS, "cpu", torch.float32)
    for rank in range(WORLD):
        batches = training.batches_of(rank, ranked.WIDTH, ranked.TOKENS, "cpu", torch.float32)
        x, y = batches[0]
        (torch.nn.functional.mse_loss(model(x), y) / WORLD).backward()
    for own, expected in zip(gradients[0][rung], model.parameters(), strict=True):
        assert expected.grad is not None
        assert own == pytest.approx(expected.grad.flatten().tolist(), rel=1e-4, abs=1e-7)
    assert gradients[0][rung] == gradients[1][rung]


@pytest.mark.slow
def test_rungs_of_our_own_send_a_parameter_all_or_buckets() -> None:
    first, second = run_ranks(ranked.calls_of_rungs, WORLD)
    norm, up, down = [16, 16], [64 * 16, 64], [16 * 64, 16]
    assert first == second
    assert first["each_parameter"] == 2 * (norm + up + down)
    assert first["one_bucket"] == [PARAMETERS]
    bucket = [16 + 16 * 64, 64 + 64 * 16, 32 + 16 + 16 * 64, 64 + 64 * 16, 32]
    assert first["buckets_in_backward"] == bucket
    assert sum(bucket) == PARAMETERS


@pytest.mark.slow
@pytest.mark.parametrize("variant", data_parallel.RUNGS)
def test_a_rung_agrees_with_one_model_in_float32(variant: str) -> None:
    (losses_0, expected), (losses_1, _) = run_ranks(ranked.loops, WORLD, variant)
    means = [(one + other) / 2 for one, other in zip(losses_0, losses_1, strict=True)]
    assert means == pytest.approx(expected, rel=1e-5)
    assert means[0] > means[3]
    assert all(map(math.isfinite, means))


def test_ranks_that_drift_apart_are_wrong() -> None:
    messages = run_ranks(ranked.loop_without_mean, WORLD)
    assert all(message.startswith("sums of weights differ by ") for message in messages)


def test_the_slowest_rank_counts() -> None:
    assert run_ranks(ranked.slowest, WORLD) == [[2.0, 5.0], [2.0, 5.0]]


@pytest.mark.slow
def test_probes_return_what_the_findings_read() -> None:
    found, other = run_ranks(ranked.probes, WORLD)
    assert found.keys() == other.keys()
    link = found["link"]
    assert set(link["collectives"]) == {"all_reduce", "all_gather", "reduce_scatter"}
    sample = link["collectives"]["all_reduce"]["1024"]
    assert (list(sample), len(sample["us"]), len(sample["launched_us"])) == (["us", "launched_us"], ROUNDS, ROUNDS)
    assert (link["calls"]["bytes"], list(link["calls"]["counts"])) == (1 << 20, ["1", "4"])
    assert link["copies"] == link["symmetric"] == {"missing": "needs GPUs that address each other's memory"}
    tokens = found["tokens"]
    assert (tokens["bytes"], tokens["matmul"]["flops"]) == (2 * PARAMETERS, 2 * 4 * 16 * 64)
    keys = ["alone_us", "one_bucket_us", "ddp_us"]
    assert {count: list(one) for count, one in tokens["counts"].items()} == {"2": keys, "4": keys}
    options = found["ddp_options"]
    assert options["bytes"] == 4 * PARAMETERS
    assert {name: sum(one["buckets"]) for name, one in options["variants"].items()} == dict.fromkeys(
        ("bucket_cap_mb=1", "bucket_cap_mb=2", "defaults", "large first bucket", "gradient_as_bucket_view"),
        4 * PARAMETERS,
    )
    accumulated = options["accumulation"]
    assert (accumulated["batches"], accumulated["tokens"], len(accumulated["no_sync_us"])) == (4, 4, ROUNDS)
    transfers = found["beside"]["transfers"]
    assert list(transfers) == ["all_reduce", "all_gather", "max_ctas=2"]
    assert transfers["all_reduce"]["outlasted"]
    assert found["beside"]["flops"] == 2 * 8**3
