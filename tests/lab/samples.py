"""Recordings written by hand and saved into a test's folder; tables of a page as text."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from snippets.lab.experiment import UnknownName, find
from snippets.lab.finding.band import equals
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import Measure
from snippets.lab.recording.device import DEFAULT_DEVICE, PROJECT
from snippets.lab.recording.fingerprint import fingerprint
from snippets.lab.recording.saving import save_recording
from snippets.lab.recording.schema import SCHEMA, Ceiling, Environment, Point, Recording, Timing, Timings
from tests.tool.markup import EVIL as EVIL, Markup, assert_only_text as assert_only_text, text_of
from tests.tool.simple import Operator as Operator, gzipped as gzipped, trace_json

DEVICE = "nvidia-sample"
BOOK = Device(PROJECT / "docs" / "recordings", DEFAULT_DEVICE)
"""What the book itself shows of its default device."""


def device(root: Path, name: str = DEVICE) -> Device:
    """The recordings of one device below `root`."""
    return Device(root, name)


def recordings(monkeypatch: pytest.MonkeyPatch, root: Path) -> Path:
    """Let commands and fences read the recordings below `root`. All else is handed a `Device`."""
    monkeypatch.setenv("RECORDINGS", str(root))
    monkeypatch.delenv("DEVICE", raising=False)
    return root


def environment(**changed: Any) -> Environment:
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
    """A timing of two or more samples; the quartiles of (10, 20, 30) are 15 and 25."""
    return Timing.from_samples(samples_us)


def timings(*interleaved_us: float) -> Timings:
    return Timings(
        interleaved=timing(*(interleaved_us or (10.0, 20.0, 30.0))),
        cold=timing(40.0, 50.0, 60.0),
        from_python=timing(70.0, 80.0, 90.0),
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


@functools.cache
def current_fingerprint(experiment_id: str) -> str:
    """Of an experiment of the book; of another name, a hash that nothing has."""
    try:
        (experiment,) = find(experiment_id)
    except UnknownName:
        return "f" * 16
    return fingerprint(experiment, gpu=environment().device)


def sample(experiment_id: str = "mlp/eager", **changed: Any) -> Recording:
    """A recording that is not stale."""
    chapter, _, name = experiment_id.partition("/")
    ceilings = changed.pop("ceilings", (Ceiling("copy", 2_000_000, 0, timing(1.0, 2.0, 3.0)),))
    given: dict[str, Any] = {
        "schema": SCHEMA,
        "chapter": chapter,
        "experiment": name,
        "label": "mlp_fwd",
        "fingerprint": current_fingerprint(experiment_id),
        "session": "2026-10-01T11:59:00Z",
        "environment": environment(),
        "capture_s": 1.5,
        "schedule": (1, 1, 3),
        "first_steps": 3,
        "points": (point(timed=timings()),),
        "data": {},
        "has_trace": True,
    }
    return with_ceilings(Recording(**given | changed), ceilings)


def with_ceilings(recording: Recording, ceilings: Iterable[Ceiling]) -> Recording:
    """The recording with these ceilings at every timed point."""
    points = (
        msgspec.structs.replace(each, ceilings=tuple(ceilings)) if each.timings else each for each in recording.points
    )
    return msgspec.structs.replace(recording, points=tuple(points))


def as_dict(recording: Recording) -> dict[str, Any]:
    """A recording as its JSON file has it."""
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(recording))
    return decoded


def save_all(root: Path, *recordings: Recording, trace: bytes | None = None, device: str = DEVICE) -> Device:
    """Save recordings, those with a trace with this one; return the device whose they are."""
    for recording in recordings:
        save_recording(root, device, recording, (trace or trace_json()) if recording.has_trace else None)
    return Device(root, device)


def untied(recording: Recording) -> Recording:
    """A recording as it was before it was saved, when it did not name its trace."""
    return msgspec.structs.replace(recording, trace_sha256="")


def untie(path: Path) -> None:
    """Let a recording no longer name its trace, for a test that puts another file in the place of this trace."""
    json_path = path.with_name(path.name.replace(".trace.json.gz", ".json"))
    decoded = msgspec.json.decode(json_path.read_bytes())
    if decoded.pop("trace_sha256", ""):
        new = json_path.with_suffix(".untied")
        new.write_bytes(msgspec.json.encode(decoded))
        new.replace(json_path)  # another inode: not what a reader has cached


def files(root: Path) -> dict[str, bytes]:
    """Everything below `root`, hidden files too."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def damage(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def closed(content: str) -> str:
    """HTML without the raw names behind the short forms of kernels."""
    return re.sub(r"<span popover.*?</span></span>", "", content)


def cells(content: str) -> list[list[str]]:
    """The text of each row's cells, the head first, without what is folded."""
    rows = re.findall(r"<tr>(.*?)</tr>", re.sub(_FOLD, "", closed(content)), re.DOTALL)
    return [[text_of(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)] for row in rows]


_FOLD = re.compile(r'<details class="row-fold">.*?</details>', re.DOTALL)


def folds(content: str) -> list[str]:
    """The text of the fold of each row that has one."""
    return [Markup(fold).text.removeprefix("more of it") for fold in _FOLD.findall(closed(content))]


def without_headings(content: str) -> str:
    """Tables without what a cell tells the style sheet."""
    return re.sub(r' data-head="[^"]*"', "", content)


def claim(value: Any = 5, **changed: Any) -> Claim:
    """A claim that holds of 5."""
    given: dict[str, Any] = {
        "id": "M1",
        "sentence": "Five kernels.",
        "scope": "every-gpu",
        "measure": lambda device: Figure(value),
        "band": equals(5),
    }
    return Claim(**given | changed)


def findings(*claims: Claim, **figures: Measure) -> ModuleType:
    """A chapter's findings, or a part of them, with these claims and figures."""
    module = ModuleType(f"findings_{next(_NUMBERS)}")
    own = [replace(claim, measure=_measure_of(module, claim.measure)) for claim in claims]
    vars(module).update({f"_{index}": claim for index, claim in enumerate(own)}, FIGURES=figures)
    return module


_NUMBERS = count()


def _measure_of(module: ModuleType, measure: Measure) -> Measure:
    """The same measure as a function of this module: a claim belongs to the module that its measure is in."""

    def measured(device: Device) -> Figure:
        return measure(device)

    measured.__module__ = module.__name__
    return measured
