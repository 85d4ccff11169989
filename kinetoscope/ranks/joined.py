"""Read a file that holds several ranks, as `merge` writes it: the trace of each rank, as its own file has it."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from kinetoscope.ranks.rank_ids import Pid, PidReader
from kinetoscope.trace.assembly import assemble
from kinetoscope.trace.content import Content, Source, source_name
from kinetoscope.trace.decoding import EventDecoder
from kinetoscope.trace.errors import TraceError
from kinetoscope.trace.events import Trace
from kinetoscope.trace.json_events import JSON_ERRORS, EventText
from kinetoscope.trace.kineto import LIMIT_BYTES, no_collection, require_recorded
from kinetoscope.trace.metadata import MERGED_RANKS, Metadata
from kinetoscope.trace.progress import Progress

MEMBER, VERSION = MERGED_RANKS, 1
MAX_BYTES = 1_000 * LIMIT_BYTES
"""Of a merged file, after decompression; no more than one rank of it is in memory."""
_START = re.compile(rb'\s*\{\s*"' + MEMBER.encode() + rb'"\s*:')
_AGAIN = "merge the ranks again, with this release"
Rank = Annotated[int, Meta(ge=0, le=2**31)]
Group = Sequence[Raw] | Sequence[bytes]


class MergedRank(Struct, frozen=True):
    """What the head of a merged file tells of a rank."""

    rank: Rank
    members: dict[str, Raw]
    """The top-level members of the rank's file that are not the same in all files."""
    is_cut: bool = False
    left_out: dict[str, Annotated[int, Meta(ge=1, le=2**53)]] = {}
    """Events that could not be merged, by reason."""


class MergedRanks(Struct, frozen=True):
    """The head of a merged file: the ranks in the order in which their events follow."""

    version: int
    digits: Annotated[int, Meta(ge=1, le=10)]
    """Of the rank at the end of each id."""
    world_size: Rank | None
    ranks: Annotated[tuple[MergedRank, ...], Meta(min_length=1)]


class _Process(Struct):
    pid: Pid = None


_PROCESS: msgspec.json.Decoder[_Process] = msgspec.json.Decoder(_Process)


def is_merged(path: str | os.PathLike[str]) -> bool:
    """Whether `merge` wrote a file; False if it is unreadable, or a pipe, which can be read only once."""
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            head = file.read(1000)
        if head.startswith(b"\x1f\x8b"):
            head = zlib.decompressobj(wbits=31).decompress(head, 200)
    except (OSError, ValueError, zlib.error):
        return False
    return bool(_START.match(head))


def read_recorded_ranks(source: str | os.PathLike[str] | bytes, *, limit_bytes: int) -> tuple[Trace, ...]:
    """The traces of all ranks of a file that this project recorded, as `read_recorded_trace` reads one; raise
    `TraceError` above `limit_bytes` after decompression."""
    return tuple(require_recorded(trace, source) for trace in read_ranks(source, limit_bytes=limit_bytes))


def read_ranks(source: Source, *, limit_bytes: int = MAX_BYTES) -> Iterator[Trace]:
    """Yield the trace of each rank of a merged file, one after the other: no more than one is in memory.

    Times, names, processes and threads are those of the rank's own file; correlations and other ids end with the digits
    of the rank. Of a file that is cut off, the last rank is cut and later ranks are missing. Raises `TraceError`.
    """
    with no_collection(), Progress(source_name(source)) as progress:
        content = Content(source, limit_bytes, progress)
        text = EventText(content.blocks(), content.where)
        reader: _Reader | None = None
        for group in text.events():
            if reader is None:
                reader = _Reader(_head(text, content.where), text.members, content.where)
            yield from reader.read(group)
        if reader is None or not reader.rank:
            raise TraceError(f"{content.where}: is cut off before the first event; copy it again, or {_AGAIN}")
        yield reader.trace(is_cut=text.is_cut or content.is_cut)


class _Reader:
    """Decodes the events of the ranks, which follow each other."""

    def __init__(self, head: MergedRanks, members: dict[str, Raw], where: str) -> None:
        self._head, self._members, self._where = head, dict(members), where
        self._pids = PidReader(head.digits)
        self._waiting = {each.rank: each for each in head.ranks}
        self.rank: MergedRank | None = None
        """The rank whose events are read."""
        self._decoder, self._size_bytes = EventDecoder(), 0

    def read(self, group: Group) -> Iterator[Trace]:
        """Decode events; yield the trace of each rank that ends among them."""
        for number, events in self._by_rank(group):
            if self.rank is None or number != self.rank.rank:
                if self.rank is not None:
                    yield self.trace()
                self._begin(number)
            self._size_bytes += sum(map(len, events))
            if self._size_bytes > LIMIT_BYTES:
                raise TraceError(f"{self._where}: over {LIMIT_BYTES:,} bytes of rank {number}; record fewer steps")
            self._decoder.decode(events)

    def _begin(self, number: int | None) -> None:
        if number not in self._waiting:
            raise TraceError(f"{self._where}: was changed after the ranks were merged; {_AGAIN}")
        self.rank = self._waiting.pop(number)
        self._decoder, self._size_bytes = EventDecoder(), 0

    def _by_rank(self, group: Group) -> Iterator[tuple[int | None, Group]]:
        """The events in stretches of one rank; as ranks follow each other, the ends of most groups tell all."""
        if group and self._rank_of(group[0]) == self._rank_of(group[-1]):
            yield self._rank_of(group[0]), group
            return
        for number, events in groupby(group, self._rank_of):
            yield number, list(events)

    def _rank_of(self, text: Raw | bytes) -> int | None:
        try:
            return self._pids.rank(_PROCESS.decode(text).pid)
        except JSON_ERRORS:
            return None

    def trace(self, *, is_cut: bool = False) -> Trace:
        """The trace of the events that are read."""
        rank, kept = self.rank, self._decoder.kept
        assert rank is not None
        self._pids.restore(kept)
        for reason, count in rank.left_out.items():
            kept.left_out.add(reason, None, is_work=True, count=count)
        metadata = Metadata.of({**self._members, **rank.members})
        world_size = metadata.world_size or self._head.world_size
        metadata = msgspec.structs.replace(metadata, rank=rank.rank, world_size=world_size)
        return assemble(kept, metadata, is_cut=is_cut or rank.is_cut)


def _head(text: EventText, where: str) -> MergedRanks:
    try:
        head = msgspec.json.decode(text.members[MEMBER], type=MergedRanks)
    except (KeyError, *JSON_ERRORS) as error:
        raise TraceError(f"{where}: its member {MEMBER} is missing or damaged; {_AGAIN}") from error
    if head.version != VERSION:
        raise TraceError(f"{where}: merged by another release; {_AGAIN}")
    return head
