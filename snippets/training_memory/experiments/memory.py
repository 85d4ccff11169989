"""The memory of a training step: phase by phase, tensor by tensor, and with its activations recomputed."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from snippets.lab.experiment import Experiment, Instruments, NeedsGpu, Subject
from snippets.training_memory.experiments.timeline import Phases, timeline

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

SIZES: Mapping[str, int] = {
    "batch": 64,
    "seq": 128,
    "dim": 768,
    "hidden": 3072,
    "layers": 4,
}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "fp32": {},
    "foreach": {"fused": False},
    "bfloat16": {"dtype": "bfloat16"},
    "autocast": {"autocast": True},
    "recomputed": {"autocast": True, "recomputes": 1},
    "half recomputed": {"autocast": True, "recomputes": 2},
    "gradients zeroed": {"autocast": True, "set_to_none": False},
    "loss written out": {"autocast": True, "writes_loss": True},
    "compiled": {"autocast": True, "compiles": True},
}
"""Differences from fp32 with a fused optimizer; the compiled variant is last, as it leaves the most memory behind."""
WARM_UP, MEASURED = 3, 3
"""Steps before the measured steps, and measured steps."""
STATISTICS = (
    "allocated_bytes.all.current",
    "allocated_bytes.all.peak",
    "requested_bytes.all.current",
    "reserved_bytes.all.current",
    "reserved_bytes.all.peak",
    "inactive_split_bytes.all.current",
    "num_device_alloc",
    "num_device_free",
)


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """The bytes of the tensors' storages, each counted once."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    return sum({each.data_ptr(): each.nbytes() for each in storages}.values())


def states_of(optimizer: Optimizer) -> list[Tensor]:
    """The tensors that an optimizer keeps."""
    from torch import Tensor

    return [
        each
        for state in optimizer.state.values()
        for each in state.values()
        if isinstance(each, Tensor)
    ]


def make_step(
    device: str,
    sizes: Mapping[str, int],
    dtype: str = "float32",
    autocast: bool = False,
    recomputes: int = 0,
    compiles: bool = False,
    fused: bool = True,
    writes_loss: bool = False,
    set_to_none: bool = True,
) -> tuple[nn.Sequential, Optimizer, Phases, tuple[Tensor, Tensor]]:
    """A model, its optimizer, the phases of its step, and the batch that they read."""
    import torch
    from torch.nn.functional import mse_loss

    from snippets.training_memory.experiments.phases import (
        mean_square,
        phases,
        recomputing,
    )
    from snippets.training_memory.model import make_batches, make_model

    shape = {name: sizes[name] for name in ("dim", "hidden", "layers")}
    model = make_model(device, dtype=getattr(torch, dtype), **shape)
    optimizer = torch.optim.AdamW(
        model.parameters(), fused=fused, foreach=not fused
    )
    x, target = next(
        make_batches(
            device,
            sizes["batch"],
            sizes["seq"],
            sizes["dim"],
            dtype=getattr(torch, dtype),
            count=1,
        )
    )
    if compiles:
        model.compile()
    forward = recomputing(model, recomputes) if recomputes else model
    loss = mean_square if writes_loss else mse_loss
    steps = phases(forward, optimizer, x, target, autocast, loss, set_to_none)
    return model, optimizer, steps, (x, target)


def measure_step(
    device: str, sizes: Mapping[str, int], **variant: Any
) -> dict[str, Any]:
    """The memory that one variant of the step holds. On a CPU only tensors are
    counted."""
    import torch

    from snippets.training_memory.experiments.phases import (
        kept_for_backward,
        peaks,
    )

    model, optimizer, steps, batch = make_step(device, sizes, **variant)
    parameters = list(model.parameters())

    _run(steps, WARM_UP)
    found: dict[str, Any] = {
        "parameters": bytes_of(parameters),
        "states": bytes_of(states_of(optimizer)),
        "batch": bytes_of(batch),
    }
    if device == "cuda":
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        _run(steps, 1)
        found["steps"] = [peaks(steps) for _ in range(MEASURED)]
        found["timeline"] = timeline(steps, parameters)
        statistics = torch.cuda.memory_stats()
        found["statistics"] = {
            name: statistics.get(name) for name in STATISTICS
        }
        found["free_of_all"] = list(torch.cuda.mem_get_info())
    kept = kept_for_backward(steps["forward"], but=[*parameters, *batch])
    found["kept"] = [
        [
            "x".join(map(str, each.shape)),
            str(each.dtype).removeprefix("torch."),
            each.untyped_storage().nbytes(),
        ]
        for each in kept.values()
    ]
    kept.clear()
    steps["backward"]()
    found["gradients"] = bytes_of(
        each.grad for each in parameters if each.grad is not None
    )
    return found


def _run(steps: Phases, count: int) -> None:
    for _ in range(count):
        for phase in steps.values():
            phase()


def holds(
    instruments: Instruments, device: str, **sizes: int
) -> dict[str, Any]:
    """Each variant of the step, one after the other.

    Returns {"sizes": of the step, "variants": {variant: the result of `measure_step`}}.
    """
    import torch

    found = {}
    for name, variant in VARIANTS.items():
        if device == "cuda":
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        found[name] = measure_step(device, sizes, **variant)
    return {"sizes": sizes, "variants": found}


def recompute(
    instruments: Instruments, device: str, batches: str, **sizes: int
) -> dict[str, Any]:
    """Times and losses of the step that keeps its activations and of the step that recomputes them, at each batch of a
    list such as "64 128".

    Returns {batch: {variant: {"times": {kind: samples in us}, "losses": [...]}}}.
    """
    if device != "cuda":
        raise NeedsGpu("a CPU has no timing here: training_memory/holds runs")
    return {
        batch: _recompute(instruments, device, {**sizes, "batch": int(batch)})
        for batch in batches.split()
    }


def _recompute(
    instruments: Instruments, device: str, sizes: Mapping[str, int]
) -> dict[str, Any]:
    variants = ("autocast", "recomputed")
    losses = {name: _losses(device, sizes, name) for name in variants}
    subjects = {name: _subject(device, sizes, name) for name in variants}
    times = instruments.time_all(subjects)
    kinds = ("interleaved", "from_python", "enqueue")
    return {
        name: {
            "times": {
                kind: list(getattr(times[name], kind).samples_us)
                for kind in kinds
            },
            "losses": losses[name],
        }
        for name in variants
    }


def _losses(device: str, sizes: Mapping[str, int], variant: str) -> list[float]:
    """The losses of the first steps."""
    subject = _subject(device, sizes, variant)
    batch = subject.inputs()
    return [subject.step(*batch).item() for _ in range(8)]


def _subject(device: str, sizes: Mapping[str, int], variant: str) -> Subject:
    """A whole step as a subject: it trains on the batch that it gets."""
    from snippets.training_memory.experiments.phases import recomputing
    from snippets.training_memory.model import make_batches, train_step

    options = VARIANTS[variant]
    model, optimizer, _, _ = make_step(device, sizes, **options)
    forward = recomputing(model) if options.get("recomputes") else model
    batches = make_batches(
        device, sizes["batch"], sizes["seq"], sizes["dim"], count=8
    )

    def step(x: Tensor, target: Tensor) -> Tensor:
        return train_step(forward, optimizer, x, target, autocast=True)

    return Subject(
        step=step,
        inputs=lambda: next(batches),
        reference=step,
        in_graph=False,
    )


MEMORY = (
    Experiment(
        chapter="training_memory",
        name="holds",
        parameters=SIZES,
        probe=holds,
        time_limit_s=240,
    ),
    Experiment(
        chapter="training_memory",
        name="recompute",
        parameters={
            "batches": "64 128",
            **{name: size for name, size in SIZES.items() if name != "batch"},
        },
        probe=recompute,
    ),
)
