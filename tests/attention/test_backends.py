"""What attention launches, by backend and compiled: claims on the builder's recordings, and on altered ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import msgspec
import pytest
import torch

from snippets.attention import model
from snippets.attention.findings import backends, compiler, written_out
from snippets.attention.findings.measures import WAYS
from snippets.lab.finding.book import judge
from snippets.lab.finding.claim import Status
from snippets.lab.finding.figure import Figure
from snippets.lab.html import Html
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.loading import load_trace
from snippets.lab.trace.events import CpuOp, CudaCall, GpuActivity, Step, TraceError
from tests.bench import AlteredRecordings

PARTS = (written_out, backends, compiler)
CLAIMS = {claim.id: claim for part in PARTS for claim in part.CLAIMS}
FIGURES = {name: figure for part in PARTS for name, figure in part.FIGURES.items()}
DECODE_COMPILED = "attention/decode_compiled"
replace = msgspec.structs.replace


def verdict(name: str) -> Status:
    return judge(CLAIMS[name], "attention", DEFAULT_DEVICE).word


def measured(name: str) -> Figure:
    found = judge(CLAIMS[name], "attention", DEFAULT_DEVICE).measured
    assert found is not None
    return found


class Bench(AlteredRecordings):
    """The builder's recordings, and ways to alter them."""

    def steps(self, experiment: str, change: Callable[[Step], Step], only: int | None = None) -> None:
        """Change every step of a trace, or only one."""
        traced = self.traces.get(experiment) or self.trace(experiment, DEFAULT_DEVICE)
        steps = (change(step) if only in (None, place) else step for place, step in enumerate(traced.steps))
        self.traces[experiment] = replace(traced, steps=tuple(steps))

    def activities(self, experiment: str, change: Callable[[GpuActivity], GpuActivity]) -> None:
        """Change every kernel, copy and fill of a trace's steps."""
        self.steps(experiment, lambda step: replace(step, activities=tuple(map(change, step.activities))))

    def ops(self, experiment: str, change: Callable[[CpuOp], CpuOp]) -> None:
        """Change every operator, in the steps and in the trace as a whole."""
        self.steps(experiment, lambda step: replace(step, ops=tuple(map(change, step.ops))))
        traced = self.traces[experiment]
        self.traces[experiment] = replace(traced, cpu_ops=tuple(map(change, traced.cpu_ops)))

    def launches(self, experiment: str, change: Callable[[CudaCall], CudaCall]) -> None:
        """Change every call of a trace."""
        traced = self.trace(experiment, DEFAULT_DEVICE)
        self.traces[experiment] = replace(traced, launches=tuple(map(change, traced.launches)))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def called(old: str, new: str) -> Callable[[GpuActivity], GpuActivity]:
    return lambda one: replace(one, name=one.name.replace(old, new))


def lasting(part: str, factor: float) -> Callable[[GpuActivity], GpuActivity]:
    return lambda one: replace(one, duration_us=factor * one.duration_us) if part in one.name else one


def renamed(old: str, new: str) -> Callable[[CpuOp], CpuOp]:
    return lambda op: replace(op, name=new) if op.name == old else op


def without(kind: str) -> Callable[[Step], Step]:
    return lambda step: replace(step, activities=tuple(one for one in step.activities if one.kind != kind))


def text_of(shown: Html) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", shown)))


def test_every_verdict_is_the_one_the_prose_was_written_for() -> None:
    judged = [judge(claim, "attention", DEFAULT_DEVICE) for claim in CLAIMS.values()]
    assert [(one.claim.id, one.word, one.reason) for one in judged if not one.is_expected] == []
    assert [one.claim.id for one in judged if one.word == "differs"] == ["A5", "A10"]
    assert "not measured" not in {one.word for one in judged}


def test_every_difference_is_explained_without_numbers() -> None:
    for claim in CLAIMS.values():
        assert bool(claim.why) == (claim.expected.get(DEFAULT_DEVICE) == "differs"), claim.id
        assert not re.search(r"\d\s?(?:[mµn]s|us|[MGT]B|%|T?FLOP)", claim.why), claim.id


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_conclusive(name: str) -> None:
    assert FIGURES[name](DEFAULT_DEVICE).conclusive
    assert FIGURES[name](DEFAULT_DEVICE).text


# ---- written out


def test_a_forward_that_copies_nothing_is_not_the_series_one(bench: Bench) -> None:
    bench.steps(WAYS["naive"], without("memcpy"))
    assert [verdict(name) for name in ("A1", "O-A1")] == ["differs", "not measured"]
    assert measured("A1").value == "product, scaling, masking, softmax, product"
    assert FIGURES["launched"](DEFAULT_DEVICE).value == 5


def test_masking_in_place_that_copies_is_noticed(bench: Bench) -> None:
    bench.traces[WAYS["in place"]] = bench.trace(WAYS["naive"], DEFAULT_DEVICE)
    assert verdict("A2") == "differs"


def test_steps_that_disagree_decide_nothing(bench: Bench) -> None:
    for experiment in (WAYS["naive"], WAYS["math"]):
        bench.steps(experiment, lambda step: replace(step, activities=step.activities[:-1]), only=0)
    assert [verdict(name) for name in ("A1", "A3", "O-A11")] == ["inconclusive"] * 3


def test_the_copy_of_another_operator_is_noticed(bench: Bench) -> None:
    bench.ops(WAYS["naive"], renamed("aten::masked_fill", "aten::where"))
    assert (verdict("O-A1"), measured("O-A1").value) == ("differs", "aten::where > aten::clone > aten::copy_")


def test_a_larger_fill_or_none_is_noticed(bench: Bench) -> None:
    bench.activities(WAYS["naive"], lambda one: replace(one, moved_bytes=8) if one.kind == "memset" else one)
    assert (verdict("O-A2"), measured("O-A2").value) == ("differs", "aten::bmm 8 bytes")
    bench.steps(WAYS["naive"], without("memset"))
    assert (verdict("O-A2"), measured("O-A2").value) == ("differs", "none")


def test_shares_and_ratios_follow_the_kernels_times(bench: Bench) -> None:
    bench.activities(WAYS["naive"], lasting("nvjet", 2.0))
    assert (verdict("O-A3"), verdict("O-A4")) == ("differs", "holds")
    bench.activities(WAYS["naive"], lasting("masked_fill_kernel", 0.5))
    assert verdict("O-A4") == "differs"


def test_a_vectorized_masking_kernel_is_noticed(bench: Bench) -> None:
    bench.activities(WAYS["naive"], called("void at::native::elementwise_kernel", "void at::native::vectorized_other"))
    assert measured("O-A5").value == "scaling vectorized_elementwise_kernel, masking vectorized_other"
    assert verdict("O-A5") == "differs"


# ---- backends


def test_a_kernel_less_is_noticed(bench: Bench) -> None:
    for name in ("math", "efficient", "cuDNN", "Flex", "compiled"):
        bench.steps(WAYS[name], lambda step: replace(step, activities=step.activities[:-1]))
    assert [verdict(name) for name in ("A3", "A8", "O-A14", "O-A17", "O-A22")] == ["differs"] * 5
    assert measured("A8").value == "0 kernels: "


def test_two_kernels_are_not_one(bench: Bench) -> None:
    bench.steps(WAYS["efficient"], lambda step: replace(step, activities=step.activities * 2))
    assert verdict("A8") == "differs"
    assert measured("A8").text.startswith("2 kernels: fmha_cutlassF_bf16_aligned_64x64_rf_sm80, fmha_")


def test_the_series_names_would_hold(bench: Bench) -> None:
    bench.activities(WAYS["math"], called("sm80_xmma_gemm_f32f32_f32f32_f32", "ampere_sgemm"))
    bench.activities(WAYS["naive"], called("nvjet_sm90_tst", "ampere_bf16_s16816gemm_bf16"))
    series = "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_6_128x64x64_4x1x1_cga1x1x1_kernel0_0"
    bench.activities(WAYS["cuDNN"], lambda one: replace(one, name=series) if one.kind == "kernel" else one)
    assert [verdict(name) for name in ("A5", "A10")] == ["holds"] * 2


def test_products_in_another_type_are_noticed(bench: Bench) -> None:
    bench.ops(WAYS["math"], lambda op: replace(op, input_types=("c10::BFloat16",) * len(op.input_types)))
    assert (verdict("O-A7"), measured("O-A7").value) == ("differs", "math BFloat16; naive BFloat16")


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        ("ones, tril, scalar_tensor, fill_, where; 1 triu_tril_kernel, 2 where, 1 add_", True),
        ("ones, tril, scalar_tensor, fill_, where; 1 triu_tril_kernel, 1 where, 1 add_", False),
        ("ones, tril, scalar_tensor, fill_, where; 1 triu_tril_kernel, 2 where, 2 add_", False),
        ("tril, scalar_tensor, fill_, where; 1 triu_tril_kernel, 2 where, 1 add_", False),
    ],
)
def test_a_mask_is_rebuilt_by_all_of_its_operators(found: str, holds: bool) -> None:
    assert CLAIMS["A6"].holds(Figure(found)) is holds


def test_a_plain_softmax_in_math_is_noticed(bench: Bench) -> None:
    bench.ops(WAYS["math"], renamed("aten::_safe_softmax", "aten::other"))
    assert (verdict("A7"), measured("A7").value) == ("differs", "math aten::softmax; naive aten::softmax")


def test_purposes_of_math_are_counted_and_add_up() -> None:
    found = backends.purposes(WAYS["math"], DEFAULT_DEVICE)
    assert {name: count for name, (count, _) in found.items()} == {
        "copies and casts": 5,
        "scaling": 2,
        "building the mask": 5,
        "the two products": 2,
        "applying the mask": 1,
        "softmax": 1,
        "looking for rows without a key": 4,
    }
    traced = load_trace(WAYS["math"], DEFAULT_DEVICE)
    times = [sum(one.duration_us for one in step.kernels) for step in traced.steps]
    assert sum(us for _, us in found.values()) == pytest.approx(sum(times) / len(times))


def test_an_operator_that_is_no_part_of_attention_is_said(bench: Bench) -> None:
    bench.ops(WAYS["math"], renamed("aten::add_", "aten::gelu"))
    with pytest.raises(TraceError, match=r"^aten::gelu launched .*which is no part of attention$"):
        backends.purposes(WAYS["math"], DEFAULT_DEVICE)


def test_what_takes_longer_is_noticed(bench: Bench) -> None:
    bench.activities(WAYS["math"], lasting("tril", 20.0))
    assert (verdict("O-A9"), verdict("O-A15")) == ("differs", "holds")
    bench.activities(WAYS["math"], lasting("direct_copy", 3.0))
    assert verdict("O-A15") == "differs"
    bench.activities(WAYS["math"], lasting("softmax", 2.0))
    assert verdict("O-A10") == "differs"
    bench.activities(WAYS["math"], lasting("xmma", 0.5))
    assert verdict("O-A8") == "differs"


def test_other_launch_calls_and_transposes_are_noticed(bench: Bench) -> None:
    bench.launches(WAYS["flash"], lambda call: replace(call, name="cuLaunchKernel"))
    assert verdict("O-A12") == "differs"
    bench.ops(WAYS["cuDNN"], renamed("aten::empty", "aten::transpose"))
    assert (verdict("O-A13"), measured("O-A13").value) == ("differs", "efficient 4; flash 4; cuDNN 2")


def test_what_is_picked_and_what_runs_may_differ(bench: Bench) -> None:
    bench.traces[WAYS["auto"]] = bench.trace(WAYS["flash"], DEFAULT_DEVICE)
    assert (verdict("O-A14"), measured("O-A14").value) == ("differs", "says cuDNN, runs flash")


# ---- compiled


def test_a_pattern_met_is_noticed(bench: Bench) -> None:
    found = bench.load("attention/compiled_code", DEFAULT_DEVICE)
    bench.recordings["attention/compiled_code"] = replace(found, data={**found.data, "fused_attention": 1})
    assert (verdict("O-A16"), measured("O-A16").text) == ("differs", "1 pattern of attention met")


def test_other_products_in_compiled_code_are_noticed(bench: Bench) -> None:
    bench.activities(WAYS["compiled"], called("nvjet_sm90_tst_64x512", "nvjet_sm90_tst_64x256"))
    assert verdict("O-A18") == "differs"
    bench.activities(WAYS["compiled"], lasting("triton", 2.0))
    assert verdict("O-A19") == "differs"


def test_a_call_that_is_not_pytorchs_own_is_noticed(bench: Bench) -> None:
    bench.ops(DECODE_COMPILED, renamed("aten::_scaled_dot_product_cudnn_attention", "aten::bmm"))
    assert (verdict("O-A21"), measured("O-A21").value) == ("differs", "none")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(("masked", "met"), [(True, 0), (False, 1)])
def test_inductor_meets_attention_without_a_mask_only(masked: bool, met: int) -> None:
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache

    q, k, v = (torch.randn(1, 2, 16, 8, dtype=torch.bfloat16) for _ in range(3))
    torch._dynamo.reset()
    counters.clear()
    with torch.no_grad(), fresh_cache():  # code out of the cache counts no patterns
        torch.compile(model.naive, dynamic=False)(q, k, v, model.future(16, "cpu") if masked else None)
    assert counters["inductor"]["fuse_attention"] == met


def test_masking_in_place_has_to_pay(bench: Bench) -> None:
    bench.recordings[WAYS["in place"]] = bench.load(WAYS["naive"], DEFAULT_DEVICE)
    assert (verdict("O-A6"), measured("O-A6").value) == ("differs", 1.0)


def test_compiling_has_to_pay(bench: Bench) -> None:
    bench.recordings[WAYS["compiled"]] = bench.load(WAYS["naive"], DEFAULT_DEVICE)
    assert (verdict("O-A20"), measured("O-A20").value) == ("differs", 1.0)


# ---- what is shown


def test_tables_say_what_they_promise() -> None:
    launches = text_of(backends.launches_table())
    assert "What one forward launches" in launches
    assert all(f" {name} " in launches for name in WAYS)
    assert re.search(r"in place .*? cuLaunchKernelEx, cudaLaunchKernel 5 0 1 30 1 ", launches)
    assert "the two products 2" in text_of(backends.purposes_table())
    assert re.search(r"building the mask – – 5 [\d.]+ µs all 6 [\d.]+ ms 20 ", text_of(backends.purposes_table()))
    shown = text_of(compiler.compiled_diff())
    assert all(part in shown for part in ("vanished", "triton_per_fused", "same"))
    assert "One causal forward, three ways" in written_out.three_forwards()


def test_the_row_without_a_key_is_shown() -> None:
    shown = text_of(backends.all_masked(model.nothing_to_see(2)))
    assert "scores.softmax(dim=-1) [nan, nan]" in shown
    assert "torch._safe_softmax(scores, dim=-1) [0., 0.]" in shown
