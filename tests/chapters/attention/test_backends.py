"""What attention launches, by backend and compiled: bands and tables on recordings, some of them altered."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kinetoscope.trace.events import CpuOp, TraceError
from snippets.attention.findings import backends, live, traffic, variants
from snippets.attention.findings.variants import VARIANTS
from snippets.lab import cache
from snippets.lab.finding.figure import Figure
from tests.chapters.altered import RECORDED, AlteredDevice, replace
from tests.chapters.attention.bench import CLAIMS, text_of

MATH = "attention/math"


def renamed(old: str, new: str) -> Callable[[CpuOp], CpuOp]:
    return lambda op: replace(op, name=new) if op.name == old else op


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


def test_purposes_of_math_are_counted_and_add_up() -> None:
    purposes = backends.purposes(RECORDED[MATH])
    assert {name: count for name, (count, _) in purposes.items()} == {
        "copies and casts": 5,
        "scaling": 2,
        "building the mask": 5,
        "the two products": 2,
        "applying the mask": 1,
        "softmax": 1,
        "looking for rows without a visible key": 4,
    }
    times_us = [sum(kernel.duration_us for kernel in step.kernels) for step in RECORDED[MATH].steps]
    assert sum(us for _, us in purposes.values()) == pytest.approx(sum(times_us) / len(times_us))


def test_an_operator_outside_attention_is_named(device: AlteredDevice) -> None:
    device.ops(MATH, renamed("aten::add_", "aten::gelu"))
    with pytest.raises(TraceError, match=r"^aten::gelu launched .*which is no part of attention$"):
        backends.purposes(device[MATH])


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
    assert "One causal forward of three variants" in variants.three_forwards(RECORDED)


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
