"""What the fact check measures itself: an article's Linear with the article's
code, and the block of its table at many numbers of tokens."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import (
    Experiment,
    Instruments,
    NeedsGpu,
    Subject,
    Work,
    WrongAnswer,
)

if TYPE_CHECKING:
    from torch import Tensor

ARTICLE = {"batch": 64, "in_dim": 1024, "out_dim": 4096}
TOKENS: Mapping[str, tuple[int, ...]] = {
    "float32": (64, 512, 1024, 2048, 4096, 8192),
    "tf32": (64, 2048, 4096, 8192, 16384, 32768, 65536),
    "bfloat16": (64, 1024, 4096, 8192, 16384, 32768, 65536, 131072),
}
"""Arithmetic of the products -> numbers of tokens. tf32 is float32 tensors with
their products rounded for tensor cores."""
BYTES_PER_HIDDEN = 40
"""Memory for all variants of a size together, in bytes for each byte of a
tensor of the hidden size."""
ROUNDS = 11


def article_linear(
    device: str, batch: int, in_dim: int, out_dim: int
) -> Subject:
    """The article's layer, in float32 and with gradients, as in the article's
    code."""
    import torch

    from snippets.fact_check.model import linear_layer

    layer, x = linear_layer(device)
    if (batch, in_dim, out_dim) != (*x.shape, len(layer.weight)):
        layer = torch.nn.Linear(in_dim, out_dim).to(device)
    weight, bias = layer.weight.detach(), layer.bias.detach()
    return Subject(
        step=layer,
        inputs=lambda: (torch.randn(batch, in_dim, device=device),),
        reference=lambda x: x.double() @ weight.double().t() + bias.double(),
    )


def linear_work(batch: int, in_dim: int, out_dim: int) -> Work:
    """x, weight, bias and the result once each in float32."""
    numbers = batch * in_dim + in_dim * out_dim + out_dim + batch * out_dim
    return Work(
        bytes=4 * numbers,
        matmuls=((batch, in_dim, out_dim),),
        dtype="float32",
    )


def article_table(instruments: Instruments, device: str) -> dict[str, Any]:
    """Profile the first call of the layer and print the article's table.

    Returns the table as text, its rows as data (`is_kernel`: it ran on the
    GPU), and the GPU's activities by name.
    """
    from snippets.fact_check.model import profile_one_call

    prof = profile_one_call(device)
    averages = prof.key_averages()
    return {
        "table": averages.table(sort_by="cuda_time_total", row_limit=10),
        "rows": [
            {
                "name": row.key,
                "is_kernel": row.device_type.name == "CUDA",
                "self_device_us": row.self_device_time_total,
                "device_us": row.device_time_total,
                "cpu_us": row.cpu_time_total,
                "calls": row.count,
            }
            for row in averages
        ],
        "activities": [
            {"name": each.name, "us": each.duration_us}
            for each in (
                instruments.read_activities(prof) if device == "cuda" else ()
            )
        ],
    }


@contextmanager
def matmul_precision(arithmetic: str) -> Iterator[None]:
    """Allow TF32 in float32 products if `arithmetic` says so."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(
        "high" if arithmetic == "tf32" else "highest"
    )
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def block_subjects(
    device: str, arithmetic: str, tokens: int, dim: int, hidden: int
) -> dict[str, Subject]:
    """The parts of a block, the block, and the block with GELU fused into the
    first product: by cuBLAS, and in bf16 on Hopper by fused_mlp's ping-pong
    kernel."""
    import torch
    from torch.nn import functional as F

    from snippets.fact_check import model

    dtype = torch.bfloat16 if arithmetic == "bfloat16" else torch.float32

    def draw(*sizes: int) -> Tensor:
        return torch.randn(*sizes, device=device).to(dtype)

    weights = model.block_weights(draw, dim, hidden)

    def subject(
        step: Callable[[Tensor], Tensor],
        reference: Callable[[Tensor], Tensor],
        width: int = dim,
    ) -> Subject:
        def run(x: Tensor) -> Tensor:
            with torch.no_grad():
                return step(x)

        return Subject(
            step=run, inputs=lambda: (draw(tokens, width),), reference=reference
        )

    def exact_linear(x: Tensor) -> Tensor:
        return F.linear(x.double(), weights[0].double(), weights[1].double())

    def exact_block(x: Tensor) -> Tensor:
        return model.block_reference(x, weights)

    found = {
        "linear": subject(lambda x: F.linear(x, *weights[:2]), exact_linear),
        "gelu": subject(
            lambda x: F.gelu(x, approximate="tanh"),
            lambda x: F.gelu(x.double(), approximate="tanh"),
            hidden,
        ),
        "block": subject(lambda x: model.block(x, weights), exact_block),
        "epilogue": subject(
            lambda x: model.block_with_epilogue(x, weights), exact_block
        ),
    }
    if arithmetic == "bfloat16" and _is_hopper(device):
        from snippets.fused_mlp.geglu.model import linear

        def pingpong(x: Tensor) -> Tensor:
            up, up_bias, down, down_bias = weights
            first: Tensor = linear(x, up, up_bias, "gelu_tanh")
            return F.linear(first, down, down_bias)

        found["pingpong"] = subject(pingpong, exact_block)
    return found


def _is_hopper(device: str) -> bool:
    import torch

    return device == "cuda" and torch.cuda.get_device_capability()[0] == 9


def block(
    instruments: Instruments, device: str, dim: int, hidden: int
) -> dict[str, Any]:
    """Time a block and its parts, interleaved, in three precisions at many
    numbers of tokens.

    Returns {"samples_us", "errors"}: arithmetic -> tokens -> variant -> samples
    or relative error, sample i of one size all in the same turn; "failed": the
    errors raised; and "left_out": the sizes too large for this GPU's memory.
    """
    if device != "cuda":
        raise NeedsGpu(
            "launch-free times are a GPU's: fact_check/article_linear runs here"
        )
    found: dict[str, Any] = {
        "samples_us": {},
        "errors": {},
        "failed": {},
        "left_out": [],
    }
    for arithmetic, sizes in TOKENS.items():
        for kind in ("samples_us", "errors"):
            found[kind][arithmetic] = {}
        with matmul_precision(arithmetic):
            for tokens in sizes:
                at = f"{arithmetic}, {tokens} tokens"
                if _fits(arithmetic, tokens, hidden):
                    subjects = block_subjects(
                        device, arithmetic, tokens, dim, hidden
                    )
                    samples, errors = _timed(instruments, subjects, found, at)
                    found["samples_us"][arithmetic][str(tokens)] = samples
                    found["errors"][arithmetic][str(tokens)] = errors
                else:
                    found["left_out"].append(at)
                _free_memory()
    return found


def _fits(arithmetic: str, tokens: int, hidden: int) -> bool:
    import torch

    size = 2 if arithmetic == "bfloat16" else 4
    room = torch.cuda.get_device_properties(0).total_memory
    return BYTES_PER_HIDDEN * size * tokens * hidden < room


def _timed(
    instruments: Instruments,
    subjects: Mapping[str, Subject],
    found: dict[str, Any],
    at: str,
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Check and time the subjects of one size; store errors and leave out their
    subjects."""
    prepared, errors = {}, {}
    for name, subject in subjects.items():
        try:
            error, *_ = instruments.relative_error(subject, "cuda")
            prepared[name] = instruments.prepare(subject)
            errors[name] = error
        except (WrongAnswer, RuntimeError) as raised:
            reason = str(raised).partition("\n")[0][:200]
            found["failed"][f"{at}, {name}"] = (
                f"{type(raised).__name__}: {reason}"
            )
    timings = instruments.time_prepared(prepared, ROUNDS) if prepared else {}
    samples = {
        name: [round(us, 3) for us in timing.samples_us]
        for name, timing in timings.items()
    }
    return samples, errors


def _free_memory() -> None:
    """Free the GPU memory that the last size's graphs held."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


EXPERIMENTS = (
    Experiment(
        chapter="fact_check",
        name="article_linear",
        label="linear_forward",
        parameters=ARTICLE,
        make=article_linear,
        work=linear_work,
        timed=False,
    ),
    Experiment(chapter="fact_check", name="article_table", probe=article_table),
    Experiment(
        chapter="fact_check",
        name="block",
        parameters={"dim": 1024, "hidden": 4096},
        probe=block,
        time_limit_s=120,
    ),
)
