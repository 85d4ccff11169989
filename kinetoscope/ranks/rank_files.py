"""What the files of a job's ranks tell before they are merged: rank, times, damage; and whether they are of one job."""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from kinetoscope.ranks.different_runs import different_runs
from kinetoscope.ranks.joined import is_merged
from kinetoscope.trace.assembly import unit_ns
from kinetoscope.trace.content import Content
from kinetoscope.trace.errors import TraceError
from kinetoscope.trace.json_events import JSON_ERRORS, EventText
from kinetoscope.trace.json_repair import repaired
from kinetoscope.trace.kineto import LIMIT_BYTES, read_trace
from kinetoscope.trace.left_out import NO_JSON, NO_OBJECT
from kinetoscope.trace.metadata import Metadata
from kinetoscope.trace.progress import Progress

DAY_NS = 86_400 * 10**9
DEFAULT_GROUP = "0"
_IN_NAME = (re.compile(r"rank[\s._=-]*([0-9]{1,6})(?![0-9])", re.I), re.compile(r"(?<![a-z0-9])r([0-9]{1,6})\b", re.I))
_SAMPLES = 10_000
_DECODER: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])
_TIME: msgspec.json.Decoder[float] = msgspec.json.Decoder(Annotated[float, Meta(ge=-1e18, le=1e18)])

UNNUMBERED = "No file tells its rank: the ranks are in the order of the files."
Event = dict[str, Raw]


@dataclass(frozen=True)
class RankFile:
    """The trace of one rank, read once."""

    path: Path
    rank: int
    members: dict[str, Raw]
    """The top-level members besides the events."""
    metadata: Metadata
    is_cut: bool
    events: int
    """Without the events that are left out."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Events that no file of JSON can hold, by reason."""
    span_ns: tuple[int, int, int] = 0, 0, 0
    """Start, middle and end of most events, in ns since the time 0 of its clock."""
    unit_ns: int = 1000
    """Nanoseconds in the unit of its times."""
    is_numbered: bool = False
    """Whether its place among the files is its rank, as no file tells a rank."""


def survey(paths: Sequence[Path]) -> list[RankFile]:
    """Read every file once, and return them in the order of their ranks.

    A rank is that of `distributedInfo`, else of the trace's collectives, else of the file's name; if no file tells its
    rank, the order of the files counts. Raises `TraceError` if a file cannot be read, a rank is unknown or there twice,
    or the files are of different jobs.
    """
    if len(paths) < 2:
        raise TraceError("give the traces of two ranks or more")
    for path in paths:
        if path.exists() and not path.is_file():
            raise TraceError(f"{path}: is not a file; save the trace first")
        if is_merged(path):
            raise TraceError(f"{path}: holds several ranks already; give the trace of each rank")
    files = [_read(path, f"{number} of {len(paths)}") for number, path in enumerate(paths, 1)]
    ranks = list(map(_rank, files))
    is_numbered = set(ranks) == {None}
    if is_numbered:
        ranks = list(range(len(files)))
    for path, rank in zip(paths, ranks, strict=True):
        if rank is None:
            raise TraceError(f"{path}: tells no rank; put the rank into its name, such as rank3.json.gz")
    numbered = zip(files, ranks, strict=True)
    found = [replace(file, rank=rank or 0, is_numbered=is_numbered) for file, rank in numbered]
    _require_one_job(found)
    return sorted(found, key=lambda file: file.rank)


def readable(text: Raw | bytes) -> Event | str:
    """An event as JSON that any reader takes; a reason if there is no such."""
    try:
        bytes(text).decode()
        return _DECODER.decode(text)
    except JSON_ERRORS:
        if not bytes(text).startswith(b"{"):
            return NO_OBJECT
        better = repaired(bytes(text))
        return NO_JSON if better is None else _DECODER.decode(better)


def notes(files: Sequence[RankFile]) -> Iterator[str]:
    """What the merged file lacks, and what may be wrong with it."""
    if files[0].is_numbered:
        yield UNNUMBERED
    if not any(map(_is_placed, files)):
        yield "No file tells its base time: starts on different ranks may not be comparable."
    size = world_size(files)
    missing = size - len(files) if size else 0
    if missing > 0:
        given = {file.rank for file in files}
        listed = list(islice((rank for rank in count() if rank not in given), min(missing, 8)))
        more = f" and {missing - len(listed):,} more" * (missing > len(listed))
        yield f"{len(files)} of {size:,} ranks are given; missing: {', '.join(map(str, listed))}{more}."
    for file in files:
        if file.is_cut:
            yield f"Rank {file.rank}: the file is cut off or damaged; the events before that are merged."
        for reason, lost in file.left_out.items():
            yield f"Rank {file.rank}: damaged: {lost:,} event{'s' * (lost != 1)} {reason}, left out."
    if apart := different_runs({file.rank: (file.span_ns[0], file.span_ns[2]) for file in files}):
        yield apart


def world_size(files: Sequence[RankFile]) -> int | None:
    """The number of the job's ranks, if a file tells it."""
    return next((file.metadata.world_size for file in files if file.metadata.world_size), None)


def _read(path: Path, of: str) -> RankFile:
    times, left_out, events = array("d"), Counter[str](), 0
    with Progress(f"{path} ({of})") as progress:
        content = Content(path, LIMIT_BYTES, progress)
        text = EventText(content.blocks(), content.where)
        for group in text.events():
            for each in group:
                event = readable(each)
                if isinstance(event, str):
                    left_out[event] += 1
                    continue
                events += 1
                if (time := _time(event)) is not None:
                    times.append(time)
    if not events:
        raise TraceError(f"{path}: no event in it; record or copy the trace again")
    metadata, is_cut = Metadata.of(text.members), text.is_cut or content.is_cut
    file = RankFile(path, -1, text.members, metadata, is_cut, events, left_out)
    sample = sorted(times[:: max(1, len(times) // _SAMPLES)])
    if not sample:
        return file
    unit = unit_ns(sample[len(sample) // 2], metadata.base_ns)
    start, middle, end = (sample[int(len(sample) * part)] for part in (0.01, 0.5, 0.99))
    start_ns, middle_ns, end_ns = (metadata.base_ns + round(time * unit) for time in (start, middle, end))
    return replace(file, span_ns=(start_ns, middle_ns, end_ns), unit_ns=unit)


def _is_placed(file: RankFile) -> bool:
    """Whether its times tell when it was recorded: it has a base time, or its times count from 1970."""
    return file.metadata.base_ns > 0 or file.span_ns[1] > 365 * DAY_NS


def _time(event: Event) -> float | None:
    """The time of an event; None if it has none, or an impossible one."""
    try:
        return _TIME.decode(event["ts"])
    except (KeyError, *JSON_ERRORS):
        return None


def _rank(file: RankFile) -> int | None:
    if file.metadata.rank is not None:
        return file.metadata.rank
    stated = read_trace(file.path).rank
    return _named_rank(file.path) if stated is None else stated


def _named_rank(path: Path) -> int | None:
    """3 of `rank3.json.gz`, `trace_rank-3.json` and `tp_r3.json`."""
    matches = (pattern.search(path.name) for pattern in _IN_NAME)
    return next((int(match[1]) for match in matches if match), None)


def named_ranks(paths: Sequence[Path]) -> list[int]:
    """The ranks that the names of files tell; empty if a name tells none, or two the same."""
    ranks = [rank for path in paths if (rank := _named_rank(path)) is not None]
    return ranks if len(set(ranks)) == len(paths) else []


def _require_one_job(files: Sequence[RankFile]) -> None:
    paths_of: dict[int, list[Path]] = defaultdict(list)
    for file in files:
        paths_of[file.rank].append(file.path)
    for rank, paths in sorted(paths_of.items()):
        if len(paths) > 1:
            raise TraceError(f"{paths[0]} and {paths[1]} are both of rank {rank}; give each rank of one job once")
    sizes = sorted({file.metadata.world_size for file in files} - {None}, key=lambda size: size or 0)
    if len(sizes) > 1:
        raise TraceError(
            f"ranks of different jobs: world sizes {', '.join(map(str, sizes))}; give the ranks of one job"
        )
    members = [dict(file.metadata.groups).get(DEFAULT_GROUP) for file in files]
    if len(set(members) - {None}) > 1:
        raise TraceError(
            "ranks of different jobs: the default process group has other members in one file than in another; give "
            "the ranks of one job"
        )
    _require_one_time(files)


def _require_one_time(files: Sequence[RankFile]) -> None:
    if len({file.metadata.base_ns for file in files}) > 1:
        for file in files:
            if not _is_placed(file):
                raise TraceError(f"{file.path}: tells no base time, as other files do; record all ranks alike")
            if file.unit_ns != 1000:
                raise TraceError(f"{file.path}: its times are not in microseconds, as those of other files are")
    first, last = (of(files, key=lambda file: file.span_ns[1]) for of in (min, max))
    days = (last.span_ns[1] - first.span_ns[1]) // DAY_NS
    if days >= 1:
        raise TraceError(
            f"ranks of different jobs: rank {last.rank} was recorded {days:,} day{'s' * (days > 1)} after rank "
            f"{first.rank}; give the ranks of one job"
        )
