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
    held: int = 8
    """The first blocks of each row, at most so many, are loaded into registers
    at once, before the wait for the kernel before. Further blocks are copied to
    shared memory."""

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
    head_programs: int = 8
    """Programs of the head on each multiprocessor, at most."""


LONG = 4096
"""Rows of a model of this width or more are cut into longer blocks."""
ONE_TOKEN = Tiles(
    qkv=Tile(4, 1024, held=2),
    out=Tile(8, 1024, held=2),
    gate_up=Tile(2, 1024, held=2),
    down=Tile(8, 2048, warps=8, held=2),
    head=Tile(8, 1024, held=2),
)
ONE_TOKEN_LONG = Tiles(
    qkv=Tile(2, 1024, held=4),
    out=Tile(8, 1024, held=4),
    gate_up=Tile(2, 2048, warps=8, held=2),
    down=Tile(4, 2048, warps=8, held=3),
    head=Tile(4, 1024, held=4),
)
INT8_ONE_TOKEN = Tiles(
    qkv=Tile(4, 2048, held=1),
    out=Tile(8, 2048, warps=8, held=1),
    gate_up=Tile(4, 1024, held=2),
    down=Tile(4, 2048, held=3),
    head=Tile(8, 2048, held=1),
)
INT8_ONE_TOKEN_LONG = Tiles(
    qkv=Tile(4, 2048, held=2),
    out=Tile(16, 2048, warps=8, held=2),
    gate_up=Tile(4, 1024, held=2),
    down=Tile(8, 1024, held=4),
    head=Tile(4, 2048, held=2),
)
"""The fastest of those tried on an H200 in a whole step with early launches.
Alone, other tiles of some parts are faster."""
PLAIN = Tiles(
    qkv=Tile(8, 512, 4, held=0),
    out=Tile(2, 1024, held=0),
    gate_up=Tile(4, 1024, held=0),
    down=Tile(2, 2048, 4, held=0),
    head=Tile(8, 1024, held=2),
)
PLAIN_LONG = Tiles(
    qkv=Tile(4, 1024, warps=8, held=0),
    out=Tile(2, 2048, held=0),
    gate_up=Tile(2, 2048, held=0),
    down=Tile(4, 2048, 4, held=0),
    head=Tile(4, 1024, held=4),
)
"""For bf16 and launches one after the other. While a program computes a block,
its copies of the next blocks are on their way."""
FEW_TOKENS = Tiles(
    qkv=Tile(16, 512, held=4),
    out=Tile(16, 1024, warps=8, held=2),
    gate_up=Tile(32, 256, 4, held=2),
    down=Tile(16, 512, held=4),
    head=Tile(32, 256, 4, held=1),
)
FEW_TOKENS_LITTLE_ROOM = Tiles(
    qkv=Tile(16, 256, held=2),
    out=Tile(16, 256, held=4),
    gate_up=Tile(16, 256, held=2),
    down=Tile(16, 256, held=4),
    head=Tile(32, 256, held=1),
)
"""For GPUs where a program of the other tiles would find too little shared
memory."""
INT8_FEW_TOKENS = Tiles(
    qkv=Tile(16, 512, 4, held=1),
    out=Tile(16, 512, 4, held=2),
    gate_up=Tile(16, 512, 4, held=1),
    down=Tile(16, 512, 4, held=2),
    head=Tile(32, 256, 4, held=1),
)
ROOM = 150 << 10
"""Bytes of shared memory that are enough for a program of each of these tiles.
Of all but `FEW_TOKENS`, 99 KiB are enough."""


def tiles_for(
    batch: int, int8: bool, width: int, room: int = ROOM, early: bool = True
) -> Tiles:
    """The default tiles for a model of this width, where a program can have
    `room` bytes of shared memory, and for early launches or others."""
    if batch > 1:
        if int8:
            return INT8_FEW_TOKENS
        return FEW_TOKENS if room >= ROOM else FEW_TOKENS_LITTLE_ROOM
    if int8:
        return INT8_ONE_TOKEN if width < LONG else INT8_ONE_TOKEN_LONG
    if early:
        return ONE_TOKEN if width < LONG else ONE_TOKEN_LONG
    return PLAIN if width < LONG else PLAIN_LONG


def room_on(device: torch.device) -> int:
    """Bytes of shared memory that a program can have: those of a
    multiprocessor, of which each program takes 1 KiB in addition."""
    if device.type != "cuda":
        return ROOM
    properties = torch.cuda.get_device_properties(device)
    return properties.shared_memory_per_multiprocessor - (1 << 10)


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
