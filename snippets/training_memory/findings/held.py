"""The data of the step's probe: its variants, the bytes of its phases, and its events by kind of bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from snippets.lab.finding import Device, Figure, Run
from snippets.training_memory.experiments.shapes import SIZE, kept_bytes
from snippets.training_memory.findings.drawn import HeldStep

PHASES = ("forward", "backward", "optimizer")
EAGER: Mapping[str, Mapping[str, Any]] = {
    "fp32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "autocast": {"autocast": True},
    "recomputed": {"autocast": True, "recomputes": 1},
    "half recomputed": {"autocast": True, "recomputes": 2},
}
"""Variant -> what `kept_bytes` takes besides sizes; a compiler keeps what it chooses."""
NAMES: Mapping[str, str] = {
    "fp32": "float32",
    "bfloat16": "bf16 weights",
    "autocast": "autocast",
    "recomputed": "autocast, recomputed",
    "compiled": "autocast, compiled",
}
"""Variant -> its heading; those that are drawn and listed."""


def holds(device: Device) -> Run:
    """The run of the probe."""
    return device["training_memory/holds"]


def variant(device: Device, name: str) -> Mapping[str, Any]:
    """The probe's data of a variant."""
    found: Mapping[str, Any] = holds(device).data["variants"][name]
    return found


def figure(device: Device, name: str, value: float | bool | str, unit: str = "") -> Figure:
    """A figure of a variant."""
    return Figure(value, unit, origin=f"{holds(device).origin}, {name}")


def ratio(device: Device, name: str, above: float, below: float) -> Figure:
    """A ratio of bytes."""
    return figure(device, name, above / below, "x")


def farthest_from_one(device: Device, ratios: Mapping[str, float]) -> Figure:
    """The ratio of the variant that is farthest from one."""
    name = max(ratios, key=lambda each: abs(ratios[each] - 1))
    return figure(device, name, ratios[name], "x")


def phase_bytes(device: Device, name: str, phase: str, moment: str) -> int:
    """Bytes `before`, `after` or at the `peak` of a phase, in the middle one of the measured steps."""
    steps = variant(device, name)["steps"]
    return int(sorted(step[phase][moment] for step in steps)[len(steps) // 2])


def peak_bytes(device: Device, name: str) -> int:
    """The most bytes that a step holds."""
    return max(phase_bytes(device, name, phase, "peak") for phase in PHASES)


def left_by_forward(device: Device, name: str) -> int:
    """Bytes allocated after forward less those before."""
    after, before = (phase_bytes(device, name, "forward", moment) for moment in ("after", "before"))
    return after - before


def saved_bytes(device: Device, name: str) -> int:
    """Bytes of the storages that autograd saves in forward, each once, but for parameters and batch."""
    return sum(size for _, _, size in variant(device, name)["kept"])


def loss_bytes(device: Device) -> int:
    """Bytes of the loss's input, in float32."""
    sizes = holds(device).data["sizes"]
    return int(sizes["batch"] * sizes["seq"] * sizes["dim"]) * SIZE["float32"]


def derived_bytes(device: Device, name: str) -> int:
    """The same by shapes alone."""
    return sum(derived(device, name).values())


def derived(device: Device, name: str) -> dict[str, int]:
    """Operation that keeps a tensor for backward -> its bytes, by shapes alone."""
    return kept_bytes(**holds(device).data["sizes"], **EAGER[name])


def held_step(device: Device, name: str) -> HeldStep:
    """A variant's step by kind of bytes."""
    found = variant(device, name)
    events = found["timeline"]
    kinds = kinds_of_events(events["block"], events["bytes"], events["marks"], events["gradients"])
    there = {"parameters": found["parameters"], "states": found["states"]}
    if not set(events["gradients"]) & set(events["block"]):
        there["gradients"] = found["gradients"]
    start = found["steps"][-1]["optimizer"]["after"]
    return HeldStep(
        base={**there, "others": start - sum(there.values())},
        events=tuple(zip(kinds, events["bytes"], strict=True)),
        phases=dict(zip(PHASES, events["marks"], strict=True)),
    )


def kinds_of_events(
    blocks: Sequence[int], sizes: Sequence[int], marks: Sequence[int], gradients: Sequence[int]
) -> list[str]:
    """The kind of bytes of each allocation or release.

    A block that forward allocates and that is in use at its end is an activation. A block that is in use at the end of
    backward and has a parameter's gradient is a gradient. All others are temporaries; bytes from before the step are
    `others`.

    Args:
        blocks: the block of each event, as a number.
        sizes: its bytes, below zero for a release.
        marks: the number of events at the end of forward, of backward and of the optimizer.
        gradients: the blocks that have gradients at the end of backward.
    """
    forward, backward, *_ = marks
    kept = frozenset(gradients)
    began: dict[int, int] = {}
    kinds = ["others"] * len(blocks)

    def name(begin: int, end: int) -> str:
        if begin < backward <= end and blocks[begin] in kept:
            return "gradients"
        return "activations" if begin < forward <= end else "temporaries"

    for index, (block, size) in enumerate(zip(blocks, sizes, strict=True)):
        if size > 0:
            began[block] = index
        elif block in began:
            begin = began.pop(block)
            kinds[begin] = kinds[index] = name(begin, index)
    for begin in began.values():
        kinds[begin] = name(begin, len(blocks))
    return kinds
