"""How a step cuts its weights, and which sizes its kernels can compute."""

from __future__ import annotations

from dataclasses import dataclass

import torch

MOST_TOKENS = 16
OLDEST = (8, 0)
"""The first compute capability with copies to shared memory that a program
does not wait for, and with bf16 on tensor cores."""


@dataclass(frozen=True)
class Tile:
    """How a kernel cuts a weight, and runs."""

    rows: int
    """Rows of the weight that a program multiplies; in pairs, pairs."""
    block_k: int
    """Elements of each row at a time."""
    stages: int = 3
    """One more than the blocks for which a program has room."""
    warps: int = 4

    @property
    def parts(self) -> int:
        """Parts of a block of several tokens: one for each warp, of 32
        elements or more, as tensor cores take them."""
        return min(self.warps, self.block_k // 32)


@dataclass(frozen=True)
class Tiles:
    """How each part of a step is cut. `splits`: parts of the keys."""

    qkv: Tile
    out: Tile
    gate_up: Tile
    down: Tile
    head: Tile
    block_keys: int = 64
    splits: int = 16
    ahead: int = 4096
    """Elements of each row asked for while the kernel before still runs."""


ONE_TOKEN = Tiles(
    qkv=Tile(4, 1024),
    out=Tile(4, 1024),
    gate_up=Tile(4, 1024),
    down=Tile(4, 1024),
    head=Tile(8, 1024),
)
FEW_TOKENS = Tiles(
    qkv=Tile(16, 256),
    out=Tile(16, 256),
    gate_up=Tile(16, 256),
    down=Tile(16, 256),
    head=Tile(32, 256),
    ahead=2048,
)
INT8_ONE_TOKEN = Tiles(
    qkv=Tile(8, 1024),
    out=Tile(8, 1024),
    gate_up=Tile(8, 1024),
    down=Tile(8, 1024),
    head=Tile(8, 2048),
)
INT8_FEW_TOKENS = Tiles(
    qkv=Tile(16, 512),
    out=Tile(16, 512),
    gate_up=Tile(16, 512),
    down=Tile(16, 512),
    head=Tile(32, 256),
    ahead=2048,
)
"""Mostly as many bytes as in bf16, of twice as many weights."""


def tiles_for(batch: int, int8: bool) -> Tiles:
    """The default tiles."""
    if int8:
        return INT8_ONE_TOKEN if batch == 1 else INT8_FEW_TOKENS
    return ONE_TOKEN if batch == 1 else FEW_TOKENS


def require(config, batch: int, int8: bool = False) -> None:
    """Raise `ValueError` for sizes that the kernels would compute wrongly."""
    row = 16 if int8 else 8  # weights in 16 bytes
    if not 1 <= batch <= MOST_TOKENS:
        raise ValueError(f"a batch of {batch} is not 1 to {MOST_TOKENS}")
    if config.head_dim not in (16, 32, 64, 128, 256):
        raise ValueError(
            f"heads of {config.head_dim}: "
            "these kernels need 16, 32, 64, 128 or 256"
        )
    for name in ("dim", "hidden"):
        if getattr(config, name) % row:
            raise ValueError(
                f"{name} {getattr(config, name)}: no multiple of {row}"
            )
    if config.heads % config.kv_heads:
        raise ValueError(
            f"{config.heads} heads are not a multiple of {config.kv_heads}"
        )


def require_device(device: torch.device, interpreted: bool) -> None:
    """Raise `ValueError` for a device that cannot run the kernels."""
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        if capability >= OLDEST:
            return
        found = f"a GPU of compute capability {capability[0]}.{capability[1]}"
    elif interpreted:
        return
    else:
        found = f"device {device.type!r}"
    raise ValueError(
        f"{found}: these kernels need a CUDA GPU of compute capability "
        f"{OLDEST[0]}.{OLDEST[1]} or later; a loop of the decoder runs here"
    )


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below `number`."""
    return 1 << (number - 1).bit_length()


def launches_dependents(device: torch.device) -> bool:
    """Whether a kernel may start before the kernel before it has ended: on
    Hopper and later."""
    if device.type != "cuda":
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)
