"""Peak rates of GPUs, from their vendors' datasheets, by the GPU's name in a trace.

Rates are for dense products. NVIDIA's datasheets often print the rates with sparsity, which are twice as high.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

HALF = "float16"
"""The 16-bit type that every GPU here multiplies on its Tensor or Matrix Cores."""


MAX_AMOUNT = 1e30


@dataclass(frozen=True)
class Peaks:
    """Peaks of one GPU as PyTorch counts GPUs; for an MI250, of one of its two dies."""

    source: str
    """Title of the datasheet."""
    tflops: Mapping[str, float]
    """float16, bfloat16, tf32, float32, float64 -> TFLOPS of products, on Tensor or Matrix Cores if they can; float32
    is without TF32. A type that is missing has no unit of its own."""
    bandwidth_gb_per_s: float

    def product_us(self, flops: float, dtype: str) -> float | None:
        """The least time for a product's floating-point operations; None for a type without a known peak."""
        tflops = self.tflops.get(dtype)
        return None if tflops is None else _quotient(flops, tflops * 1e6)

    def memory_us(self, moved_bytes: float) -> float:
        """The least time for moving bytes to or from GPU memory."""
        return _quotient(moved_bytes, self.bandwidth_gb_per_s * 1e3)

    def roof_us(self, flops: float, moved_bytes: float, dtype: str) -> float | None:
        """The least time for a product: operations and bytes overlap. None for a type without a known peak."""
        product_us = self.product_us(flops, dtype)
        return None if product_us is None else max(product_us, self.memory_us(moved_bytes))


def _quotient(amount: float, rate: float) -> float:
    """Infinite for an amount too large for any GPU, 0 for a negative amount: a hostile trace has shapes of any size."""
    return max(0, amount) / rate if amount < MAX_AMOUNT else math.inf


def _peaks(source: str, half: float, tf32: float | None, single: float, double: float, bandwidth: float) -> Peaks:
    rates = {HALF: half, "float32": single, "float64": double}
    if source not in (_V100, _T4):
        rates["bfloat16"] = half
    if tf32 is not None:
        rates["tf32"] = tf32
    return Peaks(source, rates, bandwidth)


def _ada(tops: float, bandwidth: float) -> Peaks:
    """A GeForce RTX 40, by the "AI TOPS" and the memory of its specifications on nvidia.com.

    They count sparse 8-bit products: eight times the rate of dense 16-bit products that add in float32. A laptop's
    rates hold at its highest power.
    """
    half = tops / 8
    return _peaks("NVIDIA GeForce RTX 40 specifications", half, half / 2, half / 2, half / 128, bandwidth)


_V100 = "NVIDIA V100 Tensor Core GPU datasheet"
_A100 = "NVIDIA A100 Tensor Core GPU datasheet"
_T4 = "NVIDIA T4 Tensor Core GPU datasheet"
_GH200 = "NVIDIA GH200 Grace Hopper Superchip datasheet"
_H100 = "NVIDIA H100 Tensor Core GPU datasheet"
_DEVICES: tuple[tuple[str, Peaks], ...] = (
    (r"V100.*PCIE", _peaks(_V100, 112, None, 14, 7, 900)),
    (r"V100", _peaks(_V100, 125, None, 15.7, 7.8, 900)),
    (r"A100.*PCIE.*80GB|A100 80GB PCIe", _peaks(_A100, 312, 156, 19.5, 19.5, 1935)),
    (r"A100.*80GB", _peaks(_A100, 312, 156, 19.5, 19.5, 2039)),
    (r"A100", _peaks(_A100, 312, 156, 19.5, 19.5, 1555)),
    (r"H100 PCIe", _peaks(_H100, 756, 378, 51, 51, 2000)),
    (r"H100 NVL", _peaks(_H100, 835, 417, 60, 60, 3900)),
    (r"H100", _peaks(_H100, 989, 494, 67, 67, 3350)),
    (r"H200 NVL", _peaks("NVIDIA H200 Tensor Core GPU datasheet", 835, 417, 60, 60, 4800)),
    (r"H200", _peaks("NVIDIA H200 Tensor Core GPU datasheet", 989, 494, 67, 67, 4800)),
    (r"GH200.*144G", _peaks(_GH200, 990, 494, 67, 67, 4900)),
    (r"GH200", _peaks(_GH200, 990, 494, 67, 67, 4000)),
    (r"H20", _peaks("NVIDIA H20 GPU datasheet", 148, 74, 44, 1, 4000)),
    (r"B200", _peaks("NVIDIA DGX B200 datasheet", 2250, 1120, 75, 37, 8000)),
    (r"A10", _peaks("NVIDIA A10 Tensor Core GPU datasheet", 125, 62.5, 31.2, 0.49, 600)),
    (r"A40", _peaks("NVIDIA A40 GPU datasheet", 149.7, 74.8, 37.4, 0.58, 696)),
    (r"RTX A6000", _peaks("NVIDIA RTX A6000 datasheet", 154.8, 77.4, 38.7, 0.6, 768)),
    (r"T4", _peaks(_T4, 65, None, 8.1, 0.25, 320)),
    (r"L40S", _peaks("NVIDIA L40S GPU datasheet", 362, 183, 91.6, 1.4, 864)),
    (r"L4", _peaks("NVIDIA L4 Tensor Core GPU datasheet", 121, 60, 30.3, 0.5, 300)),
    (r"RTX 3090(?! Ti)", _peaks("NVIDIA Ampere GA102 GPU architecture, appendix A", 71, 35.6, 35.6, 0.56, 936)),
    (r"RTX 4090 Laptop", _ada(686, 576)),
    (r"RTX 4080 Laptop", _ada(542, 432)),
    (r"RTX 4070 Laptop", _ada(321, 256)),
    (r"RTX 4060 Laptop", _ada(233, 256)),
    (r"RTX 4050 Laptop", _ada(194, 192)),
    (r"RTX 4090(?! D)", _peaks("NVIDIA Ada GPU architecture, appendix A", 165, 82.6, 82.6, 1.3, 1008)),
    (r"RTX 4080 SUPER", _ada(836, 736)),
    (r"RTX 4080", _ada(780, 716.8)),
    (r"RTX 4070 Ti SUPER", _ada(706, 672)),
    (r"RTX 4070 Ti", _ada(641, 504)),
    (r"RTX 4070 SUPER", _ada(568, 504)),
    (r"RTX 4070", _ada(466, 504)),
    (r"RTX 4060(?! Ti)", _ada(242, 272)),
    (r"MI210", _peaks("AMD Instinct MI210 Accelerator datasheet", 181, None, 45.3, 45.3, 1638)),
    (r"MI250X", _peaks("AMD Instinct MI250X Accelerator datasheet", 191.5, None, 47.9, 47.9, 1638)),
    (r"MI250", _peaks("AMD Instinct MI250 Accelerator datasheet", 181, None, 45.3, 45.3, 1638)),
    (r"MI325X", _peaks("AMD Instinct MI325X Accelerator datasheet", 1307, 653, 163, 163, 6000)),
    (r"MI300X", _peaks("AMD Instinct MI300X Accelerator datasheet", 1307, 653, 163, 163, 5300)),
)
"""Expression for a device's name -> its peaks; the first that matches, so variants stand before their family."""


def find_peaks(device: str | None) -> Peaks | None:
    """The peaks of a GPU by its name in a trace, such as `NVIDIA H100 80GB HBM3`; None if this file lacks the GPU.

    None also for a slice of a GPU (MIG): its name does not tell its share of each unit.
    """
    if device is None or " MIG " in device:
        return None
    matches = (peaks for name, peaks in _DEVICES if re.search(rf"(?<![A-Z0-9]){name}(?![A-Z0-9])", device, re.I))
    return next(matches, None)
