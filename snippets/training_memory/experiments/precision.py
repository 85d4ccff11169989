"""Training steps in different precisions and with different optimizers: the
chapter's first page."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

from snippets.lab.experiment import Experiment, Instruments, Loop, Work

CHAPTER = "training_memory"
LABEL = "train_step"
SHAPE: Mapping[str, int] = {
    "batch": 64,
    "seq": 128,
    "dim": 768,
    "hidden": 3072,
    "layers": 4,
}
"""Four blocks of the MLP of the chapter mlp, at its batch."""
VARIANTS = (
    "fp32",
    "tf32",
    "autocast",
    "bfloat16",
    "autocast_compiled",
    "bfloat16_compiled",
    "optimizer_foreach",
    "optimizer_loop",
)
"""The variants of model.py, whose import needs torch; a test compares the
two."""
TRAINED = ("fp32", "tf32", "autocast", "bfloat16")
"""Variants whose accuracy is compared."""


def step_work(batch: int, seq: int, dim: int, hidden: int, layers: int) -> Work:
    """Three matmuls a block, each with two more in backward.

    Bytes: each parameter, its gradient and AdamW's two moments are read and
    written once, in float32.
    """
    matmuls = layers * 3 * dim * hidden
    return Work(
        bytes=2 * 4 * 4 * (matmuls + layers * 2 * dim),
        other_flops=3 * 2 * batch * seq * matmuls,
    )


def step_loop(
    device: str,
    variant: str,
    batch: int,
    seq: int,
    dim: int,
    hidden: int,
    layers: int,
) -> Loop:
    """The loop of a variant. Its first losses are compared with float32's.

    Without weight updates the losses would be several percent off, ten times
    the tolerance: a test measures it.
    """
    from snippets.training_memory import model

    sizes = {"dim": dim, "hidden": hidden, "layers": layers}

    def losses(name: str) -> Any:
        chosen = model.VARIANTS[name]
        parts = model.make_parts(chosen, device, **sizes)
        batches = model.make_batches(device, batch, seq, dim, chosen.dtype)
        return model.train(chosen, parts, batches)

    def reference(count: int) -> list[float]:
        first = itertools.islice(losses("fp32"), count)
        return [loss.item() for loss in first]

    return Loop(
        losses=losses(variant), reference=reference, tolerance=5e-3, lead=1
    )


def accuracy(
    instruments: Instruments,
    device: str,
    rates: str,
    steps: int,
    every: int,
    batch: int,
    seq: int,
    dim: int,
    hidden: int,
    layers: int,
) -> dict[str, Any]:
    """Train in each precision, at each learning rate of a list such as "1e-3
    1e-4", on the same batches, which never repeat.

    Returns {rate: {variant: the result of `_trained`}}.
    """
    sizes = {"dim": dim, "hidden": hidden, "layers": layers}
    return {
        rate: {
            name: _trained(
                name, float(rate), device, steps, every, (batch, seq), sizes
            )
            for name in TRAINED
        }
        for rate in rates.split()
    }


def _trained(
    name: str,
    rate: float,
    device: str,
    steps: int,
    every: int,
    shape: tuple[int, int],
    sizes: Mapping[str, int],
) -> dict[str, Any]:
    """Train a variant and return its data.

    losses        of each step
    evaluated     the float32 loss of the trained weights on unseen batches
    at            steps whose update is examined
    matrices      share of the matrices' elements that these updates leave
                  unchanged
    norms         share of the norms' scales that they leave unchanged
    norms_moved   share of the norms' scales that differ from 1 in the end
    """
    import torch

    from snippets.training_memory import model

    variant = model.VARIANTS[name]
    parts = model.make_parts(variant, device, **sizes, lr=rate)
    net = parts[0]
    batches = model.draw_batches(
        device, *shape, sizes["dim"], variant.dtype, seed=2
    )
    matrices = [weight for weight in net.parameters() if weight.dim() == 2]
    norms = [block.norm.weight for block in net]
    losses = model.train(variant, parts, batches)
    found: dict[str, Any] = {"at": [], "matrices": [], "norms": []}
    kept = []
    for step in range(steps):
        looks = step % every == 0 or step == steps - 1
        groups = {"matrices": matrices, "norms": norms} if looks else {}
        before = {
            kind: [weight.detach().clone() for weight in weights]
            for kind, weights in groups.items()
        }
        kept.append(next(losses))
        for kind, weights in groups.items():
            found[kind].append(_unchanged(before[kind], weights))
        found["at"] += [step] * looks
    losses.close()
    ones = [torch.ones_like(weight) for weight in norms]
    return {
        **found,
        "losses": [float(f"{loss.item():.5g}") for loss in kept],
        "norms_moved": round(1 - _unchanged(ones, norms), 6),
        "evaluated": _evaluated(net, device, shape, sizes["dim"]),
    }


def _unchanged(before: list[Any], after: list[Any]) -> float:
    """The share of elements that are bitwise unchanged."""
    pairs = list(zip(before, after, strict=True))
    equal = sum(int((old == new).sum()) for old, new in pairs)
    total = sum(int(new.numel()) for _, new in pairs)
    return round(equal / total, 6)


def _evaluated(
    net: Any, device: str, shape: tuple[int, int], dim: int
) -> list[float]:
    """The loss on eight batches of another seed, computed in float32."""
    import torch
    from torch.nn import functional as F

    from snippets.training_memory import model

    exact = net.float()
    batches = model.draw_batches(device, *shape, dim, torch.float32, seed=3)
    with torch.no_grad():
        return [
            float(f"{F.mse_loss(exact(x), target).item():.5g}")
            for x, target in itertools.islice(batches, 8)
        ]


PRECISION = (
    *(
        Experiment(
            chapter=CHAPTER,
            name=name,
            label=LABEL,
            parameters=SHAPE,
            loop=partial(step_loop, variant=name),
            work=step_work,
            group="step",
        )
        for name in VARIANTS
    ),
    Experiment(
        chapter=CHAPTER,
        name="accuracy",
        parameters={
            **SHAPE,
            "batch": 8,
            "rates": "1e-3 1e-4",
            "steps": 300,
            "every": 25,
        },
        probe=accuracy,
    ),
)
