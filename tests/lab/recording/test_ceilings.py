"""Names of ceilings: shape, layout and type."""

from __future__ import annotations

import pytest

from snippets.lab.recording.ceilings import COPY, LARGE_MATMUL, layout_of, matmul_name, with_layout


@pytest.mark.parametrize(
    ("layout", "dtype", "name", "whole"),
    [
        ("x @ weight.t()", "bfloat16", "matmul 8x16x4", "matmul 8x16x4, x @ weight.t()"),
        ("x @ w", "bfloat16", "matmul 8x16x4, x @ w", "matmul 8x16x4, x @ w"),
        ("x @ weight.t()", "float16", "matmul 8x16x4, float16", "matmul 8x16x4, x @ weight.t(), float16"),
        ("x @ w", "float16", "matmul 8x16x4, x @ w, float16", "matmul 8x16x4, x @ w, float16"),
    ],
)
def test_the_layout_of_a_name(layout: str, dtype: str, name: str, whole: str) -> None:
    assert matmul_name(8, 16, 4, layout, dtype) == name
    assert (layout_of(name), with_layout(name)) == (layout, whole)


def test_names_that_always_exist() -> None:
    assert with_layout(COPY) == "copy"
    assert with_layout(LARGE_MATMUL) == "matmul 8192x8192x8192, x @ weight.t()"
