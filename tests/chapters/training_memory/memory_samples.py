"""Made-up recordings of the second page: steps whose activations are those of shapes, and an allocator's segments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snippets.training_memory.allocator import LARGE, LENT, MIB, REQUESTS, SETTINGS
from snippets.training_memory.experiments.memory import SIZES, VARIANTS
from snippets.training_memory.experiments.shapes import kept_bytes
from snippets.training_memory.findings.allocator import segment_bytes
from snippets.training_memory.findings.held import EAGER
from tests.lab.sample_recordings import Sample, sample_of

PARAMETERS = 4 * SIZES["layers"] * (3 * SIZES["dim"] * SIZES["hidden"] + 2 * SIZES["dim"])
OTHERS, CARD = 50 * MIB, 100 << 30
LOSS = 4 * SIZES["batch"] * SIZES["seq"] * SIZES["dim"]
"""Bytes of what the loss reads, and of its result's storage."""


def memory_recordings() -> list[Sample]:
    """The recordings of the second page."""
    variants = {name: step(name, options) for name, options in VARIANTS.items()}
    return [
        sample_of("training_memory/holds", 0.0, data={"sizes": dict(SIZES), "variants": variants}),
        sample_of("training_memory/recompute", 0.0, data=recompute()),
        sample_of("training_memory/allocators", 0.0, data={name: allocator(name) for name in SETTINGS}),
    ]


def kept_of(name: str) -> list[int]:
    """The bytes of what forward keeps; compiled, three quarters of what it keeps under autocast."""
    known = EAGER.get(name, {"autocast": True})
    sizes = [size for size in kept_bytes(**SIZES, **known).values() if size]
    return [3 * size // 4 for size in sizes] if name == "compiled" else sizes


class Events:
    """Columns of a step's events."""

    def __init__(self) -> None:
        self.block: list[int] = []
        self.bytes: list[int] = []

    def take(self, size: int) -> int:
        """Allocate a new block; its number."""
        self.add(len(self.block), size)
        return self.block[-1]

    def add(self, block: int, size: int) -> None:
        """An allocation, or below zero a release."""
        self.block.append(block)
        self.bytes.append(size)


def step(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The probe's data of a variant."""
    number = 2 if options.get("dtype") == "bfloat16" else 4
    parameters, kept, events = PARAMETERS * number // 4, kept_of(name), Events()
    passing = PARAMETERS * (3 if "recomputes" in options else 1)
    blocks = []
    for size in [*kept, 512 if "writes_loss" in options else LOSS]:
        temporary = events.take(passing // 4)
        events.add(temporary, -passing // 4)
        blocks.append((events.take(size), size))
    marks, gradients = [len(events.block)], {}
    for block, size in reversed(blocks):
        temporary = events.take(passing)
        if "set_to_none" not in options:
            share = parameters // 20 if len(gradients) < len(blocks) - 1 else parameters - sum(gradients.values())
            gradients[events.take(share)] = share
        events.add(temporary, -passing)
        events.add(block, -size)
    marks.append(len(events.block))
    if options.get("fused") is False:
        temporary = events.take(parameters)
        events.add(temporary, -parameters)
    for block, size in gradients.items():
        events.add(block, -size)
    marks.append(len(events.block))
    start = 3 * parameters + OTHERS + (0 if gradients else parameters)
    found = peaks(start, events.bytes, marks)
    reserved = max(phase["peak"] for phase in found.values()) + 100 * MIB
    return {
        "parameters": parameters,
        "states": 2 * parameters,
        "batch": OTHERS,
        "gradients": parameters,
        "steps": 3 * [found],
        "timeline": {
            "block": events.block,
            "bytes": events.bytes,
            "at_us": [float(index) for index in range(len(events.block))],
            "marks": marks,
            "gradients": [*gradients] or [len(events.block)],
        },
        "statistics": {"reserved_bytes.all.current": reserved, "inactive_split_bytes.all.current": 50 * MIB},
        "free_of_all": [CARD - reserved - 800 * MIB, CARD],
        "kept": [["1", "float32", size] for size in kept],
    }


def peaks(start: int, sizes: list[int], marks: list[int]) -> dict[str, dict[str, int]]:
    """Bytes of each phase."""
    found, level, begin = {}, start, 0
    for phase, end in zip(("forward", "backward", "optimizer"), marks, strict=True):
        levels = [level]
        for size in sizes[begin:end]:
            levels.append(levels[-1] + size)
        found[phase] = {"before": level, "after": levels[-1], "peak": max(levels)}
        level, begin = levels[-1], end
    return found


def recompute() -> dict[str, Any]:
    """Two steps at two batches; of the smaller batch, the one that recomputes waits for its launches."""
    return {"64": times(4000.0, 6000.0, 5950.0), "128": times(16_000.0, 20_000.0, 6000.0)}


def times(keeping_us: float, recomputing_us: float, launching_us: float) -> dict[str, Any]:
    """Times of both steps, and when the second one is launched."""
    wholes = {"autocast": (keeping_us, 3000.0), "recomputed": (recomputing_us, launching_us)}
    return {
        name: {
            "times": {
                kind: [us + index for index in range(9)]
                for kind, us in (("interleaved", whole), ("from_python", whole), ("enqueue", launching))
            },
            "losses": [0.5, 0.25],
        }
        for name, (whole, launching) in wholes.items()
    }


def allocator(name: str) -> dict[str, Any]:
    """The data of one setting."""
    return {
        "context": 500 * MIB,
        "setting": {},
        "rounding": [
            {"request": size, "block": -(-size // 512) * 512, "segments": segment_bytes(size)} for size in REQUESTS
        ],
        "fragmented": {"2 MiB": fragmented(2, name), "1 MiB": fragmented(1, name)},
        "profiled": {"2 MiB": profiled(2), "1 MiB": profiled(1)},
    }


def profiled(kept: int) -> list[dict[str, Any]]:
    """Rows of the profiler's table."""
    held = {"lend": sum(LENT) * MIB, "keep": len(LENT) * kept * MIB}
    return [{"name": name, "calls": len(LENT), "self_bytes": 0, "bytes": size} for name, size in held.items()]


SUMMARY = """\
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      | {allocated} MiB | 546 MiB | 1092 MiB | 1066 MiB |
|---------------------------------------------------------------------------|
| GPU reserved memory   | {reserved} MiB | 546 MiB | 546 MiB | 0 B |
|---------------------------------------------------------------------------|
| Non-releasable memory | {split} | 546 MiB | 1092 MiB | 1066 MiB |
| Non-releasable allocs | {count} | 13 | 20 | 7 |
|===========================================================================|
"""


def fragmented(kept: int, setting: str) -> dict[str, Any]:
    """A segment whose blocks of 2 MiB stay, or one that is free; the small blocks have their own."""
    is_default = setting == "default"
    error = "CUDA out of memory. Tried to allocate 128.00 MiB." if is_default and kept == 2 else ""
    lent = [size * MIB for size in LENT]
    if kept == 2:
        blocks = [size for each in lent for size in (each, 2 * MIB)]
        segments = [segment("large", blocks, ["", "keep"] * len(lent))]
        split, count = ("520 MiB", len(lent)) if is_default else ("0 B", 0)
    else:
        whole = sum(lent) + len(lent) * MIB
        segments = [segment("large", [whole], [""]), segment("small", [MIB, MIB], ["keep", "keep"])]
        split, count = "0 B", 0
    reserved = sum(each["bytes"] for each in segments)
    held = len(lent) * kept
    state = {"requested": held * MIB, "allocated": held * MIB, "reserved": reserved, "split": 0, "retries": 0}
    return {
        "limit": 600 * MIB,
        "cached": {**state, "allocated": 0},
        "cached_summary": SUMMARY.format(allocated=0, reserved=reserved // MIB, split="0 B", count=0),
        "interleaved": state,
        "summary": SUMMARY.format(allocated=held, reserved=reserved // MIB, split=split, count=count),
        "segments": segments,
        "error": error,
        "asked": {**state, "reserved": reserved + (0 if error else LARGE * MIB)},
        "segments_after": segments,
    }


def segment(pool: str, blocks: list[int], owners: list[str]) -> dict[str, Any]:
    """A segment of a snapshot."""
    return {"pool": pool, "bytes": sum(blocks), "blocks": blocks, "owners": owners}
