"""The smallest thing worth profiling: a matrix product and a sum."""

import math

import torch


# --8<-- [start:matmul_add]
def matmul_add(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor,
) -> torch.Tensor:
    """x @ w + b for matrices, or for stacks of them."""
    return torch.add(torch.matmul(x, w), b)


# --8<-- [end:matmul_add]


# --8<-- [start:addmm]
def addmm(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor,
) -> torch.Tensor:
    """The same as one operator; b is a matrix (M, N) or one row of it (N,)."""
    return torch.addmm(b, x, w)


# --8<-- [end:addmm]


# --8<-- [start:checked]
def checked(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor,
) -> torch.Tensor:
    """The same, and a read of one number of the result."""
    y = matmul_add(x, w, b)
    if math.isnan(y[0, 0].item()):
        raise ArithmeticError("the result is not a number")
    return y


# --8<-- [end:checked]
