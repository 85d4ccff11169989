"""What the chapter attention measures: one function, nine ways, forward,
trained, decoding, and as sequences grow."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import itertools
import os
import re
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import (
    Experiment,
    Instruments,
    NeedsGpu,
    Subject,
    Work,
    matmul_subject,
)
from snippets.mlp.experiments import hub_reachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor

    Step = Callable[..., Tensor]

SHAPE = {"batch": 8, "heads": 16, "tokens": 1024, "head_dim": 64}
"""The series' shape."""
DECODE = {"batch": 8, "heads": 16, "keys": 8192, "head_dim": 64}
HUB_KERNELS = "kernels-community/flash-attn2"
HUB_VERSION = 1


# The least work of each step


def _product(rows: int, keys: int, head_dim: int) -> int:
    """FLOP of the scores, or of their product with the values; `rows` are the
    queries of all heads.

    Each head has factors of its own, so no bare matmul does the same work and
    none is measured as a ceiling.
    """
    return 2 * rows * head_dim * keys


def forward_work(batch: int, heads: int, tokens: int, head_dim: int) -> Work:
    """q, k, v and the result once each in bf16, and two products, causal: a
    query has half the keys on average.

    Attention's rates are usually quoted with this half. A kernel that computes
    all scores and then hides half does twice as many FLOP.
    """
    rows = batch * heads * tokens
    return Work(
        bytes=2 * 4 * rows * head_dim,
        other_flops=2 * _product(rows, -(-tokens // 2), head_dim),
    )


def training_work(batch: int, heads: int, tokens: int, head_dim: int) -> Work:
    """q, k, v, the result's gradient and three gradients once each; two causal
    products forward, four backward.

    A fused backward recomputes the scores instead of reading them. This seventh
    product is not counted.
    """
    rows = batch * heads * tokens
    return Work(
        bytes=2 * 7 * rows * head_dim,
        other_flops=6 * _product(rows, -(-tokens // 2), head_dim),
    )


def decode_work(batch: int, heads: int, keys: int, head_dim: int) -> Work:
    """All keys and values, one query and one result for each head; no two
    queries share a key."""
    rows = batch * heads
    return Work(
        bytes=2 * 2 * rows * (keys + 1) * head_dim,
        other_flops=2 * _product(rows, keys, head_dim),
    )


def _random(
    shape: Sequence[int], device: str, count: int
) -> tuple[Tensor, ...]:
    import torch

    return tuple(
        torch.randn(*shape, dtype=torch.bfloat16, device=device)
        for _ in range(count)
    )


def _without_gradients(step: Step) -> Step:
    import torch

    def run(*inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return step(*inputs)

    return run


# Nine ways


def attention(
    variant: str, device: str, tokens: int, causal: bool = True
) -> Step:
    """One variant of attention of q, k and v. Its mask is built here, once;
    without `causal` it has no mask."""
    import torch

    from snippets.attention import model

    if variant == "flex":
        blocks = model.causal_blocks(tokens, device) if causal else None
        flex = torch.compile(model.flex, dynamic=False)
        return lambda q, k, v: flex(q, k, v, blocks)
    if variant in ("naive", "in_place", "compiled"):
        hidden = model.future(tokens, device) if causal else None
        function = model.in_place if variant == "in_place" else model.naive
        written_out = (
            torch.compile(function, dynamic=False)
            if variant == "compiled"
            else function
        )
        return lambda q, k, v: written_out(q, k, v, hidden)
    if variant in ("efficient", "cudnn") and device != "cuda":
        raise NeedsGpu(
            f"the backend {variant!r} has no kernel for a CPU: attention/math "
            "and attention/flash run here"
        )
    return lambda q, k, v: model.sdpa(q, k, v, variant, causal)


def picked(tensors: Sequence[Tensor]) -> str:
    """The backend that PyTorch picks by itself for causal attention of this q,
    k and v."""
    import torch

    from snippets.attention.model import BACKENDS

    q, k, v = tensors
    chosen = torch._fused_sdp_choice(q, k, v, None, 0.0, True)
    return next(
        name for name, backend in BACKENDS.items() if backend.value == chosen
    )


def _exact(device: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention in float64."""
    from snippets.attention import model

    return model.reference(q, k, v, model.future(q.shape[-2], device))


def forward(
    device: str,
    variant: str,
    batch: int,
    heads: int,
    tokens: int,
    head_dim: int,
) -> Subject:
    """Causal attention of one variant, checked against float64."""
    inputs = functools.partial(
        _random, (batch, heads, tokens, head_dim), device, 3
    )
    return Subject(
        step=_without_gradients(attention(variant, device, tokens)),
        inputs=inputs,
        reference=functools.partial(_exact, device),
        notes={"picked": picked(inputs())} if variant == "auto" else {},
    )


def training(
    device: str,
    variant: str,
    batch: int,
    heads: int,
    tokens: int,
    head_dim: int,
) -> Subject:
    """Forward and backward, causal: the gradients of q, k and v for a random
    gradient of the result.

    The step returns the gradient of q, and capture checks it. This function
    checks the gradients of k and v at the same tolerance.
    """
    import torch

    if variant == "flex" and device != "cuda":
        raise NeedsGpu(
            "FlexAttention has no backward on a CPU: attention/flex and "
            "attention/training_flash run here"
        )
    step = attention(variant, device, tokens)
    inputs = functools.partial(
        _random, (batch, heads, tokens, head_dim), device, 4
    )

    def gradients(step: Step, *tensors: Tensor) -> tuple[Tensor, ...]:
        *operands, d_out = tensors
        with torch.enable_grad():
            operands = [
                operand.detach().requires_grad_() for operand in operands
            ]
            return torch.autograd.grad(step(*operands), operands, d_out)

    def exact(*tensors: Tensor) -> tuple[Tensor, ...]:
        return gradients(
            functools.partial(_exact, device),
            *(tensor.double() for tensor in tensors),
        )

    tensors = inputs()
    for name, found, expected in zip(
        "qkv", gradients(step, *tensors), exact(*tensors), strict=True
    ):
        error = ((found.double() - expected).norm() / expected.norm()).item()
        if not error <= Subject.tolerance:
            raise ArithmeticError(
                f"wrong answer: relative error {error:.2e} in the gradient of "
                f"{name}"
            )
    return Subject(
        step=lambda *tensors: gradients(step, *tensors)[0],
        inputs=inputs,
        reference=lambda *tensors: exact(*tensors)[0],
    )


def decode(
    device: str, variant: str, batch: int, heads: int, keys: int, head_dim: int
) -> Subject:
    """One query for each sequence, as when a model writes its next token: it
    sees every key, so there is no mask."""
    from snippets.attention import model

    def inputs() -> tuple[Tensor, ...]:
        cached = _random((batch, heads, keys, head_dim), device, 2)
        return (*_random((batch, heads, 1, head_dim), device, 1), *cached)

    return Subject(
        step=_without_gradients(attention(variant, device, keys, causal=False)),
        inputs=inputs,
        reference=model.reference,
    )


# Probes: growing sequences

SWEPT = (
    "naive",
    "in_place",
    "math",
    "efficient",
    "flash",
    "cudnn",
    "compiled",
    "flex",
)
SHORTEST = 128
LONGEST_IN_GRAPH = 2048
"""Above this many tokens a step is far longer on the GPU than on the CPU, and a
graph would keep its scores."""
SAMPLED_TOKENS = 40_960
"""Samples times tokens, at most: a sample of the longest takes all variants
together three seconds."""
FEWEST_SAMPLES = 3
PRODUCT = (8192, 8192, 8192)
"""M, K, N of the bare matmul that is timed in the same turns, as a ceiling."""


def lengths(
    instruments: Instruments,
    device: str,
    batch: int,
    heads: int,
    head_dim: int,
    longest: int,
) -> dict[str, Any]:
    """Every variant, forward and causal, from 128 tokens up by powers of two,
    until it runs out of memory.

    Returns {tokens: {"auto": the backend that PyTorch picks, "matmul":
    measured, "variants": {variant: measured}}}; `matmul` is a large bare
    product in the same turns, and measured is {"samples_us", "peak_bytes",
    "error"}, interleaved, or {"stopped": why}.
    """
    if device != "cuda":
        raise NeedsGpu(
            "its times are the GPU's own: attention/flash --tokens 128 runs "
            "here"
        )
    found: dict[str, Any] = {}
    out_of_memory: dict[str, str] = {}
    tokens = SHORTEST
    while tokens <= longest:
        found[str(tokens)] = _at_length(
            instruments, device, (batch, heads, tokens, head_dim), out_of_memory
        )
        tokens *= 2
    return found


def _at_length(
    instruments: Instruments,
    device: str,
    shape: tuple[int, int, int, int],
    out_of_memory: dict[str, str],
) -> dict[str, Any]:
    """One length of `lengths`. `out_of_memory` holds why variants stopped at
    shorter lengths; this function adds to it."""
    import torch

    # a function compiled at eight lengths would silently fall back to eager
    torch._dynamo.reset()
    _free_memory()
    tokens = shape[2]
    drawn = [_random(shape, device, 3)]
    expected = [_exact(device, *drawn[0])]

    def shared() -> Callable[[], tuple[Tensor, ...]]:
        """Return the same sets for each variant: eight times as many would
        leave no memory for the scores."""
        places = itertools.count()

        def inputs() -> tuple[Tensor, ...]:
            place = next(places)
            if place == len(drawn):
                drawn.append(_random(shape, device, 3))
            return drawn[place]

        return inputs

    found: dict[str, dict[str, Any]] = {
        name: {"stopped": why} for name, why in out_of_memory.items()
    }
    subjects: dict[str, Subject] = {}
    for variant in (one for one in SWEPT if one not in out_of_memory):
        with _noting(variant, found):
            step = _without_gradients(attention(variant, device, tokens))
            subject = Subject(
                step,
                shared(),
                lambda *_: expected[0],
                in_graph=tokens <= LONGEST_IN_GRAPH,
            )
            error, _, peak_bytes = instruments.relative_error(subject, device)
            found[variant] = {"peak_bytes": peak_bytes, "error": error}
            subjects[variant] = subject
        if variant not in subjects or tokens > LONGEST_IN_GRAPH:
            _free_memory()
    expected.clear()  # the scores need its room
    found["matmul"] = {}
    _time(
        instruments,
        {"matmul": matmul_subject(device, *PRODUCT), **subjects},
        found,
        tokens,
    )
    matmul = found.pop("matmul")
    for variant, one in found.items():
        if variant not in out_of_memory and one.get("stopped", "").startswith(
            OUT_OF_MEMORY
        ):
            one["stopped"] = out_of_memory[variant] = (
                f"{one['stopped']} at {tokens} tokens"
            )
    return {
        "auto": picked(drawn[0]),
        "matmul": matmul,
        "variants": {variant: found[variant] for variant in SWEPT},
    }


def _time(
    instruments: Instruments,
    subjects: Mapping[str, Subject],
    found: dict[str, dict[str, Any]],
    tokens: int,
) -> None:
    """Time all subjects interleaved, and store the samples in `found`."""
    variants = {}
    for name, subject in subjects.items():
        with _noting(name, found):
            variants[name] = instruments.prepare(
                subject if subject.in_graph else _forgetting(subject)
            )
        if name not in variants or not subject.in_graph:
            _free_memory()
    rounds = max(
        FEWEST_SAMPLES, min(instruments.rounds, SAMPLED_TOKENS // tokens)
    )
    timed = instruments.time_prepared(variants, rounds)
    for name, one in timed.items():
        found[name]["samples_us"] = list(one.samples_us)


def _forgetting(subject: Subject) -> Subject:
    """The same step without a result: kept results would take the memory that
    the scores need."""

    def step(*inputs: Tensor) -> Tensor:
        subject.step(*inputs)
        return inputs[0]

    return dataclasses.replace(subject, step=step)


OUT_OF_MEMORY = "out of memory"


@contextlib.contextmanager
def _noting(variant: str, found: dict[str, dict[str, Any]]) -> Iterator[None]:
    """Store why a variant stops, and continue with the others, unless the error
    leaves the GPU unusable."""
    import torch

    try:
        yield
    except torch.AcceleratorError:
        raise
    except torch.OutOfMemoryError as error:
        asked = re.search(r"Tried to allocate ([\d.]+ \w+)", str(error))
        found[variant] = {
            "stopped": f"{OUT_OF_MEMORY} for {asked[1]} more"
            if asked
            else OUT_OF_MEMORY
        }
    except (RuntimeError, ArithmeticError) as error:
        found[variant] = {
            "stopped": f"{type(error).__name__}: {str(error).splitlines()[0]}"
        }


def _free_memory() -> None:
    """Free unreferenced memory, so that the next variant starts with an empty
    GPU.

    This takes a quarter of a second with the compiler loaded, so short
    sequences skip it.
    """
    import torch

    gc.collect()
    torch.cuda.empty_cache()


# Probes: a kernel from the Hub, and the compiler's code


def hub_flash(
    instruments: Instruments,
    device: str,
    batch: int,
    heads: int,
    tokens: int,
    head_dim: int,
) -> dict[str, Any]:
    """The Hub's flash-attention against PyTorch's, forward and causal,
    interleaved, if the Hub's kernel can be loaded.

    Returns {"version", "samples_us": {variant: interleaved}, "errors":
    {variant: relative error}}; or {"missing": why}.
    """
    from snippets.attention import model

    if device != "cuda":
        raise NeedsGpu(
            "the Hub's flash-attention has no kernel for a CPU: "
            "attention/flash runs here"
        )
    kernel = hub_kernel()
    if isinstance(kernel, str):
        return {"missing": kernel}

    def flash(*by_token: Tensor) -> Tensor:
        q, k, v = (tensor.transpose(1, 2) for tensor in by_token)
        return model.sdpa(q, k, v, "flash").transpose(1, 2)

    def reference(*by_token: Tensor) -> Tensor:
        q, k, v = (tensor.transpose(1, 2) for tensor in by_token)
        return _exact(device, q, k, v).transpose(1, 2)

    steps: dict[str, Step] = {
        "hub": functools.partial(kernel.flash_attn_func, causal=True),
        "flash": flash,
    }
    # the Hub's layout
    inputs = functools.partial(
        _random, (batch, tokens, heads, head_dim), device, 3
    )
    subjects = {
        name: Subject(_without_gradients(step), inputs, reference)
        for name, step in steps.items()
    }
    errors = {
        name: instruments.relative_error(subject, device)[0]
        for name, subject in subjects.items()
    }
    samples_us = {
        name: list(one.samples_us)
        for name, one in instruments.time_interleaved(subjects).items()
    }
    return {"version": HUB_VERSION, "samples_us": samples_us, "errors": errors}


def hub_kernel() -> Any:
    """The Hub's module, or a sentence with the reason why it cannot be loaded.
    Uses the network only if it answers immediately."""
    is_here = HUB_KERNELS in os.environ.get(
        "LOCAL_KERNELS", ""
    ) or os.environ.get("HF_HUB_OFFLINE")
    if not (is_here or hub_reachable()):
        return "the Hugging Face Hub cannot be reached from here"
    try:
        from kernels import get_kernel

        return get_kernel(HUB_KERNELS, version=HUB_VERSION)
    except (ImportError, OSError, RuntimeError, ValueError) as missing:
        return f"{type(missing).__name__}: {str(missing).splitlines()[0]}"


def compiled_code(
    instruments: Instruments,
    device: str,
    batch: int,
    heads: int,
    tokens: int,
    head_dim: int,
) -> dict[str, Any]:
    """The code that Inductor generates for the naive forward, and whether
    Inductor recognized attention.

    Returns {"fused_attention": how many patterns it replaced by a call of SDPA,
    "calls": what the generated code runs, in order, "kernels": the source of
    its Triton kernels}.
    """
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_cache, run_and_get_code

    tensors = _random((batch, heads, tokens, head_dim), device, 3)
    torch._dynamo.reset()
    counters.clear()
    with fresh_cache():
        _, (code, *_) = run_and_get_code(
            _without_gradients(attention("compiled", device, tokens)), *tensors
        )
    body = code[code.index("def call(") :]
    return {
        "fused_attention": counters["inductor"]["fuse_attention"],
        "calls": re.findall(
            r"(extern_kernels\.\w+|aten\._\w+|(?:triton|cpp)_\w+)"
            r"(?:\.run|\.default)?\(",
            body,
        ),
        "kernels": re.findall(
            r"@triton\.jit\n(def triton_.*?)\n'''", code, re.DOTALL
        ),
    }


def _variants(
    prefix: str,
    make: Any,
    work: Any,
    label: str,
    names: Sequence[str],
    parameters: Any,
) -> Any:
    """An experiment for each variant; experiments with one prefix are timed
    interleaved."""
    for name in names:
        yield Experiment(
            chapter="attention",
            name=prefix + name,
            label=label,
            group=prefix.strip("_") or "forward",
            parameters=parameters,
            make=functools.partial(make, variant=name),
            work=work,
        )


def _probed(
    name: str, probe: Any, time_limit_s: int = 180, **parameters: int
) -> Experiment:
    return Experiment(
        chapter="attention",
        name=name,
        parameters=parameters,
        probe=probe,
        time_limit_s=time_limit_s,
    )


FORWARD = (
    "naive",
    "in_place",
    "math",
    "efficient",
    "flash",
    "cudnn",
    "auto",
    "compiled",
    "flex",
)
DECODING = tuple(name for name in SWEPT if name != "in_place")
"""Without a mask there is nothing to mask in place."""

EXPERIMENTS = (
    *_variants("", forward, forward_work, "attn_fwd", FORWARD, SHAPE),
    *_variants(
        "training_", training, training_work, "attn_train", SWEPT, SHAPE
    ),
    *_variants("decode_", decode, decode_work, "attn_decode", DECODING, DECODE),
    *(
        _probed(
            f"lengths_{head_dim}",
            lengths,
            300,
            batch=8,
            heads=16,
            head_dim=head_dim,
            longest=16384,
        )
        for head_dim in (64, 128)
    ),
    _probed("hub_flash", hub_flash, **SHAPE),
    _probed("compiled_code", compiled_code, **SHAPE),
)
