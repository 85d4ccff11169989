"""What launch overhead is and what removes it: experiments of the chapter
regimes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from snippets.lab.experiment import Experiment
from snippets.regimes.experiments.subjects import stack, stack_work

STACK: Mapping[str, int] = {
    "tokens": 64,
    "dim": 1024,
    "hidden": 4096,
    "blocks": 8,
}
VARIANTS = (
    "reduce_overhead",
    "eager",
    "compiled",
    "fused",
    "graphed",
    "fused_graphed",
)
"""reduce_overhead is built first: when it records, PyTorch frees the workspaces
of cuBLAS, and a graph captured before would write to freed memory
(https://github.com/pytorch/pytorch/issues/193402)."""
SIZES: Mapping[str, int] = {"small": 64, "middle": 1024, "large": 8192}
"""Name -> tokens: with few a step waits for the CPU, with many for products."""


def _timed(variant: str) -> Experiment:
    return Experiment(
        chapter="regimes",
        name=f"launch_{variant}",
        label="step",
        parameters=STACK,
        make=partial(stack, variant=variant),
        work=stack_work,
        group="launches",
        sweep=tuple({"tokens": tokens} for tokens in SIZES.values()),
    )


def _traced() -> Iterator[Experiment]:
    for size in ("small", "large"):
        for variant in VARIANTS:
            yield Experiment(
                chapter="regimes",
                name=f"{size}_{variant}",
                label="step",
                parameters={**STACK, "tokens": SIZES[size]},
                make=partial(stack, variant=variant),
                work=stack_work,
                group=size,
                timed=False,
            )


LAUNCHES = (*map(_timed, VARIANTS), *_traced())
