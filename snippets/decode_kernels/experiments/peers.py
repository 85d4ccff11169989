"""How others write a decode step: what this chapter's kernels compete with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from snippets.decoder.experiments.hub_generate import generate_times
from snippets.lab.experiment import Instruments


def gpt_fast(model: Any, ids: Any, answer: int) -> Iterator[Any]:
    """A loop of tokens as gpt-fast writes it (generate.py, model.py).

    Like the decoder's `reduce_overhead`, it compiles a whole step into one
    CUDA graph. Unlike it, one product computes queries, keys and values,
    Inductor generates the attention (backend MATH), and it tunes its kernels
    by coordinate descent.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from snippets.decoder.compiling import join_projections
    from snippets.decoder.loops import static
    from snippets.decoder.model import decode_one

    other = join_projections(model)
    for layer, separate in zip(other.layers, model.layers, strict=True):
        layer.mlp = separate.mlp
    options = {
        **torch._inductor.list_mode_options("reduce-overhead"),
        "coordinate_descent_tuning": True,
    }
    step = torch.compile(decode_one, fullgraph=True, options=options)

    def decode(model: Any, token: Any, position: Any, cache: Any) -> Any:
        with sdpa_kernel(SDPBackend.MATH):
            logit, token = step(model, token, position, cache)
        return logit, token.clone()  # the next replay overwrites it

    return static(other, ids, answer, decode, keep_addresses=True)


def generate_static(
    instruments: Instruments,
    device: str,
    size: str,
    batch: int,
    prompt: int,
    few: int,
    many: int,
    rounds: int,
) -> dict[str, Any]:
    """The time of a token of transformers' `generate` with its static cache,
    which it compiles by itself: the decoder's probe `generate_times`."""
    from snippets.decode_kernels.experiments.variants import require_gpu

    require_gpu(device)
    return generate_times(
        instruments, device, size, batch, prompt, few, many, rounds, "static"
    )
