"""Recordings written by hand, a shelf of their own to stand on, and what of a page is markup and what is text."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure
from snippets.lab.recording.device import RECORDINGS
from snippets.lab.recording.digest import source_digest
from snippets.lab.recording.saving import save_recording
from snippets.lab.recording.schema import Ceiling, Environment, Point, Recording, Timing, Timings

# KEEP archive
# KEEP figures
# KEEP recording
from tests.lab import kineto

DEVICE = "nvidia-sample"
EVIL = ("</title><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "'onmouseover='alert(1)'&<b>")
"""Names as nobody gives them; what shows a name has to show these as text."""
PARTS = {"circumstances", "points", "timings"}


def circumstances(**changed: Any) -> Environment:
    given: dict[str, Any] = {
        "date": "2026-10-01T12:00:00Z",
        "commit": "0123abc",
        "device": "NVIDIA Sample",
        "compute_capability": "9.0",
        "multiprocessors": 4,
        "memory_bytes": 8_000_000_000,
        "l2_bytes": 50_000_000,
        "driver": "580.1",
        "cuda": "13.0",
        "versions": {"python": "3.12.3", "torch": "2.11.0", "triton": "not installed"},
        "clocks": {"sm_mhz": 1980.0},
    }
    return Environment(**given | changed)


def timing(*samples_us: float) -> Timing:
    """A timing of which the quartiles are easily seen: those of (10, 20, 30) are 15 and 25."""
    ordered = sorted(samples_us)
    middle = ordered[len(ordered) // 2]
    return Timing(middle, (ordered[0] + middle) / 2, (ordered[-1] + middle) / 2, samples_us)


def timings(*warm_us: float) -> Timings:
    return Timings(
        warm=timing(*(warm_us or (10.0, 20.0, 30.0))),
        cold=timing(40.0, 50.0, 60.0),
        launched=timing(70.0, 80.0, 90.0),
        enqueue=timing(5.0, 6.0, 7.0),
        input_sets=4,
        rotated_bytes=1_000_000,
    )


def point(parameters: dict[str, int | str] | None = None, timed: Timings | None = None, **changed: Any) -> Point:
    given: dict[str, Any] = {
        "parameters": parameters or {"size": 64},
        "flops": 2_000_000,
        "bytes": 4_000_000,
        "relative_error": 0.00234,
        "reference_dtype": "float64",
        "peak_memory_bytes": 16_384,
        "timings": timed,
    }
    return Point(**given | changed)


def sample(experiment_id: str = "mlp/eager", **changed: Any) -> Recording:
    """A recording that is not stale."""
    chapter, _, name = experiment_id.partition("/")
    given: dict[str, Any] = {
        "schema": 1,
        "chapter": chapter,
        "experiment": name,
        "label": "mlp_fwd",
        "digest": source_digest(chapter),
        "session": "2026-10-01T11:59:00Z",
        "circumstances": circumstances(),
        "capture_s": 1.5,
        "schedule": (1, 1, 3),
        "first_steps": 3,
        "points": (point(timed=timings()),),
        "ceilings": (Ceiling("copy", 2_000_000, 0, timing(1.0, 2.0, 3.0)),),
        "data": {},
        "has_trace": True,
    }
    return Recording(**given | changed)


def as_dict(found: Recording) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
    return decoded


def trace_json(
    *, name: str = "gemm", op: str = "aten::mm", label: str = "mlp_fwd", kernels: Iterable[int] = (2, 2, 2)
) -> bytes:
    """Steps of 100 us under a label, 80 us on the CPU: so many kernels of 10 us each, then a fill, under one op."""
    events = []
    correlation = 0
    for place, count in enumerate(kernels):
        start = 1000.0 * place
        events += [
            kineto.step(place + 2, start, 100, external=100 + place),
            kineto.annotation(label, start + 5, 80),
            kineto.op(op, start + 10, 60, external=10 * (place + 1), dims=[[64, 64], [64, 64]]),
        ]
        for which in range(count):
            correlation += 1
            begin = start + 20 + 10 * which
            events += [
                kineto.launch(correlation, begin, name=name if name in EVIL else "cudaLaunchKernel"),
                kineto.kernel(name, correlation, begin + 50, 10, **{"External id": 10 * (place + 1)}),
            ]
        correlation += 1
        events += [kineto.launch(correlation, start + 75, name="cudaMemsetAsync")]
        events += [kineto.memset(correlation, start + 130, 4, 64)]
    return kineto.trace_bytes(*events, deviceProperties=[{"id": 0, "name": "NVIDIA Sample"}])


def put(root: Path, *found: Recording, trace: bytes | None = None, device: str = DEVICE) -> None:
    """Save recordings, those with a trace with this one."""
    for one in found:
        save_recording(one, (trace or trace_json()) if one.has_trace else None, device, root)


def shelf(monkeypatch: pytest.MonkeyPatch, root: Path, device: str = DEVICE) -> Path:
    """Make `root` the place of all recordings, and `device` the one that pages show."""

    def moved(value: object) -> object:
        return root if value == RECORDINGS else value

    modules: tuple[ModuleType, ...] = (recording, figures, archive)
    for module in modules:
        for function in vars(module).values():
            if callable(function) and RECORDINGS in (getattr(function, "__defaults__", None) or ()):
                monkeypatch.setattr(function, "__defaults__", tuple(map(moved, function.__defaults__)))
    monkeypatch.setattr(recording, "RECORDINGS", root)
    monkeypatch.setattr(recording, "BUILDER", device)
    monkeypatch.setattr(recording, "this_device", lambda: None)
    monkeypatch.delenv("DEVICE", raising=False)
    return root


def files(root: Path) -> dict[str, bytes]:
    """Everything below `root`, hidden files too."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def damage(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def gzipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


class Markup(HTMLParser):
    """Elements, attributes and text of a piece of HTML, as a browser would see them."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def titles(self) -> list[str]:
        return [value or "" for name, value in self.attributes if name in ("title", "aria-label", "value")]


def assert_only_text(content: str, *names: str) -> None:
    """`names` stand in the text or in a title, whole; nothing in them became an element or an attribute."""
    seen = Markup(content)
    assert not {"script", "img", "b", "title"} & set(seen.elements)
    assert [name for name, _ in seen.attributes if name.startswith("on") or name == "src"] == []
    for name in names:
        assert name in seen.text or any(name in title for title in seen.titles), name


def claim(value: Any = 5, **changed: Any) -> Claim:
    """A claim that holds of 5."""
    given: dict[str, Any] = {
        "id": "M1",
        "sentence": "Five kernels.",
        "scope": "every-gpu",
        "measure": lambda device: Figure(value),
        "holds": lambda shown: shown.value == 5,
    }
    return Claim(**given | changed)
