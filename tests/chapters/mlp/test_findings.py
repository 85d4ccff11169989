"""The chapter mlp: its claims on the default device's recordings, and on altered ones in which they must fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest

from snippets.lab.finding.book import Verdict, findings, judge
from snippets.lab.finding.claim import Status
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure, format_value
from snippets.lab.html import Html
from snippets.lab.page import kernel_table, profiler_table, show, timeline
from snippets.lab.page.frame import measured_html
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.schema import NotRecorded, Timing
from snippets.lab.trace.averages import key_averages
from snippets.lab.trace.events import CudaCall, GpuActivity, Step
from snippets.mlp.findings import choices, costs, eager, fused_kernels, fusion
from snippets.mlp.findings.steps import fused_work
from tests.chapters.altered import AlteredDevice
from tests.lab.samples import BOOK

FINDINGS = findings("mlp")
CLAIMS = {claim.id: claim for claim in FINDINGS.claims}
HIDDEN_BYTES = 50_331_648
replace = msgspec.structs.replace


@pytest.fixture
def device() -> AlteredDevice:
    return AlteredDevice()


def verdict(name: str, device: Device) -> Verdict:
    return judge(CLAIMS[name], "mlp", device)


def status(name: str, device: Device) -> Status:
    return verdict(name, device).status


def measured(name: str, device: Device) -> Figure:
    figure = verdict(name, device).measured
    assert figure is not None
    return figure


def figure(name: str, device: Device) -> Figure:
    return FINDINGS.figures[name](device)


def renamed(old: str, new: str) -> Callable[[GpuActivity], GpuActivity]:
    return lambda kernel: replace(kernel, name=kernel.name.replace(old, new))


def lasting(name: str, us: float) -> Callable[[GpuActivity], GpuActivity]:
    return lambda kernel: replace(kernel, duration_us=us) if name in kernel.name else kernel


def change_kernels(device: AlteredDevice, experiment: str, change: Callable[[GpuActivity], GpuActivity]) -> None:
    device.activities(experiment, lambda activity: change(activity) if activity.kind == "kernel" else activity)


def change_data(device: AlteredDevice, experiment: str, **changed: Any) -> None:
    device.record(experiment, data={**device[experiment].data, **changed})


def scale_timings(device: AlteredDevice, experiment: str, kind: str, factor: float) -> None:
    """Make one kind of timing of every point longer or shorter."""

    def scaled(point: Any) -> Any:
        old: Timing = getattr(point.timings, kind)
        samples = tuple(factor * sample for sample in old.samples_us)
        timing = Timing(factor * old.median_us, factor * old.q1_us, factor * old.q3_us, samples)
        return replace(point, timings=replace(point.timings, **{kind: timing}))

    device.record(experiment, points=tuple(map(scaled, device[experiment].points)))


def test_every_assigned_claim_is_there_and_no_reason_has_a_number_typed_into_it() -> None:
    assert {*(f"M{i}" for i in range(1, 14)), *(f"K{i}" for i in range(1, 6))} <= set(CLAIMS)
    for claim in CLAIMS.values():
        assert not re.search(r"\d\s?(?:[mµn]s|us|[MGT]B|%|T?FLOP)", claim.why), claim.id
        assert claim.id.startswith("O-") or claim.source is not None, claim.id


@pytest.mark.parametrize("name", ["M1", "M2", "M8", "M10", "O-P13"])
def test_steps_that_disagree_decide_nothing(name: str, device: AlteredDevice) -> None:
    device.steps("mlp/compiled", lambda step: replace(step, activities=step.kernels[:1] + step.kernels[3:]), only=0)
    device.steps("mlp/eager", lambda step: replace(step, activities=step.activities[::-1]), only=0)
    assert status(name, device) == "inconclusive"


def test_a_missing_kernel_is_noticed(device: AlteredDevice) -> None:
    for variant in ("eager", "compiled", "liger"):
        device.steps(f"mlp/{variant}", lambda step: replace(step, activities=step.activities[:-1]))
    assert [status(name, device) for name in ("M1", "M8", "K1")] == ["differs"] * 3
    down = verdict("M7", device)
    assert (down.status, "2 matmuls instead of three" in down.reason) == ("not measured", True)


@pytest.mark.parametrize(
    ("order", "holds"),
    [
        ("mm, mm, gelu, mul, mm", True),
        ("mm, gelu, mm, mul, mm", False),
        ("gelu, mm, mm, mul, mm", False),
        ("mm, mm, mul, gelu, mm", False),
        ("mm, mm, gelu, mul, mul", False),
        ("mm, mm, gelu, mul", False),
    ],
)
def test_m1_follows_the_data(order: str, holds: bool) -> None:
    assert CLAIMS["M1"].band(Figure(order)) is holds


def test_names_of_the_a100_would_hold(device: AlteredDevice) -> None:
    assert status("M2", device) == "differs"
    small, large = "ampere_bf16_s16816gemm_bf16_128x128_x_stages_32x5_tn", "ampere_bf16_s16816gemm_bf16_128x256_tn"
    gate, down = (str(figure(name, device).value) for name in ("gate_gemm", "down_gemm"))
    change_kernels(device, "mlp/eager", lambda kernel: renamed(down, large)(renamed(gate, small)(kernel)))
    assert (status("M2", device), status("O-P1", device)) == ("holds", "holds")
    change_kernels(device, "mlp/eager", renamed(large, small))
    assert (status("M2", device), status("O-P1", device)) == ("differs", "differs")


@pytest.mark.parametrize(
    ("names", "holds"),
    [
        ("a, a, b", True),
        ("a, a, ab", True),
        ("ab, ab, a", True),
        ("a, a, a", False),
        ("a, b, b", False),
        ("a, b, a", False),
        ("a, ab, b", False),
    ],
)
def test_two_kinds_are_gate_and_up_beside_down(names: str, holds: bool) -> None:
    assert CLAIMS["O-P1"].band(Figure(names)) is holds


def test_m3_wants_the_width_of_the_a100(device: AlteredDevice) -> None:
    change_kernels(device, "mlp/eager", renamed("elementwise_kernel<8", "elementwise_kernel<4"))
    assert status("M3", device) == "holds"
    assert measured("M3", device).value == "GeluCUDAKernelImpl 4 wide, MulFunctor 4 wide"


def test_m4_finds_queries_under_the_matmuls(device: AlteredDevice) -> None:
    def asking(step: Step) -> Step:
        queries = [
            CudaCall("cudaOccupancyMaxActiveBlocksPerMultiprocessor", op.start_us + 0.1, 0.1, op.thread, 0)
            for op in step.ops
            if op.name == "aten::mm"
        ]
        return replace(step, calls=tuple(sorted([*step.calls, *queries], key=lambda call: call.start_us)))

    device.steps("mlp/eager", asking)
    assert (status("M4", device), measured("M4", device).value) == ("holds", "3 of 3 GEMMs, 0 of 2 pointwise")


def test_m5_fails_when_a_view_launches_something(device: AlteredDevice) -> None:
    view = next(op for op in device["mlp/eager"].trace.cpu_ops if op.name == "aten::as_strided")
    change_kernels(device, "mlp/eager", lambda kernel: replace(kernel, op=view))
    assert (status("M5", device), eager.working_ops(device["mlp/eager"].step)) == (
        "differs",
        "aten::as_strided, aten::mm",
    )


def test_m6_fails_for_another_shape(device: AlteredDevice) -> None:
    wide = ((8192, 768), (768, 4096))
    device.ops("mlp/eager", lambda op: replace(op, input_shapes=wide) if op.name == "aten::mm" else op)
    assert (status("M6", device), measured("M6", device).value) == ("differs", ", ".join(3 * ["[8192,768]x[768,4096]"]))


@pytest.mark.parametrize(("down_us", "expected"), [(90.0, "holds"), (100.0, "differs"), (70.0, "differs")])
def test_m7_wants_about_a_tenth(down_us: float, expected: Status, device: AlteredDevice) -> None:
    down = str(figure("down_gemm", device).value)
    change_kernels(device, "mlp/eager", lambda kernel: lasting(down, down_us)(lasting("nvjet", 100.0)(kernel)))
    assert (status("M7", device), measured("M7", device).value) == (expected, pytest.approx(100 - down_us))


def test_m8_fails_when_the_chain_is_left(device: AlteredDevice) -> None:
    device.ops("mlp/compiled", lambda op: replace(op, name="aten::linear") if op.name.startswith("AOT") else op)
    assert status("M8", device) == "differs"
    assert str(measured("M8", device).value).split("; ")[1] == "wrappers left: aten::linear"


@pytest.mark.parametrize(("name", "variant"), [("M9", "compiled"), ("K5", "liger")])
def test_one_other_gemm_is_noticed(name: str, variant: str, device: AlteredDevice) -> None:
    change_kernels(device, f"mlp/{variant}", renamed("coopB", "coopA"))
    assert status(name, device) == "differs"


def test_m10_compares_the_whole_name(device: AlteredDevice) -> None:
    change_kernels(device, "mlp/compiled", renamed("_mul_0", "_mul_1"))
    assert status("M10", device) == "differs"


def test_bytes_come_from_the_shapes(device: AlteredDevice) -> None:
    names = ("intermediate_bytes", "eager_bytes", "fused_bytes", "saved_bytes")
    assert [figure(name, device).value for name in names] == [count * HIDDEN_BYTES for count in (1, 5, 3, 2)]
    half = ((64, 128, 1536), (64, 128, 1536))
    device.ops("mlp/eager", lambda op: replace(op, input_shapes=half) if op.name == "aten::mul" else op)
    assert figure("eager_bytes", device).value == 2 * HIDDEN_BYTES + 3 * HIDDEN_BYTES // 2
    assert status("M12", device) == "differs"
    device.ops("mlp/eager", lambda op: replace(op, input_types=()))
    saved = verdict("M12", device)
    assert (saved.status, "lacks the shapes of its operators" in saved.reason) == ("not measured", True)


def test_m13_and_the_fused_kernel_s_rate(device: AlteredDevice) -> None:
    as_fast_as_a_copy = 3 * HIDDEN_BYTES / device["mlp/compiled"].ceiling("copy").rate * 1e6
    change_kernels(device, "mlp/compiled", lasting("triton", as_fast_as_a_copy))
    assert (status("M13", device), measured("M13", device).value) == ("holds", pytest.approx(100))
    change_kernels(device, "mlp/compiled", lasting("triton", 2 * as_fast_as_a_copy))
    assert (status("M13", device), measured("M13", device).value) == ("differs", pytest.approx(50))


@pytest.mark.parametrize(("liger_us", "expected"), [(38.0, "holds"), (36.0, "differs"), (48.0, "differs")])
def test_k3_wants_a_few_percent(liger_us: float, expected: Status, device: AlteredDevice) -> None:
    change_kernels(device, "mlp/compiled", lasting("triton", 37.0))
    change_kernels(device, "mlp/liger", lasting("geglu", liger_us))
    assert (status("K3", device), measured("K3", device).value) == (expected, pytest.approx(liger_us / 37.0))


def test_k2_sees_a_row_of_dynamo(device: AlteredDevice) -> None:
    device.steps(
        "mlp/liger",
        lambda step: replace(step, ops=(*step.ops, replace(step.ops[0], name="TorchDynamo Cache Lookup"))),
    )
    assert (status("K2", device), measured("K2", device).value) == ("differs", "TorchDynamo Cache Lookup")


@pytest.mark.parametrize(
    ("automatic", "liger", "expected"),
    [
        ([1, 2, 3, 4], [1, 1, 1, 1], ("holds", "differs")),
        ([1, 2, 2, 2], [1, 1, 1, 1], ("differs", "holds")),
        ([1, 2, 3, 4], [1, 1, 2, 2], ("differs", "differs")),
        ([1, 1, 1, 1], [1, 1, 1, 1], ("differs", "differs")),
    ],
)
def test_k4_counts_compilations(
    automatic: list[int], liger: list[int], expected: tuple[Status, Status], device: AlteredDevice
) -> None:
    ms = [1.0] * 4
    change_data(
        device,
        "mlp/new_shapes",
        automatic={"compiled": automatic, "first_call_ms": ms},
        liger={"compiled": liger, "first_call_ms": ms},
    )
    assert (status("K4", device), status("O-P9", device)) == expected


def test_a_mode_that_was_not_recorded_is_named(device: AlteredDevice) -> None:
    data = {mode: of for mode, of in device["mlp/new_shapes"].data.items() if mode != "liger"}
    device.record("mlp/new_shapes", data=data)
    compiles_again = verdict("K4", device)
    assert compiles_again.status == "not measured"
    assert compiles_again.reason == "mlp/new_shapes has no 'liger'; make record CHAPTER=mlp"
    assert "Liger" not in fusion.new_shapes(device)


def test_the_cost_of_compiling_by_hand(device: AlteredDevice) -> None:
    change_data(
        device,
        "mlp/new_shapes",
        static={"compiled": [1, 2], "first_call_ms": [900.0, 300.0]},
        automatic={"compiled": [1, 2, 2], "first_call_ms": [400.0, 500.0, 2.0]},
    )
    assert (measured("O-P10", device).value, measured("O-P10", device).spread) == (225.0, (150.0, 450.0))
    assert status("O-P10", device) == "inconclusive"
    change_data(device, "mlp/new_shapes", automatic={"compiled": [1, 2, 2], "first_call_ms": [400.0, 500.0, 0.5]})
    assert status("O-P10", device) == "holds"
    change_data(device, "mlp/new_shapes", automatic={"compiled": [1, 2, 2], "first_call_ms": [400.0, 500.0, 30.0]})
    assert status("O-P10", device) == "differs"
    change_data(device, "mlp/new_shapes", automatic={"compiled": [1, 2], "first_call_ms": [400.0, 500.0]})
    assert (status("O-P10", device), measured("O-P10", device).text) == ("inconclusive", "every call compiled")


def test_blocks_launches_and_memsets(device: AlteredDevice) -> None:
    change_kernels(
        device, "mlp/eager", lambda kernel: replace(kernel, grid=(3, 66, 1)) if "nvjet" in kernel.name else kernel
    )
    assert status("O-P2", device) == "differs"
    assert measured("O-P2", device).value == "cuLaunchKernelEx, 198 blocks, 132 multiprocessors"
    device.steps("mlp/liger", lambda step: replace(step, activities=step.kernels))
    assert status("O-P3", device) == "differs"
    gate_and_up = "gate 4 bytes, up 4 bytes"
    assert measured("O-P3", device).value == f"{gate_and_up}; {gate_and_up}; none"


def test_a_ceiling_that_is_not_beaten(device: AlteredDevice) -> None:
    change_kernels(device, "mlp/eager", lasting("nvjet", 100.0))
    assert status("O-P4", device) == "differs"


def test_memory_error_and_launch_of_liger(device: AlteredDevice) -> None:
    eager = device["mlp/eager"].point
    device.point("mlp/compiled", peak_memory_bytes=eager.peak_memory_bytes, relative_error=eager.relative_error)
    change_kernels(device, "mlp/liger", lambda kernel: replace(kernel, grid=(132, 1, 1)))
    assert [status(name, device) for name in ("O-P6", "O-P7", "O-P16")] == ["differs"] * 3
    assert measured("O-P7", device).value == "132 blocks for 8192 rows of 3072; 8192 blocks for 8192 rows of 4096"


FAST, SLOW = (24576, 128), (49152, 256)


def trial(*compilations: tuple[tuple[int, int], float], logs: Mapping[str, float] | None = None) -> dict[str, Any]:
    """What `tuned` returns of a trial, from (blocks, threads) and microseconds of each compilation."""
    return {
        "grid": [[launch[0], 1, 1] for launch, _ in compilations],
        "block": [[launch[1], 1, 1] for launch, _ in compilations],
        "fused_us": [us for _, us in compilations],
        "benchmark_us": [logs or {} for _ in compilations],
    }


LOGS = {"1024 elements, 4 warps": 1000.0, "512 elements, 8 warps": 90.0}
DEFAULT = ((SLOW, 60.0), (FAST, 40.0), (SLOW, 62.0), (SLOW, 61.0))
TUNED = {
    **trial(*DEFAULT, logs=LOGS),
    "trials": {
        "room": trial((FAST, 40.0), (FAST, 41.0), logs={"1024 elements, 4 warps": 65.0, "512 elements, 8 warps": 85.0}),
        "coordinate_descent_tuning": trial((SLOW, 60.0), ((12288, 128), 39.0)),
        "autotune_pointwise=False": trial((FAST, 40.0)),
    },
    "while_tuning": {
        "default": {"Memcpy HtoD (Pinned -> Device)": {"count": 57, "median_us": 950.0}},
        "room": {"triton_poi_fused_0": {"count": 57, "median_us": 40.0}},
    },
    "forward_us": {
        "24576x1x1, 128x1x1": [200.0, 202.0, 204.0],
        "49152x1x1, 256x1x1": [220.0, 222.0, 224.0],
        "eager": [240.0, 242.4, 244.8],
        "Liger": [210.0, 212.0, 214.0],
    },
}
IDLE = {
    "cycles": [0, 500],
    "after": {
        work: [
            {"before_us": [60.0, 60.0, 60.0], "gap_us": [1.0, 1.0, 1.0], "up_us": [us, us + 2, us + 1]},
            {"before_us": [60.0, 60.0, 60.0], "gap_us": [50.0, 50.0, 50.0], "up_us": [50.0, 51.0, 52.0]},
        ]
        for work, us in (("gate", 60.0), ("small result", 58.0), ("fill", 50.0))
    },
}
SHAPES = {
    "dynamo": {
        "one": {
            "batches": [64, 32, 16, 48, 1],
            "graphs": [1, 2, 2, 2, 3],
            "in_graphs": [1, 2, 3, 4, 5],
            "warnings": [0],
        },
        "marked": {"batches": [64, 32], "graphs": [1, 1], "in_graphs": [1, 2], "warnings": [0]},
        "static": {
            "batches": [*range(2, 14)],
            "graphs": [*range(1, 9), 8, 8, 8, 8],
            "in_graphs": [*range(1, 9), 8, 8, 8, 8],
            "warnings": [1],
        },
    },
    "reshape": {
        "contiguous": {"ops": ["aten::reshape", "aten::view"], "activities": []},
        "transposed": {"ops": ["aten::reshape", "aten::clone", "aten::copy_"], "activities": ["copy"]},
    },
}


def probed() -> AlteredDevice:
    """The device with hand-made results of its probes."""
    device = AlteredDevice()
    device.record("mlp/tuned", data=TUNED)
    device.data("mlp/new_shapes", **SHAPES)
    device.record("mlp/after_idle", data=IDLE)
    return device


def test_configurations_by_hand() -> None:
    device = probed()
    assert {launch: (timing.median_us, timing.samples_us) for launch, timing in choices.draws(device).items()} == {
        FAST: (40.0, (40.0, 40.0, 41.0)),
        SLOW: (61.0, (60.0, 62.0, 61.0)),
    }
    assert measured("O-P17", device).value == "1024 elements to 128 threads, 512 elements to 256 threads"
    assert measured("O-P18", device).value == pytest.approx(61 / 40)
    assert measured("O-P18", device).spread == pytest.approx((60 / 41, 62 / 40))
    assert (figure("slow_choices", device).value, measured("O-P19", device).text) == (3, "3 of 4")
    slow = figure("slow_us", device)
    assert (slow.value, slow.spread) == (61.0, (60.0, 62.0))
    assert figure("fast_speedup", device).value == pytest.approx(1.2)
    assert figure("slow_speedup", device).value == pytest.approx(242.4 / 222)
    assert figure("tuned_liger_speedup", device).value == pytest.approx(242.4 / 212)
    assert figure("fast_saved_us", device).value == pytest.approx(40.4)
    assert (measured("O-P24", device).text, measured("O-P25", device).text) == ("2 of 2", "57 copies, with room 0")
    assert (measured("O-P26", device).value, figure("benchmark_slow_us", device).value) == (1000 / 990, 90.0)
    assert (figure("room_fast_us", device).value, figure("room_slow_us", device).value) == (65.0, 85.0)
    assert (figure("coordinate_slowest_us", device).value, measured("O-P34", device).text) == (60.0, "1 of 1")
    assert measured("O-P38", device).value == pytest.approx(222 / 212)
    assert [status(f"O-P{number}", device) for number in (17, 18, 19, 24, 25, 26, 34, 38)] == ["holds"] * 8


@pytest.mark.parametrize(
    ("slow", "share", "expected"),
    [(0, 100.0, "holds"), (2, 60.0, "holds"), (3, 40.0, "differs"), (5, 0.0, "differs")],
)
def test_room_is_judged_by_most_compilations(slow: int, share: float, expected: Status) -> None:
    device = probed()
    device.data("mlp/tuned", trials={"room": trial(*(slow * [(SLOW, 60.0)] + (5 - slow) * [(FAST, 40.0)]))})
    assert (status("O-P24", device), measured("O-P24", device).value) == (expected, share)
    assert measured("O-P24", device).text == f"{5 - slow} of 5"


@pytest.mark.parametrize(("mul_us", "expected"), [(40.0, "holds"), (32.0, "differs"), (61.0, "differs")])
def test_gelu_is_free_if_the_faster_kernel_takes_as_long_as_the_product(mul_us: float, expected: Status) -> None:
    device = probed()
    change_kernels(device, "mlp/eager", lasting("MulFunctor", mul_us))
    free = measured("O-P5", device)
    assert (status("O-P5", device), free.value, free.spread) == (expected, 40 / mul_us, (40 / mul_us, 41 / mul_us))


def test_the_time_of_a_configuration_is_not_that_of_another_with_as_many_warps() -> None:
    device = probed()
    device.data("mlp/tuned", benchmark_us=[{**LOGS, "256 elements, 4 warps": 1.0, "64 elements, 8 warps": 1.0}] * 4)
    assert [figure(f"benchmark_{which}_us", device).value for which in ("fast", "slow")] == [1000.0, 90.0]


def test_a_kernel_that_does_not_decide_the_race_is_noticed() -> None:
    device = probed()
    device.data("mlp/tuned", forward_us={**TUNED["forward_us"], "Liger": [230.0, 232.0, 234.0]})
    assert (status("O-P38", device), measured("O-P38", device).value) == ("differs", pytest.approx(222 / 232))
    device.data("mlp/tuned", forward_us={**TUNED["forward_us"], "Liger": [190.0, 192.0, 194.0]})
    assert (status("O-P38", device), measured("O-P38", device).value) == ("differs", pytest.approx(192 / 202))


def test_what_tuning_does_is_judged_by_its_recording() -> None:
    device = probed()
    device.data("mlp/tuned", trials={"room": trial((SLOW, 60.0))}, while_tuning={"default": {}, "room": {}})
    device.data("mlp/tuned", benchmark_us=[{"1024 elements, 4 warps": 70.0}] * 4)
    assert [status(f"O-P{number}", device) for number in (24, 25)] == ["differs"] * 2
    assert "nothing was copied" in verdict("O-P26", device).reason
    device.data("mlp/tuned", while_tuning=TUNED["while_tuning"])
    assert (status("O-P26", device), measured("O-P26", device).value) == ("differs", 70 / 990)
    unmeasured = {"autotune_pointwise=False": trial((FAST, 40.0), (SLOW, 60.0))}
    device.data("mlp/tuned", trials=unmeasured)
    assert (status("O-P34", device), measured("O-P34", device).text) == ("differs", "1 of 2")
    device.data("mlp/tuned", trials={})
    assert (status("O-P24", device), "no trial 'room'" in verdict("O-P24", device).reason) == ("not measured", True)
    for missing in ("forward_us", "while_tuning", "benchmark_us"):
        device.record("mlp/tuned", data={key: of for key, of in device["mlp/tuned"].data.items() if key != missing})
    assert [status(f"O-P{number}", device) for number in (25, 26)] == ["not measured"] * 2
    with pytest.raises(NotRecorded, match="no forwards"):
        figure("slow_speedup", device)


def test_a_compiler_that_always_chooses_the_same() -> None:
    device = probed()
    device.record("mlp/tuned", data=trial((FAST, 40.0), (FAST, 41.0)))
    assert (figure("slow_choices", device).value, measured("O-P19", device).value) == (0, 0)
    assert [status(f"O-P{number}", device) for number in (17, 18, 19)] == ["differs", "not measured", "differs"]
    assert "chose the same configuration" in verdict("O-P18", device).reason


def test_the_configurations_of_the_page_s_forwards() -> None:
    device = probed()
    slow = "512 elements to 256 threads"
    assert [figure(name, device).text for name in ("shown_launch", "wide_launch")] == [slow, slow]
    assert [figure(name, device).text for name in ("shown_choice", "wide_choice")] == ["slower", "slower"]
    change_kernels(device, "mlp/compiled_4096", lambda kernel: replace(kernel, grid=(32768, 1, 1), block=(128, 1, 1)))
    assert figure("wide_launch", device).text == "1024 elements to 128 threads"
    assert [figure(name, device).text for name in ("shown_choice", "wide_choice")] == ["slower", "faster"]
    change_kernels(device, "mlp/compiled", lambda kernel: replace(kernel, block=(64, 1, 1)))
    assert figure("shown_choice", device).text == "neither"


def test_the_fused_kernel_on_each_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device, bare = probed(), Device(tmp_path, "nvidia-bare")
    change_kernels(device, "mlp/liger", lasting("geglu", 48.0))
    copy = device["mlp/compiled"].ceiling("copy")
    copy_us = 3 * HIDDEN_BYTES / copy.rate * 1e6
    shares = [f"{us:.1f} µs, {format_value(100 * copy_us / us, '%')}" for us in (40.0, 61.0, 48.0)]
    monkeypatch.setattr(fused_kernels, "all_devices", lambda root: (device, bare))
    listed = str(fused_kernels.on_each_device(device))
    assert re.findall(r"<td[^>]*>([^<]*)", listed) == ["H200", "132", format_value(copy.rate, "bytes/s"), *shares]
    monkeypatch.setattr(fused_kernels, "all_devices", lambda root: (Device(tmp_path, DEFAULT_DEVICE), bare))
    with pytest.raises(NotRecorded):
        fused_kernels.on_each_device(device)


def test_either_configuration_beside_other_kernels() -> None:
    device = probed()
    change_kernels(device, "mlp/eager", lasting("elementwise", 40.0))
    change_kernels(device, "mlp/liger", lasting("geglu", 48.0))
    assert (status("O-P5", device), measured("O-P5", device).value) == ("holds", 1.0)
    assert figure("fast_pointwise_speedup", device).value == 2.0
    assert (status("O-P36", device), measured("O-P36", device).value) == ("holds", 1.2)
    copy_us = 3 * HIDDEN_BYTES / device["mlp/compiled"].ceiling("copy").rate * 1e6
    assert measured("O-P35", device).value == pytest.approx(100 * copy_us / 40)
    assert figure("slow_percent", device).value == pytest.approx(100 * copy_us / 61)
    change_kernels(device, "mlp/eager", lasting("elementwise", 30.0))
    change_kernels(device, "mlp/liger", lasting("geglu", 42.0))
    device.data("mlp/tuned", fused_us=[60.0, 50.0, 62.0, 61.0])
    device.data("mlp/tuned", trials={"room": trial((FAST, 50.0))})
    assert [status(f"O-P{number}", device) for number in (5, 35, 36)] == ["differs"] * 3


def test_an_unlucky_forward_is_slower_than_liger_s() -> None:
    device = probed()
    change_kernels(device, "mlp/liger", lasting("geglu", 45.0))
    assert status("O-P21", device) == "holds"
    change_kernels(device, "mlp/liger", lasting("geglu", 58.0))
    assert status("O-P21", device) == "inconclusive"
    change_kernels(device, "mlp/liger", lasting("geglu", 60.0))
    assert status("O-P21", device) == "differs"


def test_idle_time_by_hand() -> None:
    device = probed()
    assert figure("up_after_gate", device).value == 60 / 50
    assert figure("up_after_fill", device).value == pytest.approx(1.0, abs=0.03)
    assert figure("longest_gap_us", device).value == 50.0
    assert (status("O-P27", device), measured("O-P27", device).value) == ("differs", 60 / 50)
    turned = {work: times[::-1] for work, times in IDLE["after"].items()}
    device.data("mlp/after_idle", after=turned | {"fill": turned["gate"]})
    assert (status("O-P27", device), measured("O-P27", device).value) == ("holds", 50 / 58)


def test_up_beside_gate_in_the_traces(device: AlteredDevice) -> None:
    gates = {step.kernels[0].start_us for step in device["mlp/compiled"].steps}
    change_kernels(
        device, "mlp/compiled", lambda kernel: replace(kernel, duration_us=50.0 if kernel.start_us in gates else 55.0)
    )
    assert (status("O-P37", device), measured("O-P37", device).value) == ("holds", pytest.approx(1.1))
    change_kernels(device, "mlp/compiled", lambda kernel: replace(kernel, duration_us=50.0))
    assert (status("O-P37", device), measured("O-P37", device).value) == ("differs", 1.0)


def test_gaps_before_up_come_from_the_traces() -> None:
    def gaps(*names: str) -> list[tuple[float, float]]:
        pairs = [step.kernels[:2] for name in names for step in BOOK[f"mlp/{name}"].steps]
        return sorted((b.start_us - a.start_us - a.duration_us, b.duration_us / a.duration_us) for a, b in pairs)

    assert figure("gap_compiled_us", BOOK).value == pytest.approx(gaps("compiled")[1][0])
    longest = (figure("longest_trace_gap_us", BOOK).value, figure("up_after_trace_gap", BOOK).value)
    assert longest == pytest.approx(gaps("eager", "liger")[-1])


def test_dynamo_and_reshape_by_hand() -> None:
    device = probed()
    numbers = (30, 31, 32, 33)
    assert [status(f"O-P{number}", device) for number in numbers] == ["holds"] * 4
    more = {name: {**counts, "graphs": [*counts["graphs"][:-1], 9]} for name, counts in SHAPES["dynamo"].items()}
    views = {name: SHAPES["reshape"]["contiguous"] for name in SHAPES["reshape"]}
    device.data("mlp/new_shapes", dynamo=more, reshape=views)
    assert [status(f"O-P{number}", device) for number in numbers] == ["differs"] * 4
    device.data("mlp/new_shapes", dynamo={}, reshape={})
    assert [status(f"O-P{number}", device) for number in numbers] == ["not measured"] * 4


def test_a_cpu_that_needs_longer_than_the_gpu_is_noticed() -> None:
    device = probed()
    for name in ("eager", "compiled", "liger"):
        device.time(f"mlp/{name}", 200.0)
        device.time(f"mlp/{name}", 100.0, "enqueue")
    assert (status("O-P29", device), figure("liger_cpu_over_gpu", device).value) == ("holds", 0.5)
    device.time("mlp/liger", 210.0, "enqueue")
    assert (status("O-P29", device), figure("liger_cpu_slowest", device).value) == ("holds", pytest.approx(1.05))
    device.time("mlp/compiled", 210.0, "enqueue")
    assert (status("O-P29", device), measured("O-P29", device).value) == ("differs", pytest.approx(1.05))


def test_the_power_of_two_is_judged_by_both_kernels(device: AlteredDevice) -> None:
    change_kernels(device, "mlp/liger", lasting("geglu", 45.0))
    change_kernels(device, "mlp/liger_4096", lasting("geglu", 50.0))
    assert (status("O-P22", device), measured("O-P22", device).value) == ("holds", pytest.approx(1.2))
    change_kernels(device, "mlp/liger_4096", lasting("geglu", 60.0))
    assert (status("O-P22", device), measured("O-P22", device).value) == ("differs", pytest.approx(1.0))
    change_kernels(device, "mlp/liger_4096", lambda kernel: replace(kernel, registers=64))
    assert status("O-P23", device) == "differs"
    assert str(measured("O-P23", device).value).count("48 registers") == 1


def test_speed_ups_are_judged_by_pairs(device: AlteredDevice) -> None:
    for name in ("eager", "compiled", "liger"):
        device.recordings[f"mlp/{name}"] = BOOK["mlp/eager"].recording
    assert (status("O-P11", device), status("O-P12", device)) == ("differs", "differs")
    assert figure("compiled_speedup", device).value == 1.0
    scale_timings(device, "mlp/compiled", "interleaved", 0.8)
    scale_timings(device, "mlp/liger", "interleaved", 0.9)
    assert (status("O-P11", device), status("O-P12", device)) == ("holds", "holds")
    assert figure("compiled_speedup", device).value == pytest.approx(1.25)


def test_small_inputs_are_judged_at_every_size(device: AlteredDevice) -> None:
    for kind in ("from_python", "enqueue"):
        scale_timings(device, "mlp/sweep_liger", kind, 0.5)
    scale_timings(device, "mlp/sweep_compiled", "interleaved", 1.1)
    assert [status(name, device) for name in ("O-P14", "O-P8", "O-P15")] == ["differs"] * 3


def test_timings_of_two_sessions_are_not_compared(device: AlteredDevice) -> None:
    device.record("mlp/compiled", session="another")
    speedup = verdict("O-P11", device)
    assert (speedup.status, "recorded apart" in speedup.reason) == ("not measured", True)


def test_half_of_the_launches_is_not_enough(device: AlteredDevice) -> None:
    device.steps("mlp/compiled", lambda step: replace(step, activities=step.kernels[:2]))
    assert (status("O-P13", device), measured("O-P13", device).value) == ("holds", pytest.approx(60))
    device.traces.clear()
    device.steps("mlp/compiled", lambda step: replace(step, activities=step.kernels[:3]))
    assert (status("O-P13", device), measured("O-P13", device).value) == ("differs", pytest.approx(40))


def test_figures_by_hand(device: AlteredDevice) -> None:
    change_kernels(
        device, "mlp/eager", lambda kernel: replace(kernel, duration_us=40.0 if "nvjet" in kernel.name else 15.0)
    )
    assert figure("pointwise_share", device).value == pytest.approx(20)
    assert figure("free_pointwise", device).value == pytest.approx(1.25)
    assert figure("series_speedup", device).value == pytest.approx((550 + 149) / (550 + 89.4))
    assert figure("gemm_flops", device).value == 2 * 8192 * 768 * 3072
    assert figure("gelu_of_gate", device).value == pytest.approx(37.5)


def test_compilations_are_counted_to_the_last_batch() -> None:
    assert figure("automatic_compilations", BOOK).value == 2


def test_own_time_of_what_launches_nothing() -> None:
    rows = {row.name: row.self_cpu_us for row in key_averages(BOOK["mlp/eager"].trace)}
    idle = ("linear", "matmul", "t", "transpose", "as_strided", "reshape", "view", "_unsafe_view")
    expected = 100 * sum(rows[f"aten::{name}"] for name in idle) / rows["aten::mm"]
    assert figure("chain_over_mm", BOOK).value == pytest.approx(expected)


def test_the_work_of_a_fused_kernel_is_known_only_where_it_is_alone() -> None:
    assert fused_work(BOOK["mlp/compiled"].step) == {4: (0, 3 * HIDDEN_BYTES)}
    assert fused_work(BOOK["mlp/eager"].step) == {}


@pytest.mark.parametrize("name", FINDINGS.figures)
def test_every_figure_has_a_text(name: str) -> None:
    device = probed()
    assert figure(name, device).text
    assert figure(name, device).conclusive


def text_of(content: str) -> str:
    """Its text, and that of the names that only a screen reader reads."""
    named = re.sub(r'<svg[^>]* aria-label="([^"]*)"[^>]*>', r" \1 ", content)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", named)))


def captioned(piece: Callable[..., Html]) -> Callable[[Device], Html]:
    """A piece to which its page gives the caption."""
    return partial(piece, caption="What the page says")


PIECES: Mapping[str, tuple[Callable[[Device], Html], tuple[str, ...]]] = {
    "forward": (
        lambda device: timeline(device, {"eager": "mlp/eager"}, "One eager forward"),
        ("5 kernels, 2 fills", "aten::gelu", "Open the whole trace in Perfetto"),
    ),
    "kernels": (
        lambda device: kernel_table(device, "mlp/eager"),
        ("fill of memory", "aten::gelu", "cuLaunchKernelEx", "2x66x1"),
    ),
    "operators": (
        lambda device: profiler_table(device, "mlp/eager"),
        ("aten::matmul", "6 operators that never reach the GPU", "aten::as_strided"),
    ),
    "gemms": (costs.gemm_times, ("gate, 8192x768x3072", "down, 8192x3072x768", "interleaved")),
    "after idle": (eager.after_idle, ("up after a fill of memory", "500 51.0 µs 50.5 to 51.5 µs gap 50.0 µs")),
    "compiled": (captioned(fusion.compiled_step), ("eager, CPU", "compiled, CPU", "TorchDynamo Cache Lookup")),
    "compiled diff": (
        captioned(fusion.compiled_diff),
        ("replaced", "operators and regions 29 8 −21", "bytes moved 455 MB 354 MB −101 MB"),
    ),
    "Liger diff": (fusion.liger_diff, ("The layer came from", "replaced", "operators and regions 29 33 +4")),
    "traffic": (fusion.traffic, ("eager: 252 MB", "compiled: 151 MB", "GELU's result, read again")),
    "footprints": (fusion.footprints, ("49,152", "8,192", "Inductor's")),
    "choices": (
        choices.choices,
        (
            "1024 elements to 128 threads: 3 of 6",
            "default 2 1024 elements to 128 threads 40.0 µs 1024 elements, 4 warps",
        ),
    ),
    "conditions": (choices.conditions, ("as in a new process 3 of 4 60.5 µs", "coordinate_descent_tuning 2 of 2")),
    "forwards": (fused_kernels.forwards, ("compiled, slower kernel", "222 µs", "Liger")),
    "side by side": (
        captioned(costs.side_by_side),
        ("AOTDispatcher Runtime Wrapper Prologue", "LigerGELUMulFunction"),
    ),
    "opening": (costs.opening, ("1 token", "8,192 tokens", "eager", "compiled")),
    "new shapes": (fusion.new_shapes, ("dynamic=False first call", "64", "48")),
    "bought": (costs.bought, ("GPU, interleaved", "GPU, steady", "of eager", "from Python", "relative error")),
    "kernel times": (captioned(costs.kernel_times), ("eager: ", "compiled: ", "Liger: ")),
    "regimes": (captioned(costs.regimes_by_tokens), ("16,384", "compiled: overhead-bound up to")),
    "roofline": (costs.roofline_by_tokens, ("1 token:", "16,384 tokens:", "copy")),
    "widths": (fused_kernels.widths, ("3072 columns, Inductor", "4096 columns, Liger")),
    "replayed": (costs.replayed, ("Liger, CUDA graph", "eager, Python")),
}


@pytest.mark.parametrize("name", PIECES)
def test_a_piece_shows_what_it_promises(name: str) -> None:
    piece, expected = PIECES[name]
    text = text_of(piece(probed()))
    assert [words for words in expected if words not in text] == []


def test_a_hostile_name_stays_text() -> None:
    device = probed()
    for variant in ("eager", "compiled", "liger"):
        change_kernels(device, f"mlp/{variant}", renamed("_", "<script>"))
    change_data(device, "mlp/liger", liger="<script>")
    for piece, _ in PIECES.values():
        assert "<script" not in piece(device)
    assert "<script" in str(measured("M10", device).value)
    for name in CLAIMS:
        assert "<script" not in measured_html(verdict(name, device))


def test_a_missing_recording_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Device(tmp_path, DEFAULT_DEVICE)
    assert {judge(claim, "mlp", nothing).status for claim in CLAIMS.values()} == {"not measured"}
    assert {judge(claim, "mlp", nothing).is_pending for claim in CLAIMS.values()} == {True}
    monkeypatch.setenv("RECORDINGS", str(tmp_path))
    assert "make record CHAPTER=mlp" in show("mlp-traffic", fusion.traffic)
