"""What the page devices shows of every recorded GPU: how fast it copies and how fast it multiplies."""

from __future__ import annotations

from typing import Any

from snippets.lab.experiment import Experiment, Subject, Work, copy_subject, matmul_subject


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


def matmul_work(m: int, k: int, n: int) -> Work:
    """Both factors and the product once each in bf16."""
    return Work(bytes=2 * (m * k + k * n + m * n), matmuls=((m, k, n),))


def _ceiling(name: str, make: Any, work: Any, parameters: dict[str, int]) -> Experiment:
    label = name.partition("_")[0]
    return Experiment(
        chapter="devices", name=name, label=label, parameters=parameters, make=make, work=work, group="ceilings"
    )


EXPERIMENTS = (
    _ceiling("copy", copy, copy_work, {"mebibytes": 1024}),
    _ceiling("copy_in_graph", copy_in_graph, copy_work, {"mebibytes": 1024}),
    _ceiling("matmul", matmul, matmul_work, {"m": 8192, "k": 8192, "n": 8192}),
)
