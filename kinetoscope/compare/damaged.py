"""What the files of a comparison lost, and whether a gate can judge them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kinetoscope.ranks.digest import Digest
from kinetoscope.trace.events import Trace
from kinetoscope.trace.soundness import damage_texts, is_whole

NOT_JUDGED = (
    "The gate does not pass: a file is cut off, or kernels, calls or operators in it are damaged or missing, so that "
    "times per step are wrong. Copy or record the traces again."
)


def damage_of(before: Iterable[Trace | Digest], after: Iterable[Trace | Digest]) -> tuple[str, ...]:
    """A sentence for each way in which a file is not whole, with its side."""
    return (*_texts("before", before), *_texts("after", after))


def are_whole(*sides: Sequence[Trace]) -> bool:
    """Whether times per step of all traces can be judged."""
    return all(is_whole(trace) for side in sides for trace in side)


def _texts(side: str, files: Iterable[Trace | Digest]) -> Iterator[str]:
    for number, file in enumerate(files, 1):
        where = side if number == 1 else f"{side}, file {number}"
        texts = damage_texts(file) if isinstance(file, Trace) else (text for rank in file.ranks for text in rank.damage)
        yield from (f"{where}: {text}" for text in texts)
