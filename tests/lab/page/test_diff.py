"""Two steps aligned kernel by kernel: by hand, exhaustively for short ones, and on what was recorded."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from snippets.lab.finding.quantities import UnknownFigure
from snippets.lab.page.diff import diff_of, diff_table
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.loading import load_recordings, load_trace
from snippets.lab.recording.schema import NotRecorded
from snippets.lab.trace.alignment import Change, align
from snippets.lab.trace.events import GpuActivity, Step, Trace, TraceError
from snippets.lab.trace.kineto import read_trace
from snippets.lab.trace.queries import middle_step
from snippets.lab.trace.work import KnownWork
from tests.lab import events, samples
from tests.lab.samples import DEVICE, EVIL, Markup, assert_only_text, put, sample

GEMM, OTHER_GEMM = "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT", "nvjet_sm90_tst_64x8_64x16_1x4_h_badd_NNT"
ADD = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)"
)
GELU = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
    "at::native::GeluType)::{lambda()#1}, std::array<char*, 2ul> >(int, std::array<char*, 2ul>)"
)
MUL = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, "
    "c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int)"
)
FUSED = "triton_poi_fused__unsafe_view_gelu_mul_0"
COPY, FILL = "Memcpy DtoD (Device -> Device)", "Memset (Device)"


def step_of(*names: str) -> Step:
    """A step with GPU work of these names, one after the other."""
    activities = tuple(
        GpuActivity(name, 10.0 * place, 5.0, "memcpy" if name == COPY else "memset" if name == FILL else "kernel", 0, 7)
        for place, name in enumerate(names)
    )
    return Step(1, "ProfilerStep#1", 0.0, 1000.0, (), (), activities)


def shown(pairs: tuple[Change, ...]) -> list[tuple[str, list[str], list[str]]]:
    return [(pair.change, [one.name for one in pair.before], [one.name for one in pair.after]) for pair in pairs]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([], [], []),
        ([GEMM], [GEMM], [("same", [GEMM], [GEMM])]),
        ([], [GEMM, FILL], [("new", [], [GEMM]), ("new", [], [FILL])]),
        ([GEMM, FILL], [], [("vanished", [GEMM], []), ("vanished", [FILL], [])]),
        (
            [GEMM, GELU, MUL, OTHER_GEMM],
            [GEMM, FUSED, OTHER_GEMM],
            [
                ("same", [GEMM], [GEMM]),
                ("replaced", [GELU, MUL], [FUSED]),
                ("same", [OTHER_GEMM], [OTHER_GEMM]),
            ],
        ),
        (
            [GEMM, FUSED, OTHER_GEMM],
            [GEMM, GELU, MUL, OTHER_GEMM],
            [
                ("same", [GEMM], [GEMM]),
                ("replaced", [FUSED], [GELU, MUL]),
                ("same", [OTHER_GEMM], [OTHER_GEMM]),
            ],
        ),
        (
            [GEMM, ADD],
            [COPY, OTHER_GEMM],
            [("new", [], [COPY]), ("replaced", [GEMM], [OTHER_GEMM]), ("vanished", [ADD], [])],
        ),
        (
            [FILL, GELU, MUL],
            [FILL, ADD, GELU],
            [
                ("same", [FILL], [FILL]),
                ("new", [], [ADD]),
                ("same", [GELU], [GELU]),
                ("vanished", [MUL], []),
            ],
        ),
        ([GELU, MUL], [ADD, "f"], [("replaced", [GELU, MUL], [ADD]), ("new", [], ["f"])]),
        ([GEMM, GELU], ["f", "g"], [("replaced", [GEMM, GELU], ["f", "g"])]),
        ([GEMM, GELU], [OTHER_GEMM, MUL], [("replaced", [GEMM], [OTHER_GEMM]), ("replaced", [GELU], [MUL])]),
        ([GELU, MUL], [ADD, ADD], [("replaced", [GELU], [ADD]), ("replaced", [MUL], [ADD])]),
        ([COPY, GEMM], [GEMM, COPY], [("vanished", [COPY], []), ("same", [GEMM], [GEMM]), ("new", [], [COPY])]),
    ],
)
def test_what_became_of_each_kernel(
    before: list[str], after: list[str], expected: list[tuple[str, list[str], list[str]]]
) -> None:
    assert shown(align(step_of(*before), step_of(*after))) == expected


def test_a_copy_is_not_a_kernel_of_its_name() -> None:
    kernel = step_of("x").activities[0]
    copy = GpuActivity(COPY, 0.0, 5.0, "kernel", 0, 7)
    before = Step(1, "ProfilerStep#1", 0.0, 9.0, (), (), (copy, kernel))
    assert [pair.change for pair in align(before, step_of(COPY, "x"))][-1] == "same"
    assert "same" not in [pair.change for pair in align(before, step_of(COPY))]


def longest(before: Sequence[GpuActivity], after: Sequence[GpuActivity]) -> int:
    """How many activities two steps have in common in one order, by the definition."""
    if not before or not after:
        return 0
    if before[-1].name == after[-1].name:
        return 1 + longest(before[:-1], after[:-1])
    return max(longest(before[:-1], after), longest(before, after[:-1]))


@pytest.mark.parametrize(("names", "most"), [((GEMM, GELU, FILL), 3), ((GEMM, ADD), 5)])
def test_every_activity_stands_in_one_pair_in_order(names: tuple[str, ...], most: int) -> None:
    steps = [step_of(*some) for length in range(most + 1) for some in itertools.product(names, repeat=length)]
    for before, after in itertools.product(steps, steps):
        pairs = align(before, after)
        assert tuple(one for pair in pairs for one in pair.before) == before.activities
        assert tuple(one for pair in pairs for one in pair.after) == after.activities
        assert sum(pair.change == "same" for pair in pairs) == longest(before.activities, after.activities)
        for pair in pairs:
            lengths = (len(pair.before), len(pair.after))
            assert lengths == {"same": (1, 1), "vanished": (1, 0), "new": (0, 1)}.get(pair.change, lengths)
            assert (pair.change == "replaced") == (
                0 not in lengths and (lengths != (1, 1) or pair.before[0].name != pair.after[0].name)
            )


@pytest.mark.parametrize("other", ["mlp/compiled", "mlp/liger"])
def test_recorded_fusion(other: str) -> None:
    steps = [middle_step(load_trace(name, DEFAULT_DEVICE)) for name in ("mlp/eager", other)]
    changes = [(pair.change, len(pair.before), len(pair.after)) for pair in align(*steps)]
    assert changes == [*[("same", 1, 1)] * 4, ("replaced", 2, 1), ("same", 1, 1)]


def test_a_recorded_bias_that_is_copied() -> None:
    steps = [middle_step(load_trace(f"matmul_add/{name}", DEFAULT_DEVICE)) for name in ("eager_64", "compiled_64")]
    assert [pair.change for pair in align(*steps)] == ["new", "replaced", "vanished"]


def test_a_recorded_step_is_like_itself() -> None:
    for found in load_recordings(DEFAULT_DEVICE):
        if found.has_trace:
            step = middle_step(load_trace(found.id, DEFAULT_DEVICE))
            assert {pair.change for pair in align(step, step)} == {"same"}


def test_a_long_step_is_aligned_soon() -> None:
    layer = [GEMM, GELU, MUL, OTHER_GEMM, FILL, ADD]
    fused = [GEMM, FUSED, OTHER_GEMM, FILL, ADD]
    pairs = align(step_of(*layer * 500), step_of(*fused * 500))
    assert [pair.change for pair in pairs] == ["same", "replaced", "same", "same", "same"] * 500


def cells(table: str) -> list[list[str]]:
    """Text of each row's cells but the head's; of a kernel only the short form."""
    rows = re.findall(r"<tr>(.*?)</tr>", re.sub(r"<span popover.*?</span></span>", "", table), re.DOTALL)
    return [[Markup(cell).text for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)] for row in rows[1:]]


def steps(*kernels: tuple[str, float], op_us: float = 30.0, dims: object = None, label: str = "fwd") -> Trace:
    """Three steps of 100 us, each a label of 80 us with one operator a kernel of so many us."""
    events = []
    for place in range(3):
        start, correlation = 1000.0 * place, 10 * place + 1
        events += [events.step(place, start, 100), events.annotation(label, start + 1, 80)]
        for which, (name, lasts) in enumerate(kernels):
            begin = start + 2 + (op_us + 1) * which
            given = {"dims": dims, "types": ["float"] * 2, "strides": [[4, 1], [4, 1]]} if dims else {}
            events += [
                events.op("aten::mul", begin, op_us, external=correlation + which, **given),
                events.launch(correlation + which, begin + 5, external=correlation + which),
                events.kernel(name, correlation + which, start + 100 + 50 * which, lasts),
            ]
    return read_trace(events.trace_bytes(*events))


def test_the_tables() -> None:
    before = steps((GEMM, 40), (MUL, 20), dims=[[8, 4], [8, 4]])
    after = steps((GEMM, 40.5))
    shown = diff_of(before, after, ("one", "two"), "From one to two", labels=("fwd", "fwd"))
    first, second = shown.split("</table>")[:2]
    assert "<caption>From one to two</caption>" in first
    assert "<caption>From one to two: a step in all</caption>" in second
    gemm = "cuBLAS GEMM bf16 · 64x8x64 · NNT"
    assert cells(first) == [
        ["= same", gemm, "40.0 µs", "40.5 µs", "+500 ns+1 %"],
        ["− vanished", "mul (ATen, vectorized)", "20.0 µs", "–", "−20.0 µs"],
    ]
    assert cells(second) == [
        ["kernel time", "60.0 µs", "40.5 µs", "−19.5 µs−32 %"],
        ["GPU busy", "60.0 µs", "40.5 µs", "−19.5 µs−32 %"],
        ["GPU activities", "2", "1", "−1"],
        ["CUDA calls that launch them", "2", "1", "−1"],
        ["CUDA calls in all", "2", "1", "−1"],
        ["operators and regions", "2", "1", "−1"],
        ["CPU time", "80.0 µs", "80.0 µs", "0"],
        ["bytes moved", "768 bytes", "–", "–"],
    ]


def test_a_group_is_one_row_with_its_sums() -> None:
    before, after = steps((GELU, 4), (MUL, 20)), steps((FUSED, 12))
    (row,) = cells(diff_of(before, after, ("one", "two"), "c").split("</table>")[0])
    assert row[0] == "→ replaced"
    assert row[1].startswith("GELU (ATen, vectorized)mul (ATen, vectorized)→ ")
    assert row[2:] == ["24.0 µs", "12.0 µs", "−12.0 µs−50 %"]


def test_no_difference_is_made_by_arithmetic() -> None:
    (row,) = cells(diff_of(steps((GELU, 0.1), (MUL, 0.2)), steps((FUSED, 0.3)), ("a", "b"), "c").split("</table>")[0])
    assert row[2:] == ["300 ns", "300 ns", "0"]


def test_new_work_and_the_whole_step_without_a_label() -> None:
    first, second = diff_of(steps((ADD, 3)), steps((ADD, 3), (GEMM, 12)), ("one", "two"), "c").split("</table>")[:2]
    assert [row[0] for row in cells(first)] == ["= same", "+ new"]
    assert cells(first)[1][2:] == ["–", "12.0 µs", "+12.0 µs"]
    assert ["CPU time", "100 µs", "100 µs", "0"] in cells(second)
    with pytest.raises(UnknownFigure, match="no annotation 'other'"):
        diff_of(steps((ADD, 3)), steps((ADD, 3)), ("one", "two"), "c", labels=("", "other"))


def test_bytes_of_what_only_the_caller_knows() -> None:
    known, open_ = steps((MUL, 20), dims=[[8, 4], [8, 4]]), steps((FUSED, 12), (MUL, 2))

    def moved(work: tuple[KnownWork | None, KnownWork | None], after: Trace = open_) -> list[str]:
        return cells(diff_of(known, after, ("one", "two"), "c", work=work).split("</table>")[1])[-1]

    assert moved((None, None)) == ["bytes moved", "384 bytes", "–", "–"]
    assert moved((None, {0: (0, 100)})) == ["bytes moved", "384 bytes", "at least 100 bytes", "–"]
    assert moved((None, {0: (0, 100), 1: (0, 92)})) == ["bytes moved", "384 bytes", "192 bytes", "−192 bytes−50 %"]


def test_a_difference_within_the_spread_is_called_so() -> None:
    def steps_of(*lasting: float) -> Trace:
        events = []
        for place, lasts in enumerate(lasting):
            events += [events.step(place, 1000.0 * place, 100), events.launch(place + 1, 1000.0 * place + 10)]
            events += [events.kernel(GEMM, place + 1, 1000.0 * place + 50, lasts)]
        return read_trace(events.trace_bytes(*events))

    first, second = diff_of(steps_of(10, 20, 30), steps_of(26, 27, 28), ("a", "b"), "c").split("</table>")[:2]
    assert cells(first) == [
        ["= same", "cuBLAS GEMM bf16 · 64x8x64 · NNT", "20.0 µs", "27.0 µs", "+7.00 µswithin the spread"]
    ]
    assert cells(second)[0] == [
        "kernel time",
        "20.0 µs10.0 to 30.0 µs",
        "27.0 µs26.0 to 28.0 µs",
        "+7.00 µswithin the spread",
    ]
    first, _ = diff_of(steps_of(10, 20, 24), steps_of(26, 27, 28), ("a", "b"), "c").split("</table>")[:2]
    assert cells(first)[0][4] == "+9.00 µs+50 %"


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = samples.shelf(monkeypatch, tmp_path)
    put(root, sample())
    return root


def test_two_recordings(shelf: Path) -> None:
    put(shelf, sample("mlp/compiled"), trace=samples.trace_json(name="other", kernels=(1, 1, 1)))
    shown = diff_table("mlp/eager", "mlp/compiled", DEVICE, ("eager", "compiled"), "c")
    assert shown.count('role="region"') == 2
    first, second = shown.split("</table>")[:2]
    assert cells(first) == [
        ["→ replaced", "gemmgemm→ other", "20.0 µs", "10.0 µs", "−10.0 µs−50 %"],
        ["= same", "fill of memory (Device)", "4.00 µs", "4.00 µs", "0"],
    ]
    assert ["CPU time", "80.0 µs", "80.0 µs", "0"] in cells(second)
    assert ["bytes moved", "at least 64 bytes", "at least 64 bytes", "–"] in cells(second)


def test_no_recording_no_step_no_kernel(shelf: Path) -> None:
    for pair in (("mlp/eager", "mlp/liger"), ("mlp/liger", "mlp/eager")):
        with pytest.raises(NotRecorded, match="make record CHAPTER=mlp"):
            diff_table(*pair, DEVICE, ("a", "b"), "c")
    good = steps((GEMM, 1))
    no_step = read_trace(events.trace_bytes(events.launch(1, 0), events.kernel("k", 1, 5, 5)))
    no_kernel = read_trace(events.trace_bytes(events.step(2, 0, 100)))
    for bad, message in ((no_step, "no active steps"), (no_kernel, "no GPU kernels")):
        for one, other in ((good, bad), (bad, good)):
            with pytest.raises(TraceError, match=message):
                diff_of(one, other, ("a", "b"), "c")


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_names(shelf: Path, name: str) -> None:
    put(shelf, sample("mlp/compiled", label=name), trace=samples.trace_json(name=name, op=name, label=name))
    for pair in (("mlp/eager", "mlp/compiled"), ("mlp/compiled", "mlp/eager")):
        assert_only_text(diff_table(*pair, DEVICE, (name, name), name), name)
