"""Merge the traces of a job's ranks into one file, which Perfetto shows and `read_ranks` reads back.

Each rank's file is read twice, an event at a time: once to check it, once to copy its events. No event is lost, and
times keep all their digits: they are added as decimal numbers, and stay as they are where all files have one base time.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from decimal import Context, Decimal, DecimalException
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Raw

from kinetoscope.files import new_file
from kinetoscope.ranks.joined import MEMBER, VERSION, MergedRank, MergedRanks
from kinetoscope.ranks.process_labels import ProcessLabels
from kinetoscope.ranks.rank_files import DAY_NS, RankFile, readable, survey, world_size
from kinetoscope.ranks.rank_ids import RankIds
from kinetoscope.trace.content import Content
from kinetoscope.trace.errors import TraceError
from kinetoscope.trace.json_events import JSON_ERRORS, MAX_MEMBERS_BYTES, EventText
from kinetoscope.trace.kineto import LIMIT_BYTES
from kinetoscope.trace.progress import Progress

BASE, JOB, EVENTS = "baseTimeNanoseconds", "distributedInfo", "traceEvents"
LEVEL = 6
"""Of gzip."""
_SECOND_NS = 10**9
_EXACT = Context(prec=60)


def merge_ranks(paths: Sequence[Path], output: Path) -> list[RankFile]:
    """Merge the traces of a job's ranks into `output`, with gzip if its name ends in `.gz`; return what they tell.

    The file is written whole or not at all. Raises `TraceError` as `survey` does, before anything is written, and if
    `output` is one of the files or has another ending than `.json` or `.json.gz`; `CommandError` if it cannot be
    written.
    """
    _require_output(paths, output)
    with new_file(output) as stored, _text_file(stored, output) as file:
        files = survey(paths)
        base_ns, digits = _common_base_ns(files), len(str(files[-1].rank))
        file.write(_head(files, base_ns, digits))
        separator = b""
        for number, rank in enumerate(files, 1):
            with Progress(f"{rank.path} ({number} of {len(files)})", "merging") as progress:
                for event in _events(rank, base_ns, digits, progress):
                    file.write(separator + event)
                    separator = b",\n"
        file.write(b"\n]}\n")
    return files


def _require_output(paths: Sequence[Path], output: Path) -> None:
    if not output.name.lower().endswith((".json", ".json.gz")):
        raise TraceError(f"{output}: is no name of a trace; give -o a name that ends in .json.gz or .json")
    if output.is_dir():
        raise TraceError(f"{output}: is a folder; give -o a file in it, such as {output / 'job.json.gz'}")
    if output.exists() and any(path.exists() and path.samefile(output) for path in paths):
        raise TraceError(f"{output}: would replace a trace that is merged; give -o another name")


def _common_base_ns(files: Sequence[RankFile]) -> int:
    """The base time of the merged file. If the files differ, a day before the first, where times have few digits.

    A time of another base would have too many digits for readers that take it as a 64-bit floating-point number.
    """
    bases = {file.metadata.base_ns for file in files}
    if len(bases) == 1:
        return bases.pop()
    first_ns = min(file.span_ns[1] for file in files) - DAY_NS
    return first_ns - first_ns % _SECOND_NS


def _head(files: Sequence[RankFile], base_ns: int, digits: int) -> bytes:
    """The members before the events: those that are the same in all files, and those of each rank."""
    own = [
        {name: value for name, value in file.members.items() if name not in (BASE, EVENTS, MEMBER)} for file in files
    ]
    common = {
        name: value
        for name, value in own[0].items()
        if name != JOB and all(bytes(members.get(name, b"")) == bytes(value) for members in own)
    }
    ranks = tuple(
        MergedRank(
            file.rank,
            {name: value for name, value in members.items() if name not in common},
            file.is_cut,
            dict(file.left_out),
        )
        for file, members in zip(files, own, strict=True)
    )
    merged = MergedRanks(VERSION, digits, world_size(files), ranks)
    members = {MEMBER: merged, **common}
    if devices := next((each["deviceProperties"] for each in own if "deviceProperties" in each), None):
        members.setdefault("deviceProperties", devices)
    if job := _job(files):
        members[JOB] = job
    if base_ns:
        members[BASE] = base_ns
    head = msgspec.json.encode(members).removesuffix(b"}") + b',\n"traceEvents": [\n'
    if len(head) > MAX_MEMBERS_BYTES:
        raise TraceError(f"{len(files):,} ranks are too many for one file; merge some of them, or give report digests")
    return head


def _job(files: Sequence[RankFile]) -> dict[str, object]:
    """`distributedInfo` of the whole job: without a rank, and with the process groups of all ranks."""
    infos: list[dict[str, object]] = []
    for file in files:
        with suppress(KeyError, *JSON_ERRORS):
            infos.append(msgspec.json.decode(file.members[JOB], type=dict[str, object]))
    if not infos:
        return {}
    groups: dict[bytes, object] = {}
    for info in infos:
        configs = info.get("pg_config")
        for config in configs if isinstance(configs, list) else ():
            groups.setdefault(msgspec.json.encode(config, order="sorted"), config)
    job = {name: value for name, value in infos[0].items() if name != "rank"}
    return {**job, "pg_config": list(groups.values())} if groups else job


def _events(file: RankFile, base_ns: int, digits: int, progress: Progress) -> Iterator[bytes]:
    """The events of a rank as they are in the merged file, then its processes with their labels."""
    ids, labels = RankIds(file.rank, digits), ProcessLabels(file.rank)
    shift_us = Decimal(file.metadata.base_ns - base_ns).scaleb(-3, _EXACT)
    text = EventText(Content(file.path, LIMIT_BYTES, progress).blocks(), str(file.path))
    encode, count = msgspec.json.encode, 0
    for group in text.events():
        for each in group:
            event = readable(each)
            if isinstance(event, str):
                continue
            count += 1
            ids.replace(event)
            if shift_us and "ts" in event:
                event["ts"] = _shifted(event["ts"], shift_us)
            if not labels.take(event):
                yield encode(event)
    if count != file.events:
        raise TraceError(f"{file.path}: was changed while it was merged; merge the ranks again")
    yield from map(encode, labels.events())


def _shifted(time: Raw, shift_us: Decimal) -> Raw:
    """A time from another base, with all its digits; what is no number stays."""
    try:
        number = _EXACT.add(_EXACT.create_decimal(bytes(time).decode().strip('"')), shift_us)
    except DecimalException:
        return time
    return Raw(f"{number:f}".encode()) if number.is_finite() else time


@contextmanager
def _text_file(stored: IO[bytes], output: Path) -> Iterator[IO[bytes]]:
    """The file for the text, compressed if its name says so; the same text gives the same bytes."""
    if output.suffix.lower() != ".gz":
        yield stored
        return
    with gzip.GzipFile("", "wb", LEVEL, stored, mtime=0) as file:
        yield file  # type: ignore[misc]
