"""Ceilings: what this device can do when nothing is in its way.

A copy moves bytes and computes nothing; a large matrix product computes and hardly moves. Every "percent of peak" in
the book is a percentage of one of these, measured in the same process as what it is compared with.
"""

from __future__ import annotations

import torch

from snippets.lab.experiment import Subject, Work

LARGE = 8192
COPY_BYTES = 1 << 30


def copy_subject(device: str, bytes_copied: int = COPY_BYTES, in_graph: bool = False) -> Subject:
    """A device-to-device copy of `bytes_copied` bytes: reads them once, writes them once.

    Timed in the stream unless `in_graph`: as a memcpy node of a CUDA graph 1 GiB took 807 us, in the stream 506 us
    (NVIDIA H200, driver 580.159), and a ceiling must not be lower than what it is held against.
    """
    target = torch.empty(bytes_copied, dtype=torch.uint8, device=device)

    def source() -> tuple[torch.Tensor]:
        return (torch.randint(0, 256, (bytes_copied,), dtype=torch.uint8, device=device),)

    return Subject(step=target.copy_, inputs=source, reference=lambda x: x, tolerance=0.0, in_graph=in_graph)


def copy_work(bytes_copied: int = COPY_BYTES) -> Work:
    """Each byte read and written once."""
    return Work(bytes=2 * bytes_copied)


def matmul_subject(device: str, m: int = LARGE, k: int = LARGE, n: int = LARGE) -> Subject:
    """A bf16 matrix product (M, K) @ (K, N), the second factor stored transposed as `nn.Linear` stores its weight."""
    weight = torch.randn(n, k, dtype=torch.bfloat16, device=device)

    def factors() -> tuple[torch.Tensor]:
        return (torch.randn(m, k, dtype=torch.bfloat16, device=device),)

    return Subject(
        step=lambda x: x @ weight.t(),
        inputs=factors,
        reference=lambda x: x.double() @ weight.double().t(),
    )


def matmul_work(m: int = LARGE, k: int = LARGE, n: int = LARGE) -> Work:
    """bf16: two bytes for each element of the two factors and of the product."""
    return Work(bytes=2 * (m * k + k * n + m * n), matmuls=((m, k, n),))
