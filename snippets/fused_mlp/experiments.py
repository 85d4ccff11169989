"""What the chapter fused_mlp measures: hand-written kernels beside everything
else a user could pick."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import (
    Experiment,
    Instruments,
    NeedsGpu,
    Subject,
    Work,
)
from snippets.mlp.experiments import liger_layers

if TYPE_CHECKING:
    from collections.abc import Callable

SERIES = {"tokens": 8192, "dim": 768, "hidden": 3072}
"""The shape of the series' MLP: 64 sequences of 128 tokens."""
SHAPES = (
    (8192, 768, 3072),
    (4096, 2048, 8192),
    (1024, 4096, 14336),
    (65536, 256, 1024),
    (128, 4096, 14336),
    (1, 4096, 14336),
    (8192, 768, 3080),
)
"""(tokens, dim, hidden): the series', two wide, one tall and thin, two of few
tokens, a width that no tile divides."""
FLOAT16_SHAPES = SHAPES[:4]
TUNED = ((8192, 768, 3072), (128, 4096, 14336), (1, 4096, 14336))
"""Where `chosen` tunes."""
ORDERED = ((8192, 768, 3072), (4096, 2048, 8192), (1024, 4096, 14336))
"""Where `steps` times two orders of the tiles: the longer the sum, the more an
order matters."""
PACKAGE = Path(__file__).parent / "geglu_kernels"


# Work: the least that has to be done


def pointwise_work(tokens: int, hidden: int) -> Work:
    """Two tensors read, one written, two bytes an element."""
    return Work(bytes=2 * 3 * tokens * hidden)


def linear_work(tokens: int, dim: int, outputs: int) -> Work:
    """x, weight, bias and the result once each."""
    return Work(
        bytes=2 * (tokens * dim + dim * outputs + outputs + tokens * outputs),
        matmuls=((tokens, dim, outputs),),
    )


def gate_up_work(tokens: int, dim: int, hidden: int) -> Work:
    """x, two weights and the hidden tensor once each; counted as the one
    product that it can be."""
    return Work(
        bytes=2 * (tokens * dim + 2 * dim * hidden + tokens * hidden),
        matmuls=((tokens, dim, 2 * hidden),),
    )


def forward_work(
    tokens: int, dim: int, hidden: int, dtype: str = "bfloat16"
) -> Work:
    """x, three weights and the result once each: the hidden tensor need not
    exist."""
    products = ((tokens, dim, 2 * hidden), (tokens, hidden, dim))
    return Work(
        bytes=2 * (2 * tokens * dim + 3 * dim * hidden),
        matmuls=products,
        dtype=dtype,
    )


def training_work(tokens: int, dim: int, hidden: int) -> Work:
    """Forward, and twice as much backward: each product has a gradient for
    either operand.

    No bare matmul is timed for it: its products differ in layout.
    """
    forward = forward_work(tokens, dim, hidden)
    return Work(bytes=2 * forward.bytes, other_flops=3 * forward.flops)


def _random(
    *shape: int,
    scale: float = 1.0,
    device: str = "cuda",
    dtype: str = "bfloat16",
) -> Any:
    import torch

    return (
        torch.randn(*shape, device=device, dtype=getattr(torch, dtype)) * scale
    )


def _need_gpu(device: str) -> None:
    if device != "cuda":
        raise NeedsGpu(
            "these kernels are Triton's and Gluon's, which have no CPU "
            "backend: fused_mlp/eager runs here"
        )


def _need_hopper(device: str) -> None:
    """Where the kernels cannot run, the module falls back to plain PyTorch,
    which must not be recorded as ours."""
    import torch

    _need_gpu(device)
    if torch.cuda.get_device_capability()[0] != 9:
        name = torch.cuda.get_device_name()
        raise NeedsGpu(
            "these kernels are written for Hopper (compute capability 9.0), "
            f"and this is {name}"
        )


# The activation alone


def pointwise_steps(device: str) -> dict[str, Callable[..., Any]]:
    """Four ways to compute gelu(gate) * up of two tensors."""
    import torch
    from torch.nn import functional as F

    from snippets.fused_mlp.geglu.model import gated_activation

    def eager(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return F.gelu(gate, approximate="tanh") * up

    found: dict[str, Callable[..., Any]] = {
        "eager": eager,
        "compiled": torch.compile(eager),
        "fused": gated_activation,
    }
    if device == "cuda":
        from liger_kernel.ops.geglu import LigerGELUMulFunction

        found["liger"] = LigerGELUMulFunction.apply
    return found


def pointwise(device: str, variant: str, tokens: int, hidden: int) -> Subject:
    """One of the four, or a copy that moves as many bytes: half of them read,
    half written."""
    import torch
    from torch.nn import functional as F

    if variant == "copy":
        return Subject(
            step=_without_gradients(torch.clone),
            inputs=lambda: (_random(3 * tokens, hidden // 2, device=device),),
            reference=lambda source: source,
            tolerance=0.0,
        )
    if variant not in ("eager", "compiled"):
        _need_gpu(device)
    return Subject(
        step=_without_gradients(pointwise_steps(device)[variant]),
        inputs=lambda: (
            _random(tokens, hidden, device=device),
            _random(tokens, hidden, device=device),
        ),
        reference=lambda gate, up: (
            F.gelu(gate.double(), approximate="tanh") * up.double()
        ),
    )


def _without_gradients(step: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    def run(*inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            result: torch.Tensor = step(*inputs)
            return result

    return run


# A linear layer with its activation


# --8<-- [start:linear]
def linear_steps(weight: Any, bias: Any) -> dict[str, Callable[..., Any]]:
    """Four ways to compute gelu(x @ weight.T + bias); the third is cuBLAS's own
    epilogue."""
    import torch
    from torch.nn import functional as F

    from snippets.fused_mlp.geglu.model import linear

    def eager(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, weight, bias), approximate="tanh")

    return {
        "eager": eager,
        "compiled": torch.compile(eager),
        "addmm": lambda x: torch._addmm_activation(
            bias, x, weight.t(), use_gelu=True
        ),
        "fused": lambda x: linear(x, weight, bias, "gelu_tanh"),
    }


# --8<-- [end:linear]


def linear_activation(
    device: str, variant: str, tokens: int, dim: int, outputs: int
) -> Subject:
    """One of the four. On a CPU, `addmm` computes GELU by erf and is refused
    there."""
    from torch.nn import functional as F

    if variant == "addmm":
        _need_gpu(device)
    if variant == "fused":
        _need_hopper(device)
    weight, bias = (
        _random(outputs, dim, scale=dim**-0.5, device=device),
        _random(outputs, device=device),
    )
    return Subject(
        step=_without_gradients(linear_steps(weight, bias)[variant]),
        inputs=lambda: (_random(tokens, dim, device=device),),
        reference=lambda x: F.gelu(
            F.linear(x.double(), weight.double(), bias.double()),
            approximate="tanh",
        ),
    )


# Gate and up


def gate_up_step(variant: str, gate: Any, up: Any) -> Callable[..., Any]:
    """One way to compute gelu(x @ gate.T) * (x @ up.T); `bare` is the product
    alone, without the activation."""
    import torch
    from torch.nn import functional as F

    from snippets.fused_mlp.geglu import model

    stacked = torch.stack([gate, up])
    if variant == "bare":
        return lambda x: x @ stacked.view(-1, gate.shape[1]).t()
    if variant == "eager":
        return lambda x: F.gelu(x @ gate.t(), approximate="tanh") * (x @ up.t())
    if variant == "fused":
        return lambda x: model.gate_up(x, gate, up, "gelu_tanh")

    def tuned(x: torch.Tensor) -> torch.Tensor:
        candidates = {
            f"{tiles.name}, {tiles.warps} warps": functools.partial(
                model.stacked_gate_up, x, stacked, "gelu_tanh", tiles
            )
            for tiles in model.STACKED
        }
        return model.fastest(
            ("stacked", model.bucket(x.shape[0]), *gate.shape), candidates
        )()

    return tuned


def gate_up(
    device: str, variant: str, tokens: int, dim: int, hidden: int
) -> Subject:
    """The first two products and the activation, as far as a variant fuses
    them."""
    from snippets.fused_mlp.geglu.support import gated_reference

    if variant not in ("bare", "eager"):
        _need_hopper(device)
    gate, up = (
        _random(hidden, dim, scale=dim**-0.5, device=device) for _ in range(2)
    )
    step = gate_up_step(variant, gate, up)

    def reference(x: Any) -> Any:
        if variant == "bare":
            import torch

            return x.double() @ torch.cat([gate, up]).double().t()
        return gated_reference(x, gate, up)

    return Subject(
        step=_without_gradients(step),
        inputs=lambda: (_random(tokens, dim, device=device),),
        reference=reference,
    )


# The whole forward


def forward_step(variant: str, plain: Any, device: str) -> Callable[..., Any]:
    """The forward pass of a plain GeGLU module with its own weights, one way of
    seven."""
    import torch
    from torch import nn

    from snippets.fused_mlp.geglu.model import FusedGeGLU

    if variant == "eager":
        return plain
    if variant in COMPILED:
        return torch.compile(plain, mode=COMPILED[variant])
    if variant in ("kernelized", "fused"):
        _need_hopper(device)
        return (
            kernelized(plain)
            if variant == "kernelized"
            else FusedGeGLU.like(plain)
        )
    _need_gpu(device)
    liger = liger_layers()[0].LigerGEGLUMLP()
    for name, layer in plain.named_children():
        assert isinstance(layer, nn.Linear)
        setattr(liger, name, layer)
    return liger


COMPILED = {
    "compiled": "default",
    "reduce_overhead": "reduce-overhead",
    "max_autotune": "max-autotune-no-cudagraphs",
}
"""Modes of `torch.compile`. Timing replays CUDA graphs of its own, so the last
one is asked not to make any."""


# --8<-- [start:kernelize]
def kernelized(plain: Any) -> Any:
    """The plain module, its forward replaced by that of the package, which is
    loaded from a folder."""
    from kernels import (
        LocalLayerRepository,
        Mode,
        kernelize,
        replace_kernel_forward_from_hub,
        use_kernel_mapping,
    )

    replace_kernel_forward_from_hub(type(plain), "FusedGeGLU")
    package = LocalLayerRepository(PACKAGE, layer_name="FusedGeGLU")
    with use_kernel_mapping(
        {"FusedGeGLU": {"cuda": package}}, inherit_mapping=False
    ):
        return kernelize(
            plain, mode=Mode.INFERENCE, device="cuda", use_fallback=False
        )


# --8<-- [end:kernelize]


def forward(
    device: str,
    variant: str,
    tokens: int,
    dim: int,
    hidden: int,
    dtype: str = "bfloat16",
) -> Subject:
    """The whole forward pass of one variant, checked against float64."""
    import torch

    from snippets.mlp.model import GeGLU, geglu_reference

    class Plain(GeGLU):
        """A class of its own, which `kernelize` may change."""

    plain = Plain(dim, hidden).to(device, dtype=getattr(torch, dtype)).eval()
    weights = [
        layer.weight.detach()
        for layer in (plain.gate_proj, plain.up_proj, plain.down_proj)
    ]
    return Subject(
        step=_without_gradients(forward_step(variant, plain, device)),
        inputs=lambda: (_random(tokens, dim, device=device, dtype=dtype),),
        reference=lambda x: geglu_reference(x, *weights),
        in_graph=variant != "reduce_overhead",  # which is a CUDA graph already
    )


# Forward and backward


def training(
    device: str, variant: str, tokens: int, dim: int, hidden: int
) -> Subject:
    """Forward and backward: the gradients of x and of the three weights, for a
    random gradient of the result."""
    import torch

    from snippets.fused_mlp.geglu.model import FusedGeGLU
    from snippets.mlp.model import GeGLU, geglu_reference

    plain = GeGLU(dim, hidden).to(device, dtype=torch.bfloat16)
    if variant.startswith("fused"):
        _need_hopper(device)
        step: Any = FusedGeGLU.like(
            plain, recompute=variant == "fused_recompute"
        )
    else:
        step = forward_step(variant, plain, device)
    weights = list(plain.parameters())

    def gradients(x: torch.Tensor, d_out: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(step(x), (x, *weights), d_out)[0]

    def reference(x: torch.Tensor, d_out: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            exact = x.detach().double().requires_grad_()
            result = geglu_reference(
                exact, *(weight.detach() for weight in weights)
            )
            return torch.autograd.grad(result, exact, d_out.double())[0]

    return Subject(
        step=gradients,
        inputs=lambda: (
            _random(tokens, dim, device=device),
            _random(tokens, dim, device=device),
        ),
        reference=reference,
    )


# What a profile cannot say


def chosen(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """What tuning chose for the two kernels of the forward at each shape, and
    how long every candidate took.

    Returns {"TOKENSxDIMxHIDDEN": {"gate_up": {candidate: microseconds},
    "forward": {...}}}, the fastest first.
    """
    import torch

    from snippets.fused_mlp.geglu import model

    _need_hopper(device)
    found: dict[str, Any] = {}
    for shape in TUNED:
        model.CHOICES.clear()
        tokens, dim, hidden = shape
        module = model.FusedGeGLU(dim, hidden).to(device, dtype=torch.bfloat16)
        with torch.no_grad():
            module(_random(tokens, dim, device=device))
        found["x".join(map(str, shape))] = {
            key[0]: {name: round(time_us, 2) for name, time_us in times.items()}
            for key, times in model.CHOICES.items()
        }
        del module
        torch.cuda.empty_cache()
    return found


def resources(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """What each kernel takes of a multiprocessor, from the compiled kernel and
    from the device.

    Returns {kernel: {"registers", "spills", "shared_bytes", "warps"}} and
    {"device": its limits}.
    """
    import torch
    from triton.runtime import driver

    from snippets.fused_mlp.geglu import model

    _need_hopper(device)
    properties = torch.cuda.get_device_properties(0)
    found: dict[str, Any] = {
        "device": {
            "multiprocessors": properties.multi_processor_count,
            "registers": driver.active.utils.get_device_properties(0)[
                "max_num_regs"
            ],
            "shared_bytes": properties.shared_memory_per_multiprocessor,
            "threads": properties.max_threads_per_multi_processor,
        }
    }
    x = _random(tokens, dim, device=device)
    gate, up = (
        _random(hidden, dim, scale=dim**-0.5, device=device) for _ in range(2)
    )
    both = torch.stack([gate, up])
    hidden_tensor = model.pingpong(
        x, gate, up, None, "gelu_tanh", model.PINGPONG_GATED[0]
    )[0]
    runs = {
        "gated_activation_kernel": lambda: model.gated_activation(
            hidden_tensor, hidden_tensor
        ),
        "gate_up_kernel": lambda: model.stacked_gate_up(
            x, both, "gelu_tanh", model.STACKED[0]
        ),
        "pingpong_kernel": lambda: model.pingpong(
            x, gate, up, None, "gelu_tanh", model.PINGPONG_GATED[0]
        ),
    }
    for name, run in runs.items():
        kernel = getattr(model, name)
        kernel.device_caches.clear()
        run()
        (one,) = (
            one
            for caches in kernel.device_caches.values()
            for one in caches[0].values()
        )
        found[name] = {
            "registers": one.n_regs,
            "spills": one.n_spills,
            "shared_bytes": one.metadata.shared,
            "warps": one.metadata.num_warps,
        }
    return found


def generated(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """The code that Inductor generates for the forward: what it launches, in
    order, and its Triton kernels' source.

    "one_token" is that of max-autotune for a single token, at the widest shape
    of the table.
    """
    import re

    import torch
    from torch._inductor.utils import fresh_cache, run_and_get_code

    from snippets.mlp.model import GeGLU

    _need_gpu(device)
    found: dict[str, Any] = {}
    series = (tokens, dim, hidden)
    cases = {
        "compiled": series,
        "max_autotune": series,
        "one_token": (1, 4096, 14336),
    }
    for case, (rows, width, wide) in cases.items():
        plain = GeGLU(width, wide).to(device, dtype=torch.bfloat16).eval()
        torch._dynamo.reset()
        with fresh_cache(), torch.no_grad():
            compiled = torch.compile(
                plain, mode=COMPILED.get(case, COMPILED["max_autotune"])
            )
            _, (code, *_) = run_and_get_code(
                compiled, _random(rows, width, device=device)
            )
        body = code[code.index("def call(") :]
        found[case] = {
            "calls": re.findall(
                r"(extern_kernels\.\w+|triton_\w+)(?:\.run)?\(", body
            ),
            "kernels": re.findall(
                r"@triton\.jit\n(def triton_.*?)\n'''", code, re.DOTALL
            ),
        }
    return found


def quack(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """The forward and its first half beside QuACK's gemm_gated (CuTe DSL),
    interleaved, where that package is there.

    QuACK runs untuned, with its default tiles. Returns {"version", "gate_up":
    {variant: samples in microseconds}, "forward": {...}}, sample i of any two a
    pair; or {"missing": why}.
    """
    import importlib.metadata

    import torch
    from torch.nn import functional as F

    _need_hopper(device)
    try:
        from quack.gemm_interface import gemm_gated  # type: ignore[import-not-found]
    except ImportError as missing:
        return {"missing": str(missing)}
    from snippets.fused_mlp.geglu import model

    gate, up = (
        _random(hidden, dim, scale=dim**-0.5, device=device) for _ in range(2)
    )
    down = _random(dim, hidden, scale=hidden**-0.5, device=device)
    both = torch.cat([gate, up])

    def first_half(x: torch.Tensor) -> torch.Tensor:
        _, hidden_tensor = gemm_gated(
            x,
            both.t(),
            activation="geglu",
            store_preact=False,
            tuned=False,
            concat_layout=("B",),
        )
        result: torch.Tensor = hidden_tensor
        return result

    parts: dict[str, dict[str, Callable[..., Any]]] = {
        "gate_up": {
            "quack": first_half,
            "fused": gate_up_step("fused", gate, up),
            "bare": gate_up_step("bare", gate, up),
        },
        "forward": {
            "quack": lambda x: F.linear(first_half(x), down),
            "fused": lambda x: model.gated_mlp(x, gate, up, down),
            "eager": lambda x: F.linear(
                gate_up_step("eager", gate, up)(x), down
            ),
        },
    }
    found: dict[str, Any] = {
        "version": importlib.metadata.version("quack-kernels")
    }
    for part, steps in parts.items():
        x = _random(tokens, dim, device=device)
        exact = model.gated_reference(x, gate, up)
        exact = exact @ down.double().t() if part == "forward" else exact
        for name in ("quack", "fused"):
            with torch.no_grad():
                relative = (
                    (steps[name](x).double() - exact).norm() / exact.norm()
                ).item()
            if not relative < 1e-2:
                raise ArithmeticError(
                    f"{part}/{name}: relative error {relative:.1e}"
                )
            found[f"{part}_{name}_error"] = relative
        found[part] = _interleaved(instruments, steps, tokens, dim)
    return found


def _interleaved(
    instruments: Instruments,
    steps: dict[str, Callable[..., Any]],
    tokens: int,
    dim: int,
) -> dict[str, list[float]]:
    """Interleaved samples of steps that take x of (tokens, dim); sample i of
    one and of another are a pair."""
    times = instruments.time_interleaved(_subjects(steps, tokens, dim))
    return {name: list(one.samples_us) for name, one in times.items()}


def _subjects(
    steps: dict[str, Callable[..., Any]], tokens: int, dim: int
) -> dict[str, Subject]:
    return {
        name: Subject(
            step=_without_gradients(step),
            inputs=lambda: (_random(tokens, dim),),
            reference=lambda x: x,
        )
        for name, step in steps.items()
    }


def steps(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """What each idea behind the ping-pong kernel is worth: the same work with
    one of them left out, interleaved.

    Returns {"gate_up": {variant: samples in microseconds}, "forward": {...},
    ...}, sample i of any two a pair.
    """
    from snippets.fused_mlp.geglu import kernels, model

    _need_hopper(device)
    gate, up, down = _weights(dim, hidden)
    first = model.PINGPONG_GATED[1]

    def half(tiles: Any) -> Callable[..., Any]:
        return lambda x: model.pingpong(x, gate, up, None, "gelu_tanh", tiles)[
            0
        ]

    def with_activation(name: str) -> Callable[..., Any]:
        return lambda x: model.pingpong(x, gate, up, None, name, first)[0]

    parts = {
        "activation": {
            name: with_activation(name) for name in kernels.ACTIVATIONS
        },
        "gate_up": {
            "stacked": gate_up_step("stacked", gate, up),
            "hand over at the end": half(first._replace(lead=1)),
            "hand over early": half(first),
            "four slots": half(first._replace(slots=4)),
        },
        "forward": {
            "cuBLAS down": lambda x: half(first)(x) @ down.t(),
            **two_launches(gate, up, down),
        },
    }
    found = {
        part: _interleaved(instruments, variants, tokens, dim)
        for part, variants in parts.items()
    }
    for shape in ORDERED:
        tokens, dim, hidden = shape
        gate, up, _ = _weights(dim, hidden)
        orders = {
            f"group {group}": half(first._replace(group=group))
            for group in (1, 8)
        }
        found["x".join(map(str, shape))] = _interleaved(
            instruments, orders, tokens, dim
        )
    return found


def _weights(dim: int, hidden: int) -> tuple[Any, Any, Any]:
    """Of gate, up and down, at the scale of a trained layer."""
    gate, up = (_random(hidden, dim, scale=dim**-0.5) for _ in range(2))
    return gate, up, _random(dim, hidden, scale=hidden**-0.5)


def two_launches(
    gate: Any, up: Any, down: Any
) -> dict[str, Callable[..., Any]]:
    """Our two kernels with fixed tiles: either launched before the kernel ahead
    of it has ended, or after."""
    from snippets.fused_mlp.geglu import model

    def forward(dependent: bool) -> Callable[..., Any]:
        first, second = (
            tiles._replace(dependent=dependent)
            for tiles in (model.PINGPONG_GATED[1], model.PINGPONG[1])
        )

        def step(x: Any) -> Any:
            hidden = model.pingpong(x, gate, up, None, "gelu_tanh", first)[0]
            return model.pingpong(hidden, down, None, None, "none", second)[0]

        return step

    return {
        "launched early": forward(True),
        "one after the other": forward(False),
    }


TRACED_STEPS = 5
LOAD_S = 1.0


def launches(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """The two kernels with and without dependent launch: timed, then traced
    after a rest and behind a load.

    Returns {"interleaved": {variant: samples_us}, "steady": {variant:
    {"samples_us", "clock_mhz", "watts"}}, "rested": {variant: steps}, "loaded":
    {variant: steps}}. A step is a list of its kernels, each as [launched,
    started, ended], in microseconds from the start of its first. "first half
    alone" has only the first kernel.
    """
    from snippets.fused_mlp.geglu import model

    _need_hopper(device)
    gate, up, down = _weights(dim, hidden)
    variants = {
        **two_launches(gate, up, down),
        "first half alone": lambda x: model.pingpong(
            x, gate, up, None, "gelu_tanh", model.PINGPONG_GATED[1]
        )[0],
    }
    subjects = _subjects(variants, tokens, dim)
    found: dict[str, Any] = {
        "interleaved": _interleaved(instruments, variants, tokens, dim)
    }
    found["steady"] = {
        name: {
            "samples_us": list(one.samples_us),
            "clock_mhz": one.clock_mhz,
            "watts": one.watts,
        }
        for name, one in instruments.time_steady(subjects).items()
    }
    for state, load_s in {"rested": 0.0, "loaded": LOAD_S}.items():
        found[state] = {
            name: _traced(
                instruments,
                subject,
                load_s,
                kernels=1 if name == "first half alone" else 2,
            )
            for name, subject in subjects.items()
        }
    return found


def _traced(
    instruments: Instruments, subject: Subject, load_s: float, kernels: int
) -> list[list[list[float]]]:
    """The last steps of a profile, launched from Python behind a second of
    graph replays, of rest, or of both."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    (x,) = subject.inputs()
    subject.step(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [subject.step(x) for _ in range(50)]
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]
    ) as finished:
        time.sleep(LOAD_S - load_s)
        until = time.perf_counter() + load_s
        while time.perf_counter() < until:
            graph.replay()
            torch.cuda.synchronize()
        for _ in range(TRACED_STEPS):
            subject.step(x)
        torch.cuda.synchronize()
    del graph, results
    traced = [
        one
        for one in instruments.read_activities(finished)
        if one.kind == "kernel"
    ]
    traced = sorted(traced, key=lambda kernel: kernel.start_us)[
        -kernels * TRACED_STEPS :
    ]
    steps = [
        traced[index : index + kernels]
        for index in range(0, len(traced), kernels)
    ]
    return [
        [_relative_us(kernel, step[0].start_us) for kernel in step]
        for step in steps
    ]


def _relative_us(kernel: Any, zero_us: float) -> list[float]:
    """When a kernel was launched, started and ended."""
    launched_us = kernel.launch.start_us if kernel.launch else kernel.start_us
    return [
        round(us - zero_us, 3)
        for us in (
            launched_us,
            kernel.start_us,
            kernel.start_us + kernel.duration_us,
        )
    ]


def enqueued(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """What a call of our forward costs the CPU, part by part, by leaving parts
    out.

    Returns {what is left of the call: microseconds of a call, a sample for each
    of many turns}.
    """
    from contextlib import nullcontext
    from unittest.mock import patch

    import torch

    from snippets.fused_mlp.geglu import model

    _need_hopper(device)
    x, weights = _random(tokens, dim), _weights(dim, hidden)
    kind = (model.bucket(tokens), hidden, dim, x.dtype, x.device.index)
    model.CHOICES["gate_up", *kind] = {
        f"ping-pong {model.PINGPONG_GATED[0].name}": 0.0
    }
    model.CHOICES["forward", *kind] = {
        f"ping-pong {model.PINGPONG[0].name}": 0.0
    }

    class NoKernel:
        def __getitem__(self, grid: object) -> Callable[..., None]:
            return lambda *arguments, **options: None

    def no_pingpong(
        x: torch.Tensor, weight: torch.Tensor, *_: object
    ) -> tuple[torch.Tensor, ...]:
        return (x.new_empty(x.shape[0], weight.shape[0]),)

    schema = "(Tensor x, Tensor gate, Tensor up, Tensor down, str activation) -> Tensor"
    nothing = torch.library.custom_op(
        "fused_mlp_probe::nothing",
        lambda x, *_: torch.empty_like(x),
        mutates_args=(),
        schema=schema,
    )
    cases: dict[str, tuple[Any, Any]] = {
        "an empty operator": (nothing, nullcontext),
        "without kernels and descriptors": (
            model.forward,
            lambda: patch.object(model, "pingpong", no_pingpong),
        ),
        "without kernels": (
            model.forward,
            lambda: patch.object(model, "pingpong_kernel", NoKernel()),
        ),
        "the whole call": (model.forward, nullcontext),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    with torch.no_grad():
        for _ in range(instruments.rounds):
            for name, (call, leave_out) in cases.items():
                with leave_out():
                    found[name].append(
                        _cpu_us(
                            functools.partial(call, x, *weights, "gelu_tanh")
                        )
                    )
    return {name: samples[1:] for name, samples in found.items()}


def _cpu_us(call: Callable[[], object]) -> float:
    """Mean CPU time of twenty calls in a row, few enough that the GPU's queue
    is never full."""
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for _ in range(20):
        call()
    return round((time.perf_counter_ns() - begin) / 20e3, 3)


def new_shapes(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """Feed numbers of tokens never seen before, take the time of each first
    call, and count what has been built.

    Returns {"tokens": [...], variant: {"first_call_ms": [...],
    "second_call_ms": [...], "built": [...]}}: "built" is the number of graphs
    compiled so far, of ours the number of times that the forward has been
    tuned.
    """
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache

    from snippets.fused_mlp.geglu import hopper_kernels, model
    from snippets.mlp.model import GeGLU

    _need_hopper(device)
    sizes = [
        tokens,
        tokens - 8,
        tokens * 3 // 4,
        tokens // 2,
        tokens // 2 - 100,
    ]
    found: dict[str, Any] = {"tokens": sizes}
    plain = GeGLU(dim, hidden).to(device, dtype=torch.bfloat16).eval()
    fused = model.FusedGeGLU.like(plain)
    steps: dict[str, Any] = {
        "static": torch.compile(plain, dynamic=False),
        "automatic": torch.compile(plain),
        "fused": fused,
    }
    for name, step in steps.items():
        torch._dynamo.reset()
        counters.clear()
        model.CHOICES.clear()
        hopper_kernels.pingpong_kernel.device_caches.clear()
        milliseconds: dict[str, list[float]] = {
            "first_call_ms": [],
            "second_call_ms": [],
        }
        built: list[int] = []
        with fresh_cache(), torch.no_grad():
            for size in sizes:
                x = _random(size, dim, device=device)
                for calls in milliseconds.values():
                    torch.cuda.synchronize()
                    begin = time.perf_counter()
                    step(x)
                    torch.cuda.synchronize()
                    calls.append(round((time.perf_counter() - begin) * 1e3, 3))
                tuned = sum(key[0] == "forward" for key in model.CHOICES)
                built.append(
                    tuned
                    if name == "fused"
                    else counters["stats"]["unique_graphs"]
                )
        found[name] = {**milliseconds, "built": built}
    return found


def _variants(
    prefix: str,
    make: Any,
    work: Any,
    names: tuple[str, ...],
    parameters: Any,
    **more: Any,
) -> Any:
    """An experiment for each variant; those of one prefix are timed in
    turns."""
    group = prefix.strip("_") or "forward"
    for name in names:
        yield Experiment(
            chapter="fused_mlp",
            name=prefix + name,
            label=f"fused_mlp_{group}",
            group=group,
            parameters=parameters,
            make=functools.partial(make, variant=name),
            work=work,
            **more,
        )


POINTWISE = {"tokens": 8192, "hidden": 3072}
SMALL, LARGE = (
    {"tokens": tokens, "dim": 1024, "outputs": 4096} for tokens in (64, 8192)
)
LINEAR = ("eager", "compiled", "addmm", "fused")
GATE_UP = ("bare", "eager", "stacked", "fused")
PEERS = (
    "eager",
    "compiled",
    "max_autotune",
    "reduce_overhead",
    "liger",
    "fused",
)
IN_TABLE = {
    "bfloat16": (
        ("eager", "compiled", "max_autotune", "liger", "fused"),
        SHAPES,
    ),
    "float16": (("eager", "compiled", "liger", "fused"), FLOAT16_SHAPES),
}
"""Variants and shapes of each type; max-autotune takes the longest to build, so
float16 does without."""
TRAINING = ("eager", "compiled", "liger", "fused", "fused_recompute")


def _table(dtype: str) -> Any:
    names, shapes = IN_TABLE[dtype]
    sweep = tuple(
        {"tokens": tokens, "dim": dim, "hidden": hidden}
        for tokens, dim, hidden in shapes
    )
    parameters = {**SERIES, "dtype": dtype}
    return _variants(
        f"{dtype}_",
        forward,
        forward_work,
        names,
        parameters,
        sweep=sweep,
        time_limit_s=90,
    )


EXPERIMENTS = (
    *_variants(
        "pointwise_",
        pointwise,
        pointwise_work,
        ("eager", "compiled", "liger", "fused", "copy"),
        POINTWISE,
    ),
    *_variants("linear_64_", linear_activation, linear_work, LINEAR, SMALL),
    *_variants("linear_8192_", linear_activation, linear_work, LINEAR, LARGE),
    *_variants("gate_up_", gate_up, gate_up_work, GATE_UP, SERIES),
    *_variants("", forward, forward_work, (*PEERS, "kernelized"), SERIES),
    *_variants("training_", training, training_work, TRAINING, SERIES),
    *_table("bfloat16"),
    *_table("float16"),
    *(
        Experiment(
            chapter="fused_mlp",
            name=probe.__name__,
            parameters=SERIES,
            probe=probe,
            time_limit_s=180,
        )
        for probe in (
            chosen,
            resources,
            generated,
            quack,
            steps,
            launches,
            enqueued,
            new_shapes,
        )
    ),
)
