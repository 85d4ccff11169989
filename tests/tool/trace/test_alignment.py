"""Two steps aligned kernel by kernel: by hand, exhaustively for short ones, and on recorded steps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from kinetoscope.trace.alignment import Change, align
from kinetoscope.trace.events import GpuActivity, Step
from tests.tool.recorded import experiments, recorded_step

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


def by_name(changes: tuple[Change, ...]) -> list[tuple[str, list[str], list[str]]]:
    return [
        (change.kind, [activity.name for activity in change.before], [activity.name for activity in change.after])
        for change in changes
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([], [], []),
        ([GEMM], [GEMM], [("same", [GEMM], [GEMM])]),
        ([], [GEMM, FILL], [("added", [], [GEMM]), ("added", [], [FILL])]),
        ([GEMM, FILL], [], [("removed", [GEMM], []), ("removed", [FILL], [])]),
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
            [("added", [], [COPY]), ("replaced", [GEMM], [OTHER_GEMM]), ("removed", [ADD], [])],
        ),
        (
            [FILL, GELU, MUL],
            [FILL, ADD, GELU],
            [
                ("same", [FILL], [FILL]),
                ("added", [], [ADD]),
                ("same", [GELU], [GELU]),
                ("removed", [MUL], []),
            ],
        ),
        ([GELU, MUL], [ADD, "f"], [("replaced", [GELU, MUL], [ADD]), ("added", [], ["f"])]),
        ([GEMM, GELU], ["f", "g"], [("replaced", [GEMM, GELU], ["f", "g"])]),
        ([GEMM, GELU], [OTHER_GEMM, MUL], [("replaced", [GEMM], [OTHER_GEMM]), ("replaced", [GELU], [MUL])]),
        ([GELU, MUL], [ADD, ADD], [("replaced", [GELU], [ADD]), ("replaced", [MUL], [ADD])]),
        ([COPY, GEMM], [GEMM, COPY], [("removed", [COPY], []), ("same", [GEMM], [GEMM]), ("added", [], [COPY])]),
    ],
)
def test_what_became_of_each_kernel(
    before: list[str], after: list[str], expected: list[tuple[str, list[str], list[str]]]
) -> None:
    assert by_name(align(step_of(*before), step_of(*after))) == expected


def test_a_copy_is_not_a_kernel_of_its_name() -> None:
    kernel = step_of("x").activities[0]
    copy = GpuActivity(COPY, 0.0, 5.0, "kernel", 0, 7)
    before = Step(1, "ProfilerStep#1", 0.0, 9.0, (), (), (copy, kernel))
    assert [change.kind for change in align(before, step_of(COPY, "x"))][-1] == "same"
    assert "same" not in [change.kind for change in align(before, step_of(COPY))]


def longest(before: Sequence[GpuActivity], after: Sequence[GpuActivity]) -> int:
    """How many activities two steps have in common in one order, by the definition."""
    if not before or not after:
        return 0
    if before[-1].name == after[-1].name:
        return 1 + longest(before[:-1], after[:-1])
    return max(longest(before[:-1], after), longest(before, after[:-1]))


@pytest.mark.parametrize(("names", "max_length"), [((GEMM, GELU, FILL), 3), ((GEMM, ADD), 5)])
def test_every_activity_is_in_one_change_in_order(names: tuple[str, ...], max_length: int) -> None:
    steps = [step_of(*some) for length in range(max_length + 1) for some in itertools.product(names, repeat=length)]
    for before, after in itertools.product(steps, steps):
        changes = align(before, after)
        assert tuple(one for change in changes for one in change.before) == before.activities
        assert tuple(one for change in changes for one in change.after) == after.activities
        assert sum(change.kind == "same" for change in changes) == longest(before.activities, after.activities)
        for change in changes:
            lengths = (len(change.before), len(change.after))
            assert lengths == {"same": (1, 1), "removed": (1, 0), "added": (0, 1)}.get(change.kind, lengths)
            assert (change.kind == "replaced") == (
                0 not in lengths and (lengths != (1, 1) or change.before[0].name != change.after[0].name)
            )


@pytest.mark.parametrize("other", ["mlp/compiled", "mlp/liger"])
def test_recorded_fusion(other: str) -> None:
    steps = [recorded_step(name) for name in ("mlp/eager", other)]
    changes = [(change.kind, len(change.before), len(change.after)) for change in align(*steps)]
    assert changes == [*[("same", 1, 1)] * 4, ("replaced", 2, 1), ("same", 1, 1)]


def test_a_recorded_bias_that_is_copied() -> None:
    steps = [recorded_step(f"matmul_add/{name}") for name in ("eager_64", "compiled_64")]
    assert [change.kind for change in align(*steps)] == ["added", "replaced", "removed"]


@pytest.mark.slow
def test_a_recorded_step_is_like_itself() -> None:
    for experiment in experiments():
        step = recorded_step(experiment)
        assert {change.kind for change in align(step, step)} == {"same"}, experiment


def test_a_long_step_is_aligned_soon() -> None:
    layer = [GEMM, GELU, MUL, OTHER_GEMM, FILL, ADD]
    fused = [GEMM, FUSED, OTHER_GEMM, FILL, ADD]
    changes = align(step_of(*layer * 500), step_of(*fused * 500))
    assert [change.kind for change in changes] == ["same", "replaced", "same", "same", "same"] * 500
