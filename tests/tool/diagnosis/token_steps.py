"""Steps written by hand that produce one token."""

from __future__ import annotations

from dataclasses import replace

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.rule import CannotTell, Rule
from kinetoscope.trace.events import Trace
from tests.tool.diagnosis.gpu_work import BF16, COPY, GEMM, Shape, Work, result
from tests.tool.diagnosis.traces import written
from tests.tool.events import Event, kernel, launch, op, step

GEMV, SPLIT = "gemvx::kernel<int, __nv_bfloat16>", "pytorch_flash::flash_fwd_splitkv_kernel<x>"
CAT, WRITE = "CatArrayBatchedCopy", "index_elementwise_kernel"
LONG = "long int"
EMBED = Work("indexSelectSmallIndex", 2.0, "aten::embedding", ((32000, 4096), (1, 1)), (BF16, LONG))
PICK = Work("reduce_kernel<ArgMaxOps<float>>", 2.0, "aten::argmax", ((1, 32000),), (BF16,))


def product(us: float, rows: int = 1, columns: int = 4096, name: str = GEMV) -> Work:
    return Work(name, us, "aten::mm", ((rows, 4096), (4096, columns)), (BF16, BF16))


def attention(us: float, positions: int, *, heads: int = 8, mask: bool = False) -> Work:
    read: Shape = (1, heads, positions, 64)
    masks: list[Shape] = [(1, 1, 1, positions)] if mask else []
    dims = ((1, 32, 1, 64), read, read, *masks)
    return Work(SPLIT, us, "aten::scaled_dot_product_attention", dims, (BF16, BF16, BF16, *["bool"] * mask))


def head(rows: int, us: float) -> Work:
    return product(us, rows, 32000, GEMM)


def appended(us: float, *dims: Shape) -> Work:
    return Work(CAT, us, "aten::cat", dims, ("TensorList",) * len(dims))


def without_shapes(*work: Work) -> list[Work]:
    return [replace(each, dims=None, types=None) for each in work]


def token(*work: Work) -> list[Work]:
    return [EMBED, product(10.0), *work, PICK]


def reason(rule: Rule, of: Facts) -> str:
    unknown = result(rule, of)
    assert isinstance(unknown, CannotTell)
    return unknown.reason


PROMPT = replace(EMBED, dims=((32000, 4096), (1, 100)))
REPEATED: Shape = (1, 8, 4, 512, 64)


def repeated(us: float, *, stride: int = 0) -> list[Event]:
    """A copy of keys or values for four times the heads: its source has this stride where heads repeat."""
    strides = [[4 * 8 * 512 * 64, 4 * 512 * 64, 512 * 64, 64, 1], [8 * 512 * 64, 512 * 64, stride, 64, 1]]
    dims = [list(REPEATED), list(REPEATED)]
    return [
        op("aten::clone", 30.0, 20.0),
        op("aten::copy_", 32.0, 16.0, dims=dims, strides=strides, types=[BF16, BF16]),
        launch(3, 35.0),
        kernel(COPY, 3, 300.0, us),
    ]


def heads_trace(*copies: Event, picks: bool = True) -> Trace:
    """A step with an embedding, a copy, attention of 40 us over the copy, and a pick."""
    shapes = [[1, 32, 1, 64], [1, 32, 512, 64], [1, 32, 512, 64]]
    return written(
        step(1, 0.0, 1000.0),
        *copies,
        op("aten::embedding", 10.0, 10.0, dims=[[32000, 64], [1, 1]]),
        launch(1, 12.0),
        kernel("indexSelect", 1, 290.0, 2.0),
        op("aten::scaled_dot_product_attention", 60.0, 20.0, dims=shapes, types=[BF16] * 3),
        launch(4, 65.0),
        kernel(SPLIT, 4, 500.0, 40.0),
        *([op("aten::argmax", 90.0, 10.0), launch(5, 92.0), kernel("ArgMaxOps", 5, 600.0, 2.0)] if picks else []),
    )
