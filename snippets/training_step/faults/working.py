"""Faults of loops that give the GPU, or the compiler, more work than they need."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import schedule
from torch.utils.data import DataLoader

from ..data import Varied
from ..model import (
    Tokens,
    attend,
    make_parts,
    next_token_loss,
    train,
    train_step,
    update,
)


# 5. The compiler starts again for each length.
def recompile_before(device, **sizes):
    model, optimizer, _ = make_parts(device, **sizes)
    model.compile(dynamic=False)
    for batch in DataLoader(Varied(**sizes), batch_size=None):
        batch = batch.to(device)
        inputs, targets = batch[:, :-1], batch[:, 1:]
        yield train_step(model, optimizer, inputs, targets)


def recompile_after(device, **sizes):
    model, optimizer, _ = make_parts(device, **sizes)
    model.compile()
    for batch in DataLoader(Varied(**sizes), batch_size=None):
        batch = batch.to(device)
        inputs, targets = batch[:, :-1], batch[:, 1:]
        torch._dynamo.mark_dynamic(inputs, 1)
        yield train_step(model, optimizer, inputs, targets)


def recompile_padded(device, **sizes):
    model, optimizer, _ = make_parts(device, **sizes)
    model.compile(dynamic=False)
    for batch in DataLoader(Varied(**sizes), batch_size=None):
        missing = sizes["seq"] + 1 - batch.shape[1]
        inputs = F.pad(batch, (0, missing))[:, :-1].to(device)
        targets = F.pad(batch, (0, missing), value=-100)[:, 1:].to(device)
        yield train_step(model, optimizer, inputs, targets)


# 5b. A check that the compiler cannot compile, in each block.
# --8<-- [start:checked]
def checked(qkv: Tensor, heads: int) -> Tensor:
    if not qkv.isfinite().all():
        raise FloatingPointError("queries, keys or values overflow")
    return attend(qkv, heads)


# --8<-- [end:checked]
def breaks_before(device, **sizes):
    parts = make_parts(device, **sizes, attend=checked)
    model, optimizer, loader = parts
    model.compile()
    return train(model, optimizer, loader, device)


def breaks_after(device, **sizes):
    parts = make_parts(device, **sizes, attend=attend)
    model, optimizer, loader = parts
    model.compile()
    return train(model, optimizer, loader, device)


# 6. Copies for an unneeded layout.
def split_and_copied(qkv: Tensor, heads: int) -> Tensor:
    batch, seq, width = qkv.shape
    parts = qkv.chunk(3, dim=-1)
    views = (x.view(batch, seq, heads, -1).transpose(1, 2) for x in parts)
    q, k, v = (view.contiguous() for view in views)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).reshape(batch, seq, width // 3)


def layout_before(device, **sizes):
    parts = make_parts(device, **sizes, attend=split_and_copied)
    model, optimizer, loader = parts
    return train(model, optimizer, loader, device)


def layout_after(device, **sizes):
    parts = make_parts(device, **sizes, attend=attend)
    model, optimizer, loader = parts
    return train(model, optimizer, loader, device)


# 7. An optimizer that goes from parameter to parameter.
def optimizer_before(device, **sizes):
    model, _, loader = make_parts(device, **sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=False)
    return train(model, optimizer, loader, device)


def optimizer_foreach(device, **sizes):
    model, _, loader = make_parts(device, **sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=True)
    return train(model, optimizer, loader, device)


def optimizer_after(device, **sizes):
    model, _, loader = make_parts(device, **sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    return train(model, optimizer, loader, device)


# 8. Products on the ordinary units, and products of an odd size.
def tensor_cores_before(device, **sizes):
    model, optimizer, loader = make_parts(device, **sizes)
    for batch in loader:
        batch = batch.to(device, non_blocking=True)
        loss = next_token_loss(model, batch[:, :-1], batch[:, 1:])
        update(model, optimizer, loss)
        yield loss.detach()


def tensor_cores_after(device, **sizes):
    torch.set_float32_matmul_precision("high")
    model, optimizer, loader = make_parts(device, **sizes)
    for batch in loader:
        batch = batch.to(device, non_blocking=True)
        loss = next_token_loss(model, batch[:, :-1], batch[:, 1:])
        update(model, optimizer, loss)
        yield loss.detach()


def tensor_cores_autocast(device, **sizes):
    model, optimizer, loader = make_parts(device, **sizes)
    for batch in loader:
        batch = batch.to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = next_token_loss(model, batch[:, :-1], batch[:, 1:])
        update(model, optimizer, loss)
        yield loss.detach()


def vocabulary_before(device, vocab, **sizes):
    model, optimizer, _ = make_parts(device, vocab=vocab, **sizes)
    tokens = Tokens(vocab, sizes["seq"])
    loader = DataLoader(tokens, sizes["batch"], num_workers=2)
    return train(model, optimizer, loader, device)


def vocabulary_after(device, vocab, **sizes):
    padded = -(-vocab // 128) * 128
    model, optimizer, _ = make_parts(device, vocab=padded, **sizes)
    tokens = Tokens(vocab, sizes["seq"])
    loader = DataLoader(tokens, sizes["batch"], num_workers=2)
    return train(model, optimizer, loader, device)


# 9. Memory returns to the driver in every step.
def allocator_before(device, **sizes):
    model, optimizer, loader = make_parts(device, **sizes)
    for batch in loader:
        batch = batch.to(device, non_blocking=True)
        loss = train_step(model, optimizer, batch[:, :-1], batch[:, 1:])
        torch.cuda.empty_cache()
        yield loss


def allocator_after(device, **sizes):
    model, optimizer, loader = make_parts(device, **sizes)
    for batch in loader:
        batch = batch.to(device, non_blocking=True)
        loss = train_step(model, optimizer, batch[:, :-1], batch[:, 1:])
        yield loss


# 10. Kernels that are shorter than their launches.
def tiny_before(device, **sizes):
    model, optimizer, loader = make_parts(device, **sizes)
    return train(model, optimizer, loader, device)


def tiny_compiled(device, **sizes):
    model, optimizer, loader = make_parts(device, **sizes)
    model.compile()
    return train(model, optimizer, loader, device)


def tiny_after(device, **sizes):
    model, optimizer, loader = make_parts(device, **sizes)
    model.compile(mode="reduce-overhead")
    return train(model, optimizer, loader, device)


# 11. Attention that writes its scores to memory.
def written_out(qkv: Tensor, heads: int) -> Tensor:
    batch, seq, width = qkv.shape
    parts = qkv.chunk(3, dim=-1)
    q, k, v = (x.view(batch, seq, heads, -1).transpose(1, 2) for x in parts)
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    future = torch.ones(seq, seq, dtype=torch.bool, device=q.device).triu(1)
    weights = scores.masked_fill(future, -torch.inf).softmax(-1)
    y = weights.to(v.dtype) @ v
    return y.transpose(1, 2).reshape(batch, seq, width // 3)


def attention_before(device, **sizes):
    parts = make_parts(device, **sizes, attend=written_out)
    model, optimizer, loader = parts
    return train(model, optimizer, loader, device)


def attention_after(device, **sizes):
    parts = make_parts(device, **sizes, attend=attend)
    model, optimizer, loader = parts
    return train(model, optimizer, loader, device)


# 12. A profile of the first steps.
def cold_before():
    return schedule(wait=0, warmup=0, active=3)


def cold_after():
    return schedule(wait=5, warmup=2, active=3)
