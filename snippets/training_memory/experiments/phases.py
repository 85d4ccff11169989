"""The phases of a training step, what forward keeps for backward, and how to recompute it: plain PyTorch to paste."""

from functools import partial

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import mse_loss
from torch.utils.checkpoint import checkpoint


# --8<-- [start:recompute]
def recomputing(model, every=1):
    """A forward that keeps the input of every `every`-th block, and no tensor
    inside the blocks."""
    again = partial(checkpoint, use_reentrant=False)

    def forward(x):
        for index, block in enumerate(model):
            x = block(x) if index % every else again(block, x)
        return x

    return forward


# --8<-- [end:recompute]
# --8<-- [start:phases]
def phases(
    forward, optimizer, x, target, autocast, loss=mse_loss, set_to_none=True
):
    """The phases of a step by name; `loss` passes the loss between them."""
    device, losses = x.device.type, []

    def run_forward():
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            y = forward(x)
        losses.append(loss(y.float(), target))

    def run_backward():
        losses.pop().backward()

    def run_optimizer():
        optimizer.step()
        optimizer.zero_grad(set_to_none)

    return {
        "forward": run_forward,
        "backward": run_backward,
        "optimizer": run_optimizer,
    }


# --8<-- [end:phases]
# --8<-- [start:loss]
def mean_square(y, target):
    return (y - target).square().mean()


# --8<-- [end:loss]
# --8<-- [start:kept]
def kept_for_backward(forward, *, but=()):
    """What autograd saves in a forward: address of a storage -> a tensor in it,
    without storages of tensors in `but`, which exist anyway."""
    there = {tensor.untyped_storage().data_ptr() for tensor in but}
    kept = {}

    def keep(tensor):
        address = tensor.untyped_storage().data_ptr()
        if address not in there:
            kept[address] = tensor
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        forward()
    return kept


# --8<-- [end:kept]
# --8<-- [start:peaks]
def peaks(steps):
    """Bytes before, after and at the peak of each phase of one step."""
    found = {}
    for name, run in steps.items():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        found[name] = {
            "before": before,
            "after": torch.cuda.memory_allocated(),
            "peak": torch.cuda.max_memory_allocated(),
        }
    return found


# --8<-- [end:peaks]
