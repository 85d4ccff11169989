"""Attention's launches, by backend and compiled: claims and tables on recordings, some of them altered."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kinetoscope.trace.events import CpuOp, GpuActivity, Step, TraceError
from snippets.attention.findings import backends, live, traffic, variants
from snippets.attention.findings.variants import VARIANTS
from snippets.lab import cache
from snippets.lab.finding.figure import Figure
from tests.chapters.altered import RECORDED, AlteredDevice
from tests.chapters.attention.bench import CLAIMS, FIGURES, measured, text_of, verdict, verdicts

NAIVE, IN_PLACE, MATH, COMPILED = "attention/naive", "attention/in_place", "attention/math", "attention/compiled"
replace = msgspec.structs.replace


def called(old: str, new: str) -> Callable[[GpuActivity], GpuActivity]:
    return lambda activity: replace(activity, name=activity.name.replace(old, new))


def lasting(part: str, factor: float) -> Callable[[GpuActivity], GpuActivity]:
    return lambda activity: (
        replace(activity, duration_us=factor * activity.duration_us) if part in activity.name else activity
    )


def renamed(old: str, new: str) -> Callable[[CpuOp], CpuOp]:
    return lambda op: replace(op, name=new) if op.name == old else op


def without(kind: str) -> Callable[[GpuActivity], GpuActivity | None]:
    return lambda activity: None if activity.kind == kind else activity


def without_last(step: Step) -> Step:
    return replace(step, activities=step.activities[:-1])


# Written out


def test_a_forward_that_copies_nothing(altered: AlteredDevice) -> None:
    altered.activities(NAIVE, without("memcpy"))
    assert verdicts(altered, "A1", "O-A1") == ["differs", "not measured"]
    assert measured(altered, "A1").value == "product, scaling, masking, softmax, product"
    assert FIGURES["launched"](altered).value == 5


def test_masking_in_place_that_copies(altered: AlteredDevice) -> None:
    altered.traces[IN_PLACE] = RECORDED[NAIVE].trace
    assert verdict(altered, "A2") == "differs"


def test_steps_that_disagree_decide_nothing(altered: AlteredDevice) -> None:
    for experiment in (NAIVE, MATH):
        altered.steps(experiment, without_last, only=0)
    assert verdicts(altered, "A1", "A3", "O-A11") == ["inconclusive"] * 3


def test_the_copy_of_another_operator(altered: AlteredDevice) -> None:
    altered.ops(NAIVE, renamed("aten::masked_fill", "aten::where"))
    assert measured(altered, "O-A1").value == "aten::where > aten::clone > aten::copy_"
    assert verdict(altered, "O-A1") == "differs"


def test_a_larger_fill_or_none(altered: AlteredDevice) -> None:
    altered.activities(NAIVE, lambda activity: replace(activity, moved_bytes=8))
    assert (verdict(altered, "O-A2"), measured(altered, "O-A2").value) == ("differs", "aten::bmm 8 bytes")
    altered.activities(NAIVE, without("memset"))
    assert (verdict(altered, "O-A2"), measured(altered, "O-A2").value) == ("differs", "none")


def test_shares_and_ratios_follow_the_times_of_kernels(altered: AlteredDevice) -> None:
    altered.activities(NAIVE, lasting("nvjet", 2.0))
    assert verdicts(altered, "O-A3", "O-A4") == ["differs", "holds"]
    altered.activities(NAIVE, lasting("masked_fill_kernel", 0.5))
    assert verdict(altered, "O-A4") == "differs"


def test_a_vectorized_masking_kernel(altered: AlteredDevice) -> None:
    altered.activities(NAIVE, called("void at::native::elementwise_kernel", "void at::native::vectorized_other"))
    assert measured(altered, "O-A5").value == "scaling vectorized_elementwise_kernel, masking vectorized_other"
    assert verdict(altered, "O-A5") == "differs"


# Backends


def test_one_kernel_less(altered: AlteredDevice) -> None:
    for name in ("math", "efficient", "cuDNN", "Flex", "compiled"):
        altered.steps(VARIANTS[name], without_last)
    assert verdicts(altered, "A3", "A8", "O-A14", "O-A17", "O-A22") == ["differs"] * 5
    assert measured(altered, "A8").value == "0 kernels: "


def test_two_kernels_are_not_one(altered: AlteredDevice) -> None:
    altered.steps("attention/efficient", lambda step: replace(step, activities=step.activities * 2))
    assert verdict(altered, "A8") == "differs"
    expected = "2 kernels: fmha_cutlassF_bf16_aligned_64x64_rf_sm80, fmha_cutlassF_bf16_aligned_64x64_rf_sm80"
    assert measured(altered, "A8").text == expected


def test_the_names_of_the_series_would_hold(altered: AlteredDevice) -> None:
    altered.activities(MATH, called("sm80_xmma_gemm_f32f32_f32f32_f32", "ampere_sgemm"))
    altered.activities(NAIVE, called("nvjet_sm90_tst", "ampere_bf16_s16816gemm_bf16"))
    altered.activities("attention/cudnn", lambda kernel: replace(kernel, name=backends.SERIES_CUDNN))
    assert verdicts(altered, "A5", "A10") == ["holds"] * 2


def test_products_in_another_type(altered: AlteredDevice) -> None:
    altered.ops(MATH, lambda op: replace(op, input_types=("c10::BFloat16",) * len(op.input_types)))
    assert (verdict(altered, "O-A7"), measured(altered, "O-A7").value) == ("differs", "math BFloat16; naive BFloat16")


@pytest.mark.parametrize(
    ("operators", "holds"),
    [
        ("ones, tril, scalar_tensor, fill_, where; 1 triu_tril_kernel, 2 where, 1 add_", True),
        ("ones, tril, scalar_tensor, fill_, where; 1 triu_tril_kernel, 10 where, 1 add_", True),
        ("ones, tril, scalar_tensor, fill_, where; 1 triu_tril_kernel, 1 where, 1 add_", False),
        ("ones, tril, scalar_tensor, fill_, where; 1 triu_tril_kernel, 2 where, 2 add_", False),
        ("tril, scalar_tensor, fill_, where; 1 triu_tril_kernel, 2 where, 1 add_", False),
    ],
)
def test_a_mask_is_rebuilt_by_all_of_its_operators(operators: str, holds: bool) -> None:
    assert CLAIMS["A6"].band(Figure(operators)) is holds


@pytest.mark.parametrize(
    ("kernels", "holds"),
    [
        ("naive a, b; compiled a, b", True),
        ("naive f<1, 2>; compiled f<1, 2>", True),
        ("naive a; compiled a", False),
        ("naive a, b; compiled a, c", False),
        ("naive a, b, c; compiled a, b, c", False),
    ],
)
def test_naive_and_compiled_have_two_kernels_the_same(kernels: str, holds: bool) -> None:
    assert CLAIMS["O-A18"].band(Figure(kernels)) is holds


def test_a_plain_softmax_in_math(altered: AlteredDevice) -> None:
    altered.ops(MATH, renamed("aten::_safe_softmax", "aten::other"))
    assert measured(altered, "A7").value == "math aten::softmax; naive aten::softmax"
    assert verdict(altered, "A7") == "differs"


def test_purposes_of_math_are_counted_and_add_up() -> None:
    purposes = backends.purposes(RECORDED[MATH])
    assert {name: count for name, (count, _) in purposes.items()} == {
        "copies and casts": 5,
        "scaling": 2,
        "building the mask": 5,
        "the two products": 2,
        "applying the mask": 1,
        "softmax": 1,
        "looking for rows without a key": 4,
    }
    times_us = [sum(kernel.duration_us for kernel in step.kernels) for step in RECORDED[MATH].steps]
    assert sum(us for _, us in purposes.values()) == pytest.approx(sum(times_us) / len(times_us))


def test_an_operator_outside_attention_is_named(altered: AlteredDevice) -> None:
    altered.ops(MATH, renamed("aten::add_", "aten::gelu"))
    with pytest.raises(TraceError, match=r"^aten::gelu launched .*which is no part of attention$"):
        backends.purposes(altered[MATH])


def test_parts_of_math_that_take_longer(altered: AlteredDevice) -> None:
    altered.activities(MATH, lasting("tril", 20.0))
    assert verdicts(altered, "O-A9", "O-A15") == ["differs", "holds"]
    altered.activities(MATH, lasting("direct_copy", 3.0))
    assert verdict(altered, "O-A15") == "differs"
    altered.activities(MATH, lasting("softmax", 2.0))
    assert verdict(altered, "O-A10") == "differs"
    altered.activities(MATH, lasting("xmma", 0.5))
    assert verdict(altered, "O-A8") == "differs"


def test_other_launch_calls_and_transposes(altered: AlteredDevice) -> None:
    altered.launches("attention/flash", lambda call: replace(call, name="cuLaunchKernel"))
    assert verdict(altered, "O-A12") == "differs"
    altered.ops("attention/cudnn", renamed("aten::empty", "aten::transpose"))
    assert (verdict(altered, "O-A13"), measured(altered, "O-A13").value) == (
        "differs",
        "efficient 4; flash 4; cuDNN 2",
    )


def test_the_backend_that_is_picked_and_the_one_that_runs(altered: AlteredDevice) -> None:
    altered.traces["attention/auto"] = RECORDED["attention/flash"].trace
    assert (verdict(altered, "O-A14"), measured(altered, "O-A14").value) == ("differs", "says cuDNN, runs flash")


# Compiled


def test_a_pattern_that_is_met(altered: AlteredDevice) -> None:
    data = RECORDED["attention/compiled_code"].data
    altered.record("attention/compiled_code", data={**data, "fused_attention": 1})
    assert (verdict(altered, "O-A16"), measured(altered, "O-A16").text) == ("differs", "1 pattern of attention met")


def test_other_products_in_compiled_code(altered: AlteredDevice) -> None:
    altered.activities(COMPILED, called("nvjet_sm90_tst_64x512", "nvjet_sm90_tst_64x256"))
    assert verdict(altered, "O-A18") == "differs"
    altered.activities(COMPILED, lasting("triton", 2.0))
    assert verdict(altered, "O-A19") == "differs"


def test_a_call_that_is_not_of_pytorchs_attention(altered: AlteredDevice) -> None:
    altered.ops("attention/decode_compiled", renamed("aten::_scaled_dot_product_cudnn_attention", "aten::bmm"))
    assert (verdict(altered, "O-A21"), measured(altered, "O-A21").value) == ("differs", "none")


@pytest.mark.parametrize(("claim_id", "experiment"), [("O-A6", IN_PLACE), ("O-A20", COMPILED)])
def test_a_variant_as_slow_as_naive_gains_nothing(altered: AlteredDevice, claim_id: str, experiment: str) -> None:
    altered.recordings[experiment] = RECORDED[NAIVE].recording
    assert (verdict(altered, claim_id), measured(altered, claim_id).value) == ("differs", 1.0)


# Tables and drawings


def test_the_tables_of_launches() -> None:
    eager, compiled = text_of(backends.eager_launches(RECORDED)), text_of(backends.compiled_launches(RECORDED))
    assert "What one forward launches" in eager
    assert "What one compiled forward launches" in compiled
    assert all((f" {name} " in compiled) is (name in ("compiled", "Flex")) for name in VARIANTS)
    assert all((f" {name} " in eager) is (name not in ("compiled", "Flex")) for name in VARIANTS)
    assert re.search(r"in place .*? cuLaunchKernelEx, cudaLaunchKernel 5 0 1 30 1 ", eager)


def test_the_table_of_purposes() -> None:
    purposes = text_of(backends.purposes_table(RECORDED))
    assert "the two products 2" in purposes
    assert re.search(r"building the mask – – 5 [\d.]+ µs all 6 [\d.]+ ms 20 ", purposes)


def test_the_diff_and_the_drawings() -> None:
    diff = text_of(traffic.compiled_diff(RECORDED))
    assert all(part in diff for part in ("triton_per_fused", "same"))
    assert "One causal forward, three ways" in variants.three_forwards(RECORDED)


def test_the_row_without_a_key() -> None:
    rows = text_of(live.all_masked(RECORDED, 2))
    assert "scores.softmax(dim=-1) [nan, nan]" in rows
    assert "torch._safe_softmax(scores, dim=-1) [0., 0.]" in rows


def test_what_torch_computed_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache, "PROJECT", tmp_path)
    listings = [live.all_masked(RECORDED, 2), live.alignments(RECORDED)]
    monkeypatch.setitem(sys.modules, "snippets.attention.model", None)
    assert [live.all_masked(RECORDED, 2), live.alignments(RECORDED)] == listings
    with pytest.raises(ImportError):
        live.all_masked(RECORDED, 3)
