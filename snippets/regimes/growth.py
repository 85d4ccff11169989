"""Where time goes as work grows: experiments of the chapter regimes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from snippets.lab.experiment import Experiment
from snippets.regimes.subjects import (
    geglu,
    geglu_work,
    gelu,
    gelu_work,
    stack,
    stack_work,
)

STACK: Mapping[str, int] = {"tokens": 64, "dim": 1024, "hidden": 4096}
GEGLU: Mapping[str, int] = {"tokens": 64, "dim": 768, "hidden": 3072}
GELU: Mapping[str, int] = {"tokens": 64, "hidden": 4096}
TOKENS = (1, 4, 16, 32, *(1 << power for power in range(6, 18)))
"""Below 16 nothing changes, and few tokens take long to time."""
GEGLU_TOKENS = (1, 16, *(1 << power for power in range(6, 17)))
TRACED: Mapping[str, int] = {
    "overhead_bound": 64,
    "memory_bound": 32768,
    "compute_bound": 16384,
}
"""Regime -> the tokens at which it is traced."""


def _sweep(name: str, tokens: tuple[int, ...], **more: Any) -> Experiment:
    return Experiment(
        chapter="regimes",
        name=f"growth_{name}",
        label="step",
        sweep=tuple({"tokens": count} for count in tokens),
        **more,
    )


def _stack_sweep(name: str, variant: str) -> Experiment:
    return _sweep(
        name,
        TOKENS,
        parameters=STACK,
        make=partial(stack, variant=variant),
        work=stack_work,
        group="growth",
    )


def _traced(regime: str, **more: Any) -> Experiment:
    return Experiment(
        chapter="regimes",
        name=regime,
        label="step",
        group="traced",
        timed=False,
        **more,
    )


GROWTH = (
    _stack_sweep("stack", "eager"),
    _stack_sweep("stack_compiled", "compiled"),
    _sweep(
        "gelu",
        TOKENS,
        parameters=GELU,
        make=gelu,
        work=gelu_work,
        group="growth",
    ),
    _sweep(
        "geglu",
        GEGLU_TOKENS,
        parameters=GEGLU,
        make=geglu,
        work=geglu_work,
    ),
    *(
        _traced(
            regime,
            parameters={**STACK, "tokens": TRACED[regime]},
            make=partial(stack, variant="eager"),
            work=stack_work,
        )
        for regime in ("overhead_bound", "compute_bound")
    ),
    _traced(
        "memory_bound",
        parameters={**GELU, "tokens": TRACED["memory_bound"]},
        make=gelu,
        work=gelu_work,
    ),
)
