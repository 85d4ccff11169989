"""Claims about compile modes and fusion: their verdicts on sample recordings, and a change that flips each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from snippets.lab.finding import Device
from snippets.lab.finding.book import find_claim, judge
from snippets.regimes.findings import caching, compiling, fusing, generated, shapes, spilling
from snippets.regimes.findings.compiling import GEGLU, NEVER, STACK
from snippets.regimes.findings.spilling import FITS, MANY, SPILLS
from tests.chapters.regimes.compiling_samples import around, bias, compiling_recordings
from tests.lab.sample_recordings import Sample, sample_of, save_samples

Data = dict[str, Any]
Change = Callable[[Data], None]
HOLD = {f"RG{number}": "holds" for number in (*range(30, 40), *range(41, 53), *range(54, 61))}
VERDICTS = HOLD | {"RG53": "differs"}
SAMPLES: dict[str, Sample] = {
    f"{recording.chapter}/{recording.experiment}": (recording, trace) for recording, trace in compiling_recordings()
}


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_samples(tmp_path, SAMPLES.values())


def status(device: Device, claim_id: str) -> str:
    chapter, claim = find_claim(claim_id)
    return judge(claim, chapter, device).status


def alter(device: Device, experiment: str, change: Change) -> None:
    """Change what a probe returned."""
    recording, trace = SAMPLES[experiment]
    data = copy.deepcopy(recording.data)
    change(data)
    save_samples(device.root, [(msgspec.structs.replace(recording, data=data), trace)])


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


def from_python(variant: str, us: float) -> Change:
    def change(data: Data) -> None:
        data["times"][variant]["from_python"] = around(us)

    return change


def on_gpu(variant: str, us: float) -> Change:
    def change(data: Data) -> None:
        data["times"][variant]["interleaved"] = around(us)

    return change


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
        ("RG37", "modes_stack", on_gpu("max-autotune-no-cudagraphs", 14.0)),
        ("RG38", "modes_stack", from_python("max-autotune-no-cudagraphs", 70.0)),
        ("RG39", "modes_stack", with_more_guards),
        ("RG41", "modes_stack", with_a_right_clock),
        ("RG42", "new_shapes", with_one_graph_for_all),
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


def test_calls_until_a_compilation_has_paid(device: Device) -> None:
    """0.5027 s are lost, and 40 us less 16 us are saved by each call."""
    assert compiling.compile_time(device, STACK, "reduce-overhead").number == pytest.approx(502_700)
    assert compiling.saved(device, STACK, "reduce-overhead").number == pytest.approx(24)
    assert compiling.break_even(device, STACK, "reduce-overhead").value == 20_946
    assert compiling.break_even(device, STACK, "default").value == NEVER
    assert compiling.again_time(device, STACK, "reduce-overhead").number == pytest.approx(52_700)
    assert compiling.break_even(device, STACK, "reduce-overhead", "full").value == 2_196
    assert compiling.break_even(device, STACK, "default", "full").value == NEVER
    assert compiling.default_pays(device).value == NEVER
    alter(device, "regimes/modes_stack", from_python("default", 39.9))
    assert compiling.default_pays(device).value == "millions"


def test_when_to_use_each_mode(device: Device) -> None:
    """5.0027 s over 27 us for the stack; a mode that was not compiled has no number of calls."""
    assert compiling.ADVICE.keys() == set(compiling.MODES)
    (row,) = (line for line in compiling.use_when(device).split("<tr") if ">max-autotune<" in line)
    assert "190,000" in row
    assert row.count("–") == 1


def test_a_gain_that_may_be_a_loss_is_inconclusive(device: Device) -> None:
    def change(data: Data) -> None:
        data["times"]["eager"]["from_python"] = [40.0] * 9
        data["times"]["default"]["from_python"] = [30.0] * 3 + [39.0] * 3 + [50.0] * 3

    alter(device, f"regimes/modes_{GEGLU}", change)
    pays = compiling.break_even(device, GEGLU, "default")
    assert (pays.conclusive, pays.text) == (False, "500,000 or never")


def test_a_missing_form_of_data_is_not_recorded(device: Device) -> None:
    alter(device, "regimes/in_cache", lambda data: data.pop("op_us"))
    assert status(device, "RG55") == "not measured"


def test_rates_and_what_an_epilogue_saves(device: Device) -> None:
    """4 bytes for each of 64 x 4096 numbers; a copy of a GiB in 250 us."""
    assert caching.copy_rate(device).number == pytest.approx((1 << 30) / 250e-6)
    assert caching.as_copy_us(device, 64).number == pytest.approx(1_048_576 / (1 << 30) * 250)
    assert caching.saved_by_epilogue(device, 64).number == pytest.approx(6 + 64 / 60 - 4.2 - 64 / 75, abs=1e-2)


def test_what_compiled_for_a_new_shape(device: Device) -> None:
    assert shapes.compiling_calls(device, "automatic") == [(64, 1.2e6), (128, 1.2e6), (1, 1.2e6)]


def test_a_spilling_loop_moves_eight_bytes_a_thread(device: Device) -> None:
    assert spilling.moved_in_loop(device).value == (128 + 128) * 8 * 128


@pytest.mark.parametrize(
    "piece",
    [
        lambda device: compiling.compile_table(device, STACK) + compiling.pay_table(device, GEGLU),
        lambda device: compiling.calls_to_pay(device, STACK) + compiling.calls_to_pay(device, GEGLU),
        compiling.use_when,
        lambda device: (
            generated.generated(device, STACK) + generated.guard_table(device) + generated.tuned_table(device)
        ),
        lambda device: shapes.shapes_table(device) + shapes.input_guards(device),
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
