"""Kernel names taken apart: a corpus of real names, each of its fields compared, and names that nobody gives."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.trace.kernel_grammar import Reading, grammar
from kinetoscope.trace.kernel_names import (
    FIELDS,
    SHORT_NAME_WIDTH,
    decode_kernel_name,
    kernel_name_data,
    print_kernel_name,
)
from kinetoscope.trace.kineto import read_trace
from tests.tool.markup import EVIL
from tests.tool.recorded import PROJECT, experiments, recorded

CORPUS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("kernel_names.json").read_text(encoding="utf-8"))
HERE = "NVIDIA H200, torch 2.11.0+cu130: "
"""What `where` begins with when we ran the operation that it names, and know what the kernel had to do."""
NVJET = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
GELU = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
    "at::native::GeluType)::{lambda()#1}::operator()() const::{lambda()#4}::operator()() const::"
    "{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
    "at::native::GeluType)::{lambda()#1}::operator()() const::{lambda()#4}::operator()() const::"
    "{lambda(c10::BFloat16)#1}, std::array<char*, 2ul>)"
)


def expected(entry: dict[str, Any]) -> dict[str, Any]:
    return {field: entry[field] for field in (*FIELDS, "fused")}


def found(name: str) -> dict[str, Any]:
    data = kernel_name_data(decode_kernel_name(name))
    return {field: data[field] for field in (*FIELDS, "fused")}


def test_the_corpus_is_large_and_says_where_each_name_was_seen() -> None:
    assert len(CORPUS) >= 120
    assert len({entry["name"] for entry in CORPUS}) == len(CORPUS)
    assert [entry["name"] for entry in CORPUS if not entry["where"]] == []


def test_every_field_of_every_name() -> None:
    wrong = [(entry["name"], found(entry["name"])) for entry in CORPUS if found(entry["name"]) != expected(entry)]
    assert wrong == []


def test_every_token_of_a_name_of_each_family() -> None:
    for entry in (entry for entry in CORPUS if "tokens" in entry):
        kernel = decode_kernel_name(entry["name"])
        assert [[one.token, one.meaning, one.basis] for one in kernel.tokens] == entry["tokens"], entry["name"]
        assert kernel.short == entry["short"]


def test_every_family_and_operation_at_least_twice() -> None:
    read = [Reading(entry["name"]).by for entry in CORPUS]
    times = Counter(by.family.id for by in read if by)
    assert {family.id: times[family.id] for family in grammar().families if times[family.id] < 2} == {}
    assert [name for name, often in Counter(entry["operation"] for entry in CORPUS).items() if often < 2] == []
    with_tokens = [Reading(entry["name"]).by for entry in CORPUS if "tokens" in entry]
    assert {by.family.id for by in with_tokens if by} == {family.id for family in grammar().families}


def test_most_names_are_known() -> None:
    known = [entry for entry in CORPUS if decode_kernel_name(entry["name"]).library != "unknown"]
    whole = [entry for entry in known if decode_kernel_name(entry["name"]).operation != "other"]
    assert len(known) / len(CORPUS) > 0.97
    assert len(whole) / len(CORPUS) > 0.88


def recorded_names() -> set[str]:
    """Every name in the book's traces, and in those that tests read."""
    own = map(recorded, experiments())
    traces = [*own, *(read_trace(path) for path in (PROJECT / "tests/traces").glob("*.json.gz"))]
    return {activity.name for trace in traces for activity in trace.activities}


OTHERS = re.compile(r"scan|radix_sort|unique_by_key|embedding|segment|scatter|compute_grad_weight|nll_loss|spin_kernel")
"""Kernels of ATen that sort, scan, look up embeddings, compute a loss or wait: `operation` has no word for these."""


@pytest.mark.slow
def test_every_recorded_name_has_a_library_and_an_operation() -> None:
    kernels = [decode_kernel_name(name) for name in sorted(recorded_names())]
    assert len(kernels) > 10
    assert [one.name for one in kernels if one.library == "unknown"] == []
    others = [one.name for one in kernels if one.operation == "other"]
    assert [name for name in others if not OTHERS.search(name)] == []


ASKED_LAYOUT = {"nn": "nn", "nt": "tn", "tn": "nt", "tt": "tt"}
"""Which factors of a @ b are transposed -> the same for BLAS, which counts by columns and takes them the other way."""
ASKED_TYPE = {"f32tf32": "tf32"}


def asked(operation: str) -> list[tuple[list[str], dict[str, Any]]]:
    begin = f"{HERE}{operation} "
    return [(entry["where"].removeprefix(begin).split(), entry) for entry in CORPUS if entry["where"].startswith(begin)]


def test_products_have_the_type_and_the_transposition_that_was_asked_for() -> None:
    cases = [(words, one) for words, one in asked("mm") if words[-1] in ASKED_LAYOUT and one["operation"] == "gemm"]
    assert len(cases) > 10
    for (dtype, layout), entry in cases:
        assert decode_kernel_name(entry["name"]).dtype == ASKED_TYPE.get(dtype, dtype), entry["name"]
        assert (decode_kernel_name(entry["name"]).layout or "")[:2].lower() == ASKED_LAYOUT[layout], entry["name"]


def test_products_have_the_epilogue_that_was_asked_for() -> None:
    epilogues = {"bias": ("bias",), "matrix": ("add",), "gelu": ("bias", "gelu"), "relu": ("bias", "relu")}
    cases = [(words, one["name"]) for words, one in asked("addmm") if one["name"].startswith("nvjet")]
    assert len(cases) > 5
    for (epilogue, dtype), name in cases:
        assert (decode_kernel_name(name).fused, decode_kernel_name(name).dtype) == (epilogues[epilogue], dtype), name


def test_attention_has_the_type_that_was_asked_for_and_the_tile_beside_the_head() -> None:
    cases = [(words, one) for words, one in asked("sdpa FLASH_ATTENTION") if one["operation"] == "attention"]
    assert len(cases) > 5
    for (dtype, head, *_), entry in cases:
        kernel = decode_kernel_name(entry["name"])
        assert (kernel.library, kernel.dtype) == ("flash_attention", dtype), entry["name"]
        assert f"kernel_traits<{head}, {(kernel.tile or '').replace('x', ', ')}, " in entry["name"]


@pytest.mark.parametrize(
    "name",
    ["", " ", "\n", "\0", "\ud800", "𝟘" * 50, "_", "nvjet_", "nvjet_\ud800", "triton_", "void ", "Memcpy", *EVIL],
)
def test_any_text_is_a_name(name: str) -> None:
    kernel = decode_kernel_name(name)
    assert kernel.name == name
    assert kernel.library
    assert kernel.operation
    assert len(kernel.short) <= 60


@pytest.mark.parametrize(
    "name",
    [
        "my_kernel",
        "<b>",
        "\x1b[31m",
        "gelu",
        "nvjetsam",
        "ampereX_thing",
        "Memcpyish",
        "gemv_kernel",
        "dot_kernel",
        "flash_fwd_kernel",
        "attn_fwd_v2",
        "reduce_segments_kernel",
        "kernel_0d",
        "CijkFoo",
        "igemm_thing",
        "bmm_custom",
        "store_kvcache",
        "void (anonymous namespace)::rotary<float>(float*)",
        "sgl_thing",
    ],
)
def test_what_no_family_claims_stays_unknown(name: str) -> None:
    kernel = decode_kernel_name(name)
    assert (kernel.library, kernel.operation, kernel.short) == ("unknown", "other", name)
    assert [getattr(kernel, field) for field in ("arch", "dtype", "tile", "layout")] == [None] * 4
    assert kernel.fused == ()


def test_what_no_rule_explains_is_not_known() -> None:
    tokens = {one.token: (one.meaning, one.basis) for one in decode_kernel_name("nvjet_sm90_tst_64x8_wow_TNT").tokens}
    assert tokens["wow"] == ("not known", "unknown")
    assert tokens["sm90"] == ("built for compute capability sm90", "inferred")


def test_pieces_of_names_put_together() -> None:
    source = random.Random(1)
    names = [entry["name"] for entry in CORPUS]
    for _ in range(300):
        one, other = source.choice(names)[:300], source.choice(names)[:300]
        kernel = decode_kernel_name(one[: source.randrange(len(one) + 1)] + other[source.randrange(len(other) + 1) :])
        assert len(kernel.short) <= 60
        assert (kernel.library == "unknown") <= (kernel.operation == "other")
        data = kernel_name_data(kernel)
        assert all(data[field] is None or data[field] for field in FIELDS)


@pytest.mark.parametrize(
    ("begin", "again"),
    [
        ("", "a"),
        ("void at::", "a<"),
        ("void at::", "Memcpy "),
        ("ncclDevKernel", "[CUDA memcpy "),
        ("triton_poi_fused_", "_"),
        ("triton_poi_fused_", "add_"),
        ("nvjet_", "1x"),
        ("cunn_SoftMaxForward<4, float", "cute::C<"),
        ("void cutlass::device_kernel<flash::", "cute::tuple<"),
        ("sm80_xmma_", "gemm_"),
        ("cutlass_80_", "16816"),
        ("_ZN2at6native", "9"),
        ("Cijk_Alik_Bljk_", "A1_"),
        ("_ZN7ck_tile", "9Fmha"),
        ("void ck_tile::", "kernel_a"),
        ("igemm_fwd_gtcx2_", "1x"),
        ("void rocprim::", "reduce_"),
        ("void vllm::", "_a1"),
        ("_ZN5aiter", "aI"),
        ("void marlin::", "_0"),
        ("std::enable_if<", "void>::type "),
        ("kernel_cutlass_", "Gemm"),
        ("bmm_E4m3_", "E4m3"),
        ("", "_0d1"),
    ],
)
@pytest.mark.timeout(20)  # 10 ms; an expression that backtracks takes minutes
def test_a_long_name_is_read_without_backtracking(begin: str, again: str) -> None:
    name = (begin + again * 100_000)[:100_000]
    kernel = decode_kernel_name.__wrapped__(name)
    assert kernel.name == name
    assert 0 < len(kernel.short) <= SHORT_NAME_WIDTH


def test_as_data_has_exactly_these_keys() -> None:
    data = kernel_name_data(decode_kernel_name(NVJET))
    assert list(data) == ["name", "library", "operation", "arch", "dtype", "tile", "layout", "fused", "tokens"]
    assert data["name"] == NVJET
    assert data["fused"] == []
    assert [list(token) for token in data["tokens"]] == [["token", "meaning", "basis"]] * 10
    assert json.loads(json.dumps(data)) == data


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (NVJET, "cuBLAS GEMM bf16 · 256x128x64 · TNT"),
        ("nvjet_sm90_tst_64x8_64x16_1x2_h_bz_bias_TNT", "cuBLAS GEMM bf16 + bias · 64x8x64 · TNT"),
        (GELU, "GELU (ATen, vectorized)"),
        ("triton_poi_fused__unsafe_view_gelu_mul_0", "Inductor: _unsafe_view + gelu + mul"),
        ("Memcpy DtoD (Device -> Device)", "copy device to device"),
        ("_geglu_tanh_forward_kernel", "GeGLU forward (Triton, Liger)"),
        ("k" * 100, "k" * 40 + "…" + "k" * 19),
    ],
)
def test_short_forms(name: str, short: str) -> None:
    assert decode_kernel_name(name).short == short


def test_the_command_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_kernel_name("nvjet_sm90_tst_64x8_64x16_1x2_wow_bias_TNT", as_json=False) == 0
    assert capsys.readouterr().out.splitlines() == [
        "name       nvjet_sm90_tst_64x8_64x16_1x2_wow_bias_TNT",
        "library    cublas",
        "operation  gemm",
        "arch       sm90",
        "dtype      bf16",
        "tile       64x8x64",
        "layout     TNT",
        "fused      bias",
        "in short   cuBLAS GEMM bf16 + bias · 64x8x64 · TNT",
        "",
        "  nvjet  inferred    cuBLAS's matrix products for Hopper and newer",
        "  sm90   inferred    built for compute capability sm90",
        "  tst    inferred    a letter for each type: inputs bf16, sums f32, result bf16",
        "  64x8   inferred    the tile of the result that a block computes at a time",
        "  64x16  inferred    64 elements along K in each stage, 16 stages in shared memory",
        "  1x2    inferred    the cluster: this many neighboring blocks share the data that they load",
        "  wow    unknown     not known",
        "  bias   inferred    the kernel also adds a bias",
        "  TNT    inferred    A transposed, B not transposed, as cuBLAS counts, by columns; the last letters are "
        "unknown",
    ]


def test_the_command_gives_a_terminal_no_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_kernel_name("\x1b[31mred\n\u202e\ud800", as_json=False) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == r"name       \x1b[31mred\n\u202e\ud800"
    assert out.replace("\n", "").isprintable()


def test_the_command_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    for name in (NVJET, "\x1b[31m\ud800", ""):
        assert print_kernel_name(name, as_json=True) == 0
        assert json.loads(capsys.readouterr().out) == kernel_name_data(decode_kernel_name(name))
