"""Ceilings: the rates that this device reaches when nothing limits them but the hardware.

A copy moves bytes and computes nothing; a large matrix product computes and moves few bytes. Every "percent of peak" in
the book is a percentage of one of these ceilings, or of a bare matmul in the layout and the type of the step. Each is
timed in the same turns as the step.
"""

from __future__ import annotations

from collections.abc import Mapping

from snippets.lab.capture.timing import Variant, prepare
from snippets.lab.experiment import Experiment, Subject, Work, copy_subject, matmul_subject
from snippets.lab.recording.ceilings import COPY, LARGE_MATMUL, matmul_name
from snippets.lab.recording.schema import Ceiling, Timing

LARGE = 8192
COPY_BYTES = 1 << 30
SHARED: dict[str, Variant] = {}
"""The copy and the large matmul, prepared once in a process: 6 GiB in all."""


def ceiling_works(group: tuple[Experiment, ...], index: int) -> dict[str, Work]:
    """Name -> work: a copy, a large matmul, and a bare matmul of each product of the group's steps at one point."""
    works = {COPY: Work(bytes=2 * COPY_BYTES), LARGE_MATMUL: matmul_work(LARGE, LARGE, LARGE, Work(bytes=0))}
    for experiment in group:
        if experiment.work is not None:
            step = experiment.work(**experiment.points[index])
            works |= {matmul_name(*shape, step.layout, step.dtype): matmul_work(*shape, step) for shape in step.matmuls}
    return works


def matmul_work(m: int, k: int, n: int, step: Work) -> Work:
    """A product in the layout and type of a step: both factors and the product move once."""
    item_bytes = 4 if step.dtype == "float32" else 2
    return Work(item_bytes * (m * k + k * n + m * n), ((m, k, n),), layout=step.layout, dtype=step.dtype)


def prepare_ceilings(works: Mapping[str, Work]) -> dict[str, Variant]:
    """Ceilings ready for timing, by name."""
    for name in (COPY, LARGE_MATMUL):
        if name not in SHARED:
            SHARED[name] = prepare(_subject(name, works[name]))
    return {name: SHARED.get(name) or prepare(_subject(name, work)) for name, work in works.items()}


def _subject(name: str, work: Work) -> Subject:
    if name == COPY:
        return copy_subject("cuda", COPY_BYTES)
    return matmul_subject("cuda", *work.matmuls[0], work.layout, work.dtype)


def timed_ceilings(works: Mapping[str, Work], timings: Mapping[str, Timing]) -> tuple[Ceiling, ...]:
    """The timings with their work."""
    return tuple(Ceiling(name, work.bytes, work.flops, timings[name]) for name, work in works.items())
