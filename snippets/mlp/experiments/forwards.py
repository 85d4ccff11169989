"""One forward in three variants, and where Liger's layers come from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from snippets.lab.experiment import NeedsGpu, Subject, Work

SHAPE = {"batch": 64, "seq": 128, "dim": 768, "hidden": 3072}
HUB_KERNELS = "kernels-community/liger-kernels"


def forward_work(batch: int, seq: int, dim: int, hidden: int) -> Work:
    """Three products; x, three weights and the result once each, in bf16. No
    intermediate has to be stored."""
    tokens = batch * seq
    return Work(
        bytes=2 * (2 * tokens * dim + 3 * dim * hidden),
        matmuls=(
            (tokens, dim, hidden),
            (tokens, dim, hidden),
            (tokens, hidden, dim),
        ),
    )


def _subject(
    module: Any,
    step: Any,
    shape: tuple[int, int, int],
    device: str,
    **notes: str,
) -> Subject:
    import torch

    from snippets.mlp.model import geglu_reference

    weights = [
        layer.weight.detach()
        for layer in (module.gate_proj, module.up_proj, module.down_proj)
    ]

    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            result: torch.Tensor = step(x)
            return result

    return Subject(
        step=forward,
        inputs=lambda: (
            torch.randn(*shape, dtype=torch.bfloat16, device=device),
        ),
        reference=lambda x: geglu_reference(x, *weights),
        notes=notes,
    )


def _module(device: str, dim: int, hidden: int) -> Any:
    import torch

    from snippets.mlp.model import GeGLU

    return GeGLU(dim, hidden).to(device, dtype=torch.bfloat16).eval()


# --8<-- [start:variants]
def eager(device: str, batch: int, seq: int, dim: int, hidden: int) -> Subject:
    module = _module(device, dim, hidden)
    return _subject(module, module, (batch, seq, dim), device)


def compiled(
    device: str, batch: int, seq: int, dim: int, hidden: int
) -> Subject:
    import torch

    module = _module(device, dim, hidden)
    return _subject(module, torch.compile(module), (batch, seq, dim), device)


def liger(device: str, batch: int, seq: int, dim: int, hidden: int) -> Subject:
    from torch import nn

    if device != "cuda":
        raise NeedsGpu(
            "Liger's kernel is Triton, which has no CPU backend: mlp/eager and "
            "mlp/compiled run here"
        )
    layers, origin = liger_layers()
    module = _module(device, dim, hidden)
    # --8<-- [start:swap]
    swapped = layers.LigerGEGLUMLP()
    for name, layer in module.named_children():
        assert isinstance(layer, nn.Linear)
        setattr(swapped, name, layer)
    # --8<-- [end:swap]
    return _subject(swapped, swapped, (batch, seq, dim), device, liger=origin)


# --8<-- [end:variants]


def liger_layers() -> tuple[Any, str]:
    """The layers of the Hub's Liger kernels, version 1, and where they were
    loaded from."""
    from kernels import get_kernel

    if not hub_reachable():
        local = Path(__file__).parent / "liger_kernels"
        os.environ["LOCAL_KERNELS"] = f"{HUB_KERNELS}={local}"
    kernel = get_kernel(HUB_KERNELS, version=1)
    is_local = "LOCAL_KERNELS" in os.environ
    return (
        kernel.layers,
        "a local layer over PyPI's liger-kernel"
        if is_local
        else "the Hugging Face Hub, version 1",
    )


def hub_reachable(timeout_s: float = 3.0) -> bool:
    """Whether the Hub answers; False without a request if `HF_HUB_OFFLINE` or
    `LOCAL_KERNELS` forbids it."""
    import socket
    from urllib.parse import urlsplit

    if os.environ.get("HF_HUB_OFFLINE") or "LOCAL_KERNELS" in os.environ:
        return False
    host = (
        urlsplit(
            os.environ.get("HF_ENDPOINT", "https://huggingface.co")
        ).hostname
        or ""
    )
    try:
        socket.create_connection((host, 443), timeout=timeout_s).close()
    except OSError:
        return False
    return True
