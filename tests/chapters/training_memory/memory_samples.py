"""Made-up recordings of the second page: steps whose activations are those of shapes, and an allocator's segments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snippets.training_memory.allocator import LARGE, LENT, MIB, REQUESTS, SETTINGS
from snippets.training_memory.findings.allocator import segment_bytes
from snippets.training_memory.findings.held import EAGER
from snippets.training_memory.memory import SIZES, VARIANTS
from snippets.training_memory.shapes import kept_bytes
from tests.lab.sample_recordings import Sample, sample_of

PARAMETERS = 4 * SIZES["layers"] * (3 * SIZES["dim"] * SIZES["hidden"] + 2 * SIZES["dim"])
OTHERS = 50 * MIB


def memory_recordings() -> list[Sample]:
    """Those of the second page."""
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
    """What the probe finds of a variant."""
    number = 2 if options.get("dtype") == "bfloat16" else 4
    parameters, kept, events = PARAMETERS * number // 4, kept_of(name), Events()
    passing = 2 * PARAMETERS if "recomputes" in options else PARAMETERS
    blocks = []
    for size in kept:
        blocks.append((events.take(size), size))
        temporary = events.take(passing // 4)
        events.add(temporary, -passing // 4)
    marks = [len(events.block)]
    stays = options.get("set_to_none") is False
    gradients = []
    for block, size in reversed(blocks):
        temporary = events.take(passing)
        if not stays:
            gradients.append(events.take(parameters // len(kept)))
        events.add(temporary, -passing)
        events.add(block, -size)
    marks.append(len(events.block))
    if options.get("fused") is False:
        temporary = events.take(parameters)
        events.add(temporary, -parameters)
    for block in gradients:
        events.add(block, -(parameters // len(kept)))
    marks.append(len(events.block))
    start = 3 * parameters + OTHERS + (parameters if stays else 0)
    return {
        "parameters": parameters,
        "states": 2 * parameters,
        "batch": OTHERS,
        "gradients": parameters,
        "steps": 3 * [peaks(start, events.bytes, marks)],
        "timeline": {
            "block": events.block,
            "bytes": events.bytes,
            "at_us": [float(index) for index in range(len(events.block))],
            "marks": marks,
            "gradients": gradients or [len(events.block)],
        },
        "statistics": {"reserved_bytes.all.current": 2 * start},
        "free_of_all": [100 << 30, 140 << 30],
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
    """Two steps, of which one takes a quarter longer."""
    samples = [5000.0 + index for index in range(9)]
    return {
        name: {
            "times": {kind: [factor * us for us in samples] for kind in ("interleaved", "from_python", "enqueue")},
            "losses": [0.5, 0.25],
        }
        for name, factor in (("autocast", 1.0), ("recomputed", 1.25))
    }


def allocator(name: str) -> dict[str, Any]:
    """What one setting gives."""
    return {
        "context": 500 * MIB,
        "setting": {},
        "rounding": [
            {"request": size, "block": -(-size // 512) * 512, "segments": segment_bytes(size)} for size in REQUESTS
        ],
        "fragmented": {
            "2 MiB": fragmented(2, "CUDA out of memory. Tried to allocate 128.00 MiB." if name == "default" else ""),
            "1 MiB": fragmented(1, ""),
        },
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


def fragmented(kept: int, error: str) -> dict[str, Any]:
    """A segment whose blocks of 2 MiB stay, or one that is free; the small blocks have their own."""
    lent = [size * MIB for size in LENT]
    if kept == 2:
        blocks = [size for each in lent for size in (each, 2 * MIB)]
        segments = [segment("large", blocks, ["", "keep"] * len(lent))]
        split, count = "520 MiB", len(lent)
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
