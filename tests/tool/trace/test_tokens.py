"""Which steps produce one token, where the trace has no shapes."""

from __future__ import annotations

import pytest

from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.tokens import is_token
from tests.tool.events import step, trace_bytes
from tests.tool.token_loops import GEMM, GEMV, MANY_QUERIES, ONE_QUERY, Launch, events

CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_kernel_cudnn"
TENSILE = "Cijk_Alik_Bljk_BBS_BH_MT128x128x64_MI32x32x8x1"
FEW = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"
PICK = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int>>"


def produces_token(*kernels: str, extra: str = "") -> bool:
    """Whether a step of these kernels, and of an operator if given, produces one token; none has an operator else."""
    launches = [Launch(None, name) for name in kernels] + ([Launch(extra, "other_kernel")] if extra else [])
    trace = read_trace(trace_bytes(step(1, 0.0, 1000.0), *events(launches, start=10.0)))
    return is_token(trace.steps[0].ops, trace.steps[0].activities)


@pytest.mark.parametrize(
    "kernels",
    [
        [GEMV, MANY_QUERIES],
        [GEMM, ONE_QUERY],
        [FEW, FEW, GEMM, "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16"],
        [TENSILE, "void paged_attention_ll4mi_QKV_mfma16_kernel<x>", "reshape_and_cache_kernel"],
        ["void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2>", "triton_red_fused_embedding_mean_0"],
        [GEMM, "BatchDecodeWithPagedKVCacheKernel", "flashinfer::attention"],
        [GEMM, "_fwd_grouped_kernel_stage1", "indexSelectSmallIndex"],
    ],
)
def test_kernels_of_a_token(kernels: list[str]) -> None:
    attention = "pytorch_flash::flash_fwd_kernel<x>"
    assert produces_token(*kernels, attention, PICK)
    assert produces_token(*kernels, attention, "triton_red_fused_argmax_1", "triton_per_fused_argmax_2")
    assert not produces_token(*kernels, attention)
    assert not produces_token(PICK, *kernels, attention, PICK)
    assert not produces_token(*kernels, attention, CONVOLUTION, PICK)
    assert not produces_token(*kernels, attention, PICK, extra="autograd::engine::evaluate_function: MmBackward0")


@pytest.mark.parametrize(
    "kernels",
    [[GEMM, MANY_QUERIES], [GEMM, GEMM, FEW, MANY_QUERIES], [GEMV], [GEMM, "rotary_embedding_kernel"], []],
    ids=["many queries", "most products have many rows", "neither attention nor embedding", "rotary", "nothing else"],
)
def test_kernels_of_other_steps(kernels: list[str]) -> None:
    assert not produces_token(*kernels, PICK)
