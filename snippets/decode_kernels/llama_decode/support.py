"""Which caches, tensors and devices the kernels know, and a warning for the
rest."""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from .sizes import OLDEST, require

WITHOUT_MEANING = ("cache_position",)
"""Arguments of a layer's forward that change nothing."""


def kept_by(cache: Any, place: int) -> Any:
    """What a cache of Transformers keeps for the layer at this place; None if
    that is nothing yet."""
    layers = getattr(cache, "layers", ())
    if place >= len(layers):
        return None
    kept = layers[place]
    return kept if getattr(kept, "is_initialized", False) else None


def is_static(kept: Any) -> bool:
    """Whether what a cache keeps for a layer has room for all tokens."""
    return type(kept).__name__ == "StaticLayer"


def other_cache(cache: Any, kept: Any) -> str:
    """Why the kernels do not know a cache, or what it keeps for a layer; empty
    if they know both."""
    for one, kinds in (
        (cache, ("DynamicCache", "StaticCache")),
        (kept, ("DynamicLayer", "StaticLayer")),
    ):
        kind = type(one)
        if (
            kind.__name__ not in kinds
            or kind.__module__ != "transformers.cache_utils"
        ):
            return f"they do not know a {kind.__name__}"
    if cache.offloading:
        return "the cache is offloaded"
    if kept.values.shape != kept.keys.shape:
        return "keys and values have different shapes"
    if is_static(kept) and not (
        kept.keys.is_contiguous() and kept.values.is_contiguous()
    ):
        return "the cache is not contiguous"
    return ""


def other_surroundings(
    x: Tensor, mask: Any, keys: int, more: dict[str, Any]
) -> str:
    """Why the kernels cannot compute what is asked of tokens x (batch, 1, dim),
    each of which looks at `keys` keys; empty if they can. more: arguments with
    other names than those of every layer."""
    for name, value in more.items():
        if value is not None and name not in WITHOUT_MEANING:
            return f"they do not know the argument {name}"
    if torch.is_autocast_enabled(x.device.type):
        return "autocast is enabled"
    if mask is None:
        return ""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        return "they take a mask of bools, as the attention sdpa does"
    if list(mask.shape) not in ([x.shape[0], 1, 1, keys], [1, 1, 1, keys]):
        return f"they do not know a mask of shape {tuple(mask.shape)}"
    return ""


@torch.compiler.assume_constant_result
def unsupported(
    device: torch.device,
    dtypes: tuple[torch.dtype, ...],
    batch: int,
    sizes: tuple[int, int, int, int, int],
) -> str:
    """Why the kernels cannot do work of these kinds; empty if they can. sizes:
    dim, hidden, heads, kv_heads, head_dim."""
    return unsupported_work(device, dtypes, batch, sizes)


@functools.lru_cache(256)
def unsupported_work(
    device: torch.device,
    dtypes: tuple[torch.dtype, ...],
    batch: int,
    sizes: tuple[int, int, int, int, int],
) -> str:
    if reason := unsupported_device(device):
        return reason
    known_dtypes = {torch.bfloat16, torch.float16}
    if is_interpreted():
        known_dtypes.add(torch.float32)
    if len(set(dtypes)) > 1 or dtypes[0] not in known_dtypes:
        given = ", ".join(sorted(map(str, set(dtypes))))
        return f"they take one 16-bit type throughout, not {given}"
    dim, hidden, heads, kv_heads, head_dim = sizes
    config = SimpleNamespace(
        dim=dim,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
    )
    try:
        require(config, batch)
    except ValueError as error:
        return str(error)
    return ""


def is_interpreted() -> bool:
    """Whether Triton runs kernels on the CPU, by `TRITON_INTERPRET=1`."""
    import triton

    return bool(triton.knobs.runtime.interpret)


def unsupported_device(device: torch.device) -> str:
    """Why no kernel runs on this device; empty if they do."""
    is_nvidia = device.type == "cuda" and not torch.version.hip
    try:
        if is_interpreted() and device.type == "cpu":
            return ""
        from triton.language.extra.cuda import gdc_wait  # noqa: F401
    except (AttributeError, ImportError) as error:
        return f"they need Triton 3.4 ({error})"
    if not is_nvidia:
        return "they need an NVIDIA GPU"
    if torch.cuda.get_device_capability(device) < OLDEST:
        name = torch.cuda.get_device_name(device)
        return f"they need compute capability 8.0, and this is {name}"
    return ""


SAID: set[str] = set()
INSIDE = tuple(
    os.path.join(os.path.dirname(each), "")
    for each in (__file__, torch.__file__)
)
"""The folders of this package and of PyTorch."""


@torch.compiler.assume_constant_result
def say_once(reason: str) -> None:
    """Warn the package's caller, once, that the module's own forward does the
    work, and why."""
    if reason in SAID:
        return
    SAID.add(reason)
    level, frame = 1, inspect.currentframe()
    while frame and frame.f_code.co_filename.startswith(INSIDE):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"a decoder layer runs without the decode kernels: {reason}",
        stacklevel=level,
    )
