"""Made-up recordings: for the tests here, and for `make serve SAMPLE=fact_check`."""

from __future__ import annotations

from typing import Any

from snippets.fact_check.experiments import TOKENS
from tests.lab.sample_recordings import SPREAD, Sample, sample_of

KERNEL = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel"
)
LINEAR_US = {"float32": 0.15, "tf32": 0.03, "bfloat16": 120 / 8192}
"""Arithmetic -> microseconds of a Linear for each token."""
GELU_US = {"float32": 0.01, "tf32": 0.01, "bfloat16": 40 / 8192}


def block_data() -> dict[str, Any]:
    """Times that rise with the tokens: two Linears and GELU, without which the fused block does."""
    samples: dict[str, dict[str, dict[str, list[float]]]] = {}
    for arithmetic, sizes in TOKENS.items():
        samples[arithmetic] = {}
        for tokens in sizes:
            linear, gelu = tokens * LINEAR_US[arithmetic], tokens * GELU_US[arithmetic]
            times = {"linear": linear, "gelu": gelu, "block": 2 * linear + gelu, "epilogue": 2 * linear}
            samples[arithmetic][str(tokens)] = {
                name: [round(share * us, 3) for share in SPREAD] for name, us in times.items()
            }
    return {"samples_us": samples, "errors": {}, "failed": {}, "left_out": []}


def table_data(kernel_us: float = 30.0) -> dict[str, Any]:
    """The rows of a table: an annotation, an operator without work, the operator that launches, and its kernel."""

    def row(name: str, is_kernel: bool, self_us: float, total_us: float) -> dict[str, Any]:
        cpu_us = 0.0 if is_kernel else 50.0
        times = {"self_device_us": self_us, "device_us": total_us, "cpu_us": cpu_us}
        return {"name": name, "is_kernel": is_kernel, **times, "calls": 1}

    rows = [
        row("linear_forward", False, 0.0, 30.0),
        row("linear_forward", True, 30.0, 30.0),
        row("aten::t", False, 0.0, 0.0),
        row("aten::addmm", False, 30.0, 90.0),
        row("Lazy Function Loading", False, 30.0, 30.0),
        row("cudaFuncGetAttributes", False, 0.0, 30.0),
        row(KERNEL, True, kernel_us, kernel_us),
    ]
    return {"table": "aten::addmm", "rows": rows, "activities": [{"name": KERNEL, "us": kernel_us}]}


def recordings(kernel: str = KERNEL) -> list[Sample]:
    """One for each experiment."""
    linear = ("aten::addmm", [[4096], [64, 1024], [1024, 4096]], [(kernel, 30.0)])
    return [
        sample_of("fact_check/article_linear", 30.0, [("aten::t", [[4096, 1024]], []), linear]),
        sample_of("fact_check/article_table", 0.0, data=table_data()),
        sample_of("fact_check/block", 0.0, data=block_data()),
    ]
