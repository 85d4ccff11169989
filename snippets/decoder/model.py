"""A decoder as most language models are built: prompt in, token after token
out.

Names of parameters are those of Llama checkpoints. Shapes: ids (batch, new),
positions (new,), hidden states (batch, new, dim), keys and values (batch,
kv_heads, length, head_dim).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F


# --8<-- [start:config]
@dataclass(frozen=True)
class Config:
    """The sizes of a decoder."""

    layers: int
    dim: int
    hidden: int
    heads: int
    kv_heads: int
    vocab: int
    theta: float = 10_000.0
    eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


CONFIGS = {
    "tiny": Config(2, 64, 128, 4, 2, 256),
    "1.1b": Config(22, 2048, 5632, 32, 4, 32_000),
    "8b": Config(32, 4096, 14_336, 32, 8, 128_256, theta=500_000.0),
}
# --8<-- [end:config]


# --8<-- [start:cache]
class StaticCache:
    """Keys and values of one layer, written in place and read to the end."""

    def __init__(self, config, batch, length, device, dtype):
        shape = (batch, config.kv_heads, length, config.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)

    def add(self, k: Tensor, v: Tensor, positions: Tensor):
        # k, v: (batch, kv_heads, new, head_dim); positions: (new,)
        self.keys.index_copy_(2, positions, k)
        self.values.index_copy_(2, positions, v)
        return self.keys, self.values

    def mask(self, positions: Tensor) -> Tensor:
        """(new, length), True where a token may look."""
        length = self.keys.shape[2]
        place = torch.arange(length, device=positions.device)
        return place <= positions[:, None]


def static_cache(model, batch: int, length: int) -> list[StaticCache]:
    weight = model.lm_head.weight
    return [
        StaticCache(model.config, batch, length, weight.device, weight.dtype)
        for _ in model.layers
    ]


# --8<-- [end:cache]


# --8<-- [start:rotary]
def rotary_table(config: Config, length: int, device) -> Tensor:
    """(2, length, head_dim): cosine and sine of each position's angles."""
    powers = torch.arange(0, config.head_dim, 2, device=device).float()
    angles = config.theta ** -(powers / config.head_dim)
    angles = torch.arange(length, device=device)[:, None] * angles
    angles = torch.cat((angles, angles), dim=-1)
    return torch.stack((angles.cos(), angles.sin()))


def rotate(x: Tensor, rotary: Tensor) -> Tensor:
    # x: (batch, heads, new, head_dim); rotary: (2, new, head_dim)
    first, second = x.chunk(2, dim=-1)
    cos, sin = rotary
    return x * cos + torch.cat((-second, first), dim=-1) * sin


# --8<-- [end:rotary]


# --8<-- [start:attention]
class Attention(nn.Module):
    """Groups of query heads, each with one head of keys and values."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        kv_dim = config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.dim, config.dim, bias=False)
        self.k_proj = nn.Linear(config.dim, kv_dim, bias=False)
        self.v_proj = nn.Linear(config.dim, kv_dim, bias=False)
        self.o_proj = nn.Linear(config.dim, config.dim, bias=False)

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)

    def forward(self, x, rotary, cache, positions, mask):
        q, k, v = (
            y.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for y in self.project(x)
        )  # (batch, heads or kv_heads, new, head_dim)
        q, k = rotate(q, rotary), rotate(k, rotary)
        keys, values = cache.add(k, v, positions)
        is_prompt = x.shape[1] > 1
        if is_prompt:  # it sees itself, and nothing came before it
            keys, values = k, v
        y = attend(q, keys, values, mask, is_prompt and mask is None)
        return self.o_proj(y.transpose(1, 2).flatten(2))


def attend(q, keys, values, mask, causal: bool) -> Tensor:
    return F.scaled_dot_product_attention(
        q, keys, values, attn_mask=mask, is_causal=causal, enable_gqa=True
    )


# --8<-- [end:attention]


# --8<-- [start:layer]
class MLP(nn.Module):
    """Two products, a gate, and a product back."""

    def __init__(self, config: Config):
        super().__init__()
        self.gate_proj = nn.Linear(config.dim, config.hidden, bias=False)
        self.up_proj = nn.Linear(config.dim, config.hidden, bias=False)
        self.down_proj = nn.Linear(config.hidden, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and MLP, each behind a norm and added to what came in."""

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.dim, config.eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.dim, config.eps)
        self.mlp = MLP(config)

    def forward(self, x, rotary, cache, positions, mask):
        attended = self.self_attn(
            self.input_layernorm(x), rotary, cache, positions, mask
        )
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x))


# --8<-- [end:layer]


# --8<-- [start:decoder]
class Decoder(nn.Module):
    """Token ids to hidden states; `lm_head` turns these into logits."""

    rotary: Tensor  # (2, max_length, head_dim)

    def __init__(self, config: Config, max_length: int = 4096):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab, config.dim)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.dim, config.eps)
        self.lm_head = nn.Linear(config.dim, config.vocab, bias=False)
        weight = self.lm_head.weight
        table = rotary_table(config, max_length, weight.device)
        self.register_buffer("rotary", table.to(weight.dtype), persistent=False)

    def forward(self, ids: Tensor, positions: Tensor, cache, mask=None):
        x = self.embed_tokens(ids)  # (batch, new, dim)
        rotary = self.rotary[:, positions]
        is_prompt = ids.shape[1] > 1
        if not is_prompt:
            mask = cache[0].mask(positions)
        for layer, kept in zip(self.layers, cache, strict=True):
            x = layer(x, rotary, kept, positions, mask)
        return self.norm(x)


# --8<-- [end:decoder]


# --8<-- [start:tokens]
def choose(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of (batch, vocab) logits and its token, (batch, 1) each."""
    token = logits.argmax(dim=-1, keepdim=True)
    return logits.gather(-1, token), token


def prefill(model, ids: Tensor, cache, pick=choose):
    """Read a prompt (batch, prompt): the logit and the token that follow."""
    positions = torch.arange(ids.shape[1], device=ids.device)
    hidden = model(ids, positions, cache)
    return pick(model.lm_head(hidden[:, -1]))


def decode_one(model, token: Tensor, position: Tensor, cache, pick=choose):
    """Read one token (batch, 1) at position (1,): the logit and the token that
    follow."""
    hidden = model(token, position, cache)
    return pick(model.lm_head(hidden[:, -1]))


# --8<-- [end:tokens]


@torch.no_grad()
def generate(model, ids: Tensor, cache, new_tokens: int) -> Tensor:
    """(batch, new_tokens): what follows the prompt, always the likeliest."""
    _, token = prefill(model, ids, cache)
    position = torch.full((1,), ids.shape[1], device=ids.device)
    tokens = [token]
    for _ in range(new_tokens - 1):
        _, token = decode_one(model, token, position, cache)
        tokens.append(token)
        position += 1
    return torch.cat(tokens, dim=1)


# --8<-- [start:bytes]
def bytes_per_token(config: Config, batch: int, context: int) -> int:
    """What one decode step has to read, in bf16: every weight but the input
    embedding, and the keys and values so far."""
    attention = (
        2 * config.dim * (config.dim + config.kv_heads * config.head_dim)
    )
    layer = attention + 3 * config.dim * config.hidden
    weights = config.layers * layer + config.dim * config.vocab
    kept = 2 * config.layers * config.kv_heads * config.head_dim
    return 2 * (weights + batch * context * kept)


# --8<-- [end:bytes]


def flops_per_token(config: Config, context: int) -> int:
    """Of one token that looks at `context` tokens, the head included."""
    weights = bytes_per_token(config, 0, 0) // 2
    return 2 * weights + 4 * config.layers * config.dim * context


def build(
    size: str,
    device: str,
    dtype=torch.bfloat16,
    max_length: int = 4096,
    layers: int = 0,
):
    """A decoder with random weights, made on the device in its final type;
    `layers`, unless 0, in place of the number of its size."""
    config = CONFIGS[size]
    config = replace(config, layers=layers or config.layers)
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = Decoder(config, max_length)
    finally:
        torch.set_default_dtype(before)
    return model.eval().requires_grad_(False)
