"""Which ceilings a group has; their subjects are those of the chapter devices."""

from __future__ import annotations

import dataclasses

from snippets.lab.capture.ceilings import matmul_shapes, matmul_work
from snippets.lab.experiment import find


def test_each_shape_of_a_group_once_and_the_large_one_first() -> None:
    (eager,) = find("mlp/eager")
    swept = dataclasses.replace(eager, name="swept", sweep=({"batch": 1, "seq": 1}, {"batch": 64}))
    assert matmul_shapes((eager, swept)) == [
        (8192, 8192, 8192),
        (8192, 768, 3072),
        (8192, 3072, 768),
        (1, 768, 3072),
        (1, 3072, 768),
    ]


def test_the_work_of_a_matmul() -> None:
    work = matmul_work(2, 3, 5)
    assert (work.flops, work.bytes) == (60, 2 * (6 + 15 + 10))
