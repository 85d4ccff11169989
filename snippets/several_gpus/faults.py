"""Faults of training on several GPUs, before and after. Each rank trains on its
part of the same sequences. A loop yields its rank's loss, and the mean over the
ranks is the loss of all sequences."""

import time
from collections import deque
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from .model import random_model

MICRO_BATCHES = 4


def dtype_of(device):
    """A CPU trains in float32, where tests compare closely."""
    return torch.bfloat16 if device == "cuda" else torch.float32


def make_model(device, width, blocks):
    return random_model(width, blocks, device, dtype_of(device))


def batches(device, rank, counts, seq, width):
    """This rank's part of all sequences, (counts[rank], seq, width)."""
    generator = torch.Generator(device).manual_seed(1)
    shape, dtype = (sum(counts), seq, width), dtype_of(device)
    while True:
        x = torch.randn(shape, generator=generator, device=device, dtype=dtype)
        yield x.split(counts)[rank]


# --8<-- [start:train]
def loss_of(model, x):
    """The mean square of the output stands for any loss."""
    return model(x).float().square().mean()


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def update(optimizer):
    optimizer.step()
    optimizer.zero_grad()


def train(model, parts, weight=1.0):
    optimizer = make_optimizer(model)
    for x in parts:
        loss = weight * loss_of(model, x)
        loss.backward()
        update(optimizer)
        yield loss.detach()


# --8<-- [end:train]
# 1. One rank has more sequences than the others.
def uneven_before(device, rank, world, width, blocks, seq, batch):
    counts = [batch + batch // 2] + [batch] * (world - 1)
    weight = counts[rank] * world / sum(counts)
    model = DistributedDataParallel(make_model(device, width, blocks))
    return train(model, batches(device, rank, counts, seq, width), weight)


def uneven_after(device, rank, world, width, blocks, seq, batch):
    counts = [batch + batch // 2 // world] * world
    weight = counts[rank] * world / sum(counts)
    model = DistributedDataParallel(make_model(device, width, blocks))
    return train(model, batches(device, rank, counts, seq, width), weight)


# 2. The CPU of one rank is late: with much work for the GPU, with little.
# --8<-- [start:late]
LATE_S = 0.02  # as long as reading and decoding a batch may take


def late_before(device, rank, world, width, blocks, seq, batch):
    parts = batches(device, rank, [batch] * world, seq, width)
    model = DistributedDataParallel(make_model(device, width, blocks))
    optimizer = make_optimizer(model)
    for x in parts:
        loss = loss_of(model, x)
        loss.backward()
        update(optimizer)
        if rank == 1:
            time.sleep(LATE_S)
        yield loss.detach()


# --8<-- [end:late]


def late_after(device, rank, world, width, blocks, seq, batch):
    parts = batches(device, rank, [batch] * world, seq, width)
    model = DistributedDataParallel(make_model(device, width, blocks))
    optimizer = make_optimizer(model)
    for x in parts:
        loss = loss_of(model, x)
        loss.backward()
        update(optimizer)
        yield loss.detach()


# 3. One bucket for all gradients.
def one_bucket_before(device, rank, world, width, blocks, seq, batch):
    parts = batches(device, rank, [batch] * world, seq, width)
    model = make_model(device, width, blocks)
    model = DistributedDataParallel(model, bucket_cap_mb=10_000)
    return train(model, parts)


def ddp_after(device, rank, world, width, blocks, seq, batch):
    parts = batches(device, rank, [batch] * world, seq, width)
    model = make_model(device, width, blocks)
    model = DistributedDataParallel(model)
    return train(model, parts)


# 4. The gradients wait until backward is done.
def afterwards_before(device, rank, world, width, blocks, seq, batch):
    parts = batches(device, rank, [batch] * world, seq, width)
    model = make_model(device, width, blocks)
    optimizer = make_optimizer(model)
    for x in parts:
        loss = loss_of(model, x)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        update(optimizer)
        yield loss.detach()


def afterwards_after(device, rank, world, width, blocks, seq, batch):
    parts = batches(device, rank, [batch] * world, seq, width)
    model = make_model(device, width, blocks)
    model = DistributedDataParallel(model)
    optimizer = make_optimizer(model)
    for x in parts:
        loss = loss_of(model, x)
        loss.backward()
        update(optimizer)
        yield loss.detach()


# 5. DDP looks for unused parameters, and there are none.
def unused_before(device, rank, world, width, blocks, seq, batch):
    parts = batches(device, rank, [batch] * world, seq, width)
    model = make_model(device, width, blocks)
    model = DistributedDataParallel(model, find_unused_parameters=True)
    return train(model, parts)


# 6. FSDP shards the model as one.
def root_only_before(device, rank, world, width, blocks, seq, batch):
    parts = batches(device, rank, [batch] * world, seq, width)
    model = make_model(device, width, blocks)
    fully_shard(model)
    return train(model, parts)


def fsdp_after(device, rank, world, width, blocks, seq, batch):
    parts = batches(device, rank, [batch] * world, seq, width)
    model = make_model(device, width, blocks)
    for block in model:
        fully_shard(block)
    fully_shard(model)
    return train(model, parts)


# 7. Each micro-batch reduces the gradients, also where no_sync is too late.
def no_sync_before(device, rank, world, width, blocks, seq, batch):
    parts = batches(device, rank, [batch] * world, seq, width)
    model = DistributedDataParallel(make_model(device, width, blocks))
    optimizer = make_optimizer(model)
    for x in parts:
        total = 0.0
        for micro in x.chunk(MICRO_BATCHES):
            loss = loss_of(model, micro) / MICRO_BATCHES
            loss.backward()
            total += loss.detach()
        update(optimizer)
        yield total


def no_sync_backward(device, rank, world, width, blocks, seq, batch):
    parts = batches(device, rank, [batch] * world, seq, width)
    model = DistributedDataParallel(make_model(device, width, blocks))
    optimizer = make_optimizer(model)
    for x in parts:
        total = 0.0
        for last, micro in marked(x.chunk(MICRO_BATCHES)):
            loss = loss_of(model, micro) / MICRO_BATCHES
            with nullcontext() if last else model.no_sync():
                loss.backward()
            total += loss.detach()
        update(optimizer)
        yield total


def no_sync_after(device, rank, world, width, blocks, seq, batch):
    parts = batches(device, rank, [batch] * world, seq, width)
    model = DistributedDataParallel(make_model(device, width, blocks))
    optimizer = make_optimizer(model)
    for x in parts:
        total = 0.0
        for last, micro in marked(x.chunk(MICRO_BATCHES)):
            with nullcontext() if last else model.no_sync():
                loss = loss_of(model, micro) / MICRO_BATCHES
                loss.backward()
            total += loss.detach()
        update(optimizer)
        yield total


def marked(micros):
    """Each micro-batch, and before it whether it is the last."""
    return ((micro is micros[-1], micro) for micro in micros)


# 8. One rank reads its loss in each step.
def item_before(device, rank, world, width, blocks, seq, batch):
    parts = batches(device, rank, [batch] * world, seq, width)
    model = DistributedDataParallel(make_model(device, width, blocks))
    optimizer = make_optimizer(model)
    shown: deque[float] = deque(maxlen=100)
    for x in parts:
        loss = loss_of(model, x)
        loss.backward()
        update(optimizer)
        if rank == 0:
            shown.append(loss.item())
        yield loss.detach()


def item_after(device, rank, world, width, blocks, seq, batch):
    parts = batches(device, rank, [batch] * world, seq, width)
    model = DistributedDataParallel(make_model(device, width, blocks))
    optimizer = make_optimizer(model)
    shown: deque[float] = deque(maxlen=100)
    for step, x in enumerate(parts):
        loss = loss_of(model, x)
        loss.backward()
        update(optimizer)
        if rank == 0 and step % 100 == 0:
            shown.append(loss.item())
        yield loss.detach()
