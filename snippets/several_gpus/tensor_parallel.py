"""A finished model split over GPUs: each keeps some columns or rows of every
weight, and computes with all tokens.

A column here is an output of a layer, a row one of its inputs.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from .blocks import MLP

# --8<-- [start:split]
COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
ROWS = ("o_proj", "down_proj")


def split(model: nn.Module, group, enter: Callable, leave: Callable):
    """Keep this rank's part of each weight, in place. What goes into columns
    passes through `enter`, what comes out of rows through `leave`."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    for module in list(model.modules()):
        children: dict = dict(module.named_children())
        for name in COLUMNS & children.keys():
            keep(children[name], 0, rank, world)
        for name in ROWS & children.keys():
            keep(children[name], 1, rank, world)
            children[name].register_forward_hook(
                lambda _, inputs, y: leave(y, group)
            )
            module.register_forward_pre_hook(
                lambda _, inputs: (enter(inputs[0], group), *inputs[1:])
            )
    return model


def keep(linear: nn.Linear, dim: int, rank: int, world: int) -> None:
    # weight: (outputs, inputs); dim 0 splits outputs, dim 1 inputs
    weight = linear.weight
    if weight.shape[dim] % world:
        raise ValueError(
            f"{weight.shape[dim]} does not divide by {world} GPUs; choose "
            "another width or number of GPUs"
        )
    part = weight.detach().chunk(world, dim)[rank].clone()
    linear.weight = nn.Parameter(part, weight.requires_grad)


# --8<-- [end:split]


# --8<-- [start:reduced]
class Copied(torch.autograd.Function):
    """The input as it is; in the backward, an all-reduce of its gradient."""

    @staticmethod
    def forward(ctx, x: Tensor, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad: Tensor):
        grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Added(torch.autograd.Function):
    """An all-reduce of the output; in the backward, its gradient as it is."""

    @staticmethod
    def forward(ctx, y: Tensor, group):
        dist.all_reduce(y, group=group)
        ctx.mark_dirty(y)
        return y

    @staticmethod
    def backward(ctx, grad: Tensor):
        return grad, None


# --8<-- [end:reduced]


# --8<-- [start:sequence]
def gather(x: Tensor, group) -> Tensor:
    """(rows, ...) of each rank -> (world x rows, ...)."""
    world = dist.get_world_size(group)
    whole = x.new_empty(world * x.shape[0], *x.shape[1:])
    dist.all_gather_into_tensor(whole, x.contiguous(), group=group)
    return whole


def scatter(y: Tensor, group) -> Tensor:
    """The sum over ranks; each rank keeps its rows."""
    world = dist.get_world_size(group)
    part = y.new_empty(y.shape[0] // world, *y.shape[1:])
    dist.reduce_scatter_tensor(part, y.contiguous(), group=group)
    return part


class Gathered(torch.autograd.Function):
    """`gather`; in the backward, `scatter`."""

    @staticmethod
    def forward(ctx, x: Tensor, group):
        ctx.group = group
        return gather(x, group)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return scatter(grad, ctx.group), None


class Scattered(torch.autograd.Function):
    """`scatter`; in the backward, `gather`."""

    @staticmethod
    def forward(ctx, y: Tensor, group):
        ctx.group = group
        return scatter(y, group)

    @staticmethod
    def backward(ctx, grad: Tensor):
        return gather(grad, ctx.group), None


# --8<-- [end:sequence]


# --8<-- [start:plans]
PLANS = {
    "reduced": (Copied.apply, Added.apply),
    "sequence": (Gathered.apply, Scattered.apply),
}
"""What goes into a split layer's columns, and what comes out of its rows."""
# --8<-- [end:plans]


# --8<-- [start:async]
def overlapped(mlp: MLP, x: Tensor, group) -> Tensor:
    """The MLP of `sequence`, in pieces: a piece is sent while another is
    multiplied. x: (rows, dim), this rank's rows."""
    import torch.distributed._symmetric_memory  # defines torch.ops.symm_mem

    name = group.group_name
    weights = [mlp.gate_proj.weight.t(), mlp.up_proj.weight.t()]
    _, (gate, up) = torch.ops.symm_mem.fused_all_gather_matmul(
        x, weights, 0, name
    )
    return torch.ops.symm_mem.fused_matmul_reduce_scatter(
        F.silu(gate) * up, mlp.down_proj.weight.t(), "sum", 0, name
    )


# --8<-- [end:async]


# --8<-- [start:one_shot]
class OneShot:
    """An all-reduce in symmetric memory: each GPU reads the buffers of all
    others and adds them up itself, in one kernel."""

    def __init__(self, shape, dtype, device, group):
        import torch.distributed._symmetric_memory as symm_mem

        self.buffer = symm_mem.empty(shape, dtype=dtype, device=device)
        symm_mem.rendezvous(self.buffer, group.group_name)
        self.name = group.group_name

    def __call__(self, y: Tensor, group) -> Tensor:
        """The sum over ranks of y, of the buffer's size."""
        return torch.ops.symm_mem.one_shot_all_reduce_copy(
            self.buffer.view_as(y), y, "sum", self.name
        )


# --8<-- [end:one_shot]


# --8<-- [start:ratio]
def transfer_over_compute(
    hidden: int, world: int, flops_per_s: float, bytes_per_s: float
) -> float:
    """Of a gated MLP in bf16: an all-reduce of (rows, dim) over its three
    products. Rows and dim cancel out.

    all-reduce: 2 (n - 1) / n x 2 rows dim bytes, at the bus bandwidth
    products: 6 rows dim hidden / n FLOPs
    """
    return 2 * (world - 1) * flops_per_s / (3 * hidden * bytes_per_s)


# --8<-- [end:ratio]
