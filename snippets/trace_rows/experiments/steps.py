"""Small steps that put each row into a trace, and their work."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from snippets.lab.experiment import NeedsGpu, Subject, Work

if TYPE_CHECKING:
    from torch import Tensor, nn


ROWS, WIDTH = 4096, 1024


def _perceptron(device: str, width: int) -> nn.Module:
    """Two Linears in bf16 with GELU between."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
    )
    return layers.to(device, torch.bfloat16)


def _needs_gpu(device: str, what: str) -> None:
    if device != "cuda":
        raise NeedsGpu(f"{what}: only a GPU has these rows")


def train(device: str, rows: int, width: int, compiled: int) -> Subject:
    """A training step; its reference is the loss of the initial weights, since update steps of 0 do not change them."""
    import torch

    from snippets.trace_rows.model import train

    model = _perceptron(device, width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
    forward = torch.compile(model) if compiled else model

    def inputs() -> tuple[Tensor]:
        return (torch.randn(rows, width, device=device, dtype=torch.bfloat16),)

    def step(x: Tensor) -> Tensor:
        with torch.enable_grad():  # a step is checked where gradients are off
            return train(forward, optimizer, x)  # type: ignore[arg-type]  # compiled, it is called as a module

    def loss(x: Tensor) -> Tensor:
        wide = _perceptron(device, width).double()
        result: Tensor = wide(x.double()).square().mean()
        return result.detach()

    return Subject(
        step=step, inputs=inputs, reference=loss, tolerance=2e-2, in_graph=False
    )


def train_work(rows: int, width: int, compiled: int) -> Work:
    """Three products of each Linear; x is read once and the weights are read and written once."""
    forward = ((rows, width, 4 * width), (rows, 4 * width, width))
    weights = 2 * 8 * width * width
    return Work(bytes=2 * rows * width + 2 * weights, matmuls=forward * 3)


def two_streams(device: str, rows: int, columns: int) -> Subject:
    """Running sums on two streams."""
    import torch

    from snippets.trace_rows.model import two_streams

    _needs_gpu(device, "streams")
    side = torch.cuda.Stream()

    def inputs() -> tuple[Tensor]:
        return (torch.rand(rows, columns, device=device),)

    return Subject(
        step=lambda x: two_streams(x, side),
        inputs=inputs,
        reference=lambda x: 2 * x.double().cumsum(1),
        in_graph=False,
    )


def two_streams_work(rows: int, columns: int) -> Work:
    """x read once, the result written once, in float32."""
    return Work(bytes=8 * rows * columns)


def full_queue(device: str, size: int, launches: int) -> Subject:
    """More launches than fit in the queue of a stream."""
    import torch

    from snippets.trace_rows.model import full_queue

    _needs_gpu(device, "a queue of launches")

    def inputs() -> tuple[Tensor, Tensor]:
        a = (
            torch.randn(size, size, device=device, dtype=torch.bfloat16)
            / size**0.5
        )
        return a, torch.zeros(1024, device=device)

    return Subject(
        step=partial(full_queue, launches=launches),
        inputs=inputs,
        reference=lambda a, x: x.double() + launches,
        in_graph=False,
    )


def full_queue_work(size: int, launches: int) -> Work:
    """The two products; the short kernels do almost no work."""
    return Work(
        bytes=2 * 2 * size * size,
        matmuls=((size, size, size),) * 2,
        layout="x @ w",
    )


def item(device: str, elements: int) -> Subject:
    """A sum and a read of it."""
    import torch

    from snippets.trace_rows.model import item

    def inputs() -> tuple[Tensor]:
        return (torch.rand(elements, device=device),)

    return Subject(
        step=item,
        inputs=inputs,
        reference=lambda x: x.double().sum(),
        in_graph=False,
    )


def item_work(elements: int) -> Work:
    """x read once in float32."""
    return Work(bytes=4 * elements + 4, other_flops=elements)


def copies(device: str, size: int) -> Subject:
    """Five copies of one square matrix in float16: from the host, pageable and pinned, and on the GPU."""
    import torch

    from snippets.trace_rows.model import copies

    _needs_gpu(device, "copies between host and GPU")
    pageable = torch.randn(size, size).to(torch.float16)
    pinned = pageable.pin_memory()

    def inputs() -> tuple[Tensor]:
        return (torch.randn(size, size, device=device).to(torch.float16),)

    def reference(x: Tensor) -> Tensor:
        wide = x.double()
        return 2 * pageable.to(x.device).double() + 2 * wide + wide.t()

    return Subject(
        step=lambda x: copies(pageable, pinned, x),
        inputs=inputs,
        reference=reference,
        in_graph=False,
    )


def copies_work(size: int) -> Work:
    """Each copy reads and writes the matrix, one of them twice as wide; the sums read it five times."""
    return Work(bytes=2 * size * size * 16)


def graph(device: str, rows: int, width: int) -> Subject:
    """The forward pass as a replayed CUDA graph."""
    import torch

    _needs_gpu(device, "CUDA graphs")
    model = _perceptron(device, width)
    static = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
    with torch.no_grad():
        model(static)
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            result = model(static)

    def step(x: Tensor) -> Tensor:
        static.copy_(x)
        captured.replay()
        return result

    def reference(x: Tensor) -> Tensor:
        with torch.no_grad():
            wide: Tensor = _perceptron(device, width).double()(x.double())
        return wide

    def inputs() -> tuple[Tensor]:
        return (torch.randn(rows, width, device=device, dtype=torch.bfloat16),)

    return Subject(
        step=step, inputs=inputs, reference=reference, in_graph=False
    )


def graph_work(rows: int, width: int) -> Work:
    """Two products; x and the result once, each weight once."""
    return Work(
        bytes=4 * rows * width + 2 * 8 * width * width,
        matmuls=((rows, width, 4 * width), (rows, 4 * width, width)),
    )
