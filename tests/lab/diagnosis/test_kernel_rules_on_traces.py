"""The rules about kernels on recorded traces: the book's own, and public ones where they lie beside the checkout."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from snippets.lab.diagnosis.diagnose import Diagnosis, diagnose
from snippets.lab.diagnosis.facts import Facts
from snippets.lab.diagnosis.rule import CannotTell
from snippets.lab.diagnosis.rules.float64_kernels import RULE as FLOAT64_KERNELS
from snippets.lab.diagnosis.rules.layout_conversions import RULE as LAYOUT_CONVERSIONS
from snippets.lab.diagnosis.rules.needless_copies import RULE as NEEDLESS_COPIES
from snippets.lab.diagnosis.rules.no_tensor_cores import RULE as NO_TENSOR_CORES
from snippets.lab.diagnosis.rules.optimizer_loop import RULE as OPTIMIZER_LOOP
from snippets.lab.diagnosis.rules.slow_products import RULE as SLOW_PRODUCTS
from snippets.lab.diagnosis.rules.small_copies import RULE as SMALL_COPIES
from snippets.lab.diagnosis.rules.tiny_kernels import RULE as TINY_KERNELS
from snippets.lab.diagnosis.rules.type_round_trips import RULE as TYPE_ROUND_TRIPS
from snippets.lab.diagnosis.rules.unfused_attention import RULE as UNFUSED_ATTENTION
from snippets.lab.diagnosis.rules.unfused_elementwise import RULE as UNFUSED_ELEMENTWISE
from snippets.lab.trace.kineto import read_trace

PROJECT = Path(__file__).resolve().parents[3]
RECORDINGS = PROJECT / "docs" / "recordings"
PUBLIC = PROJECT.parent / "shared" / "traces" / "public"
RULES = (
    FLOAT64_KERNELS,
    LAYOUT_CONVERSIONS,
    NEEDLESS_COPIES,
    NO_TENSOR_CORES,
    OPTIMIZER_LOOP,
    SLOW_PRODUCTS,
    SMALL_COPIES,
    TINY_KERNELS,
    TYPE_ROUND_TRIPS,
    UNFUSED_ATTENTION,
    UNFUSED_ELEMENTWISE,
)
ATTENTION, COPIES, FUSING, UNITS = (
    r.name for r in (UNFUSED_ATTENTION, NEEDLESS_COPIES, UNFUSED_ELEMENTWISE, NO_TENSOR_CORES)
)
FAULTS = {
    "attention/compiled": {ATTENTION},
    "attention/decode_math": {ATTENTION, FUSING, SLOW_PRODUCTS.name},
    "attention/decode_naive": {ATTENTION},
    "attention/in_place": {ATTENTION, FUSING},
    "attention/math": {ATTENTION, FUSING, UNITS},
    "attention/naive": {ATTENTION, COPIES},
    "attention/training_compiled": {ATTENTION},
    "attention/training_efficient": {COPIES},
    "attention/training_flash": {COPIES},
    "attention/training_in_place": {ATTENTION, COPIES, FUSING},
    "attention/training_math": {ATTENTION, FUSING, UNITS},
    "attention/training_naive": {ATTENTION, COPIES, FUSING},
    "fused_mlp/eager": {FUSING},
    "fused_mlp/pointwise_copy": {COPIES},
    "fused_mlp/pointwise_eager": {FUSING},
    "fused_mlp/training_eager": {FUSING},
    "mlp/eager": {FUSING},
    "mlp/eager_4096": {FUSING},
}
"""Recording -> the faults in it, decided by what it does; no other recording has any."""
PUBLIC_FAULTS = {
    "astra_megatron_tp8_rank0": {ATTENTION},
    "astra_megatron_tp8_rank1": {ATTENTION},
    "hta_nccl_data": {SMALL_COPIES.name, LAYOUT_CONVERSIONS.name},
    "tracelens_h100_Qwen_Qwen1.5-0.5B-Chat": {FUSING, COPIES, TYPE_ROUND_TRIPS.name},
    "tracelens_h100_gaunernst_bert-small-uncased": set(),
    "tracelens_mi300_Falconsai_nsfw_image_detection": set(),
    "tracelens_mi300_gaunernst_bert-small-uncased": set(),
}
"""Public traces with steps of their own -> the faults in them, looked at kernel by kernel."""


@lru_cache(maxsize=1)
def _diagnosis(path: Path) -> Diagnosis:
    return diagnose(read_trace(path), RULES)


def _names(diagnosis: Diagnosis) -> set[str]:
    return {found.rule.name for found in diagnosis.findings}


def _gpu_us(device: str, experiment: str) -> float:
    """GPU time of a step of a recording."""
    trace = read_trace(RECORDINGS / device / f"{experiment}.trace.json.gz")
    return sum(activity.duration_us for step in trace.steps for activity in step.activities) / len(trace.steps)


@pytest.mark.parametrize("device", sorted(folder.name for folder in RECORDINGS.iterdir() if folder.is_dir()))
def test_recordings_have_the_faults_that_they_show(device: str) -> None:
    paths = sorted((RECORDINGS / device).glob("*/*.trace.json.gz"))
    found = {
        f"{path.parent.name}/{path.name.removesuffix('.trace.json.gz')}": _names(_diagnosis(path)) for path in paths
    }
    assert {name: names for name, names in found.items() if names} == FAULTS


@pytest.mark.parametrize("device", sorted(folder.name for folder in RECORDINGS.iterdir() if folder.is_dir()))
@pytest.mark.parametrize(
    ("rule", "faulty", "mended"),
    [
        (UNFUSED_ATTENTION, "attention/naive", "attention/flash"),
        (UNFUSED_ATTENTION, "attention/naive", "attention/cudnn"),
        (UNFUSED_ATTENTION, "attention/math", "attention/flash"),
        (UNFUSED_ATTENTION, "attention/compiled", "attention/flash"),
        (UNFUSED_ATTENTION, "attention/decode_naive", "attention/decode_flash"),
        (UNFUSED_ATTENTION, "attention/training_naive", "attention/training_cudnn"),
        (UNFUSED_ELEMENTWISE, "mlp/eager", "mlp/compiled"),
        (UNFUSED_ELEMENTWISE, "mlp/eager_4096", "mlp/liger_4096"),
        (UNFUSED_ELEMENTWISE, "fused_mlp/pointwise_eager", "fused_mlp/pointwise_fused"),
        (UNFUSED_ELEMENTWISE, "fused_mlp/training_eager", "fused_mlp/training_compiled"),
        (NEEDLESS_COPIES, "attention/naive", "attention/in_place"),
    ],
    ids=lambda value: value.split("/")[-1] if isinstance(value, str) else value.name,
)
def test_no_pair_gained_more_than_the_ceiling(device: str, rule: object, faulty: str, mended: str) -> None:
    path = RECORDINGS / device / f"{faulty}.trace.json.gz"
    if not path.exists():
        pytest.skip(f"{faulty} is not recorded on {device}")
    ceilings = [f.ceiling_us_per_step for f in _diagnosis(path).findings if f.rule is rule]
    gained_us = _gpu_us(device, faulty) - _gpu_us(device, mended)
    assert 0 < gained_us <= ceilings[0]


def test_the_trace_that_a_graph_replays_cannot_tell() -> None:
    path = RECORDINGS / "nvidia-h200" / "fused_mlp" / "reduce_overhead.trace.json.gz"
    unable = {each.rule.name: each.option for each in _diagnosis(path).cannot_tell}
    assert unable == {SLOW_PRODUCTS.name: ""}


@pytest.mark.parametrize("name", PUBLIC_FAULTS)
def test_public_traces(name: str) -> None:
    path = PUBLIC / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("the public traces do not lie beside the checkout")
    diagnosis = _diagnosis(path)
    assert _names(diagnosis) == PUBLIC_FAULTS[name]
    gpu_us = diagnosis.facts.long_run_us
    assert all(0 < f.ceiling_us_per_step <= f.evidence_us_per_step <= gpu_us for f in diagnosis.findings)


def test_a_trace_of_the_cpu_alone_tells_nothing_of_kernels() -> None:
    path = PUBLIC / "hta_cpu_only_rank34.json.gz"
    if not path.exists():
        pytest.skip("the public traces do not lie beside the checkout")
    of = Facts(read_trace(path))
    assert all(isinstance(rule.check(of), CannotTell) for rule in RULES)
