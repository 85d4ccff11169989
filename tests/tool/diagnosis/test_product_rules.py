"""Rules about matrix products, and what devices can do at most."""

from __future__ import annotations

import math

import pytest

from kinetoscope.diagnosis.peaks import find_peaks
from kinetoscope.diagnosis.rule import CannotTell
from kinetoscope.diagnosis.rules.no_tensor_cores import RULE as NO_TENSOR_CORES
from kinetoscope.diagnosis.rules.slow_products import RULE as SLOW_PRODUCTS
from tests.tool.diagnosis.gpu_work import (
    BF16,
    F32,
    GEMM,
    H200,
    MI300X,
    SGEMM,
    TF32,
    V100,
    Work,
    facts,
    finding,
    option,
    result,
)

SQUARE = ((4096, 4096), (4096, 4096))
FLOPS, BYTES = 2 * 4096**3, 3 * 4096**2


def test_a_product_without_tensor_cores() -> None:
    found = finding(NO_TENSOR_CORES, facts(Work(SGEMM, 3000.0, "aten::mm", SQUARE, (F32, F32), ("aten::linear",))))
    assert found.title == "1 product without Tensor Cores: 3.00 ms per step"
    assert found.where == "aten::linear"
    assert found.saving_us_per_step == pytest.approx(3000.0 - FLOPS / 989e6, abs=0.001)


def test_without_shapes_a_large_tile_shows_long_sides() -> None:
    found = finding(NO_TENSOR_CORES, facts(Work(SGEMM, 3000.0, "aten::mm"), device=V100))
    assert found.saving_us_per_step == pytest.approx(3000.0 * (1 - 15.7 / 125), abs=0.001)


@pytest.mark.parametrize(
    "work",
    [
        Work(TF32, 300.0, "aten::mm", SQUARE, (F32, F32)),
        Work(GEMM, 150.0, "aten::mm", SQUARE, (BF16, BF16)),
        Work("ampere_dgemm_128x64_tn", 300.0, "aten::mm"),
        Work("volta_h884gemm_128x128_ldg8_nn", 300.0, "aten::mm"),
        Work(SGEMM, 300.0, "aten::mm", ((8, 4096), (4096, 4096)), (F32, F32)),
        Work("ampere_sgemm_32x32_sliced1x4_tn", 300.0, "aten::mm"),
    ],
    ids=["TF32", "bfloat16", "float64", "float16 on Volta", "a short side", "a small tile"],
)
def test_no_fault_of_units(work: Work) -> None:
    assert result(NO_TENSOR_CORES, facts(work)) == []


def test_units_need_a_device() -> None:
    product = Work(SGEMM, 3000.0, "aten::mm", SQUARE, (F32, F32))
    assert isinstance(result(NO_TENSOR_CORES, facts(product, device=None)), CannotTell)
    pascal = {"name": "Tesla P100", "computeMajor": 6}
    assert result(NO_TENSOR_CORES, facts(product, device=pascal)) == []
    assert isinstance(result(NO_TENSOR_CORES, facts(product, device=MI300X)), CannotTell)


def test_a_product_far_below_its_roof() -> None:
    found = finding(SLOW_PRODUCTS, facts(Work(GEMM, 600.0, "aten::mm", SQUARE, (BF16, BF16), ("@layer",))))
    assert found.saving_us_per_step == pytest.approx(600.0 - FLOPS / 989e6, abs=0.001)
    assert "600 µs per step, where the datasheet's rates need 139 µs" in found.title
    assert found.where == "aten::mm in layer"


def test_the_roof_may_be_that_of_memory() -> None:
    skinny = Work(GEMM, 400.0, "aten::mm", ((1, 16384), (16384, 16384)), (BF16, BF16))
    moved = 2 * (16384 + 16384**2 + 16384)
    assert finding(SLOW_PRODUCTS, facts(skinny)).saving_us_per_step == pytest.approx(400 - moved / 4.8e6, abs=0.001)


@pytest.mark.parametrize(
    "work",
    [
        Work(GEMM, 250.0, "aten::mm", SQUARE, (BF16, BF16)),
        Work(GEMM, 28.0, "aten::mm", ((64, 64), (64, 64)), (BF16, BF16)),
        Work(SGEMM, 3000.0, "aten::mm", SQUARE, (F32, F32)),
        Work(GEMM, 600.0, "aten::other", SQUARE, (BF16, BF16)),
        Work(GEMM, 600.0, "aten::mm", ((2**48, 4096), (4096, 4096)), (BF16, BF16)),
    ],
    ids=["more than a third", "bound by latency", "a fault of units", "another operator", "a hostile shape"],
)
def test_no_slow_product(work: Work) -> None:
    assert result(SLOW_PRODUCTS, facts(work)) == []


@pytest.mark.parametrize(("gap_us", "is_slow"), [(-300.0, False), (1.0, True)], ids=["next to it", "after it"])
def test_a_product_next_to_a_collective_is_not_slow(gap_us: float, is_slow: bool) -> None:
    reduced = Work("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 500.0, "c10d::allreduce_", stream=20)
    product = Work(GEMM, 600.0, "aten::mm", SQUARE, (BF16, BF16), gap_us=gap_us)
    assert bool(result(SLOW_PRODUCTS, facts(reduced, product))) is is_slow


def test_slow_products_need_shapes_and_a_known_device() -> None:
    assert option(SLOW_PRODUCTS, facts(Work(GEMM, 600.0, "aten::mm"))) == "record_shapes=True"
    unknown = result(SLOW_PRODUCTS, facts(Work(GEMM, 600.0, "aten::mm", SQUARE, (BF16, BF16)), device={"name": "X1"}))
    assert isinstance(unknown, CannotTell)
    assert unknown.reason == "the peaks of X1 are not known here"


@pytest.mark.parametrize(
    ("device", "bfloat16", "bandwidth"),
    [
        ("NVIDIA A100-SXM4-80GB", 312, 2039),
        ("NVIDIA A100 80GB PCIe", 312, 1935),
        ("NVIDIA A100-PCIE-40GB", 312, 1555),
        ("NVIDIA H100 80GB HBM3", 989, 3350),
        ("NVIDIA H100 PCIe", 756, 2000),
        ("NVIDIA H200", 989, 4800),
        ("NVIDIA B200", 2250, 8000),
        ("NVIDIA L4", 121, 300),
        ("NVIDIA L40S", 362, 864),
        ("NVIDIA GeForce RTX 4090", 165, 1008),
        ("NVIDIA GeForce RTX 4080", 97.5, 716.8),
        ("NVIDIA GeForce RTX 4080 Laptop GPU", 67.75, 432),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 85.75, 576),
        ("NVIDIA GeForce RTX 4060 Laptop GPU", 29.125, 256),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", 88.25, 672),
        ("NVIDIA GH200 480GB", 990, 4000),
        ("NVIDIA GH200 144G HBM3e", 990, 4900),
        ("NVIDIA H20", 148, 4000),
        ("NVIDIA A10", 125, 600),
        ("AMD Instinct MI325X", 1307, 6000),
        ("AMD Instinct MI210", 181, 1638),
        ("AMD Instinct MI250", 181, 1638),
        ("AMD Instinct MI300X VF", 1307, 5300),
    ],
)
def test_peaks(device: str, bfloat16: float, bandwidth: float) -> None:
    peaks = find_peaks(device)
    assert peaks is not None
    assert (peaks.tflops["bfloat16"], peaks.bandwidth_gb_per_s) == (bfloat16, bandwidth)
    assert peaks.tflops["float16"] == bfloat16
    assert peaks.source


@pytest.mark.parametrize(
    "device",
    [None, "", "NVIDIA L40", "NVIDIA GeForce RTX 4090 D", "NVIDIA A10G", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "XL4"],
)
def test_no_peaks_for_what_is_not_listed(device: str | None) -> None:
    assert find_peaks(device) is None


def test_volta_multiplies_no_bfloat16() -> None:
    turing, peaks = find_peaks("Tesla T4"), find_peaks(V100["name"])
    assert turing is not None
    assert "bfloat16" not in turing.tflops
    assert peaks is not None
    assert peaks.roof_us(1e9, 0, "bfloat16") is None
    assert peaks.roof_us(125e6, 0, "float16") == 1.0
    assert peaks.roof_us(0, 900e3, "float16") == 1.0
    assert peaks.roof_us(10**400, 0, "float16") == math.inf


def test_h200_has_the_peaks_of_its_datasheet() -> None:
    peaks = find_peaks(H200["name"])
    assert peaks is not None
    assert (peaks.tflops["tf32"], peaks.tflops["float32"]) == (494, 67)
