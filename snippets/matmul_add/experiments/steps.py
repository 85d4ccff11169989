"""Products with a bias: eager and compiled, stacked, and with a row of bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snippets.lab.experiment import Subject, Work


def product_work(
    size: int, stack: int = 1, weights: int = 1, bias_rows: int = 0
) -> Work:
    """x, w, b and the result once each in bf16; b has `bias_rows` rows, or all
    rows if 0."""
    matrix = 2 * size * size
    bias = 2 * size * bias_rows if bias_rows else stack * matrix
    return Work(
        bytes=(2 * stack + weights) * matrix + bias,
        matmuls=((stack * size, size, size),),
        layout="x @ w",
    )


Shape = tuple[int, ...]


def _subject(
    step: Callable[..., Any], device: str, x: Shape, w: Shape, b: Shape
) -> Subject:
    import torch

    def inputs() -> tuple[torch.Tensor, ...]:
        return tuple(
            torch.randn(*shape, dtype=torch.bfloat16, device=device)
            for shape in (x, w, b)
        )

    return Subject(
        step=step,
        inputs=inputs,
        reference=lambda x, w, b: x.double() @ w.double() + b.double(),
    )


def eager(device: str, size: int) -> Subject:
    from snippets.matmul_add.model import matmul_add

    return _subject(matmul_add, device, *[(size, size)] * 3)


def compiled(device: str, size: int) -> Subject:
    import torch

    from snippets.matmul_add.model import matmul_add

    return _subject(torch.compile(matmul_add), device, *[(size, size)] * 3)


def item(device: str, size: int) -> Subject:
    """The step followed by a read of its result, so the CPU waits."""
    from snippets.matmul_add.model import checked

    return _subject(checked, device, *[(size, size)] * 3)


def stacked(device: str, size: int, stack: int) -> Subject:
    """A leading batch axis on all three tensors."""
    from snippets.matmul_add.model import matmul_add

    return _subject(matmul_add, device, *[(stack, size, size)] * 3)


def stacked_input(device: str, size: int, stack: int) -> Subject:
    """A leading batch axis on x and b; one w for all."""
    from snippets.matmul_add.model import matmul_add

    return _subject(
        matmul_add,
        device,
        (stack, size, size),
        (size, size),
        (stack, size, size),
    )


def stacked_work(size: int, stack: int) -> Work:
    """A product for each of `stack` matrices."""
    return product_work(size, stack, stack)


def stacked_input_work(size: int, stack: int) -> Work:
    """A product for each of `stack` matrices, all with one w."""
    return product_work(size, stack)


def matrix_bias(device: str, size: int) -> Subject:
    """`addmm` with b of shape (size, size)."""
    from snippets.matmul_add.model import addmm

    return _subject(addmm, device, *[(size, size)] * 3)


def row_bias(device: str, size: int) -> Subject:
    """`addmm` with b of shape (size,), as in `nn.Linear`."""
    from snippets.matmul_add.model import addmm

    return _subject(addmm, device, (size, size), (size, size), (size,))


def row_bias_work(size: int) -> Work:
    """One row of bias."""
    return product_work(size, bias_rows=1)
