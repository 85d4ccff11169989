"""The forward from Python: claims on numbers by hand."""

from __future__ import annotations

import msgspec
import pytest

from kinetoscope.trace.events import Step
from snippets.fused_mlp.findings import calls, shapes
from snippets.lab.finding import NotTimed
from snippets.lab.finding.claim import Status
from tests.chapters.altered import AlteredDevice
from tests.chapters.fused_mlp.test_shapes import WIDE, point_of, put
from tests.chapters.fused_mlp.verdicts import measured, status, statuses, text_of, value
from tests.lab.samples import BOOK

replace = msgspec.structs.replace
TIMES_US = {
    calls.EAGER: 68.0,
    calls.EMPTY: 20.0,
    calls.BY_TRITON: 120.0,
    calls.LAUNCHES: 12.0,
    calls.OPERATOR: 30.0,
    calls.WHOLE: 40.0,
}


def enqueued(device: AlteredDevice, **changed_us: float) -> None:
    names = {"triton": calls.BY_TRITON, "launches": calls.LAUNCHES, "operator": calls.OPERATOR, "empty": calls.EMPTY}
    times = TIMES_US | {names[name]: us for name, us in changed_us.items()}
    put(device, "enqueued", **{name: [us, us, us] for name, us in times.items()})


@pytest.mark.parametrize(
    ("changed", "prepared", "operator", "expected"),
    [
        ({}, 0.1, 0.9, ["holds", "holds"]),
        ({"triton": 75.0}, 0.16, 0.9, ["differs", "holds"]),
        ({"operator": 33.0}, 0.1, 1.05, ["holds", "differs"]),
        ({"empty": 17.0}, 0.1, 18 / 17, ["holds", "differs"]),
    ],
)
def test_what_a_call_is_made_of(
    device: AlteredDevice, changed: dict[str, float], prepared: float, operator: float, expected: list[Status]
) -> None:
    enqueued(device, **changed)
    assert [measured(device, name).value for name in ("F98", "F99")] == [
        pytest.approx(prepared),
        pytest.approx(operator),
    ]
    assert statuses(device, "F98", "F99") == expected


def test_the_table_of_a_call(device: AlteredDevice) -> None:
    enqueued(device)
    text = text_of(calls.calls_table(device))
    assert "eager's module 68.0 µs" in text
    assert "our two launches, prepared 12.0 µs 0.18x" in text
    assert value(device, "triton_over_prepared") == 10


def test_where_the_second_product_is_cublas(device: AlteredDevice) -> None:
    """Then PyTorch launches it, and Triton only the first."""
    enqueued(device)
    assert value(device, "product_of_operator") == 0

    def with_cublas(step: Step) -> Step:
        whole = next(op for op in step.ops if op.name.endswith("::forward") and not op.is_annotation)
        product = replace(whole, name="aten::mm", duration_us=whole.duration_us / 4, parent=whole)
        first = step.kernels[0]
        return replace(step, ops=(whole, product), activities=(first, replace(first, op=product)))

    device.steps("fused_mlp/fused", with_cublas)
    assert value(device, "product_of_operator") == pytest.approx(25, rel=1e-3)
    text = text_of(calls.calls_table(device))
    assert "our first launch, prepared, and cuBLAS's product 12.0 µs" in text
    assert "our two launches" not in text
    assert statuses(device, "F98", "F99") == ["not measured", "holds"]
    with pytest.raises(NotTimed, match="took cuBLAS for the second product"):
        value(device, "triton_over_prepared")


@pytest.mark.parametrize(
    ("ours_us", "expected"), [(40.0, ["holds", "holds"]), (41.0, ["holds", "differs"]), (42.0, ["differs", "differs"])]
)
def test_the_cpu_beside_eager_and_beside_the_gpu(device: AlteredDevice, ours_us: float, expected: list[Status]) -> None:
    put(device, "eager", point_of(WIDE, 300.0, enqueue_us=69.0))
    put(device, "fused", point_of(WIDE, 100.0, enqueue_us=ours_us))
    assert measured(device, "F97").value == pytest.approx(ours_us / 69)
    assert measured(device, "F48").value == pytest.approx(ours_us / 100)
    assert statuses(device, "F97", "F48") == expected


def test_one_row_that_loses_from_python_is_noticed(device: AlteredDevice) -> None:
    rows = (WIDE, shapes.ONE_TOKEN)
    put(device, "bfloat16_compiled", *(point_of(row, 100.0) for row in rows))
    put(device, "bfloat16_fused", *(point_of(row, 100.0) for row in rows))
    assert (measured(device, "F100").value, status(device, "F100")) == (1.0, "holds")
    put(device, "bfloat16_fused", point_of(rows[0], 50.0), point_of(rows[1], 101.0))
    assert (measured(device, "F100").value, status(device, "F100")) == (1.01, "differs")


def test_ours_inside_compiled_code(device: AlteredDevice) -> None:
    ours, compiled = "fused_mlp/fused", "fused_mlp/fused_compiled"
    device.recordings[compiled] = BOOK[ours].recording
    device.traces[compiled] = BOOK[ours].trace
    assert statuses(device, "F101", "F102") == ["holds", "holds"]
    for name in ("compiled", "reduce_overhead", "fused_reduce_overhead"):
        device.recordings[f"fused_mlp/{name}"] = BOOK[ours].recording
    assert "ours, reduce-overhead" in text_of(calls.compiled_table(device))
