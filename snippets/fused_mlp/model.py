"""A gated MLP whose two pre-activations never reach device memory: operators,
their gradients, and a module."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
import triton
from torch import Tensor, nn
from torch.nn import functional as F
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import (
    TensorDescriptor as SwizzledDescriptor,
)
from triton.tools.tensor_descriptor import TensorDescriptor

from .hopper_kernels import gate_up_kernel, linear_kernel, pingpong_kernel
from .kernels import (
    ACTIVATIONS,
    gated_activation_backward_kernel,
    gated_activation_kernel,
)

Result = TypeVar("Result")

OPERATORS = __name__.split(".")[-2]
"""Namespace of the operators, from the package: two copies in one process would
take each other's place."""

BLOCK_K = 64
"""Elements of K in a slot: 128 bytes, the widest row that shared memory
swizzles."""
FEW_ROWS = 128
POINTWISE_BLOCK, POINTWISE_WARPS = 2048, 8


class Tiles(NamedTuple):
    """How a kernel cuts its result: (block_m, block_n) a tile, `slots` blocks
    in flight, `group` tiles of a column."""

    block_m: int
    block_n: int
    slots: int
    group: int = 8
    warps: int = 4
    """Of a whole program; the ping-pong kernel has its own roles and ignores
    it."""
    lead: int = 2
    """Blocks before the end of a tile at which the other consumer of the
    ping-pong kernel may begin, 1 at least."""
    dependent: bool = True
    """Whether the ping-pong kernel is launched before the kernel before it has
    ended."""

    @property
    def name(self) -> str:
        """Short, and different for any two of one list below."""
        return f"{self.block_m}x{self.block_n}, {self.slots} slots, group {self.group}"


PINGPONG_GATED = (
    Tiles(128, 64, 6),
    Tiles(128, 64, 6, 1),
    Tiles(64, 64, 8),
    Tiles(64, 32, 10),
)
PINGPONG = (
    Tiles(128, 128, 5),
    Tiles(128, 128, 5, 1),
    Tiles(64, 128, 6),
    Tiles(64, 64, 10),
    Tiles(64, 32, 12),
)
STACKED = (
    Tiles(128, 128, 3, 8, 8),
    Tiles(128, 128, 4, 8, 8),
    Tiles(128, 64, 3, 8, 4),
    Tiles(64, 64, 4, 8, 4),
)
SMALL = (
    Tiles(64, 32, 8),
    Tiles(64, 32, 4),
    Tiles(64, 64, 6),
    Tiles(64, 64, 4),
    Tiles(64, 16, 8),
)


def act(z: Tensor, activation: str) -> Tensor:
    """The activation in plain PyTorch; the rough ones are meant to be the
    same."""
    activation = activation.removeprefix("rough_")
    if activation == "gelu_tanh":
        return F.gelu(z, approximate="tanh")
    return z if activation == "none" else getattr(F, activation)(z)


def gated_reference(
    x: Tensor, gate: Tensor, up: Tensor, activation: str = "gelu_tanh"
) -> Tensor:
    """activation(x @ gate.T) * (x @ up.T) in float64. x is (..., dim), gate and
    up are (hidden, dim)."""
    x, gate, up = (tensor.double() for tensor in (x, gate, up))
    return act(x @ gate.t(), activation) * (x @ up.t())


def interpreted() -> bool:
    """Whether Triton runs kernels on the CPU, by `TRITON_INTERPRET=1`."""
    return bool(triton.knobs.runtime.interpret)


def multiprocessors(tensor: Tensor) -> int:
    """Of the tensor's device; a few where kernels are interpreted."""
    return (
        torch.cuda.get_device_properties(tensor.device).multi_processor_count
        if tensor.is_cuda
        else 4
    )


@functools.cache
def launches_dependents(device: torch.device) -> bool:
    """Whether a kernel may be launched before the one before it has ended: from
    Hopper on."""
    return (
        device.type == "cuda"
        and torch.cuda.get_device_capability(device)[0] >= 9
    )


# --8<-- [start:choice]
CHOICES: dict[tuple, dict[str, float]] = {}
"""What was tuned so far: kind of work and its size -> candidate -> median
microseconds, the fastest first."""


def fastest(
    key: tuple, candidates: Mapping[str, Callable[[], Result]]
) -> Callable[[], Result]:
    """The candidate that was the fastest when this kind of work was first met;
    the first one inside a CUDA graph."""
    if key not in CHOICES:
        if torch.cuda.is_current_stream_capturing():
            return next(iter(candidates.values()))
        times_us = {name: _median_us(run) for name, run in candidates.items()}
        CHOICES[key] = dict(sorted(times_us.items(), key=lambda item: item[1]))
    return candidates[next(iter(CHOICES[key]))]


def _median_us(run: Callable[[], Result]) -> float:
    try:
        # Ten graphs of 20 ms: no launches in them, and long enough for the
        # clock to fall to where load keeps it. After graphs of 5 ms an H200
        # still runs faster, and whatever was tried first seemed the best.
        return 1e3 * triton.testing.do_bench_cudagraph(
            run, rep=20, return_mode="median"
        )
    # too much shared memory for this device
    except triton.runtime.errors.OutOfResources:
        return math.inf


# --8<-- [end:choice]


def bucket(rows: int) -> int:
    """Tokens are tuned for by the power of two above them: a new batch size
    seldom costs anything."""
    return triton.next_power_of_2(rows)


@torch.library.custom_op(f"{OPERATORS}::gated_activation", mutates_args=())
def gated_activation(
    gate: Tensor, up: Tensor, activation: str = "gelu_tanh"
) -> Tensor:
    """activation(gate) * up in one pass; two tensors of one shape and dtype, on
    a GPU."""
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    count = out.numel()
    if count:
        gated_activation_kernel[(triton.cdiv(count, POINTWISE_BLOCK),)](
            gate,
            up,
            out,
            count,
            POINTWISE_BLOCK,
            ACTIVATIONS[activation],
            interpreted(),
            num_warps=POINTWISE_WARPS,
        )
    return out


@gated_activation.register_fake
def _(gate: Tensor, up: Tensor, activation: str = "gelu_tanh") -> Tensor:
    return gate.new_empty(gate.shape)


@torch.library.custom_op(
    f"{OPERATORS}::gated_activation_backward", mutates_args=()
)
def gated_activation_backward(
    d_out: Tensor, gate: Tensor, up: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    """Gradients of `gated_activation` for gate and up."""
    gate, up = gate.contiguous(), up.contiguous()
    return pointwise_gradients(
        d_out,
        gate,
        up,
        torch.empty_like(gate),
        torch.empty_like(up),
        activation,
    )


def pointwise_gradients(
    d_out: Tensor,
    gate: Tensor,
    up: Tensor,
    d_gate: Tensor,
    d_up: Tensor,
    activation: str,
) -> tuple[Tensor, Tensor]:
    """Writes the gradients of activation(gate) * up to d_gate and d_up, which
    may be gate and up. All contiguous."""
    count = gate.numel()
    if count:
        gated_activation_backward_kernel[
            (triton.cdiv(count, POINTWISE_BLOCK),)
        ](
            d_out.contiguous(), gate, up, d_gate, d_up, count, POINTWISE_BLOCK,
            ACTIVATIONS[activation], interpreted(), num_warps=POINTWISE_WARPS,
        )  # fmt: skip
    return d_gate, d_up


@gated_activation_backward.register_fake
def _(
    d_out: Tensor, gate: Tensor, up: Tensor, activation: str
) -> tuple[Tensor, Tensor]:
    return gate.new_empty(gate.shape), up.new_empty(up.shape)


def _keep_factors(ctx, inputs, output) -> None:
    gate, up, ctx.activation = inputs
    ctx.save_for_backward(gate, up)


def _of_factors(ctx, d_out: Tensor) -> tuple[Tensor | None, ...]:
    return *gated_activation_backward(
        d_out, *ctx.saved_tensors, ctx.activation
    ), None


gated_activation.register_autograd(_of_factors, setup_context=_keep_factors)


# --8<-- [start:small]
def small_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str,
    tiles: Tiles,
) -> Tensor:
    """activation(x @ weight.T + bias), a program for each tile. x is (rows,
    dim), weight (outputs, dim)."""
    (rows, dim), outputs = x.shape, weight.shape[0]
    out = x.new_empty(rows, outputs)
    block_m, block_n, slots, group, warps, *_ = tiles
    dependent = launches_dependents(x.device)
    linear_kernel[
        (triton.cdiv(rows, block_m) * triton.cdiv(outputs, block_n),)
    ](
        TensorDescriptor.from_tensor(x, [block_m, BLOCK_K]),
        TensorDescriptor.from_tensor(weight, [block_n, BLOCK_K]), bias,
        TensorDescriptor.from_tensor(out, [block_m, block_n]), rows, outputs,
        dim, block_m, block_n, BLOCK_K, group, bias is not None,
        ACTIVATIONS[activation], interpreted(), dependent, num_warps=warps,
        num_stages=slots, launch_pdl=dependent,
    )  # fmt: skip
    return out


# --8<-- [end:small]


def stacked_gate_up(
    x: Tensor, weights: Tensor, activation: str, tiles: Tiles
) -> Tensor:
    """activation(x @ gate.T) * (x @ up.T). x is (rows, dim), weights (2,
    hidden, dim): gate's, then up's."""
    (rows, dim), hidden = x.shape, weights.shape[1]
    out = x.new_empty(rows, hidden)
    block_m, block_n, slots, group, warps, *_ = tiles
    # a program of four warps leaves room for a second
    resident = multiprocessors(x) * (8 // warps)
    gate_up_kernel[
        (min(
            resident, triton.cdiv(rows, block_m) * triton.cdiv(hidden, block_n)
        ),)
    ](
        TensorDescriptor.from_tensor(x, [block_m, BLOCK_K]),
        TensorDescriptor.from_tensor(weights, [2, block_n, BLOCK_K]),
        TensorDescriptor.from_tensor(out, [block_m, block_n]), rows, hidden,
        dim, block_m, block_n, BLOCK_K, group, ACTIVATIONS[activation],
        interpreted(), num_warps=warps, num_stages=slots,
    )  # fmt: skip
    return out


@functools.cache
def swizzle(dtype: torch.dtype, *block: int) -> gl.NVMMASharedLayout:
    """The layout of a block in shared memory from which the tensor cores read
    without bank conflicts."""
    return gl.NVMMASharedLayout.get_default_for(
        list(block), getattr(gl, str(dtype).removeprefix("torch."))
    )


def describe(tensor: Tensor, *block: int) -> SwizzledDescriptor:
    """How the copy engine finds a block of a matrix, and where it puts it."""
    return SwizzledDescriptor.from_tensor(
        tensor, list(block), swizzle(tensor.dtype, *block)
    )


def pingpong(
    x: Tensor,
    weight: Tensor,
    up: Tensor | None,
    bias: Tensor | None,
    activation: str,
    tiles: Tiles,
    save: bool = False,
) -> tuple[Tensor, ...]:
    """activation(x @ weight.T) * (x @ up.T), or activation(x @ weight.T + bias)
    without `up`.

    x is (rows, dim), weight and up are (outputs, dim), with rows 16 bytes apart
    or a multiple of it. With `save`, the two pre-activations come back as well.
    """
    (rows, dim), outputs = x.shape, weight.shape[0]
    out, *saved = (x.new_empty(rows, outputs) for _ in range(3 if save else 1))
    block_m, block_n, slots, group, _, lead, dependent = tiles
    results = [
        describe(tensor, block_m, block_n) for tensor in (out, *saved)
    ] + [None] * (0 if save else 2)
    pingpong_kernel[
        (min(
            multiprocessors(x),
            triton.cdiv(rows, block_m) * triton.cdiv(outputs, block_n),
        ),)
    ](
        describe(x, block_m, BLOCK_K), describe(weight, block_n, BLOCK_K),
        None if up is None else describe(up, block_n, BLOCK_K), bias, *results,
        rows, outputs, dim, block_m, block_n, BLOCK_K, slots, group, lead,
        up is not None, bias is not None, save, ACTIVATIONS[activation],
        num_warps=4, launch_pdl=dependent,
    )  # fmt: skip
    return out, *saved


def matrix(tensor: Tensor) -> Tensor:
    """The tensor as rows that the copy engine can fetch: contiguous, from an
    address that 16 divides."""
    rows = tensor.reshape(-1, tensor.shape[-1]).contiguous()
    return rows if rows.data_ptr() % 16 == 0 else rows.clone()


def fit(x: Tensor, *weights: Tensor, bias: Tensor | None = None) -> None:
    """Raise `ValueError` when x (..., dim) and weights (outputs, dim) do not
    fit: zeros would be filled in silently."""
    shapes = {tuple(weight.shape) for weight in weights}
    if (
        len(shapes) > 1
        or x.shape[-1] != weights[0].shape[1]
        or (bias is not None and bias.shape != shapes.pop()[:1])
    ):
        raise ValueError(
            f"sizes that do not fit: x {tuple(x.shape)}, weights "
            f"{[tuple(one.shape) for one in weights]}"
        )


@torch.library.custom_op(f"{OPERATORS}::gate_up", mutates_args=())
def gate_up(x: Tensor, gate: Tensor, up: Tensor, activation: str) -> Tensor:
    """activation(x @ gate.T) * (x @ up.T), both products kept in registers. x
    is (..., dim), gate is (hidden, dim)."""
    fit(x, gate, up)
    rows = matrix(x)
    if not rows.numel():
        return x.new_zeros(*x.shape[:-1], gate.shape[0])
    return tuned_gate_up(rows, matrix(gate), matrix(up), activation).view(
        *x.shape[:-1], gate.shape[0]
    )


def tuned_gate_up(
    rows: Tensor, gate: Tensor, up: Tensor, activation: str
) -> Tensor:
    """The fastest way to do it for this many rows."""
    candidates: dict[str, Callable[[], Tensor]] = {
        f"ping-pong {tiles.name}": functools.partial(
            _first_of, pingpong, rows, gate, up, None, activation, tiles
        )
        for tiles in PINGPONG_GATED
    }
    # cuBLAS splits a long sum among multiprocessors that would be idle
    if rows.shape[0] <= FEW_ROWS:
        candidates["two products"] = lambda: gated_activation(
            rows @ gate.t(), rows @ up.t(), activation
        )
    key = (
        "gate_up",
        bucket(rows.shape[0]),
        *gate.shape,
        rows.dtype,
        rows.device.index,
    )
    return fastest(key, candidates)()


@gate_up.register_fake
def _(x: Tensor, gate: Tensor, up: Tensor, activation: str) -> Tensor:
    return x.new_empty(*x.shape[:-1], gate.shape[0])


# --8<-- [start:save]
@torch.library.custom_op(f"{OPERATORS}::gate_up_saved", mutates_args=())
def gate_up_saved(
    x: Tensor, gate: Tensor, up: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    """As `gate_up`, and both pre-activations, written to memory for the
    backward pass."""
    fit(x, gate, up)
    rows, gate, up = matrix(x), matrix(gate), matrix(up)
    shape = (*x.shape[:-1], gate.shape[0])
    if not rows.numel():
        return x.new_zeros(shape), x.new_zeros(shape), x.new_zeros(shape)
    candidates = {
        f"ping-pong {tiles.name}": functools.partial(
            pingpong, rows, gate, up, None, activation, tiles, save=True
        )
        for tiles in PINGPONG_GATED
    }
    key = (
        "gate_up_saved",
        bucket(rows.shape[0]),
        *gate.shape,
        x.dtype,
        x.device.index,
    )
    out, *saved = fastest(key, candidates)()
    return out.view(shape), saved[0].view(shape), saved[1].view(shape)


@gate_up_saved.register_fake
def _(
    x: Tensor, gate: Tensor, up: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    shape = (*x.shape[:-1], gate.shape[0])
    return x.new_empty(shape), x.new_empty(shape), x.new_empty(shape)


# --8<-- [end:save]


# --8<-- [start:backward]
@torch.library.custom_op(f"{OPERATORS}::gate_up_backward", mutates_args=())
def gate_up_backward(
    d_out: Tensor,
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    g: Tensor | None,
    u: Tensor | None,
    activation: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `gate_up` for x, gate and up. The pre-activations g and u
    are computed again when not given."""
    rows = x.reshape(-1, x.shape[-1])
    if g is None or u is None:
        g, u = rows @ gate.t(), rows @ up.t()
        # nobody else holds them
        d_gate, d_up = pointwise_gradients(d_out, g, u, g, u, activation)
    else:
        g, u = (
            saved.reshape(-1, gate.shape[0]).contiguous() for saved in (g, u)
        )
        d_gate, d_up = pointwise_gradients(
            d_out, g, u, torch.empty_like(g), torch.empty_like(u), activation
        )
    return (
        torch.addmm(d_gate @ gate, d_up, up).view(x.shape),
        d_gate.t() @ rows,
        d_up.t() @ rows,
    )


@gate_up_backward.register_fake
def _(
    d_out: Tensor,
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    g: Tensor | None,
    u: Tensor | None,
    activation: str,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        x.new_empty(x.shape),
        gate.new_empty(gate.shape),
        up.new_empty(up.shape),
    )


# --8<-- [end:backward]


def _keep_inputs(ctx, inputs, output) -> None:
    x, gate, up, ctx.activation = inputs
    ctx.save_for_backward(x, gate, up)


def _keep_all(ctx, inputs, output) -> None:
    x, gate, up, ctx.activation = inputs
    ctx.save_for_backward(x, gate, up, *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    # or their gradients, which nobody asks for, are filled with zeros
    ctx.set_materialize_grads(False)


def _recomputed(ctx, d_out: Tensor) -> tuple[Tensor | None, ...]:
    x, gate, up = ctx.saved_tensors
    return *gate_up_backward(
        d_out, x, gate, up, None, None, ctx.activation
    ), None


def _from_saved(ctx, d_out: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, gate, up, g, u = ctx.saved_tensors
    return *gate_up_backward(d_out, x, gate, up, g, u, ctx.activation), None


gate_up.register_autograd(_recomputed, setup_context=_keep_inputs)
gate_up_saved.register_autograd(_from_saved, setup_context=_keep_all)


@torch.library.custom_op(f"{OPERATORS}::linear", mutates_args=())
def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str
) -> Tensor:
    """activation(x @ weight.T + bias), for inference. x is (..., dim), weight
    (outputs, dim), bias (outputs,)."""
    fit(x, weight, bias=bias)
    rows, weight = matrix(x), matrix(weight)
    if not rows.numel():
        return x.new_zeros(*x.shape[:-1], weight.shape[0])
    candidates = {
        f"ping-pong {tiles.name}": functools.partial(
            _first_of, pingpong, rows, weight, None, bias, activation, tiles
        )
        for tiles in PINGPONG
    }
    if rows.shape[0] <= FEW_ROWS:
        candidates |= {
            f"small {tiles.name}": functools.partial(
                small_linear, rows, weight, bias, activation, tiles
            )
            for tiles in SMALL
        }
    key = (
        "linear",
        activation,
        bucket(rows.shape[0]),
        *weight.shape,
        x.dtype,
        x.device.index,
    )
    return fastest(key, candidates)().view(*x.shape[:-1], weight.shape[0])


@linear.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str
) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


# --8<-- [start:forward]
@torch.library.custom_op(f"{OPERATORS}::forward", mutates_args=())
def forward(
    x: Tensor, gate: Tensor, up: Tensor, down: Tensor, activation: str
) -> Tensor:
    """(activation(x @ gate.T) * (x @ up.T)) @ down.T, for inference. down is
    (dim, hidden)."""
    fit(x, gate, up, down.t())
    rows, gate, up, down = matrix(x), matrix(gate), matrix(up), matrix(down)
    if not rows.numel():
        return x.new_zeros(*x.shape[:-1], down.shape[0])

    def hidden() -> Tensor:
        return tuned_gate_up(rows, gate, up, activation)

    # Timed together with what comes before, behind which a kernel that is
    # launched early hides its start.
    def after(tiles: Tiles) -> Callable[[], Tensor]:
        return lambda: pingpong(hidden(), down, None, None, "none", tiles)[0]

    candidates = {f"ping-pong {tiles.name}": after(tiles) for tiles in PINGPONG}
    candidates["cuBLAS"] = lambda: hidden() @ down.t()
    key = (
        "forward",
        bucket(rows.shape[0]),
        *gate.shape,
        x.dtype,
        x.device.index,
    )
    if key not in CHOICES and not torch.cuda.is_current_stream_capturing():
        hidden()  # tuned first, or its own tuning would be in the times
    return fastest(key, candidates)().view(*x.shape[:-1], down.shape[0])


@forward.register_fake
def _(
    x: Tensor, gate: Tensor, up: Tensor, down: Tensor, activation: str
) -> Tensor:
    return x.new_empty(*x.shape[:-1], down.shape[0])


# --8<-- [end:forward]


def _first_of(
    function: Callable[..., tuple[Tensor, ...]], *arguments: object
) -> Tensor:
    return function(*arguments)[0]


@torch.compiler.assume_constant_result
def unsupported(
    device: torch.device,
    dtypes: tuple[torch.dtype, ...],
    sizes: tuple[int, ...],
) -> str:
    """Why the kernels cannot do this work; empty when they can."""
    if device.type != "cuda" or torch.version.hip:
        return "they need an NVIDIA GPU"
    if torch.cuda.get_device_capability(device)[0] != 9:
        return f"they are written for Hopper (compute capability 9.0), and this is {torch.cuda.get_device_name(device)}"
    if len(set(dtypes)) > 1 or dtypes[0] not in (torch.bfloat16, torch.float16):
        return f"they take bfloat16 or float16 throughout, not {', '.join(sorted(map(str, set(dtypes))))}"
    if any(size % 8 for size in sizes):
        return f"the copy engine needs rows of whole 16 bytes, and {sizes} is not a multiple of 8 elements"
    return ""


SAID: set[str] = set()


@torch.compiler.assume_constant_result
def say_once(reason: str) -> None:
    """Tell why plain PyTorch does the work instead."""
    if reason not in SAID:
        SAID.add(reason)
        warnings.warn(
            f"FusedGeGLU runs as plain PyTorch: {reason}", stacklevel=4
        )


# --8<-- [start:module]
class FusedGeGLU(nn.Module):
    """down(activation(gate(x)) * up(x)) in two kernels. Same parameters as the
    plain module, so same state dict.

    x is (..., dim), as is the result. Where the kernels cannot run, plain
    PyTorch does the work, and a warning says why, once. In training the
    pre-activations are saved for the gradient; `recompute=True` computes them
    again instead.
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        activation: str = "gelu_tanh",
        recompute: bool = False,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"no activation {activation!r}; there are "
                f"{', '.join(ACTIVATIONS)}"
            )
        self.activation, self.recompute = activation, recompute
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    @classmethod
    def like(cls, plain: Any, recompute: bool = False) -> FusedGeGLU:
        """The module over a plain one's three layers, which both then share."""
        with torch.device("meta"):
            fused = cls(
                plain.gate_proj.in_features,
                plain.gate_proj.out_features,
                recompute=recompute,
            )
        fused.gate_proj, fused.up_proj, fused.down_proj = (
            plain.gate_proj,
            plain.up_proj,
            plain.down_proj,
        )
        return fused.train(plain.training)

    def forward(self, x: Tensor) -> Tensor:
        return gated_mlp(
            x,
            self.gate_proj.weight,
            self.up_proj.weight,
            self.down_proj.weight,
            self.activation,
            self.recompute,
        )


# --8<-- [end:module]


# --8<-- [start:gated_mlp]
def gated_mlp(
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    activation: str = "gelu_tanh",
    recompute: bool = False,
) -> Tensor:
    """(activation(x @ gate.T) * (x @ up.T)) @ down.T, by the kernels where they
    can."""
    tensors = (x, gate, up, down)
    fit(x, gate, up, down.t())
    reason = unsupported(
        x.device, tuple(tensor.dtype for tensor in tensors), tuple(gate.shape)
    )
    if any(tensor.device != x.device for tensor in tensors):
        reason = "its tensors are on different devices"
    if reason:
        say_once(reason)
        return (act(x @ gate.t(), activation) * (x @ up.t())) @ down.t()
    if not (
        torch.is_grad_enabled()
        and any(tensor.requires_grad for tensor in tensors)
    ):
        return forward(x, gate, up, down, activation)
    hidden = (
        gate_up(x, gate, up, activation)
        if recompute
        else gate_up_saved(x, gate, up, activation)[0]
    )
    return F.linear(hidden, down)


# --8<-- [end:gated_mlp]
