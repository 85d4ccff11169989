"""What the chapter linear measures: `nn.Linear` eager and compiled, two shapes;
a compiled layer fed new strides."""

from __future__ import annotations

from typing import Any

from snippets.lab.experiment import Experiment, Instruments, Subject, Work

POST = {"batch": 1024, "in_dim": 32, "out_dim": 64}
WIDE = {"batch": 64, "in_dim": 1024, "out_dim": 4096}


def linear_work(batch: int, in_dim: int, out_dim: int) -> Work:
    """x, weight, bias and the result once each in bf16."""
    return Work(
        bytes=2
        * (batch * in_dim + in_dim * out_dim + out_dim + batch * out_dim),
        matmuls=((batch, in_dim, out_dim),),
    )


def _layer(device: str, in_dim: int, out_dim: int) -> Any:
    import torch

    from snippets.linear.model import linear

    return linear(in_dim, out_dim).to(device, dtype=torch.bfloat16).eval()


def _subject(
    layer: Any, step: Any, device: str, batch: int, in_dim: int
) -> Subject:
    import torch

    weight, bias = layer.weight.detach(), layer.bias.detach()

    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            result: torch.Tensor = step(x)
            return result

    return Subject(
        step=forward,
        inputs=lambda: (
            torch.randn(batch, in_dim, dtype=torch.bfloat16, device=device),
        ),
        reference=lambda x: x.double() @ weight.double().t() + bias.double(),
    )


def eager(device: str, batch: int, in_dim: int, out_dim: int) -> Subject:
    layer = _layer(device, in_dim, out_dim)
    return _subject(layer, layer, device, batch, in_dim)


def compiled(device: str, batch: int, in_dim: int, out_dim: int) -> Subject:
    import torch

    layer = _layer(device, in_dim, out_dim)
    return _subject(layer, torch.compile(layer), device, batch, in_dim)


def new_strides(
    instruments: Instruments, device: str, batch: int, in_dim: int, out_dim: int
) -> dict[str, Any]:
    """Feed a compiled layer an input of the same shape but other strides.

    Returns the graphs compiled before and after, whether it raised, and the
    largest difference from eager.
    """
    import torch
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    # --8<-- [start:new_strides]
    layer = _layer(device, in_dim, out_dim)
    step = torch.compile(layer)
    x = torch.randn(batch, in_dim, dtype=torch.bfloat16, device=device)
    walked_by_column = torch.randn(
        in_dim, batch, dtype=torch.bfloat16, device=device
    ).t()
    graphs, raised, difference = [], "", 0.0
    with torch.no_grad():
        for given in (x, walked_by_column):
            try:
                difference = max(
                    difference, (step(given) - layer(given)).abs().max().item()
                )
            except (AssertionError, RuntimeError) as error:
                raised = type(error).__name__
            graphs.append(counters["stats"]["unique_graphs"])
    # --8<-- [end:new_strides]
    return {
        "strides": [list(x.stride()), list(walked_by_column.stride())],
        "graphs": graphs,
        "raised": raised,
        "largest_difference": difference,
    }


ROWS = tuple({"batch": rows} for rows in (1, 16, 64, 256, 1024, 4096, 16384))


def _profiled(
    name: str, make: Any, shape: dict[str, int], group: str, **more: Any
) -> Experiment:
    return Experiment(
        chapter="linear",
        name=name,
        label="linear_fwd",
        parameters=shape,
        make=make,
        work=linear_work,
        group=group,
        **more,
    )


EXPERIMENTS = (
    _profiled("eager", eager, POST, "post"),
    _profiled("compiled", compiled, POST, "post"),
    _profiled("eager_wide", eager, WIDE, "wide"),
    _profiled("compiled_wide", compiled, WIDE, "wide"),
    _profiled("sweep_eager", eager, WIDE, "sweep", sweep=ROWS),
    _profiled("sweep_compiled", compiled, WIDE, "sweep", sweep=ROWS),
    Experiment(
        chapter="linear", name="new_strides", parameters=POST, probe=new_strides
    ),
)
