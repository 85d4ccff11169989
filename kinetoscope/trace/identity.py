"""What a kernel that communicates belongs to: the collective, its process group, and its number in the group.

Kineto writes it on the kernel. Where CUPTI lost the link, `record_param_comms` above the launch has the same arguments;
without shapes, the annotation around the launch (`nccl:all_to_all`) still has the name. The field names are those of
torch/csrc/distributed/c10d/ParamCommsUtils.hpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import structs

from kinetoscope.trace.communication import communicates, kind_of
from kinetoscope.trace.events import Collective, CpuOp
from kinetoscope.trace.kineto_events import CollectiveArgs

MAX_DEPTH = 12
"""Operators above a launch that are searched for a collective."""
_ANNOTATION = re.compile(r"(?:nccl|rccl|xccl|hccl|mccl|gloo|ucc|c10d|_c10d_functional):+(.+)")
_PEERS = re.compile(r"(?:send|recv) \d{1,9}(?:->|<-)(\d{1,9})")
_NUMBER = re.compile(r"\d{1,9}")
_HASH = re.compile(r"[0-9a-f]{16,}")
MAX_ALL_MEMBERS = 1 << 22
"""Of all process groups of a file; the members of further groups stay unknown. A job of 100,000 ranks has 1 million."""


class Members(dict[tuple[str, int, int | None, int | None], tuple[int, ...]]):
    """The members of process groups, by their text, their number, and the first rank and the stride: each once."""

    def __init__(self) -> None:
        super().__init__()
        self._left = MAX_ALL_MEMBERS

    def __missing__(self, key: tuple[str, int, int | None, int | None]) -> tuple[int, ...]:
        members = _ranks(*key, most=self._left)
        self._left -= len(members)
        return self.setdefault(key, members)


def collective_of(args: CollectiveArgs, members: Members) -> Collective | None:
    """The collective that arguments describe; None if they describe none."""
    if args.collective is None:
        return None
    size = args.group_size
    ranks = members[args.group_ranks or "", size or 0, args.first_rank, args.rank_stride]
    name = kind_of(args.collective)
    peer = args.target_rank if name == "send" else args.source_rank if name == "recv" else None
    own = args.group_rank if name not in ("send", "recv", "") else None  # of a send or a receive, it is the other's
    return Collective(
        args.collective,
        args.elements_in,
        args.elements_out,
        args.type or "",
        size,
        _group(args, ranks),
        ranks,
        args.sequence,
        ranks[peer] if peer is not None and 0 <= peer < len(ranks) else peer,
        args.comms_id,
        ranks[own] if own is not None and 0 <= own < len(ranks) else None,
    )


def stated_rank(collectives: Iterable[Collective]) -> int | None:
    """The rank in the whole job of which all of these collectives are; None if they do not tell, or differ."""
    ranks = {collective.rank for collective in collectives} - {None}
    return ranks.pop() if len(ranks) == 1 else None


def _group(args: CollectiveArgs, ranks: tuple[int, ...]) -> str:
    """The name of the group; its description if the name is a hash and the members tell the group apart."""
    name, described = args.group or "", args.group_description or ""
    return described if described and (not name or (ranks and _HASH.fullmatch(name))) else name


def _ranks(text: str, size: int, first: int | None, stride: int | None, *, most: int) -> tuple[int, ...]:
    """The members of a group, from `[0, 1]`, or from the first rank and the stride where the list is cut; none above
    `most`."""
    listed = tuple(map(int, _NUMBER.findall(text)))
    if listed and "..." not in text and size in (0, len(listed)):
        return listed
    if first is not None and stride and stride > 0 and 0 < size <= most:
        return tuple(range(first, first + stride * size, stride))
    return ()


def collective_around(kernel_name: str, op: CpuOp | None, stated: Mapping[int, Collective]) -> Collective | None:
    """The collective that the operators around a launch describe; None if there is none.

    `stated`: id of a `record_param_comms` operator -> its collective. A kernel whose name does not tell that it
    communicates does so only directly inside such an operator or an annotation of its library: others copy or add.
    """
    if op is None or not (communicates(kernel_name) or id(op) in stated or _annotated(op)):
        return None
    around = op.chain[: -MAX_DEPTH - 1 : -1]
    name = next(filter(None, map(_annotated, around)), "")
    collective = next((stated[id(each)] for each in around if id(each) in stated), None)
    if collective is None:
        return Collective(name, peer=_peer(name)) if name else None
    return collective if kind_of(collective.name) or not name else structs.replace(collective, name=name)


def _annotated(op: CpuOp) -> str:
    """The name of an annotation or operator that starts a collective, if it tells which; else empty."""
    match = _ANNOTATION.fullmatch(op.name[:200])
    return op.name if match and kind_of(match[1]) else ""


def _peer(name: str) -> int | None:
    """The other rank, from `nccl:send 1->2` or `nccl:recv 2<-1`."""
    match = _PEERS.search(name)
    return int(match[1]) if match else None
