"""The result of a maker: a step or a training loop, its least work, and its reference."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Work:
    """The least work of a step: every input read once, every output written once, and its arithmetic."""

    bytes: int
    matmuls: tuple[tuple[int, int, int], ...] = ()
    """(M, K, N) of each matrix product, batch folded into M; capture measures a bare matmul of each as a ceiling."""
    layout: Literal["x @ weight.t()", "x @ w"] = "x @ weight.t()"
    """How the step stores the second factors, and so the bare matmuls: (N, K) as `nn.Linear` does, or (K, N)."""
    dtype: str = "bfloat16"
    """Type of the factors, a name in torch."""
    other_flops: int = 0
    """Floating-point operations outside of matrix products: for a pointwise step, so many for each element."""

    @property
    def flops(self) -> int:
        """All floating-point operations, a multiply-add counted as two."""
        return sum(2 * m * k * n for m, k, n in self.matmuls) + self.other_flops


@dataclass(frozen=True)
class Subject:
    """The result of a maker: one step, its inputs, and its reference."""

    step: Callable[..., Tensor]
    inputs: Callable[[], tuple[Tensor, ...]]
    """Draws a fresh set of random inputs for `step`; capture rotates many sets when it times."""
    reference: Callable[..., Tensor]
    """The same function of the same inputs in float64 or float32."""
    tolerance: float = 1e-2
    """Largest relative error (Frobenius norm) that still counts as right; bf16 lands between 1e-3 and 5e-3."""
    in_graph: bool = True
    """Whether interleaved and cold times are taken from CUDA graphs; a long step may be timed in the stream as well."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Notes for readers on how it was made, kept in the recording."""


def copy_subject(device: str, bytes_copied: int, in_graph: bool = False) -> Subject:
    """A device-to-device copy of `bytes_copied` bytes: reads them once, writes them once.

    Timed in the stream unless `in_graph`: as a memcpy node of a CUDA graph 1 GiB took 807 us, in the stream 506 us
    (NVIDIA H200, driver 580.159), and a ceiling must not be lower than the rates compared with it.
    """
    import torch

    target = torch.empty(bytes_copied, dtype=torch.uint8, device=device)

    def source() -> tuple[Tensor]:
        return (torch.randint(0, 256, (bytes_copied,), dtype=torch.uint8, device=device),)

    return Subject(step=target.copy_, inputs=source, reference=lambda x: x, tolerance=0.0, in_graph=in_graph)


def matmul_subject(
    device: str, m: int, k: int, n: int, layout: str = "x @ weight.t()", dtype: str = "bfloat16"
) -> Subject:
    """A matrix product (M, K) @ (K, N).

    Args:
        device: `cuda` or `cpu`.
        m: rows of x.
        k: columns of x.
        n: columns of the product.
        layout: `x @ weight.t()` stores the second factor as (N, K), as `nn.Linear` does; `x @ w` stores it as (K, N).
        dtype: the name of a floating-point type in torch.
    """
    import torch

    kind = getattr(torch, dtype)
    second = torch.randn(k, n, dtype=kind, device=device)
    if layout == "x @ weight.t()":
        second = second.t().contiguous().t()

    def factors() -> tuple[Tensor]:
        return (torch.randn(m, k, dtype=kind, device=device),)

    return Subject(step=lambda x: x @ second, inputs=factors, reference=lambda x: x.double() @ second.double())


@dataclass(frozen=True)
class Loop:
    """The result of a loop maker: a training loop as its user wrote it, run one iteration at a time."""

    losses: Generator[Tensor, None, None]
    """Each `next` runs an iteration, fetching its batch included, and returns its loss without waiting for the GPU."""
    reference: Callable[[int], Sequence[float]]
    """The losses of so many first iterations on the same batches, in float32."""
    tolerance: float = 1e-2
    """Largest relative error of the first losses that still counts as right."""
    lead: int = 4
    """Iterations before each timed block: at least as many as its loader has fetched ahead."""
