"""Ranks that were recorded on two and four GPUs, merged: nothing is lost, and each rank is read back as it was."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.ranks.digest import digest
from kinetoscope.ranks.joined import read_ranks
from kinetoscope.ranks.joining import merge_ranks
from kinetoscope.ranks.ranks import ranks_report
from kinetoscope.ranks.texts import ranks_headline
from kinetoscope.trace.kineto import read_trace
from tests.tool.recorded import PROJECT

JOBS = PROJECT.parent / "shared" / "traces" / "ranks"
pytestmark = pytest.mark.skipif(not JOBS.is_dir(), reason="no ranks in ../shared/traces/ranks")
NAMES = sorted({path.name.partition(".")[0] for path in JOBS.glob("*.rank*.json.gz")})
FLOWS = ("ac2g", "fwdbwd")
PROCESS = ("process_name", "process_labels", "process_sort_index")


@pytest.mark.parametrize("name", [*NAMES[:1], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])])
def test_the_report_of_the_job_stays(name: str, tmp_path: Path) -> None:
    paths, output = sorted(JOBS.glob(f"{name}.rank*.json.gz")), tmp_path / "job.json.gz"
    merge_ranks(paths, output)
    own, back = (list(map(digest, traces)) for traces in (map(read_trace, paths), read_ranks(output)))
    assert back == own
    assert ranks_headline(ranks_report(back)) == ranks_headline(ranks_report(own))


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    return found


def rank_of(event: dict[str, Any]) -> int:
    pid = event["pid"]
    return int(pid % 10 if isinstance(pid, int) else pid.split(":")[0].removeprefix("rank "))


def sums(found: list[dict[str, Any]]) -> dict[tuple[Any, Any, str], tuple[int, Decimal, Decimal]]:
    """The number, the times and the durations of events of each kind and name, but for those that name processes."""
    kinds: dict[tuple[Any, Any, str], tuple[int, Decimal, Decimal]] = {}
    for event in found:
        if event["ph"] != "M" or event["name"] not in PROCESS:
            kind = event.get("cat"), event["ph"], event["name"]
            number, times, durations = kinds.get(kind, (0, Decimal(0), Decimal(0)))
            kinds[kind] = number + 1, times + event["ts"], durations + event.get("dur", 0)
    return kinds


def arrows(found: list[dict[str, Any]]) -> Counter[tuple[str, ...]]:
    """The arrows by the phases of all events with their id."""
    ends: dict[tuple[str, int], list[str]] = {}
    for event in found:
        if event.get("cat") in FLOWS:
            ends.setdefault((event["cat"], event["id"]), []).append(event["ph"])
    return Counter(tuple(sorted(phases)) for phases in ends.values())


@pytest.mark.parametrize("name", ["mesh_late_rank3", "tp_mlp_8192"])
def test_every_event_is_there(name: str, tmp_path: Path) -> None:
    """Sums of decimal numbers, so to the last digit; no arrow leads to another rank, and no row has events of two."""
    paths, output = sorted(JOBS.glob(f"{name}.rank*.json.gz")), tmp_path / "job.json.gz"
    merge_ranks(paths, output)
    found, owns = events(output), list(map(events, paths))
    for rank, own in enumerate(owns):
        of_rank = [event for event in found if rank_of(event) == rank]
        assert sums(of_rank) == sums(own)
        assert arrows(of_rank) == arrows(own)
        assert len({event["pid"] for event in of_rank}) == len({event["pid"] for event in own})
    assert arrows(found) == sum(map(arrows, owns), Counter())
    assert len({event["pid"] for event in found}) == sum(len({event["pid"] for event in own}) for own in owns)
