"""Two ranks of a job, and the file of both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kinetoscope.ranks.joining import merge_ranks
from tests.tool.events import Event, kernel, launch, op, step, trace_bytes

BASE_NS, QUARTER_NS = 1_790_857_026_000_000_000, 7_889_238_000_000_000
JOB: Event = {"world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}


def flow(phase: str, number: int, event: Event) -> Event:
    return {"ph": phase, "id": number, "cat": "ac2g", "name": "ac2g", **{k: event[k] for k in ("pid", "tid", "ts")}}


def written(path: Path, rank: int, *more: Event, late_us: float = 0.0, **top: Any) -> Path:
    """A rank of two with two steps of 100 us, each with a launch, its kernel and an arrow from one to the other."""
    events: list[Event] = []
    for number in (1, 2):
        at = 1000.0 * number + late_us
        events += [step(number, at, 100, external=7), op("aten::mm", at + 1, 40, external=number)]
        events += [launch(number, at + 5), kernel("gemm", number, at + 30, 10.125, **{"External id": number})]
        events += [flow("s", number, events[-2]), flow("f", number, events[-1])]
    members = {"baseTimeNanoseconds": BASE_NS, "distributedInfo": {"rank": rank, **JOB}, **top}
    path.write_bytes(trace_bytes(*events, *more, **members))
    return path


def job(folder: Path, **of_rank_1: Any) -> tuple[list[Path], Path]:
    """The files of two ranks, and that of both."""
    return [written(folder / "a.json", 0), written(folder / "b.json", 1, late_us=3, **of_rank_1)], folder / "job.json"


def merged(paths: Sequence[Path], output: Path) -> Event:
    merge_ranks(paths, output)
    document: Event = json.loads(output.read_bytes())
    return document


def events_of(rank: int, document: Event) -> list[Event]:
    """The events of a rank below ten, as `merge` marks them."""
    return [
        event
        for event in document["traceEvents"]
        if (event["pid"] % 10 if isinstance(event["pid"], int) else int(event["pid"].split()[1].strip(":"))) == rank
    ]
