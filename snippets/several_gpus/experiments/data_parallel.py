"""The ladder of data parallel, and what its options change.

The weights and the batches are random. Rank 0 asks for its input back, rank 1
for the negative of its input, so that their gradients differ.
"""

from __future__ import annotations

import functools
import gc
import itertools
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import (
    Experiment,
    Instruments,
    Loop,
    Parameters,
    WrongAnswer,
)
from snippets.several_gpus.experiments.clocks import (
    Step,
    numbers,
    slowest,
    times_us,
)

if TYPE_CHECKING:
    from torch import Tensor

BATCHES = 3
"""Of a rank; the loop takes them in turn."""
LEARNING_RATE = 0.05
CHECKED = 3
"""Steps after which all ranks must have the same weights."""
RUNGS = (
    "alone",
    "each_parameter",
    "one_bucket",
    "buckets_in_backward",
    "ddp",
    "ddp_views",
)
MIB = 1 << 20


def batches_of(
    rank: int, width: int, tokens: int, device: str, dtype: Any
) -> list[tuple[Tensor, Tensor]]:
    """The inputs and targets of a rank, (tokens, width) each."""
    import torch

    draw = torch.Generator(device).manual_seed(1 + rank)
    sign = 1 - 2 * (rank % 2)
    inputs = [
        torch.randn(tokens, width, device=device, dtype=dtype, generator=draw)
        for _ in range(BATCHES)
    ]
    return [(x, sign * x) for x in inputs]


def dtype_of(device: str) -> Any:
    """bf16; on a CPU float32, which is faster there."""
    import torch

    return torch.bfloat16 if device == "cuda" else torch.float32


def training(
    device: str, rank: int, rung: Any, width: int, blocks: int, tokens: int
) -> tuple[Any, Generator[Tensor, None, None]]:
    """A model, and the losses of its training loop."""
    import torch

    from snippets.several_gpus.model import random_model
    from snippets.several_gpus.parallel import train

    dtype = dtype_of(device)
    model = random_model(width, blocks, device, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    batches = batches_of(rank, width, tokens, device, dtype)
    return model, train(model, rung, optimizer, itertools.cycle(batches))


def checked(
    model: Any, losses: Iterator[Tensor], device: str
) -> Generator[Tensor, None, None]:
    """The losses; after `CHECKED` steps, compare the ranks' weights.

    Raises `WrongAnswer` if they differ.
    """
    for count, loss in enumerate(losses, start=1):
        if count == CHECKED and (apart := weights_apart(model, device)):
            raise WrongAnswer(f"sums of weights differ by {apart:.1e}")
        yield loss


def weights_apart(model: Any, device: str) -> float:
    """How far apart the ranks' sums of all weights are; every rank calls
    this."""
    import torch

    with torch.no_grad():
        sums = [each.double().sum() for each in model.parameters()]
        total = float(torch.stack(sums).sum().item())
    high, minus_low = slowest([total, -total], device)
    return high + minus_low


@functools.cache
def exact_losses(
    world: int,
    is_together: bool,
    width: int,
    blocks: int,
    tokens: int,
    device: str,
    count: int,
) -> tuple[float, ...]:
    """The mean losses of `count` steps over all ranks' batches in float32 on
    one GPU: of one model, or of a model for each rank without communication.
    All rungs of a process share them.
    """
    import torch
    import torch.nn.functional as F

    from snippets.several_gpus.model import random_model

    dtype = dtype_of(device)
    batches = [
        batches_of(rank, width, tokens, device, dtype) for rank in range(world)
    ]
    groups = [batches] if is_together else [[each] for each in batches]
    means = [0.0] * count
    for group in groups:
        model = random_model(width, blocks, device, dtype).float()
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        for index in range(count):
            for each in group:
                x, y = each[index % BATCHES]
                loss = F.mse_loss(model(x.float()), y.float())
                (loss / len(group)).backward()
                means[index] += loss.item() / world
            optimizer.step()
            optimizer.zero_grad()
    return tuple(means)


def rung_loop(
    device: str,
    rank: int,
    world: int,
    variant: str,
    width: int,
    blocks: int,
    tokens: int,
) -> Loop:
    """A rung of the ladder, by name."""
    from snippets.several_gpus import parallel

    rung = getattr(parallel, variant)
    model, losses = training(device, rank, rung, width, blocks, tokens)
    if variant != "alone":
        losses = checked(model, losses, device)
    return Loop(
        losses=losses,
        reference=functools.partial(
            exact_losses,
            world,
            variant != "alone",
            width,
            blocks,
            tokens,
            device,
        ),
    )


def stepping(
    device: str, rank: int, rung: Any, width: int, blocks: int, tokens: int
) -> Step:
    """One step of a training loop."""
    _, losses = training(device, rank, rung, width, blocks, tokens)
    return functools.partial(next, losses)


def token_counts(
    instruments: Instruments,
    device: str,
    rank: int,
    world: int,
    width: int,
    blocks: int,
    counts: str,
) -> dict[str, Any]:
    """Steps of more and more tokens: without communication, with one bucket
    after backward, and with DistributedDataParallel.

    Returns {"ranks", "bytes": of all gradients, "all_reduce_us": of so many
    bytes, "matmul": {"us", "flops"} of an up projection of the most tokens,
    "counts": {tokens: {"alone_us", "one_bucket_us", "ddp_us"}}}.
    """
    import torch.distributed as dist

    from snippets.several_gpus import parallel
    from snippets.several_gpus.experiments.link import (
        average_of,
        random_numbers,
    )
    from snippets.several_gpus.model import parameter_count

    rungs: dict[str, Any] = {
        "alone_us": parallel.alone,
        "one_bucket_us": parallel.one_bucket,
        "ddp_us": parallel.ddp_views,
    }
    tokens = numbers(counts)
    found: dict[str, Any] = {}
    for count in tokens:
        steps = {
            name: stepping(device, rank, rung, width, blocks, count)
            for name, rung in rungs.items()
        }
        found[str(count)] = times_us(steps, device)
        steps.clear()
        gc.collect()  # modules of DistributedDataParallel are in cycles
    gradients = random_numbers(device, rank, parameter_count(width, blocks))
    op = average_of(device)
    alone = {
        "all_reduce_us": lambda: dist.all_reduce(gradients, op=op),
        "us": matmul(device, rank, max(tokens), width, 4 * width),
    }
    samples = times_us(alone, device)
    return {
        "ranks": world,
        "bytes": gradients.nbytes,
        "all_reduce_us": samples["all_reduce_us"],
        "matmul": {
            "us": samples["us"],
            "flops": 8 * max(tokens) * width**2,
        },
        "counts": found,
    }


def matmul(device: str, rank: int, m: int, k: int, n: int) -> Step:
    """(m, k) @ (k, n), as a linear layer has it."""
    from snippets.several_gpus.experiments.link import random_numbers

    x = random_numbers(device, rank, m * k).view(m, k)
    weight = random_numbers(device, rank, k * n).view(n, k)
    return lambda: x @ weight.t()


def ddp_options(
    instruments: Instruments,
    device: str,
    rank: int,
    world: int,
    width: int,
    blocks: int,
    tokens: int,
    caps: str,
    first: int,
    batches: int,
) -> dict[str, Any]:
    """DistributedDataParallel with other options.

    Returns {"ranks", "bytes": of all gradients, "variants": of `buckets`,
    "accumulation": of `accumulation` with half of the tokens}.
    """
    from snippets.several_gpus.model import parameter_count

    item = dtype_of(device).itemsize
    shape = width, blocks
    return {
        "ranks": world,
        "bytes": item * parameter_count(*shape),
        "variants": buckets(device, rank, *shape, tokens, numbers(caps), first),
        "accumulation": accumulation(
            device, rank, *shape, tokens // 2, batches
        ),
    }


def buckets(
    device: str,
    rank: int,
    width: int,
    blocks: int,
    tokens: int,
    caps: list[int],
    first: int,
) -> dict[str, Any]:
    """`bucket_cap_mb` of each of `caps`, the defaults, a first bucket of
    `first` MiB alone, and buckets as gradients.

    Returns {variant: {"us", "buckets": their bytes in the order of transfer,
    "held_bytes": by gradients and buckets before the optimizer's step}}.
    """
    from snippets.several_gpus.parallel import ddp

    options: dict[str, dict[str, Any]] = {
        f"bucket_cap_mb={cap}": {"bucket_cap_mb": cap} for cap in caps
    }
    options |= {
        "defaults": {},
        "large first bucket": {},
        "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
    }
    steps: dict[str, Step] = {}
    variants: dict[str, dict[str, Any]] = {}
    for name, given in options.items():
        with first_bucket(first if name == "large first bucket" else 1):
            rung = functools.partial(ddp, **given)
            steps[name], variants[name] = opened(
                device, rank, rung, width, blocks, tokens
            )
    for name, samples in times_us(steps, device).items():
        variants[name]["us"] = samples
    return variants


@contextmanager
def first_bucket(mebibytes: int) -> Iterator[None]:
    """The size of the first bucket of a DistributedDataParallel that is made
    here with the default `bucket_cap_mb`."""
    import torch.distributed

    defaults: Any = torch.distributed
    before = defaults._DEFAULT_FIRST_BUCKET_BYTES
    defaults._DEFAULT_FIRST_BUCKET_BYTES = mebibytes * MIB
    try:
        yield
    finally:
        defaults._DEFAULT_FIRST_BUCKET_BYTES = before


def opened(
    device: str, rank: int, rung: Any, width: int, blocks: int, tokens: int
) -> tuple[Step, dict[str, Any]]:
    """A step after its buckets are rebuilt, their bytes, and the memory that
    gradients and buckets hold between backward and the optimizer's step."""
    import torch

    wrapped: list[Any] = []
    held = [0]

    def kept(model: Any) -> Any:
        module, finish = rung(model)
        wrapped.append(module)

        def noting() -> None:
            finish()
            if device == "cuda":
                held[0] = torch.cuda.memory_allocated()

        return module, noting

    _, losses = training(device, rank, kept, width, blocks, tokens)
    before = torch.cuda.memory_allocated() if device == "cuda" else 0
    step = functools.partial(next, losses)
    for _ in range(CHECKED):
        step()
    found: dict[str, Any] = {"buckets": bucket_bytes(wrapped[0])}
    if device == "cuda":
        found["held_bytes"] = held[0] - before
    return step, found


def bucket_bytes(module: Any) -> list[int]:
    """The bytes of each bucket of a DistributedDataParallel, after its first
    backward."""
    text = module._get_ddp_logging_data()["rebuilt_bucket_sizes"]
    return [int(size) for size in text.split(",")]


def accumulation(
    device: str, rank: int, width: int, blocks: int, tokens: int, batches: int
) -> dict[str, Any]:
    """Steps of several batches: an all-reduce for each batch, or for the last
    alone.

    Returns {"batches", "tokens", "synced_us", "no_sync_us"}, of a step.
    """
    import torch

    from snippets.several_gpus import parallel
    from snippets.several_gpus.model import random_model

    dtype = dtype_of(device)
    drawn = batches_of(rank, width, tokens, device, dtype)
    several = list(itertools.islice(itertools.cycle(drawn), batches))
    ways: dict[str, Any] = {
        "synced_us": parallel.accumulate_synced,
        "no_sync_us": parallel.accumulate,
    }
    steps: dict[str, Step] = {}
    for name, way in ways.items():
        model = random_model(width, blocks, device, dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        module, _ = parallel.ddp_views(model)
        steps[name] = functools.partial(way, module, optimizer, several)
        for _ in range(CHECKED):
            steps[name]()
        if apart := weights_apart(model, device):
            raise WrongAnswer(f"{name}: sums of weights differ by {apart:.1e}")
    return {"batches": batches, "tokens": tokens, **times_us(steps, device)}


SHAPE: Parameters = {"width": 2048, "blocks": 16, "tokens": 4096}


def ladder() -> Iterator[Experiment]:
    """The rungs, timed interleaved."""
    for name in RUNGS:
        yield Experiment(
            chapter="several_gpus",
            name=name,
            gpus=2,
            label="step",
            group="ladder",
            parameters=SHAPE,
            loop=functools.partial(rung_loop, variant=name),
            time_limit_s=180,
        )


def option_probes() -> Iterator[Experiment]:
    """What tokens, buckets and accumulation change."""
    probes: dict[str, tuple[Any, Parameters]] = {
        "tokens": (
            token_counts,
            {
                "width": 4096,
                "blocks": 4,
                "counts": "256,512,1024,2048,4096,8192",
            },
        ),
        "ddp_options": (
            ddp_options,
            {
                **SHAPE,
                "tokens": 2048,
                "caps": "1,25,100,250,2000",
                "first": 250,
                "batches": 4,
            },
        ),
    }
    for name, (probe, parameters) in probes.items():
        yield Experiment(
            chapter="several_gpus",
            name=name,
            gpus=2,
            probe=probe,
            parameters=parameters,
        )


EXPERIMENTS = (*ladder(), *option_probes())
