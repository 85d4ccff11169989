"""No recorded pair of a fault and its mending gained more than the saving, or the pair mends more than the fault."""

from __future__ import annotations

from statistics import median

import pytest

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.trace import kineto
from kinetoscope.trace.queries import busy_us
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.loading import load_recording
from tests.tool.diagnosis.recorded import DEVICES, found_in
from tests.tool.recorded import RECORDINGS

NOISE = 0.02
"""Times of two recordings, and GPU time with and without the profiler, agree within this."""
ATTENTION, FUSING, COPIES, UNITS = "unfused-attention", "unfused-elementwise", "needless-copies", "no-tensor-cores"
PRODUCTS, LAUNCHES = "slow-products", "launch-bound"
GEMMS = "the mended one also runs the products in other kernels"
FLOAT32 = "the mended one also computes all that is not a product in 16 bits"
PAIRS = [
    (ATTENTION, "attention/naive", "attention/flash", ""),
    (ATTENTION, "attention/naive", "attention/cudnn", ""),
    (ATTENTION, "attention/naive", "attention/efficient", ""),
    (ATTENTION, "attention/in_place", "attention/cudnn", ""),
    (ATTENTION, "attention/math", "attention/flash", ""),
    (ATTENTION, "attention/compiled", "attention/flash", ""),
    (ATTENTION, "attention/decode_naive", "attention/decode_flash", ""),
    (ATTENTION, "attention/decode_naive", "attention/decode_cudnn", ""),
    (ATTENTION, "attention/decode_math", "attention/decode_flash", ""),
    (ATTENTION, "attention/training_naive", "attention/training_cudnn", ""),
    (ATTENTION, "attention/training_naive", "attention/training_flash", ""),
    (ATTENTION, "attention/training_compiled", "attention/training_cudnn", ""),
    (ATTENTION, "attention/training_math", "attention/training_flash", ""),
    (FUSING, "mlp/eager", "mlp/compiled", ""),
    (FUSING, "mlp/eager", "mlp/liger", ""),
    (FUSING, "mlp/eager_4096", "mlp/compiled_4096", ""),
    (FUSING, "mlp/eager_4096", "mlp/liger_4096", ""),
    (FUSING, "fused_mlp/pointwise_eager", "fused_mlp/pointwise_fused", ""),
    (FUSING, "fused_mlp/pointwise_eager", "fused_mlp/pointwise_compiled", ""),
    (FUSING, "fused_mlp/eager", "fused_mlp/compiled", ""),
    (FUSING, "fused_mlp/training_eager", "fused_mlp/training_compiled", ""),
    (FUSING, "fused_mlp/eager", "fused_mlp/fused", GEMMS),
    (FUSING, "fused_mlp/training_eager", "fused_mlp/training_fused", GEMMS),
    (COPIES, "attention/naive", "attention/in_place", ""),
    (COPIES, "attention/training_naive", "attention/training_in_place", ""),
    (UNITS, "attention/math", "attention/naive", FLOAT32),
    (UNITS, "attention/training_math", "attention/training_naive", FLOAT32),
    (PRODUCTS, "attention/decode_math", "attention/decode_naive", FLOAT32),
    (LAUNCHES, "fused_mlp/linear_64_compiled", "fused_mlp/linear_64_fused", ""),
    (LAUNCHES, "fused_mlp/linear_64_eager", "fused_mlp/linear_64_addmm", ""),
    (LAUNCHES, "fused_mlp/linear_64_compiled", "fused_mlp/linear_64_addmm", ""),
]
"""Rule, faulty, mended, and why the pair gains more than the saving: empty if it does not."""


def gained_us(device: str, rule: str, faulty: str, mended: str) -> float | None:
    """By how much the mended one is faster: on the GPU alone, from Python for a rule about launching."""
    times = []
    for experiment in (faulty, mended):
        timings = load_recording(RECORDINGS, device, experiment).points[0].timings
        if timings is None:
            return None
        times.append((timings.from_python if rule == LAUNCHES else timings.interleaved).median_us)
    return times[0] - times[1]


RECORDED = [
    (device, *pair)
    for device in DEVICES
    for pair in PAIRS
    if all((RECORDINGS / device / f"{experiment}.json").is_file() for experiment in pair[1:3])
]


def test_the_default_device_has_every_pair() -> None:
    assert [pair for device, *pair in RECORDED if device == DEFAULT_DEVICE] == [list(pair) for pair in PAIRS]


@pytest.mark.parametrize(
    ("device", "rule", "faulty", "mended", "reason"), RECORDED, ids=lambda value: str(value).split("/")[-1][:24]
)
def test_no_pair_gained_more_than_the_saving(device: str, rule: str, faulty: str, mended: str, reason: str) -> None:
    gained = gained_us(device, rule, faulty, mended)
    assert gained is not None
    saving = found_in(device, faulty).savings[rule]
    print(f"{device} {rule}: {faulty} -> {mended}: saving {saving:.1f} us, gained {gained:.1f} us {reason}")
    if reason:
        assert gained > saving, "the pair needs no reason"
    else:
        assert gained <= (1 + NOISE) * saving


@pytest.mark.parametrize("device", DEVICES)
def test_the_saving_of_a_recorded_wait(device: str) -> None:
    """Within a tenth of what the step without `.item()` gains if its kernels, recorded apart, follow without gaps."""
    path = RECORDINGS / device / "matmul_add" / "item_4096.trace.json.gz"
    faulty, mended = kineto.read_trace(path), kineto.read_trace(path.with_name("eager_4096.trace.json.gz"))
    result = diagnose(faulty, [rule for rule in RULES if rule.name == "sync-in-step"])
    gained = result.facts.step_us - median(busy_us(step.activities) for step in mended.steps)
    assert [finding.saving_us_per_step for finding in result.findings] == [pytest.approx(gained, rel=0.1)]
