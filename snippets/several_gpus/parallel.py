"""Data parallel, rung by rung. Each rank has all weights and its own batch; a
step needs the mean of all ranks' gradients.

A rung is a function of the model. It returns the module to call, and a
function that the loop calls between backward and the optimizer's step.
"""

import functools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


# --8<-- [start:train]
def train(model, rung, optimizer, batches):
    module, finish = rung(model)
    for x, y in batches:
        loss = F.mse_loss(module(x), y)
        loss.backward()
        finish()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.detach()


# --8<-- [end:train]


# --8<-- [start:average]
def average(gradient, async_op=False):
    gradient /= dist.get_world_size()
    return dist.all_reduce(gradient, async_op=async_op)


# --8<-- [end:average]


def alone(model):
    """Without communication: what the other rungs are compared with. The
    ranks' weights drift apart."""
    return model, lambda: None


# --8<-- [start:each_parameter]
def each_parameter(model):
    def finish():
        for parameter in model.parameters():
            average(parameter.grad)

    return model, finish


# --8<-- [end:each_parameter]


# --8<-- [start:one_bucket]
def join(parameters):
    """One tensor with all gradients; each `.grad` becomes a view of it."""
    bucket = torch.cat([each.grad.flatten() for each in parameters])
    sizes = [each.numel() for each in parameters]
    for each, part in zip(parameters, bucket.split(sizes), strict=True):
        each.grad = part.view_as(each)
    return bucket


def one_bucket(model):
    parameters = list(model.parameters())
    return model, lambda: average(join(parameters))


# --8<-- [end:one_bucket]


# --8<-- [start:buckets]
def fill_buckets(parameters, bucket_bytes):
    """Parameters in the order in which backward reaches them, cut where a
    bucket is full. No parameter is divided."""
    buckets: list[list] = [[]]
    filled = 0
    for each in reversed(list(parameters)):
        if filled >= bucket_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(each)
        filled += each.nbytes
    return buckets


def buckets_in_backward(model, bucket_bytes=25 << 20):
    transfers = []

    def ready(bucket, missing, parameter):
        missing.discard(parameter)
        if not missing:  # backward goes on during the transfer
            transfers.append(average(join(bucket), async_op=True))
            missing.update(bucket)

    for bucket in fill_buckets(model.parameters(), bucket_bytes):
        missing = set(bucket)
        for each in bucket:
            hook = functools.partial(ready, bucket, missing)
            each.register_post_accumulate_grad_hook(hook)

    def finish():
        for transfer in transfers:
            transfer.wait()
        transfers.clear()

    return model, finish


# --8<-- [end:buckets]


# --8<-- [start:ddp]
def ddp(model, **options):
    return DistributedDataParallel(model, **options), lambda: None


def ddp_views(model):
    return ddp(model, gradient_as_bucket_view=True)


# --8<-- [end:ddp]


# --8<-- [start:accumulate]
def accumulate(module, optimizer, batches):
    *first, last = batches
    with module.no_sync():  # around the forward, too
        for x, y in first:
            F.mse_loss(module(x), y).backward()
    x, y = last
    F.mse_loss(module(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()


# --8<-- [end:accumulate]


def accumulate_synced(module, optimizer, batches):
    """The same without `no_sync`: an all-reduce for each batch."""
    for x, y in batches:
        F.mse_loss(module(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
