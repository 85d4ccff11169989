"""Recordings by hand, the chapter's claims and figures on a device, and the visible text of a piece."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import Any

import msgspec
import pytest

from snippets.fused_mlp.findings import shapes
from snippets.lab.finding import Device, Figure
from snippets.lab.finding.book import findings, judge
from snippets.lab.finding.claim import Status
from snippets.lab.recording.schema import Point, Timings
from tests.chapters.altered import AlteredDevice, constant
from tests.lab.samples import sample

replace = msgspec.structs.replace
FINDINGS = findings("fused_mlp")
CLAIMS = {claim.id: claim for claim in FINDINGS.claims}
WIDE, THIN = (8, 64, 128), (512, 16, 32)
SERIES = (8192, 768, 3072)


def status(device: Device, claim_id: str) -> Status:
    return judge(CLAIMS[claim_id], "fused_mlp", device).status


def statuses(device: Device, *claim_ids: str) -> list[Status]:
    return [status(device, claim_id) for claim_id in claim_ids]


def measured(device: Device, claim_id: str) -> Figure:
    figure = judge(CLAIMS[claim_id], "fused_mlp", device).measured
    assert figure is not None
    return figure


def value(device: Device, figure: str) -> Any:
    return FINDINGS.figures[figure](device).value


def check_values(device: Device, **expected: object) -> None:
    """Of figures, by their names."""
    assert {name: value(device, name) for name in expected} == pytest.approx(expected)


def text_of(piece: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", piece)))


def thrice(times_us: Mapping[str, float]) -> dict[str, list[float]]:
    """The same time in each of three samples."""
    return {name: [us] * 3 for name, us in times_us.items()}


def point_of(
    shape: shapes.Shape = WIDE, us: float = 100.0, error: float = 1e-3, enqueue_us: float = 5.0, **steady: float
) -> Point:
    """Of a table: from Python it takes twice as long. `steady` has `joules` or `clock_mhz` if it was timed."""
    timings = Timings(constant(us), constant(us), constant(2 * us), constant(enqueue_us), 4, 0)
    if steady:
        timings = replace(timings, steady=replace(constant(1.01 * us), **steady))
    parameters: dict[str, int | str] = dict(zip(("tokens", "dim", "hidden"), shape, strict=True))
    return Point(parameters, 0, 0, error, "float64", 0, timings)


def put(device: AlteredDevice, experiment: str, *points: Point, **data: Any) -> None:
    """Put a recording by hand in the place of one of the chapter's."""
    name = f"fused_mlp/{experiment}"
    device.recordings[name] = sample(name, points=points, session="one", data=data, has_trace=False)


def put_times(device: AlteredDevice, prefix: str = "", **times_us: float) -> None:
    """Give experiments a single point each."""
    for name, us in times_us.items():
        put(device, prefix + name, point_of(WIDE, us))
