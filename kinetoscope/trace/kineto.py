"""Read Kineto JSON into a `Trace`: plain or gzip, an object or a bare list, whole or cut off. Raises `TraceError`.

content.py yields the text in blocks, json_events.py splits it into events, decoding.py decodes each and only the fields
that kinetoscope uses. So a large trace loads fast, and a malformed event does not affect others. A profiler's trace
needs 1.2 times its text in memory (1 GB: 1.2 GB); a file of the smallest possible events needs at most 20 times.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from kinetoscope.trace.assembly import assemble
from kinetoscope.trace.content import Content, Source, source_name
from kinetoscope.trace.decoding import EventDecoder, decode_window
from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.json_events import EventText
from kinetoscope.trace.marks import PROFILER_STEP
from kinetoscope.trace.metadata import Metadata
from kinetoscope.trace.progress import Progress

LIMIT_BYTES = 2_000_000_000


def read_trace(source: Source, *, limit_bytes: int = LIMIT_BYTES, progress: Progress | None = None) -> Trace:
    """Read a trace from a file or from its bytes; raise `TraceError` above `limit_bytes` after decompression.

    `progress` belongs to a caller that goes on with it; without it, only reading is reported.
    """
    with no_collection():
        if progress is not None:
            return _read(Content(source, limit_bytes, progress), progress)
        with Progress(source_name(source)) as own:
            return _read(Content(source, limit_bytes, own), own)


def read_recorded_trace(source: str | os.PathLike[str] | bytes, *, limit_bytes: int = LIMIT_BYTES) -> Trace:
    """Read a trace that this project recorded: it must be whole, and only `ProfilerStep` marks its steps."""
    return require_recorded(read_trace(source, limit_bytes=limit_bytes), source)


def require_recorded(trace: Trace, source: str | os.PathLike[str] | bytes) -> Trace:
    """The trace with the steps of `ProfilerStep` only. Raises `TraceError` if it is cut off."""
    if trace.is_cut:
        where = "trace" if isinstance(source, bytes) else os.fspath(source)
        raise TraceError(f"{where}: the file is cut off; copy or record the trace again")
    if trace.steps_from == PROFILER_STEP:
        return trace
    return msgspec.structs.replace(trace, steps=(), unattributed=trace.activities)


@contextmanager
def no_collection() -> Iterator[None]:
    """Pause the garbage collector, which would scan millions of live objects repeatedly and find no cycle.

    At the end, the new objects become old ones at once: else the next collection would scan them all.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _read(content: Content, progress: Progress) -> Trace:
    text, decoder = EventText(content.blocks(), content.where, decode_window), EventDecoder()
    for group in text.events():
        decoder.decode(group)
    if text.is_cut and not decoder.kept.seen:
        raise TraceError(f"{content.where}: is not complete JSON (cut off before the first event); copy it again")
    progress.stage("linking events of")
    return assemble(decoder.kept, Metadata.of(text.members), is_cut=text.is_cut or content.is_cut)
