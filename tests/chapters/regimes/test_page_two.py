"""Claims about compile modes and fusion: their verdicts on sample recordings, and a change that flips each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from snippets.lab.finding import Device, NotTimed
from snippets.lab.recording.loading import load_recording
from snippets.regimes.findings import caching, compiling, fusing, generated, paying, shapes, spilling
from snippets.regimes.findings.compiling import GEGLU, STACK, TUNED
from snippets.regimes.findings.spilling import FITS, MANY, SPILLS
from tests.chapters.regimes.altering import SAMPLES, Change, Data, alone, alter, from_python, status
from tests.chapters.regimes.compiling_samples import around, bias
from tests.lab.sample_recordings import sample_of, save_samples

NUMBERS = (*range(30, 37), 39, *range(41, 53), *range(54, 67))
HOLD = {f"RG{number}": "holds" for number in NUMBERS}
VERDICTS = HOLD | {"RG53": "differs"}


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_samples(tmp_path, SAMPLES.values())


@pytest.mark.parametrize("claim_id", VERDICTS)
def test_the_claims_of_the_samples(device: Device, claim_id: str) -> None:
    assert status(device, claim_id) == VERDICTS[claim_id]


def with_graphs(data: Data) -> None:
    data["modes"]["default"]["graphs"] = 2


def with_a_break(data: Data) -> None:
    data["modes"]["dynamic"]["breaks"] = ["print"]


def with_fast_tuning(data: Data) -> None:
    data["modes"]["max-autotune-no-cudagraphs"]["cold_s"] = [[2.0, 0.0, 0.0]]


def with_slow_caches(data: Data) -> None:
    data["modes"]["default"]["again_s"] = [0.4, 0.0]


def on_gpu(variant: str, us: float) -> Change:
    def change(data: Data) -> None:
        data["times"][variant]["interleaved"] = around(us)

    return change


def with_cublas_twice(data: Data) -> None:
    data["modes"]["max-autotune"]["tuned"] = data["modes"][TUNED]["tuned"]


def with_a_graph_for_each_size(data: Data) -> None:
    data["replayed"]["graphs"][-1] = 6


def with_a_graph_for_all_sizes(data: Data) -> None:
    data["replayed"]["recorded"][-1] = 3


def with_more_guards(data: Data) -> None:
    data["modes"]["dynamic"]["guards"][0].append("one more")


def with_a_right_clock(data: Data) -> None:
    data["modes"]["max-autotune-no-cudagraphs"]["tuned"][0]["ms"] = {"addmm": 0.095, "triton_mm_1": 0.1}


def with_one_graph_for_all(data: Data) -> None:
    data["asked"]["automatic"]["graphs"][-1] = 1


def with_another_call(data: Data) -> None:
    data["code"]["bfloat16"]["compiled"]["calls"] = ["extern_kernels.mm"]


def bias_us(tokens: int, variant: str, us: float) -> Change:
    def change(data: Data) -> None:
        data["us"][str(tokens)][variant] = around(us)

    return change


def tile(name: str, key: str, value: object) -> Change:
    def change(data: Data) -> None:
        data[str(MANY)][name][key] = value

    return change


def with_moves(data: Data) -> None:
    data[str(MANY)][FITS]["code"]["loop"]["stores"] = 1


def with_few_registers_for_two(data: Data) -> None:
    for seen in data["64"].values():
        seen["registers"] = 200


def with_small_spills(data: Data) -> None:
    data["64"]["64x64x64, 4 warps, 4 stages"]["spills"] = 2


def op_us(tokens: int, when: str, us: float) -> Change:
    def change(data: Data) -> None:
        data["op_us"]["gelu"][str(tokens)][when] = around(us)

    return change


def with_slow_negation(data: Data) -> None:
    data["op_us"]["negation"]["2048"]["after"] = data["op_us"]["gelu"]["2048"]["after"]


def with_a_free_kernel(data: Data) -> None:
    data["step_us"]["64"]["epilogue"] = data["step_us"]["64"]["eager"]


@pytest.mark.parametrize(
    ("claim_id", "experiment", "change"),
    [
        ("RG30", "modes_stack", with_graphs),
        ("RG30", "modes_geglu", with_a_break),
        ("RG31", "modes_stack", with_fast_tuning),
        ("RG32", "modes_stack", with_slow_caches),
        ("RG33", "modes_stack", from_python("default", 39.0)),
        ("RG34", "modes_stack", from_python("reduce-overhead", 39.0)),
        ("RG35", "modes_stack", from_python("reduce-overhead", 41.0)),
        ("RG36", "modes_geglu", from_python("default", 100.0)),
        ("RG60", "modes_geglu", from_python("reduce-overhead", 240.0)),
        ("RG61", "modes_geglu", alone("default", "us", around(300.0))),
        ("RG62", "modes_geglu", alone("dynamic", "joules", 0.1)),
        ("RG63", "modes_stack", on_gpu(TUNED, 13.0)),
        ("RG64", "modes_stack", with_cublas_twice),
        ("RG39", "modes_stack", with_more_guards),
        ("RG41", "modes_stack", with_a_right_clock),
        ("RG42", "new_shapes", with_one_graph_for_all),
        ("RG65", "new_shapes", with_a_graph_for_each_size),
        ("RG65", "new_shapes", with_a_graph_for_all_sizes),
        ("RG47", "biases", with_another_call),
        ("RG48", "biases", bias_us(1024, "compiled", 36.0)),
        ("RG49", "biases", bias_us(MANY, "written_out", 300.0)),
        ("RG50", "spills", tile(SPILLS, "spills", 0)),
        ("RG50", "spills", tile(FITS, "spills", 1)),
        ("RG51", "spills", tile(SPILLS, "us", around(200.0))),
        ("RG52", "spills", with_moves),
        ("RG54", "spills", with_small_spills),
        ("RG55", "in_cache", op_us(1024, "after", 1.0)),
        ("RG56", "in_cache", with_slow_negation),
        ("RG66", "in_cache", op_us(1024, "after", 1.0)),
        ("RG57", "in_cache", op_us(2048, "flushed", 1.0)),
        ("RG58", "in_cache", op_us(8192, "after", 1.0)),
        ("RG59", "in_cache", with_a_free_kernel),
    ],
)
def test_a_change_of_what_a_claim_is_about_flips_it(
    device: Device, claim_id: str, experiment: str, change: Change
) -> None:
    alter(device, f"regimes/{experiment}", change)
    assert status(device, claim_id) == "differs"


def test_registers_of_two_kernels_may_be_fewer(device: Device) -> None:
    alter(device, "regimes/spills", with_few_registers_for_two)
    assert status(device, "RG53") == "holds"


@pytest.mark.parametrize(
    ("claim_id", "fused"), [("RG43", lambda point: 9.0), ("RG44", lambda point: 1.0), ("RG45", lambda point: 1.0)]
)
def test_times_of_the_fused_kernel_flip_its_claims(
    device: Device, claim_id: str, fused: Callable[[Any], float]
) -> None:
    eager = sample_of("regimes/layer_eager", lambda point: 40.0 if claim_id == "RG44" else 3.0)
    save_samples(device.root, [eager, sample_of("regimes/layer_fused", fused)])
    assert status(device, claim_id) == "differs"


def test_a_bias_in_gelus_kernel_flips_its_claim(device: Device) -> None:
    kernels = [("nvjet_TNT", 5.0), ("triton_poi_fused_add_gelu_0", 2.0), ("nvjet_bias_TNN", 5.0)]
    save_samples(device.root, [bias("compiled", 64, kernels)])
    assert status(device, "RG46") == "differs"
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


def test_recording_a_graph_is_compared_with_the_replay_after_it(device: Device) -> None:
    """3 ms of 0.2 ms; the size that was there before records nothing."""
    assert shapes.recording_over_replay(device).number == pytest.approx(15)


def test_rates_and_what_an_epilogue_saves(device: Device) -> None:
    """4 bytes for each of 64 x 4096 numbers; a copy of a GiB in 250 us."""
    assert caching.copy_rate(device).number == pytest.approx((1 << 30) / 250e-6)
    assert caching.as_copy_us(device, 64).number == pytest.approx(1_048_576 / (1 << 30) * 250)
    assert caching.saved_by_epilogue(device, 64).number == pytest.approx(6 + 64 / 60 - 4.2 - 64 / 75, abs=1e-2)


def test_gelu_beside_a_negation_of_the_same_bytes(device: Device) -> None:
    """Its highest rate is that of the largest sample; from memory its time over the negation's is that of the two."""
    data: Any = load_recording(device.root, device.name, "regimes/in_cache").data
    times_us = {op: {int(tokens): us for tokens, us in data["op_us"][op].items()} for op in ("gelu", "negation")}
    rates = [caching.gelu_bytes(tokens) / median(us["after"]) * 1e6 for tokens, us in times_us["gelu"].items()]
    assert caching.fastest_gelu(device).number == pytest.approx(max(rates))
    gelu, negation = (median(times_us[op][16384]["flushed"]) for op in ("gelu", "negation"))
    assert caching.gelu_of_negation(device).number == pytest.approx(negation / gelu)


def test_whose_products_won_in_each_compilation(device: Device) -> None:
    def change(data: Data) -> None:
        for gate, down in (data["modes"][TUNED]["tuned"], data["modes"]["max-autotune"]["tuned"]):
            gate["ms"] = {"mm": 0.0622, "triton_mm_97": 0.0745}
            down["ms"] = {"mm": 0.0558, "triton_mm_58": 0.0717}
        data["modes"][TUNED]["tuned"][0]["ms"] = {"mm": 0.0763, "triton_mm_37": 0.0747}

    alter(device, "regimes/modes_geglu", change)
    assert generated.geglu_winners(device, TUNED).text == "Triton for gate, cuBLAS for down"
    assert generated.geglu_winners(device, "max-autotune").text == "cuBLAS for both"
    assert generated.by_clock(device, GEGLU, 0, TUNED).number == pytest.approx(76.3)


def test_from_which_size_the_fused_kernel_loses(device: Device) -> None:
    """5 us and a 70th of the tokens against 6 and a 60th: at no size, until one of them is made slow."""

    def change(data: Data) -> None:
        data["step_us"]["1024"]["fused"] = around(30.0)

    with pytest.raises(NotTimed, match="at no size"):
        caching.fused_loses_from(device)
    alter(device, "regimes/in_cache", change)
    assert caching.fused_loses_from(device).value == 1024
    assert caching.fused_over(device, "linear", 1024).number == pytest.approx(30 / (4 + 1024 / 85), rel=1e-3)


def test_what_compiled_for_a_new_shape(device: Device) -> None:
    assert shapes.compiling_calls(device, "automatic") == [(64, 1.2e6), (128, 1.2e6), (1, 1.2e6)]


def test_a_spilling_loop_moves_eight_bytes_a_thread(device: Device) -> None:
    assert spilling.moved_in_loop(device).value == (128 + 128) * 8 * 128


@pytest.mark.parametrize(
    "piece",
    [
        lambda device: compiling.compile_table(device, STACK) + paying.pay_table(device, GEGLU),
        lambda device: paying.calls_to_pay(device, STACK) + paying.use_when(device),
        lambda device: (
            generated.generated(device, STACK) + generated.guard_table(device) + generated.tuned_table(device)
        ),
        lambda device: shapes.shapes_table(device) + shapes.input_guards(device) + shapes.replayed_table(device),
        lambda device: fusing.layer_table(device) + fusing.bias_times(device) + fusing.calls_table(device),
        lambda device: fusing.bias_kernels(device, 64) + fusing.opening(device) + fusing.stack_timeline(device, 64),
        lambda device: spilling.tile_table(device, MANY) + spilling.machine_code(device),
        lambda device: caching.cache_table(device) + caching.saved_table(device) + caching.step_table(device),
    ],
)
def test_each_piece_is_drawn(device: Device, piece: Callable[[Device], str]) -> None:
    drawn = piece(device)
    assert "<table>" in drawn
    assert "None" not in drawn.replace("[None, 1024]", "")
