"""What the pages say about sample recordings: claims flip when what they are about changes, and each fence runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from snippets.decoder import findings
from snippets.decoder.experiments import EXPERIMENTS
from snippets.decoder.findings import limits, products, reading
from snippets.decoder.model import CONFIGS, bytes_per_token
from snippets.lab.finding.book import figure, find_claim, judge
from snippets.lab.finding.device import Device
from snippets.lab.page.mends import changed_lines, mend_lines
from tests.chapters.decoder import probed
from tests.chapters.decoder.samples import eager_token, graph_token, recordings
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


@pytest.mark.parametrize("size", ["1.1b", "8b"])
def test_shapes_are_those_of_the_model(size: str) -> None:
    shape, config = reading.SHAPES[size], CONFIGS[size]
    assert (shape.layers, shape.dim, shape.hidden) == (config.layers, config.dim, config.hidden)
    assert (shape.heads, shape.kv_heads, shape.vocab) == (config.heads, config.kv_heads, config.vocab)
    assert shape.read_bytes(3, 70) == bytes_per_token(config, 3, 70)


def test_each_experiment_has_a_sample() -> None:
    assert {recording.experiment for recording, _ in recordings()} == {each.name for each in EXPERIMENTS}


def test_sizes_of_the_smaller_model() -> None:
    assert (reading.SMALL.weights, reading.SMALL.cache_bytes) == (1_100_048_384, 22_528)


def test_figures_of_the_first_section(device: Device) -> None:
    texts = {name: figure(f"decoder.{name}", device).text for name in ("floor_us", "ridge", "generate_over_floor")}
    assert texts == {"floor_us": "473 µs", "ridge": "180", "generate_over_floor": "30.9x"}


def test_a_token_of_generate_is_counted_between_two_choices(device: Device) -> None:
    assert figure("decoder.generate_launches", device).value == 22 * 45 + 2
    assert figure("decoder.generate_host_reads", device).value == 2


def test_products_are_known_by_their_order(device: Device) -> None:
    step = device["decoder/joined"].step
    known = products.product_bytes(step)
    assert len(known) == 22 * 4 + 1
    assert sum(known.values()) == 2 * reading.SMALL.read_weights
    assert products.product_bytes(device["decoder/eager"].step) == {}


FLIPS: list[tuple[str, Changes]] = [
    ("DE1", {"data": {"ceilings": probed.ceilings(read=3.5e12)}}),
    ("DE2", {"data": {"generate_times": probed.generate_times(dynamic=4_000.0)}}),
    ("DE3", {"traces": {"generate": eager_token(20)}}),
    ("DE4", {"traces": {"generate": eager_token(20)}}),
    ("DE5", {"data": {"generate_times": probed.generate_times(dynamic=4_000.0)}}),
    ("DE6", {"traces": {"generate": eager_token(45)}, "reads": {"generate": 3}}),
    ("DE7", {"traces": {"generate_never": eager_token(45, 2)}, "reads": {"generate_never": 2}}),
    ("DE8", {"data": {"generate_times": probed.generate_times(late=12_000.0)}}),
    ("DE9", {"data": {"generate_times": probed.generate_times(static_eager=10_000.0)}}),
    ("DE10", {"iterations": {"eager": 16_000.0}}),
    ("DE11", {"iterations": {"static": 15_000.0}}),
    ("DE12", {"iterations": {"eager": 2_500.0}}),
    ("DE13", {"traces": {"graph": eager_token()}}),
    ("DE14", {"iterations": {"graph": 5_000.0}}),
    ("DE15", {"iterations": {"compiled": 2_200.0}}),
    ("DE16", {"iterations": {"reduce_overhead": 2_200.0}}),
    ("DE17", {"iterations": {"layers": 1_900.0}}),
    ("DE18", {"iterations": {"joined": 1_295.0}}),
    ("DE19", {"iterations": {"max_autotune": 1_400.0}}),
    ("DE20", {"iterations": {"layers": 2_100.0}}),
    ("DE21", {"iterations": {"joined": 3_000.0}}),
    ("DE22", {"traces": {"layers": graph_token(20)}}),
    ("DE23", {"iterations": {"joined": 500.0}}),
    ("DE24", {"data": {"boundary": probed.boundary(us=2.0)}}),
    ("DE25", {"data": {"boundary": probed.boundary(stream_us=2.0)}}),
    ("DE26", {"data": {"boundary": probed.boundary(us=0.5)}}),
    ("DE27", {"data": {"steady_8b": probed.steady({"max_autotune": 9_000.0, "layers": 9_500.0})}}),
    ("DE28", {"data": {"steady_8b": probed.steady({"max_autotune": 9_000.0, "layers": 9_500.0})}}),
    ("DE29", {"data": {"steady_1b": probed.steady({"eager": 2_000.0, "joined": 1_200.0})}}),
    ("DE79", {"data": {"steady_1b": probed.steady({"fused": 1_300.0, "joined": 1_200.0})}}),
    ("DE30", {"iterations": {"graph": 900.0}}),
    ("DE31", {"data": {"prefill_lengths": probed.prefill_lengths(slow=3.0)}}),
    ("DE32", {"data": {"prefill_lengths": probed.prefill_lengths(products=0.4)}}),
    ("DE33", {"data": {"batches": probed.batches(knee=100.0)}}),
    ("DE34", {"data": {"batches": probed.batches(knee=3.0)}}),
    ("DE35", {"data": {"batches": probed.batches(knee=1.0)}}),
    ("DE36", {"data": {"contexts": probed.contexts(rest_us=20_000.0)}}),
    ("DE37", {"data": {"contexts": probed.contexts(masked=0.05)}}),
    ("DE38", {"data": {"split_keys": probed.split_keys(split=2)}}),
    ("DE39", {"data": {"split_keys": probed.split_keys(more=1)}}),
    ("DE40", {"data": {"split_keys": probed.split_keys(split=1)}}),
    ("DE41", {"data": {"cache_kinds": probed.cache_kinds(cat=35.0)}}),
    ("DE42", {"data": {"cache_kinds": probed.cache_kinds(static=15.0)}}),
    ("DE43", {"data": {"cache_kinds": probed.cache_kinds(paged=100.0)}}),
    ("DE44", {"data": {"one_product": probed.one_product(int8_compiled=30.0)}}),
    ("DE45", {"data": {"one_product": probed.one_product(int8_tuned=30.0)}}),
    ("DE46", {"data": {"one_product": probed.one_product(int8_packed=30.0)}}),
    ("DE47", {"data": {"one_product": probed.one_product(int4=30.0)}}),
    ("DE48", {"data": {"one_product": probed.one_product(kernels_of_fp8=2)}}),
    ("DE49", {"data": {"quantized_models": probed.quantized_models(int8=1_000.0)}}),
    ("DE50", {"data": {"quantized_models": probed.quantized_models(int8_tuned=1_300.0)}}),
    ("DE51", {"data": {"first_calls": probed.first_calls(whole=0.5)}}),
    ("DE52", {"data": {"first_calls": probed.first_calls(layers=40.0)}}),
    ("DE53", {"data": {"lengths": probed.lengths(static=2)}}),
    ("DE54", {"data": {"lengths": probed.lengths(fixed=3)}}),
    ("DE55", {"data": {"lengths": probed.lengths(cat=4)}}),
    ("DE76", {"data": {"lengths": probed.lengths(plan_s=0.005)}}),
    ("DE77", {"data": {"batches": probed.batches(small=1.0)}}),
    ("DE78", {"data": {"split_keys": probed.split_keys(full=2)}}),
    ("DE56", {"data": {"second_request": probed.second_request(longest_us=4_000.0)}}),
    *[
        (f"DE{57 + index}", {"pairs": {name: (100.0, 100.0)}})
        for index, name in enumerate(
            ("item", "sampling", "cat", "mask", "repeat_kv", "long_cache", "prompt_logits", "padded", "int4")
        )
    ],
]


@pytest.mark.parametrize(("claim_id", "changes"), FLIPS, ids=[claim_id for claim_id, _ in FLIPS])
def test_a_claim_flips_when_what_it_is_about_changes(
    device: Device, tmp_path: Path, claim_id: str, changes: Changes
) -> None:
    assert status(device, claim_id) == "holds"
    assert status(changed(device, tmp_path, **changes), claim_id) == "differs"


def test_a_variant_that_did_not_run_is_not_measured(device: Device, tmp_path: Path) -> None:
    left_out = {"left_out": "8b: 10 GB of memory are free, 24 GB are needed"}
    missing = {"missing": "needs transformers: pip install transformers==5.17.0"}
    device = changed(device, tmp_path, data={"steady_8b": left_out, "generate_times": missing})
    assert [status(device, claim_id) for claim_id in ("DE2", "DE27", "DE28")] == ["not measured"] * 3
    assert "8b: 10 GB" in limits.models(device)


@pytest.mark.parametrize("fault", findings.faults.FAULTS)
def test_a_mend_is_a_few_lines(fault: str) -> None:
    assert 1 <= changed_lines(mend_lines("decoder", f"{fault}_before", f"{fault}_after")) <= 10


@pytest.mark.parametrize("page", ["decoder", "decoder_growing", "decoder_faults"])
def test_every_fence_and_figure_of_a_page_shows_the_samples(
    device: Device, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    shown = page_on_samples("decoder", device, monkeypatch, page)
    assert "Not recorded yet" not in shown
