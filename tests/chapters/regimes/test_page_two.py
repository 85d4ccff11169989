"""Compile modes and fusion: the claims, figures and pieces on sample recordings."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from snippets.lab.finding import Device, NotTimed
from snippets.lab.recording.loading import load_recording
from snippets.regimes.findings import caching, fusing, generated, shapes, spilling
from snippets.regimes.findings.compiling import TUNED
from tests.chapters.altered import status
from tests.chapters.regimes.altering import SAMPLES, Data, alter
from tests.chapters.regimes.compiling_samples import around, bias
from tests.chapters.regimes.samples import recordings
from tests.lab.sample_recordings import page_on_samples, save_samples

NUMBERS = (*range(30, 37), 39, *range(41, 53), *range(54, 67))
CLAIMS = [f"RG{number}" for number in NUMBERS]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Device:
    """The samples as they are."""
    return save_samples(tmp_path_factory.mktemp("samples"), SAMPLES.values())


@pytest.fixture
def device(tmp_path: Path) -> Device:
    """The samples, for a test to alter."""
    return save_samples(tmp_path, SAMPLES.values())


def test_the_claims_of_the_samples(saved: Device) -> None:
    found = {claim_id: status(saved, claim_id) for claim_id in CLAIMS}
    assert found == dict.fromkeys(CLAIMS, "holds")


def test_a_bias_in_gelus_kernel_is_named(device: Device) -> None:
    kernels = [("nvjet_TNT", 5.0), ("triton_poi_fused_add_gelu_0", 2.0), ("nvjet_bias_TNN", 5.0)]
    save_samples(device.root, [bias("compiled", 64, kernels)])
    assert fusing.places(device, 64).text == "eager product, compiled GELU, written out, compiled GELU"


@pytest.mark.parametrize(
    ("experiment", "key", "claim_id"),
    [
        ("in_cache", "op_us", "RG55"),
        ("modes_geglu", "steady", "RG61"),
        ("modes_geglu", "steady", "RG62"),
        ("new_shapes", "replayed", "RG65"),
    ],
)
def test_a_missing_form_of_data_is_not_recorded(device: Device, experiment: str, key: str, claim_id: str) -> None:
    alter(device, f"regimes/{experiment}", lambda data: data.pop(key))
    assert status(device, claim_id) == "not measured"


def test_a_template_that_computes_gelu_is_counted(device: Device) -> None:
    """Two of three products run as a template; one of these has a tanh."""

    def change(data: Data) -> None:
        mode = data["modes"][TUNED]
        mode["calls"] = ["triton_tem_fused_addmm_gelu_t_1", "triton_tem_fused_addmm_t_0", "extern_kernels.addmm"]
        mode["kernels"] = {
            "triton_tem_fused_addmm_gelu_t_1": "libdevice.tanh(acc)",
            "triton_tem_fused_addmm_t_0": "tl.dot",
            "triton_poi_fused_gelu_2": "libdevice.tanh(x)",
        }

    assert generated.gelus_in_templates(device).value == 0
    alter(device, "regimes/modes_stack", change)
    assert generated.gelus_in_templates(device).value == 1


def test_recording_a_graph_is_compared_with_the_replay_after_it(saved: Device) -> None:
    """3 ms of 0.2 ms; the size that was there before records nothing."""
    assert shapes.recording_over_replay(saved).number == pytest.approx(15)


def test_rates_and_what_an_epilogue_saves(saved: Device) -> None:
    """4 bytes for each of 64 x 4096 numbers; a copy of a GiB in 250 us."""
    assert caching.copy_rate(saved).number == pytest.approx((1 << 30) / 250e-6)
    assert caching.as_copy_us(saved, 64).number == pytest.approx(1_048_576 / (1 << 30) * 250)
    assert caching.saved_by_epilogue(saved, 64).number == pytest.approx(6 + 64 / 60 - 4.2 - 64 / 75, abs=1e-2)


def test_gelu_beside_a_negation_of_the_same_bytes(saved: Device) -> None:
    """Its highest rate is that of the largest sample; from memory its time over the negation's is that of the two."""
    data: Any = load_recording(saved.root, saved.name, "regimes/in_cache").data
    times_us = {op: {int(tokens): us for tokens, us in data["op_us"][op].items()} for op in ("gelu", "negation")}
    rates = [caching.gelu_bytes(tokens) / median(us["after"]) * 1e6 for tokens, us in times_us["gelu"].items()]
    assert caching.FIGURES["fastest_gelu"](saved).number == pytest.approx(max(rates))
    gelu, negation = (median(times_us[op][16384]["flushed"]) for op in ("gelu", "negation"))
    assert caching.FIGURES["gelu_of_negation"](saved).number == pytest.approx(negation / gelu)


def test_whose_products_won_in_each_compilation(device: Device) -> None:
    def change(data: Data) -> None:
        for gate, down in (data["modes"][TUNED]["tuned"], data["modes"]["max-autotune"]["tuned"]):
            gate["ms"] = {"mm": 0.0622, "triton_mm_97": 0.0745}
            down["ms"] = {"mm": 0.0558, "triton_mm_58": 0.0717}
        data["modes"][TUNED]["tuned"][0]["ms"] = {"mm": 0.0763, "triton_mm_37": 0.0747}

    alter(device, "regimes/modes_geglu", change)
    assert generated.geglu_winners(device, TUNED).text == "Triton for gate, cuBLAS for down"
    assert generated.geglu_winners(device, "max-autotune").text == "cuBLAS for both products"


def test_from_which_size_the_fused_kernel_loses(device: Device) -> None:
    """5 us and a 70th of the tokens against 6 and a 60th: at no size, until one of them is made slow."""

    def change(data: Data) -> None:
        data["step_us"]["1024"]["fused"] = around(30.0)

    with pytest.raises(NotTimed, match="at no size"):
        caching.fused_loses_from(device)
    alter(device, "regimes/in_cache", change)
    assert caching.fused_loses_from(device).value == 1024
    assert caching.fused_over(device, "linear", 1024).number == pytest.approx(30 / (4 + 1024 / 85), rel=1e-3)


def test_what_compiled_for_a_new_shape(saved: Device) -> None:
    assert shapes.compiling_calls(saved, "automatic") == [(64, 1.2e6), (128, 1.2e6), (1, 1.2e6)]


def test_a_spilling_loop_moves_eight_bytes_a_thread(saved: Device) -> None:
    assert spilling.moved_in_loop(saved).value == (128 + 128) * 8 * 128


def test_the_page_on_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_on_samples("regimes", save_samples(tmp_path, recordings()), monkeypatch, page="regimes_compiling")
    assert page.count("<table>") > 20
    assert "Not recorded" not in page
    assert not re.search(r"\bNone\b(?!, 1024\])", page)
