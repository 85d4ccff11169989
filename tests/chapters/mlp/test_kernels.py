"""The chapter mlp: claims about kernels, their order, launches, work and times in the traces."""

from __future__ import annotations

import pytest

from kinetoscope.trace.events import CudaCall, Step
from snippets.lab.finding.claim import Status
from snippets.lab.finding.figure import Figure
from snippets.mlp.findings.steps import fused_work
from tests.chapters.altered import AlteredDevice, measured, status, verdict
from tests.chapters.mlp.changes import CLAIMS, HIDDEN_BYTES, figure, lasting, replace
from tests.chapters.mlp.probes import IDLE, probed
from tests.lab.samples import BOOK


def test_a_missing_product_is_named(device: AlteredDevice) -> None:
    device.steps("mlp/eager", lambda step: replace(step, activities=step.activities[:-1]))
    down = verdict(device, "M7")
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


def test_m4_finds_queries_under_the_matmuls(device: AlteredDevice) -> None:
    def asking(step: Step) -> Step:
        queries = [
            CudaCall("cudaOccupancyMaxActiveBlocksPerMultiprocessor", op.start_us + 0.1, 0.1, op.thread, 0)
            for op in step.ops
            if op.name == "aten::mm"
        ]
        return replace(step, calls=tuple(sorted([*step.calls, *queries], key=lambda call: call.start_us)))

    device.steps("mlp/eager", asking)
    assert (status(device, "M4"), measured(device, "M4").value) == ("holds", "3 of 3 GEMMs, 0 of 2 pointwise")


@pytest.mark.parametrize(("down_us", "expected"), [(90.0, "holds"), (100.0, "differs"), (70.0, "differs")])
def test_m7_wants_about_a_tenth(down_us: float, expected: Status, device: AlteredDevice) -> None:
    down = str(figure("down_gemm", device).value)
    device.kernels("mlp/eager", lambda kernel: lasting(down, down_us)(lasting("nvjet", 100.0)(kernel)))
    assert (status(device, "M7"), measured(device, "M7").value) == (expected, pytest.approx(100 - down_us))


def test_bytes_come_from_the_shapes(device: AlteredDevice) -> None:
    names = ("intermediate_bytes", "eager_bytes", "fused_bytes", "saved_bytes")
    assert [figure(name, device).value for name in names] == [count * HIDDEN_BYTES for count in (1, 5, 3, 2)]
    half = ((64, 128, 1536), (64, 128, 1536))
    device.ops("mlp/eager", lambda op: replace(op, input_shapes=half) if op.name == "aten::mul" else op)
    assert figure("eager_bytes", device).value == 2 * HIDDEN_BYTES + 3 * HIDDEN_BYTES // 2
    device.ops("mlp/eager", lambda op: replace(op, input_types=()))
    saved = verdict(device, "M12")
    assert (saved.status, "lacks the shapes of its operators" in saved.reason) == ("not measured", True)


def test_m13_and_the_fused_kernel_s_rate(device: AlteredDevice) -> None:
    as_fast_as_a_copy = 3 * HIDDEN_BYTES / device["mlp/compiled"].ceiling("copy").rate * 1e6
    device.kernels("mlp/compiled", lasting("triton", as_fast_as_a_copy))
    assert (status(device, "M13"), measured(device, "M13").value) == ("holds", pytest.approx(100))
    device.kernels("mlp/compiled", lasting("triton", 2 * as_fast_as_a_copy))
    assert (status(device, "M13"), measured(device, "M13").value) == ("differs", pytest.approx(50))


@pytest.mark.parametrize(("liger_us", "expected"), [(38.0, "holds"), (36.0, "differs"), (48.0, "differs")])
def test_k3_wants_a_few_percent(liger_us: float, expected: Status, device: AlteredDevice) -> None:
    device.kernels("mlp/compiled", lasting("triton", 37.0))
    device.kernels("mlp/liger", lasting("geglu", liger_us))
    assert (status(device, "K3"), measured(device, "K3").value) == (expected, pytest.approx(liger_us / 37.0))


def test_idle_time_by_hand() -> None:
    device = probed()
    assert figure("up_after_gate", device).value == 60 / 50
    assert figure("up_after_fill", device).value == pytest.approx(1.0, abs=0.03)
    assert figure("longest_gap_us", device).value == 50.0
    assert (status(device, "O-P27"), measured(device, "O-P27").value) == ("differs", 60 / 50)
    turned = {work: times[::-1] for work, times in IDLE["after"].items()}
    device.data("mlp/after_idle", after=turned | {"fill": turned["gate"]})
    assert (status(device, "O-P27"), measured(device, "O-P27").value) == ("holds", 50 / 58)


def test_up_beside_gate_in_the_traces(device: AlteredDevice) -> None:
    gates = {step.kernels[0].start_us for step in device["mlp/compiled"].steps}
    device.kernels(
        "mlp/compiled", lambda kernel: replace(kernel, duration_us=50.0 if kernel.start_us in gates else 55.0)
    )
    assert (status(device, "O-P37"), measured(device, "O-P37").value) == ("holds", pytest.approx(1.1))
    device.kernels("mlp/compiled", lambda kernel: replace(kernel, duration_us=50.0))
    assert (status(device, "O-P37"), measured(device, "O-P37").value) == ("differs", 1.0)


def test_gaps_before_up_come_from_the_traces() -> None:
    def gaps(*names: str) -> list[tuple[float, float]]:
        pairs = [step.kernels[:2] for name in names for step in BOOK[f"mlp/{name}"].steps]
        return sorted((b.start_us - a.start_us - a.duration_us, b.duration_us / a.duration_us) for a, b in pairs)

    assert figure("gap_compiled_us", BOOK).value == pytest.approx(gaps("compiled")[1][0])
    longest = (figure("longest_trace_gap_us", BOOK).value, figure("up_after_trace_gap", BOOK).value)
    assert longest == pytest.approx(gaps("eager", "liger")[-1])


def test_the_work_of_a_fused_kernel_is_known_only_where_it_is_alone() -> None:
    assert fused_work(BOOK["mlp/compiled"].step) == {4: (0, 3 * HIDDEN_BYTES)}
    assert fused_work(BOOK["mlp/eager"].step) == {}
