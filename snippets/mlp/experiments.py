"""What the chapter mlp measures: one GeGLU forward pass, three ways, and what a new shape costs each."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

from snippets.lab.experiment import Experiment, Instruments, NeedsGpu, Subject, Work

SHAPE = {"batch": 64, "seq": 128, "dim": 768, "hidden": 3072}
HUB_KERNELS = "kernels-community/liger-kernels"


def forward_work(batch: int, seq: int, dim: int, hidden: int) -> Work:
    """Three products; x, three weights and the result once each, in bf16. The intermediates need not exist."""
    tokens = batch * seq
    return Work(
        bytes=2 * (2 * tokens * dim + 3 * dim * hidden),
        matmuls=((tokens, dim, hidden), (tokens, dim, hidden), (tokens, hidden, dim)),
    )


def _subject(module: Any, step: Any, shape: tuple[int, int, int], device: str, **notes: str) -> Subject:
    import torch

    from snippets.mlp.model import geglu_reference

    weights = [layer.weight.detach() for layer in (module.gate_proj, module.up_proj, module.down_proj)]

    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            result: torch.Tensor = step(x)
            return result

    return Subject(
        step=forward,
        inputs=lambda: (torch.randn(*shape, dtype=torch.bfloat16, device=device),),
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


# --8<-- [start:compiled]
def compiled(device: str, batch: int, seq: int, dim: int, hidden: int) -> Subject:
    import torch

    module = _module(device, dim, hidden)
    return _subject(module, torch.compile(module), (batch, seq, dim), device)


# --8<-- [end:compiled]
# --8<-- [start:liger]
def liger(device: str, batch: int, seq: int, dim: int, hidden: int) -> Subject:
    from torch import nn

    if device != "cuda":
        raise NeedsGpu("Liger's kernel is Triton, which has no CPU backend: mlp/eager and mlp/compiled run here")
    layers, origin = liger_layers()
    module = _module(device, dim, hidden)
    swapped = layers.LigerGEGLUMLP()
    for name, layer in module.named_children():
        assert isinstance(layer, nn.Linear)
        setattr(swapped, name, layer)
    return _subject(swapped, swapped, (batch, seq, dim), device, liger=origin)


# --8<-- [end:liger]
# --8<-- [end:variants]


# --8<-- [start:hub]
def liger_layers() -> tuple[Any, str]:
    """The layers of the Hub's Liger kernels, version 1, and where they came from."""
    from kernels import get_kernel

    if not hub_reachable():
        local = Path(__file__).parent / "liger_kernels"
        os.environ["LOCAL_KERNELS"] = f"{HUB_KERNELS}={local}"
    kernel = get_kernel(HUB_KERNELS, version=1)
    is_local = "LOCAL_KERNELS" in os.environ
    return kernel.layers, "a local layer over PyPI's liger-kernel" if is_local else "the Hugging Face Hub, version 1"


# --8<-- [end:hub]


def hub_reachable(timeout_s: float = 3.0) -> bool:
    """Whether the Hub answers; False at once when `HF_HUB_OFFLINE` or `LOCAL_KERNELS` says not to ask."""
    import socket
    from urllib.parse import urlsplit

    if os.environ.get("HF_HUB_OFFLINE") or "LOCAL_KERNELS" in os.environ:
        return False
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname or ""
    try:
        socket.create_connection((host, 443), timeout=timeout_s).close()
    except OSError:
        return False
    return True


# --8<-- [start:new_shapes]
def new_shapes(instruments: Instruments, device: str, batch: int, seq: int, dim: int, hidden: int) -> dict[str, Any]:
    """Feed batch sizes never seen before to each variant and count what gets compiled.

    Returns, for static and automatic-dynamic compilation and for Liger, the graphs or kernels compiled so far and
    the milliseconds of the first call, one entry for each of four batch sizes in turn.
    """
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache

    batches = [batch, batch // 2, batch // 4, batch * 3 // 4]
    found: dict[str, Any] = {"batches": batches}
    for name, dynamic in (("static", False), ("automatic", None)):
        torch._dynamo.reset()
        counters.clear()
        with fresh_cache():  # or an earlier run's compilation would be found on the disk
            step = torch.compile(_module(device, dim, hidden), dynamic=dynamic)
            found[name] = _first_calls(step, batches, seq, dim, device, lambda: counters["stats"]["unique_graphs"])
    if device == "cuda":
        with fresh_cache():
            swapped = liger(device, batch, seq, dim, hidden).step
            found["liger"] = _first_calls(swapped, batches, seq, dim, device, liger_kernels_compiled)
    return found


# --8<-- [end:new_shapes]


def _first_calls(step: Any, batches: list[int], seq: int, dim: int, device: str, count: Any) -> dict[str, list[float]]:
    import torch

    compiled: list[float] = []
    first_ms: list[float] = []
    for batch in batches:
        x = torch.randn(batch, seq, dim, dtype=torch.bfloat16, device=device)
        begin = time.perf_counter()
        with torch.no_grad():
            step(x)
        if device == "cuda":
            torch.cuda.synchronize()
        first_ms.append(round((time.perf_counter() - begin) * 1e3, 3))
        compiled.append(count())
    return {"compiled": compiled, "first_call_ms": first_ms}


def liger_kernels_compiled() -> int:
    """Variants of Liger's forward kernel that Triton has compiled in this process."""
    from liger_kernel.ops.geglu import _geglu_tanh_forward_kernel as kernel

    return sum(len(caches[0]) for caches in kernel.device_caches.values())


# --8<-- [start:tuned]
def tuned(
    instruments: Instruments, device: str, batch: int, seq: int, dim: int, hidden: int, times: int
) -> dict[str, Any]:
    """Compile afresh several times and look at how Inductor launches its fused kernel.

    Returns for each time the kernel's grid and block, and its median microseconds in a profile of ten steps.
    """
    import torch
    from torch._inductor.utils import fresh_cache

    if device != "cuda":
        raise NeedsGpu("how a kernel is launched shows only on a GPU")
    module = _module(device, dim, hidden)
    x = torch.randn(batch, seq, dim, dtype=torch.bfloat16, device=device)
    found: dict[str, Any] = {"grid": [], "block": [], "fused_us": []}
    for _ in range(times):
        torch._dynamo.reset()
        with fresh_cache(), torch.no_grad():  # what was measured before lies in the cache
            fused = [one for one in _kernels(instruments, torch.compile(module), x) if one.name.startswith("triton_")]
        found["grid"].append(fused[0].grid)
        found["block"].append(fused[0].block)
        found["fused_us"].append(statistics.median(kernel.duration_us for kernel in fused))
    return found


# --8<-- [end:tuned]


def _kernels(instruments: Instruments, step: Any, x: Any) -> Any:
    """The GPU activities of ten profiled steps, after three that were not."""
    import torch

    for _ in range(3):
        step(x)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiled:
        for _ in range(10):
            step(x)
        torch.cuda.synchronize()
    return instruments.read_activities(profiled)


SMALL_TO_LARGE = ({"batch": 1, "seq": 1}, *({"batch": batch} for batch in (1, 4, 16, 64, 128)))


def _profiled(name: str, make: Any, group: str = "forward", **more: Any) -> Experiment:
    shape = SHAPE | more.pop("shape", {})
    return Experiment(
        chapter="mlp", name=name, label="mlp_fwd", parameters=shape, make=make, work=forward_work, group=group, **more
    )


EXPERIMENTS = (
    _profiled("eager", eager),
    _profiled("compiled", compiled),
    _profiled("liger", liger),
    *(
        _profiled(f"{name}_4096", make, "hidden_4096", shape={"hidden": 4096})
        for name, make in (("eager", eager), ("compiled", compiled), ("liger", liger))
    ),
    _profiled("sweep_eager", eager, "sweep", sweep=SMALL_TO_LARGE),
    _profiled("sweep_compiled", compiled, "sweep", sweep=SMALL_TO_LARGE),
    _profiled("sweep_liger", liger, "sweep", sweep=SMALL_TO_LARGE),
    Experiment(chapter="mlp", name="new_shapes", parameters=SHAPE, probe=new_shapes, time_limit_s=180),
    Experiment(chapter="mlp", name="tuned", parameters={**SHAPE, "times": 12}, probe=tuned, time_limit_s=180),
)
