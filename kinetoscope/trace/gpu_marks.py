"""Annotations that a trace shows on the GPU alone, as where no CPU event was recorded: they mark steps, too.

The profiler mirrors an annotation on each stream on which it has work, from the start of the first activity to the end
of the last. Where the launches are in the trace, an annotation lasts from its first launch to the end of its last. In a
trace without any launch, the annotations of one stream count, that with the most work, and each activity belongs where
it starts: on another stream, in the annotation of the same name and place in the order.

`ProfilerStep#3` lasts until `ProfilerStep#4` begins, since `prof.step()` ends one step and begins the next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import structs

from kinetoscope.trace.events import CpuOp, CudaCall, GpuActivity, in_whole_ns, outer_first, starting_in
from kinetoscope.trace.intervals import length_us, union_of
from kinetoscope.trace.process_events import Part
from kinetoscope.trace.profiler_steps import number_of

_MAX_NESTED = 32

Streams = dict[str, list[CpuOp]]
"""Device and stream -> annotations on the GPU, in start order."""


def with_gpu_annotations(part: Part, annotations: Sequence[CpuOp]) -> Part | None:
    """The part with the annotations of the GPU among its operators; None if it has annotations of its own.

    `annotations`: in start order; the thread of each is its device and stream.
    """
    if not annotations or not part.activities or any(op.is_annotation for op in part.ops):
        return None
    streams: Streams = defaultdict(list)
    work: dict[str, list[GpuActivity]] = defaultdict(list)
    for annotation in annotations:
        streams[annotation.thread].append(annotation)
    for activity in part.activities:
        if activity.launch is not None or not part.calls:
            work[f"{activity.device}/{activity.stream}"].append(activity)
    if part.calls or part.ops:
        marks = _until_next(sorted(_launched(streams, work), key=outer_first))
        return structs.replace(part, ops=sorted([*part.ops, *marks], key=outer_first)) if marks else None
    base = max(streams, key=lambda stream: length_us(union_of(work.get(stream, ()))))
    placed = {id(activity): activity.start_us for activity in part.activities}
    for stream in streams.keys() - {base}:
        placed |= _placed(_same(streams[base], streams[stream]), work.get(stream, ()))
    return structs.replace(part, ops=_until_next(streams[base]), placed=placed)


def _until_next(annotations: Sequence[CpuOp]) -> list[CpuOp]:
    """The annotations, each `ProfilerStep#` until the next number begins."""
    steps = [op for op in annotations if number_of(op.name) is not None]
    ends = {id(step): after.start_us for step, after in pairwise(steps) if _follows(step, after)}
    return [
        structs.replace(op, duration_us=max(op.duration_us, in_whole_ns(ends.get(id(op), 0.0) - op.start_us)))
        for op in annotations
    ]


def _follows(step: CpuOp, after: CpuOp) -> bool:
    return number_of(after.name) == (number_of(step.name) or 0) + 1


def _launched(streams: Streams, work: Mapping[str, Sequence[GpuActivity]]) -> Iterator[CpuOp]:
    """Each annotation at the time in which its work was launched, on the thread that launched it.

    Annotations of one name, thread and place in the order are one, if they are as many on each stream; else those of
    the stream that has most of them.
    """
    named: dict[tuple[str, str], dict[str, list[tuple[CudaCall, CudaCall]]]] = defaultdict(lambda: defaultdict(list))
    for stream, on_stream in streams.items():
        for annotation in on_stream:
            within = starting_in(work.get(stream, ()), annotation.start_us, annotation.end_us)
            first, last = (within[0].launch, within[-1].launch) if within else (None, None)  # a stream keeps the order
            if first is not None and last is not None:
                named[annotation.name, first.thread][stream].append((first, last))
    for (name, thread), found_on in named.items():
        most = max(map(len, found_on.values()))
        for mirrors in zip(*(found for found in found_on.values() if len(found) == most), strict=True):
            start_us = min(first.start_us for first, _ in mirrors)
            end_us = max(call.end_us for ends in mirrors for call in ends)
            yield CpuOp(name, start_us, in_whole_ns(end_us - start_us), thread, is_annotation=True)


def _same(base: Sequence[CpuOp], others: Sequence[CpuOp]) -> list[tuple[CpuOp, CpuOp]]:
    """The annotations of another stream with those of the first stream that have their name and place in the order, if
    they are as many on both streams."""
    names: dict[str, tuple[list[CpuOp], list[CpuOp]]] = defaultdict(lambda: ([], []))
    for index, on_stream in enumerate((base, others)):
        for annotation in on_stream:
            names[annotation.name][index].append(annotation)
    pairs = (zip(other, first, strict=True) for first, other in names.values() if len(first) == len(other))
    return sorted((pair for each in pairs for pair in each), key=lambda pair: outer_first(pair[0]))


def _placed(pairs: Sequence[tuple[CpuOp, CpuOp]], activities: Sequence[GpuActivity]) -> Iterator[tuple[int, float]]:
    """Each activity in one of the first annotations, by its id, with the start of the annotation's counterpart: of the
    innermost annotation."""
    starts = [span.start_us for span, _ in pairs]
    for activity in activities:
        index = bisect_right(starts, activity.start_us)
        around = (
            first
            for span, first in reversed(pairs[max(0, index - _MAX_NESTED) : index])
            if activity.start_us < span.end_us
        )
        if (innermost := next(around, None)) is not None:
            yield id(activity), innermost.start_us
