"""A small language model and the loop that trains it: plain PyTorch, without a harness."""

from collections.abc import Callable, Generator, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset


# --8<-- [start:model]
def attend(qkv: Tensor, heads: int) -> Tensor:
    """(batch, seq, 3 * dim) -> (batch, seq, dim), in one kernel."""
    batch, seq, width = qkv.shape
    parts = qkv.chunk(3, dim=-1)
    q, k, v = (x.view(batch, seq, heads, -1).transpose(1, 2) for x in parts)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).reshape(batch, seq, width // 3)


class Block(nn.Module):
    """Attention and an MLP, with a norm before each."""

    def __init__(self, dim: int, heads: int, attend: Callable[..., Tensor]):
        super().__init__()
        self.heads, self.attend = heads, attend
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.out(self.attend(self.qkv(self.norm1(x)), self.heads))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class LanguageModel(nn.Module):
    """Embedding, blocks and a head that scores each word."""

    def __init__(self, vocab, dim, heads, layers, attend=attend):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        blocks = (Block(dim, heads, attend) for _ in range(layers))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Token ids (batch, seq), or features (batch, seq, dim), to logits."""
        x = x if x.is_floating_point() else self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# --8<-- [end:model]
# --8<-- [start:data]
class Tokens(Dataset):
    """Token ids (seq + 1,) that count up with a stride: no download."""

    def __init__(self, vocab: int, seq: int, length: int = 1 << 24):
        self.vocab, self.seq, self.length = vocab, seq, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Tensor:
        steps = torch.arange(self.seq + 1)
        return (7 * index + (1 + index % 5) * steps) % self.vocab


# --8<-- [end:data]
# --8<-- [start:step]
def next_token_loss(model, inputs: Tensor, targets: Tensor) -> Tensor:
    with record_function("forward"):
        logits = model(inputs)
    with record_function("loss"):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def update(model, optimizer, loss: Tensor) -> Tensor:
    with record_function("backward"):
        loss.backward()
    with record_function("clip"):
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    with record_function("optimizer"):
        optimizer.step()
        optimizer.zero_grad()
    return norm


def train_step(model, optimizer, inputs: Tensor, targets: Tensor) -> Tensor:
    with torch.autocast(inputs.device.type, dtype=torch.bfloat16):
        loss = next_token_loss(model, inputs, targets)
    update(model, optimizer, loss)
    return loss.detach()


# --8<-- [end:step]
# --8<-- [start:train]
def train(model, optimizer, loader: Iterable, device) -> Generator:
    """Train on each batch and yield its loss, still on the GPU."""
    for step, batch in enumerate(loader):
        with record_function("to the GPU"):
            batch = batch.to(device, non_blocking=True)
        loss = train_step(model, optimizer, batch[:, :-1], batch[:, 1:])
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
        yield loss


# --8<-- [end:train]
# --8<-- [start:parts]
def make_parts(device, vocab, dim, heads, layers, seq, batch, attend=attend):
    """The model, its optimizer and the loader of its batches."""
    torch.manual_seed(0)
    with torch.device(device):
        model = LanguageModel(vocab, dim, heads, layers, attend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    tokens, pin = Tokens(vocab, seq), device == "cuda"
    loader = DataLoader(tokens, batch, num_workers=2, pin_memory=pin)
    return model, optimizer, loader


# --8<-- [end:parts]
