"""Merge digests of the ranks of one job. Any order and any tree give the same result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from kinetoscope.ranks.digest import FORMAT, VERSION, Digest, RankDigest
from kinetoscope.ranks.kernels import KernelDigest, kernel_key
from kinetoscope.trace.events import TraceError

T = TypeVar("T")


def merge(digests: Iterable[Digest]) -> Digest:
    """Merge digests of different ranks of one job.

    Raises `TraceError` if a rank is unknown or occurs twice, if world sizes differ, or without a digest.
    """
    parts = list(digests)
    if len(parts) == 1:
        return parts[0]
    ranks = tuple(sorted((rank for part in parts for rank in part.ranks), key=lambda each: each.rank or 0))
    require_distinct(ranks)
    kernels = _united((each for part in parts for each in part.kernels), kernel_key, _kernel)
    return Digest(FORMAT, VERSION, ranks, kernels)


def are_ranks(ranks: Sequence[RankDigest]) -> bool:
    """Whether these are ranks of one job: all numbers known and different, the world sizes equal and not 1."""
    numbers, sizes = {rank.rank for rank in ranks}, {rank.world_size for rank in ranks}
    return len(ranks) > 1 and len(numbers) == len(ranks) and None not in numbers and len(sizes) == 1 and sizes != {1}


def require_distinct(ranks: Sequence[RankDigest]) -> None:
    """Raise `TraceError` unless all ranks are known and different, and have one world size."""
    if not ranks:
        raise TraceError("no digest to merge")
    counts = Counter(rank.rank for rank in ranks)
    if None in counts:
        raise TraceError("a trace does not say which rank it is; give --rank when you write its digest")
    twice = sorted(str(number) for number, count in counts.items() if count > 1)
    if twice:
        raise TraceError(f"rank {twice[0]} is there twice; give each rank of one job once")
    sizes = sorted({str(rank.world_size) for rank in ranks})
    if len(sizes) > 1:
        raise TraceError(f"ranks of different jobs: world sizes {', '.join(sizes)}; give the ranks of one job")


def _united(items: Iterable[T], key: Callable[[T], tuple[Any, ...]], joined: Callable[[T, T], T]) -> tuple[T, ...]:
    united: dict[tuple[Any, ...], T] = {}
    for item in items:
        known = united.get(key(item))
        united[key(item)] = item if known is None else joined(known, item)
    return tuple(united[each] for each in sorted(united))


def _kernel(one: KernelDigest, other: KernelDigest) -> KernelDigest:
    durations = Counter(one.durations) + Counter(other.durations)
    return KernelDigest(
        one.name,
        min(one.operation, other.operation),
        one.grid,
        one.block,
        one.calls + other.calls,
        one.total_ns + other.total_ns,
        min(one.min_ns, other.min_ns),
        max(one.max_ns, other.max_ns),
        dict(sorted(durations.items())),
    )
