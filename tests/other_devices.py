"""Made-up devices: the default one's recordings, with something dropped, renamed, nested or made null at random.

A device is a folder of empty files; what the loader would read from them is made in memory, from a seed. `pieces`
is all that the book shows, fence by fence and figure by figure. A hundred devices take half an hour on one core:

    python -m tests.other_devices 100
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import lru_cache, partial
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_recorded_trace
from snippets.lab.finding.book import all_claims, judge
from snippets.lab.finding.device import Device
from snippets.lab.page.inline import fig_formatter
from snippets.lab.page.ledger import verdict_data
from snippets.lab.recording import loading
from snippets.lab.recording.device import DEFAULT_DEVICE, PROJECT
from snippets.lab.recording.loading import Stamp
from snippets.lab.recording.schema import Recording, RecordingError, parse_recording
from snippets.lab.tools.page_text import executed_fences, pages

NAME = "nvidia-t100"
SOURCE = PROJECT / "docs" / "recordings" / DEFAULT_DEVICE
DEEP = 1200
ODD: tuple[Any, ...] = (None, [], {}, "", "text", "\u202egnp.exe", "\x1b[31m", -1, 0, 10**400, 1e308, True)
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
CATEGORIES = ("kernel", "kernel", "cpu_op", "cpu_op", "cuda_runtime", "cuda_driver", "user_annotation", "gpu_memcpy")
NAMES = ("aten::linear", "x", "\u202eevil\x1b[0m", "\ud800", "void f<" * 300)
NOT_SHOWN = re.compile("Not shown for|not measured here")
SIDE_BY_SIDE = ("devices-compared", "devices-circumstances", "devices-chapters", "claims-", "mlp-on-each-device")
FIGURE = re.compile(r"`#!fig ([^`]+)`")


@dataclass
class Maker:
    """Alters the recordings of the default device with the dice of one seed."""

    seed: int
    how: Counter[str] = field(default_factory=Counter)

    def recording(self, path: str, stamp: Stamp, experiment_id: str) -> Recording:
        """In place of `loading._load`."""
        dice = random.Random(f"{self.seed} {experiment_id}")
        content = json.loads((SOURCE / f"{experiment_id}.json").read_bytes())
        for _ in range(dice.choice((0, 1, 1, 2, 4))):
            self._alter_recording(dice, content)
        recording = parse_recording(json.dumps(content).encode(), Path(path).name)
        if recording.id != experiment_id:  # as the loader does
            raise RecordingError(f"a recording of {recording.id!r}")
        return recording

    def trace(self, path: str, stamp: Stamp, digest: str, experiment_id: str) -> Trace:
        """In place of `loading._trace`."""
        dice = random.Random(f"{self.seed} {'/'.join(Path(path).parts[-2:])}")
        source = SOURCE.joinpath(*Path(path).parts[-2:])
        if dice.random() < 0.3:
            return _whole_trace(source)
        content = msgspec.json.decode(gzip.decompress(source.read_bytes()))
        for _ in range(dice.choice((1, 1, 2, 4))):
            content["traceEvents"] = self._altered_events(dice, content["traceEvents"])
        return read_recorded_trace(json.dumps(content).encode())

    def _alter_recording(self, dice: random.Random, content: dict[str, Any]) -> None:
        """One change. Most leave a recording that can be read, so that the pages meet it."""
        points = content["points"]
        change = dice.choice(("data", "data", "data", "points", "timing", "ceiling", "point", "text", "anything"))
        self.how[f"recording: {change}"] += 1
        if change == "data":
            content["data"] = self.odd(dice, content["data"])
            content["data"] = content["data"] if isinstance(content["data"], dict) else {}
        elif change == "points" and points:
            content["points"] = dice.choice(([], points[:1], points[1:], points * 2, points[::-1]))
        elif change == "timing" and points:
            point = dice.choice(points)
            for timing in (point["timings"] or {}).values() if dice.random() < 0.7 else ():
                if isinstance(timing, dict):
                    timing |= {key: 0 for key in ("median_us", "q1_us", "q3_us")}
                    timing["samples_us"] = [0] * len(timing["samples_us"])
            point["timings"] = point["timings"] if dice.random() < 0.5 else None
        elif change == "ceiling" and points:
            dice.choice(points)["ceilings"] = []
        elif change == "point" and points:
            point = dice.choice(points)
            point[dice.choice(("flops", "bytes", "peak_memory_bytes"))] = dice.choice((0, -1, 10**18))
            point["parameters"] = dice.choice(({}, point["parameters"], {"size": 7, "x": "a,b=\u202e"}))
        elif change == "text":
            content["circumstances"]["device"] = dice.choice([each for each in ODD if isinstance(each, str)])
            content["circumstances"]["versions"] = {}
            content["circumstances"]["clocks"] = {}
        else:
            key = dice.choice(list(content))
            content[key] = self.odd(dice, content[key])

    def odd(self, dice: random.Random, value: Any, depth: int = 0) -> Any:
        """The value with one thing in it dropped, renamed, nested, made null, text or another number."""
        if isinstance(value, dict | list) and value and depth < 6 and dice.random() < 0.8:
            if isinstance(value, dict):
                key = dice.choice(list(value))
                way = dice.random()
                if way < 0.2:
                    return {name: each for name, each in value.items() if name != key}
                if way < 0.4:
                    return {f"{name}x" if name == key else name: each for name, each in value.items()}
                return {name: self.odd(dice, each, depth + 1) if name == key else each for name, each in value.items()}
            index = dice.randrange(len(value))
            if dice.random() < 0.3:
                return value[:index]
            return [self.odd(dice, each, depth + 1) if index == at else each for at, each in enumerate(value)]
        if dice.random() < 0.15:
            for _ in range(dice.choice((3, 400, 900))):
                value = [value]
            return value
        return dice.choice(ODD)

    def _altered_events(self, dice: random.Random, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        cat, share = dice.choice(CATEGORIES), dice.choice((0.05, 0.3, 1.0))
        ways: dict[str, Callable[[dict[str, Any]], list[dict[str, Any]]]] = {
            "drop": lambda event: [],
            "rename": lambda event: [event | {"name": name}],
            "twice": lambda event: [event, event | {"name": "splitKreduce_kernel"}],
            "instant": lambda event: [event | {"dur": 0}],
            "no arguments": lambda event: [event | {"args": {}}],
            "odd arguments": lambda event: [event | {"args": self.odd(dice, event.get("args", {}))}],
            "nest": lambda event: [event, *(event | {"name": f"aten::deep{level}"} for level in range(depths.pop()))],
            "odd": lambda event: [{**event, dice.choice(list(event)): dice.choice(ODD)}],
        }
        way, name = (
            dice.choice(list(ways)),
            dice.choice(("aten::linear", "x", "\u202eevil\x1b[0m", "\ud800", "void f<" * 300)),
        )
        depths = [3] * len(events) + [DEEP] * 2
        self.how[f"trace: {way} {cat}"] += 1
        return [
            new
            for event in events
            for new in (ways[way](event) if event.get("cat") == cat and dice.random() < share else [event])
        ]


@lru_cache(maxsize=256)
def _whole_trace(path: Path) -> Trace:
    return read_recorded_trace(path)


def lay_out(root: Path) -> Device:
    """The folders: a link to the default device's, and the other's with empty files. Returns the other."""
    shutil.copytree(SOURCE, root / DEFAULT_DEVICE)
    for path in SOURCE.glob("*/*.*"):
        target = root / NAME / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    return Device(root, NAME)


def in_place(device: Device, maker: Maker) -> Any:
    """A patch of the loader: the files of this device are what the maker makes of the default one's."""
    kept: dict[str, Any] = {}

    def once(make: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
        def load(path: str, *more: Any) -> Any:
            if f"/{device.name}/" not in path:
                return real(path, *more)
            if path not in kept:
                try:
                    kept[path] = make(path, *more)
                except Exception as error:
                    kept[path] = error
            if isinstance(kept[path], Exception):
                raise kept[path].with_traceback(None)
            return kept[path]

        return load

    return patch.multiple(loading, _load=once(maker.recording, loading._load), _trace=once(maker.trace, loading._trace))


@lru_cache(maxsize=1)
def pieces() -> list[tuple[str, Callable[[], str]]]:
    """Every fence, figure and claim of the book: its name, and a function that builds it as a page does."""
    found: dict[str, Callable[[], str]] = {}
    for page, text in pages(PROJECT / "docs").items():
        for fence in executed_fences(page, text):
            found[f"{fence.place} {fence.ids}"] = partial(_run, fence.body)
        for name in FIGURE.findall(text):
            found[f"docs/{page} #!fig {name}"] = partial(fig_formatter, name, "fig", "fig", None)
    return list(found.items())


def _run(body: str) -> str:
    with redirect_stdout(StringIO()) as printed:
        exec(compile(body, "fence", "exec"), {})
    return printed.getvalue()


def shown_alone(device: Device, name: str, build: Callable[[], str]) -> str:
    """Build a piece for this device alone; one that shows all devices side by side, for the default device."""
    shown = (Device(device.root, DEFAULT_DEVICE) if any(each in name for each in SIDE_BY_SIDE) else device,)
    with (
        patch("snippets.lab.page.frame.shown_devices", lambda *_: shown),
        patch("snippets.lab.page.inline.shown_devices", lambda *_: shown),
    ):
        return build()


def claims_of(device: Device) -> str:
    """The output of `claims --json` for the device."""
    verdicts = (judge(claim, chapter, device) for chapter, claim in all_claims().values())
    return json.dumps([verdict_data(verdict) for verdict in verdicts], ensure_ascii=False, allow_nan=False)


def faults_of(content: str) -> str:
    """The faults of a built piece; empty without any."""
    match = INVISIBLE.search(content)
    return f"{match[0]!r} in it" if match else ""


def main(count: int, first: int = 0) -> int:
    """Build all of the book for so many devices; print what stopped, and what it took."""
    faults, built, slowest = Counter[str](), Counter[str](), 0.0
    with tempfile.TemporaryDirectory() as folder:
        device = lay_out(Path(folder))
        os.environ |= {"RECORDINGS": folder, "DEVICE": ""}
        for seed in range(first, first + count):
            start, before = time.monotonic(), faults.total()
            with in_place(device, Maker(seed)):
                for name, build in [*pieces(), ("claims --json", partial(claims_of, device))]:
                    began = time.monotonic()
                    content, fault = attempt(device, name, build)
                    faults[fault] += bool(fault)
                    built["not shown" if NOT_SHOWN.search(content) else "built"] += 1
                    slowest = max(slowest, time.monotonic() - began)
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            stopped = faults.total() - before
            print(f"seed {seed}: {stopped} stopped, {time.monotonic() - start:.1f} s, {peak_mb} MB", flush=True)
    print(f"{count} devices, {built.total()} pieces {dict(built)}, slowest {slowest:.1f} s")
    for fault, times in (+faults).most_common():
        print(times, fault)
    return 1 if +faults else 0


def attempt(device: Device, name: str, build: Callable[[], str]) -> tuple[str, str]:
    """The content of a piece, and what is wrong with it: an error and where it was raised."""
    try:
        content = shown_alone(device, name, build)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return "", f"{name}: {type(error).__name__}: {str(error)[:100]} at {Path(last.filename).name}:{last.lineno}"
    return content, f"{name}: {fault}" if (fault := faults_of(content)) else ""


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
