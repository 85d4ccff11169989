"""Which ceilings a point of a group has; their subjects are those of the chapter devices."""

from __future__ import annotations

import dataclasses

from snippets.lab.capture.ceilings import ceiling_works, matmul_work
from snippets.lab.experiment import Work, find

LARGE = "matmul 8192x8192x8192"


def test_the_ceilings_of_a_point_are_those_of_its_shapes() -> None:
    (eager,) = find("mlp/eager")
    swept = dataclasses.replace(eager, name="swept", sweep=({"batch": 1, "seq": 1}, {"batch": 64}))
    assert list(ceiling_works((swept,), 0)) == ["copy", LARGE, "matmul 1x768x3072", "matmul 1x3072x768"]
    assert list(ceiling_works((eager, swept), 0)) == [
        "copy",
        LARGE,
        "matmul 8192x768x3072",
        "matmul 8192x3072x768",
        "matmul 1x768x3072",
        "matmul 1x3072x768",
    ]


def test_a_ceiling_has_the_layout_and_the_type_of_its_step() -> None:
    def work(size: int) -> Work:
        return Work(bytes=1, matmuls=((size, size, size),), layout="x @ w", dtype="float32")

    (eager,) = find("matmul_add/eager_64")
    works = ceiling_works((dataclasses.replace(eager, work=work),), 0)
    assert list(works) == ["copy", LARGE, "matmul 64x64x64, x @ w, float32"]
    bare = works["matmul 64x64x64, x @ w, float32"]
    assert (bare.bytes, bare.flops, bare.layout, bare.dtype) == (4 * 3 * 64 * 64, 2 * 64**3, "x @ w", "float32")
    assert (works[LARGE].layout, works[LARGE].dtype) == ("x @ weight.t()", "bfloat16")


def test_the_work_of_a_matmul() -> None:
    work = matmul_work(2, 3, 5, Work(bytes=0))
    assert (work.flops, work.bytes) == (60, 2 * (6 + 15 + 10))
