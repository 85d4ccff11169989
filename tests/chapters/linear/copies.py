"""Copies of the book's recordings, to be changed."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kinetoscope.trace.queries import gpu_names
from snippets.lab.finding import Device
from snippets.lab.recording.schema import Point, Timing
from tests.lab import samples

Event = dict[str, Any]
READ = ("linear/*", "matmul_add/*", "mlp/eager.*")
"""Which files the chapter's findings read."""


class Copies:
    """Recordings of the default device whose files a test replaces."""

    def __init__(self, root: Path) -> None:
        self.device = Device(root, samples.BOOK.name)
        self.root = root / samples.BOOK.name
        book = samples.BOOK.root / samples.BOOK.name
        for path in (path for pattern in READ for path in book.glob(pattern)):
            (self.root / path.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, self.root / path.parent.name)
        self._age = itertools.count(1)

    def edit(self, experiment: str, change: Callable[[list[Event]], list[Event]]) -> None:
        """Replace the events of a trace."""
        path = self.root / f"{experiment}.trace.json.gz"
        content = json.loads(gzip.decompress(path.read_bytes()))
        content["traceEvents"] = change(content["traceEvents"])
        samples.untie(path)
        self._write(path, gzip.compress(json.dumps(content).encode(), compresslevel=1))

    def _write(self, path: Path, content: bytes) -> None:
        """With a time of its own: what is read is kept until the file's time is another one."""
        path.write_bytes(content)
        age = next(self._age)
        os.utime(path, ns=(age, age))

    def rename(self, experiment: str, old: str, new: str) -> None:
        """Give every event of one name another."""
        self.edit(experiment, lambda events: [one | {"name": new} if one.get("name") == old else one for one in events])

    def replace(self, experiment: str, **changed: Any) -> None:
        """Replace fields of a recording."""
        recording = self.device[experiment].recording
        self._write(
            self.root / f"{experiment}.json", msgspec.json.encode(msgspec.structs.replace(recording, **changed))
        )

    def retime(self, experiment: str, *rows: int, **changed: Timing) -> None:
        """Replace timings by `interleaved`, `enqueue`, ...: at all points, or at those with so many rows."""
        points = self.device[experiment].points
        self.replace(
            experiment,
            points=tuple(retimed(at, changed) if not rows or at.parameters["batch"] in rows else at for at in points),
        )

    def kernels(self, experiment: str) -> str:
        """The GPU work of an experiment's step by name."""
        return gpu_names(self.device[experiment].step)


def retimed(at: Point, changed: dict[str, Timing]) -> Point:
    assert at.timings is not None
    return msgspec.structs.replace(at, timings=msgspec.structs.replace(at.timings, **changed))


def always(us: float, times: int = 41) -> Timing:
    return Timing(us, us, us, (us,) * times)


def second_kernel(events: list[Event]) -> list[Event]:
    return events + [one | {"ts": one["ts"] + 50, "name": "reduce"} for one in events if one.get("cat") == "kernel"]
