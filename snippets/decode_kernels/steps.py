"""A decode step by Triton kernels, launched one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import triton
from torch import Tensor

from snippets.decode_kernels.kernels import (
    decode_attend_kernel,
    decode_gate_up_kernel,
    decode_head_kernel,
    decode_qkv_kernel,
    decode_residual_kernel,
)
from snippets.decode_kernels.quantized import (
    Int8Linear,
    quantized,
    stored,
)
from snippets.decode_kernels.sizes import (
    Tile,
    Tiles,
    launches_dependents,
    power_of_two,
    require,
    require_device,
    slices_for,
    tiles_for,
    tokens_for,
)
from snippets.decoder.compiling import join_projections
from snippets.decoder.loops import after
from snippets.decoder.model import prefill, static_cache
from snippets.fused_mlp.geglu.launch import interpreted, multiprocessors

MOST_PROGRAMS = 16
"""Programs of the head on each multiprocessor, for which a step has room."""


class TokenStep:
    """One step of a decoder with joined projections over a static cache.

    A call reads `token` (batch, 1) at `position` (1,), writes its keys and
    values into the cache, and leaves the token that follows, its logit
    (batch, 1) and the next position in the same tensors. A step allocates
    nothing, so a CUDA graph can record it.

    The weights of products may be in int8 (`quantized`). `early`: each kernel
    starts before the kernel before it has ended, where the GPU can.

    Raises `ValueError` for a batch above 16, for a width of heads or of rows
    that the kernels would compute wrongly, and for a device without the
    kernels.
    """

    def __init__(
        self, model, cache, batch: int, tiles: Tiles | None = None,
        early: bool = True,
    ):  # fmt: skip
        config, weight = model.config, model.embed_tokens.weight
        self.int8 = isinstance(model.lm_head, Int8Linear)
        require(config, batch, self.int8)
        require_device(weight.device, interpreted())
        self.model, self.cache, self.batch = model, cache, batch
        self.early = early and launches_dependents(weight.device)
        self.tiles = tiles or tiles_for(batch, config.dim, self.int8)
        self.tokens = tokens_for(batch)
        splits = self.tiles.splits
        slots = MOST_PROGRAMS * multiprocessors(weight.device)
        like = {"device": weight.device, "dtype": weight.dtype}
        wide = {"device": weight.device, "dtype": torch.float32}
        whole = {"device": weight.device, "dtype": torch.int32}
        self.x = torch.zeros(batch, config.dim, **like)
        self.q = torch.zeros(batch, config.dim, **like)
        self.attended = torch.zeros(batch, config.dim, **like)
        self.hidden = torch.zeros(batch, config.hidden, **like)
        shape = (batch, config.heads, splits)
        self.sums = torch.zeros(*shape, config.head_dim, **wide)
        self.tops = torch.zeros(*shape, 2, **wide)
        self.best = torch.zeros(slots, self.tokens, **wide)
        self.best_row = torch.zeros(slots, self.tokens, **whole)
        self.arrived = torch.zeros(2 + batch * config.kv_heads, **whole)
        self.logit = torch.zeros(batch, 1, **like)
        self.token = torch.zeros(
            batch, 1, dtype=torch.int64, device=weight.device
        )
        self.position = torch.zeros(1, dtype=torch.int64, device=weight.device)

    def restart(self, token: Tensor, position: Tensor) -> None:
        """Continue with this token (batch, 1) at this position (1,)."""
        self.token.copy_(token)
        self.position.copy_(position)
        self.x.copy_(self.model.embed_tokens(token[:, 0]))

    def __call__(self) -> None:
        for layer, kept in zip(self.model.layers, self.cache, strict=True):
            self.launch_layer(layer, kept)
        self.launch_head()

    @property
    def scale(self) -> float:
        return self.model.config.head_dim**-0.5

    @property
    def group(self) -> int:
        """Room for the query heads of a head of keys and values."""
        config = self.model.config
        return power_of_two(config.heads // config.kv_heads)

    def options(self, tile: Tile) -> dict[str, Any]:
        """Constants of a kernel that multiplies, and how it is launched."""
        return {
            "TOKENS": self.tokens,
            "ROWS": tile.rows,
            "SLICES": slices_for(self.batch),
            "STEPS": tile.steps,
            "PARTS": tile.warps,
            "HELD": tile.held,
            "INTERPRETED": interpreted(),
            "DEPENDENT": self.early,
            "num_warps": tile.warps,
            "launch_pdl": self.early,
        }

    def run(self, kernel, programs: int, *arguments, **options) -> None:
        kernel[programs,](*arguments, **options)

    # --8<-- [start:layer]
    def launch_layer(self, layer, kept) -> None:
        self.launch_qkv(layer, kept)
        self.launch_attend(layer, kept)
        self.launch_out(layer, kept)
        self.launch_gate_up(layer, kept)
        self.launch_down(layer, kept)

    # --8<-- [end:layer]
    def launch_qkv(self, layer, kept) -> None:
        config, rotary = self.model.config, self.model.rotary
        tile, attention = self.tiles.qkv, layer.self_attn
        options = self.options(tile)
        if layer is self.model.layers[0]:
            # a kernel before the step may still write the weights
            options["launch_pdl"] = False
        pairs = (config.heads + 2 * config.kv_heads) * config.head_dim // 2
        self.run(
            decode_qkv_kernel, triton.cdiv(pairs, tile.rows), self.x,
            layer.input_layernorm.weight, *stored(attention.qkv_proj), rotary,
            self.position, self.q, kept.keys, kept.values, self.batch,
            config.heads, config.kv_heads, kept.keys.shape[2], rotary.shape[1],
            config.eps, K=config.dim, HEAD_DIM=config.head_dim,
            **options,
        )  # fmt: skip

    def launch_attend(self, layer, kept) -> None:
        config, tiles = self.model.config, self.tiles
        self.run(
            decode_attend_kernel, self.batch * config.kv_heads * tiles.splits,
            self.q, kept.keys, kept.values, self.position, self.sums, self.tops,
            self.arrived[2:], self.attended, config.heads, config.kv_heads,
            kept.keys.shape[2], self.scale, HEAD_DIM=config.head_dim,
            GROUP=self.group, BLOCK_KEYS=tiles.block_keys, SPLITS=tiles.splits,
            INTERPRETED=interpreted(), DEPENDENT=self.early, num_warps=4,
            launch_pdl=self.early,
        )  # fmt: skip

    def launch_out(self, layer, kept) -> None:
        linear = layer.self_attn.o_proj
        self.launch_residual(self.attended, linear, self.tiles.out)

    def launch_gate_up(self, layer, kept) -> None:
        config, tile = self.model.config, self.tiles.gate_up
        self.run(
            decode_gate_up_kernel, triton.cdiv(config.hidden, tile.rows),
            self.x, layer.post_attention_layernorm.weight,
            *stored(layer.mlp.gate_up_proj), self.hidden, self.batch,
            config.hidden, config.eps, K=config.dim, **self.options(tile),
        )  # fmt: skip

    def launch_down(self, layer, kept) -> None:
        linear = layer.mlp.down_proj
        self.launch_residual(self.hidden, linear, self.tiles.down)

    def launch_residual(self, y: Tensor, linear, tile: Tile) -> None:
        weight, scale = stored(linear)
        rows, columns = weight.shape
        self.run(
            decode_residual_kernel, triton.cdiv(rows, tile.rows), y, weight,
            scale, self.x, self.batch, rows, K=columns, **self.options(tile),
        )  # fmt: skip

    def launch_head(self) -> None:
        config, model, tile = self.model.config, self.model, self.tiles.head
        each = min(self.tiles.head_programs, MOST_PROGRAMS)
        programs = min(
            each * multiprocessors(self.x.device),
            triton.cdiv(config.vocab, tile.rows),
        )
        self.run(
            decode_head_kernel, programs, self.x, model.norm.weight,
            *stored(model.lm_head), self.best, self.best_row,
            self.arrived[1:], self.batch, config.vocab, config.eps,
            self.token, self.logit, self.position, model.embed_tokens.weight,
            K=config.dim, **self.options(tile),
        )  # fmt: skip


def tokens(
    model, ids: Tensor, answer: int, kind: Callable[..., TokenStep] = TokenStep,
    tiles: Tiles | None = None, int8: bool = False,
) -> Iterator[tuple[Tensor, Tensor]]:  # fmt: skip
    """(logit, token), (batch, 1) each: what follows the prompt, then a token a
    step, again from the prompt after each `answer`. With `int8`, the weights of
    all products are quantized first, for the prompt too."""
    batch, prompt = ids.shape
    cache = static_cache(model, batch, prompt + answer)
    joined = join_projections(model)
    other = quantized(joined) if int8 else joined
    logit, first = prefill(other, ids, cache)
    yield logit, first
    step = kind(other, cache, batch, tiles)
    replay = recorded(step, first, after(ids))
    while True:
        step.restart(first, after(ids))
        for _ in range(answer):
            replay()
            yield step.logit, step.token


def recorded(step: TokenStep, token: Tensor, position: Tensor):
    """The step as a CUDA graph; on a CPU the step itself."""
    if token.device.type != "cuda":
        return step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step.restart(token, position)
        step()  # compile first
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        step()
    return graph.replay
