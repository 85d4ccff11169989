"""The articles' claims about launches, writes and less traffic: each claim on altered recordings."""

from __future__ import annotations

import pytest

from kinetoscope.trace.events import CpuOp, GpuActivity, Step
from snippets.lab.finding.book import find_claim, judge
from snippets.lab.finding.claim import Status
from snippets.lab.finding.device import Device
from snippets.mlp.findings.steps import pointwise
from snippets.training_memory.findings.steps import is_matmul
from tests.chapters.altered import AlteredDevice, replace, scaled_timing


@pytest.fixture
def device() -> AlteredDevice:
    return AlteredDevice()


def status(claim_id: str, device: Device) -> Status:
    return judge(find_claim(claim_id)[1], "fact_check", device).status


def without(*ops: str) -> AlteredDevice:
    """The default device, whose eager MLP lacks the kernels and calls of these operators."""
    device = AlteredDevice()

    def step(each: Step) -> Step:
        kept = tuple(a for a in each.activities if a.op is None or a.op.name not in ops)
        return replace(each, activities=kept, ops=tuple(op for op in each.ops if op.name not in ops))

    device.steps("mlp/eager", step)
    return device


def test_writes_are_counted_by_kernel(device: AlteredDevice) -> None:
    assert status("FC43", device) == "holds"
    assert status("FC43", without("aten::gelu")) == "differs"


def test_the_shape_of_the_input(device: AlteredDevice) -> None:
    assert status("FC44", device) == "holds"

    def shorter(op: CpuOp) -> CpuOp:
        if op.name != "aten::mm":
            return op
        (rows, *left), *others = op.input_shapes
        return replace(op, input_shapes=((rows // 2, *left), *others))

    device.ops("mlp/eager", shorter)
    assert status("FC44", device) == "differs"


def test_a_launch_for_each_linear(device: AlteredDevice) -> None:
    assert status("FC47", device) == "holds"
    assert status("FC47", without("aten::mm")) == "differs"


def test_linears_and_activations_are_counted(device: AlteredDevice) -> None:
    assert status("FC50", device) == "holds"
    assert status("FC50", without("aten::gelu")) == "differs"
    assert status("FC50", without("aten::linear")) == "differs"


def test_whose_the_linears_kernel_is(device: AlteredDevice) -> None:
    assert status("FC49", device) == "holds"
    device.kernels("fact_check/article_linear", lambda kernel: replace(kernel, name="gemm_of_ours"))
    assert status("FC49", device) == "differs"


@pytest.mark.parametrize(("factor", "expected"), [(1.0, "holds"), (0.85, "differs")])
def test_the_pointwise_part_of_what_is_saved(device: AlteredDevice, factor: float, expected: Status) -> None:
    """At 0.85 of its time, eager's pointwise part takes hardly longer than the fused kernel."""

    def step(each: Step) -> Step:
        shorter = {id(kernel) for kernel in pointwise(each)}
        return replace(
            each,
            activities=tuple(
                replace(a, duration_us=a.duration_us * factor) if id(a) in shorter else a for a in each.activities
            ),
        )

    device.steps("mlp/eager", step)
    assert status("FC45", device) == expected


@pytest.mark.parametrize("variant", ["autocast_compiled", "bfloat16_compiled"])
def test_training_is_faster_in_both(device: AlteredDevice, variant: str) -> None:
    assert status("FC46", device) == "holds"
    name = f"training_memory/{variant}"
    slower = scaled_timing(device[name].timing("iteration"), 1.5)
    device.point(name, iteration=slower)
    assert status("FC46", device) == "differs"


def test_the_share_of_kernels_that_multiply_nothing(device: AlteredDevice) -> None:
    assert status("FC48", device) == "holds"

    def longer(kernel: GpuActivity) -> GpuActivity:
        return replace(kernel, duration_us=2 * kernel.duration_us) if is_matmul(kernel) else kernel

    device.kernels("training_memory/autocast", longer)
    assert status("FC48", device) == "differs"
