"""What the page devices shows of every recorded GPU: how fast it copies and how fast it multiplies."""

from __future__ import annotations

from snippets.lab.experiment import Experiment, Subject, Work


def copy(device: str, mebibytes: int) -> Subject:
    """Copy a buffer of `mebibytes` MiB on the device."""
    from snippets.lab import hardware

    return hardware.copy(device, mebibytes << 20)


def copy_work(mebibytes: int) -> Work:
    """Every byte read and written once."""
    return Work(bytes=2 * (mebibytes << 20))


def matmul(device: str, m: int, k: int, n: int) -> Subject:
    """A bare bf16 product (M, K) @ (K, N)."""
    from snippets.lab import hardware

    return hardware.matmul(device, m, k, n)


def matmul_work(m: int, k: int, n: int) -> Work:
    """Both factors and the product once each in bf16."""
    return Work(bytes=2 * (m * k + k * n + m * n), matmuls=((m, k, n),))


EXPERIMENTS = (
    Experiment(
        chapter="devices",
        name="copy",
        label="copy",
        parameters={"mebibytes": 1024},
        make=copy,
        work=copy_work,
        group="ceilings",
    ),
    Experiment(
        chapter="devices",
        name="matmul",
        label="matmul",
        parameters={"m": 8192, "k": 8192, "n": 8192},
        make=matmul,
        work=matmul_work,
        group="ceilings",
    ),
)
