"""What the pages devices and measuring show of every recorded GPU: its
ceilings, and what changes a measured time."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import (
    Experiment,
    Instruments,
    NeedsGpu,
    Subject,
    Work,
    copy_subject,
    matmul_subject,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from snippets.lab.experiment import AllTimes

LARGE = {"m": 8192, "k": 8192, "n": 8192}
PRODUCTS = (
    LARGE,
    {"m": 4096, "k": 4096, "n": 4096},
    {"m": 8192, "k": 768, "n": 3072},
    {"m": 64, "k": 64, "n": 64},
)
LAYOUTS = {"layout_linear": "x @ weight.t()", "layout_plain": "x @ w"}
"""Experiment -> how it stores the second factor."""


def copy(device: str, mebibytes: int) -> Subject:
    """Copy a buffer of `mebibytes` MiB on the device, in the stream."""
    return copy_subject(device, mebibytes << 20)


def copy_in_graph(device: str, mebibytes: int) -> Subject:
    """The same copy as a node of a CUDA graph."""
    return copy_subject(device, mebibytes << 20, in_graph=True)


def copy_work(mebibytes: int) -> Work:
    """Every byte read and written once."""
    return Work(bytes=2 * (mebibytes << 20))


def matmul(device: str, m: int, k: int, n: int) -> Subject:
    """A bare bf16 product (M, K) @ (K, N)."""
    return matmul_subject(device, m, k, n)


# --8<-- [start:ones]
def matmul_ones(device: str, m: int, k: int, n: int) -> Subject:
    """The same product, with every element of both factors 1."""
    import torch

    weight = torch.ones(n, k, dtype=torch.bfloat16, device=device)
    return Subject(
        step=lambda x: x @ weight.t(),
        inputs=lambda: (torch.ones(m, k, dtype=torch.bfloat16, device=device),),
        reference=lambda x: x.double() @ weight.double().t(),
    )


# --8<-- [end:ones]


def matmul_work(m: int, k: int, n: int) -> Work:
    """Both factors and the product once each in bf16. A bare product needs no
    second measurement as its own ceiling."""
    return Work(bytes=2 * (m * k + k * n + m * n), other_flops=2 * m * k * n)


def small_step(device: str) -> Subject:
    """A 64 x 64 product and a sum: the CPU needs longer for the launches than
    the GPU for the kernels."""
    import torch

    w, b = (
        torch.randn(64, 64, dtype=torch.bfloat16, device=device)
        for _ in range(2)
    )
    return Subject(
        step=lambda x: torch.add(x @ w, b),
        inputs=lambda: (
            torch.randn(64, 64, dtype=torch.bfloat16, device=device),
        ),
        reference=lambda x: x.double() @ w.double() + b.double(),
    )


def _samples(times: AllTimes) -> dict[str, list[float]]:
    kinds = {
        "interleaved": times.interleaved,
        "cold": times.cold,
        "from_python": times.from_python,
        "enqueue": times.enqueue,
    }
    return {kind: list(one.samples_us) for kind, one in kinds.items()}


# --8<-- [start:after_profiling]
def after_profiling(
    instruments: Instruments, device: str, profiled_steps: int
) -> dict[str, Any]:
    """A small step before and after the first profiler session of a process,
    and twice before, as a control.

    Returns {"first", "again", "after": {kind of time: samples in
    microseconds}}.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    if device != "cuda":
        raise NeedsGpu(
            "its times are taken on a GPU: matmul_add/eager_64 runs here"
        )
    subject = small_step(device)
    subject.step(*subject.inputs())
    found = {
        name: _samples(instruments.time_all({"step": subject})["step"])
        for name in ("first", "again")
    }
    inputs = subject.inputs()
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        record_shapes=True,
        acc_events=True,
    ):
        for _ in range(profiled_steps):
            subject.step(*inputs)
        torch.cuda.synchronize()
    return {
        **found,
        "after": _samples(instruments.time_all({"step": subject})["step"]),
    }


# --8<-- [end:after_profiling]


# --8<-- [start:neighbor]
NEIGHBOR = """
import time, torch
x = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
until = time.monotonic() + 100
x @ x
torch.cuda.synchronize()
print("busy", flush=True)
while time.monotonic() < until:
    for _ in range(20):
        x @ x
    torch.cuda.synchronize()
"""


@contextlib.contextmanager
def neighbor() -> Iterator[None]:
    """Run another process that multiplies on the same GPU, from its first
    product to the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", NEIGHBOR], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(
                "the second process on the GPU ended before its first product"
            )
        yield
        if process.poll() is not None:
            raise RuntimeError(
                "the second process on the GPU ended during the timing"
            )
    finally:
        process.kill()
        process.communicate()


# --8<-- [end:neighbor]


# --8<-- [start:shared]
def shared(instruments: Instruments, device: str, size: int) -> dict[str, Any]:
    """A large product and a small step, first alone on the GPU, then with a
    neighbor process.

    Returns {"alone", "shared": {step: {kind of time: samples in
    microseconds}}}.
    """
    if device != "cuda":
        raise NeedsGpu(
            "its times are taken on a GPU: matmul_add/eager_64 runs here"
        )
    subjects = {
        "large product": matmul_subject(device, size, size, size),
        "small step": small_step(device),
    }
    for subject in subjects.values():
        subject.step(*subject.inputs())
    found = {
        "alone": {
            name: _samples(times)
            for name, times in instruments.time_all(subjects).items()
        }
    }
    with neighbor():
        found["shared"] = {
            name: _samples(times)
            for name, times in instruments.time_all(subjects).items()
        }
    return found


# --8<-- [end:shared]


def _ceiling(
    name: str, make: Any, work: Any, parameters: dict[str, int]
) -> Experiment:
    label = name.partition("_")[0]
    return Experiment(
        chapter="devices",
        name=name,
        label=label,
        parameters=parameters,
        make=make,
        work=work,
        group="ceilings",
    )


def _layout(name: str) -> Experiment:
    return Experiment(
        chapter="devices",
        name=name,
        label="matmul",
        group="layouts",
        parameters=LARGE,
        make=functools.partial(matmul_subject, layout=LAYOUTS[name]),
        work=matmul_work,
        sweep=PRODUCTS,
    )


EXPERIMENTS = (
    _ceiling("copy", copy, copy_work, {"mebibytes": 1024}),
    _ceiling("copy_in_graph", copy_in_graph, copy_work, {"mebibytes": 1024}),
    _ceiling("matmul", matmul, matmul_work, LARGE),
    _ceiling("matmul_ones", matmul_ones, matmul_work, LARGE),
    *map(_layout, LAYOUTS),
    Experiment(
        chapter="devices",
        name="after_profiling",
        parameters={"profiled_steps": 20},
        probe=after_profiling,
    ),
    Experiment(
        chapter="devices",
        name="shared",
        parameters={"size": 4096},
        probe=shared,
    ),
)
