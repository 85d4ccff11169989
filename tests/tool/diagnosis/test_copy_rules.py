"""Rules about copies and types: each fires on its fault, and not on the mended step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.rules.float64_kernels import RULE as FLOAT64_KERNELS
from kinetoscope.diagnosis.rules.layout_conversions import RULE as LAYOUT_CONVERSIONS
from kinetoscope.diagnosis.rules.needless_copies import RULE as NEEDLESS_COPIES
from kinetoscope.diagnosis.rules.small_copies import RULE as SMALL_COPIES
from kinetoscope.diagnosis.rules.type_round_trips import RULE as TYPE_ROUND_TRIPS
from tests.tool.diagnosis.gpu_work import (
    BF16,
    CONVERT,
    CONVOLUTION,
    COPY,
    F32,
    F64,
    GEMM,
    LAYOUT,
    MUL,
    MUL_F64,
    SGEMM,
    V100,
    Work,
    facts,
    finding,
    option,
    result,
)
from tests.tool.diagnosis.traces import written
from tests.tool.events import kernel, launch, op, step

HIDDEN = (8, 1024, 768)
BETWEEN = Work(GEMM, 100.0, "aten::mm")
DEVICE_TO_DEVICE, HOST_TO_DEVICE = "Memcpy DtoD (Device -> Device)", "Memcpy HtoD (Pinned -> Device)"


def test_layout_conversions() -> None:
    convolution = Work(CONVOLUTION, 60.0, "aten::cudnn_convolution")
    there, back = Work(LAYOUT, 9.0, "aten::cudnn_convolution"), Work("void nhwcToNchwKernel<float>", 7.0)
    found = finding(LAYOUT_CONVERSIONS, facts(there, convolution, back, device=V100, steps=3))
    assert found.title == "2 layout conversions around convolutions: 16.0 µs per step"
    assert (found.saving_us_per_step, found.where) == (16.0, "aten::cudnn_convolution")
    assert result(LAYOUT_CONVERSIONS, facts(convolution, device=V100)) == []


def test_what_only_names_a_layout_is_no_conversion() -> None:
    named = Work("void pool_kernel(nchwToNhwc_params)", 60.0)
    assert result(LAYOUT_CONVERSIONS, facts(named)) == []


def _copy(*inside: str, us: float = 25.0, types: tuple[str, str] = (BF16, BF16)) -> Work:
    return Work(COPY, us, "aten::copy_", (HIDDEN, HIDDEN), types, inside)


def test_needless_copies() -> None:
    clone = Work(DEVICE_TO_DEVICE, 20.0, "aten::copy_", (HIDDEN, HIDDEN), (BF16, BF16), ("aten::clone",), moved_bytes=9)
    view = _copy("@layer", "aten::reshape", "aten::clone")
    found = finding(NEEDLESS_COPIES, facts(view, BETWEEN, clone))
    assert found.title == "2 copies for contiguous or clone: 45.0 µs per step"
    assert (found.saving_us_per_step, found.where) == (45.0, "aten::reshape in layer")


@pytest.mark.parametrize(
    "work",
    [_copy("@layer"), _copy("aten::clone", types=(F32, BF16)), Work(MUL, 25.0, "aten::mul", inside=("aten::clone",))],
    ids=["into a buffer", "another type", "no copy"],
)
def test_no_needless_copies(work: Work) -> None:
    assert result(NEEDLESS_COPIES, facts(work, BETWEEN)) == []


def test_a_copy_of_little_time_is_not_reported() -> None:
    assert result(NEEDLESS_COPIES, facts(_copy("aten::clone", us=0.9), BETWEEN)) == []
    assert finding(NEEDLESS_COPIES, facts(_copy("aten::clone", us=1.1), BETWEEN)).saving_us_per_step == 1.1


def test_copies_need_operators() -> None:
    assert option(NEEDLESS_COPIES, facts(Work(COPY, 25.0))).startswith("activities=")


UP = Work(CONVERT, 20.0, "aten::copy_", (HIDDEN, HIDDEN), (F32, BF16), ("aten::to",))
DOWN = Work(CONVERT, 15.0, "aten::copy_", (HIDDEN, HIDDEN), (BF16, F32), ("aten::to",))
NORM = Work(MUL, 18.0, "aten::mul", (HIDDEN, HIDDEN), (F32, F32))


def test_type_round_trips() -> None:
    found = finding(TYPE_ROUND_TRIPS, facts(UP, NORM, NORM, DOWN))
    assert found.title == "1 tensor converted to another type and back: 35.0 µs per step"
    assert (found.saving_us_per_step, found.where) == (35.0, "aten::to")


@pytest.mark.parametrize(
    "work",
    [
        (UP, BETWEEN, DOWN),
        (UP, NORM),
        (UP, NORM, Work(CONVERT, 15.0, "aten::copy_", ((8, 8), (8, 8)), (BF16, F32))),
        (UP, NORM, Work(CONVERT, 15.0, "aten::copy_", (HIDDEN, HIDDEN), (BF16, F32), ("ToCopyBackward0",))),
        (UP, *[NORM] * 17, DOWN),
        (replace(UP, name=DEVICE_TO_DEVICE, moved_bytes=9), NORM, DOWN),
    ],
    ids=["for a product", "one way", "another shape", "of a gradient", "far apart", "a memcpy of a conversion"],
)
def test_no_round_trip(work: tuple[Work, ...]) -> None:
    assert result(TYPE_ROUND_TRIPS, facts(*work)) == []


def test_round_trips_need_shapes() -> None:
    bare = Work(CONVERT, 20.0, "aten::copy_")
    assert option(TYPE_ROUND_TRIPS, facts(bare, bare)) == "record_shapes=True"


def _uploads(count: int, kibibytes: int = 1, *, name: str = HOST_TO_DEVICE) -> list[Work]:
    return [Work(name, 2.0, gap_us=3.0, moved_bytes=1024 * kibibytes, call="cudaMemcpyAsync")] * count


def test_small_copies() -> None:
    found = finding(SMALL_COPIES, facts(*_uploads(30), step_us=150.0))
    assert found.title == "30 small copies, one after another: 147 µs per step with the gaps between them"
    assert found.saving_us_per_step == 29 * 2.0 + 29 * 3.0
    assert finding(SMALL_COPIES, facts(*_uploads(30, name=DEVICE_TO_DEVICE), step_us=150.0)).saving_us_per_step == 145.0


@pytest.mark.parametrize(
    "work",
    [
        _uploads(10),
        _uploads(30, 65),
        _uploads(30, name="Memcpy DtoH (Device -> Pageable)"),
        [*_uploads(12), *_uploads(12, name=DEVICE_TO_DEVICE)],
        [each for copy in _uploads(30) for each in (copy, BETWEEN)],
    ],
    ids=["few", "large", "to the host", "few of each direction", "apart"],
)
def test_no_small_copies(work: list[Work]) -> None:
    assert result(SMALL_COPIES, facts(*work)) == []


DOUBLE = Work(MUL_F64, 40.0, "aten::mul", (HIDDEN, HIDDEN), (F64, F64), ("@loss",))


def test_float64_by_accident() -> None:
    found = finding(FLOAT64_KERNELS, facts(BETWEEN, DOUBLE))
    assert (found.title, found.where) == ("1 kernel in float64: 40.0 µs per step", "aten::mul in loss")
    half_the_bytes = 3 * 8 * 1024 * 768 * 4
    assert found.saving_us_per_step == pytest.approx(40.0 - half_the_bytes / 4.8e6, abs=0.001)
    assert finding(FLOAT64_KERNELS, facts(BETWEEN, Work(MUL_F64, 40.0))).saving_us_per_step == 40.0


UNTYPED = "triton_poi_fused_mul_0"


@pytest.mark.parametrize(
    "work",
    [
        Work("volta_dgemm_64x64_nt", 40.0, "CompiledFunction", (HIDDEN, HIDDEN), (F32, F32)),
        Work("void scale<double>(double*, int)", 40.0, "my::scale", (HIDDEN,), (F32,)),
        Work("magma_dgemm_kernel", 40.0),
        Work(UNTYPED, 40.0, "my::scale", (HIDDEN, HIDDEN), (F64, F64)),
        Work(UNTYPED, 40.0, "aten::index_select", (HIDDEN, (), (8,)), (F64, "Scalar", "long int")),
    ],
    ids=["BLAS", "template", "letters", "operator", "indices"],
)
def test_a_kernel_in_float64_by_its_name_or_by_its_operator(work: Work) -> None:
    assert finding(FLOAT64_KERNELS, facts(BETWEEN, work)).evidence_us_per_step == 40.0


@pytest.mark.parametrize(
    "work",
    [
        Work(MUL, 40.0, "aten::mul", (HIDDEN, ()), (F32, F64)),
        Work(SGEMM, 40.0, "CompiledFunction", (HIDDEN, HIDDEN), (F64, F64)),
        Work("void scale<float>(float*, double)", 40.0, "my::scale", (HIDDEN,), (F64,)),
        Work(UNTYPED, 40.0, "my::scale", (HIDDEN, HIDDEN), (F32, F64)),
    ],
    ids=["number", "float32 by its name", "template", "mixed inputs"],
)
def test_no_kernel_in_float64(work: Work) -> None:
    assert result(FLOAT64_KERNELS, facts(BETWEEN, work)) == []


def test_float64_on_purpose_is_no_accident() -> None:
    assert result(FLOAT64_KERNELS, facts(DOUBLE, Work(MUL, 1.0))) == []


@pytest.mark.parametrize("inside", [False, True])
def test_an_operator_of_several_kernels_does_not_tell_their_types(inside: bool) -> None:
    """Two kernels of a function, or one of the function and one of an operator in it."""
    inner = [op("aten::relu", 20.0, 10.0)] if inside else []
    trace = written(
        step(1, 0.0, 100.0),
        op("CompiledFunction", 0.0, 50.0, dims=[[8, 8]], types=["double"]),
        *inner,
        *(launch(number, 10.0 * number + 12.0) for number in (0, 1)),
        *(kernel(UNTYPED, number, 100.0 * number + 60.0, 40.0) for number in (0, 1)),
        kernel(GEMM, None, 300.0, 40.0),
    )
    assert result(FLOAT64_KERNELS, Facts(trace)) == []
