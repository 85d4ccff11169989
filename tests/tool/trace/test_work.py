"""What an activity had to do: exact FLOPs and bytes, and None wherever the trace does not tell."""

from __future__ import annotations

from typing import Any

import pytest

from kinetoscope.trace.events import Step
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.work import ActivityWork, KnownWork, step_work
from tests.tool import events
from tests.tool.recorded import recorded

BF16, HALF, FLOAT, DOUBLE, LONG = "c10::BFloat16", "c10::Half", "float", "double", "long int"
Shape = list[int]


def dense(shape: Shape) -> Shape:
    strides = [1] * len(shape)
    for place in range(len(shape) - 2, -1, -1):
        strides[place] = strides[place + 1] * shape[place + 1]
    return strides


def one_step(name: str, dims: Any, types: Any, strides: Any = None, kernels: int = 1, *others: events.Event) -> Step:
    """A step with one operator, which launches so many kernels, and other events."""
    given = [dense(shape) for shape in dims] if strides is None and dims is not None else strides
    listed = [events.step(1, 0, 100), events.op(name, 10, 50, external=9, dims=dims, types=types, strides=given)]
    for place in range(kernels):
        begin = 12.0 + 3 * place
        listed += [events.launch(place + 1, begin), events.kernel(f"k{place}", place + 1, begin + 30, 2)]
    return only_step(*listed, *others)


def only_step(*listed: events.Event) -> Step:
    (step,) = read_trace(events.trace_bytes(*listed)).steps
    return step


def work(name: str, dims: Any, types: Any, strides: Any = None) -> ActivityWork | None:
    (work,) = step_work(one_step(name, dims, types, strides))
    return work


A, B, C = [8, 16], [16, 4], [8, 4]
"""Factors of 128 and 64 elements, and their product of 32."""


@pytest.mark.parametrize(
    ("name", "dims", "types", "product", "size"),
    [
        ("aten::mm", [A, B], [BF16, BF16], (8, 16, 4), 2 * (128 + 64 + 32)),
        ("aten::mm", [A, B], [FLOAT, FLOAT], (8, 16, 4), 4 * (128 + 64 + 32)),
        ("aten::mm", [A, B, C], [HALF, HALF, HALF], (8, 16, 4), 2 * (128 + 64 + 32)),
        ("aten::mm", [A, B, C], [BF16, BF16, FLOAT], (8, 16, 4), 2 * (128 + 64) + 4 * 32),
        ("aten::bmm", [[3, *A], [3, *B]], [BF16, BF16], (24, 16, 4), 2 * 3 * (128 + 64 + 32)),
        ("aten::matmul", [[5, 1, *A], [3, *B]], [BF16, BF16], (120, 16, 4), 2 * (5 * 128 + 3 * 64 + 15 * 32)),
        ("aten::linear", [A, [4, 16], []], [BF16, BF16, ""], (8, 16, 4), 2 * (128 + 64 + 32)),
        ("aten::linear", [[2, *A], [4, 16], [4]], [BF16] * 3, (16, 16, 4), 2 * (2 * 128 + 64 + 4 + 64)),
        ("aten::addmm", [[4], A, B, [], []], [BF16] * 3 + ["Scalar"] * 2, (8, 16, 4), 2 * (4 + 128 + 64 + 32)),
        ("aten::addmm", [C, A, B, [], []], [BF16] * 3 + ["Scalar"] * 2, (8, 16, 4), 2 * (32 + 128 + 64 + 32)),
        ("aten::addmm", [C, A, B, [], [], C], [BF16] * 3 + ["Scalar"] * 2 + [BF16], (8, 16, 4), 2 * (32 + 224)),
        (
            "aten::baddbmm",
            [[3, 1, 4], [3, *A], [3, *B], [], []],
            [BF16] * 3 + ["Scalar"] * 2,
            (24, 16, 4),
            2 * (12 + 3 * 224),
        ),
    ],
)
def test_products(name: str, dims: Any, types: Any, product: tuple[int, int, int], size: int) -> None:
    m, k, n = product
    assert work(name, dims, types) == ActivityWork(2 * m * k * n, size, product)


@pytest.mark.parametrize(
    ("name", "dims", "strides", "layout"),
    [
        ("aten::mm", [A, B], None, "x @ w"),
        ("aten::mm", [A, B], [[16, 1], [1, 16]], "x @ weight.t()"),
        ("aten::mm", [A, B], [[1, 8], [4, 1]], ""),
        ("aten::bmm", [[3, *A], [3, *B]], [[128, 16, 1], [64, 1, 16]], "x @ weight.t()"),
        ("aten::linear", [A, [4, 16], []], None, "x @ weight.t()"),
        ("aten::linear", [A, [4, 16], []], [[16, 1], [1, 4], []], "x @ w"),
    ],
)
def test_layout_and_type_of_a_product(name: str, dims: Any, strides: Any, layout: str) -> None:
    for kind, dtype in ((BF16, "bfloat16"), (HALF, "float16"), (FLOAT, "float32"), (DOUBLE, "float64")):
        found = work(name, dims, [kind, kind, ""][: len(dims)], strides)
        assert found is not None
        assert (found.layout, found.dtype) == (layout, dtype)


def test_what_an_expanded_dimension_repeats_is_read_once() -> None:
    types = [BF16] * 3 + ["Scalar"] * 2
    row = work("aten::addmm", [C, A, B, [], []], types, [[0, 1], [16, 1], [1, 16], [], []])
    assert row == ActivityWork(2 * 8 * 16 * 4, 2 * (4 + 128 + 64 + 32), (8, 16, 4))
    batch = work("aten::bmm", [[3, *A], [3, *B]], [BF16, BF16], [[128, 16, 1], [0, 4, 1]])
    assert batch is not None
    assert batch.bytes == 2 * (3 * 128 + 64 + 3 * 32)


@pytest.mark.parametrize(
    ("name", "dims", "types", "strides"),
    [
        ("aten::mm", [A, B], ["signed char"] * 2, None),  # what it gathers in is not told
        ("aten::mm", [A, B], ["c10::complex<float>"] * 2, None),  # more than two operations
        ("aten::mm", [A, B], [BF16, FLOAT], None),
        ("aten::mm", [A, B, []], [BF16, BF16, "Scalar"], None),  # out_dtype
        ("aten::mm", [A, B, A], [BF16, BF16, BF16], None),  # no out of that shape
        ("aten::mm", [A, C], [BF16, BF16], None),  # depths differ
        ("aten::mm", [A, B], None, None),
        ("aten::mm", [A, B], [BF16], None),
        ("aten::mm", [A, B], [BF16, BF16], [[16, 1]]),
        ("aten::mm", [A, B], [BF16, BF16], [[16, 1], [4]]),
        ("aten::mm", [A, B], [BF16, BF16], [[1, 1], [4, 1]]),  # rows that overlap
        ("aten::mm", [A], [BF16], None),
        ("aten::mm", None, None, None),
        ("aten::linear", [[16], [4, 16], []], [BF16, BF16, ""], None),
        ("aten::addmm", [[5], A, B, [], []], [BF16] * 3 + ["Scalar"] * 2, None),
        ("aten::addmm", [[4], A, B, [], []], [FLOAT, BF16, BF16] + ["Scalar"] * 2, None),
        ("aten::bmm", [[2, *A], [3, *B]], [BF16, BF16], None),
        ("aten::sum", [A], [BF16], None),
        ("mm", [A, B], [BF16, BF16], None),
        ("triton_poi_fused_gelu_mul_0", [A, A, []], [BF16, BF16, "Scalar"], None),
        ("LigerGELUMulFunction", [A, A], [BF16, BF16], None),
    ],
)
def test_what_the_trace_does_not_tell(name: str, dims: Any, types: Any, strides: Any) -> None:
    assert work(name, dims, types, strides) is None


@pytest.mark.parametrize(
    ("name", "dims", "types", "size"),
    [
        ("aten::add", [A, A, []], [BF16, BF16, "Scalar"], 2 * 3 * 128),
        ("aten::add", [A, A, [], A], [BF16, BF16, "Scalar", FLOAT], 2 * 2 * 128 + 4 * 128),
        ("aten::add", [A, [16], []], [BF16, BF16, "Scalar"], 2 * (128 + 16 + 128)),
        ("aten::mul", [[8, 1], [1, 16]], [FLOAT, FLOAT], 4 * (8 + 16 + 128)),
        ("aten::mul", [A, []], [BF16, DOUBLE], 2 * 2 * 128),  # a Python number comes with the launch
        ("aten::sub", [[], A, []], [LONG, FLOAT, "Scalar"], 4 * 2 * 128),
        ("aten::div", [A, []], [FLOAT, "Scalar"], 4 * 2 * 128),
        ("aten::add_", [A, [8, 1], []], [FLOAT, FLOAT, "Scalar"], 4 * (128 + 8 + 128)),
        ("aten::gelu", [A, []], [BF16, ""], 2 * 2 * 128),
        ("aten::relu_", [A], [BF16], 2 * 2 * 128),
        ("aten::clamp_min", [A, []], [HALF, "Scalar"], 2 * 2 * 128),
        ("aten::silu", [[0, 4]], [BF16], 0),
        ("aten::gelu_backward", [A, A, []], [BF16, BF16, ""], 2 * 3 * 128),
        ("aten::fill_", [A, []], [LONG, "Scalar"], 8 * 128),
        ("aten::zero_", [A], ["bool"], 128),
        ("aten::copy_", [A, A, []], [BF16, FLOAT, "Scalar"], 2 * 128 + 4 * 128),
        ("aten::copy_", [A, [16], []], [BF16, BF16, "Scalar"], 2 * (128 + 16)),
    ],
)
def test_pointwise_operators(name: str, dims: Any, types: Any, size: int) -> None:
    assert work(name, dims, types) == ActivityWork(0, size)


@pytest.mark.parametrize(
    ("name", "dims", "types"),
    [
        ("aten::add", [A, A, []], [BF16, FLOAT, "Scalar"]),
        ("aten::add", [A, A, []], [LONG, LONG, "Scalar"]),
        ("aten::mul", [A, []], [FLOAT, "c10::complex<double>"]),  # the result is complex
        ("aten::mul", [[], []], [FLOAT, FLOAT]),
        ("aten::add", [A, [3], []], [BF16, BF16, "Scalar"]),
        ("aten::add_", [[1, 16], A, []], [BF16, BF16, "Scalar"]),
        ("aten::add", [A, A, [], B], [BF16, BF16, "Scalar", BF16]),
        ("aten::gelu", [A, A, A], [BF16, BF16, BF16]),
        ("aten::gelu", [], []),
        ("aten::zero_", [], []),
        ("aten::copy_", [A], [BF16]),
        ("aten::fill_", [A, []], ["TensorList", "Scalar"]),
        ("aten::where", [A, A, A], ["bool", BF16, BF16]),
    ],
)
def test_pointwise_operators_that_leave_something_open(name: str, dims: Any, types: Any) -> None:
    assert work(name, dims, types) is None


def test_copies_and_fills() -> None:
    up = events.memcpy(2, 60, 5, 1000) | {"name": "Memcpy HtoD (Pageable -> Device)"}
    unknown = events.memset(4, 80, 5, 0)
    del unknown["args"]["bytes"]
    launches = [events.launch(correlation, 10.0 + correlation) for correlation in (1, 2, 3, 4)]
    gpu = [events.memcpy(1, 50, 5, 1000), up, events.memset(3, 70, 5, 4), unknown]
    copy, upload, fill, nothing = step_work(only_step(events.step(1, 0, 100), *launches, *gpu))
    assert (copy, upload, fill) == (ActivityWork(0, 2000), ActivityWork(0, 1000), ActivityWork(0, 4))
    assert nothing is None


def test_the_work_of_two_kernels_cannot_be_divided_but_a_copy_and_a_fill_stand_beside_one() -> None:
    copied = [events.launch(7, 11, name="cudaMemcpyAsync"), events.memcpy(7, 36, 2, 64)]
    filled = [events.launch(8, 11.5, name="cudaMemsetAsync"), events.memset(8, 39, 1, 4)]
    product = ActivityWork(2 * 8 * 16 * 4, 2 * (128 + 64 + 32), (8, 16, 4))
    for kernels, expected in ((1, [product]), (2, [None, None])):
        step = one_step("aten::mm", [A, B], [BF16, BF16], None, kernels, *copied, *filled)
        assert step_work(step) == (ActivityWork(0, 128), ActivityWork(0, 4), *expected)


def test_a_kernel_of_no_operator() -> None:
    assert step_work(only_step(events.step(1, 0, 90), events.launch(5, 5), events.kernel("k", 5, 10, 5))) == (None,)


def test_what_the_caller_knows_goes_first() -> None:
    step = one_step("triton_poi_0", [A, A], [BF16, BF16], None, 2)
    assert step_work(step, {1: (7, 8)}) == (None, ActivityWork(7, 8))

    def known(asked: Step) -> KnownWork:
        assert asked is step
        return {index: (0, len(activity.name)) for index, activity in enumerate(asked.activities)}

    assert step_work(step, known) == (ActivityWork(0, 2), ActivityWork(0, 2))


@pytest.mark.parametrize(
    ("experiment", "expected"),
    [
        (
            "mlp/eager",
            {
                "aten::mm": [(2 * 8192 * 768 * 3072, 2 * (8192 * 768 + 768 * 3072 + 8192 * 3072))] * 3,
                "aten::gelu": [(0, 2 * 2 * 8192 * 3072)],
                "aten::mul": [(0, 2 * 3 * 8192 * 3072)],
            },
        ),
        ("mlp/compiled", {"triton_poi_fused__unsafe_view_gelu_mul_0": [None]}),
        ("mlp/liger", {"LigerGELUMulFunction": [None]}),
        ("matmul_add/compiled_4096", {"aten::addmm": [(2 * 4096**3, 2 * 4 * 4096**2)]}),
        ("matmul_add/row_bias_4096", {"aten::addmm": [(2 * 4096**3, 2 * (3 * 4096**2 + 4096))]}),
        (
            "matmul_add/stacked",
            {"aten::bmm": [(2 * 8 * 64**3, 2 * 3 * 8 * 64**2)], "aten::add": [(0, 2 * 3 * 8 * 64**2)]},
        ),
        ("linear/eager", {"aten::addmm": [(2 * 1024 * 32 * 64, 2 * (64 + 1024 * 32 + 32 * 64 + 1024 * 64))]}),
    ],
)
def test_recorded_steps(experiment: str, expected: dict[str, list[tuple[int, int] | None]]) -> None:
    for step in recorded(experiment).steps:
        by_op: dict[str, list[tuple[int, int] | None]] = {}
        for activity, work in zip(step.activities, step_work(step), strict=True):
            if activity.kind == "kernel" and activity.op is not None:
                by_op.setdefault(activity.op.name, []).append(work and (work.flops, work.bytes))
        assert {name: by_op[name] for name in expected} == expected


def test_a_recorded_copy_of_the_bias_moves_twice_its_bytes() -> None:
    for step in recorded("matmul_add/compiled_4096").steps:
        works = zip(step.activities, step_work(step), strict=True)
        copies = [work for activity, work in works if activity.kind == "memcpy"]
        assert copies == [ActivityWork(0, 2 * 2 * 4096**2)]
