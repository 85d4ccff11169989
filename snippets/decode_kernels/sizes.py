"""How a step cuts its weights, and which sizes its kernels can compute."""

from __future__ import annotations

from dataclasses import dataclass

import torch

MOST_TOKENS = 16
OLDEST = (8, 0)
"""The first compute capability with bf16 on tensor cores."""


@dataclass(frozen=True)
class Tile:
    """How a kernel cuts a weight, and runs."""

    rows: int
    """Of the weight that a program multiplies; in pairs, pairs of rows."""
    steps: int = 1
    """How often a warp loads 64 bytes of each slice of a row at a time."""
    warps: int = 4
    """Each multiplies other columns of the same rows."""
    held: int = 4
    """Blocks of each row, at most so many, whose weights are in registers or on
    their way: at first before the wait for the kernel before."""

    def row_bytes(self, batch: int) -> int:
        """Bytes of each row in a block."""
        return 64 * slices_for(batch) * self.steps * self.warps


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
    head_programs: int = 8
    """Programs of the head on each multiprocessor, at most."""


LONG = 4096
"""Rows of a model of this width or more are cut into longer blocks."""
ONE_TOKEN = Tiles(
    qkv=Tile(4, 1, 2, 2),
    out=Tile(2, 1, 1, 8),
    gate_up=Tile(4, 1, 2, 2),
    down=Tile(8, 1, 8, 2),
    head=Tile(8, 1, 2, 2),
)
ONE_TOKEN_LONG = Tiles(
    qkv=Tile(4, 1, 2, 2),
    out=Tile(8, 1, 4, 4),
    gate_up=Tile(4, 1, 4, 2),
    down=Tile(8, 1, 4, 4),
    head=Tile(4, 1, 2, 4),
)
INT8_ONE_TOKEN = Tiles(
    qkv=Tile(2, 1, 1, 4),
    out=Tile(8, 1, 4, 1),
    gate_up=Tile(4, 1, 1, 2),
    down=Tile(4, 1, 4, 3),
    head=Tile(16, 1, 4, 1),
)
INT8_ONE_TOKEN_LONG = Tiles(
    qkv=Tile(4, 1, 2, 2),
    out=Tile(16, 1, 4, 1),
    gate_up=Tile(2, 1, 1, 4),
    down=Tile(4, 1, 4, 4),
    head=Tile(8, 1, 4, 2),
)
FEW_TOKENS = Tiles(
    qkv=Tile(4, 1, 4, 2),
    out=Tile(8, 1, 8, 4),
    gate_up=Tile(8, 1, 2, 4),
    down=Tile(16, 1, 8, 4),
    head=Tile(8, 1, 4, 4),
)
FEW_TOKENS_LONG = Tiles(
    qkv=Tile(8, 1, 4, 2),
    out=Tile(8, 1, 4, 4),
    gate_up=Tile(8, 1, 2, 4),
    down=Tile(16, 1, 8, 4),
    head=Tile(16, 1, 4, 4),
)
SIXTEEN_TOKENS = Tiles(
    qkv=Tile(16, 1, 4, 2),
    out=Tile(32, 1, 4, 2),
    gate_up=Tile(16, 1, 4, 2),
    down=Tile(32, 1, 8, 1),
    head=Tile(32, 1, 4, 2),
)


def tiles_for(batch: int, width: int, int8: bool = False) -> Tiles:
    """The default tiles for a model of this width: the fastest of those tried
    on an H200 in a whole step with early launches."""
    if batch > 8:
        return SIXTEEN_TOKENS
    if batch > 1:
        return FEW_TOKENS if width < LONG else FEW_TOKENS_LONG
    if int8:
        return INT8_ONE_TOKEN if width < LONG else INT8_ONE_TOKEN_LONG
    return ONE_TOKEN if width < LONG else ONE_TOKEN_LONG


def tokens_for(batch: int) -> int:
    """Tokens for which a program has room: 1, 8 or 16."""
    return batch if batch == 1 else 8 if batch <= 8 else 16


def slices_for(batch: int) -> int:
    """Parts of each row and of each token, which take the place of 8 rows and
    of 16 tokens; with one token, of 8."""
    return min(8, 16 // tokens_for(batch))


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
