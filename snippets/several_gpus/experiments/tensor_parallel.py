"""Tensor parallel layers: a stack of MLP blocks, and one MLP by its rows."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import (
    Experiment,
    Instruments,
    Loop,
    NeedsGpu,
    Parameters,
    Work,
    WrongAnswer,
)
from snippets.several_gpus.experiments.clocks import (
    WARM_STEPS,
    numbers,
    repeated,
    stopped,
    times_us,
)
from snippets.several_gpus.experiments.rates import rates
from snippets.several_gpus.experiments.stacks import (
    compute_dtype,
    relative_error,
)

if TYPE_CHECKING:
    from torch import Tensor

VARIANTS = ("reduced", "sequence", "overlapped")
SEEN = 8
"""Columns of a result of which the loss is the mean square."""
TOLERANCE = 2e-2
"""Of an MLP in bf16 whose parts are added in bf16."""


def unchanged(x: Tensor, group: Any) -> Tensor:
    """What a layer passes through that sends nothing."""
    return x


def require_point_to_point(device: str) -> None:
    """Raise where `overlapped` cannot run, or might use NVLink's multicast."""
    import torch

    if device != "cuda":
        raise NeedsGpu(
            "it sends through symmetric memory: several_gpus/tensor_sequence runs here"
        )
    from torch._C._autograd import DeviceType
    from torch._C._distributed_c10d import _SymmetricMemory

    place = torch.cuda.current_device()
    if _SymmetricMemory.has_multicast_support(DeviceType.CUDA, place):
        raise RuntimeError(
            "symmetric memory has multicast here; set TORCH_SYMM_MEM_DISABLE_MULTICAST=1"
        )


def split_stack(variant: str, model: Any, group: Any, device: str) -> Any:
    """A stack of MLP blocks split in place by a variant; `alone` sends
    nothing, so its results are partial sums."""
    from snippets.several_gpus import tensor_parallel

    plans = tensor_parallel.PLANS
    plan = plans.get(variant, (unchanged, unchanged))
    tensor_parallel.split(model, group, *plan)
    if variant == "overlapped":
        require_point_to_point(device)
        for block in model.blocks:
            block.mlp.forward = functools.partial(
                tensor_parallel.overlapped, block.mlp, group=group
            )
    return model


def rows_of(variant: str, x: Tensor, rank: int, world: int) -> Tensor:
    """What a rank of a variant begins with: all rows or its own."""
    if variant in ("reduced", "alone"):
        return x
    return x.chunk(world)[rank].contiguous()


def inputs_of(rows: int, dim: int, device: str) -> list[Tensor]:
    """Some (rows, dim), equal on every rank."""
    import torch

    draw = torch.Generator(device).manual_seed(1)
    shape = (3, rows, dim)
    drawn = torch.randn(shape, device=device, generator=draw)
    return list(drawn.to(compute_dtype(device)))


def seen(y: Tensor) -> Tensor:
    """The mean square of some columns."""
    return y[:, :SEEN].float().square().mean()


def forwards(model: Any, inputs: list[Tensor]) -> Generator[Tensor, None, None]:
    """A forward for each input, in turns."""
    import torch

    for x in itertools.cycle(inputs):
        with torch.no_grad():
            loss = seen(model(x))
        yield loss


@functools.lru_cache(maxsize=2)
def exact_losses(
    layers: int, dim: int, hidden: int, rows: int, device: str, count: int
) -> list[float]:
    """The losses of the first forwards in float32 on one GPU."""
    import torch

    from snippets.several_gpus.blocks import MLPBlock, build

    model = build(layers, dim, hidden, device, MLPBlock)
    inputs = itertools.cycle(inputs_of(rows, dim, device))
    with torch.no_grad():
        return [
            seen(model(x.float())).item()
            for x in itertools.islice(inputs, count)
        ]


def forward(
    device: str,
    rank: int,
    world: int,
    variant: str,
    layers: int,
    dim: int,
    hidden: int,
    rows: int,
) -> Loop:
    """Forwards of a stack of MLP blocks that is split over all ranks."""
    import torch.distributed as dist

    from snippets.several_gpus.blocks import MLPBlock, build

    model = build(layers, dim, hidden, device, MLPBlock)
    model = model.to(compute_dtype(device))
    split_stack(variant, model, dist.group.WORLD, device)
    inputs = [
        rows_of(variant, x, rank, world) for x in inputs_of(rows, dim, device)
    ]
    return Loop(
        losses=forwards(model, inputs),
        reference=lambda count: exact_losses(
            layers, dim, hidden, rows, device, count
        ),
        lead=1,
    )


def forward_work(layers: int, dim: int, hidden: int, rows: int) -> Work:
    """The products of all GPUs together."""
    return Work(bytes=0, other_flops=6 * layers * rows * dim * hidden)


def mlp_rows(
    instruments: Instruments,
    device: str,
    rank: int,
    world: int,
    widths: str,
    rows: str,
    large: int,
    ways: str,
) -> dict[str, Any]:
    """One MLP split over all ranks behind fewer and more rows, each way as a
    CUDA graph, and the rates of the GPU and of the link.

    Returns {"rates": see `rates`, "widths": {"768x3072": {rows: {way: {"us":
    samples, "error": relative, in float32}}}}}; a way that cannot run has
    {"stopped": why}. The way `alone` sends nothing and has no error.
    """
    found: dict[str, Any] = {}
    for width in widths.split(","):
        dim, hidden = numbers(width.replace("x", ","))
        found[width] = {
            str(count): mlp_us(device, rank, world, dim, hidden, count, ways)
            for count in numbers(rows)
        }
    return {"rates": rates(device, large), "widths": found}


def mlp_us(
    device: str,
    rank: int,
    world: int,
    dim: int,
    hidden: int,
    rows: int,
    ways: str,
) -> dict[str, Any]:
    """One point of `mlp_rows`."""
    import torch
    import torch.distributed as dist

    from snippets.several_gpus.blocks import MLPBlock, build

    x = inputs_of(rows, dim, device)[0]
    with torch.no_grad():
        model: Any = build(1, dim, hidden, device, MLPBlock)
        exact = model.blocks[0].mlp(x.float())
    found: dict[str, Any] = {}
    replays: dict[str, Callable[[], object]] = {}
    for way in ways.split(","):
        try:
            model = build(1, dim, hidden, device, MLPBlock)
            model = model.to(compute_dtype(device))
            split_stack(way, model, dist.group.WORLD, device)
            part = rows_of(way, x, rank, world)
            step = inference(model.blocks[0].mlp, part)
            found[way] = {}
            if way != "alone":
                expected = rows_of(way, exact, rank, world)
                found[way]["error"] = checked(step(), expected)
            replays[way] = repeated(step, device, 1)
        except torch.AcceleratorError:  # the GPU is unusable from here
            raise
        except (NeedsGpu, NotImplementedError, RuntimeError) as error:
            found[way] = stopped(error)
    for way, samples in times_us(replays, device).items():
        found[way]["us"] = samples
    return found


def inference(module: Any, x: Tensor) -> Callable[[], Tensor]:
    """A step that calls a module without gradients."""
    import torch

    def step() -> Tensor:
        with torch.no_grad():
            result: Tensor = module(x)
            return result

    return step


def checked(result: Tensor, expected: Tensor) -> float:
    """The relative error of a result. Raises `WrongAnswer`."""
    error = relative_error(result, expected)
    if not error <= TOLERANCE:
        raise WrongAnswer(f"relative error {error:.1e} of a split MLP")
    return error


FORWARD: Parameters = {"layers": 4, "dim": 4096, "hidden": 14336, "rows": 8192}


def experiments() -> Iterator[Experiment]:
    """Loops of the variants on two GPUs, and the probe of rows on two and
    four."""
    for variant in VARIANTS:
        yield Experiment(
            chapter="several_gpus",
            name=f"tensor_{variant}",
            label="forward",
            group="tensor",
            first_steps=WARM_STEPS,
            gpus=2,
            parameters=FORWARD,
            loop=functools.partial(forward, variant=variant),
            work=forward_work,
            time_limit_s=40,
        )
    for gpus in (2, 4):
        yield Experiment(
            chapter="several_gpus",
            name=f"tensor_rows_on_{gpus}",
            gpus=gpus,
            parameters={
                "widths": "768x3072,4096x14336",
                "rows": "128,512,2048,8192",
                "large": 8192,
                "ways": "alone,reduced,sequence,overlapped",
            },
            trial={"rows": "128,2048"},
            probe=mlp_rows,
        )


EXPERIMENTS = tuple(experiments())
