"""Experiments on launches: the ping-pong kernel without each of its ideas, early and late launches, and the CPU's part
of a call."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from snippets.fused_mlp.experiments.halves import gate_up_step
from snippets.fused_mlp.experiments.subjects import (
    interleaved,
    need_hopper,
    need_kernels,
    random_tensor,
    steadily,
    steps_alone,
    three_weights,
)
from snippets.lab.experiment import Instruments, Subject

ORDERED = ((8192, 768, 3072), (4096, 2048, 8192), (1024, 4096, 14336))
"""Shapes at which `steps` times two orders of the tiles: the longer the sum,
the more an order matters."""


def steps(
    instruments: Instruments, device: str, tokens: int, dim: int, hidden: int
) -> dict[str, Any]:
    """The gain of each idea behind the ping-pong kernel: the same work without
    that idea, interleaved.

    Returns {"gate_up": {variant: samples in microseconds}, "forward": {...},
    ...}, sample i of any two a pair.
    """
    from snippets.fused_mlp.geglu import hopper, support

    need_hopper(device)
    gate, up, down = three_weights(dim, hidden)
    first = hopper.PINGPONG_GATED[1]

    def half(tiles: Any) -> Callable[..., Any]:
        return lambda x: hopper.pingpong(x, gate, up, None, "gelu_tanh", tiles)[
            0
        ]

    def with_activation(name: str) -> Callable[..., Any]:
        return lambda x: hopper.pingpong(x, gate, up, None, name, first)[0]

    parts = {
        "activation": {
            name: with_activation(name)
            for name in (*support.ACTIVATIONS, "rough_gelu_tanh")
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
        part: interleaved(instruments, variants, tokens, dim)
        for part, variants in parts.items()
    }
    for shape in ORDERED:
        tokens, dim, hidden = shape
        gate, up, _ = three_weights(dim, hidden)
        orders = {
            f"group {group}": half(first._replace(group=group))
            for group in (1, 8)
        }
        found["x".join(map(str, shape))] = interleaved(
            instruments, orders, tokens, dim
        )
    return found


def two_launches(
    gate: Any, up: Any, down: Any
) -> dict[str, Callable[..., Any]]:
    """The package's two kernels with fixed tiles, each launched before or after
    the preceding kernel has ended."""
    from snippets.fused_mlp.geglu import hopper

    def forward(dependent: bool) -> Callable[..., Any]:
        first, second = (
            tiles._replace(dependent=dependent)
            for tiles in (hopper.PINGPONG_GATED[1], hopper.PINGPONG[1])
        )

        def step(x: Any) -> Any:
            hidden = hopper.pingpong(x, gate, up, None, "gelu_tanh", first)[0]
            return hopper.pingpong(hidden, down, None, None, "none", second)[0]

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
    from snippets.fused_mlp.geglu import hopper

    need_hopper(device)
    gate, up, down = three_weights(dim, hidden)
    variants = {
        **two_launches(gate, up, down),
        "first half alone": lambda x: hopper.pingpong(
            x, gate, up, None, "gelu_tanh", hopper.PINGPONG_GATED[1]
        )[0],
    }
    subjects = steps_alone(variants, tokens, dim)
    found: dict[str, Any] = {
        "interleaved": interleaved(instruments, variants, tokens, dim),
        "steady": steadily(instruments, variants, tokens, dim),
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
    """The last steps of a profile, launched from Python after a second of graph
    replays, after a rest, or after both."""
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
    """Times at which a kernel was launched, started and ended."""
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
    """The CPU time of a call of the package's forward, part by part, by leaving
    parts out.

    Returns {remaining part of the call: microseconds of a call, a sample for
    each of many turns}.
    """
    import torch

    from snippets.fused_mlp.geglu import model, operators, plans
    from snippets.fused_mlp.geglu.launch import Launch
    from snippets.mlp.model import GeGLU

    need_kernels(device)
    x, weights = random_tensor(tokens, dim), three_weights(dim, hidden)
    plain = GeGLU(dim, hidden).to(device, dtype=torch.bfloat16)
    fused = model.FusedGeGLU.like(plain)
    ways = plans.planned(operators.plan_forward, "gelu_tanh", x, *weights)
    hidden_tensor, out = random_tensor(tokens, hidden), torch.empty_like(x)
    schema = "(Tensor x, Tensor gate, Tensor up, Tensor down, str activation) -> Tensor"
    custom = torch.library.custom_op(
        "fused_mlp_probe::nothing",
        lambda x, *_: torch.empty_like(x),
        mutates_args=(),
        schema=schema,
    )

    def by_triton() -> None:
        """Both kernels as Triton launches them."""
        for way, *tensors in (
            (ways[0], x, *weights[:2], hidden_tensor),
            (ways[1], hidden_tensor, weights[2], out),
        ):
            if isinstance(way, Launch):
                way.kernel[way.programs,](
                    *way.arguments(*tensors), **way.options
                )
            else:
                way(*tensors)

    def launches_alone() -> None:
        ways[0](x, *weights[:2], hidden_tensor)
        ways[1](hidden_tensor, weights[2], out)

    cases: dict[str, Callable[[], object]] = {
        "eager": functools.partial(plain, x),
        "an empty custom operator": functools.partial(
            custom, x, *weights, "gelu_tanh"
        ),
        "both launches by Triton": by_triton,
        "both launches": launches_alone,
        "the operator": functools.partial(
            operators.forward, x, *weights, "gelu_tanh"
        ),
        "the whole call": functools.partial(fused, x),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    with torch.no_grad():
        for _ in range(instruments.rounds):
            for name, call in cases.items():
                found[name].append(_cpu_us(call))
    return {name: samples[1:] for name, samples in found.items()}


def _cpu_us(call: Callable[[], object]) -> float:
    """Mean CPU time of twenty consecutive calls, few enough that the GPU's
    queue never fills."""
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for _ in range(20):
        call()
    return round((time.perf_counter_ns() - begin) / 20e3, 3)
