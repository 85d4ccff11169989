"""A decode step by Triton kernels: launched one by one, or as one kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
from torch import Tensor

from snippets.decode_kernels.kernels import (
    attend_kernel,
    gate_up_kernel,
    head_kernel,
    qkv_kernel,
    residual_kernel,
)
from snippets.decode_kernels.persistent import step_kernel
from snippets.decode_kernels.sizes import (
    FEW_TOKENS,
    ONE_TOKEN,
    Tile,
    Tiles,
    launches_dependents,
    power_of_two,
    require,
)
from snippets.decoder.compiling import join_projections
from snippets.decoder.loops import after
from snippets.decoder.model import prefill, static_cache
from snippets.fused_mlp.geglu.launch import interpreted, multiprocessors


class TokenStep:
    """One step of a decoder with joined projections over a static cache.

    A call reads `token` (batch, 1) at `position` (1,), writes its keys and
    values into the cache, and leaves the token that follows, its logit
    (batch, 1) and the next position in the same tensors. A step allocates
    nothing, so a CUDA graph can record it.

    Raises `ValueError` for a batch above 16, and for a width of heads or of
    rows that the kernels would compute wrongly.
    """

    def __init__(self, model, cache, batch: int, tiles: Tiles | None = None):
        config, weight = model.config, model.lm_head.weight
        require(config, batch)
        self.model, self.cache, self.batch = model, cache, batch
        self.tiles = tiles or (ONE_TOKEN if batch == 1 else FEW_TOKENS)
        self.tokens = 1 if batch == 1 else max(8, power_of_two(batch))
        splits, words = self.tiles.splits, config.vocab
        slots = triton.cdiv(words, self.tiles.head.rows)
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
        """Query heads of a head of keys and values, as a tile holds them."""
        config = self.model.config
        return max(16, power_of_two(config.heads // config.kv_heads))

    def options(self, tile: Tile) -> dict[str, Any]:
        """Constants of a kernel that multiplies, and how it is launched."""
        dependent = launches_dependents(self.x.device)
        return {
            "TOKENS": self.tokens,
            "BLOCK_N": tile.rows,
            "BLOCK_K": tile.block_k,
            "STAGES": tile.stages,
            "AHEAD": self.tiles.ahead,
            "THREADS": 32 * tile.warps,
            "INTERPRETED": interpreted(),
            "DEPENDENT": dependent,
            "num_warps": tile.warps,
            "launch_pdl": dependent,
        }

    def launch_layer(self, layer, kept) -> None:
        self.launch_qkv(layer, kept)
        self.launch_attend(layer, kept)
        self.launch_out(layer, kept)
        self.launch_gate_up(layer, kept)
        self.launch_down(layer, kept)

    def launch_qkv(self, layer, kept) -> None:
        config, rotary = self.model.config, self.model.rotary
        tile, attention = self.tiles.qkv, layer.self_attn
        pairs = (config.heads + 2 * config.kv_heads) * config.head_dim // 2
        qkv_kernel[triton.cdiv(pairs, tile.rows),](
            self.x, layer.input_layernorm.weight, attention.qkv_proj.weight,
            rotary, self.position, self.q, kept.keys, kept.values, self.batch,
            config.dim, config.heads, config.kv_heads, kept.keys.shape[2],
            rotary.shape[1], config.eps, HEAD_DIM=config.head_dim,
            **self.options(tile),
        )  # fmt: skip

    def launch_attend(self, layer, kept) -> None:
        config, tiles = self.model.config, self.tiles
        dependent = launches_dependents(self.x.device)
        attend_kernel[self.batch * config.kv_heads * tiles.splits,](
            self.q, kept.keys, kept.values, self.position, self.sums,
            self.tops, self.arrived[2:], self.attended, config.heads,
            config.kv_heads, kept.keys.shape[2], self.scale,
            HEAD_DIM=config.head_dim, GROUP=self.group,
            BLOCK_KEYS=tiles.block_keys, SPLITS=tiles.splits,
            INTERPRETED=interpreted(), DEPENDENT=dependent, num_warps=4,
            launch_pdl=dependent,
        )  # fmt: skip

    def launch_out(self, layer, kept) -> None:
        weight = layer.self_attn.o_proj.weight
        self.launch_residual(self.attended, weight, self.tiles.out)

    def launch_gate_up(self, layer, kept) -> None:
        config, tile = self.model.config, self.tiles.gate_up
        gate_up_kernel[triton.cdiv(config.hidden, tile.rows),](
            self.x, layer.post_attention_layernorm.weight,
            layer.mlp.gate_up_proj.weight, self.hidden, self.batch,
            config.hidden, config.dim, config.eps, **self.options(tile),
        )  # fmt: skip

    def launch_down(self, layer, kept) -> None:
        weight = layer.mlp.down_proj.weight
        self.launch_residual(self.hidden, weight, self.tiles.down)

    def launch_residual(self, y: Tensor, weight: Tensor, tile: Tile) -> None:
        rows, columns = weight.shape
        residual_kernel[triton.cdiv(rows, tile.rows),](
            y, weight, self.x, self.batch, rows, columns, **self.options(tile)
        )  # fmt: skip

    def launch_head(self) -> None:
        config, model, tile = self.model.config, self.model, self.tiles.head
        head_kernel[triton.cdiv(config.vocab, tile.rows),](
            self.x, model.norm.weight, model.lm_head.weight, self.best,
            self.best_row, self.arrived[1:], self.batch, config.vocab,
            config.dim, config.eps, self.token, self.logit, self.position,
            model.embed_tokens.weight, **self.options(tile),
        )  # fmt: skip


class OneKernelStep(TokenStep):
    """The same step as one kernel of `programs` programs, which must all run
    at once: by default one on each multiprocessor."""

    def __init__(self, model, cache, batch, tiles=None, programs: int = 0):
        super().__init__(model, cache, batch, tiles)
        device = self.x.device
        self.programs = programs or multiprocessors(device)
        rows = [
            [tensor.data_ptr() for tensor in tensors_of(layer, kept)]
            for layer, kept in zip(model.layers, cache, strict=True)
        ]
        self.table = torch.tensor(rows, dtype=torch.int64, device=device)

    def __call__(self) -> None:
        config, model, tiles = self.model.config, self.model, self.tiles
        tile, warps = tiles.gate_up, tiles.gate_up.warps
        step_kernel[self.programs,](
            self.table, self.x, self.q, self.attended, self.hidden,
            model.rotary, self.position, self.sums, self.tops, self.arrived,
            model.norm.weight, model.lm_head.weight, model.embed_tokens.weight,
            self.best, self.best_row, self.token, self.logit, self.batch,
            config.dim, config.hidden, config.vocab, config.layers,
            config.heads, config.kv_heads, self.cache[0].keys.shape[2],
            model.rotary.shape[1], config.eps, self.scale,
            HEAD_DIM=config.head_dim, GROUP=self.group, TOKENS=self.tokens,
            QKV_N=tiles.qkv.rows, OUT_N=tiles.out.rows,
            UP_N=tiles.gate_up.rows, DOWN_N=tiles.down.rows,
            HEAD_N=tiles.head.rows, BLOCK_K=tile.block_k, STAGES=tile.stages,
            BLOCK_KEYS=tiles.block_keys, SPLITS=tiles.splits,
            AHEAD=tiles.ahead if launches_dependents(self.x.device) else 0,
            THREADS=32 * warps, INTERPRETED=interpreted(), num_warps=warps,
            launch_cooperative_grid=True,
        )  # fmt: skip


def tensors_of(layer, kept) -> tuple[Tensor, ...]:
    """A layer's tensors in the order of the table of addresses."""
    attention, mlp = layer.self_attn, layer.mlp
    return (
        layer.input_layernorm.weight,
        attention.qkv_proj.weight,
        attention.o_proj.weight,
        layer.post_attention_layernorm.weight,
        mlp.gate_up_proj.weight,
        mlp.down_proj.weight,
        kept.keys,
        kept.values,
    )


def tokens(
    model, ids: Tensor, answer: int, kind: type[TokenStep] = TokenStep,
    tiles: Tiles | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:  # fmt: skip
    """(logit, token), (batch, 1) each: what follows the prompt, then a token a
    step, again from the prompt after each `answer`."""
    batch, prompt = ids.shape
    cache = static_cache(model, batch, prompt + answer)
    logit, first = prefill(model, ids, cache)
    yield logit, first
    step = kind(join_projections(model), cache, batch, tiles)
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
