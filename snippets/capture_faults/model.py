"""Wrong captures, each next to the right one."""

import threading
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset


# --8<-- [start:build]
def build(device: str, layers: int = 24, width: int = 256) -> nn.Module:
    """Narrow Linears and ReLUs, so that every step has many short operators."""
    pairs = (
        layer
        for _ in range(layers)
        for layer in (nn.Linear(width, width), nn.ReLU())
    )
    return nn.Sequential(*pairs).to(device)


# --8<-- [end:build]


# --8<-- [start:forgotten_step]
def forgotten_step(step: Callable[[], None]) -> profile:
    """Profile with a schedule, without `prof.step()`."""
    with profile(schedule=schedule(wait=1, warmup=1, active=3)) as prof:
        for _ in range(5):
            step()
    return prof


# --8<-- [end:forgotten_step]


# --8<-- [start:ended_steps]
def ended_steps(step: Callable[[], None]) -> profile:
    """The same, with `prof.step()` after each step."""
    with profile(schedule=schedule(wait=1, warmup=1, active=3)) as prof:
        for _ in range(5):
            step()
            prof.step()
    return prof


# --8<-- [end:ended_steps]


# --8<-- [start:cpu_only]
def cpu_only(step: Callable[[], None]) -> profile:
    """Profile without the GPU's activities."""
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        step()
    return prof


# --8<-- [end:cpu_only]


# --8<-- [start:in_a_thread]
def in_a_thread(step: Callable[[], None]) -> profile:
    """Run steps in a thread that starts after the profiler."""
    with profile() as prof:
        worker = threading.Thread(target=step)
        worker.start()
        worker.join()
    return prof


# --8<-- [end:in_a_thread]


class Squares(Dataset[Tensor]):
    """A dataset whose items need an operator or two each."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((256,), float(index)).pow(2)


# --8<-- [start:in_workers]
def in_workers(workers: int) -> profile:
    """A loader that makes items in this process (0 workers) or in worker
    processes."""
    loader = DataLoader(Squares(), batch_size=8, num_workers=workers)
    batches: Iterator[Tensor] = iter(loader)
    with profile() as prof:
        for batch in batches:
            batch.sum()
    return prof


# --8<-- [end:in_workers]
