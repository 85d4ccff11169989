"""The chapter mlp: its claims on the builder's recordings, and on altered ones in which they must fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from html import unescape
from typing import Any

import msgspec
import pytest

from snippets.lab.finding.book import judge
from snippets.lab.finding.claim import Status
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.quantities import figure
from snippets.lab.html import Html
from snippets.lab.page.frame import show
from snippets.lab.page.ledger import claims_table
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.loading import load_trace
from snippets.lab.recording.schema import NotRecorded, Timing
from snippets.lab.trace.averages import key_averages
from snippets.lab.trace.events import CpuOp, CudaCall, GpuActivity, Step, Trace

# KEEP recording
from snippets.mlp import findings
from tests.bench import AlteredRecordings

CLAIMS = {claim.id: claim for claim in findings.CLAIMS}
HIDDEN_BYTES = 50_331_648
replace = msgspec.structs.replace


def verdict(name: str) -> Status:
    return judge(CLAIMS[name], "mlp", DEFAULT_DEVICE).word


def measured(name: str) -> Figure:
    found = judge(CLAIMS[name], "mlp", DEFAULT_DEVICE).measured
    assert found is not None
    return found


class Bench(AlteredRecordings):
    """The builder's recordings, and ways to alter them."""

    def steps(self, variant: str, change: Callable[[Step], Step], only: int | None = None) -> None:
        """Change every step of a variant's trace, or only one."""
        name = f"mlp/{variant}"
        traced = self.trace(name, DEFAULT_DEVICE)
        steps = (change(step) if only in (None, place) else step for place, step in enumerate(traced.steps))
        self.traces[name] = replace(traced, steps=tuple(steps))

    def kernels(self, variant: str, change: Callable[[GpuActivity], GpuActivity], only: int | None = None) -> None:
        """Change every kernel of a variant's steps, or only those of one step."""
        self.steps(
            variant,
            lambda step: replace(
                step, activities=tuple(change(one) if one.kind == "kernel" else one for one in step.activities)
            ),
            only,
        )

    def ops(self, variant: str, change: Callable[[CpuOp], CpuOp]) -> None:
        """Change every operator of a variant, in its steps and in the trace as a whole."""
        self.steps(variant, lambda step: replace(step, ops=tuple(map(change, step.ops))))
        name = f"mlp/{variant}"
        self.traces[name] = replace(self.traces[name], cpu_ops=tuple(map(change, self.traces[name].cpu_ops)))

    def data(self, name: str, **changed: Any) -> None:
        """Change fields of what `measure` returned."""
        found = self.recordings.get(name) or self.load(name, DEFAULT_DEVICE)
        self.recordings[name] = replace(found, data={**found.data, **changed})

    def points(self, name: str, **changed: Any) -> None:
        """Change fields of every point of a recording."""
        found = self.recordings.get(name) or self.load(name, DEFAULT_DEVICE)
        self.recordings[name] = replace(found, points=tuple(replace(one, **changed) for one in found.points))

    def scaled(self, name: str, kind: str, factor: float) -> None:
        """Make one kind of timing of every point longer or shorter."""
        found = self.recordings.get(name) or self.load(name, DEFAULT_DEVICE)

        def longer(one: Any) -> Any:
            old: Timing = getattr(one.timings, kind)
            samples = tuple(factor * sample for sample in old.samples_us)
            timing = Timing(factor * old.median_us, factor * old.q1_us, factor * old.q3_us, samples)
            return replace(one, timings=replace(one.timings, **{kind: timing}))

        self.recordings[name] = replace(found, points=tuple(map(longer, found.points)))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def named(old: str, new: str) -> Callable[[GpuActivity], GpuActivity]:
    return lambda kernel: replace(kernel, name=kernel.name.replace(old, new))


def lasting(name: str, us: float) -> Callable[[GpuActivity], GpuActivity]:
    return lambda kernel: replace(kernel, duration_us=us) if name in kernel.name else kernel


def without(kind: str) -> Callable[[Step], Step]:
    return lambda step: replace(step, activities=tuple(one for one in step.activities if one.kind != kind))


def last_kernel_dropped(step: Step) -> Step:
    return replace(step, activities=step.activities[:-1])


def test_every_verdict_is_the_one_the_prose_was_written_for() -> None:
    judged = [judge(claim, "mlp", DEFAULT_DEVICE) for claim in findings.CLAIMS]
    assert [(one.claim.id, one.word, one.reason) for one in judged if not one.is_expected] == []
    assert "not measured" not in {one.word for one in judged}


def test_every_assigned_claim_is_there_and_every_difference_explained() -> None:
    assert {*(f"M{i}" for i in range(1, 14)), *(f"K{i}" for i in range(1, 6))} <= set(CLAIMS)
    for claim in findings.CLAIMS:
        assert bool(claim.why) == (claim.expected.get(DEFAULT_DEVICE) == "differs"), claim.id
        assert not re.search(r"\d\s?(?:[mµn]s|us|[MGT]B|%|T?FLOP)", claim.why), claim.id
        assert claim.id.startswith("O-") or claim.source is not None, claim.id


@pytest.mark.parametrize("name", ["M1", "M2", "M8", "M10", "O-P13"])
def test_steps_that_disagree_decide_nothing(name: str, bench: Bench) -> None:
    bench.steps("compiled", lambda step: replace(step, activities=step.kernels[:1] + step.kernels[3:]), only=0)
    bench.steps("eager", lambda step: replace(step, activities=step.activities[::-1]), only=0)
    assert verdict(name) == "inconclusive"


def test_a_missing_kernel_is_noticed(bench: Bench) -> None:
    for variant in ("eager", "compiled", "liger"):
        bench.steps(variant, last_kernel_dropped)
    assert [verdict(name) for name in ("M1", "M8", "K1")] == ["differs"] * 3
    found = judge(CLAIMS["M7"], "mlp", DEFAULT_DEVICE)
    assert (found.word, "2 products instead of three" in found.reason) == ("not measured", True)


@pytest.mark.parametrize(
    ("order", "holds"),
    [
        ("mm, mm, gelu, mul, mm", True),
        ("mm, gelu, mm, mul, mm", False),
        ("gelu, mm, mm, mul, mm", False),
        ("mm, mm, mul, gelu, mm", False),
        ("mm, mm, gelu, mul, mul", False),
        ("mm, mm, gelu, mul", False),
    ],
)
def test_m1_follows_the_data(order: str, holds: bool) -> None:
    assert CLAIMS["M1"].holds(Figure(order)) is holds


def test_names_of_the_a100_would_hold(bench: Bench) -> None:
    assert verdict("M2") == "differs"
    small, large = "ampere_bf16_s16816gemm_bf16_128x128_x_stages_32x5_tn", "ampere_bf16_s16816gemm_bf16_128x256_tn"
    gate, down = (str(figure(f"mlp.{name}", DEFAULT_DEVICE).value) for name in ("gate_gemm", "down_gemm"))
    bench.kernels("eager", lambda kernel: named(down, large)(named(gate, small)(kernel)))
    assert (verdict("M2"), verdict("O-P1")) == ("holds", "holds")
    bench.kernels("eager", lambda kernel: named(down, small)(named(gate, small)(kernel)))
    assert (verdict("M2"), verdict("O-P1")) == ("differs", "differs")


def test_m3_wants_the_width_of_the_a100(bench: Bench) -> None:
    bench.kernels("eager", named("elementwise_kernel<8", "elementwise_kernel<4"))
    assert (verdict("M3"), measured("M3").value) == ("holds", "GeluCUDAKernelImpl 4 wide, MulFunctor 4 wide")


def test_m4_finds_queries_under_the_products(bench: Bench) -> None:
    traced = bench.trace("mlp/eager", DEFAULT_DEVICE)
    asked = [
        CudaCall("cudaOccupancyMaxActiveBlocksPerMultiprocessor", op.start_us + 0.1, 0.1, op.thread, 0)
        for op in traced.cpu_ops
        if op.name == "aten::mm"
    ]
    bench.traces["mlp/eager"] = replace(
        traced, launches=tuple(sorted([*traced.launches, *asked], key=lambda one: one.start_us))
    )
    assert (verdict("M4"), measured("M4").value) == ("holds", "3 of 3 GEMMs, 0 of 2 pointwise")


def test_m5_fails_when_a_view_launches_something(bench: Bench) -> None:
    view = next(op for op in bench.trace("mlp/eager", DEFAULT_DEVICE).cpu_ops if op.name == "aten::as_strided")
    bench.kernels("eager", lambda kernel: replace(kernel, external_id=view.external_id))
    assert verdict("M5") == "differs"


def test_m6_fails_for_another_shape(bench: Bench) -> None:
    wide = ((8192, 768), (768, 4096))
    bench.steps(
        "eager",
        lambda step: replace(
            step, ops=tuple(replace(op, input_shapes=wide) if op.name == "aten::mm" else op for op in step.ops)
        ),
    )
    assert verdict("M6") == "differs"


@pytest.mark.parametrize(("down_us", "word"), [(90.0, "holds"), (100.0, "differs"), (70.0, "differs")])
def test_m7_wants_about_a_tenth(down_us: float, word: Status, bench: Bench) -> None:
    down = str(figure("mlp.down_gemm", DEFAULT_DEVICE).value)
    bench.kernels("eager", lambda kernel: lasting(down, down_us)(lasting("nvjet", 100.0)(kernel)))
    assert (verdict("M7"), measured("M7").value) == (word, pytest.approx(100 - down_us))


def test_m8_fails_when_the_chain_is_left(bench: Bench) -> None:
    bench.steps(
        "compiled",
        lambda step: replace(
            step,
            ops=tuple(replace(op, name="aten::linear") if op.name.startswith("AOT") else op for op in step.ops),
        ),
    )
    assert (verdict("M8"), str(measured("M8").value).split("; ")[1]) == ("differs", "wrappers left: aten::linear")


@pytest.mark.parametrize(("name", "variant"), [("M9", "compiled"), ("K5", "liger")])
def test_one_other_gemm_is_noticed(name: str, variant: str, bench: Bench) -> None:
    bench.kernels(variant, named("coopB", "coopA"))
    assert verdict(name) == "differs"


def test_m10_compares_the_whole_name(bench: Bench) -> None:
    bench.kernels("compiled", named("_mul_0", "_mul_1"))
    assert verdict("M10") == "differs"


def test_bytes_come_from_the_shapes(bench: Bench) -> None:
    assert figure("mlp.intermediate_bytes", DEFAULT_DEVICE).value == HIDDEN_BYTES
    assert figure("mlp.eager_bytes", DEFAULT_DEVICE).value == 5 * HIDDEN_BYTES
    assert figure("mlp.fused_bytes", DEFAULT_DEVICE).value == 3 * HIDDEN_BYTES
    assert figure("mlp.saved_bytes", DEFAULT_DEVICE).value == 2 * HIDDEN_BYTES
    half = ((64, 128, 1536), (64, 128, 1536))
    bench.ops("eager", lambda op: replace(op, input_shapes=half) if op.name == "aten::mul" else op)
    assert figure("mlp.eager_bytes", DEFAULT_DEVICE).value == 2 * HIDDEN_BYTES + 3 * HIDDEN_BYTES // 2
    assert verdict("M12") == "differs"
    bench.ops("eager", lambda op: replace(op, input_types=()))
    found = judge(CLAIMS["M12"], "mlp", DEFAULT_DEVICE)
    assert (found.word, "does not tell the shapes of its operators" in found.reason) == ("not measured", True)


def test_m13_and_the_fused_kernel_s_rate(bench: Bench) -> None:
    (copy,) = (one for one in bench.load("mlp/compiled", DEFAULT_DEVICE).ceilings if one.what == "copy")
    as_fast_as_a_copy = 3 * HIDDEN_BYTES / copy.bytes * copy.timing.median_us
    bench.kernels("compiled", lasting("triton", as_fast_as_a_copy))
    assert (verdict("M13"), measured("M13").value) == ("holds", pytest.approx(100))
    bench.kernels("compiled", lasting("triton", 2 * as_fast_as_a_copy))
    assert (verdict("M13"), measured("M13").value) == ("differs", pytest.approx(50))


@pytest.mark.parametrize(("liger_us", "word"), [(38.0, "holds"), (36.0, "differs"), (48.0, "differs")])
def test_k3_wants_a_few_percent(liger_us: float, word: Status, bench: Bench) -> None:
    bench.kernels("compiled", lasting("triton", 37.0))
    bench.kernels("liger", lasting("geglu", liger_us))
    assert (verdict("K3"), measured("K3").value) == (word, pytest.approx(liger_us / 37.0))


def test_k2_sees_a_row_of_dynamo(bench: Bench) -> None:
    bench.steps(
        "liger", lambda step: replace(step, ops=(*step.ops, replace(step.ops[0], name="TorchDynamo Cache Lookup")))
    )
    assert (verdict("K2"), measured("K2").value) == ("differs", "TorchDynamo Cache Lookup")


@pytest.mark.parametrize(
    ("automatic", "liger", "words"),
    [
        ([1, 2, 3, 4], [1, 1, 1, 1], ("holds", "differs")),
        ([1, 2, 2, 2], [1, 1, 1, 1], ("differs", "holds")),
        ([1, 2, 3, 4], [1, 1, 2, 2], ("differs", "differs")),
        ([1, 1, 1, 1], [1, 1, 1, 1], ("differs", "differs")),
    ],
)
def test_k4_counts_compilations(
    automatic: list[int], liger: list[int], words: tuple[Status, Status], bench: Bench
) -> None:
    ms = [1.0] * 4
    bench.data(
        "mlp/new_shapes",
        automatic={"compiled": automatic, "first_call_ms": ms},
        liger={"compiled": liger, "first_call_ms": ms},
    )
    assert (verdict("K4"), verdict("O-P9")) == words


def test_the_cost_of_compiling_by_hand(bench: Bench) -> None:
    bench.data(
        "mlp/new_shapes",
        static={"compiled": [1, 2], "first_call_ms": [900.0, 300.0]},
        automatic={"compiled": [1, 2, 2], "first_call_ms": [400.0, 500.0, 2.0]},
    )
    assert measured("O-P10").value == 150.0
    bench.data("mlp/new_shapes", automatic={"compiled": [1, 2, 2], "first_call_ms": [400.0, 500.0, 30.0]})
    assert verdict("O-P10") == "differs"


def test_blocks_launches_and_memsets(bench: Bench) -> None:
    bench.kernels("eager", lambda kernel: replace(kernel, grid=(3, 66, 1)) if "nvjet" in kernel.name else kernel)
    assert (verdict("O-P2"), measured("O-P2").value) == ("differs", "cuLaunchKernelEx, 198 blocks, 132 multiprocessors")
    bench.steps("liger", without("memset"))
    assert (verdict("O-P3"), str(measured("O-P3").value).split("; ")[-1]) == ("differs", "none")


def test_a_ceiling_that_is_not_beaten(bench: Bench) -> None:
    bench.kernels("eager", lasting("nvjet", 100.0))
    assert verdict("O-P4") == "differs"


def test_memory_error_and_launch_of_liger(bench: Bench) -> None:
    eager = bench.load("mlp/eager", DEFAULT_DEVICE).points[0]
    bench.points("mlp/compiled", peak_memory_bytes=eager.peak_memory_bytes, relative_error=eager.relative_error)
    bench.kernels("liger", lambda kernel: replace(kernel, grid=(132, 1, 1)))
    assert [verdict(name) for name in ("O-P6", "O-P7", "O-P16")] == ["differs"] * 3
    assert measured("O-P7").value == "132 blocks of 256 threads for 8192 rows of 3072"


def compiled_anew(bench: Bench, *launches: tuple[int, int, float]) -> None:
    """Make these (blocks, threads, microseconds) the compilations of `mlp/tuned`."""
    blocks, threads, us = zip(*launches, strict=True)
    changed = {"grid": [[count, 1, 1] for count in blocks], "block": [[count, 1, 1] for count in threads]}
    bench.data("mlp/tuned", **changed, fused_us=list(us))


def test_configurations_by_hand(bench: Bench) -> None:
    compiled_anew(bench, (49152, 256, 60.0), (24576, 128, 40.0), (49152, 256, 62.0), (49152, 256, 61.0))
    assert findings.configs(DEFAULT_DEVICE) == [
        findings.Config(1024, 128, (40.0,)),
        findings.Config(512, 256, (60.0, 62.0, 61.0)),
    ]
    assert measured("O-P18").value == pytest.approx(61 / 40)
    assert measured("O-P18").spread == pytest.approx((60 / 40, 62 / 40))
    assert (figure("mlp.slow_choices", DEFAULT_DEVICE).value, measured("O-P19").text) == (3, "3 of 4")
    assert (figure("mlp.slow_us", DEFAULT_DEVICE).value, figure("mlp.slow_us", DEFAULT_DEVICE).spread) == (
        61.0,
        (60.0, 62.0),
    )
    eager, fused = (bench.load(f"mlp/{name}", DEFAULT_DEVICE).points[0].timings for name in ("eager", "compiled"))
    assert eager is not None
    assert fused is not None
    expected = eager.warm.median_us / (fused.warm.median_us + 21)
    assert figure("mlp.slow_speedup", DEFAULT_DEVICE).value == pytest.approx(expected)
    assert [verdict(f"O-P{number}") for number in (17, 18, 19, 20, 21)] == ["holds"] * 5
    assert "4 512 256 2 61.0 µs" in text_of(findings.choices())


def test_a_compiler_that_always_chooses_the_same(bench: Bench) -> None:
    compiled_anew(bench, (24576, 128, 40.0), (24576, 128, 41.0))
    assert (figure("mlp.slow_choices", DEFAULT_DEVICE).value, measured("O-P19").value) == (0, 0)
    assert [verdict(f"O-P{number}") for number in (17, 18, 19)] == ["differs"] * 3
    assert figure("mlp.slow_speedup", DEFAULT_DEVICE).value == pytest.approx(1.14, abs=0.01)


def test_an_unlucky_forward_is_noticed(bench: Bench) -> None:
    bench.kernels("compiled", lambda one: replace(one, grid=(49152, 1, 1), block=(256, 1, 1)))
    assert (verdict("O-P20"), measured("O-P20").text) == ("differs", "512 elements to 256 threads, not the fastest")
    bench.kernels("liger", lasting("geglu", 60.0))
    assert verdict("O-P21") == "differs"


def test_the_power_of_two_is_judged_by_both_kernels(bench: Bench) -> None:
    bench.kernels("compiled_4096", lasting("triton", 40.0))
    bench.kernels("liger_4096", lasting("geglu", 50.0))
    assert (verdict("O-P22"), measured("O-P22").value) == ("differs", 1.25)
    bench.kernels("liger_4096", lambda one: replace(one, registers=64))
    assert (verdict("O-P23"), str(measured("O-P23").value).count("48 registers")) == ("differs", 1)


def test_speed_ups_are_judged_by_pairs(bench: Bench) -> None:
    for name in ("eager", "compiled", "liger"):
        bench.recordings[f"mlp/{name}"] = bench.load("mlp/eager", DEFAULT_DEVICE)
    assert (verdict("O-P11"), verdict("O-P12")) == ("differs", "differs")
    assert figure("mlp.compiled_speedup", DEFAULT_DEVICE).value == 1.0
    bench.scaled("mlp/compiled", "warm", 0.8)
    bench.scaled("mlp/liger", "warm", 0.9)
    assert (verdict("O-P11"), verdict("O-P12")) == ("holds", "holds")
    assert figure("mlp.compiled_speedup", DEFAULT_DEVICE).value == pytest.approx(1.25)


def test_small_inputs_are_judged_at_every_size(bench: Bench) -> None:
    for kind in ("launched", "enqueue"):
        bench.scaled("mlp/sweep_liger", kind, 0.5)
    bench.scaled("mlp/sweep_compiled", "warm", 1.1)
    assert [verdict(name) for name in ("O-P14", "O-P8", "O-P15")] == ["differs"] * 3


def test_timings_of_two_sessions_are_not_compared(bench: Bench) -> None:
    bench.recordings["mlp/compiled"] = replace(bench.load("mlp/compiled", DEFAULT_DEVICE), session="another")
    found = judge(CLAIMS["O-P11"], "mlp", DEFAULT_DEVICE)
    assert (found.word, "recorded apart" in found.reason) == ("not measured", True)


def test_half_of_the_launches_is_not_enough(bench: Bench) -> None:
    bench.steps("compiled", lambda step: replace(step, activities=step.kernels[:2]))
    assert (verdict("O-P13"), measured("O-P13").value) == ("holds", pytest.approx(60))
    bench.steps("compiled", lambda step: replace(step, activities=step.kernels[:3]))
    assert verdict("O-P13") == "differs"


def test_figures_by_hand(bench: Bench) -> None:
    bench.kernels("eager", lambda kernel: replace(kernel, duration_us=40.0 if "nvjet" in kernel.name else 15.0))
    assert figure("mlp.pointwise_share", DEFAULT_DEVICE).value == pytest.approx(20)
    assert figure("mlp.free_pointwise", DEFAULT_DEVICE).value == pytest.approx(1.25)
    assert figure("mlp.series_speedup", DEFAULT_DEVICE).value == pytest.approx((550 + 149) / (550 + 89.4))
    assert figure("mlp.gemm_flops", DEFAULT_DEVICE).value == 2 * 8192 * 768 * 3072
    assert figure("mlp.gelu_of_gate", DEFAULT_DEVICE).value == pytest.approx(37.5)
    bench.kernels("compiled", lasting("triton", 20.0))
    assert figure("mlp.pointwise_speedup", DEFAULT_DEVICE).value == pytest.approx(1.5)


def test_what_the_guesses_ask_for(bench: Bench) -> None:
    asked = {
        name: figure(f"mlp.{name}", DEFAULT_DEVICE).text for name in ("order", "working_op", "liger_cpu_side", "by_cpu")
    }
    assert asked == {
        "order": "mm, mm, gelu, mul, mm",
        "working_op": "aten::mm",
        "liger_cpu_side": "eager's",
        "by_cpu": "eager, compiled, Liger",
    }
    assert [figure(f"mlp.{name}", DEFAULT_DEVICE).value for name in ("gemm_kinds", "automatic_compilations")] == [2, 2]
    bench.steps("liger", lambda step: replace(step, ops=()))
    bench.scaled("mlp/liger", "enqueue", 0.1)
    assert figure("mlp.liger_cpu_side", DEFAULT_DEVICE).text == "the compiled call's"
    assert figure("mlp.by_cpu", DEFAULT_DEVICE).text == "Liger, eager, compiled"


def test_own_time_of_what_launches_nothing() -> None:
    rows = {row.name: row.self_cpu_us for row in key_averages(load_trace("mlp/eager", DEFAULT_DEVICE))}
    idle = ("linear", "matmul", "t", "transpose", "as_strided", "reshape", "view", "_unsafe_view")
    expected = 100 * sum(rows[f"aten::{name}"] for name in idle) / rows["aten::mm"]
    assert figure("mlp.chain_over_mm", DEFAULT_DEVICE).value == pytest.approx(expected)


def test_what_a_fused_kernel_moves_is_told_only_where_it_stands_alone() -> None:
    eager, compiled = (load_trace(f"mlp/{name}", DEFAULT_DEVICE) for name in ("eager", "compiled"))
    assert findings.fused_work(compiled, compiled.steps[1]) == {4: (0, 3 * HIDDEN_BYTES)}
    assert findings.fused_work(eager, eager.steps[1]) == {}


def test_samples_as_a_timing() -> None:
    assert findings.timing_of([3.0]) == Timing(3.0, 3.0, 3.0, (3.0,))
    assert findings.timing_of([1.0, 2.0, 3.0, 6.0]) == Timing(2.5, 1.75, 3.75, (1.0, 2.0, 3.0, 6.0))


@pytest.mark.parametrize("name", findings.FIGURES)
def test_every_figure_has_a_text(name: str) -> None:
    shown = figure(f"mlp.{name}", DEFAULT_DEVICE)
    assert shown.text
    assert shown.conclusive


def text_of(shown: Html) -> str:
    """Its text, and that of the names that only a screen reader reads."""
    named = re.sub(r'<svg[^>]* aria-label="([^"]*)"[^>]*>', r" \1 ", shown)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", named)))


SHOWN: Mapping[str, tuple[Callable[[], Html], tuple[str, ...]]] = {
    "forward": (findings.forward, ("5 kernels, 2 fills", "aten::gelu", "Open the whole trace in Perfetto")),
    "kernels": (findings.kernels, ("fill of memory", "aten::gelu", "cuLaunchKernelEx", "2x66x1", "% of bare")),
    "operators": (findings.operators, ("aten::matmul", "6 operators that never reach the GPU", "aten::as_strided")),
    "gemms": (findings.gemm_times, ("gate, 8192x768x3072", "down, 8192x3072x768", "sustained")),
    "compiled": (findings.compiled_step, ("eager, CPU", "compiled, CPU", "TorchDynamo Cache Lookup")),
    "compiled diff": (
        findings.compiled_diff,
        ("replaced", "operators and regions 29 8 −21", "bytes moved 455 MB 354 MB −101 MB"),
    ),
    "Liger diff": (findings.liger_diff, ("The layer came from", "replaced", "operators and regions 29 33 +4")),
    "traffic": (findings.traffic, ("eager: 252 MB", "compiled: 151 MB", "GELU's result, read again")),
    "footprints": (findings.footprints, ("24,576", "8,192", "Inductor's")),
    "choices": (
        findings.choices,
        ("1024 elements to 128 threads: 6 of 12", "12 1024 128 8 37.1 µs"),
    ),
    "side by side": (findings.side_by_side, ("AOTDispatcher Runtime Wrapper Prologue", "LigerGELUMulFunction")),
    "CPU and GPU": (findings.cpu_and_gpu, ("eager, GPU 253 µs", "Liger, CPU 241 µs")),
    "new shapes": (findings.new_shapes, ("dynamic=False first call", "64", "48")),
    "bought": (findings.bought, ("GPU time, warm", "paired timings", "from Python")),
    "kernel times": (findings.kernel_times, ("eager: 233 µs", "compiled: 206 µs", "Liger: 211 µs")),
    "regimes": (findings.regimes, ("16,384", "compiled: overhead-bound up to 2,048 tokens")),
    "roofline": (findings.roofline, ("1 token:", "16,384 tokens:", "copy")),
    "widths": (findings.widths, ("3072 columns, Inductor 38.0 µs", "4096 columns, Liger 50.5 µs")),
    "replayed": (findings.replayed, ("Liger, CUDA graph 19.6 µs", "eager, Python 104 µs")),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown_says_what_it_promises(name: str) -> None:
    make, expected = SHOWN[name]
    shown = text_of(make())
    assert [words for words in expected if words not in shown] == []


def test_a_hostile_name_stays_text(bench: Bench) -> None:
    for variant in ("eager", "compiled", "liger"):
        bench.kernels(variant, named("_", "<script>"))
    bench.data("mlp/liger", liger="<script>")
    for make, _ in SHOWN.values():
        assert "<script" not in make()
    assert "<script" not in claims_table("mlp")


def test_a_missing_recording_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *_: object) -> Trace:
        raise NotRecorded(f"no recording {name!r}; run make record CHAPTER=mlp")

    monkeypatch.setattr(recording, "load", missing)
    monkeypatch.setattr(recording, "trace", missing)
    assert {judge(claim, "mlp", DEFAULT_DEVICE).word for claim in findings.CLAIMS} == {"not measured"}
    assert "make record CHAPTER=mlp" in show("mlp-kernels", findings.kernels)
