"""On a GPU: what spoils a CUDA context, what does not fit, what cannot be timed, and a pair without fault."""

from __future__ import annotations

from typing import Any

from snippets.lab.experiment import Experiment, Instruments, Subject, Work


def work(size: int) -> Work:
    return Work(bytes=6 * size * size, matmuls=((size, size, size),))


def product(device: str, size: int, waits: bool = False) -> Subject:
    import torch

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result = x @ y
        return result * (1 if result[0, 0].item() < 1e9 else 2) if waits else result

    def inputs() -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))

    return Subject(step=step, inputs=inputs, reference=lambda x, y: x.double() @ y.double())


def illegal(device: str, size: int) -> Subject:
    import torch

    from tests.lab.broken.gpu_faults.kernels import write_far_away

    def step(x: torch.Tensor) -> torch.Tensor:
        write_far_away[(1,)](x)
        return x

    return Subject(step=step, inputs=lambda: (torch.randn(size, device=device),), reference=lambda x: x)


def out_of_range(device: str, size: int) -> Subject:
    import torch

    places = torch.full((size,), size + 1000, device=device)

    def inputs() -> tuple[torch.Tensor]:
        return (torch.randn(size, device=device),)

    return Subject(step=lambda x: x.index_select(0, places), inputs=inputs, reference=lambda x: x)


def too_large(instruments: Instruments, device: str) -> dict[str, Any]:
    import torch

    return {"bytes": torch.empty(1 << 50, dtype=torch.uint8, device=device).nbytes}


def waiting(device: str, size: int) -> Subject:
    """Reads a result back, which no CUDA graph can."""
    return product(device, size, waits=True)


def _profiled(name: str, make: Any, group: str = "", **more: Any) -> Experiment:
    return Experiment(
        chapter="gpu_faults",
        name=name,
        label="fault",
        parameters={"size": 256},
        make=make,
        work=work,
        group=group,
        **more,
    )


EXPERIMENTS = (
    _profiled("illegal", illegal, timed=False),
    _profiled("out_of_range", out_of_range, timed=False),
    Experiment(chapter="gpu_faults", name="too_large", probe=too_large),
    _profiled("first", product, "pair"),
    _profiled("waiting", waiting, "pair"),
    _profiled("second", product, "pair"),
)
