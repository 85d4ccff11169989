"""The book is built whatever another GPU's recordings hold: here the default device's, altered at random."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import decode

from snippets.lab.cache import start_build
from snippets.lab.finding.book import all_claims, judge
from snippets.lab.finding.device import Device
from snippets.lab.page.ledger import verdict_data
from tests.book.pieces import pieces
from tests.lab.samples import BOOK

NAME = "nvidia-t100"
EVIL = "\u202egnp.exe\x1b[31m"
DEEP: list[Any] = [1]
for _ in range(400):
    DEEP = [DEEP]
ODD: tuple[Any, ...] = (None, [], {}, "", EVIL, -1, 0, 10**400, 1e308, True, DEEP)
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
SIDE_BY_SIDE = ("devices-compared", "devices-circumstances", "devices-chapters", "claims-", "mlp-on-each-device")
"""Pieces that show all devices in one."""
Event = dict[str, Any]


def altered(dice: random.Random, value: Any) -> Any:
    """The value with a part here and there dropped or replaced."""
    if dice.random() < 0.1:
        return dice.choice(ODD)
    if isinstance(value, dict):
        return {key: altered(dice, each) for key, each in value.items() if dice.random() > 0.05}
    if isinstance(value, list):
        return [altered(dice, each) for each in value if dice.random() > 0.05]
    return value


def zeroed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: zeroed(each) for key, each in value.items()}
    return [0] * len(value) if isinstance(value, list) else 0 if isinstance(value, float) else value


def make_up(root: Path, seed: int) -> Device:
    """Write the recordings of a device. Most can be read; what pages look for in them is often not there."""
    dice = random.Random(seed)
    points: tuple[Callable[[list[Event]], list[Event]], ...] = (
        lambda all_points: [],
        lambda all_points: all_points[::-1],
        lambda all_points: [{**point, "timings": None, "ceilings": []} for point in all_points],
        lambda all_points: [{**point, "timings": zeroed(point["timings"])} for point in all_points],
        lambda all_points: [{**point, "parameters": {"x": EVIL}, "flops": 0, "bytes": -1} for point in all_points],
    )
    for path in sorted((BOOK.root / BOOK.name).glob("*/*.*")):
        target = root / NAME / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".gz":
            content = decode(gzip.decompress(path.read_bytes()))
            target.write_bytes(gzip.compress(json.dumps(other_trace(dice, content)).encode(), compresslevel=1))
            continue
        content = json.loads(path.read_bytes())
        content.pop("trace_sha256", None)
        data = altered(dice, content["data"])
        content["data"] = data if isinstance(data, dict) else {}
        if dice.random() < 0.7:
            content["points"] = dice.choice(points)(content["points"])
        content["circumstances"] |= {"device": EVIL, "versions": {}, "clocks": {}} if dice.random() < 0.3 else {}
        target.write_text(json.dumps(content))
    return Device(root, NAME)


def other_trace(dice: random.Random, trace: Event) -> Event:
    """A share of the events of one category is altered."""
    category = dice.choice(("kernel", "cpu_op", "cuda_runtime", "user_annotation", "gpu_memcpy"))
    share = dice.choice((0.05, 0.3, 1.0))
    way = dice.choice(
        (
            lambda event: [],
            lambda event: [event | {"name": dice.choice(("x", EVIL, "\ud800", "void f<" * 300))}],
            lambda event: [event | {"dur": 0}] * 2,
            lambda event: [event | {"args": altered(dice, event.get("args", {}))}],
            lambda event: [event | {"name": f"aten::deep{level}"} for level in range(30)],
            lambda event: [event | {dice.choice(list(event)): dice.choice(ODD)}],
        )
    )
    found = []
    for event in trace["traceEvents"]:
        found += way(event) if event.get("cat") == category and dice.random() < share else [event]
    return trace | {"traceEvents": found}


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    root = tmp_path_factory.mktemp("recordings")
    (root / BOOK.name).symlink_to(BOOK.root / BOOK.name)
    return make_up(root, seed=0)


def test_no_recording_of_another_gpu_stops_a_page(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every piece is built for this device alone, and has no invisible character of it."""
    monkeypatch.setenv("RECORDINGS", str(device.root))
    faults = []
    start_build()
    for name, build in pieces():
        shown = (Device(device.root, BOOK.name) if any(each in name for each in SIDE_BY_SIDE) else device,)
        for page in ("frame", "inline"):
            monkeypatch.setattr(f"snippets.lab.page.{page}.shown_devices", lambda *_, shown=shown: shown)
        try:
            if match := INVISIBLE.search(build()):
                faults.append(f"{name}: {match[0]!r} in it")
        except Exception as error:
            faults.append(f"{name}: {type(error).__name__}: {error}")
    assert faults == []


def test_nor_what_machines_read_of_its_claims(device: Device) -> None:
    verdicts = [verdict_data(judge(claim, chapter, device)) for chapter, claim in all_claims().values()]
    assert len(json.dumps(verdicts, allow_nan=False)) > 100_000
