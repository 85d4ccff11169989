"""Decode the events of a Kineto file. A malformed event does not affect others: the events around it are decoded one by
one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from kinetoscope.trace.json_events import JSON_ERRORS, undecoded
from kinetoscope.trace.json_repair import repaired
from kinetoscope.trace.kept_events import MAX_LABELS, MAX_RUNS, KeptEvents
from kinetoscope.trace.kineto_events import (
    DECODER,
    IGNORED,
    KEPT,
    LIST_DECODER,
    NAMED,
    NO_TEXT,
    WORK,
    Annotation,
    CollectiveArgs,
    Communication,
    DriverCall,
    Event,
    Function,
    GpuAnnotation,
    Instant,
    Kernel,
    Memcpy,
    Memset,
    Op,
    OpArgs,
    Overhead,
    RuntimeCall,
    Samples,
    Wait,
)
from kinetoscope.trace.left_out import (
    NO_CATEGORY,
    NO_DURATION,
    NO_JSON,
    NO_OBJECT,
    NO_PHASE,
    NO_SIZE,
    NO_TIME,
)


class _Head(Struct, gc=False):
    """The fields that tell whether an event is decoded further."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    args: Raw = Raw(b"")


_HEAD: msgspec.json.Decoder[_Head] = msgspec.json.Decoder(_Head)
PARAM_COMMS = "record_param_comms"
"""The operator of PyTorch's process groups whose arguments describe a collective."""
_LATEST = 1e19


def decode_window(text: bytes) -> list[Any]:
    """The events of a list, decoded together, which takes half of the time; if that fails, the JSON of each.

    Raises an error of `JSON_ERRORS` if the text is not a list.
    """
    if PARAM_COMMS.encode() not in text:  # its arguments are decoded from its JSON
        with suppress(*JSON_ERRORS):
            return LIST_DECODER.decode(text)
    return undecoded(text)


class EventDecoder:
    """Decodes events and sorts them into `kept`."""

    def __init__(self) -> None:
        self.kept = kept = KeptEvents()
        self._values: dict[Any, Any] = {}  # many events share few names, threads and grids: keep one object of each
        self._texts: dict[bytes, bytes] = {}
        lists: dict[type, list[Any]] = {
            Op: kept.ops, Annotation: kept.ops, RuntimeCall: kept.calls, DriverCall: kept.calls,
            Kernel: kept.activities, Memcpy: kept.activities, Memset: kept.activities, Function: kept.functions,
            Instant: kept.memory, Overhead: kept.overheads, GpuAnnotation: kept.gpu_annotations,
            Wait: kept.waits, Samples: kept.counters,
        }  # fmt: skip
        self._list_of = {
            kind: next(lists[base] for base in kind.__mro__ if base in lists) for kind in (*KEPT.values(), *NAMED)
        }

    def decode(self, group: Sequence[Any]) -> None:
        """Keep the complete events of `group`: decoded events, or the JSON of one event each."""
        list_of, shared, kept = self._list_of, self._values.setdefault, self.kept
        ops, calls, activities = kept.ops, kept.calls, kept.activities
        process = kept.runs[-1][0] if kept.runs else None
        first, last, longest = kept.first, kept.last, kept.longest
        kept.seen += len(group)
        for item in group:
            event, events = item, list_of.get(type(item))
            if events is None:
                event = self._decoded(item) if isinstance(item, Raw | bytes) else item
                events = list_of.get(type(event))
                if events is None:
                    continue
            if events is kept.memory or events is kept.counters:
                self._keep_values(event, events)
                continue
            ts, duration = event.ts, event.dur
            if not (-_LATEST < ts < _LATEST and duration >= 0):  # NaN: no time
                kept.left_out.add(_damage(event), event.name, is_work=isinstance(event, WORK))
                continue
            event.name, event.tid = shared(event.name, event.name), shared(event.tid, event.tid)
            event.pid = pid = shared(event.pid, event.pid)
            if events is ops:
                args = event.args
                if (
                    args.input_dims is not NO_TEXT
                    or args.input_types is not NO_TEXT
                    or args.input_strides is not NO_TEXT
                ):
                    self._detach(args)
                if event.name == PARAM_COMMS and item is not event:
                    event = _communication(event, item)
            elif events is activities:
                args = event.args
                if args.moved_bytes == IMPOSSIBLE:
                    kept.left_out.add(NO_SIZE, event.name, is_work=True)
                    continue
                args.grid, args.block = shared(args.grid, args.grid), shared(args.block, args.block)
            events.append(event)
            if ts < first:
                first = ts
            if ts > last:
                last = ts
            if duration > longest:
                longest = duration
            if pid != process and (events is ops or events is calls) and len(kept.runs) < MAX_RUNS:
                process = pid
                kept.runs.append((process, len(activities)))
        kept.first, kept.last, kept.longest = min(kept.first, first), max(kept.last, last), longest

    def _decoded(self, text: Raw | bytes) -> Any:
        try:
            return DECODER.decode(text)
        except JSON_ERRORS:
            return self._lenient(text)

    def _keep_values(self, event: Instant | Samples, events: list[Any]) -> None:
        """Keep the complete events of the allocator and of counters."""
        if isinstance(event, Instant) and event.name != "[memory]":
            return
        if reason := _damage(event):
            self.kept.left_out.add(reason, event.name, is_work=False)
            return
        shared = self._values.setdefault
        event.name, event.pid = shared(event.name, event.name), shared(event.pid, event.pid)
        events.append(event)
        self.kept.first, self.kept.last = min(self.kept.first, event.ts), max(self.kept.last, event.ts)

    def _detach(self, args: OpArgs) -> None:
        """Keep one copy of each text of shapes; the decoder's is a view, which keeps a whole window of the file."""
        args.input_dims = self._own(args.input_dims)
        args.input_strides = self._own(args.input_strides)
        args.input_types = self._own(args.input_types)

    def _own(self, view: Raw) -> Any:
        text = bytes(view)
        return self._texts.setdefault(text, text)

    def _lenient(self, text: Raw | bytes, *, is_repaired: bool = False) -> Any:
        """Decode an event whose field types differ from the declared types, as between versions of torch; None if that
        fails."""
        try:
            bytes(text).decode()  # values that a decoder skips are not checked
            head = _HEAD.decode(text)
        except JSON_ERRORS:
            if not bytes(text).startswith(b"{"):
                self.kept.unread["no object"] += 1
                self.kept.left_out.add(NO_OBJECT, None, is_work=True)
                return None
            better = None if is_repaired else repaired(bytes(text))
            if better is None:
                self.kept.left_out.add(NO_JSON, None, is_work=True)
                return None
            return self._lenient(better, is_repaired=True)
        if head.ph == "M" and head.name in ("process_name", "process_labels"):
            self._label(head)
        category = "cpu_instant_event" if head.cat is None and head.name == "[memory]" else head.cat
        if head.ph == Samples.phase and not (isinstance(category, str) and category in KEPT):
            category = "hardware_counters"  # other tools' counters have no category
        kind = KEPT.get(category) if isinstance(category, str) else None
        if kind is None or head.ph != kind.phase:
            self._pass_over(head, category if isinstance(category, str) else "", kind)
            return None
        event = kind(**_readable(text, kind))
        if isinstance(event, Instant) and _lacks_size(head.args, event):
            event.args = msgspec.structs.replace(event.args, bytes=None)
        if isinstance(event, Memcpy | Memset) and event.args.moved_bytes is None and _states(head.args, "bytes"):
            event.args.moved_bytes = IMPOSSIBLE
        return event

    def _pass_over(self, head: _Head, category: str, kind: type[Any] | None) -> None:
        """Count an event that is not read; what begins and ends in two events (B and E) is one."""
        if kind is not None:
            self.kept.left_out.add(NO_PHASE, head.name, is_work=issubclass(kind, WORK))
        elif _looks_like_gpu_work(head, category):
            self.kept.left_out.add(NO_CATEGORY, head.name, is_work=True)
        if head.ph not in ("X", "B"):
            return
        self.kept.unread[category if head.ph == "X" else f"{category} in B and E events".strip()] += 1
        if isinstance(head.pid, str) and len(self.kept.labels) < MAX_LABELS:
            self.kept.labels.setdefault(head.pid, head.pid[:200])

    def _label(self, head: _Head) -> None:
        with suppress(*JSON_ERRORS):
            given = msgspec.json.decode(head.args, type=dict[str, str])
            text = given.get("name") or given.get("labels") or ""
            if isinstance(head.pid, (int, float, str)):
                self.kept.labels[head.pid] = f"{self.kept.labels.get(head.pid, '')} {text}"[:200]


IMPOSSIBLE = -1
"""The bytes of a copy or fill that states impossible ones."""


def _damage(event: Any) -> str:
    """Why an event is left out; empty if its time, duration and size are possible."""
    if not -_LATEST < event.ts < _LATEST:  # NaN: no timestamp
        return NO_TIME
    if isinstance(event, Event):
        return "" if event.dur >= 0 else NO_DURATION  # NaN: no duration
    return NO_SIZE if isinstance(event, Instant) and event.args.bytes is None else ""


def _states(args: Raw, key: str) -> bool:
    """Whether the arguments give a value; ROCm's profiler leaves out the bytes of fills and of some copies."""
    with suppress(*JSON_ERRORS):
        return bytes(_RAW_OBJECT.decode(args).get(key, b"null")) != b"null"
    return False


def _lacks_size(args: Raw, event: Instant) -> bool:
    """Whether a total of a memory event is given and impossible."""
    totals = ("Total Allocated", event.args.total_allocated), ("Total Reserved", event.args.total_reserved)
    return any(value is None and _states(args, key) for key, value in totals)


def _looks_like_gpu_work(head: _Head, category: str) -> bool:
    """Whether an event without a known category has the arguments that Kineto gives to GPU work."""
    if category in IGNORED or head.ph == Samples.phase:
        return False
    return all(key in bytes(head.args) for key in (b'"correlation"', b'"stream"', b'"device"'))


def _communication(event: Op, text: Raw | bytes) -> Op:
    """The event with the arguments of its collective; unchanged if they cannot be read."""
    with suppress(*JSON_ERRORS):
        args = CollectiveArgs(**_readable(_HEAD.decode(text).args, CollectiveArgs))
        return Communication(event.ph, event.name, event.pid, event.tid, event.ts, event.dur, event.args, args)
    return event


_RAW_OBJECT: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])


def _readable(text: Raw | bytes, kind: type[Struct]) -> dict[str, Any]:
    """The decodable fields of `kind`, also from strings: "7" is a stream."""
    readable: dict[str, Any] = {}
    given = _RAW_OBJECT.decode(text)
    for name, key, decode in _fields(kind):
        if key in given:
            with suppress(msgspec.ValidationError):
                readable[name] = decode(given[key])
    return readable


@lru_cache(maxsize=64)
def _fields(kind: type[Struct]) -> tuple[tuple[str, str, Callable[[Raw], Any]], ...]:
    """Name, key in the file and decoder of each field; cached, because inspecting a type takes longer than an event."""
    return tuple((item.name, item.encode_name, _decoder(item)) for item in msgspec.structs.fields(kind))


def _decoder(item: msgspec.structs.FieldInfo) -> Callable[[Raw], Any]:
    if item.name != "args":
        return msgspec.json.Decoder(item.type, strict=False).decode
    kind: type[Struct] = item.type
    return lambda text: kind(**_readable(text, kind))
