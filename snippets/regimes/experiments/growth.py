"""Where time goes as work grows: experiments of the chapter regimes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from snippets.lab.experiment import Experiment, Instruments, NeedsGpu, Subject
from snippets.regimes.experiments.subjects import (
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
TOKENS = (1, 16, *(1 << power for power in range(6, 17)))
"""Below 64 tokens times barely change and take long to measure."""
TRACED: Mapping[str, int] = {
    "overhead_bound": 64,
    "memory_bound": 32768,
    "compute_bound": 16384,
}
"""Regime -> number of tokens of its trace."""


PROFILED_STEPS = 3
Make = Callable[..., Subject]


def launched(instruments: Instruments, device: str) -> dict[str, Any]:
    """The GPU activities of each size.

    Returns {"stack", "geglu": {"tokens": [...], "names": [names of a step's GPU
    activities, ...]}}; no names if the steps of a profile differ.
    """
    if device != "cuda":
        raise NeedsGpu("a CPU launches nothing: regimes/growth_stack runs here")
    makers: dict[str, tuple[Make, Mapping[str, int]]] = {
        "stack": (partial(stack, variant="eager"), STACK),
        "geglu": (geglu, GEGLU),
    }
    _step_names(instruments, stack(device, "eager", **STACK))  # loses kernels
    return {
        name: {
            "tokens": list(TOKENS),
            "names": [
                _step_names(
                    instruments, make(device, **{**shape, "tokens": tokens})
                )
                for tokens in TOKENS
            ],
        }
        for name, (make, shape) in makers.items()
    }


def _step_names(instruments: Instruments, subject: Subject) -> list[str]:
    """The names of the GPU activities of one step, in order; empty unless three
    steps agree."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    inputs = subject.inputs()
    subject.step(*inputs)
    torch.cuda.synchronize()
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        acc_events=True,
    ) as finished:
        for _ in range(PROFILED_STEPS):
            subject.step(*inputs)
        torch.cuda.synchronize()
    activities = sorted(
        instruments.read_activities(finished), key=lambda each: each.start_us
    )
    names = [activity.name for activity in activities]
    step = names[: len(names) // PROFILED_STEPS]
    return step if step * PROFILED_STEPS == names else []


def _sweep(name: str, **more: Any) -> Experiment:
    return Experiment(
        chapter="regimes",
        name=f"growth_{name}",
        label="step",
        sweep=tuple({"tokens": count} for count in TOKENS),
        **more,
    )


def _stack_sweep(name: str, variant: str) -> Experiment:
    return _sweep(
        name,
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
        parameters=GELU,
        make=gelu,
        work=gelu_work,
        group="growth",
    ),
    _sweep(
        "geglu",
        parameters=GEGLU,
        make=geglu,
        work=geglu_work,
    ),
    Experiment(chapter="regimes", name="growth_launches", probe=launched),
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
