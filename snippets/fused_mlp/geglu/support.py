"""Which work the kernels support, and plain PyTorch for the rest."""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

ACTIVATIONS = ("none", "gelu_tanh", "gelu", "silu", "relu")
P = ParamSpec("P")
R = TypeVar("R")
OLDEST = 8, 0
"""The first compute capability with asynchronous copies to shared memory and
bfloat16 products."""


def act(z: Tensor, activation: str) -> Tensor:
    """The activation in plain PyTorch; rough activations are computed in their
    exact forms."""
    activation = activation.removeprefix("rough_")
    if activation == "gelu_tanh":
        return F.gelu(z, approximate="tanh")
    return z if activation == "none" else getattr(F, activation)(z)


def act_backward(d_out: Tensor, z: Tensor, activation: str) -> Tensor:
    """The gradient of `act` for z."""
    aten = torch.ops.aten
    if activation.startswith("gelu"):
        form = "tanh" if activation == "gelu_tanh" else "none"
        return aten.gelu_backward(d_out, z, approximate=form)
    if activation == "silu":
        return aten.silu_backward(d_out, z)
    return d_out * (z > 0) if activation == "relu" else d_out.clone()


def plain_gate_up(
    x: Tensor, gate: Tensor, up: Tensor, activation: str
) -> Tensor:
    return act(x @ gate.t(), activation) * (x @ up.t())


def gated_reference(
    x: Tensor, gate: Tensor, up: Tensor, activation: str = "gelu_tanh"
) -> Tensor:
    """activation(x @ gate.T) * (x @ up.T) in float64. x is (..., dim), gate and
    up are (hidden, dim)."""
    x, gate, up = (tensor.double() for tensor in (x, gate, up))
    return plain_gate_up(x, gate, up, activation)


def cast(first: Tensor, *others: Tensor | None) -> tuple:
    """The tensors in autocast's type, if it is enabled."""
    kind = first.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return first, *others
    dtype = torch.get_autocast_dtype(kind)
    # float64 stays what it is, as it does for PyTorch's own operators
    return tuple(
        one if one is None or one.dtype is torch.float64 else one.to(dtype)
        for one in (first, *others)
    )


def without_autocast(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward pass in the types of its forward, even if autocast is enabled
    around it."""

    def run(ctx, d_out: Tensor | None, *others: Tensor) -> Any:
        kind = "meta" if d_out is None else d_out.device.type
        if kind == "meta" or not torch.is_autocast_enabled(kind):
            return backward(ctx, d_out, *others)
        with torch.autocast(kind, enabled=False):
            return backward(ctx, d_out, *others)

    return run


def is_transformed() -> bool:
    """Whether `torch.func` or forward-mode differentiation is active: operators
    with a gradient in Python have no rules for them."""
    return (
        torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def is_batched(tensor: Tensor) -> bool:
    """Whether the tensor is a batch inside `torch.func.vmap` or
    `torch.autograd.grad(..., is_grads_batched=True)`."""
    return bool(
        torch._C._functorch.is_batchedtensor(tensor)
        or torch._C._functorch.is_legacy_batchedtensor(tensor)
    )


def takes_tensors(function: Callable[P, R]) -> Callable[P, R]:
    """Report a non-tensor argument as `TypeError`, by its name. The types are
    checked only after the function has failed."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (AttributeError, RuntimeError, TypeError):
            signature = inspect.signature(function)
            given = signature.bind(*args, **kwargs).arguments
            for name, one in given.items():
                declared = signature.parameters[name]
                if (
                    "Tensor" in declared.annotation
                    and not isinstance(one, Tensor)
                    and one is not declared.default
                ):
                    raise TypeError(
                        f"{function.__name__} takes {name} as a torch.Tensor, "
                        f"not {type(one).__name__}"
                    ) from None
            raise

    return run


def fit(
    x: Tensor,
    *weights: Tensor,
    bias: Tensor | None = None,
    down: Tensor | None = None,
) -> None:
    """Raise `ValueError` if x (..., dim), weights (outputs, dim), bias
    (outputs,) and down (dim, outputs) do not fit: the kernels would silently
    fill in zeros."""
    shape = weights[0].shape
    if (
        len(shape) != 2
        or any(weight.shape != shape for weight in weights)
        or not x.ndim
        or x.shape[-1] != shape[1]
        or (bias is not None and bias.shape != shape[:1])
        or (down is not None and down.shape != shape[::-1])
    ):
        shapes = [tuple(weight.shape) for weight in weights]
        given = f"x {tuple(x.shape)}, weights {shapes}"
        expected = "x (..., dim), weights (outputs, dim)"
        if bias is not None:
            given += f", bias {tuple(bias.shape)}"
            expected += ", bias (outputs,)"
        if down is not None:
            given += f", down {tuple(down.shape)}"
            expected += ", down (dim, outputs)"
        raise ValueError(f"sizes that do not fit: {given}; expected {expected}")


def alike(*tensors: Tensor) -> None:
    """Raise `ValueError` for tensors of different shapes, since PyTorch would
    broadcast them."""
    if len({one.shape for one in tensors}) > 1:
        shapes = [tuple(one.shape) for one in tensors]
        raise ValueError(f"sizes that are not the same: {shapes}")


def known(activation: str) -> None:
    """Raise `ValueError` for an unknown activation."""
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"no activation {activation!r}; there are {', '.join(ACTIVATIONS)}"
        )


# --8<-- [start:unsupported]
def unsupported(x: Tensor, *weights: Tensor, is_pointwise: bool = False) -> str:
    """Why the kernels cannot work on these tensors; empty if they can. Weights
    are (outputs, inputs); with `is_pointwise`, all shapes are equal."""
    if any(weight.device != x.device for weight in weights):
        return "its tensors are on different devices"
    return unsupported_work(
        x.device,
        (x.dtype, *[weight.dtype for weight in weights]),
        None
        if is_pointwise
        else tuple([size for weight in weights for size in weight.shape]),
    )


@torch.compiler.assume_constant_result
def unsupported_work(
    device: torch.device,
    dtypes: tuple[torch.dtype, ...],
    widths: tuple[int, ...] | None,
) -> str:
    """Why the kernels cannot do work of these kinds; empty if they can. Work
    without `widths` has no product."""
    if reason := unsupported_device(device):
        return reason
    known_dtypes = {torch.bfloat16, torch.float16}
    if widths is None:
        known_dtypes.add(torch.float32)
    if len(set(dtypes)) > 1 or dtypes[0] not in known_dtypes:
        given = ", ".join(sorted(map(str, set(dtypes))))
        return f"they take one 16-bit type throughout, not {given}"
    widths = widths or ()
    if any(width % 8 for width in widths):
        given = ", ".join(map(str, sorted(set(widths))))
        return (
            "they copy rows of whole 16 bytes, and one of the widths "
            f"{given} is no multiple of 8 elements"
        )
    return ""


@functools.cache
def unsupported_device(device: torch.device) -> str:
    """Why no kernel runs on this device; empty if some do."""
    if device.type != "cuda" or torch.version.hip:
        return "they need an NVIDIA GPU"
    if torch.cuda.get_device_capability(device) < OLDEST:
        oldest, name = (
            "{}.{}".format(*OLDEST),
            torch.cuda.get_device_name(device),
        )
        return f"they need compute capability {oldest}, and this is {name}"
    try:
        from . import portable  # noqa: F401
    except ImportError as error:
        return f"they need Triton ({error})"
    import triton

    if not hasattr(triton, "knobs"):
        return f"they need Triton 3.4, and this is {triton.__version__}"
    return ""


# --8<-- [end:unsupported]


SAID: set[str] = set()
INSIDE = tuple(
    os.path.join(os.path.dirname(each), "")
    for each in (__file__, torch.__file__)
)
"""The folders of this package and of PyTorch."""


@torch.compiler.assume_constant_result
def say_once(reason: str) -> None:
    """Warn the package's caller, once, that plain PyTorch does the work, and
    why."""
    if reason in SAID:
        return
    SAID.add(reason)
    level, frame = 1, inspect.currentframe()
    # a thread of autograd has only frames inside the folders
    while frame and frame.f_code.co_filename.startswith(INSIDE):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"this call runs as plain PyTorch, without the fused kernels: {reason}",
        stacklevel=level,
    )
