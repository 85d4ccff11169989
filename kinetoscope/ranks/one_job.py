"""Whether two files are ranks of one job though they do not say so: recorded at one time, and communicating."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Literal

from msgspec import Struct

from kinetoscope.ranks.digest import Digest, RankDigest
from kinetoscope.trace.communication import is_collective
from kinetoscope.trace.events import Trace, last_end_us
from kinetoscope.trace.intervals import ns

MIN_COMMON = 0.5
"""Least part of the shorter of two recordings that has the time of the other: then they are of one time."""
_RANKS = "not one program before and after a change"
Kinship = Literal["one job", "one time", "unknown", ""]


class _Run(Struct, frozen=True):
    """What a file tells about its run."""

    rank: int | None
    world_size: int | None
    span_ns: tuple[int, int] | None
    """Start and end of its steps, since 1970; None if the file does not tell the date."""
    communicates: bool


def are_unnumbered_ranks(before: Trace | Digest, after: Trace | Digest) -> bool:
    """Whether two files are ranks of one job, and no file tells its rank."""
    old, new = _run(before), _run(after)
    return old.rank is None and new.rank is None and _kinship(old, new) == "one job"


def ranks_text(before: Sequence[Trace | Digest], after: Sequence[Trace | Digest]) -> str:
    """That files of the two sides are ranks of one job, or may be, in a sentence; empty if nothing says so."""
    for old, new in product(map(_run, before), map(_run, after)):
        if found := _kinship(old, new):
            return _text(found, old, new)
    return ""


def _text(found: Kinship, old: _Run, new: _Run) -> str:
    if found == "one job" and None not in (old.rank, new.rank):
        return f"The files are rank {old.rank} and rank {new.rank} of one job, {_RANKS}: report compares ranks."
    if found == "one job":
        return (
            "Both files were recorded at the same time, and both communicate with other GPUs: they are ranks of one "
            f"job, {_RANKS}. The command report compares ranks."
        )
    if found == "one time":
        return f"Both files were recorded at the same time: they may be two processes of one job, {_RANKS}."
    return (
        "Both files communicate with other GPUs, and do not tell their ranks and when they were recorded: they may be "
        f"ranks of one job, {_RANKS}. The command merge joins ranks for report."
    )


def _kinship(old: _Run, new: _Run) -> Kinship:
    sizes = {old.world_size, new.world_size} - {None}
    if (old.rank is not None and old.rank == new.rank) or len(sizes) > 1 or 1 in sizes:
        return ""
    do_communicate = old.communicates and new.communicates
    are_known = None not in (old.rank, new.rank)
    if old.span_ns is None or new.span_ns is None:
        return "" if not do_communicate else "one job" if are_known else "unknown"
    if (old.span_ns == new.span_ns and not are_known) or not _are_of_one_time(old.span_ns, new.span_ns):
        return ""
    return "one job" if do_communicate else "one time"


def _are_of_one_time(one: tuple[int, int], other: tuple[int, int]) -> bool:
    shorter = min(end - start for start, end in (one, other))
    common = min(one[1], other[1]) - max(one[0], other[0])
    return common > 0 and common >= MIN_COMMON * shorter


def _run(side: Trace | Digest) -> _Run:
    if isinstance(side, Trace):
        ends = (max(step.end_us, last_end_us(step.activities)) for step in side.steps)
        span = (ns(min(step.start_us for step in side.steps)), ns(max(ends))) if side.steps else None
        rank = None if side.processes else side.rank
        communicates = any(is_collective(each) for step in side.steps for each in step.activities)
        return _Run(rank, side.world_size, _placed(span, side.origin_ns), communicates)
    return _of_ranks(side.ranks)


def _of_ranks(ranks: Sequence[RankDigest]) -> _Run:
    if len(ranks) > 1:
        return _Run(None, None, None, communicates=False)
    (first,) = ranks
    span = (first.windows[0].start_ns, first.windows[-1].end_ns) if first.windows else None
    return _Run(first.rank, first.world_size, _placed(span, first.origin_ns), first.collectives > 0)


def _placed(span: tuple[int, int] | None, origin_ns: int) -> tuple[int, int] | None:
    return None if span is None or origin_ns <= 0 else (origin_ns + span[0], origin_ns + span[1])
