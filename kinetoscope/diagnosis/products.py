"""Matrix products: the kernels that compute them, the units they use, and the least time they need."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from kinetoscope.diagnosis.peaks import HALF, Peaks
from kinetoscope.trace.events import GpuActivity
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.work import PRODUCTS, ActivityWork

_SIMT = re.compile(r"simt_|(?<![a-z])[sh]gemm_|[sh]cudnn_|implicit_convolve_[sh]gemm|_ffma_")
"""Parts of the names of kernels that multiply on the ordinary units; `s16816gemm` and `h884gemm` have an instruction of
Tensor Cores in the name."""
TENSOR_CORES_SINCE = 7
"""Major compute capability of Volta."""


def is_product(activity: GpuActivity) -> bool:
    """Whether it is a kernel of a matrix product, by its name, or by its operator if the name does not tell."""
    if activity.kind != "kernel":
        return False
    operation = decode_kernel_name(activity.name).operation
    by_operator = operation == "other" and activity.op is not None and activity.op.name in PRODUCTS
    return by_operator or operation in ("gemm", "gemv")


def runs_on_ordinary_units(activity: GpuActivity) -> bool:
    """Whether a kernel's name shows that it multiplies without Tensor Cores; float64 never counts."""
    return activity.kind == "kernel" and _names_ordinary_units(activity.name)


@cache
def _names_ordinary_units(name: str) -> bool:
    return _SIMT.search(name) is not None and decode_kernel_name(name).dtype != "f64"


def _dtype(activity: GpuActivity) -> str | None:
    return decode_kernel_name(activity.name).dtype


def compute_capability(properties: dict[str, Any], device: str | None) -> int | None:
    """The major compute capability of an NVIDIA GPU: 9 for an H100. None if unknown, or of another vendor."""
    major = properties.get("computeMajor")
    return None if is_amd(device) or not isinstance(major, int) else major


def is_amd(device: str | None) -> bool:
    """Whether a GPU is AMD's, by its name: the names of its kernels do not tell the units they use."""
    return device is not None and ("AMD" in device or "Instinct" in device)


def tile_sides(activity: GpuActivity) -> tuple[int, ...]:
    """Rows and columns of the tile of a kernel's name; empty if it has none."""
    tile = decode_kernel_name(activity.name).tile
    return tuple(int(side) for side in tile.split("x")[:2]) if tile else ()


def least_us(activity: GpuActivity, work: ActivityWork | None, peaks: Peaks | None) -> float | None:
    """The least time for a product in its own type, by the datasheet; None if shapes, type or device are unknown.

    A float32 product counts as TF32 only if its kernel's name tells so.
    """
    if work is None or work.matmul is None or peaks is None:
        return None
    dtype = "tf32" if _dtype(activity) == "tf32" else work.dtype
    return peaks.roof_us(work.flops, work.bytes, dtype)


def least_half_us(activity: GpuActivity, work: ActivityWork | None, peaks: Peaks | None) -> float:
    """The least time for a product with 16-bit factors; 0 if the device is unknown.

    Without shapes, the time at which it would reach the same share of the 16-bit peak as it now may reach of the
    float32 peak.
    """
    if peaks is None:
        return 0.0
    if work is None or work.matmul is None:
        return activity.duration_us * peaks.tflops["float32"] / peaks.tflops[HALF]
    bytes_in_half = work.bytes // (2 if work.dtype == "float32" else 1)
    return peaks.roof_us(work.flops, bytes_in_half, HALF) or 0.0
