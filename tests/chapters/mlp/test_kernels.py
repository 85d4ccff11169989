"""The chapter mlp: claims about kernels, their order, launches, work and times in the traces."""

from __future__ import annotations

import re

import pytest

from kinetoscope.trace.averages import key_averages
from kinetoscope.trace.events import CudaCall, Step
from snippets.lab.finding.claim import Status
from snippets.lab.finding.figure import Figure
from snippets.mlp.findings import eager
from snippets.mlp.findings.steps import fused_work
from tests.chapters.altered import AlteredDevice
from tests.chapters.mlp.changes import (
    CLAIMS,
    HIDDEN_BYTES,
    change_kernels,
    figure,
    lasting,
    measured,
    renamed,
    replace,
    status,
    verdict,
)
from tests.chapters.mlp.probes import IDLE, probed
from tests.lab.samples import BOOK


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


def test_own_time_of_what_launches_nothing() -> None:
    rows = {row.name: row.self_cpu_us for row in key_averages(BOOK["mlp/eager"].trace)}
    idle = ("linear", "matmul", "t", "transpose", "as_strided", "reshape", "view", "_unsafe_view")
    expected = 100 * sum(rows[f"aten::{name}"] for name in idle) / rows["aten::mm"]
    assert figure("chain_over_mm", BOOK).value == pytest.approx(expected)


def test_the_work_of_a_fused_kernel_is_known_only_where_it_is_alone() -> None:
    assert fused_work(BOOK["mlp/compiled"].step) == {4: (0, 3 * HIDDEN_BYTES)}
    assert fused_work(BOOK["mlp/eager"].step) == {}
