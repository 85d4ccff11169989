"""A decode step as one kernel."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from snippets.decode_kernels.persistent import decode_step_kernel
from snippets.decode_kernels.quantized import stored
from snippets.decode_kernels.sizes import Tile, Tiles
from snippets.decode_kernels.steps import TokenStep
from snippets.fused_mlp.geglu.launch import interpreted

PER_MULTIPROCESSOR = 1
"""Programs of the kernel of a whole step on each multiprocessor."""
REGISTERS = 255
"""Of a thread."""
BLOCK_KEYS = 32
"""Keys that a program of attention loads at a time: of more, with wide heads,
some would not fit into registers."""


def tiles_of_step(batch: int) -> Tiles:
    """The default tiles. All products have the same steps and warps. A program
    holds the weights of two tiles, so the rows are few."""
    tile = Tile(4, 1, 8, 2) if batch == 1 else Tile(8, 2, 8, 2)
    return Tiles(tile, tile, tile, tile, tile, BLOCK_KEYS)


class OneKernelStep(TokenStep):
    """The same step as one kernel of `programs` programs, which must all run
    at once, since they wait for each other: by default as many as the GPU runs
    at once. All products have the steps and the warps of the tile of gate and
    up. Raises `ValueError` for programs that cannot run at once, and for
    tensors at addresses that 16 does not divide."""

    def __init__(self, model, cache, batch, tiles=None, programs: int = 0):
        super().__init__(model, cache, batch, tiles)
        if tiles is None:
            self.tiles = tiles_of_step(batch)
        rows = [
            addresses_of(layer, kept)
            for layer, kept in zip(model.layers, cache, strict=True)
        ]
        if any(address % 16 for row in rows for address in row):
            raise ValueError("a tensor at an address that 16 does not divide")
        device = self.x.device
        self.table = torch.tensor(rows, dtype=torch.int64, device=device)
        kernel = None
        if not interpreted():
            arguments, options = self.launch()
            kernel = decode_step_kernel.warmup(*arguments, grid=(1,), **options)
        limit = programs_at_once(kernel, device)
        if programs > limit or not limit:
            raise ValueError(
                f"{max(programs, 1)} programs cannot run at once here: "
                f"at most {limit} can"
            )
        self.programs = programs or limit

    def __call__(self) -> None:
        arguments, options = self.launch()
        self.run(decode_step_kernel, self.programs, *arguments, **options)

    def launch(self) -> tuple[tuple, dict[str, Any]]:
        """The kernel's arguments, and its constants and options."""
        config, model, tiles = self.model.config, self.model, self.tiles
        arguments = (
            self.table, self.x, self.q, self.attended, self.hidden,
            model.rotary, self.position, self.sums, self.tops, self.arrived,
            model.norm.weight, *stored(model.lm_head),
            model.embed_tokens.weight, self.best, self.best_row, self.token,
            self.logit, self.batch, config.vocab, config.layers, config.heads,
            config.kv_heads,
            self.cache[0].keys.shape[2], model.rotary.shape[1], config.eps,
            self.scale,
        )  # fmt: skip
        options = self.options(tiles.gate_up)
        del options["ROWS"], options["DEPENDENT"], options["launch_pdl"]
        return arguments, {
            **options,
            "K": config.dim,
            "H": config.hidden,
            "HEAD_DIM": config.head_dim,
            "GROUP": self.group,
            "QKV": tiles.qkv.rows,
            "OUT": tiles.out.rows,
            "UP": tiles.gate_up.rows,
            "DOWN": tiles.down.rows,
            "HEAD": tiles.head.rows,
            "BLOCK_KEYS": tiles.block_keys,
            "SPLITS": tiles.splits,
            "HELD_DOWN": tiles.down.held,
            "launch_cooperative_grid": True,
            "maxnreg": REGISTERS,
        }


def addresses_of(layer, kept) -> list[int]:
    """A row of the table of addresses: the tensors of a layer, and a scale for
    each weight, 0 without one."""
    attention, mlp = layer.self_attn, layer.mlp
    linears = (
        attention.qkv_proj, attention.o_proj, mlp.gate_up_proj, mlp.down_proj
    )  # fmt: skip
    (qkv, out, gate_up, down), scales = zip(*map(stored, linears), strict=True)
    tensors = (
        layer.input_layernorm.weight, qkv, out,
        layer.post_attention_layernorm.weight, gate_up, down, kept.keys,
        kept.values, *scales,
    )  # fmt: skip
    return [0 if one is None else one.data_ptr() for one in tensors]


def programs_at_once(kernel, device: torch.device) -> int:
    """How many programs of a compiled kernel a GPU runs at once, at most
    PER_MULTIPROCESSOR on each multiprocessor.

    Raises `RuntimeError` if the driver does not answer.
    """
    if device.type != "cuda":
        return 1  # interpreted, one after the other
    count = ctypes.c_int()
    kernel.run  # noqa: B018  # loads the kernel
    status = ctypes.CDLL(
        "libcuda.so.1"
    ).cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(count), ctypes.c_void_p(kernel.function),
        ctypes.c_int(32 * kernel.metadata.num_warps),
        ctypes.c_size_t(kernel.metadata.shared),
    )  # fmt: skip
    if status:
        raise RuntimeError(f"the driver's occupancy query failed: {status}")
    each = min(count.value, PER_MULTIPROCESSOR)
    found = torch.cuda.get_device_properties(device)
    return each * found.multi_processor_count
