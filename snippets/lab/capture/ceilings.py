"""Ceilings: what this device can do when nothing is in its way.

A copy moves bytes and computes nothing; a large matrix product computes and hardly moves. Every "percent of peak" in
the book is a percentage of one of these, measured in the same process as what it is compared with.
"""

from __future__ import annotations

from snippets.lab.capture.timing import prepare, time_prepared
from snippets.lab.experiment import Experiment, Work, copy_subject, matmul_subject
from snippets.lab.recording.schema import Ceiling

LARGE = 8192
COPY_BYTES = 1 << 30


def measure_ceilings(group: tuple[Experiment, ...]) -> tuple[Ceiling, ...]:
    """Copy bandwidth, a large matmul, and a bare matmul at every shape of the group, interleaved."""
    subjects = {"copy": copy_subject("cuda", COPY_BYTES)}
    works = {"copy": Work(bytes=2 * COPY_BYTES)}
    for shape in matmul_shapes(group):
        name = "matmul " + "x".join(map(str, shape))
        subjects[name], works[name] = matmul_subject("cuda", *shape), matmul_work(*shape)
    timings = time_prepared({name: prepare(subject) for name, subject in subjects.items()})
    return tuple(Ceiling(name, works[name].bytes, works[name].flops, timings[name]) for name in subjects)


def matmul_shapes(group: tuple[Experiment, ...]) -> list[tuple[int, int, int]]:
    """The large shape, then every other (M, K, N) of the group's work, each once."""
    shapes = {(LARGE,) * 3: None}
    for experiment in group:
        for parameters in experiment.points:
            if experiment.work is not None:
                shapes |= dict.fromkeys(experiment.work(**parameters).matmuls)
    return list(shapes)


def matmul_work(m: int, k: int, n: int) -> Work:
    """bf16: two bytes for each element of the two factors and of the product."""
    return Work(bytes=2 * (m * k + k * n + m * n), matmuls=((m, k, n),))
