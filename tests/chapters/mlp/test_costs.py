"""The chapter mlp: claims about whole forwards, from one token to many."""

from __future__ import annotations

import pytest

from tests.chapters.altered import AlteredDevice, measured, status
from tests.chapters.mlp.changes import figure, replace
from tests.chapters.mlp.probes import probed
from tests.lab.samples import BOOK


def test_a_cpu_that_needs_longer_than_the_gpu_is_noticed() -> None:
    device = probed()
    for name in ("eager", "compiled", "liger"):
        device.time(f"mlp/{name}", 200.0)
        device.time(f"mlp/{name}", 100.0, "enqueue")
    assert (status(device, "O-P29"), figure("liger_cpu_over_gpu", device).value) == ("holds", 0.5)
    assert figure("liger_pace", device).value == "in no process"
    device.time("mlp/liger", 210.0, "enqueue")
    assert (status(device, "O-P29"), figure("liger_cpu_over_gpu", device).value) == ("holds", pytest.approx(1.05))
    assert figure("liger_pace", device).value == "in every process"
    device.time("mlp/compiled", 210.0, "enqueue")
    assert (status(device, "O-P29"), measured(device, "O-P29").value) == ("differs", pytest.approx(1.05))


def test_speed_ups_are_judged_by_pairs(device: AlteredDevice) -> None:
    device.recordings["mlp/compiled"] = BOOK["mlp/eager"].recording
    assert figure("compiled_speedup", device).value == 1.0
    device.scale("mlp/compiled", "interleaved", 0.8)
    assert figure("compiled_speedup", device).value == pytest.approx(1.25)


def test_half_of_the_launches_is_not_enough(device: AlteredDevice) -> None:
    device.steps("mlp/compiled", lambda step: replace(step, activities=step.kernels[:2]))
    assert (status(device, "O-P13"), measured(device, "O-P13").value) == ("holds", pytest.approx(60))
    device.traces.clear()
    device.steps("mlp/compiled", lambda step: replace(step, activities=step.kernels[:3]))
    assert (status(device, "O-P13"), measured(device, "O-P13").value) == ("differs", pytest.approx(40))


def test_figures_by_hand(device: AlteredDevice) -> None:
    device.kernels("mlp/eager", lambda kernel: replace(kernel, duration_us=40.0 if "nvjet" in kernel.name else 15.0))
    assert figure("pointwise_share", device).value == pytest.approx(20)
    assert figure("free_pointwise", device).value == pytest.approx(1.25)
    assert figure("series_speedup", device).value == pytest.approx((550 + 149) / (550 + 89.4))
    assert figure("gemm_flops", device).value == 2 * 8192 * 768 * 3072
    assert figure("gelu_of_gate", device).value == pytest.approx(37.5)
