"""The chapter fused_mlp, first part: its claims on the builder's recordings, and on altered ones that must fail."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from snippets.fused_mlp.findings import single as findings
from snippets.lab.finding.book import judge
from snippets.lab.finding.claim import Status
from snippets.lab.finding.figure import Figure
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.schema import Timing
from snippets.lab.trace.events import GpuActivity, Trace, TraceError
from snippets.lab.trace.kineto import read_trace
from tests.bench import AlteredRecordings
from tests.lab import kineto

CLAIMS = {claim.id: claim for claim in findings.CLAIMS}
HIDDEN_BYTES = 2 * 8192 * 3072
X_BYTES = 2 * 8192 * 768
WEIGHT_BYTES = 2 * 768 * 3072
replace = msgspec.structs.replace


def verdict(name: str) -> Status:
    return judge(CLAIMS[name], "fused_mlp", DEFAULT_DEVICE).word


def measured(name: str) -> Figure:
    found = judge(CLAIMS[name], "fused_mlp", DEFAULT_DEVICE).measured
    assert found is not None
    return found


class Bench(AlteredRecordings):
    """The builder's recordings, and ways to alter them."""

    def recorded(self, name: str, **changed: Any) -> None:
        """Change fields of a recording."""
        name = f"fused_mlp/{name}"
        self.recordings[name] = replace(self.recordings.get(name) or self.load(name, DEFAULT_DEVICE), **changed)

    def timed(self, name: str, kind: str, like: str, factor: float) -> None:
        """Give one kind of timing of `name` the times of `like`, longer or shorter."""
        (point,) = self.load(f"fused_mlp/{like}", DEFAULT_DEVICE).points
        old: Timing = getattr(point.timings, kind)
        samples = tuple(factor * sample for sample in old.samples_us)
        timing = Timing(factor * old.median_us, factor * old.q1_us, factor * old.q3_us, samples)
        (point,) = (self.recordings.get(f"fused_mlp/{name}") or self.load(f"fused_mlp/{name}", DEFAULT_DEVICE)).points
        self.recorded(name, points=(replace(point, timings=replace(point.timings, **{kind: timing})),))

    def kernels(
        self, name: str, change: Callable[[tuple[GpuActivity, ...]], tuple[GpuActivity, ...]], only: int | None = None
    ) -> None:
        """Change the GPU work of every step of a trace, or only that of one."""
        name = f"fused_mlp/{name}"
        traced = self.traces.get(name) or self.trace(name, DEFAULT_DEVICE)
        steps = (
            replace(step, activities=change(step.activities)) if only in (None, place) else step
            for place, step in enumerate(traced.steps)
        )
        self.traces[name] = replace(traced, steps=tuple(steps))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def value(name: str) -> Any:
    return findings.FIGURES[name](DEFAULT_DEVICE).value


def test_every_verdict_is_the_one_the_prose_was_written_for() -> None:
    judged = [judge(claim, "fused_mlp", DEFAULT_DEVICE) for claim in findings.CLAIMS]
    assert [(one.claim.id, one.word, one.reason) for one in judged if not one.is_expected] == []
    assert "not measured" not in {one.word for one in judged}


def test_every_difference_is_explained_without_numbers() -> None:
    assert sorted(CLAIMS, key=lambda name: int(name[1:])) == [f"F{place}" for place in range(1, 20)]
    for claim in findings.CLAIMS:
        assert bool(claim.why) == (claim.expected.get(DEFAULT_DEVICE) == "differs"), claim.id
        assert not re.search(r"\d\s?(?:[mµn]s|us|[MGT]B|%|T?FLOP)", claim.why), claim.id


def forward_of(*products: tuple[list[int], list[int]], others: tuple[str, ...] = ()) -> Trace:
    """One step of so many `aten::mm`, and then of pointwise operators on two 4x16 tensors."""
    ops = [("aten::mm", list(pair)) for pair in products] + [(name, [[4, 16], [4, 16]]) for name in others]
    events = [kineto.step(1, 0, 1000)]
    for place, (name, dims) in enumerate(ops, 1):
        strides = [[columns, 1] for _, columns in dims]
        types = ["c10::BFloat16"] * 2
        begin = 20.0 * place
        events += [
            kineto.op(name, begin, 15, external=place, dims=dims, types=types, strides=strides),
            kineto.launch(place, begin + 2),
            kineto.kernel(f"k{place}", place, begin + 300, 2),
        ]
    return read_trace(kineto.trace_bytes(*events))


def test_trips_and_bytes_of_a_small_forward() -> None:
    wide, narrow = ([4, 8], [8, 16]), ([4, 16], [16, 8])
    traced = forward_of(wide, wide, narrow, others=("aten::mul",))
    (step,) = traced.steps
    assert findings.hidden_size_bytes(traced, step) == 2 * 4 * 16
    assert findings.hidden_trips(traced, step) == 1 + 1 + 1 + 3
    assert findings.moved_bytes(traced, step) == 2 * (3 * (4 * 8 + 8 * 16 + 4 * 16) + 3 * 4 * 16)


def test_a_step_without_a_product_has_no_hidden_size() -> None:
    traced = forward_of(([4, 8], [8, 16]), ([4, 8], [8, 16]), ([4, 16], [16, 8]))
    alone = replace(traced.steps[0], activities=(), ops=traced.steps[0].ops)
    with pytest.raises(TraceError, match="has no product"):
        findings.hidden_size_bytes(traced, alone)


def test_bytes_come_from_the_shapes() -> None:
    small = 3 * X_BYTES + 3 * WEIGHT_BYTES
    assert value("eager_bytes") == small + 8 * HIDDEN_BYTES
    assert findings._forward_bytes("compiled")(DEFAULT_DEVICE).value == small + 6 * HIDDEN_BYTES
    assert findings._fused_bytes(DEFAULT_DEVICE).value == small - X_BYTES + 2 * HIDDEN_BYTES
    assert value("least_bytes") == small - X_BYTES
    assert value("avoidable") == pytest.approx(100 * (8 * HIDDEN_BYTES + X_BYTES) / (small + 8 * HIDDEN_BYTES))
    assert value("saved_by_two") == pytest.approx(100 * (6 * HIDDEN_BYTES + X_BYTES) / (small + 8 * HIDDEN_BYTES))


def test_the_parts_of_the_picture_are_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: dict[str, list[tuple[str, int]]] = {}
    monkeypatch.setattr(findings.charts, "bytes_moved", lambda _, parts, ident: shown.update(parts) or "")
    findings.forward_traffic()
    small = 3 * X_BYTES + 3 * WEIGHT_BYTES
    rest = {name: dict(parts)["inputs, weights, result"] for name, parts in shown.items()}
    assert rest == {
        "eager": small, "compiled": small, "two fused kernels": small - X_BYTES, "the least": small - X_BYTES,
    }  # fmt: skip
    assert [len(parts) - 1 for parts in shown.values()] == [4, 3, 1, 0]


def test_f1_counts_trips_and_wants_steps_that_agree(bench: Bench) -> None:
    bench.kernels("eager", lambda found: tuple(one for one in found if "Gelu" not in one.name), only=0)
    assert verdict("F1") == "inconclusive"
    bench.kernels("eager", lambda found: tuple(one for one in found if "Gelu" not in one.name))
    assert (verdict("F1"), measured("F1").value) == ("differs", "eager 6, compiled 6")


def test_floors_follow_the_ceilings(bench: Bench) -> None:
    eager = bench.load("fused_mlp/eager", DEFAULT_DEVICE)
    (point,) = eager.points
    exact = {
        "copy": (2_000_000_000, 0, 1e3),  # two bytes in a picosecond
        "matmul 8192x8192x8192": (1, 10 * point.flops, 1e3),
    }
    ceilings = tuple(
        replace(one, bytes=moved, flops=flops, timing=Timing(us, us, us, (us,)))
        for one in eager.ceilings
        if one.what in exact
        for moved, flops, us in [exact[one.what]]
    )
    bench.recorded("eager", ceilings=ceilings)
    assert value("arithmetic_us") == pytest.approx(100)
    assert measured("F3").value == pytest.approx(point.bytes / 2e6)
    assert verdict("F3") == "differs"
    bench.recorded("eager", ceilings=())
    assert verdict("F3") == "not measured"


def test_rows_of_the_hidden_tensor_in_shared_memory(bench: Bench) -> None:
    bench.recorded("resources", data={"device": {"shared_bytes": 6144 * 5 + 6143}})
    assert value("rows_that_fit") == 5


MM, TEMPLATE, POINTWISE = "extern_kernels.mm", "triton_tem_fused_mm_1", "triton_poi_fused_gelu_mul_0"


@pytest.mark.parametrize(
    ("default", "tuned", "word", "own"),
    [
        ([MM, MM, POINTWISE, MM], [MM, MM, POINTWISE, MM], "holds", 0),
        ([MM, MM, POINTWISE, MM], [TEMPLATE, MM, POINTWISE, MM], "differs", 1),
        ([MM, MM, POINTWISE, MM], [TEMPLATE, TEMPLATE, TEMPLATE], "differs", 3),
        ([MM, POINTWISE, MM], [MM, POINTWISE, MM], "differs", 0),
        ([MM, MM, POINTWISE, POINTWISE, MM], [MM, MM, POINTWISE, POINTWISE, MM], "differs", 0),
    ],
)
def test_f5_reads_the_calls(default: list[str], tuned: list[str], word: Status, own: int, bench: Bench) -> None:
    bench.recorded("generated", data={"compiled": {"calls": default}, "max_autotune": {"calls": tuned}})
    assert (verdict("F5"), value("own_products")) == (word, own)


def test_f5_without_a_mode_is_not_measured(bench: Bench) -> None:
    bench.recorded("generated", data={"compiled": {"calls": [MM]}})
    assert verdict("F5") == "not measured"


def test_generated_code_is_shown_as_text(bench: Bench) -> None:
    bench.recorded("generated", data={"compiled": {"calls": [], "kernels": ["a < b", "<script>"]}})
    assert '<code tabindex="0">a &lt; b\n\n&lt;script&gt;</code>' in findings.generated_kernel()


def test_f6_notices_another_product(bench: Bench) -> None:
    bench.kernels("max_autotune", lambda found: tuple(replace(one, name=one.name + "x") for one in found))
    assert verdict("F6") == "differs"


@pytest.mark.parametrize(
    ("name", "changed", "like", "kinds", "factor", "word"),
    [
        ("F7", "pointwise_fused", "pointwise_copy", ("cold",), 1.05, "holds"),
        ("F7", "pointwise_fused", "pointwise_copy", ("cold",), 1.06, "differs"),
        ("F8", "pointwise_fused", "pointwise_compiled", ("warm", "cold"), 1.015, "holds"),
        ("F8", "pointwise_fused", "pointwise_compiled", ("warm",), 1.03, "differs"),
        ("F8", "pointwise_fused", "pointwise_compiled", ("cold",), 1.03, "differs"),
        ("F9", "pointwise_eager", "pointwise_fused", ("cold",), 1.5, "differs"),
        ("F10", "pointwise_liger", "pointwise_fused", ("warm",), 1.05, "differs"),
        ("F13", "linear_8192_fused", "linear_8192_addmm", ("warm", "cold"), 0.94, "holds"),
        ("F13", "linear_8192_fused", "linear_8192_addmm", ("cold",), 0.97, "differs"),
        ("F15", "linear_64_fused", "linear_64_addmm", ("warm",), 1.01, "differs"),
        ("F16", "linear_64_fused", "linear_64_addmm", ("cold",), 0.99, "holds"),
        ("F18", "linear_64_fused", "linear_64_addmm", ("enqueue",), 2.9, "differs"),
    ],
)
def test_bands_have_two_sides(
    name: str, changed: str, like: str, kinds: tuple[str, ...], factor: float, word: Status, bench: Bench
) -> None:
    for kind in kinds:
        bench.timed(changed, kind, like, factor)
    assert verdict(name) == word


def test_times_of_two_sessions_are_not_compared(bench: Bench) -> None:
    bench.recorded("pointwise_copy", session="another")
    found = judge(CLAIMS["F7"], "fused_mlp", DEFAULT_DEVICE)
    assert (found.word, "were recorded apart" in found.reason) == ("not measured", True)


def test_f12_counts_kernels(bench: Bench) -> None:
    bench.kernels("linear_8192_compiled", lambda found: found[-1:])
    assert measured("F12").value == "ours 1, cuBLAS's epilogue 1, eager 2, compiled 2 and 1"
    assert verdict("F12") == "differs"
    bench.kernels("linear_64_eager", lambda found: found[-1:], only=1)
    assert verdict("F12") == "inconclusive"


def test_f17_and_f19_take_the_kernel_s_own_time(bench: Bench) -> None:
    (point,) = bench.load("fused_mlp/linear_64_fused", DEFAULT_DEVICE).points
    assert point.timings is not None
    warm = point.timings.warm.median_us
    bench.kernels("linear_64_fused", lambda found: tuple(replace(one, duration_us=1.2 * warm) for one in found))
    bench.kernels("linear_64_addmm", lambda found: tuple(replace(one, duration_us=warm) for one in found))
    own = pytest.approx(1.2, rel=1e-4)  # a trace's times are whole nanoseconds
    assert (measured("F17").value, measured("F19").value) == (own, own)
    assert (verdict("F17"), verdict("F19")) == ("holds", "holds")
    bench.kernels("linear_64_fused", lambda found: tuple(replace(one, duration_us=warm) for one in found))
    assert (verdict("F17"), verdict("F19")) == ("differs", "differs")


def test_what_a_thread_does_is_read_from_the_launch(bench: Bench) -> None:
    bench.kernels(
        "pointwise_fused",
        lambda found: tuple(replace(one, registers=77, grid=(6144, 1, 1), block=(256, 1, 1)) for one in found),
    )
    assert findings._launches("fused_mlp/pointwise_fused", DEFAULT_DEVICE) == [("77", "256", "16")]
    assert '<td class="number">77</td>' in findings.pointwise_compared()
