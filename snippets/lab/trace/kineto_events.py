"""Decode the events of a Kineto file, each separately and only the fields that the lab uses."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import Meta, Raw, Struct, field

from snippets.lab.trace.events import Triple


class _OpArgs(Struct, frozen=True, gc=False):
    external_id: int | None = field(name="External id", default=None)
    input_dims: Raw = field(name="Input Dims", default=Raw(b""))
    input_strides: Raw = field(name="Input Strides", default=Raw(b""))
    input_types: Raw = field(name="Input type", default=Raw(b""))


class _CallArgs(Struct, frozen=True, gc=False):
    external_id: int | None = field(name="External id", default=None)
    correlation: int = 0


class _GpuArgs(Struct, frozen=True, gc=False):
    external_id: int | None = field(name="External id", default=None)
    device: int | None = None
    stream: int | None = None
    correlation: int | None = None
    registers: int | None = field(name="registers per thread", default=None)
    shared_memory_bytes: int | None = field(name="shared memory", default=None)
    grid: Triple | None = None
    block: Triple | None = None
    occupancy_percent: float | None = field(name="est. achieved occupancy %", default=None)
    moved_bytes: int | None = field(name="bytes", default=None)


class Event(Struct, gc=False, tag_field="cat", tag=""):
    """A complete event; its category determines the arguments to decode."""

    ph: Literal["X"]
    name: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: Annotated[float, Meta(ge=-1e18, le=1e18)] = math.nan
    dur: Annotated[float, Meta(le=1e15)] = 0.0


class Op(Event, gc=False, tag="cpu_op"):
    """An operator."""

    args: _OpArgs = _OpArgs()


class Annotation(Op, gc=False, tag="user_annotation"):
    """A `record_function` span."""


class RuntimeCall(Event, gc=False, tag="cuda_runtime"):
    """A call of the CUDA runtime."""

    args: _CallArgs = _CallArgs()


class DriverCall(RuntimeCall, gc=False, tag="cuda_driver"):
    """A call of the CUDA driver."""


class Kernel(Event, gc=False, tag="kernel"):
    """A kernel."""

    args: _GpuArgs = _GpuArgs()


class Memcpy(Kernel, gc=False, tag="gpu_memcpy"):
    """A memcpy."""


class Memset(Kernel, gc=False, tag="gpu_memset"):
    """A memset."""


class GpuAnnotation(Event, gc=False, tag="gpu_user_annotation"):
    """An annotation mirrored on the GPU."""


class Overhead(Event, gc=False, tag="overhead"):
    """The profiler's own time."""


class _Flow(Struct, gc=False, tag_field="cat", tag="ac2g"):
    """Ignored, but half of a trace's events: without this type each would raise, as unknown categories do."""


class _PythonFunction(_Flow, gc=False, tag="python_function"): ...


_KEPT: dict[str, type[Event]] = {
    "cpu_op": Op,
    "user_annotation": Annotation,
    "cuda_runtime": RuntimeCall,
    "cuda_driver": DriverCall,
    "kernel": Kernel,
    "gpu_memcpy": Memcpy,
    "gpu_memset": Memset,
    "gpu_user_annotation": GpuAnnotation,
    "overhead": Overhead,
}
_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Union[_Flow, _PythonFunction, *_KEPT.values()])


class TraceFile(Struct):
    """Keeps events as text until each is decoded: half the memory, and a malformed event does not affect others."""

    events: list[Raw] = field(name="traceEvents")
    device_properties: Any = field(name="deviceProperties", default=None)


def kept_events(file: TraceFile) -> dict[type, list[Any]]:
    """Return the complete events by category and empty the file's list."""
    decode = _DECODER.decode
    kept: dict[type, list[Any]] = {kind: [] for kind in _KEPT.values()}
    names: dict[str, str] = {}  # many events share few names: keep one string of each
    for text in file.events:
        try:
            event = decode(text)
        except msgspec.ValidationError:
            event = _lenient(text)
        events = kept.get(type(event))
        if events is not None and event.ts == event.ts:  # NaN: no timestamp
            event.name = names.setdefault(event.name, event.name)
            events.append(event)
    file.events.clear()
    return kept


def _lenient(text: Raw) -> Event | None:
    """Decode an event whose field types differ from ours, as between versions of torch; None if that fails."""
    with suppress(msgspec.ValidationError, KeyError):
        given = msgspec.json.decode(text, type=dict[str, Raw])
        kind = _KEPT[msgspec.json.decode(given["cat"], type=str)]
        if msgspec.json.decode(given["ph"]) == "X":
            return kind(**_readable(given, kind))
    return None


def _readable(given: dict[str, Raw], kind: type[Struct]) -> dict[str, Any]:
    """The fields of `kind` that can be decoded, also from strings: "7" is a stream."""
    readable: dict[str, Any] = {}
    for item in msgspec.structs.fields(kind):
        with suppress(msgspec.ValidationError, KeyError):
            text = given[item.encode_name]
            if item.name == "args":
                readable["args"] = item.type(**_readable(msgspec.json.decode(text, type=dict[str, Raw]), item.type))
            else:
                readable[item.name] = msgspec.json.decode(text, type=item.type, strict=False)
    return readable
