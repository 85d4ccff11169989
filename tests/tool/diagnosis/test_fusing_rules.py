"""Rules about kernels that one could replace: each fires on its fault, and not on the mended step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.rule import CannotTell
from kinetoscope.diagnosis.rules.optimizer_loop import RULE as OPTIMIZER_LOOP
from kinetoscope.diagnosis.rules.tiny_kernels import RULE as TINY_KERNELS
from kinetoscope.diagnosis.rules.unfused_attention import RULE as UNFUSED_ATTENTION
from kinetoscope.diagnosis.rules.unfused_elementwise import RULE as UNFUSED_ELEMENTWISE
from tests.tool.diagnosis.gpu_work import (
    ADD,
    BF16,
    CONVERT,
    COPY,
    F32,
    FILL,
    FOREACH,
    GEMM,
    MUL,
    SOFTMAX,
    Work,
    facts,
    finding,
    option,
    result,
)
from tests.tool.diagnosis.traces import written
from tests.tool.events import kernel, launch, op, step

ACTIVATION = (8192, 3072)
BYTES = 2 * 8192 * 3072
GELU_MUL = (
    Work(MUL, 32.0, "aten::gelu", (ACTIVATION,), (BF16,), inside=("@mlp",)),
    Work(MUL, 36.0, "aten::mul", (ACTIVATION, ACTIVATION), (BF16, BF16), inside=("@mlp",)),
)


def test_elementwise_kernels_in_a_row_could_be_one() -> None:
    found = finding(UNFUSED_ELEMENTWISE, facts(*GELU_MUL, steps=2))
    assert found.title == "2 elementwise kernels in 1 chain that one kernel each could replace: 68.0 µs per step"
    assert (found.where, found.evidence_us_per_step) == ("aten::mul in mlp", 68.0)
    assert [event.duration_us for event in found.evidence] == [36.0, 32.0]
    assert found.saving_us_per_step == pytest.approx(68.0 - 3 * BYTES / 4.8e6, abs=0.001)  # the roof of an H200


def test_without_a_datasheet_the_fused_kernel_is_as_fast_as_the_fastest() -> None:
    found = finding(UNFUSED_ELEMENTWISE, facts(*GELU_MUL, device=None))
    assert found.saving_us_per_step == pytest.approx(32.0, abs=0.001)  # the multiplication moved more bytes a second


def test_bytes_that_no_gpu_moves_do_not_count() -> None:
    huge = (2**48,) * 3
    work = (Work(MUL, 10.0, "aten::gelu", (huge,), (BF16,)), Work(MUL, 30.0, "aten::exp", (huge,), (BF16,)))
    assert finding(UNFUSED_ELEMENTWISE, facts(*work)).saving_us_per_step == 10.0


def test_a_tensor_of_unknown_size_is_not_one_of_no_bytes() -> None:
    """Where the trace does not tell the bytes of one input, all but the longest kernel may vanish."""
    gelu, mul = GELU_MUL
    scaled = replace(mul, types=(BF16, "c10::complex<float>"))
    assert finding(UNFUSED_ELEMENTWISE, facts(gelu, scaled)).saving_us_per_step == 32.0


def test_a_conversion_is_part_of_a_chain_and_a_fill_is_none() -> None:
    convert = Work(CONVERT, 20.0, "aten::copy_", (ACTIVATION, ACTIVATION), (F32, BF16))
    scalar = Work(FILL, 1.0, "aten::fill_", ((), ()), (F32, "Scalar"))
    square = Work(MUL, 20.0, "aten::pow", (ACTIVATION, ()), (F32, "Scalar"))
    assert len(finding(UNFUSED_ELEMENTWISE, facts(convert, scalar, square)).evidence) == 2


def test_accumulated_gradients_are_no_chain() -> None:
    """Of each micro-batch, autograd adds a gradient to the one before, and a hook of DDP scales it."""
    evaluate = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    inside = (evaluate, "torch::autograd::AccumulateGrad")
    weights = ((4096, 16384), (4096, 16384))
    add = Work(ADD, 90.0, "aten::add_", weights, (BF16, BF16), inside=inside)
    scale = Work(MUL, 90.0, "aten::mul", weights, (BF16, BF16), inside=inside)
    assert result(UNFUSED_ELEMENTWISE, facts(add, scale)) == []
    assert finding(UNFUSED_ELEMENTWISE, facts(replace(add, inside=()), replace(scale, inside=())))


@pytest.mark.parametrize(
    "work",
    [
        (GELU_MUL[0], Work(GEMM, 50.0, "aten::mm"), GELU_MUL[1]),
        (GELU_MUL[0], Work(MUL, 36.0, "aten::mul", ((64, 64), (64, 64)), (BF16, BF16))),
        (GELU_MUL[0], Work(MUL, 36.0, "aten::mul", (ACTIVATION, ACTIVATION), (BF16, BF16), stream=13)),
        tuple(
            Work(MUL, 30.0, each.op, each.dims, each.types, inside=("@Optimizer.step#SGD.step",)) for each in GELU_MUL
        ),
        (
            Work(
                "triton_poi_fused_gelu_mul_0",
                40.0,
                "triton_poi_fused_gelu_mul_0",
                (ACTIVATION, ACTIVATION),
                (BF16, BF16),
            ),
        ),
    ],
    ids=["a product between", "another shape", "another stream", "an optimizer", "fused"],
)
def test_no_chain(work: tuple[Work, ...]) -> None:
    assert result(UNFUSED_ELEMENTWISE, facts(*work)) == []


def test_the_shapes_of_a_function_are_not_those_of_each_of_its_kernels() -> None:
    trace = written(
        step(1, 0.0, 100.0),
        op("CompiledFunction", 0.0, 50.0, dims=[ACTIVATION], types=[BF16]),
        *(launch(number, 10.0 * number) for number in (1, 2)),
        *(kernel(MUL, number, 100.0 * number, 40.0) for number in (1, 2)),
    )
    assert result(UNFUSED_ELEMENTWISE, Facts(trace)) == []


def test_chains_need_shapes() -> None:
    bare = [Work(each.name, each.us, each.op) for each in GELU_MUL]
    assert option(UNFUSED_ELEMENTWISE, facts(*bare)) == "record_shapes=True"
    alone = [Work(each.name, each.us) for each in GELU_MUL]
    both = "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True"
    assert option(UNFUSED_ELEMENTWISE, facts(*alone)) == both
    graph = [Work(each.name, each.us, call="cudaGraphLaunch") for each in GELU_MUL]
    unable = result(UNFUSED_ELEMENTWISE, facts(*graph))
    assert isinstance(unable, CannotTell)
    reason = "a CUDA graph launched these kernels: its replay names no operators; add a trace of its capture"
    assert (unable.reason, unable.option) == (f"{reason} with --capture", "")


HEADS, LENGTH, SIZE = 128, 1024, 64
QUERIES, KEYS, SCORES = (HEADS, LENGTH, SIZE), (HEADS, SIZE, LENGTH), (HEADS, LENGTH, LENGTH)
ATTENTION = (
    Work(GEMM, 85.0, "aten::bmm", (QUERIES, KEYS), (BF16, BF16), inside=("@layer",)),
    Work(MUL, 128.0, "aten::mul", ((8, 16, LENGTH, LENGTH), ()), (BF16, "double"), inside=("@layer",)),
    Work(SOFTMAX, 284.0, "aten::_softmax", ((8, 16, LENGTH, LENGTH), (), ()), (BF16, "Scalar", "Scalar"), ("@layer",)),
    Work(GEMM, 83.0, "aten::bmm", (SCORES, QUERIES), (BF16, BF16), inside=("@layer",)),
)


def test_softmax_between_two_batched_products() -> None:
    found = finding(UNFUSED_ATTENTION, facts(*ATTENTION))
    assert found.title == "softmax between two batched products, 1 time a step: 580 µs"
    assert found.where == "aten::_softmax in layer"
    flops = 2 * HEADS * LENGTH * LENGTH * SIZE  # half of both products: a causal mask may spare the rest
    assert found.saving_us_per_step == pytest.approx(580.0 - flops / 989e6, abs=0.001)


def test_without_a_datasheet_the_products_stay() -> None:
    assert finding(UNFUSED_ATTENTION, facts(*ATTENTION, device=None)).saving_us_per_step == 412.0


def test_backward_is_attention_too() -> None:
    backward = Work(SOFTMAX, 260.0, "aten::_softmax_backward_data", (SCORES, SCORES), (BF16, BF16))
    transposed = Work(GEMM, 80.0, "aten::bmm", ((HEADS, SIZE, LENGTH), SCORES), (BF16, BF16))
    found = finding(UNFUSED_ATTENTION, facts(ATTENTION[0], backward, transposed, transposed, device=None))
    assert (found.evidence_us_per_step, found.saving_us_per_step) == (505.0, 260.0)


IN_HEADS, OF_TOKENS = (8, 16, LENGTH, SIZE), (8, LENGTH, 16, SIZE)
GRADIENTS = (
    Work(GEMM, 40.0, "aten::mm", ((8192, 1024), (1024, 1024)), (BF16, BF16)),
    Work(COPY, 25.0, "aten::copy_", (IN_HEADS, IN_HEADS), (BF16, BF16)),
    Work(GEMM, 79.0, "aten::bmm", (SCORES, QUERIES), (BF16, BF16)),  # of the values
    Work("Memset (Device)", 1.0, moved_bytes=4096),
    Work(GEMM, 86.0, "aten::bmm", (QUERIES, KEYS), (BF16, BF16)),  # of the weights
    Work(SOFTMAX, 369.0, "aten::_softmax_backward_data", (SCORES, SCORES), (BF16, BF16)),
    Work(GEMM, 80.0, "aten::bmm", (KEYS, SCORES), (BF16, BF16)),  # of the keys
    Work(GEMM, 78.0, "aten::bmm", (SCORES, QUERIES), (BF16, BF16)),  # of the queries
    Work(COPY, 26.0, "aten::copy_", (OF_TOKENS, OF_TOKENS), (BF16, BF16)),
    Work(CONVERT, 12.0, "aten::copy_", ((1024, 1024), (1024, 1024)), (F32, BF16)),
)


def test_backward_with_all_products_of_its_scores_and_the_copies_beside_them() -> None:
    found = finding(UNFUSED_ATTENTION, facts(*GRADIENTS))
    kernels_us = 25.0 + 79.0 + 1.0 + 86.0 + 369.0 + 80.0 + 78.0 + 26.0
    assert found.evidence_us_per_step == kernels_us
    flops = 4 * HEADS * LENGTH * LENGTH * SIZE  # half of four products
    assert found.saving_us_per_step == pytest.approx(kernels_us - flops / 989e6, abs=0.001)


def test_other_products_and_copies_beside_attention_stay() -> None:
    other = Work(GEMM, 50.0, "aten::bmm", ((4, 32, 32), (4, 32, 32)), (BF16, BF16))
    conversion = Work(CONVERT, 30.0, "aten::copy_", (IN_HEADS, IN_HEADS), (F32, BF16))
    for beside in (other, conversion):
        inside = GRADIENTS[4:7]
        found = finding(UNFUSED_ATTENTION, facts(GRADIENTS[1], beside, *inside, beside, GRADIENTS[7]))
        assert found.evidence_us_per_step == sum(work.us for work in inside)


def test_the_math_path_counts_with_its_conversions() -> None:
    inside = ("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_attention_math")
    convert = Work(CONVERT, 26.0, "aten::copy_", (QUERIES, QUERIES), (F32, BF16))
    works = [Work(each.name, each.us, each.op, each.dims, each.types) for each in (convert, *ATTENTION, convert)]
    one_call = [Work(each.name, each.us, each.op, each.dims, each.types, inside) for each in works]
    assert finding(UNFUSED_ATTENTION, facts(*one_call)).title.startswith("PyTorch's math path for attention, 1 time")


@pytest.mark.parametrize(
    "work",
    [
        (Work("flash_fwd_kernel", 95.0, "aten::_flash_attention_forward", (QUERIES,) * 3, (BF16,) * 3),),
        (ATTENTION[0], Work(SOFTMAX, 90.0, "aten::_log_softmax", (SCORES,), (BF16,)), ATTENTION[3]),
        (*ATTENTION[:3], Work(GEMM, 50.0, "aten::mm"), ATTENTION[3]),
        (*ATTENTION[:3], Work(GEMM, 50.0, "aten::bmm", ((4, 32, 32), (4, 32, 32)), (BF16, BF16))),
        (ATTENTION[0], ATTENTION[1], ATTENTION[3]),
    ],
    ids=["fused", "a loss", "a product between", "other factors", "no softmax"],
)
def test_no_attention(work: tuple[Work, ...]) -> None:
    assert result(UNFUSED_ATTENTION, facts(*work)) == []


def test_attention_needs_operators() -> None:
    bare = facts(*(Work(each.name, each.us) for each in ATTENTION))
    assert option(UNFUSED_ATTENTION, bare) == "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"


def test_many_tiny_kernels() -> None:
    found = finding(TINY_KERNELS, facts(*[Work(MUL, 3.0, "aten::mul", gap_us=2.0)] * 300, step_us=2000.0))
    assert found.title == "300 kernels shorter than 10 µs in a step: 1.50 ms with the gaps between them"
    assert found.saving_us_per_step == 300 * 3.0 + 299 * 2.0 - 3.0  # all but one kernel, and the gaps
    assert (len(found.evidence), found.where) == (100, "aten::mul")


@pytest.mark.parametrize(
    "work",
    [
        [Work(MUL, 3.0, "aten::mul")] * 150,
        [Work(MUL, 30.0, "aten::mul")] * 300,
        [Work(MUL, 3.0, "aten::mul", call="cudaGraphLaunch")] * 300,
        [*[Work(MUL, 3.0, "aten::mul")] * 200, *[Work(MUL, 30.0, "aten::mul")] * 250],
        [*[Work(MUL, 1.0, "aten::mul", gap_us=0.0)] * 210, Work(GEMM, 90_000.0, "aten::mm")],
    ],
    ids=["few", "long", "in a graph", "a minority", "little time"],
)
def test_not_many_tiny_kernels(work: list[Work]) -> None:
    assert result(TINY_KERNELS, facts(*work)) == []


def test_a_long_wait_is_no_gap_between_launches() -> None:
    waits = [Work(MUL, 3.0, "aten::mul", gap_us=500.0 if index == 150 else 2.0) for index in range(300)]
    assert finding(TINY_KERNELS, facts(*waits, step_us=2100.0)).saving_us_per_step == 299 * 3.0 + 298 * 2.0


def test_tiny_kernels_of_two_streams_side_by_side_take_their_time_once() -> None:
    """150 kernels of 3 us every 5 us on each stream: the GPU works all of the 750.5 us."""
    work = [Work(MUL, 3.0, "aten::mul", stream=7 + index % 2, gap_us=-0.5) for index in range(300)]
    found = finding(TINY_KERNELS, facts(*work, step_us=800.0))
    assert found.title == "300 kernels shorter than 10 µs in a step: 750 µs with the gaps between them"
    assert found.saving_us_per_step == 750.5


LOOP = ("@Optimizer.step#AdamW.step",)
PARAMETER = ((1024, 1024), (1024, 1024))


def test_an_optimizer_that_loops() -> None:
    update = [Work(MUL, us, "aten::mul_", PARAMETER, (F32, F32), LOOP) for us in (2.0, 4.0)]
    other = [Work(MUL, us, "aten::add_", ((512,), (512,)), (F32, F32), LOOP) for us in (1.0, 1.0)]
    found = finding(OPTIMIZER_LOOP, facts(*[*update, *other] * 20))
    assert (
        found.title == "The optimizer runs 80 kernels, each for one tensor: 239 µs per step with the gaps between them"
    )
    assert found.saving_us_per_step == 239.0 - 20 * (4.0 + 1.0)  # one kernel of each parameter stays
    assert found.where == "aten::mul_ in Optimizer.step#AdamW.step"


@pytest.mark.parametrize(
    "work",
    [
        [Work(FOREACH, 40.0, "aten::_fused_adamw_", inside=LOOP)] * 60,
        [Work(ADD, 4.0, "aten::_foreach_add_", inside=LOOP)] * 60,
        [Work(MUL, 4.0, "aten::mul_", PARAMETER, (F32, F32), LOOP)] * 40,
        [Work(MUL, 4.0, "aten::mul_", PARAMETER, (F32, F32), ("@training",))] * 60,
    ],
    ids=["fused", "foreach without its kernel", "few", "no optimizer"],
)
def test_no_loop(work: list[Work]) -> None:
    assert result(OPTIMIZER_LOOP, facts(*work)) == []


def test_the_loop_needs_operators() -> None:
    assert option(OPTIMIZER_LOOP, facts(Work(MUL, 4.0))) == "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
