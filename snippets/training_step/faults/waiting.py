"""Faults of loops whose GPU waits: for the CPU, for data, for copies."""

import time
from collections.abc import Callable

import torch
from torch.utils.data import DataLoader

from ..data import Features, Texts
from ..model import make_parts, next_token_loss, train, train_step, update


# 1. The CPU waits for the GPU in every step.
def item_before(device, **sizes):
    model, optimizer, loader = make_parts(device, **sizes)
    for step, batch in enumerate(loader):
        batch = batch.to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = next_token_loss(model, batch[:, :-1], batch[:, 1:])
        norm = update(model, optimizer, loss)
        if norm > 1000 or loss.isnan():
            break
        print(f"step {step}: loss {loss.item():.3f}")
        yield loss.detach()


def item_after(device, **sizes):
    model, optimizer, loader = make_parts(device, **sizes)
    for step, batch in enumerate(loader):
        batch = batch.to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = next_token_loss(model, batch[:, :-1], batch[:, 1:])
        norm = update(model, optimizer, loss)
        if step % 100 == 0:
            if norm > 1000 or loss.isnan():
                break
            print(f"step {step}: loss {loss.item():.3f}")
        yield loss.detach()


# 2. A clock stops before the GPU does.
def timing_before(phase: Callable[[], object]) -> float:
    begin = time.perf_counter()
    phase()
    return time.perf_counter() - begin


def timing_after(phase: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    phase()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


# 3. The GPU waits for data.
def loader_before(device, **sizes):
    model, optimizer, _ = make_parts(device, **sizes)
    texts = Texts(sizes["vocab"], sizes["seq"])
    loader = DataLoader(texts, sizes["batch"])
    return train(model, optimizer, loader, device)


def loader_after(device, **sizes):
    model, optimizer, _ = make_parts(device, **sizes)
    texts = Texts(sizes["vocab"], sizes["seq"])
    loader = DataLoader(texts, sizes["batch"], num_workers=8)
    return train(model, optimizer, loader, device)


# 4. The CPU waits for copies to the GPU, or the GPU's other work does.
def pageable_before(device, **sizes):
    model, optimizer, _ = make_parts(device, **sizes)
    loader = DataLoader(Features(**sizes), batch_size=None)
    for features, targets in loader:
        features = features.to(device)
        targets = targets.to(device)
        yield train_step(model, optimizer, features, targets)


def pageable_pinned(device, **sizes):
    model, optimizer, _ = make_parts(device, **sizes)
    pin = device == "cuda"
    loader = DataLoader(Features(**sizes), batch_size=None, pin_memory=pin)
    for features, targets in loader:
        features = features.to(device, non_blocking=True)
        targets = targets.to(device, non_blocking=True)
        yield train_step(model, optimizer, features, targets)


# --8<-- [start:own_stream]
def on_its_own_stream(loader, device):
    """Copy the next batch while the GPU computes on this batch."""
    stream = torch.cuda.Stream()
    waiting = None
    for batch in loader:
        with torch.cuda.stream(stream):
            copied = [tensor.to(device, non_blocking=True) for tensor in batch]
        if waiting is not None:
            yield waiting
        torch.cuda.current_stream().wait_stream(stream)
        for tensor in copied:
            tensor.record_stream(torch.cuda.current_stream())
        waiting = copied


# --8<-- [end:own_stream]
def pageable_after(device, **sizes):
    model, optimizer, _ = make_parts(device, **sizes)
    pin = device == "cuda"
    loader = DataLoader(Features(**sizes), batch_size=None, pin_memory=pin)
    for features, targets in on_its_own_stream(loader, device):
        yield train_step(model, optimizer, features, targets)
